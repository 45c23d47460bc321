//! Test vectors for verifiers in other languages: valid cases, and invalid ones that look valid.
//!
//! `QUORATE_BLESS=1 cargo test --workspace --test vectors` regenerates the file.

#![allow(clippy::unwrap_used)]

mod common;

use common::{TestChain, secret, subject};
use commonware_codec::Encode;
use quorate_crypto::{bls::SchemeKind, sha256};
use quorate_storage::tree::Proof;
use quorate_types::{
    Block, Certificate, Digest, Epoch, Evidence, ExternalEntry, Identity, Memo, Operation, Subject,
    Transaction, View, VoteKind, merkle_path, merkle_root, state_key,
};
use serde_json::{Value, json};
use std::{
    env, fs,
    io::Write as _,
    process::{Command, Stdio},
};

const FILE: &str = "page/test/vectors.json";

const ABOUT: &str = "Made by explorer/tests/vectors.rs. Hexadecimal has 0x except inside `trust`, \
    which has the trust file's own shape. `valid` is what a verifier must answer.";

fn hex0x(bytes: impl AsRef<[u8]>) -> String {
    format!("0x{}", hex::encode(bytes))
}

fn encoded(value: &impl Encode) -> String {
    hex0x(value.encode())
}

fn flipped(text: &str, byte: usize) -> String {
    let mut bytes = hex::decode(&text[2..]).unwrap();
    bytes[byte] ^= 1;
    hex0x(bytes)
}

fn chain(kind: SchemeKind, seed: u8) -> TestChain {
    let mut chain = TestChain::new(kind, 4, seed);
    let memo = |i| Memo::new(vec![b'm'; 300 * usize::from(i == 2)]).unwrap();
    let transactions: Vec<Transaction> = (0..5)
        .map(|i| chain.transfer_with(i + 1, 0, 31, 9, memo(i)))
        .collect();
    chain.extend(transactions, 0, true);
    chain.extend(Vec::new(), 1, false);
    let one = chain.transfer(6, 0, 40, 7);
    chain.extend(vec![one], 0, false);
    chain.extend(Vec::new(), 2, true);
    chain
}

/// Whether blocks are final: `{trust, header, headers, certificate, valid}`.
fn finality(chain: &TestChain, other: &TestChain) -> Vec<Value> {
    let trust = serde_json::to_value(&chain.trust).unwrap();
    let block = |place: usize| &chain.blocks[place].block;
    let certificate = |place: usize| chain.blocks[place].certificate.clone().unwrap();
    let case = |name: &str, header: String, headers: Vec<String>, proof: String, valid: bool| {
        json!({"name": format!("{}: {name}", chain.trust.scheme), "trust": trust,
               "header": header, "headers": headers, "certificate": proof, "valid": valid})
    };
    let header = |place: usize| encoded(block(place).header());
    let direct = encoded(&certificate(0));
    let last = encoded(&certificate(3));
    let way = || vec![header(2), header(3)];
    let notarized = chain.certify(subject(VoteKind::Notarize, block(0)));
    let foreign = encoded(&other.blocks[0].certificate.clone().unwrap());
    let signature = direct.len() / 2 - 2;
    vec![
        case("direct", header(0), vec![], direct.clone(), true),
        case("through descendants", header(1), way(), last.clone(), true),
        case(
            "header changed",
            flipped(&header(0), 100),
            vec![],
            direct.clone(),
            false,
        ),
        case(
            "certificate of another block",
            header(0),
            vec![],
            last.clone(),
            false,
        ),
        case(
            "signature changed",
            header(0),
            vec![],
            flipped(&direct, signature),
            false,
        ),
        case(
            "view of the subject changed",
            header(0),
            vec![],
            flipped(&direct, 16),
            false,
        ),
        case(
            "notarization",
            header(0),
            vec![],
            encoded(&notarized),
            false,
        ),
        case(
            "a header left out",
            header(1),
            vec![header(3)],
            last.clone(),
            false,
        ),
        case(
            "headers in another order",
            header(1),
            vec![header(3), header(2)],
            last,
            false,
        ),
        case(
            "another chain's certificate",
            header(0),
            vec![],
            foreign,
            false,
        ),
        case(
            "identity as signature",
            header(0),
            vec![],
            identity(&certificate(0)),
            false,
        ),
    ]
}

