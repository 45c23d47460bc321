//! What lies on disk, and what must not: who may read it, how much of it is read, no core dumps.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, Net, PATIENCE};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, File},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Instant,
};

/// The length of a file that is too large for everything, and takes no room.
const SPARSE_BYTES: u64 = 8 << 30;

/// A user without rights, on every Linux.
const NOBODY: u32 = 65_534;

/// What a command may allocate while it is given files without end, in KiB. One that read a whole
/// sparse file would fail at it.
const ALLOWED_KIB: u32 = 4_000_000;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A command in a folder, under limits of a shell's.
fn limited(limits: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{limits}; exec \"$QUORATE\" \"$@\""), "sh"])
        .env("QUORATE", BINARY)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

fn quorate(folder: &Path, arguments: &[&str]) -> Output {
    limited(":", folder, arguments).output().unwrap()
}

/// A chain of four in `chain`, made by a dealer.
fn make_chain(folder: &Path, protection: &[&str]) {
    let mut arguments = vec![
        "genesis",
        "create",
        "--name",
        "files",
        "--validators",
        "4",
        "--out",
        "chain",
        "--address",
        "127.0.0.1:29960",
        "127.0.0.1:29962",
        "127.0.0.1:29964",
        "127.0.0.1:29966",
    ];
    arguments.extend(protection);
    let made = quorate(folder, &arguments);
    assert!(made.status.success(), "{made:?}");
}

/// Everything below a folder, with the folder.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_path_buf()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if path.is_dir() {
            found.extend(fs::read_dir(path).unwrap().map(|e| e.unwrap().path()));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_validators_data_directory_is_its_owners_alone() {
    let mut net = Net::start("private", 1).await;
    net.grow(0, 20).await;
    let data = net.path().join("validator-0/data");
    let found = all_below(&data);
    assert!(found.len() > 10, "{found:?}");
    for path in &found {
        assert_eq!(mode(path) & 0o077, 0, "{} is open", path.display());
    }
    // One that others can enter, as earlier versions made it: it is closed, with a word.
    net.network.kill(0).unwrap();
    set_mode(&data, 0o755);
    let config = net.config(0);
    let checked = net.succeed(&["config", "check", &config]);
    assert!(checked.contains("mode 0755"), "{checked}");
    net.network.spawn(0, &[]).unwrap();
    net.network.wait_until_up().await.unwrap();
    net.grow(0, 5).await;
    assert_eq!(mode(&data), 0o700);
    let log = fs::read_to_string(net.path().join("validator-0/node.log")).unwrap();
    assert!(log.contains("was open to others (mode 0755)"), "{log}");
    // Somebody else's folder, such as /tmp by mistake: refused, and not touched.
    net.network.kill(0).unwrap();
    let foreign = net.directory.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("letter.txt"), "dear").unwrap();
    set_mode(&foreign, 0o755);
    let changed = fs::read_to_string(&config).unwrap();
    let changed = changed.replace("data_dir = \"data\"", &format!("data_dir = {foreign:?}"));
    fs::write(&config, changed).unwrap();
    let refused = net.fail(&["run", "--allow-plain-keys", "--config", &config]);
    assert!(
        refused.contains(text(&foreign)) && refused.contains("chmod 700"),
        "{refused}"
    );
    assert_eq!(mode(&foreign), 0o755);
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1);
}

