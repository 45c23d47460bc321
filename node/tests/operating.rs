//! What an operator does beside running a validator: keys under a passphrase, checking a
//! configuration and a database, shortening it.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, Net};
use quorate_types::{Account, state_key};
use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
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
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    assert!(output.stdout.is_empty(), "errors go to stderr");
    String::from_utf8(output.stderr).unwrap()
}

fn secret_file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn text(path: PathBuf) -> String {
    path.to_str().unwrap().to_owned()
}

/// Ctrl-C at the prompt ends the command, and leaves the terminal showing what is typed.
#[test]
fn a_passphrase_prompt_that_is_given_up_leaves_the_terminal_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let key = text(folder.path().join("identity.key"));
    // `script` gives the shell a terminal of its own.
    let commands = format!("{BINARY} keys generate --out {key}; echo ended $?; stty -a; echo over");
    let mut shell = Command::new("script")
        .args(["-qec", &commands, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut screen) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    let mut shown = String::new();
    let mut until = |wanted: &str| {
        let mut bytes = [0; 4_096];
        while !shown.contains(wanted) {
            let count = screen.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{shown}");
            shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        shown.clone()
    };
    until("Passphrase: ");
    keys.write_all(b"secret\x03").unwrap();
    let shown = until("over");
    assert!(shown.contains("ended 1"), "{shown}");
    assert!(
        shown.contains(" echo ") && !shown.contains("-echo "),
        "{shown}"
    );
    assert!(!shown.contains("secret"), "{shown}");
    assert!(!Path::new(&key).exists());
    drop(keys);
    assert!(shell.wait().unwrap().success());
}

#[test]
fn keys_are_made_shown_and_converted_under_a_passphrase() {
    let folder = tempfile::tempdir().unwrap();
    let right = secret_file(folder.path(), "right", "open sesame\n");
    let wrong = secret_file(folder.path(), "wrong", "open barley\n");
    let out = text(folder.path().join("own"));
    let key = format!("{out}/identity.key");
    let made = succeed(&[
        "keys",
        "generate",
        "--out",
        &out,
        "--passphrase-file",
        &right,
    ]);
    assert!(fs::read(&key).unwrap().starts_with(b"age-encryption.org"));
    let shown = succeed(&["keys", "show", &key, "--passphrase-file", &right]);
    assert!(made.contains(shown.trim()), "{made} {shown}");
    let refused = fail(&["keys", "show", &key, "--passphrase-file", &wrong]);
    assert!(
        refused.contains(&key) && refused.contains("passphrase is wrong"),
        "{refused}"
    );
    // No terminal, no file: an error that names the flags.
    let refused = fail(&["keys", "show", &key]);
    assert!(refused.contains("--passphrase-file"), "{refused}");
    let refused = fail(&["keys", "generate", "--out", &text(folder.path().join("x"))]);
    assert!(refused.contains("--plain"), "{refused}");
    fs::set_permissions(&right, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = fail(&["keys", "show", &key, "--passphrase-file", &right]);
    assert!(refused.contains("chmod 600"), "{refused}");
    fs::set_permissions(&right, fs::Permissions::from_mode(0o600)).unwrap();
    // Through a descriptor.
    let through = Command::new("sh")
        .arg("-c")
        .arg(format!(
            "{BINARY} keys show {key} --passphrase-fd 5 5< {right}"
        ))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(through.stdout).unwrap(), shown);
    // To plain and back.
    succeed(&["keys", "decrypt", &key, "--passphrase-file", &right]);
    assert_eq!(succeed(&["keys", "show", &key]), shown);
    succeed(&["keys", "encrypt", &key, "--passphrase-file", &wrong]);
    assert_eq!(
        succeed(&["keys", "show", &key, "--passphrase-file", &wrong]),
        shown
    );
    let refused = fail(&["keys", "encrypt", &key, "--passphrase-file", &wrong]);
    assert!(refused.contains("encrypted already"), "{refused}");
}

/// Four validators make their own vote keys; nobody deals.
#[test]
fn validators_register_their_own_vote_keys() {
    let folder = tempfile::tempdir().unwrap();
    let passphrase = secret_file(folder.path(), "p", "p");
    let mut registrations = Vec::new();
    for place in 0..4 {
        let own = text(folder.path().join(format!("own-{place}")));
        let identity = format!("{own}/identity.key");
        succeed(&[
            "keys",
            "generate",
            "--out",
            &own,
            "--passphrase-file",
            &passphrase,
        ]);
        succeed(&[
            "keys",
            "vote",
            "--chain",
            "ours",
            "--identity",
            &identity,
            "--out",
            &own,
            "--passphrase-file",
            &passphrase,
        ]);
        let vote = fs::read(format!("{own}/vote.key")).unwrap();
        assert!(vote.starts_with(b"age"));
        registrations.push(format!("{own}/registration.json"));
    }
    let out = text(folder.path().join("chain"));
    let create = |name: &str, registrations: &[String]| {
        let mut arguments = vec![
            "genesis",
            "create",
            "--name",
            name,
            "--scheme",
            "bls-aggregate",
            "--out",
            &out,
            "--registration",
        ];
        arguments.extend(registrations.iter().map(String::as_str));
        quorate(&arguments)
    };
    let other = create("theirs", &registrations);
    let message = String::from_utf8(other.stderr).unwrap();
    assert!(
        message.contains("registration.json") && message.contains("keys vote"),
        "{message}"
    );
    // Somebody hands in another's key as its own.
    let stolen = fs::read_to_string(&registrations[0]).unwrap();
    let mut stolen: serde_json::Value = serde_json::from_str(&stolen).unwrap();
    stolen["identity"] = "11".repeat(32).into();
    let thief = text(folder.path().join("thief.json"));
    fs::write(&thief, stolen.to_string()).unwrap();
    let message = String::from_utf8(create("ours", &[thief]).stderr).unwrap();
    assert!(message.contains("thief.json"), "{message}");
    let made = create("ours", &registrations);
    assert!(made.status.success(), "{made:?}");
    let shown = succeed(&["genesis", "show", &format!("{out}/genesis.json")]);
    assert!(shown.contains("bls-aggregate, keys checked"), "{shown}");
    assert!(
        shown.contains("1 for a transfer") && shown.contains("memo"),
        "{shown}"
    );
    // Nobody dealt.
    let told = String::from_utf8(made.stdout).unwrap();
    assert!(
        !told.contains("dealer") && !told.contains("vote.key") && told.contains("genesis.json"),
        "{told}"
    );
}

#[test]
fn a_configuration_is_checked_without_running() {
    let folder = tempfile::tempdir().unwrap();
    let passphrase = secret_file(folder.path(), "p", "p");
    let out = text(folder.path().join("chain"));
    succeed(&[
        "genesis",
        "create",
        "--name",
        "checked",
        "--validators",
        "4",
        "--out",
        &out,
        "--passphrase-file",
        &passphrase,
        "--address",
        "127.0.0.1:29970",
        "127.0.0.1:29972",
        "127.0.0.1:29974",
        "127.0.0.1:29976",
    ]);
    let addresses = |ports: [u16; 4]| ports.map(|port| format!("127.0.0.1:{port}"));
    for (ports, clash) in [
        ([29970, 29971, 29974, 29976], "port 29971"),
        ([29970, 29972, 29974, 30071], "port 30071"),
    ] {
        let out = text(folder.path().join("clash"));
        let addresses = addresses(ports);
        let mut create = vec!["genesis", "create", "--name", "x", "--validators", "4"];
        create.extend(["--plain", "--out", &out, "--address"]);
        create.extend(addresses.iter().map(String::as_str));
        let message = fail(&create);
        assert!(
            message.contains(&addresses[0]) && message.contains(clash),
            "{message}"
        );
        assert!(!Path::new(&out).exists(), "nothing is left behind");
    }
    let config = format!("{out}/validator-1/validator.toml");
    let check = ["config", "check", &config, "--passphrase-file", &passphrase];
    let good = succeed(&check);
    assert!(
        good.contains("validator 1 of 4") && !good.contains("not encrypted"),
        "{good}"
    );
    let mut likewise = check.to_vec();
    likewise.insert(2, "--config");
    assert_eq!(succeed(&likewise), good);
    // Where else to look for the file.
    let folder_given = fail(&["config", "check", &format!("{out}/validator-1")]);
    assert!(folder_given.contains(&config), "{folder_given}");
    let elsewhere = fs::read_to_string(&config).unwrap();
    let listens = elsewhere.find("listen = \"").unwrap() + "listen = \"".len();
    let port = elsewhere[listens..].find(':').unwrap() + listens;
    let not_here = format!("{}192.0.2.1{}", &elsewhere[..listens], &elsewhere[port..]);
    fs::write(&config, not_here).unwrap();
    let refused = quorate(&check);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("not an address of this machine"), "{said}");
    fs::write(&config, elsewhere).unwrap();
    let nothing_given = fail(&["config", "check", &format!("{out}/none.toml")]);
    assert!(nothing_given.contains("--config FILE"), "{nothing_given}");
    let text = fs::read_to_string(&config).unwrap();
    for (key, from, to) in [
        ("data_dir", "\"data\"", "\"\""),
        ("data_dir", "\"data\"", "\".\""),
        ("genesis", "\"genesis.json\"", "\"genesis.jsn\""),
    ] {
        let (from, to) = (format!("{key} = {from}"), format!("{key} = {to}"));
        assert!(text.contains(&from));
        fs::write(&config, text.replace(&from, &to)).unwrap();
        let message = fail(&check);
        assert!(
            message.contains(&config) && message.contains(&format!("`{key}`")),
            "{message}"
        );
    }
    fs::write(&config, &text).unwrap();
    for (key, bad, part) in [
        ("view_timeout", "\"1ms\"", "consensus.view_timeout"),
        ("leader_timeout", "\"1h\"", "consensus.leader_timeout"),
        ("max_timeout", "\"2h\"", "consensus.max_timeout"),
        ("resend_interval", "\"1ms\"", "consensus.resend_interval"),
        ("fetch_timeout", "\"1h\"", "consensus.fetch_timeout"),
        ("finalize_linger", "\"1s\"", "consensus.finalize_linger"),
        (
            "min_block_interval",
            "\"2m\"",
            "consensus.min_block_interval",
        ),
        ("idle_interval", "\"2m\"", "consensus.idle_interval"),
        ("penalty_lasts", "\"1s\"", "consensus.penalty_lasts"),
        ("retention_blocks", "7", "storage.retention_blocks"),
        ("retention_time", "\"1s\"", "storage.retention_time"),
        ("max_connections", "0", "rpc.max_connections"),
        ("request_timeout", "\"1ms\"", "rpc.request_timeout"),
        ("max_transactions", "0", "mempool.max_transactions"),
        ("max_bytes", "1", "mempool.max_bytes"),
        ("max_per_sender", "0", "mempool.max_per_sender"),
        ("level", "\"loud\"", "log.level"),
        ("format", "\"xml\"", "format"),
    ] {
        let line = text
            .lines()
            .find(|line| {
                line.trim_start_matches("# ")
                    .starts_with(&format!("{key} = "))
            })
            .unwrap_or_else(|| panic!("{key} has no line in the template"));
        fs::write(&config, text.replace(line, &format!("{key} = {bad}"))).unwrap();
        let message = fail(&check);
        assert!(
            message.contains(part) && message.contains("validator.toml"),
            "{message}"
        );
    }
    let rpc = "listen = \"127.0.0.1:29973\"";
    let admin = "listen = \"127.0.0.1:30073\"";
    for (line, changed, key, remedy) in [
        (admin, rpc, "`admin.listen`", "`rpc.listen`"),
        (
            admin,
            "listen = \"127.0.0.1:29972\"",
            "`admin.listen`",
            "`p2p.listen`",
        ),
        (
            rpc,
            "listen = \"[::]:29972\"",
            "`rpc.listen`",
            "`p2p.listen`",
        ),
        (
            "[consensus]",
            "[consensus]\nleader_timeout = \"3s\"\nview_timeout = \"2s\"",
            "`consensus.view_timeout`",
            "`consensus.leader_timeout`",
        ),
        (
            "[consensus]",
            "[consensus]\nmax_timeout = \"1s\"",
            "`consensus.max_timeout`",
            "`consensus.view_timeout`",
        ),
    ] {
        assert!(text.contains(line), "{text}");
        fs::write(&config, text.replace(line, changed)).unwrap();
        let message = fail(&check);
        assert!(
            message.contains(key) && message.contains(remedy) && message.contains("validator.toml"),
            "{message}"
        );
    }
    fs::write(&config, format!("{text}\nsurprise = 1\n")).unwrap();
    assert!(fail(&check).contains("surprise"));
    fs::write(&config, text.replace("\"identity.key\"", "\"nowhere.key\"")).unwrap();
    assert!(fail(&check).contains("nowhere.key"));
    let elsewhere = format!("{out}/validator-2/vote.key");
    fs::write(
        &config,
        text.replace("\"vote.key\"", &format!("{elsewhere:?}")),
    )
    .unwrap();
    let message = fail(&check);
    assert!(
        message.contains("vote.key") && message.contains("genesis.json"),
        "{message}"
    );
    // The defaults are a file that can be read, but for the peer that is an example.
    let defaults = succeed(&["config", "show-defaults"]);
    assert!(
        defaults.contains("# retention_blocks = 0")
            && toml::from_str::<toml::Table>(&defaults).is_ok()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_validators_database_is_checked_measured_and_damage_is_found() {
    let mut net = Net::start_with("database", 1, "bls-aggregate", 50).await;
    let load = net.load(200.0);
    net.reach(0, 300).await;
    let config = net.config(0);
    // Not while it runs.
    let refused = net.fail(&["db", "check", "--config", &config]);
    assert!(refused.contains("stop the node first"), "{refused}");
    load.stop().await;
    assert!(net.network.stop().is_empty());
    let checked = net.succeed(&["db", "check", "--config", &config, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&checked).unwrap();
    assert_eq!(report["problems"], serde_json::json!([]), "{checked}");
    assert!(report["blocks"].as_u64() >= Some(300) && report["transactions"].as_u64() > Some(0));
    assert!(report["finalizations"].as_u64() > Some(200), "{checked}");
    let stats = net.succeed(&["db", "stats", "--config", &config]);
    assert!(
        stats.contains("vote journal") && stats.contains("accounts"),
        "{stats}"
    );
    let refused = net.fail(&["db", "prune", "--keep", "5", "--config", &config]);
    assert!(refused.contains("10000"), "{refused}");
    // The newest 10,000 stay, however old they are.
    for keep in ["0", "10000", "7d"] {
        let pruned = net.succeed(&["db", "prune", "--keep", keep, "--config", &config]);
        assert!(pruned.contains("blocks from 1 on are kept"), "{pruned}");
    }

    // A damaged journal is no reason to delete the database.
    let journal = net.path().join("validator-0/data/journal");
    let segment = fs::read_dir(&journal)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let segment = segment
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .min();
    let segment = segment.unwrap();
    let whole = fs::read(&segment).unwrap();
    let mut damaged = whole.clone();
    damaged[200..208].copy_from_slice(b"XXXXXXXX");
    fs::write(&segment, damaged).unwrap();
    let found = net.fail(&["db", "check", "--config", &config, "--json"]);
    assert!(found.contains("is damaged at byte"), "{found}");
    assert!(found.contains("The database is whole: keep it"), "{found}");
    assert!(!found.contains("delete"), "{found}");
    fs::write(&segment, whole).unwrap();

    // Somebody changes an account's row, as a failing disk would not: every checksum is right.
    let path = net.path().join("validator-0/data/db");
    let columns = rocksdb::DB::list_cf(&rocksdb::Options::default(), &path).unwrap();
    let database = rocksdb::DB::open_cf(&rocksdb::Options::default(), &path, &columns).unwrap();
    let accounts = database.cf_handle("accounts").unwrap();
    let key = state_key(&net.genesis.accounts[3].identity).0;
    let mut row = database.get_cf(accounts, key).unwrap().unwrap();
    // The last byte of the balance; the height of its last change follows.
    row[Account::PLAIN_SIZE - 1] ^= 1;
    database.put_cf(accounts, key, row).unwrap();
    let ids = database.cf_handle("ids").unwrap();
    let (id, _) = database
        .iterator_cf(ids, rocksdb::IteratorMode::Start)
        .next()
        .unwrap()
        .unwrap();
    database.delete_cf(ids, id).unwrap();
    drop(database);
    let output = net.cli(&["db", "check", "--config", &config]);
    assert_eq!(output.status.code(), Some(1));
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(
        found.contains("state root") && found.contains("the id of block"),
        "{found}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_tells_everything_but_secrets() {
    let mut net = Net::start("report", 1).await;
    net.grow(0, 10).await;
    let config = net.config(0);
    let out = net.directory.path().join("report.tar");
    let log = net.path().join("validator-0/node.log");
    let (out, log) = (out.to_str().unwrap(), log.to_str().unwrap());
    let report = ["report", "--config", &config, "--out", out, "--log", log];
    net.succeed(&report);
    let mode = fs::metadata(out).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "a report is nobody else's business");
    let content = fs::read(out).unwrap();
    let holds = |text: &str| {
        content
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    for name in [
        "status.json",
        "peers.json",
        "metrics.txt",
        "node.log",
        "validator.toml",
    ] {
        assert!(holds(&format!("quorate-report/{name}")), "{name}");
    }
    for key in ["identity.key", "vote.key"] {
        let secret = fs::read_to_string(net.path().join("validator-0").join(key)).unwrap();
        let (_, digits) = secret.trim().split_once(':').unwrap();
        assert!(!holds(digits), "{key} is in the report");
    }
    let refused = net.fail(&report);
    assert!(refused.contains("report.tar"), "{refused}");
    // Of a stopped validator there is less, and it says what.
    net.network.kill(0).unwrap();
    fs::remove_file(out).unwrap();
    net.succeed(&report);
    let content = fs::read(out).unwrap();
    let text = String::from_utf8_lossy(&content);
    assert!(text.contains("running validator: nobody answers"), "{text}");
    assert!(text.contains("offenders.json: missing: "), "{text}");
}

#[test]
fn shells_and_manuals_are_served() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(succeed(&["completions", shell]).contains("quorate"));
    }
    let folder = tempfile::tempdir().unwrap();
    succeed(&["man", "--dir", folder.path().to_str().unwrap()]);
    for page in ["quorate.1", "quorate-run.1", "quorate-peers-block.1"] {
        assert!(folder.path().join(page).exists(), "{page}");
    }
    assert!(succeed(&["man"]).contains("Byzantine"));
}