/// The certificate with the point at infinity as its signature.
fn identity(certificate: &Certificate) -> String {
    let mut bytes = certificate.encode().to_vec();
    let start = bytes.len() - 48;
    bytes[start..].fill(0);
    bytes[start] = 0xc0;
    hex0x(bytes)
}

/// Whether bodies match their headers: `{block, header, valid}`.
fn bodies(chain: &TestChain) -> Vec<Value> {
    let block = &chain.blocks[0].block;
    let empty = &chain.blocks[1].block;
    let case = |name: &str, block: &Block, bytes: String, valid: bool| {
        json!({"name": name, "header": encoded(block.header()), "id": hex0x(block.id().0),
               "block": bytes, "body_root": hex0x(block.header().body_root.0), "valid": valid})
    };
    let good = encoded(block);
    vec![
        case("five transactions", block, good.clone(), true),
        case("no transaction", empty, encoded(empty), true),
        case("amount changed", block, flipped(&good, 177 + 4 + 88), false),
        case(
            "signature changed",
            block,
            flipped(&good, 177 + 4 + 150),
            false,
        ),
    ]
}

/// Whether a transaction is in a block: `{transaction, id, index, count, siblings, body_root, valid}`.
fn inclusions(chain: &TestChain) -> Vec<Value> {
    let transactions = chain.blocks[0].block.transactions();
    let leaves: Vec<_> = transactions
        .iter()
        .map(|t| sha256(&[&t.encode()]))
        .collect();
    let root = hex0x(merkle_root(&leaves).0);
    let case = |name: &str, index: usize, place: usize, siblings: Vec<String>, valid: bool| {
        json!({"name": name, "transaction": encoded(&transactions[index]),
               "id": hex0x(transactions[index].id().0), "index": place, "count": leaves.len(),
               "siblings": siblings, "body_root": root, "valid": valid})
    };
    let path = |index: usize| -> Vec<String> {
        let path = merkle_path(&leaves, index).unwrap();
        path.iter().map(|digest| hex0x(digest.0)).collect()
    };
    let mut all: Vec<Value> = (0..leaves.len())
        .map(|index| case("in its place", index, index, path(index), true))
        .collect();
    all.push(case("another place", 0, 1, path(0), false));
    all.push(case("another transaction's path", 0, 0, path(2), false));
    all.push(case("path too short", 4, 4, Vec::new(), false));
    let mut longer = path(4);
    longer.push(root.clone());
    all.push(case("path too long", 4, 4, longer, false));
    all
}

/// Whether accounts have these values: `{identity, key, value, siblings, leaf, encoded, root, valid}`.
fn accounts(chain: &TestChain) -> Vec<Value> {
    let root = chain.blocks[3].block.header().state_root;
    let absent = secret(200).identity();
    let case = |name: &str, identity: &Identity, proof: &Proof, value: Option<String>, valid| {
        let siblings: Vec<String> = proof.siblings().iter().map(|d| hex0x(d.0)).collect();
        let leaf: Vec<Value> = proof
            .entries()
            .iter()
            .map(|entry| json!({"key": hex0x(entry.key), "value": hex0x(&entry.value)}))
            .collect();
        json!({"name": name, "identity": hex0x(identity.0), "key": hex0x(state_key(identity).0),
               "value": value, "siblings": siblings, "leaf": leaf, "encoded": encoded(proof),
               "root": hex0x(root.0), "valid": valid})
    };
    let value = |identity: &Identity, proof: &Proof| {
        let value = proof.verify(&root, &state_key(identity).0).unwrap();
        value.map(hex0x)
    };
    let mut all = Vec::new();
    for seed in [1, 17, 39] {
        let identity = secret(seed).identity();
        let proof = chain.prove(&identity);
        all.push(case(
            "there",
            &identity,
            &proof,
            value(&identity, &proof),
            true,
        ));
    }
    let proof = chain.prove(&absent);
    assert_eq!(value(&absent, &proof), None);
    all.push(case("not there", &absent, &proof, None, true));
    let first = secret(1).identity();
    let holds = chain.prove(&first);
    let lie = value(&first, &holds).map(|text| flipped(&text, 16));
    all.push(case("value changed", &first, &holds, lie, false));
    all.push(case("said not to be there", &first, &holds, None, false));
    all.push(case(
        "another key's proof",
        &first,
        &chain.prove(&secret(17).identity()),
        None,
        false,
    ));
    all
}

