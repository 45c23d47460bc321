//! The arrows between the crates go down only.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

/// What each crate may import of the others. DESIGN and ARCHITECTURE.md show the same as a table.
const ALLOWED: &[(&str, &[&str])] = &[
    ("quorate-files", &[]),
    ("quorate-crypto", &[]),
    ("quorate-types", &["quorate-crypto"]),
    ("quorate-consensus", &["quorate-crypto", "quorate-types"]),
    (
        "quorate-storage",
        &["quorate-files", "quorate-crypto", "quorate-types"],
    ),
    ("quorate-lanes", &["quorate-crypto"]),
    ("quorate-p2p", &["quorate-crypto", "quorate-lanes"]),
    ("quorate-api", &["quorate-types", "quorate-http"]),
    (
        "quorate-load",
        &[
            "quorate-crypto",
            "quorate-types",
            "quorate-http",
            "quorate-api",
        ],
    ),
    (
        "quorate-machine",
        &[
            "quorate-crypto",
            "quorate-types",
            "quorate-consensus",
            "quorate-storage",
            "quorate-lanes",
            "quorate-api",
        ],
    ),
    ("quorate-picture", &[]),
    ("quorate-links", &["quorate-files"]),
    ("quorate-others", &["quorate-files"]),
    ("quorate-history", &["quorate-files", "quorate-picture"]),
    ("quorate-http", &[]),
    (
        "quorate-registry",
        &[
            "quorate-files",
            "quorate-crypto",
            "quorate-types",
            "quorate-http",
        ],
    ),
    (
        "quorate-explorer",
        &[
            "quorate-crypto",
            "quorate-types",
            "quorate-storage",
            "quorate-http",
        ],
    ),
    (
        "quorate-node",
        &[
            "quorate-files",
            "quorate-crypto",
            "quorate-types",
            "quorate-consensus",
            "quorate-storage",
            "quorate-p2p",
            "quorate-api",
            "quorate-machine",
            "quorate-load",
            "quorate-explorer",
            "quorate-http",
            "quorate-registry",
        ],
    ),
    (
        "quorate-sim",
        &[
            "quorate-files",
            "quorate-crypto",
            "quorate-types",
            "quorate-consensus",
            "quorate-storage",
            "quorate-lanes",
            "quorate-machine",
        ],
    ),
    (
        "quorate-bench",
        &[
            "quorate-files",
            "quorate-crypto",
            "quorate-types",
            "quorate-consensus",
            "quorate-storage",
            "quorate-lanes",
            "quorate-p2p",
            "quorate-load",
            "quorate-http",
            "quorate-picture",
            "quorate-links",
            "quorate-history",
            "quorate-others",
            "quorate-machine",
            "quorate-node",
            "quorate-sim",
        ],
    ),
];

#[test]
fn every_crate_imports_only_what_lies_below_it() {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut seen = 0;
    for package in workspace_packages() {
        let name = package["name"].as_str().expect("a name");
        let Some(may) = allowed.get(name) else {
            assert!(
                !name.starts_with("quorate-"),
                "{name} is not in the table of arrows"
            );
            continue;
        };
        seen += 1;
        for dependency in package["dependencies"].as_array().expect("a list") {
            let other = dependency["name"].as_str().expect("a name");
            if other.starts_with("quorate-") && other != name {
                assert!(may.contains(&other), "{name} imports {other}");
            }
        }
    }
    assert_eq!(seen, ALLOWED.len(), "a crate of the table is gone");
}

#[test]
fn the_pure_crates_have_no_runtime_file_or_clock() {
    for package in workspace_packages() {
        let name = package["name"].as_str().expect("a name");
        if !["quorate-consensus", "quorate-types"].contains(&name) {
            continue;
        }
        for dependency in package["dependencies"].as_array().expect("a list") {
            let other = dependency["name"].as_str().expect("a name");
            let normal = dependency["kind"].is_null();
            assert!(
                !(normal && ["tokio", "rand", "rocksdb", "commonware-runtime"].contains(&other)),
                "{name} imports {other}"
            );
        }
    }
}

#[test]
fn every_file_that_the_architecture_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("it is there");
    let quoted = text.split('`').skip(1).step_by(2);
    let files: Vec<&str> = quoted
        .filter(|name| name.contains('/') && name.ends_with(".rs"))
        .collect();
    assert!(files.len() > 80, "{}", files.len());
    let missing: Vec<_> = files
        .iter()
        .filter(|name| !root.join(name).is_file())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    for walk in ["The way of a vote", "The way of a transaction"] {
        let section = text
            .split("\n## ")
            .find(|section| section.starts_with(walk));
        let section = section.unwrap_or_else(|| panic!("no section {walk:?}"));
        let rows = section
            .lines()
            .filter(|line| line.starts_with("| `"))
            .count();
        assert!(
            section.contains(&format!("\n{rows} files. ")),
            "{walk}: {rows} rows"
        );
    }
}

fn workspace_packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata failed");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("a list").clone()
}
