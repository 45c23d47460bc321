//! Bytes from outside: no decoder panics, takes more than its limits, or has two forms of one value.
#![allow(missing_docs, clippy::unwrap_used)]

use bytes::Bytes;
use commonware_codec::{Copying, DecodeExt, Encode, Error};
use proptest::{collection::vec, option, prelude::*};
use quorate_crypto::bls::{Complaint, PartialSignature, Proof, Signers};
use quorate_types::{
    Account, Block, BlockError, BondAddress, Certificate, ChainId, ChunkAnswer, ChunkRequest,
    Digest, Epoch, Evidence, ExternalEntry, Failure, Frame, Handover, Header, Height, Identity,
    IdentitySignature, JournalState, MAX_SPAN_BITS, Member, Memo, Message, Nonce, OpeningKey,
    Operation, Outcome, Position, Possession, Proposal, Receipt, Record, Relayed, Silence,
    SnapshotProof, SnapshotRegistry, Span, Standing, Status, Subject, Transaction, Transfer,
    ValidatorIndex, ValidatorSet, View, Vote, VoteKey, VoteKind,
    limits::{
        MAX_BLOCK_BYTES, MAX_BLOCK_TRANSACTIONS, MAX_FORWARDED_TRANSACTIONS, MAX_FRAME_BYTES,
        MAX_FRAME_MESSAGES, MAX_MEMO_BYTES, MAX_PROPOSAL_CERTIFICATES, MAX_RANGE_BLOCKS,
        RANGE_REPLY_BYTES,
    },
    registry::{Report, Slot},
};
use std::{fmt::Debug, sync::Arc};

trait Wire: Encode + DecodeExt<()> + PartialEq + Debug {}
impl<T: Encode + DecodeExt<()> + PartialEq + Debug> Wire for T {}

fn decode<T: Wire>(bytes: &[u8]) -> Result<T, Error> {
    T::decode(Copying(bytes))
}

/// Whatever decodes has these bytes as its one form.
fn has_one_form<T: Wire>(bytes: &[u8]) {
    if let Ok(value) = decode::<T>(bytes) {
        assert_eq!(value.encode(), bytes, "{value:?} has two forms");
    }
}

/// Round trip, truncations, trailing bytes and the given bit flips.
fn withstands<T: Wire>(value: &T, flips: &[usize]) {
    let bytes = value.encode().to_vec();
    assert_eq!(decode::<T>(&bytes).as_ref().ok(), Some(value));
    for length in 0..bytes.len() {
        assert!(decode::<T>(&bytes[..length]).is_err(), "cut at {length}");
    }
    let mut changed = bytes.clone();
    changed.push(0);
    assert!(decode::<T>(&changed).is_err(), "a byte too many");
    changed.pop();
    for flip in flips {
        let bit = flip % (bytes.len() * 8);
        changed[bit / 8] ^= 1 << (bit % 8);
        has_one_form::<T>(&changed);
        assert_ne!(
            decode::<T>(&changed).as_ref().ok(),
            Some(value),
            "bit {bit}"
        );
        changed[bit / 8] ^= 1 << (bit % 8);
    }
}

fn set() -> impl Strategy<Value = ValidatorSet> {
    (any::<u64>(), 1..9_u8, "[!-~]{0,24}").prop_map(|(epoch, size, name)| {
        let members = (0..size).map(|place| Member {
            identity: Identity([place; 32]),
            vote_key: VoteKey([place; 96]),
            address: BondAddress::default(),
            name: name.parse().unwrap(),
        });
        ValidatorSet::of_members(Epoch(epoch), members.collect())
    })
}

fn handover() -> impl Strategy<Value = Handover> {
    let proof = vec(any::<u8>(), 0..64);
    (block(), certificate(), proof, set()).prop_map(|(block, finalization, proof, set)| Handover {
        header: *block.header(),
        finalization,
        proof: proof.into(),
        set,
    })
}

fn all_decoders(bytes: &[u8]) {
    has_one_form::<Frame>(bytes);
    has_one_form::<Message>(bytes);
    has_one_form::<Proposal>(bytes);
    has_one_form::<Block>(bytes);
    has_one_form::<Header>(bytes);
    has_one_form::<Transaction>(bytes);
    has_one_form::<Transfer>(bytes);
    has_one_form::<Vote>(bytes);
    has_one_form::<Subject>(bytes);
    has_one_form::<Certificate>(bytes);
    has_one_form::<Evidence>(bytes);
    has_one_form::<Record>(bytes);
    has_one_form::<Account>(bytes);
    has_one_form::<Receipt>(bytes);
    has_one_form::<Operation>(bytes);
    has_one_form::<Outcome>(bytes);
    has_one_form::<Status>(bytes);
    has_one_form::<Handover>(bytes);
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest)
}