fn evidence(chain: &TestChain) -> Vec<Value> {
    let [one, two] = [0, 3].map(|place| &chain.blocks[place].block);
    let moved = |block: &Block| quorate_types::Subject {
        view: one.header().view,
        ..subject(VoteKind::Notarize, block)
    };
    let pair = Evidence {
        first: chain.vote(2, moved(one)),
        second: chain.vote(2, moved(two)),
    };
    let hex = encoded(&pair);
    vec![
        json!({"name": "two notarize", "trust": chain.trust, "validator": 2,
               "conflict": "two_notarize", "hex": hex, "valid": true}),
        json!({"name": "first signature changed", "trust": chain.trust, "validator": 2,
               "conflict": "two_notarize", "hex": flipped(&hex, 149), "valid": false}),
    ]
}

/// Operations of the registry, as memos, with the fields that are shown of them.
fn operations() -> Vec<Value> {
    let mut chain = TestChain::registered();
    let (vote_key, possession) = chain.vote_key(30, 90);
    let key = hex0x(vote_key.0);
    let (address, name) = ("192.0.2.7:26600", "<b>seven");
    let guilt = [7, 8].map(|payload| Subject {
        epoch: Epoch(0),
        view: View(41),
        kind: VoteKind::Finalize,
        payload: Digest([payload; 32]),
    });
    let validator = secret(103).identity();
    let case = |operation: Operation, fields: Value| json!({"kind": operation.name(), "memo": encoded(&operation), "fields": fields});
    let labels = || (address.parse().unwrap(), name.parse().unwrap());
    let bond = Operation::Bond {
        vote_key,
        possession,
        address: labels().0,
        name: labels().1,
    };
    let rotate = Operation::RotateKey {
        vote_key,
        possession,
    };
    let describe = Operation::Describe {
        address: labels().0,
        name: labels().1,
    };
    let accuse = Operation::Accuse {
        validator,
        evidence: Box::new(chain.guilt(0, 2, guilt)),
    };
    vec![
        case(
            bond,
            json!({"voteKey": key, "address": address, "name": name}),
        ),
        case(Operation::AddStake, json!({})),
        case(
            Operation::Unbond { stake: u64::MAX },
            json!({"stake": u64::MAX.to_string()}),
        ),
        case(Operation::Withdraw, json!({})),
        case(rotate, json!({"voteKey": key})),
        case(describe, json!({"address": address, "name": name})),
        case(
            accuse,
            json!({"validator": hex0x(validator.0), "view": "41", "signer": 2}),
        ),
        case(
            Operation::Report {
                validator,
                entry: Some(Box::new(ExternalEntry {
                    stake: 7,
                    vote_key,
                    possession,
                    address: labels().0,
                    name: labels().1,
                })),
            },
            json!({"validator": hex0x(validator.0), "stake": "7", "voteKey": key, "address": address, "name": name}),
        ),
        case(
            Operation::Report {
                validator,
                entry: None,
            },
            json!({"validator": hex0x(validator.0)}),
        ),
    ]
}

fn vectors() -> Value {
    let threshold = chain(SchemeKind::BlsThreshold, 1);
    let aggregate = chain(SchemeKind::BlsAggregate, 2);
    let mut finality_cases = finality(&threshold, &aggregate);
    finality_cases.extend(finality(&aggregate, &threshold));
    json!({
        "about": ABOUT,
        "finality": finality_cases,
        "bodies": bodies(&threshold),
        "inclusions": inclusions(&threshold),
        "accounts": accounts(&threshold),
        "evidence": evidence(&threshold),
        "operations": operations(),
    })
}

