//! The arrows between the crates go down only.

use std::{collections::BTreeMap, process::Command};

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
    ("quorate-p2p", &["quorate-crypto", "quorate-types"]),
    (
        "quorate-load",
        &["quorate-crypto", "quorate-types", "quorate-http"],
    ),
    ("quorate-picture", &[]),
    ("quorate-links", &["quorate-files"]),
    ("quorate-others", &["quorate-files"]),
    ("quorate-history", &["quorate-files", "quorate-picture"]),
    ("quorate-http", &[]),
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
            "quorate-load",
            "quorate-explorer",
            "quorate-http",
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
            "quorate-p2p",
            "quorate-node",
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
            "quorate-p2p",
            "quorate-load",
            "quorate-http",
            "quorate-picture",
            "quorate-links",
            "quorate-history",
            "quorate-others",
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

fn workspace_packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata failed");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("a list").clone()
}
