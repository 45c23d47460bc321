//! The commands of the tutorial, of the maintenance guide and of other documents, run as they stand there: real processes in an
//! empty folder.
//!
//! A block that begins with `sh` is run to its end and must succeed. In `sh until` it is repeated until it does.
//! Each line of `sh terminal` is a process of its own that goes on. `sh example` is not run. Only ports are changed, since tests run side by
//! side.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::BINARY;
use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

/// Far more than anything takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(180);

/// The first port in the documents.
const DOCUMENTED_PORT: u16 = 26_600;

/// Ports from the first one on that the documents use.
const USED_PORTS: u16 = 160;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Once,
    Until,
    Terminal,
}

#[derive(Debug)]
struct Block {
    kind: Kind,
    line: usize,
    text: String,
}

fn document(name: &str) -> String {
    let path = Path::new("../docs").join(name);
    fs::read_to_string(path).unwrap()
}

fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open = None;
    for (line, content) in (1..).zip(text.lines()) {
        match (content.strip_prefix("```"), open) {
            (Some(info), None) => {
                let kind = match info {
                    "sh" => Some(Kind::Once),
                    "sh until" => Some(Kind::Until),
                    "sh terminal" => Some(Kind::Terminal),
                    // What takes another machine, or another situation.
                    "sh example" => None,
                    "" | "text" | "toml" | "ini" | "nginx" => None,
                    other => panic!("line {line}: a block of an unknown kind, {other:?}"),
                };
                open = Some(kind);
                if let Some(kind) = kind {
                    let text = String::new();
                    found.push(Block { kind, line, text });
                }
            }
            (Some(_), Some(_)) => open = None,
            (None, Some(Some(_))) => {
                let block = found.last_mut().unwrap();
                block.text.push_str(content);
                block.text.push('\n');
            }
            (None, _) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    found
}

/// A shell's folder, and what goes on in it. All of it ends with the test.
struct Shell {
    folder: tempfile::TempDir,
    first_port: u16,
    processes: Vec<(String, Child)>,
    environment: Vec<(&'static str, String)>,
}

impl Drop for Shell {
    fn drop(&mut self) {
        for (_, process) in &mut self.processes {
            process.kill().ok();
            process.wait().ok();
        }
    }
}

/// Ports that nobody uses, none of which is given to outgoing connections, nor to the other tests' networks.
fn free_ports() -> u16 {
    // Those that another test of this process has taken and not bound yet.
    static TAKEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap();
    let start = (std::process::id() % 40) as u16;
    let first = (0..40)
        .map(|step| 22_400 + (start + step) % 40 * USED_PORTS)
        .filter(|first| !taken.contains(first))
        .find(|first| {
            (*first..first + USED_PORTS).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        })
        .expect("no free ports");
    taken.push(first);
    first
}

impl Shell {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            first_port: free_ports(),
            processes: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// A document's text with this shell's ports.
    fn with_ports(&self, text: &str) -> String {
        // In two steps, since this shell's ports may be among the documented ones.
        let mark = |offset: u16| format!("\u{1}{offset}\u{2}");
        let mut changed = text.to_owned();
        for offset in 0..USED_PORTS {
            changed = changed.replace(&(DOCUMENTED_PORT + offset).to_string(), &mark(offset));
        }
        for offset in 0..USED_PORTS {
            changed = changed.replace(&mark(offset), &(self.first_port + offset).to_string());
        }
        changed
    }

    fn command(&self, text: &str) -> Command {
        let binaries = Path::new(BINARY).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", text])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", binaries.display()))
            .env(
                "QUORATE_RPC",
                format!("http://127.0.0.1:{}", self.first_port + 1),
            )
            .env("XDG_STATE_HOME", self.folder.path().join("state"))
            .envs(self.environment.clone())
            .stdin(Stdio::null());
        command
    }

    fn log(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("terminal-{number}.log"))
    }

    /// The ends of all logs, for the message of a failed test.
    fn logs(&self) -> String {
        let logs = self
            .processes
            .iter()
            .enumerate()
            .map(|(number, (line, _))| {
                let text = fs::read_to_string(self.log(number)).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                format!(
                    "$ {line}\n{}",
                    lines[lines.len().saturating_sub(8)..].join("\n")
                )
            });
        logs.collect::<Vec<_>>().join("\n")
    }

    fn run(&mut self, name: &str, block: &Block) {
        let place = format!("{name}:{}", block.line);
        if block.kind == Kind::Terminal {
            for line in block.text.lines().filter(|line| !line.trim().is_empty()) {
                let log = fs::File::create(self.log(self.processes.len())).unwrap();
                let process = self
                    .command(&format!("exec {line}"))
                    .stderr(log)
                    .stdout(Stdio::null())
                    .process_group(0)
                    .spawn()
                    .unwrap();
                self.processes.push((line.to_owned(), process));
            }
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = self.command(&block.text).output().unwrap();
            if output.status.success() {
                break;
            }
            assert!(
                block.kind == Kind::Until && Instant::now() < deadline,
                "{place}: {}\n{}{}\n{}",
                block.text,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
                self.logs()
            );
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn run_all(&mut self, name: &str) -> usize {
        let blocks = blocks(&self.with_ports(&document(name)));
        for block in &blocks {
            self.run(name, block);
        }
        blocks.len()
    }

    /// What the others do meanwhile, or what stands in another document.
    fn meanwhile(&mut self, kind: Kind, text: &str) {
        let text = self.with_ports(text);
        let block = Block {
            kind,
            line: 0,
            text,
        };
        self.run("meanwhile", &block);
    }
}

#[test]
fn every_command_of_the_tutorial_and_of_the_maintenance_guide_works() {
    let mut shell = Shell::new();
    assert!(shell.run_all("TUTORIAL.md") > 15);
    assert!(shell.run_all("MAINTENANCE.md") > 20);
    for (line, process) in &mut shell.processes {
        let ended = process.try_wait().unwrap();
        let ended = ended.unwrap_or_else(|| panic!("{line}: it was not stopped at the end"));
        assert!(ended.success(), "{line}: {ended}");
    }
}

/// OPERATING.md is no story: what its commands take for granted is done before them.
#[test]
fn the_commands_of_the_operators_guide_work() {
    let mut shell = Shell::new();
    shell.meanwhile(
        Kind::Once,
        "umask 077; echo 'a long passphrase' > passphrase",
    );
    let passphrase = shell.folder.path().join("passphrase");
    let passphrase = passphrase.to_str().unwrap().to_owned();
    shell
        .environment
        .push(("QUORATE_PASSPHRASE_FILE", passphrase));
    // Four machines of the text are four ports of this one.
    let mut text = document("OPERATING.md");
    for place in 0..4 {
        let (name, port) = (format!("v{place}.example.org:26600"), 26_600 + 2 * place);
        text = text.replace(&name, &format!("127.0.0.1:{port}"));
    }
    let blocks = blocks(&shell.with_ports(&text));
    for block in &blocks {
        if block.text.contains("genesis create") {
            shell.meanwhile(
                Kind::Once,
                "for name in b c d; do quorate init --chain mychain --out $name; done
                 for name in b c d; do cp $name/registration.json $name.json; done
                 cp me/registration.json a.json",
            );
        }
        if block.text.contains("quorate peers list") {
            shell.meanwhile(
                Kind::Once,
                "cp mychain/validator-1/* b/; cp mychain/validator-2/* c/; cp mychain/validator-3/* d/",
            );
            shell.meanwhile(
                Kind::Terminal,
                "quorate run --config me/validator.toml
                 quorate run --config b/validator.toml
                 quorate run --config c/validator.toml
                 quorate run --config d/validator.toml",
            );
            shell.meanwhile(
                Kind::Until,
                "for port in 26601 26603 26605 26607; do quorate status --rpc http://127.0.0.1:$port; done",
            );
        }
        if block.text.contains("quorate follow init") {
            shell.meanwhile(Kind::Once, "cp mychain/genesis.json .");
        }
        if block.text.contains("quorate db check") {
            shell.meanwhile(Kind::Once, "quorate stop --config me/validator.toml");
        }
        shell.run("OPERATING.md", block);
    }
    assert!(blocks.len() >= 5, "{}", blocks.len());
    shell.meanwhile(
        Kind::Once,
        "for name in b c d; do quorate stop --config $name/validator.toml; done",
    );
}

/// REGISTRY.md tells how somebody joins a chain with four validators.
#[test]
fn the_commands_that_make_a_new_validator_work() {
    let mut shell = Shell::new();
    assert!(shell.run_all("REGISTRY.md") >= 7);
}

#[test]
fn blocks_are_found_in_a_document() {
    let text = "a\n```sh\nx 1\ny\n```\n```text\nno\n```\n```sh until\nz\n```\n";
    let found = blocks(text);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].kind, found[0].line), (Kind::Once, 2));
    assert_eq!(found[0].text, "x 1\ny\n");
    assert_eq!(
        (found[1].kind, found[1].text.as_str()),
        (Kind::Until, "z\n")
    );
}

