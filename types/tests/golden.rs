//! The formats, frozen: what is stored, sent, hashed and signed, as bytes.
//!
//! A change of these bytes breaks every stored chain and every peer: it needs a new version. The
//! file is written anew when `QUORATE_BLESS` is set.
#![allow(missing_docs, clippy::unwrap_used)]

use bytes::Bytes;
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_crypto::{
    SecretKey,
    bls::{PartialSignature, Proof, Signers},
    sha256,
};
use quorate_types::{
    Account, Block, BondAddress, Bundle, Certificate, ChainId, ChunkAnswer, ChunkRequest, Digest,
    Epoch, EpochLength, Evidence, ExternalEntry, Failure, Frame, Handover, Header, Height,
    Identity, JournalState, Member, Memo, Message, Nonce, Operation, OrderedBundle, Outcome,
    Position, Possession, Proposal, Receipt, Record, Relayed, Silence, SnapshotProof,
    SnapshotRegistry, Span, Standing, Status, Subject, Transaction, Transfer, ValidatorIndex,
    ValidatorSet, View, Vote, VoteKey, VoteKind,
    genesis::{
        ApplicationKind, BlockLimits, Fees, Genesis, GenesisAccount, GenesisValidator, Protocol,
    },
    registry::{Report, entry_digest, report_slot},
    state_key,
};
use std::{collections::BTreeMap, env, fmt::Debug, fs, sync::Arc};

const FILE: &str = "tests/golden/formats.txt";

fn secret(seed: u8) -> SecretKey {
    SecretKey::from_bytes(&[seed; 32])
}

fn chain() -> ChainId {
    ChainId(sha256(&[b"golden chain"]))
}

fn transfer(seed: u8) -> Transfer {
    Transfer {
        chain_tag: chain().tag(),
        sender: secret(seed).identity(),
        nonce: 0x0102_0304_0506_0708,
        to: secret(seed + 1).identity(),
        amount: 0x1112_1314_1516_1718,
        fee: 0x2122_2324_2526_2728,
        memo: Memo::NONE,
    }
}

fn transaction(seed: u8) -> Transaction {
    transfer(seed).sign(&chain(), &secret(seed))
}

fn with_memo(seed: u8) -> Transaction {
    let transfer = Transfer {
        memo: Memo::new("invoice 17").unwrap(),
        ..transfer(seed)
    };
    transfer.sign(&chain(), &secret(seed))
}

fn bundle() -> Bundle {
    Bundle::of(["first", "second"]).unwrap()
}

fn ordered_bundle() -> OrderedBundle {
    let transaction = bundle().reference().order(&chain(), &secret(1), 9);
    OrderedBundle::new(transaction, bundle()).unwrap()
}

fn block() -> Block {
    let transactions = vec![transaction(1), transaction(2)];
    let header = Header {
        chain: chain(),
        epoch: Epoch(1),
        view: View(9),
        height: Height(7),
        parent: sha256(&[b"parent"]),
        parent_view: View(8),
        timestamp_ms: 1_800_000_000_123,
        executed_height: Height(5),
        state_root: sha256(&[b"state"]),
        body_root: Header::body_root_of(&transactions),
    };
    Block::new(header, transactions).unwrap()
}

fn subject(kind: VoteKind) -> Subject {
    match kind {
        VoteKind::Nullify => Subject::nullify(Epoch(1), View(9)),
        _ => Subject {
            epoch: Epoch(1),
            view: View(9),
            kind,
            payload: block().id(),
        },
    }
}

fn vote(kind: VoteKind) -> Vote {
    Vote {
        subject: subject(kind),
        signer: ValidatorIndex(3),
        signature: PartialSignature([7; 96]),
    }
}

fn certificate(kind: VoteKind) -> Certificate {
    Certificate {
        subject: subject(kind),
        proof: Proof::Threshold([8; 48]),
    }
}

fn genesis() -> Genesis {
    Genesis {
        name: "golden".into(),
        timestamp_ms: 1_800_000_000_000,
        protocol: Protocol::Simplex,
        application: ApplicationKind::Ledger,
        scheme: "bls-threshold".into(),
        fees: Fees::NONE,
        limits: BlockLimits {
            max_transactions: 4_096,
            max_bytes: 1_048_576,
        },
        epoch_blocks: EpochLength::DEFAULT,
        group_key: Some("ab".repeat(96)),
        registry: None,
        validators: vec![GenesisValidator {
            identity: secret(1).identity(),
            vote_key: "cd".repeat(96),
            proof_of_possession: None,
            stake: 0,
            address: BondAddress::default(),
        }],
        accounts: vec![GenesisAccount {
            identity: secret(2).identity(),
            balance: 1_000_000,
        }],
    }
}

