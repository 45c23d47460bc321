//! Mistakes that `sim/mistakes/run` plants: each applies to the tree of today, says what it is about, and
//! stands in the table of `docs/SIMULATOR.md`.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    process::{Command, Stdio},
};

/// The repository's root, as tests see it: cargo runs them in their package's folder.
const ROOT: &str = "..";

fn patches() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("mistakes").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "patch") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            found.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    assert!(found.len() > 50, "only {} patches", found.len());
    found
}

/// Tries a patch, without a history or a checkout: with git, or else with patch.
fn try_on_the_tree(patch: &str) -> Result<(), String> {
    let programs: [(&str, &[&str]); 2] = [
        ("git", &["apply", "--check", "-"]),
        (
            "patch",
            &["-p1", "--dry-run", "--force", "--silent", "--fuzz=0"],
        ),
    ];
    for (program, arguments) in programs {
        let started = Command::new(program)
            .args(arguments)
            .current_dir(ROOT)
            // Within another repository git would skip what is not of that one.
            .env("GIT_DIR", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else {
            continue;
        };
        let mut input = child.stdin.take().unwrap();
        // Whoever refuses a patch may do so before it has read all of it.
        let _ = input.write_all(patch.as_bytes());
        drop(input);
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].concat();
        return Err(String::from_utf8_lossy(&text).into_owned());
    }
    panic!("neither git nor patch can be started: install one of them");
}

#[test]
fn every_mistake_applies_to_the_tree() {
    let mut refused = Vec::new();
    for (name, patch) in patches() {
        if let Err(problem) = try_on_the_tree(&patch) {
            refused.push(format!("sim/mistakes/{name}.patch: {problem}"));
        }
    }
    assert!(
        refused.is_empty(),
        "the code has moved on, so must these:\n{}",
        refused.join("\n")
    );
}

/// What is changed must be there to the letter, or the test above would hold nothing.
#[test]
fn a_patch_of_other_code_does_not_apply() {
    for (name, patch) in patches() {
        let removed = patch
            .lines()
            .find(|line| line.starts_with(' ') && line.trim().len() > 8)
            .unwrap_or_else(|| panic!("{name} has no context"));
        let other = patch.replace(removed, &format!("{removed} // another line"));
        assert!(try_on_the_tree(&other).is_err(), "{name} applies anywhere");
    }
}

#[test]
fn every_mistake_says_what_it_breaks_and_who_notices() {
    for (name, patch) in patches() {
        let head = patch.split("\n\n").next().unwrap();
        for key in ["Mistake: ", "Breaks: ", "Noticed as: "] {
            let line = head.lines().find_map(|line| line.strip_prefix(key));
            let text = line.unwrap_or_else(|| panic!("{name}: no line {key:?} in its head"));
            assert!(!text.trim().is_empty(), "{name}: nothing after {key:?}");
        }
        let noticed = head.lines().find_map(|l| l.strip_prefix("Noticed as: "));
        // What matches everything names no checker.
        assert!(noticed.unwrap().len() > 8, "{name}: no checker is named");
    }
}

#[test]
fn the_table_of_mistakes_lists_them_all_and_no_others() {
    let text = fs::read_to_string(format!("{ROOT}/docs/SIMULATOR.md")).unwrap();
    let (_, table) = text
        .split_once("## Does it find bugs?")
        .expect("the chapter with the table");
    let (table, _) = table.split_once("\n## ").unwrap();
    let listed: BTreeSet<String> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|line| line.split(" | ").next())
        .filter(|name| *name != "mistake")
        .map(str::to_owned)
        .collect();
    let there: BTreeSet<String> = patches().into_keys().collect();
    assert_eq!(listed, there, "docs/SIMULATOR.md and sim/mistakes");
}