/// What `docs/TROUBLESHOOTING.md` explains is what the program says.
#[test]
fn messages_that_are_explained_stand_in_the_sources() {
    let sources = sources();
    let text = document("TROUBLESHOOTING.md");
    let mut explained = 0;
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let message = line.split('`').nth(1).unwrap();
        explained += 1;
        for part in message.split('…').map(str::trim) {
            assert!(
                sources.contains(&plain(part)),
                "no source says {part:?}, of the message {message:?}"
            );
        }
    }
    assert!(explained >= 25, "only {explained} messages");
}

/// Text without what sources need to hold it.
fn plain(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_whitespace() && !"\\\"".contains(*c))
        .collect()
}

fn sources() -> String {
    let root = Path::new("..");
    let mut text = String::new();
    let mut folders: Vec<PathBuf> = [
        "node",
        "node/api",
        "node/machine",
        "p2p",
        "storage",
        "types",
        "files",
        "bench/load",
        "http",
    ]
    .iter()
    .map(|name| root.join(name).join("src"))
    .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => text.push_str(&plain(&fs::read_to_string(&path).unwrap())),
            }
        }
    }
    text
}

/// Every command that a document names in its text is there, with the flags that are named with it.
#[test]
fn commands_that_documents_name_are_there_with_their_flags() {
    let mut helps: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut help = |path: &[&str]| {
        let made = helps.entry(path.join(" ")).or_insert_with(|| {
            let output = Command::new(BINARY)
                .args(path)
                .arg("--help")
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            output.status.success().then_some(text)
        });
        made.clone()
    };
    let mut named = 0;
    for file in documents() {
        let text = fs::read_to_string(&file).unwrap();
        // Between backticks, also over the end of a line.
        for code in text.split('`').filter(|code| code.starts_with("quorate ")) {
            let words: Vec<&str> = code.split_whitespace().skip(1).collect();
            let is_name = |word: &&&str| {
                word.chars()
                    .all(|c| c.is_ascii_lowercase() || "-|".contains(c))
            };
            let path: Vec<&str> = words.iter().take_while(is_name).take(2).copied().collect();
            let Some(command) = path.first().filter(|name| !name.starts_with('-')) else {
                continue;
            };
            let place = format!("{}: `{code}`", file.display());
            let mut found = help(&[command]).unwrap_or_else(|| panic!("{place}: no such command"));
            if found.contains("\nCommands:") {
                let inner = path.get(1).filter(|name| !name.starts_with('-'));
                for inner in inner.into_iter().flat_map(|names| names.split('|')) {
                    found = help(&[command, inner])
                        .unwrap_or_else(|| panic!("{place}: no such command"));
                }
            }
            named += 1;
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.trim_end_matches(|c: char| !c.is_ascii_lowercase());
                let flag = flag.split('=').next().unwrap();
                let is_there = found
                    .split(|c: char| c.is_whitespace() || ",<>[]=".contains(c))
                    .any(|word| word == flag);
                assert!(is_there, "{place}: {flag} is no flag of it");
            }
        }
    }
    assert!(named > 50, "only {named} commands");
}

/// The documents that are for readers.
fn documents() -> Vec<PathBuf> {
    let root = Path::new("..");
    let documents = fs::read_dir(root.join("docs")).unwrap();
    let mut files: Vec<PathBuf> = documents.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.extend(["README.md", "ARCHITECTURE.md", "SECURITY.md"].map(|name| root.join(name)));
    files
}

/// Every file that a document links to is there.
#[test]
fn links_between_documents_lead_somewhere() {
    for file in documents() {
        let text = fs::read_to_string(&file).unwrap();
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            if target.contains("://") || target.contains(char::is_whitespace) {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let there = match path {
                "" => file.clone(),
                path => file.parent().unwrap().join(path),
            };
            assert!(there.exists(), "{}: {target} is not there", file.display());
            if !anchor.is_empty() && there.extension().is_some_and(|e| e == "md") {
                let linked = fs::read_to_string(&there).unwrap();
                assert!(
                    linked.lines().any(|line| is_heading(line, anchor)),
                    "{}: {target} has no such heading",
                    file.display()
                );
            }
        }
    }
}

fn is_heading(line: &str, anchor: &str) -> bool {
    let Some(heading) = line.strip_prefix('#') else {
        return false;
    };
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c })
        .collect::<String>()
        == anchor
}
