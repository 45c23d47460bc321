//! A validator's folder: made, checked, changed while the validator runs, moved to another machine, and its
//! database removed.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, Net};
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

fn quorate(arguments: &[&str]) -> Output {
    Command::new(BINARY)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn succeed(arguments: &[&str]) -> String {
    let output = quorate(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn fail(arguments: &[&str]) -> String {
    let output = quorate(arguments);
    assert!(!output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn edit(file: &str, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{file} does not hold {from:?}");
    fs::write(file, text.replace(from, to)).unwrap();
}

#[test]
fn which_protocol_a_folder_is_for_is_told_and_a_changed_genesis_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("net").to_str().unwrap().to_owned();
    let told = succeed(&["testnet", "--out", &out, "--protocol", "pbft", "--plain"]);
    assert!(
        told.starts_with("4 validators, pbft, ledger, bls-threshold\n"),
        "{told}"
    );
    let config = format!("{out}/validator-0/validator.toml");
    let genesis = format!("{out}/validator-0/genesis.json");
    let checked = succeed(&["config", "check", &config]);
    assert!(
        checked.contains("; pbft, ledger, bls-threshold)"),
        "{checked}"
    );
    assert!(!checked.contains("trust.json"), "{checked}");
    edit(&genesis, "\"pbft\"", "\"simplex\"");
    let checked = succeed(&["config", "check", &config]);
    assert!(
        checked.contains("validator-0/trust.json is of the chain ")
            && checked.contains("validator-0/genesis.json makes the chain "),
        "{checked}"
    );
    edit(&genesis, "  \"protocol\": \"simplex\",\n", "");
    let refused = fail(&["config", "check", &config]);
    assert!(
        refused
            .contains("genesis.json: the key `protocol` is missing. This file is the same for all"),
        "{refused}"
    );
}

#[test]
fn a_testnet_names_its_hosts_and_tells_of_its_account() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let out = at("net");
    let hosts = "v0.example.org,v1.example.org:9000,192.0.2.7,2001:db8::7";
    let told = succeed(&["testnet", "--out", &out, "--hosts", hosts, "--plain"]);
    assert!(
        told.contains("account/identity.key owns 1000000000"),
        "{told}"
    );
    assert!(told.contains("trusted dealer"), "{told}");
    let config = fs::read_to_string(format!("{out}/validator-0/validator.toml")).unwrap();
    for address in [
        "v1.example.org:9000",
        "192.0.2.7:26600",
        "[2001:db8::7]:26600",
    ] {
        assert!(
            config.contains(&format!("address = \"{address}\"")),
            "{config}"
        );
    }
    assert!(
        !config.contains("v0.example.org"),
        "it does not dial itself"
    );
    // Each folder alone is complete.
    let alone = at("alone");
    fs::rename(format!("{out}/validator-2"), &alone).unwrap();
    fs::remove_dir_all(&out).unwrap();
    let checked = succeed(&["config", "check", &format!("{alone}/validator.toml")]);
    assert!(checked.contains("validator 2 of 4"), "{checked}");
    assert!(checked.contains("not checked: "), "{checked}");

    // Nobody deals with the other scheme, and without an account nothing can ever be paid.
    let out = at("aggregate");
    let mut create = vec![
        "testnet",
        "--out",
        &out,
        "--plain",
        "--scheme",
        "bls-aggregate",
    ];
    create.extend(["--validators", "1", "--balance", "0"]);
    let told = succeed(&create);
    assert!(
        !told.contains("dealer") && !told.contains("share"),
        "{told}"
    );
    assert!(told.contains("No account holds anything"), "{told}");
    assert!(
        told.contains("the chain stops when any validator does"),
        "{told}"
    );
    assert!(fail(&create).contains("is not empty"));
    for (hosts, told) in [
        ("a,b,c,d:0", "\"d:0\" cannot be reached"),
        ("0.0.0.0", "\"0.0.0.0\" cannot be reached"),
        ("a,a", "validator 0 would use port 26600"),
        ("10.0.0.300", "\"10.0.0.300\" cannot be reached"),
    ] {
        let refused = fail(&["testnet", "--out", &at("bad"), "--plain", "--hosts", hosts]);
        assert!(refused.contains(told), "{refused}");
        assert!(!Path::new(&at("bad")).exists(), "nothing is left behind");
    }
}

#[test]
fn a_key_of_the_wrong_kind_is_told_and_a_passphrase_is_set_changed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let out = at("net");
    succeed(&[
        "testnet",
        "--out",
        &out,
        "--passphrases",
        "--validators",
        "1",
    ]);
    let [identity, vote] =
        ["identity.key", "vote.key"].map(|key| format!("{out}/validator-0/{key}"));
    let old = format!("{out}/passphrases/validator-0");
    let shown = succeed(&["keys", "show", &identity, "--passphrase-file", &old]);
    let wrong = fail(&["keys", "show", &vote, "--passphrase-file", &old]);
    assert!(
        wrong.contains("holds a vote key, and an identity key is needed"),
        "{wrong}"
    );
    let config = format!("{out}/validator-0/validator.toml");
    edit(&config, "\"vote.key\"", "\"identity.key\"");
    let wrong = fail(&["config", "check", &config, "--passphrase-file", &old]);
    assert!(
        wrong.contains("holds an identity key, and a vote key is needed"),
        "{wrong}"
    );

    let new = at("new");
    fs::copy(format!("{out}/passphrases/account"), &new).unwrap();
    let change = [
        "keys",
        "passphrase",
        &identity,
        &vote,
        "--passphrase-file",
        &old,
    ];
    succeed(&[&change[..], &["--new-passphrase-file", &new]].concat());
    let refused = fail(&["keys", "show", &identity, "--passphrase-file", &old]);
    assert!(refused.contains("passphrase is wrong"), "{refused}");
    assert_eq!(
        succeed(&["keys", "show", &identity, "--passphrase-file", &new]),
        shown
    );
    succeed(&[
        "keys",
        "passphrase",
        "--remove",
        &identity,
        "--passphrase-file",
        &new,
    ]);
    assert_eq!(succeed(&["keys", "show", &identity]), shown);
    let refused = fail(&["keys", "passphrase", "--remove", &identity]);
    assert!(refused.contains("has no passphrase"), "{refused}");
    succeed(&[
        "keys",
        "passphrase",
        &identity,
        "--new-passphrase-file",
        &old,
    ]);
    assert_eq!(
        succeed(&["keys", "show", &identity, "--passphrase-file", &old]),
        shown
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_and_log_level_are_taken_over_and_a_broken_file_is_refused() {
    let mut net = Net::start("reload", 4).await;
    net.grow(0, 5).await;
    let config = net.config(0);
    let good = fs::read_to_string(&config).unwrap();
    let log = net.path().join("validator-0/node.log");
    let log = || fs::read_to_string(&log).unwrap();
    let address = net.settings.p2p_address(2).to_string();
    let name = address.replace("127.0.0.1", "localhost");
    edit(&config, &address, &name);
    edit(&config, "# level = \"info\"", "level = \"debug\"");
    edit(&config, "# max_per_sender = 10000", "max_per_sender = 77");
    let told = net.succeed(&["reload", "--config", &config]);
    assert!(told.contains(&format!("{name} (was {address})")), "{told}");
    assert!(told.contains("log.level: debug"), "{told}");
    assert!(
        told.contains("needs a restart: mempool.max_per_sender"),
        "{told}"
    );
    // A name that nobody knows is told where the change is asked for, and so is a file's mistake, line by line.
    let unknown = address.replace("127.0.0.1", "nobody.invalid");
    edit(&config, &name, &unknown);
    let told = net.succeed(&["reload", "--config", &config]);
    assert!(told.contains("is not found now"), "{told}");
    edit(&config, &unknown, &name);
    edit(&config, "max_per_sender", "max_per_sendre");
    let told = net.fail(&["reload", "--config", &config]);
    assert!(told.contains("\nunknown field `max_per_sendre`"), "{told}");
    edit(&config, "max_per_sendre", "max_per_sender");
    net.succeed(&["reload", "--config", &config]);
    net.until("it logs more", async |_| log().contains(" DEBUG "))
        .await;
    net.until("the name is resolved", async |net| {
        let peers = net.succeed(&["peers", "list", "--config", &net.config(0)]);
        peers.contains(&format!("{name} (127.0.0.1)"))
    })
    .await;
    net.grow(0, 5).await;

    // The signal does the same, and never ends the process.
    let process = net.network.process(0).unwrap().to_string();
    let hang_up = || {
        let sent = Command::new("kill").args(["-HUP", &process]).status();
        assert!(sent.unwrap().success());
    };
    let refusals = || {
        log()
            .matches("the configuration was to be read again and is refused")
            .count()
    };
    for (from, to) in [
        (name.as_str(), "0.0.0.0:9"),
        ("[mempool]", "[mempool"),
        ("level = \"debug\"", "level = \"loud\""),
    ] {
        let text = fs::read_to_string(&config).unwrap();
        let before = refusals();
        edit(&config, from, to);
        hang_up();
        net.until("it refuses", async |_| refusals() > before).await;
        let refused = net.fail(&["reload", "--config", &config]);
        // Without a readable file the command does not find the validator.
        let unread = to == "[mempool" && refused.contains("TOML parse error");
        assert!(
            unread || refused.contains("the old one stays in use"),
            "{refused}"
        );
        fs::write(&config, text).unwrap();
    }
    let peers = net.succeed(&["peers", "list", "--config", &config]);
    assert!(peers.contains(&name), "the old settings stay: {peers}");
    fs::write(&config, good).unwrap();
    hang_up();
    net.until("the old address is back", async |net| {
        let peers = net.succeed(&["peers", "list", "--config", &net.config(0)]);
        peers.contains(&address)
    })
    .await;
    assert!(
        net.succeed(&["reload", "--config", &config])
            .contains("nothing has changed")
    );
    net.grow(0, 5).await;
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_validator_that_was_moved_runs_in_one_place_only() {
    let mut net = Net::start("moving", 1).await;
    net.grow(0, 20).await;
    let config = net.config(0);
    let archive = net.directory.path().join("moved.tar");
    let archive = archive.to_str().unwrap();
    let export = ["move", "export", "--config", &config, "--out", archive];
    let refused = net.fail(&export);
    assert!(refused.contains("stop the node first"), "{refused}");
    assert!(net.network.stop().is_empty());
    // No room, no folder: the validator is as it was.
    let nowhere = net.fail(&[
        "move",
        "export",
        "--config",
        &config,
        "--out",
        "/nowhere/at/all.tar",
    ]);
    assert!(nowhere.contains("the validator is as it was"), "{nowhere}");
    let check = ["config", "check", &config];
    net.succeed(&check);
    net.succeed(&export);
    let run = ["run", "--config", &config, "--allow-plain-keys"];
    for refused in [net.fail(&run), net.fail(&check), net.fail(&export)] {
        assert!(refused.contains("this validator has moved"), "{refused}");
    }
    // With a fresh data directory the key does not run here either.
    let text = fs::read_to_string(&config).unwrap();
    edit(&config, "data_dir = \"data\"", "data_dir = \"fresh\"");
    let refused = net.fail(&run);
    assert!(refused.contains("this validator has moved"), "{refused}");
    fs::write(&config, text).unwrap();

    // Half an archive is none.
    let bytes = fs::read(archive).unwrap();
    let half = net.directory.path().join("half.tar");
    fs::write(&half, &bytes[..bytes.len() / 2]).unwrap();
    let out = net.directory.path().join("elsewhere");
    let out = out.to_str().unwrap();
    let refused = net.fail(&["move", "import", half.to_str().unwrap(), "--out", out]);
    assert!(refused.contains("half.tar"), "{refused}");
    assert!(!Path::new(out).exists(), "nothing is left of it");
    let elsewhere = format!("{out}/validator.toml");
    let copy = net.directory.path().join("copy.tar");
    fs::copy(archive, &copy).unwrap();
    let state = net.directory.path().join("state");
    let import = |archive: &str, out: &str, more: &[&str]| {
        let mut command = Command::new(BINARY);
        command.env("XDG_STATE_HOME", &state);
        command
            .args(["move", "import", archive, "--out", out])
            .args(more);
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        (output.status.success(), told)
    };
    assert!(import(archive, out, &[]).0);
    assert!(!Path::new(archive).exists(), "it is imported once");
    // A copy of the archive is a copy of the validator.
    let copy = copy.to_str().unwrap();
    let second = net.directory.path().join("second");
    let second = second.to_str().unwrap();
    let (imported, told) = import(copy, second, &[]);
    assert!(!imported && told.contains("was imported before"), "{told}");
    assert!(told.contains(out), "{told}");
    assert!(!Path::new(second).exists() && Path::new(copy).exists());
    assert!(import(copy, second, &["--again"]).0);
    fs::remove_dir_all(second).unwrap();
    let checked = net.succeed(&["config", "check", &elsewhere]);
    assert!(checked.contains("validator 0 of 1"), "{checked}");
    let before = net.height(0).await;
    let database = net.succeed(&["db", "check", "--config", &elsewhere]);
    assert!(
        before == 0 && database.contains("problems         0"),
        "{database}"
    );
    let mut process = Command::new(BINARY)
        .args(["run", "--config", &elsewhere, "--allow-plain-keys"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    net.until("it goes on there", async |net| net.height(0).await > 25)
        .await;
    net.succeed(&["stop", "--config", &elsewhere]);
    assert!(process.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_removed_by_whoever_says_yes_and_the_journal_never() {
    let mut net = Net::start("reset", 4).await;
    net.grow(3, 20).await;
    let config = net.config(3);
    let refused = net.fail(&["reset", "--yes", "--config", &config]);
    assert!(refused.contains("stop the node first"), "{refused}");
    net.network.kill(3).unwrap();
    let refused = net.fail(&["reset", "--config", &config]);
    assert!(refused.contains("--yes"), "{refused}");
    let data = net.network.data_directory(3);
    assert!(data.join("db").exists());
    let journal = fs::read_dir(data.join("journal")).unwrap().count();
    net.succeed(&["reset", "--yes", "--config", &config]);
    assert!(!data.join("db").exists());
    assert_eq!(fs::read_dir(data.join("journal")).unwrap().count(), journal);
    // A lost journal is told of; it does not keep the validator from starting.
    fs::rename(data.join("journal"), data.join("journal.away")).unwrap();
    let output = net.cli(&["config", "check", &config]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(told.contains("there is no vote journal"), "{told}");
    fs::rename(data.join("journal.away"), data.join("journal")).unwrap();
    net.network.spawn(3, &[]).unwrap();
    let height = net.height(0).await;
    net.reach(3, height + 5).await;
    net.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_network_has_an_account_to_pay_from_twice_in_a_row() {
    let mut net = Net::start("payer", 4).await;
    net.grow(0, 2).await;
    let key = net.path().join("account/identity.key");
    let trust = net.path().join("trust.json");
    let url = net.network.client(0).url().to_owned();
    let to = net.genesis.validators[1].identity.to_string();
    let mut pay = vec![
        "tx",
        "transfer",
        "--key",
        key.to_str().unwrap(),
        "--rpc",
        &url,
    ];
    pay.extend([
        "--trust",
        trust.to_str().unwrap(),
        "--amount",
        "5",
        "--to",
        &to,
    ]);
    net.succeed(&pay);
    net.succeed(&pay);
    pay.push("--wait");
    assert!(net.succeed(&pay).contains("final in block"));
    pay.pop();
    pay.extend(["--nonce", "9"]);
    let gap = net.succeed(&pay);
    assert!(gap.contains("waits for nonce 3"), "{gap}");
    net.network.stop();
}
