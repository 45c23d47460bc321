//! The specifications at the heads of the crate and of the other protocols are numbered, and each rule is named where the code
//! carries it out, and in a scenario script or a test of several
//! validators that shows it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A specification, and the letter of its rules.
const SPECIFICATIONS: [(char, &str); 4] = [
    ('R', include_str!("../src/lib.rs")),
    ('H', include_str!("../src/protocol/hotstuff.rs")),
    ('B', include_str!("../src/protocol/basic.rs")),
    ('P', include_str!("../src/protocol/pbft.rs")),
];

/// The numbers in words like `R12`.
fn named(letter: char, text: &str) -> BTreeSet<u32> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    let numbers = words.filter_map(|word| word.strip_prefix(letter)?.parse().ok());
    numbers.collect()
}

/// The head of a module: what comes before its first item.
fn head(module: &str) -> String {
    let lines = module.lines().take_while(|line| line.starts_with("//!"));
    lines.collect::<Vec<_>>().join("\n")
}

fn defined(letter: char, module: &str) -> Vec<u32> {
    let start = format!("//! **{letter}");
    let lines = module.lines().filter_map(|line| {
        let rest = line.strip_prefix(&start)?;
        rest.split('.').next()?.parse().ok()
    });
    lines.collect()
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(folder);
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    assert!(!files.is_empty(), "{}", folder.display());
    files
}

/// The rules that comments of these files name, and where.
fn mentions(letter: char, files: &[PathBuf], comment: &str) -> BTreeMap<u32, Vec<PathBuf>> {
    let mut found: BTreeMap<u32, Vec<PathBuf>> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let lines = text.lines().map(str::trim_start);
        let is_comment = |line: &&str| line.starts_with(comment) && !line.starts_with("//!");
        let comments: Vec<&str> = lines.filter(is_comment).collect();
        for rule in named(letter, &comments.join("\n")) {
            found.entry(rule).or_default().push(file.clone());
        }
    }
    found
}

#[test]
fn rules_are_numbered_without_gaps() {
    for (letter, module) in SPECIFICATIONS {
        let defined = defined(letter, module);
        assert!(defined.len() >= 7, "{letter}: {defined:?}");
        let expected: Vec<u32> = (1..).take(defined.len()).collect();
        assert_eq!(defined, expected, "{letter}");
    }
}

#[test]
fn every_rule_is_named_in_the_code_and_in_a_scenario() {
    let mut sources = files("src", "rs");
    sources.extend(files("src/rounds", "rs"));
    sources.extend(files("src/protocol", "rs"));
    for (letter, module) in SPECIFICATIONS {
        let defined: BTreeSet<u32> = defined(letter, module).into_iter().collect();
        let code = mentions(letter, &sources, "//");
        let mut scenarios = mentions(letter, &files("tests/scenarios", "txt"), "#");
        // What takes several validators is told by the simulator or by real processes.
        scenarios.extend(mentions(letter, &files("../sim/tests", "rs"), "//"));
        scenarios.extend(mentions(letter, &files("../node/tests", "rs"), "//"));
        for (what, found) in [("code", &code), ("scenarios", &scenarios)] {
            let found_rules: BTreeSet<u32> = found.keys().copied().collect();
            let missing: Vec<_> = defined.difference(&found_rules).collect();
            assert!(
                missing.is_empty(),
                "{what}: nothing names the rules {letter}{missing:?}"
            );
            for (rule, places) in found {
                assert!(
                    defined.contains(rule),
                    "{letter}{rule} is no rule: {places:?}"
                );
            }
        }
        assert!(
            named(letter, &head(module)).is_subset(&defined),
            "the head names a rule that it does not define"
        );
    }
}