/// The bytes of a value that must also decode to the value again.
fn both_ways<T: Encode + DecodeExt<()> + PartialEq + Debug>(value: &T) -> Vec<u8> {
    let bytes = value.encode().to_vec();
    assert_eq!(T::decode(Copying(&bytes)).as_ref().ok(), Some(value));
    bytes
}

fn frame() -> Frame {
    let proposal = Proposal {
        epoch: Epoch(1),
        view: View(9),
        block: Arc::new(block()),
        parent_certificate: Some(certificate(VoteKind::Notarize)),
        certificates: vec![certificate(VoteKind::Nullify)],
    };
    Frame(vec![
        Message::Proposal(Box::new(proposal)),
        Message::Vote(vote(VoteKind::Notarize)),
    ])
}

fn small_messages() -> Frame {
    Frame(vec![
        Message::Certificate(certificate(VoteKind::Finalize)),
        Message::BlockRequest(sha256(&[b"asked"])),
        Message::BlockReply(Arc::new(block())),
        Message::RangeRequest(Height(11)),
        Message::RangeReply {
            blocks: vec![Arc::new(block())],
            finalization: Some(certificate(VoteKind::Finalize)),
        },
        Message::CertificateRequest {
            epoch: Epoch(1),
            first: View(2),
            last: View(3),
        },
        Message::Transactions(vec![transaction(1)]),
        Message::Status(Status {
            epoch: Epoch(1),
            view: View(2),
            finalized_height: Height(3),
            executed_height: Height(4),
            convicted: sha256(&[b"convicted"]),
        }),
    ])
}

fn state_sync_messages() -> Vec<Message> {
    let request = ChunkRequest {
        height: Height(1_000),
        span: Span::of(&[0xa5; 32], 13).unwrap(),
        since: Height(7),
    };
    let answers = [
        ChunkAnswer::Chunk(Bytes::from_static(b"a chunk")),
        ChunkAnswer::TooMany,
        ChunkAnswer::Absent,
    ];
    let proof = SnapshotProof {
        headers: vec![*block().header()],
        finalization: certificate(VoteKind::Finalize),
        registry: None,
    };
    let member = |number: u8| Member {
        identity: Identity([number; 32]),
        vote_key: VoteKey([number; 96]),
        address: "host:1".parse().unwrap(),
        name: "one".parse().unwrap(),
    };
    let set = ValidatorSet::of_members(Epoch(2), vec![member(1), member(2)]);
    let with_registry = SnapshotProof {
        registry: Some(SnapshotRegistry {
            proof: Bytes::from_static(b"a proof"),
            next: Some(set.clone()),
        }),
        ..proof.clone()
    };
    let handover = Handover {
        header: *block().header(),
        finalization: certificate(VoteKind::Finalize),
        proof: Bytes::from_static(b"a proof"),
        set,
    };
    let mut messages = vec![
        Message::SnapshotReply(Some(Box::new(with_registry))),
        Message::HandoverRequest(Epoch(1)),
        Message::BundleRequest(bundle().reference().digest),
        Message::Bundle(Box::new(ordered_bundle())),
        Message::HandoverReply {
            after: Epoch(1),
            handovers: vec![handover],
        },
        Message::SnapshotRequest,
        Message::SnapshotReply(None),
        Message::SnapshotReply(Some(Box::new(proof))),
        Message::ChunkRequest(request),
        Message::FollowRequest(Height(77)),
    ];
    messages.extend(answers.map(|answer| Message::ChunkReply { request, answer }));
    messages
}

fn external_entry() -> ExternalEntry {
    ExternalEntry {
        stake: 0x0102_0304_0506_0708,
        vote_key: VoteKey([3; 96]),
        possession: Possession([4; 48]),
        address: "host:1".parse().unwrap(),
        name: "one".parse().unwrap(),
    }
}

