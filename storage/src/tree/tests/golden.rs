//! The formats, frozen: roots, proofs and subtrees as bytes.
//!
//! A change of these bytes breaks every stored state, proof and peer: it needs a new version. The
//! file is written anew when `QUORATE_BLESS` is set.

use super::*;
use commonware_codec::{DecodeExt, Encode};
use serde_json::{Value, json};

const FILE: &str = "tests/golden/tree.json";

fn cases() -> Vec<(&'static str, Content)> {
    let mut dense = ground(40, 20);
    dense.extend(spread(3));
    vec![
        ("empty", Content::new()),
        ("one account", spread(1)),
        ("one leaf", spread(2)),
        ("a bucket of several leaves", spread(5)),
        ("the fullest bucket", spread(32)),
        ("the smallest branch", spread(33)),
        ("keys under one prefix", dense),
    ]
}

fn case(name: &str, content: &Content) -> Value {
    let tree = tree_of(content);
    let absent = sha256(&[b"absent"]).0;
    let keys = [
        content.keys().next(),
        content.keys().next_back(),
        Some(&absent),
    ];
    let proofs: Vec<_> = keys
        .into_iter()
        .flatten()
        .map(|key| {
            json!({
                "key": hex::encode(key),
                "value": content.get(key).map(hex::encode),
                "proof": hex::encode(tree.prove(key).unwrap().encode()),
            })
        })
        .collect();
    let subtrees: Vec<_> = [&[][..], &[3], &[0xa, 5, 0xa, 5, 0xa]]
        .into_iter()
        .map(|nibbles| {
            let prefix = Prefix::new(nibbles).unwrap();
            let subtree = tree.subtree(&prefix).unwrap().unwrap();
            json!({
                "asked": prefix.to_string(),
                "subtree": hex::encode(subtree.encode()),
            })
        })
        .collect();
    let entries: Vec<_> = content
        .iter()
        .map(|(key, value)| json!([hex::encode(key), hex::encode(value)]))
        .collect();
    json!({
        "name": name,
        "entries": entries,
        "root": tree.root().to_string(),
        "proofs": proofs,
        "subtrees": subtrees,
    })
}

#[test]
fn roots_proofs_and_subtrees_have_their_frozen_bytes() {
    let cases: Vec<_> = cases()
        .iter()
        .map(|(name, content)| case(name, content))
        .collect();
    let text = format!("{:#}\n", Value::Array(cases));
    if std::env::var_os("QUORATE_BLESS").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(FILE).unwrap() == text,
        "{FILE} has other bytes"
    );
}

#[test]
fn frozen_proofs_and_subtrees_hold_against_their_frozen_roots() {
    let file: Value = serde_json::from_str(&std::fs::read_to_string(FILE).unwrap()).unwrap();
    let bytes = |value: &Value| hex::decode(value.as_str().unwrap()).unwrap();
    for case in file.as_array().unwrap() {
        let root: Digest = case["root"].as_str().unwrap().parse().unwrap();
        for proof in case["proofs"].as_array().unwrap() {
            let decoded = Proof::decode(bytes(&proof["proof"])).unwrap();
            let key: Key = bytes(&proof["key"]).try_into().unwrap();
            let value = (!proof["value"].is_null()).then(|| bytes(&proof["value"]));
            assert_eq!(decoded.verify(&root, &key), Ok(value.as_deref()));
        }
        for subtree in case["subtrees"].as_array().unwrap() {
            let decoded = Subtree::decode(bytes(&subtree["subtree"])).unwrap();
            assert!(decoded.verify(&root).is_ok());
        }
    }
}