fn subject() -> impl Strategy<Value = Subject> {
    (any::<u64>(), any::<u64>(), 0..3_usize, digest()).prop_map(|(epoch, view, kind, payload)| {
        match VoteKind::ALL[kind] {
            VoteKind::Nullify => Subject::nullify(Epoch(epoch), View(view)),
            kind => Subject {
                epoch: Epoch(epoch),
                view: View(view),
                kind,
                payload,
            },
        }
    })
}

fn vote() -> impl Strategy<Value = Vote> {
    (subject(), any::<u32>(), any::<[u8; 32]>()).prop_map(|(subject, signer, seed)| Vote {
        subject,
        signer: ValidatorIndex(signer),
        signature: PartialSignature(std::array::from_fn(|i| seed[i % 32].wrapping_add(i as u8))),
    })
}

fn threshold_certificate() -> impl Strategy<Value = Certificate> {
    (subject(), any::<[u8; 32]>()).prop_map(|(subject, seed)| Certificate {
        subject,
        proof: Proof::Threshold(std::array::from_fn(|i| seed[i % 32])),
    })
}

fn aggregate_certificate() -> impl Strategy<Value = Certificate> {
    let members = vec(0..1_024_u32, 0..20);
    (threshold_certificate(), 1..=1_024_u32, members).prop_map(|(certificate, size, members)| {
        let members: Vec<u32> = members.into_iter().map(|member| member % size).collect();
        Certificate {
            proof: Proof::Aggregate {
                signers: Signers::new(size, &members).unwrap(),
                signature: [7; 48],
            },
            ..certificate
        }
    })
}

fn certificate() -> impl Strategy<Value = Certificate> {
    prop_oneof![threshold_certificate(), aggregate_certificate()]
}

fn transaction() -> impl Strategy<Value = Transaction> {
    (
        any::<[u8; 8]>(),
        any::<[u8; 32]>(),
        any::<[u8; 32]>(),
        any::<[u64; 3]>(),
        any::<[u8; 32]>(),
        vec(any::<u8>(), 0..20),
    )
        .prop_map(
            |(chain_tag, sender, to, [nonce, amount, fee], seed, memo)| {
                let transfer = Transfer {
                    chain_tag,
                    sender: Identity(sender),
                    nonce,
                    to: Identity(to),
                    amount,
                    fee,
                    memo: Memo::new(memo).unwrap(),
                };
                Transaction::new(
                    transfer,
                    IdentitySignature(std::array::from_fn(|i| seed[i % 32])),
                )
            },
        )
}

fn block() -> impl Strategy<Value = Block> {
    (
        digest(),
        any::<[u64; 6]>(),
        digest(),
        digest(),
        vec(transaction(), 0..4),
    )
        .prop_map(|(chain, numbers, parent, state_root, transactions)| {
            let [epoch, view, height, parent_view, timestamp_ms, executed] = numbers;
            let header = Header {
                chain: ChainId(chain),
                epoch: Epoch(epoch),
                view: View(view),
                height: Height(height),
                parent,
                parent_view: View(parent_view),
                timestamp_ms,
                executed_height: Height(executed),
                state_root,
                body_root: Header::body_root_of(&transactions),
            };
            Block::new(header, transactions).unwrap()
        })
}

