//! The specification at the head of the crate is numbered, and each of its rules is named where the code
//! carries it out, and in a scenario script or a test of several
//! validators that shows it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

const HEAD: &str = include_str!("../src/lib.rs");

/// The numbers in words like `R12`.
fn named(text: &str) -> BTreeSet<u32> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    let numbers = words.filter_map(|word| word.strip_prefix('R')?.parse().ok());
    numbers.collect()
}

fn defined() -> Vec<u32> {
    let lines = HEAD.lines().filter_map(|line| {
        let rest = line.strip_prefix("//! **R")?;
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
fn mentions(files: &[PathBuf], comment: &str) -> BTreeMap<u32, Vec<PathBuf>> {
    let mut found: BTreeMap<u32, Vec<PathBuf>> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let lines = text.lines().map(str::trim_start);
        let comments: Vec<&str> = lines.filter(|line| line.starts_with(comment)).collect();
        for rule in named(&comments.join("\n")) {
            found.entry(rule).or_default().push(file.clone());
        }
    }
    found
}

#[test]
fn rules_are_numbered_without_gaps() {
    let defined = defined();
    assert!(defined.len() >= 30, "{defined:?}");
    let expected: Vec<u32> = (1..).take(defined.len()).collect();
    assert_eq!(defined, expected);
}

#[test]
fn every_rule_is_named_in_the_code_and_in_a_scenario() {
    let defined: BTreeSet<u32> = defined().into_iter().collect();
    let mut sources = files("src", "rs");
    sources.extend(files("src/simplex", "rs"));
    sources.retain(|path| !path.ends_with("lib.rs"));
    let code = mentions(&sources, "//");
    let mut scenarios = mentions(&files("tests/scenarios", "txt"), "#");
    // What takes several validators is told by the simulator or by real processes.
    scenarios.extend(mentions(&files("../sim/tests", "rs"), "//"));
    scenarios.extend(mentions(&files("../node/tests", "rs"), "//"));
    for (what, found) in [("code", &code), ("scenarios", &scenarios)] {
        let found_rules: BTreeSet<u32> = found.keys().copied().collect();
        let missing: Vec<_> = defined.difference(&found_rules).collect();
        assert!(
            missing.is_empty(),
            "{what}: nothing names the rules {missing:?}"
        );
        for (rule, places) in found {
            assert!(defined.contains(rule), "R{rule} is no rule: {places:?}");
        }
    }
    assert!(
        named(HEAD).is_subset(&defined),
        "the head names a rule that it does not define"
    );
}
