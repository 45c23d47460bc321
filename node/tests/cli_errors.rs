//! Operators' and users' mistakes: what they do → what they are told.

#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

fn quorate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs a command that must fail, and checks that its message holds all of these.
fn refused(arguments: &[&str], code: i32, told: &[&str]) {
    let output = quorate(arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?} writes to stdout");
    for part in told {
        assert!(
            message.contains(part),
            "{arguments:?}: no {part:?} in: {message}"
        );
    }
}

/// A folder with a chain of four and their configurations.
fn chain(folder: &Path) {
    let out = folder.to_str().unwrap();
    let created = quorate(&[
        "genesis",
        "create",
        "--plain",
        "--name",
        "test",
        "--validators",
        "4",
        "--out",
        out,
        "--address",
        "127.0.0.1:29990",
        "127.0.0.1:29992",
        "127.0.0.1:29994",
        "127.0.0.1:29996",
    ]);
    assert!(created.status.success(), "{created:?}");
}

#[test]
fn command_lines_that_cannot_be_understood_exit_with_2() {
    for arguments in [
        &["nonsense"][..],
        &["block"],
        &["tx", "transfer", "--amount", "1"],
        &["localnet", "--for", "soon"],
        &["account", "xyz"],
        &["block", "1", "--verify"],
    ] {
        refused(arguments, 2, &["--help"]);
    }
}

#[test]
fn key_files_are_guarded() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    assert!(
        quorate(&["keys", "generate", "--plain", "--out", out])
            .status
            .success()
    );
    let key = folder.path().join("identity.key");
    let mode = fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let name = key.to_str().unwrap();
    refused(&["keys", "generate", "--plain", "--out", out], 1, &[name]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&["keys", "show", name], 1, &[name, "chmod 600"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, "not a key").unwrap();
    refused(&["keys", "show", name], 1, &[name]);
}

#[test]
fn a_chain_is_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    chain(folder.path());
    let out = folder.path().to_str().unwrap();
    let again = [
        "genesis",
        "create",
        "--plain",
        "--name",
        "x",
        "--validators",
        "4",
        "--out",
        out,
    ];
    refused(&again, 1, &["genesis.json", "exists"]);
}

#[test]
fn a_validator_with_the_wrong_files_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    chain(folder.path());
    let own = folder.path().join("validator-0");
    let config = own.join("validator.toml");
    let path = config.to_str().unwrap();
    let original = fs::read_to_string(&config).unwrap();
    let other = folder.path().join("validator-1");
    let run = ["run", "--allow-plain-keys", "--config", path];

    refused(
        &["run", "--config", "/nonexistent/v.toml"],
        1,
        &["/nonexistent/v.toml"],
    );

    fs::write(&config, format!("surprise = 1\n{original}")).unwrap();
    refused(&run, 1, &[path, "surprise"]);

    let spoiled = original.replace("[consensus]", "[consensus]\nleader_timeout = \"5\"");
    fs::write(&config, spoiled).unwrap();
    refused(&run, 1, &[path, "leader_timeout", "500ms"]);
    fs::write(&config, &original).unwrap();

    // Another validator's vote key.
    let vote = own.join("vote.key");
    let kept = fs::read(&vote).unwrap();
    fs::copy(other.join("vote.key"), &vote).unwrap();
    refused(&run, 1, &["vote.key"]);
    fs::write(&vote, kept).unwrap();

    // An identity that is not in the committee.
    let identity = own.join("identity.key");
    let kept = fs::read(&identity).unwrap();
    fs::write(&identity, "11".repeat(32)).unwrap();
    refused(&run, 1, &["identity.key", "genesis.json"]);
    fs::write(&identity, kept).unwrap();

    let genesis = own.join("genesis.json");
    fs::write(&genesis, "{}").unwrap();
    refused(&run, 1, &["genesis.json"]);
}

#[test]
fn a_folder_made_with_other_settings_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    let dir = dir.to_str().unwrap();
    let made = quorate(&[
        "localnet",
        "--validators",
        "1",
        "--dir",
        dir,
        "--for",
        "1s",
        "--load",
        "0",
        "--base-port",
        "29880",
    ]);
    assert!(made.status.success(), "{made:?}");
    let other = [
        "localnet",
        "--validators",
        "4",
        "--dir",
        dir,
        "--base-port",
        "29880",
    ];
    refused(
        &other,
        1,
        &[
            dir,
            "--validators 1 there, 4 asked for",
            "delete the folder",
        ],
    );
    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("letter.txt"), "dear").unwrap();
    refused(
        &["localnet", "--dir", foreign.to_str().unwrap()],
        1,
        &["not empty", "--dir"],
    );
}

#[test]
fn a_port_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let dir = folder.path().join("net");
    let arguments = [
        "localnet",
        "--dir",
        dir.to_str().unwrap(),
        "--base-port",
        &port,
    ];
    refused(&arguments, 1, &[&port, "--base-port"]);
}

#[test]
fn a_validator_joins_only_a_chain_with_a_registry() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, more) in [
        ("fixed", &[][..]),
        (
            "open",
            &["--scheme", "bls-aggregate", "--stake", "1000000"][..],
        ),
    ] {
        let out = path(name);
        let made = quorate(&[&["testnet", "--plain", "--out", &out], more].concat());
        assert!(made.status.success(), "{made:?}");
    }
    let [fixed, open] = ["fixed/genesis.json", "open/genesis.json"].map(path);
    let out = path("validator");
    let peer = "0@127.0.0.1:26600";
    let joins = |genesis: &str, peers: &[&str], address: &str| {
        let mut arguments = vec![
            "init",
            "--plain",
            "--out",
            out.as_str(),
            "--genesis",
            genesis,
        ];
        arguments.extend(["--address", address, "--peer"]);
        arguments.extend(peers);
        arguments.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let here = "127.0.0.1:26608";
    for (arguments, words) in [
        (
            joins(&fixed, &[peer], here),
            &["--genesis", "no registry", "follow init"][..],
        ),
        (
            joins(&open, &["9@127.0.0.1:26600"], here),
            &["--peer", "no validator 9"][..],
        ),
        (joins(&open, &[peer, peer], here), &["--peer", "twice"][..]),
        (
            joins(&open, &[peer], "127.0.0.1:26600"),
            &["--peer", "--address"][..],
        ),
        (
            joins(&open, &[peer], "127.0.0.1:65535"),
            &["65535", "lower"][..],
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        refused(&arguments, 1, words);
    }
    refused(&["init", "--out", &out], 2, &["--chain"]);
    refused(&["init", "--genesis", &open], 2, &["--address"]);
    assert!(
        !std::path::Path::new(&out).exists(),
        "nothing is left of a refused command"
    );
    let joined = joins(&open, &[peer], here);
    let joined: Vec<&str> = joined.iter().map(String::as_str).collect();
    assert!(quorate(&joined).status.success());
    refused(&joined, 1, &["not written over", "--out"]);
}