/// Puts something without a reasonable end in a file's place, runs a command, and checks that it
/// fails with the file's name, and its size or the limit.
fn too_large(folder: &Path, file: &str, limit: u64, arguments: &[&str]) {
    let path = folder.join(file);
    let kept = fs::read(&path).ok();
    let limit = limit.to_string();
    for endless in [false, true] {
        let _ = fs::remove_file(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if endless {
            symlink("/dev/zero", &path).unwrap();
        } else {
            let sparse = File::create(&path).unwrap();
            sparse.set_len(SPARSE_BYTES).unwrap();
        }
        let limits = format!("ulimit -v {ALLOWED_KIB}");
        let output = limited(&limits, folder, arguments).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{file}: {message}");
        let name = Path::new(file).file_name().unwrap().to_str().unwrap();
        let size = SPARSE_BYTES.to_string();
        let mut told = vec![name, &limit];
        if !endless {
            told.push(&size);
        }
        for part in told {
            assert!(message.contains(part), "{file}: no {part:?} in: {message}");
        }
    }
    fs::remove_file(&path).unwrap();
    if let Some(kept) = kept {
        fs::write(&path, kept).unwrap();
    }
}

#[test]
fn files_that_are_too_large_or_never_end_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    make_chain(folder, &["--plain"]);
    let run = [
        "run",
        "--allow-plain-keys",
        "--config",
        "chain/validator-0/validator.toml",
    ];
    let show = ["genesis", "show", "chain/genesis.json"];
    too_large(folder, "chain/genesis.json", 256 << 20, &show);
    too_large(folder, "chain/validator-0/genesis.json", 256 << 20, &run);
    too_large(folder, "chain/validator-0/validator.toml", 1 << 20, &run);
    too_large(folder, "chain/validator-0/vote.key.used", 64 << 10, &run);
    too_large(
        folder,
        "chain/validator-0/data/offenders.json",
        16 << 20,
        &run,
    );
    let evidence = "chain/validator-0/data/evidence/pair.json";
    too_large(folder, evidence, 64 << 10, &run);
    let verify = [
        "evidence",
        "verify",
        evidence,
        "--trust",
        "chain/trust.json",
    ];
    too_large(folder, evidence, 64 << 10, &verify);
    let block = ["block", "latest", "--verify", "--trust", "chain/trust.json"];
    let block = [&block[..], &["--file", "block.json"]].concat();
    too_large(folder, "block.json", 64 << 20, &block);
    let explorer = ["explorer", "--trust", "chain/trust.json"];
    too_large(folder, "chain/trust.json", 16 << 20, &explorer);
    let local = ["localnet", "--dir", "net"];
    too_large(folder, "net/localnet.json", 64 << 10, &local);
    let load = ["load", "--dir", "net"];
    too_large(folder, "net/localnet.json", 64 << 10, &load);
    let create = ["genesis", "create", "--name", "x", "--scheme"];
    let create = [
        &create[..],
        &["bls-aggregate", "--out", "other", "--plain"],
        &["--registration", "registration.json"],
    ]
    .concat();
    too_large(folder, "registration.json", 64 << 10, &create);
}

/// Waits until a process is at its work, which it is when it has opened the pipe that it is to read
/// its passphrase from: opening it for writing waits for that.
fn wait_for_reader(pipe: &Path) -> File {
    let pipe = pipe.to_path_buf();
    let (sender, opened) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(File::options().write(true).open(pipe)));
    opened.recv_timeout(PATIENCE).expect("it opens").unwrap()
}

fn abort(mut child: Child) -> ExitStatus {
    kill_process(Pid::from_child(&child), Signal::ABORT).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("it did not end");
}

#[test]
fn a_process_that_holds_keys_leaves_no_core_dump() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let passphrase = folder.join("passphrase");
    fs::write(&passphrase, "open sesame").unwrap();
    set_mode(&passphrase, 0o600);
    make_chain(folder, &["--passphrase-file", "passphrase"]);
    let pipe = folder.join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );

    // As an ordinary user: the files that tell of a process are the superuser's if it is not dumpable.
    let binary = folder.join("quorate");
    fs::copy(BINARY, &binary).unwrap();
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let user = match root {
        true => NOBODY,
        false => fs::metadata("/proc/self").unwrap().uid(),
    };
    if root {
        for path in all_below(folder) {
            chown(path, Some(NOBODY), None).unwrap();
        }
    }
    let start = |arguments: &[&str]| {
        let mut command = limited("ulimit -c unlimited", folder, &[]);
        command.args(arguments).env("QUORATE", &binary);
        if root {
            command.uid(NOBODY);
        }
        let child = command.spawn().unwrap();
        let open = wait_for_reader(&pipe);
        let status = format!("/proc/{}/status", child.id());
        let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
        let core = limits.lines().find(|line| line.contains("core file"));
        let core = core.unwrap().split_whitespace().skip(4).take(2);
        let core = core.map(str::to_owned).collect::<Vec<_>>().join(" ");
        let owner = fs::metadata(status).unwrap().uid();
        let ended = abort(child);
        drop(open);
        assert_eq!(ended.signal(), Some(Signal::ABORT.as_raw()));
        (owner, core, ended.core_dumped())
    };
    // One that holds no keys, to see that the others differ.
    let (owner, _, dumps_are_made) = start(&["explorer", "--trust", "pipe"]);
    assert_eq!(owner, user);
    let key = "chain/validator-0/vote.key";
    for arguments in [
        &["run", "--config", "chain/validator-0/validator.toml"][..],
        &["keys", "show", "--vote", key],
        &["config", "check", "chain/validator-0/validator.toml"],
    ] {
        let arguments = [arguments, &["--passphrase-file", "pipe"]].concat();
        let (owner, core, dumped) = start(&arguments);
        assert_eq!(
            (owner, core.as_str(), dumped),
            (0, "0 0", false),
            "{arguments:?}"
        );
    }
    if !dumps_are_made {
        eprintln!("this machine makes no core dumps; only what forbids them was checked");
    }
}