fn message() -> impl Strategy<Value = Message> {
    let proposal = (
        any::<[u64; 2]>(),
        block(),
        option::of(certificate()),
        vec(certificate(), 0..3),
    )
        .prop_map(|([epoch, view], block, parent_certificate, certificates)| {
            Message::Proposal(Box::new(Proposal {
                epoch: Epoch(epoch),
                view: View(view),
                block: Arc::new(block),
                parent_certificate,
                certificates,
            }))
        });
    let range =
        (vec(block(), 0..3), option::of(certificate())).prop_map(|(blocks, finalization)| {
            Message::RangeReply {
                blocks: blocks.into_iter().map(Arc::new).collect(),
                finalization,
            }
        });
    prop_oneof![
        proposal,
        range,
        vote().prop_map(Message::Vote),
        certificate().prop_map(Message::Certificate),
        digest().prop_map(Message::BlockRequest),
        block().prop_map(|block| Message::BlockReply(Arc::new(block))),
        any::<u64>().prop_map(|height| Message::RangeRequest(Height(height))),
        any::<[u64; 3]>().prop_map(|[epoch, first, last]| Message::CertificateRequest {
            epoch: Epoch(epoch),
            first: View(first),
            last: View(last),
        }),
        vec(transaction(), 0..4).prop_map(Message::Transactions),
        (any::<[u64; 4]>(), digest()).prop_map(
            |([epoch, view, finalized, executed], convicted)| {
                Message::Status(Status {
                    epoch: Epoch(epoch),
                    view: View(view),
                    finalized_height: Height(finalized),
                    executed_height: Height(executed),
                    convicted,
                })
            }
        ),
        (vote(), vote())
            .prop_map(|(first, second)| Message::Evidence(Box::new(Evidence { first, second }))),
        vec(any::<u32>().prop_map(ValidatorIndex), 0..4).prop_map(Message::Apart),
        any::<[u64; 2]>().prop_map(|[from, oldest]| Message::Pruned {
            from: Height(from),
            oldest: Height(oldest),
        }),
        any::<[u8; 16]>().prop_map(|nonce| Message::Inquiry(Nonce(nonce))),
        (
            any::<([u8; 16], u8)>(),
            option::of(certificate()),
            option::of(vote())
        )
            .prop_map(|((nonce, journal), newest, vote)| {
                Message::Standing(Box::new(Standing {
                    nonce: Nonce(nonce),
                    journal: match journal % 3 {
                        0 => JournalState::Unsure,
                        1 => JournalState::Whole,
                        _ => JournalState::Lost,
                    },
                    newest,
                    vote,
                }))
            }),
        Just(Message::SnapshotRequest),
        option::of((vec(block(), 0..3), certificate(), option::of(set()))).prop_map(|proof| {
            Message::SnapshotReply(proof.map(|(blocks, finalization, next)| {
                Box::new(SnapshotProof {
                    headers: blocks.iter().map(|block| *block.header()).collect(),
                    finalization,
                    registry: next.map(|next| SnapshotRegistry {
                        proof: Bytes::from_static(b"a proof"),
                        next: Some(next),
                    }),
                })
            }))
        }),
        any::<u64>().prop_map(|epoch| Message::HandoverRequest(Epoch(epoch))),
        (any::<u64>(), vec(handover(), 0..3)).prop_map(|(after, handovers)| {
            Message::HandoverReply {
                after: Epoch(after),
                handovers,
            }
        }),
        chunk_request().prop_map(Message::ChunkRequest),
        any::<u64>().prop_map(|height| Message::FollowRequest(Height(height))),
        (
            chunk_request(),
            option::of(vec(any::<u8>(), 0..64)),
            any::<bool>()
        )
            .prop_map(|(request, chunk, too_many)| Message::ChunkReply {
                request,
                answer: match chunk {
                    Some(bytes) => ChunkAnswer::Chunk(bytes.into()),
                    None if too_many => ChunkAnswer::TooMany,
                    None => ChunkAnswer::Absent,
                },
            }),
        (any::<[u32; 2]>(), any::<u64>(), vec(any::<u8>(), 0..64)).prop_map(
            |([author, to], number, frame)| {
                Message::Relayed(Box::new(Relayed {
                    author: ValidatorIndex(author),
                    to: ValidatorIndex(to),
                    number,
                    frame: frame.into(),
                    signature: IdentitySignature([7; 64]),
                }))
            }
        ),
    ]
}

fn chunk_request() -> impl Strategy<Value = ChunkRequest> {
    (any::<[u64; 2]>(), any::<[u8; 32]>(), 0..=MAX_SPAN_BITS).prop_map(
        |([height, since], key, bits)| ChunkRequest {
            height: Height(height),
            span: Span::of(&key, bits).unwrap(),
            since: Height(since),
        },
    )
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        vote().prop_map(Record::Vote),
        block().prop_map(|block| Record::Block(Arc::new(block))),
        certificate().prop_map(Record::Certificate),
        (0..3_u8, any::<[u64; 2]>()).prop_map(|(kind, [epoch, view])| {
            let position = Position {
                epoch: Epoch(epoch),
                view: View(view),
            };
            Record::Silence(match kind {
                0 => Silence::Unknown,
                1 => Silence::Until(position),
                _ => Silence::NullifyFrom(position),
            })
        }),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec![
        Outcome::Applied,
        Outcome::Failed(Failure::WrongNonce),
        Outcome::Failed(Failure::CannotPayFee),
        Outcome::Failed(Failure::InsufficientBalance),
    ])
}