fn vectors() -> BTreeMap<String, String> {
    let mut all: Vec<(String, Vec<u8>)> = vec![
        ("header".into(), both_ways(block().header())),
        ("block".into(), both_ways(&block())),
        ("block_id".into(), block().id().0.to_vec()),
        ("transaction".into(), both_ways(&transaction(1))),
        ("transaction_id".into(), transaction(1).id().0.to_vec()),
        ("transaction_with_memo".into(), both_ways(&with_memo(1))),
        (
            "transaction_with_memo_id".into(),
            with_memo(1).id().0.to_vec(),
        ),
        (
            "transfer_signed_bytes".into(),
            transfer(1).signed_bytes(&chain()),
        ),
        (
            "account".into(),
            both_ways(&Account::plain(3, 0x0102_0304_0506_0708)),
        ),
        (
            "account_with_a_report".into(),
            both_ways(&Account {
                report: Some(Report {
                    reporter: Identity([1; 32]),
                    validator: Identity([2; 32]),
                    entry: entry_digest(&Identity([2; 32]), Some(&external_entry())),
                    epoch: Epoch(0x0102_0304),
                }),
                ..Account::plain(0, 7)
            }),
        ),
        (
            "operation_report".into(),
            both_ways(&Operation::Report {
                validator: Identity([2; 32]),
                entry: Some(Box::new(external_entry())),
            }),
        ),
        (
            "operation_report_of_none".into(),
            both_ways(&Operation::Report {
                validator: Identity([2; 32]),
                entry: None,
            }),
        ),
        ("report_slot".into(), report_slot(1_023).0.to_vec()),
        (
            "evidence".into(),
            both_ways(&Evidence {
                first: vote(VoteKind::Finalize),
                second: vote(VoteKind::Nullify),
            }),
        ),
        ("frame".into(), both_ways(&frame())),
        (
            "frame_of_evidence".into(),
            both_ways(&Frame(vec![Message::Evidence(Box::new(Evidence {
                first: vote(VoteKind::Nullify),
                second: vote(VoteKind::Finalize),
            }))])),
        ),
        (
            "frame_of_a_relayed_one".into(),
            both_ways(&Frame(vec![
                Message::Apart(vec![ValidatorIndex(1), ValidatorIndex(4)]),
                Message::Relayed(Box::new(Relayed::sign(
                    &chain(),
                    (ValidatorIndex(2), &SecretKey::from_bytes(&[5; 32])),
                    ValidatorIndex(3),
                    0x0102_0304_0506_0708,
                    Frame(vec![Message::BlockRequest(sha256(&[b"block"]))]).encode(),
                ))),
            ])),
        ),
        (
            "frame_of_a_pruned_range".into(),
            both_ways(&Frame(vec![Message::Pruned {
                from: Height(0x0102_0304),
                oldest: Height(0x0506_0708_090a),
            }])),
        ),
        (
            "certificate_aggregate".into(),
            both_ways(&Certificate {
                subject: subject(VoteKind::Finalize),
                proof: Proof::Aggregate {
                    signers: Signers::new(10, &[0, 2, 3, 5, 7, 8, 9]).unwrap(),
                    signature: [8; 48],
                },
            }),
        ),
        (
            "frame_of_small_messages".into(),
            both_ways(&small_messages()),
        ),
        (
            "record_block".into(),
            both_ways(&Record::Block(Arc::new(block()))),
        ),
        (
            "record_vote".into(),
            both_ways(&Record::Vote(vote(VoteKind::Nullify))),
        ),
        (
            "record_certificate".into(),
            both_ways(&Record::Certificate(certificate(VoteKind::Notarize))),
        ),
        (
            "record_silence_unknown".into(),
            both_ways(&Record::Silence(Silence::Unknown)),
        ),
        (
            "record_silence_until".into(),
            both_ways(&Record::Silence(Silence::Until(Position {
                epoch: Epoch(1),
                view: View(9),
            }))),
        ),
        (
            "record_silence_nullify_from".into(),
            both_ways(&Record::Silence(Silence::NullifyFrom(Position {
                epoch: Epoch(1),
                view: View(9),
            }))),
        ),
        (
            "frame_of_a_start".into(),
            both_ways(&Frame(vec![
                Message::Inquiry(Nonce([9; 16])),
                Message::Standing(Box::new(Standing {
                    nonce: Nonce([9; 16]),
                    journal: JournalState::Whole,
                    newest: Some(certificate(VoteKind::Nullify)),
                    vote: Some(vote(VoteKind::Notarize)),
                })),
                Message::Standing(Box::new(Standing {
                    nonce: Nonce([9; 16]),
                    journal: JournalState::Lost,
                    newest: None,
                    vote: None,
                })),
            ])),
        ),
        (
            "frame_of_state_sync".into(),
            both_ways(&Frame(state_sync_messages())),
        ),
        ("genesis_chain_id".into(), genesis().chain_id().0.0.to_vec()),
        (
            "state_key".into(),
            state_key(&secret(1).identity()).0.to_vec(),
        ),
    ];
    for kind in VoteKind::ALL {
        all.push((format!("vote_{kind}"), both_ways(&vote(kind))));
        all.push((format!("certificate_{kind}"), both_ways(&certificate(kind))));
        let signed = subject(kind).signed_bytes(&chain());
        all.push((format!("signed_bytes_{kind}"), signed));
    }
    for outcome in [
        Outcome::Applied,
        Outcome::Failed(Failure::WrongNonce),
        Outcome::Failed(Failure::CannotPayFee),
        Outcome::Failed(Failure::InsufficientBalance),
    ] {
        let receipt = Receipt {
            transaction: transaction(1).id(),
            outcome,
        };
        all.push((format!("receipt_{outcome}"), both_ways(&receipt)));
    }
    all.into_iter()
        .map(|(name, bytes)| (name, hex::encode(bytes)))
        .collect()
}