#[test]
fn the_vectors_are_those_of_the_file() {
    let text = format!("{}\n", serde_json::to_string_pretty(&vectors()).unwrap());
    if env::var_os("QUORATE_BLESS").is_some() {
        fs::create_dir_all(std::path::Path::new(FILE).parent().unwrap()).unwrap();
        fs::write(FILE, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(FILE).unwrap(), text);
}

const FORMATS: &str = "../docs/FORMATS.md";

/// A few simple values for authors of verifiers.
fn first_vectors() -> Value {
    let threshold = chain(SchemeKind::BlsThreshold, 1);
    let aggregate = chain(SchemeKind::BlsAggregate, 2);
    let block = &threshold.blocks[0].block;
    let certificate = threshold.blocks[0].certificate.clone().unwrap();
    let transaction = &block.transactions()[0];
    let transfer = transaction.transfer();
    let identity = secret(1).identity();
    let proof = threshold.prove(&identity);
    let vote = threshold.vote(2, certificate.subject);
    let verifier = threshold.trust.verifier().unwrap();
    let leaders: Vec<Value> = [(0, 1), (0, 5), (2, 1), (3, 7)]
        .into_iter()
        .map(|(epoch, view)| {
            let leader = verifier
                .newest()
                .leader_in(quorate_types::Epoch(epoch), quorate_types::View(view));
            json!({"epoch": epoch, "view": view, "leader": leader.0})
        })
        .collect();
    assert!(verifier.verify(&certificate));
    // The signature's namespace is prepended, after its length.
    let signed_transfer = [
        &[21][..],
        b"quorate/transaction/1",
        &transfer.signed_bytes(&threshold.trust.chain_id),
    ]
    .concat();
    json!({
        "chain_id": hex0x(threshold.trust.chain_id.0.0),
        "group_key": format!("0x{}", threshold.trust.group_key.clone().unwrap()),
        "leaders_of_4": leaders,
        "header": encoded(block.header()),
        "block_id": hex0x(block.id().0),
        "transaction": encoded(transaction),
        "transaction_id": hex0x(transaction.id().0),
        "transaction_signed_bytes": hex0x(signed_transfer),
        "body_root": hex0x(block.header().body_root.0),
        "certificate": encoded(&certificate),
        "certificate_signed_bytes": hex0x(certificate.subject.signed_bytes(&threshold.trust.chain_id)),
        "certificate_bls_aggregate": encoded(&aggregate.blocks[0].certificate.clone().unwrap()),
        "vote_of_2": encoded(&vote),
        "account": hex0x(identity.0),
        "account_key": hex0x(state_key(&identity).0),
        "account_proof": encoded(&proof),
        "account_state_root": hex0x(threshold.blocks[3].block.header().state_root.0),
    })
}

#[test]
fn the_formats_document_shows_what_the_program_makes() {
    let text = fs::read_to_string(FORMATS).unwrap();
    let (head, rest) = text.split_once("```json\n").unwrap();
    let (shown, tail) = rest.split_once("```").unwrap();
    let made = format!(
        "{}\n",
        serde_json::to_string_pretty(&first_vectors()).unwrap()
    );
    if env::var_os("QUORATE_BLESS").is_some() {
        fs::write(FORMATS, format!("{head}```json\n{made}```{tail}")).unwrap();
        return;
    }
    assert_eq!(shown, made);
    // The fields are at the documented offsets.
    let made = first_vectors();
    let bytes = |name: &str| hex::decode(&made[name].as_str().unwrap()[2..]).unwrap();
    let header = bytes("header");
    assert_eq!(header.len(), 177);
    assert_eq!(sha256(&[&header]).0.to_vec(), bytes("block_id"));
    assert_eq!(header[1..33], bytes("chain_id"));
    assert_eq!(header[145..], bytes("body_root"));
    let transaction = bytes("transaction");
    assert_eq!(transaction.len(), 161);
    assert_eq!(
        sha256(&[&transaction[..97]]).0.to_vec(),
        bytes("transaction_id")
    );
    let signed = [
        &[21_u8][..],
        b"quorate/transaction/1",
        &bytes("chain_id"),
        &transaction[..97],
    ];
    assert_eq!(signed.concat(), bytes("transaction_signed_bytes"));
    let certificate = bytes("certificate");
    assert_eq!((certificate.len(), certificate[50]), (99, 0));
    let signed = [
        b"quorate/vote/1",
        &bytes("chain_id")[..],
        &certificate[1..50],
    ];
    assert_eq!(signed.concat(), bytes("certificate_signed_bytes"));
    let aggregate = bytes("certificate_bls_aggregate");
    assert_eq!((aggregate.len(), &aggregate[50..53]), (102, &[1, 0, 4][..]));
    assert_eq!(aggregate[53].count_ones(), 3);
    let vote = bytes("vote_of_2");
    assert_eq!((vote.len(), &vote[50..54]), (150, &[0, 0, 0, 2][..]));
    assert_eq!(
        sha256(&[&bytes("account")]).0.to_vec(),
        bytes("account_key")
    );
    for leader in made["leaders_of_4"].as_array().unwrap() {
        let number = |name: &str| leader[name].as_u64().unwrap();
        assert_eq!((number("view") + number("epoch")) % 4, number("leader"));
    }
}

/// Runs a program in Python with `docs/verify_block.py` as the module `v` and a value as `given`.
fn python(program: &str, given: &Value) -> String {
    let docs = "../docs";
    let head = "import json, sys; sys.path.insert(0, sys.argv[1]); import verify_block as v; \
                given = json.load(sys.stdin)";
    let mut child = Command::new("python3")
        .args(["-B", "-c", &format!("{head}\n{program}"), docs])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs python3");
    let mut input = child.stdin.take().unwrap();
    input.write_all(given.to_string().as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_python_verifier_takes_a_body_with_memos_and_no_other() {
    let chain = chain(SchemeKind::BlsThreshold, 1);
    let block = encoded(&chain.blocks[0].block);
    let memo_at = hex::decode(&block[2..]).unwrap();
    let memo_at = memo_at.windows(300).position(|w| w == [b'm'; 300]).unwrap();
    let cut = block[..block.len() - 2].to_owned();
    let blocks = json!([
        block,
        encoded(&chain.blocks[1].block),
        flipped(&block, memo_at),
        // The memo's length.
        flipped(&block, memo_at - 1),
        flipped(&block, memo_at - 2),
        cut,
        format!("{block}00"),
    ]);
    let said = python(
        "for block in given:
            try: print(v.sha256(v.check_body(v.unhex(block))).hex())
            except ValueError: print('refused')",
        &blocks,
    );
    let id = |place: usize| chain.blocks[place].block.id().to_string();
    let said: Vec<&str> = said.lines().collect();
    let (one, two) = (id(0), id(1));
    let refused = ["refused"; 5];
    assert_eq!(said, [&[one.as_str(), two.as_str()][..], &refused].concat());
}

/// The complete verifier, where the library that it needs for pairings (`py_ecc`) is installed.
#[test]
fn the_python_verifier_takes_final_blocks_and_no_others() {
    for kind in [SchemeKind::BlsThreshold, SchemeKind::BlsAggregate] {
        let chain = chain(kind, 1);
        let answer = |certificate: String| {
            json!({"block": encoded(&chain.blocks[0].block),
                   "finality": {"headers": [], "certificate": certificate}})
        };
        let certificate = chain.blocks[0].certificate.clone().unwrap();
        let other = chain.blocks[3].certificate.clone().unwrap();
        // Another block's signature with this block's subject.
        let (good, bad) = (encoded(&certificate), encoded(&other));
        let forged = format!("{}{}", &good[..good.len() - 96], &bad[bad.len() - 96..]);
        let given = json!({"trust": chain.trust,
            "answers": [answer(encoded(&certificate)), answer(encoded(&other)), answer(forged), answer(identity(&certificate))]});
        let said = python(
            "if not hasattr(v, 'pairing'): sys.exit(print('no py_ecc'))
for answer in given['answers']:
    try: print(v.verify(given['trust'], answer)[49:57].hex())
    except ValueError: print('refused')
for asked in (1, 2, '0x' + v.verify(given['trust'], given['answers'][0])[:1].hex()):
    try: print(v.verify(given['trust'], given['answers'][0], asked)[49:57].hex())
    except ValueError: print('refused')",
            &given,
        );
        if said.trim() == "no py_ecc" {
            eprintln!("not run: py_ecc is not installed");
            return;
        }
        assert_eq!(
            said,
            "0000000000000001\nrefused\nrefused\nrefused\n0000000000000001\nrefused\nrefused\n"
        );
    }
}