fn flips() -> impl Strategy<Value = Vec<usize>> {
    vec(any::<usize>(), 32)
}

/// One value of its kind, always the same.
fn one<T: Debug>(strategy: impl Strategy<Value = T>) -> T {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    strategy
        .new_tree(&mut TestRunner::deterministic())
        .unwrap()
        .current()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_048) })]

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        all_decoders(&bytes);
    }

    // Most random bytes fail at the first byte; small ones pass versions, tags and counts.
    #[test]
    fn small_random_bytes_never_panic(bytes in vec(0..12_u8, 0..600)) {
        all_decoders(&bytes);
    }

    #[test]
    fn votes_and_evidence_withstand_damage(first in vote(), second in vote(), flips in flips()) {
        withstands(&first, &flips);
        withstands(&Evidence { first, second }, &flips);
    }

    #[test]
    fn certificates_withstand_damage(certificate in certificate(), flips in flips()) {
        withstands(&certificate, &flips);
        withstands(&certificate.subject, &flips);
    }

    #[test]
    fn transactions_withstand_damage(transaction in transaction(), flips in flips()) {
        withstands(&transaction, &flips);
        withstands(transaction.transfer(), &flips);
    }

    #[test]
    fn accounts_and_receipts_withstand_damage(
        account in any::<[u64; 2]>(), id in digest(), outcome in outcome(), flips in flips(),
    ) {
        withstands(&Account::plain(account[0], account[1]), &flips);
        let report = Report {
            reporter: Identity(id.0),
            validator: Identity(id.0),
            entry: id,
            epoch: Epoch(account[1]),
        };
        withstands(&Account { report: Some(report), ..Account::plain(0, account[0]) }, &flips);
        let entry = ExternalEntry {
            stake: account[0],
            vote_key: VoteKey([7; 96]),
            possession: Possession([8; 48]),
            address: BondAddress::default(),
            name: "one".parse().unwrap(),
        };
        for entry in [None, Some(Box::new(entry))] {
            withstands(&Operation::Report { validator: Identity(id.0), entry }, &flips);
        }
        let (epoch, key) = (Epoch(account[0]), OpeningKey([account[1] as u8; 48]));
        for slot in [
            Slot::Announced { identity: Identity(id.0), key, epoch, missed: account[1] as u8 },
            Slot::Player { identity: Identity(id.0), key, epoch, share_key: Some(VoteKey([6; 96])) },
            Slot::Absent { identity: Identity(id.0), until: epoch, missed: account[1] as u8 },
            Slot::Piece { epoch, bytes: vec![5; (account[1] % 225) as usize] },
        ] {
            withstands(&Account { slot: Some(Box::new(slot)), ..Account::plain(1, account[0]) }, &flips);
        }
        let bytes = vec![account[0] as u8; (account[1] % 500) as usize];
        let complaint = Complaint { opened: [1; 48], challenge: [2; 32], response: id.0 };
        for operation in [
            Operation::Announce { epoch, key },
            Operation::Deal { part: 1, bytes },
            Operation::Object { player: 3, dealer: 4, complaint: Box::new(complaint) },
            Operation::Prove { player: 5, signature: PartialSignature([4; 96]) },
        ] {
            withstands(&operation, &flips);
        }
        withstands(&outcome, &flips);
        withstands(&Receipt { transaction: id, outcome }, &flips);
    }

    #[test]
    fn records_withstand_damage(record in record(), flips in flips()) {
        withstands(&record, &flips);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_024) })]

    #[test]
    fn blocks_withstand_damage(block in block(), flips in flips()) {
        withstands(&block, &flips);
        withstands(block.header(), &flips);
    }

    #[test]
    fn a_block_commits_to_every_bit_of_its_transactions(block in block(), flips in flips()) {
        let mut bytes = block.encode().to_vec();
        let body = block.header().encode().len();
        for flip in flips {
            let bit = flip % ((bytes.len() - body) * 8);
            bytes[body + bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode::<Block>(&bytes).is_err(), "bit {}", bit);
            bytes[body + bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn messages_and_frames_withstand_damage(messages in vec(message(), 0..4), flips in flips()) {
        for message in &messages {
            withstands(message, &flips);
        }
        withstands(&Frame(messages), &flips);
    }
}

/// Only `good` is taken at `at`; all other values there are refused.
fn only_version<T: Wire>(value: &T, at: usize, good: u8) {
    let mut bytes = value.encode().to_vec();
    for version in 0..=u8::MAX {
        bytes[at] = version;
        assert_eq!(decode::<T>(&bytes).is_ok(), version == good, "{version}");
    }
}

#[test]
fn unknown_versions_are_refused() {
    let (block, vote, certificate) = (one(block()), one(vote()), one(certificate()));
    let evidence = Evidence {
        first: vote,
        second: vote,
    };
    only_version(block.header(), 0, 1);
    only_version(&block, 0, 1);
    only_version(&plain(), 0, 1);
    only_version(&with_memo(vec![7; 20]), 0, 2);
    only_version(&vote, 0, 1);
    only_version(&certificate, 0, 1);
    only_version(&evidence, 0, 1);
    only_version(&evidence, evidence.encode().len() / 2, 1);
    only_version(&Account::default(), 0, 1);
    only_version(&Record::Vote(vote), 1, 1);
    only_version(&Record::Block(Arc::new(block)), 1, 1);
    only_version(&Record::Certificate(certificate), 1, 1);
}

#[test]
fn unknown_codes_are_refused() {
    for code in 0..=u8::MAX {
        let known = usize::from(code) < Outcome::ALL.len();
        assert_eq!(decode::<Outcome>(&[code]).is_ok(), known);
        let known = (1..=25).contains(&code);
        let refused = matches!(decode::<Message>(&[code]), Err(Error::InvalidEnum(_)));
        assert_eq!(refused, !known, "message {code}");
        let refused = matches!(decode::<Record>(&[code]), Err(Error::InvalidEnum(_)));
        assert_eq!(refused, !(1..=4).contains(&code), "record {code}");
    }
    let certificate = one(threshold_certificate());
    let at = certificate.encode().len() - 49;
    only_version(&certificate, at, 0);
}

#[test]
fn a_nullify_names_no_block_and_the_others_name_one() {
    let nullify = Subject::nullify(Epoch(1), View(2)).encode().to_vec();
    let kind_at = 16;
    for (kind, ok) in [(0, false), (1, false), (2, true), (3, false), (4, false)] {
        let mut bytes = nullify.clone();
        bytes[kind_at] = kind;
        assert_eq!(decode::<Subject>(&bytes).is_ok(), ok, "empty, kind {kind}");
        *bytes.last_mut().unwrap() = 1;
        let named = kind == 1 || kind == 3;
        assert_eq!(
            decode::<Subject>(&bytes).is_ok(),
            named,
            "named, kind {kind}"
        );
    }
}

#[test]
fn an_option_has_no_third_form() {
    let reply = Message::RangeReply {
        blocks: Vec::new(),
        finalization: None,
    };
    only_version(&reply, 5, 0);
}

/// A list's count is refused above its limit although nothing follows, and only the items are
/// missing at the limit.
fn limit_is<T: Wire>(before: &[u8], limit: usize) {
    let mut bytes = before.to_vec();
    for count in [limit + 1, u32::MAX as usize] {
        bytes.truncate(before.len());
        bytes.extend_from_slice(&u32::try_from(count).unwrap().to_be_bytes());
        let error = decode::<T>(&bytes).unwrap_err();
        assert!(
            matches!(error, Error::InvalidLength(n) if n == count),
            "{error}"
        );
    }
    bytes.truncate(before.len());
    bytes.extend_from_slice(&u32::try_from(limit).unwrap().to_be_bytes());
    let error = decode::<T>(&bytes).unwrap_err();
    assert!(matches!(error, Error::EndOfBuffer), "{error}");
}

#[test]
fn counts_above_the_limits_are_refused_before_the_items_are_read() {
    let block = one(block());
    limit_is::<Frame>(&[], MAX_FRAME_MESSAGES);
    limit_is::<Block>(&block.header().encode(), MAX_BLOCK_TRANSACTIONS);
    limit_is::<Message>(&[7], MAX_RANGE_BLOCKS);
    limit_is::<Message>(&[9], MAX_FORWARDED_TRANSACTIONS);
    let proposal = Message::Proposal(Box::new(Proposal {
        epoch: Epoch(0),
        view: View(1),
        block: Arc::new(block),
        parent_certificate: None,
        certificates: Vec::new(),
    }));
    let bytes = proposal.encode();
    limit_is::<Message>(&bytes[..bytes.len() - 4], MAX_PROPOSAL_CERTIFICATES);
}

#[test]
fn a_full_block_round_trips_and_fits_its_limits() {
    let transactions = vec![plain(); MAX_BLOCK_TRANSACTIONS];
    let header = Header {
        body_root: Header::body_root_of(&transactions),
        ..*one(block()).header()
    };
    let full = Block::new(header, transactions.clone()).unwrap();
    let certificate = one(certificate());
    let message = Message::Proposal(Box::new(Proposal {
        epoch: Epoch(0),
        view: View(1),
        block: Arc::new(full.clone()),
        parent_certificate: Some(certificate.clone()),
        certificates: vec![certificate; MAX_PROPOSAL_CERTIFICATES],
    }));
    let frame = Frame(vec![message]);
    let bytes = frame.encode();
    assert_eq!(decode::<Frame>(&bytes).ok(), Some(frame));
    assert!(bytes.len() <= MAX_FRAME_BYTES);
    let size = full.encode().len();
    assert!(size <= MAX_BLOCK_BYTES);
    assert!(RANGE_REPLY_BYTES + size + 1_024 <= MAX_FRAME_BYTES);

    let mut more = transactions;
    more.push(plain());
    let count = more.len();
    let refused = Block::new(header, more);
    assert_eq!(refused, Err(BlockError::TooManyTransactions { count }));
    assert_eq!(Block::new(header, vec![]), Err(BlockError::BodyMismatch));
}

fn plain() -> Transaction {
    with_memo(Vec::new())
}

fn with_memo(memo: Vec<u8>) -> Transaction {
    let some = one(transaction());
    let transfer = Transfer {
        memo: Memo::new(memo).unwrap(),
        ..some.transfer().clone()
    };
    Transaction::new(transfer, *some.signature())
}

#[test]
fn a_memo_has_its_limit_and_no_second_form_of_none() {
    let longest = with_memo(vec![7; MAX_MEMO_BYTES]);
    let bytes = longest.encode().to_vec();
    assert_eq!(bytes.len(), Transaction::MIN_SIZE + 2 + MAX_MEMO_BYTES);
    assert_eq!(decode::<Transaction>(&bytes).ok(), Some(longest));
    let too_long = Memo::new(vec![7; MAX_MEMO_BYTES + 1]).unwrap_err();
    assert_eq!(too_long.bytes, MAX_MEMO_BYTES + 1);
    // The length stands behind the transfer's other 97 bytes.
    for length in [0, MAX_MEMO_BYTES + 1] {
        let mut bytes = bytes.clone();
        bytes[97..99].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        let error = decode::<Transaction>(&bytes).unwrap_err();
        assert!(
            matches!(error, Error::InvalidLength(n) if n == length),
            "{error}"
        );
    }
}

#[test]
fn memos_make_no_block_larger_than_its_limit() {
    let transactions = vec![with_memo(vec![7; MAX_MEMO_BYTES]); 512];
    let header = Header {
        body_root: Header::body_root_of(&transactions),
        ..*one(block()).header()
    };
    let refused = Block::new(header, transactions.clone());
    assert!(matches!(refused, Err(BlockError::TooLarge { bytes }) if bytes > MAX_BLOCK_BYTES));
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(&512_u32.to_be_bytes());
    for transaction in &transactions {
        bytes.extend_from_slice(&transaction.encode());
    }
    let error = decode::<Block>(&bytes).unwrap_err();
    assert!(
        matches!(error, Error::InvalidLength(n) if n == bytes.len()),
        "{error}"
    );
}

#[test]
fn a_full_frame_round_trips() {
    let transactions = vec![plain(); MAX_FORWARDED_TRANSACTIONS];
    let mut messages = vec![Message::Vote(one(vote())); MAX_FRAME_MESSAGES - 1];
    messages.push(Message::Transactions(transactions));
    withstands_whole(&Frame(messages));
}

fn withstands_whole<T: Wire>(value: &T) {
    assert_eq!(decode::<T>(&value.encode()).as_ref().ok(), Some(value));
}