#[test]
fn the_formats_are_those_of_the_golden_file() {
    let vectors = vectors();
    let text: String = vectors
        .iter()
        .map(|(name, bytes)| format!("{name} = {bytes}\n"))
        .collect();
    if env::var_os("QUORATE_BLESS").is_some() {
        fs::write(FILE, &text).unwrap();
    }
    let golden = fs::read_to_string(FILE).unwrap();
    for line in golden.lines() {
        let (name, bytes) = line.split_once(" = ").unwrap();
        assert_eq!(vectors.get(name).map(String::as_str), Some(bytes), "{name}");
    }
    assert_eq!(golden, text, "a vector is missing from the file");
}

#[test]
fn ids_are_hashes_of_the_frozen_bytes() {
    assert_eq!(block().id(), sha256(&[&block().header().encode()]));
    let encoded = transaction(1).encode();
    assert_eq!(transaction(1).id(), sha256(&[&encoded[..97]]));
    assert_eq!(encoded.len(), 161);
    let encoded = with_memo(1).encode();
    assert_eq!(with_memo(1).id(), sha256(&[&encoded[..97 + 2 + 10]]));
    assert_eq!(encoded.len(), 161 + 2 + 10);
    assert_eq!(
        state_key(&secret(1).identity()),
        sha256(&[&secret(1).identity().0])
    );
    assert!(transaction(1).verify(&chain(), &Fees::NONE).is_ok());
    assert!(with_memo(1).verify(&chain(), &Fees::NONE).is_ok());
    // The memo is signed, too.
    let other = Transfer {
        memo: Memo::new("invoice 18").unwrap(),
        ..transfer(1)
    };
    let forged = Transaction::new(other, *with_memo(1).signature());
    assert!(forged.verify(&chain(), &Fees::NONE).is_err());
    assert!(
        transaction(1)
            .verify(&ChainId(Digest::ZERO), &Fees::NONE)
            .is_err()
    );
}

#[test]
fn the_genesis_file_of_a_chain_keeps_its_id() {
    let genesis = genesis();
    let read = Genesis::from_json(&genesis.to_json()).unwrap();
    assert_eq!(read.chain_id(), genesis.chain_id());
    let mut richer = genesis.clone();
    richer.accounts[0].balance += 1;
    assert_ne!(richer.chain_id(), genesis.chain_id());
}

#[test]
fn a_genesis_file_of_another_shape_is_told_with_the_key() {
    let text = genesis().to_json();
    let told = |text: &str| {
        Genesis::from_json(text)
            .expect_err("another shape")
            .to_string()
    };
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["protocol"] = 3.into();
    let error = told(&value.to_string());
    assert!(error.starts_with("`protocol`: "), "{error}");
    value["protocol"] = "simplex".into();
    value["limits"]["max_bytes"] = "many".into();
    let error = told(&value.to_string());
    assert!(error.starts_with("`limits.max_bytes`: "), "{error}");
    value["limits"] = serde_json::json!({ "max_transactions": 1 });
    let error = told(&value.to_string());
    assert!(
        error.starts_with("the key `limits.max_bytes` is missing"),
        "{error}"
    );
    value.as_object_mut().unwrap().remove("limits");
    let error = told(&value.to_string());
    assert!(error.starts_with("the key `limits` is missing"), "{error}");
    for broken in ["", "{", &format!("{text} x")] {
        let error = told(broken);
        assert!(error.starts_with("not a valid file: "), "{error}");
    }
}
