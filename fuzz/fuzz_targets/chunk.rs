//! What a peer answers during state sync: a part of the state, or what certifies a snapshot. Whatever the
//! bytes are, nothing panics, memory is taken for what came and not for what is announced, each value has
//! one encoding, and what verifies is true.
//!
//! Hashes are not found by chance, so the corpus has true parts and proofs. When their format changes,
//! `CHUNK_SEEDS=corpus/chunk cargo +nightly fuzz run -s none chunk -- -runs=0` writes them anew.
#![no_main]

use commonware_codec::{Copying, DecodeExt, Encode};
use libfuzzer_sys::fuzz_target;
use quorate_crypto::{
    bls::{HashedMessage, Scheme, VoteSecret, deal},
    sha256,
};
use quorate_storage::tree::{Chunk, Key, MemoryStore, Tree};
use quorate_types::{
    Certificate, ChainId, Digest, Epoch, Header, Height, SnapshotProof, Span, Subject, View,
    VoteKind,
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::BTreeMap,
    env, fs,
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Accounts before the snapshot's block and after it. All fit into one input, and not into one row.
const BEFORE: u8 = 60;
const AFTER: u8 = 70;

const CHAIN: ChainId = ChainId(Digest([1; 32]));

/// Bytes that are taken for each byte of an input at most, and beside them.
const TAKEN_PER_BYTE: usize = 64;
const TAKEN_BESIDE: usize = 64 << 10;

type Entries = BTreeMap<Key, Vec<u8>>;

struct Setup {
    /// What the receiver has, from the block before the snapshot's.
    held: Entries,
    /// What is true.
    state: Entries,
    tree: Tree<MemoryStore>,
    scheme: Scheme,
    secrets: Vec<VoteSecret>,
}

fn setup() -> &'static Setup {
    static SETUP: OnceLock<Setup> = OnceLock::new();
    SETUP.get_or_init(|| {
        let entry = |number: u8, value: u8| (sha256(&[&[number]]).0, vec![value; 16]);
        let held = (0..BEFORE).map(|number| entry(number, 1)).collect();
        // Every sixth has changed.
        let value = |number: u8| 1 + u8::from(number.is_multiple_of(6));
        let state = (0..AFTER).map(|number| entry(number, value(number)));
        let state: Entries = state.collect();
        let empty = Tree::open(MemoryStore::default()).expect("an empty tree");
        let mut rows = MemoryStore::default();
        rows.apply(&empty.prepare(&state).expect("values are short"));
        let (keys, secrets) = deal(4, &mut ChaCha8Rng::seed_from_u64(1));
        Setup {
            held,
            state,
            tree: Tree::open(rows).expect("it was just made"),
            scheme: Scheme::threshold(&keys).expect("fresh keys"),
            secrets,
        }
    })
}

/// Counts the bytes that are taken, given back or not.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(layout.size(), Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

/// Runs something that may take as much memory as these bytes account for.
fn within<T>(bytes: &[u8], run: impl FnOnce() -> T) -> T {
    let before = TAKEN.load(Relaxed);
    let result = run();
    let taken = TAKEN.load(Relaxed) - before;
    let most = bytes.len() * TAKEN_PER_BYTE + TAKEN_BESIDE;
    assert!(taken <= most, "{taken} bytes for {} bytes", bytes.len());
    result
}

fn in_span<'a>(entries: &'a Entries, span: &Span) -> impl Iterator<Item = (&'a Key, &'a [u8])> {
    let from = entries.range(*span.first()..);
    let after = span.after();
    let inside = from.take_while(move |(key, _)| after.is_none_or(|after| **key < after));
    inside.map(|(key, value)| (key, &value[..]))
}

fn check_chunk(bytes: &[u8]) {
    let Ok(chunk) = within(bytes, || Chunk::decode(Copying(bytes))) else {
        return;
    };
    assert_eq!(chunk.encode().as_ref(), bytes);
    let Setup {
        held, state, tree, ..
    } = setup();
    let span = chunk.span();
    let nothing = Entries::new();
    let held = if chunk.since() == 0 { &nothing } else { held };
    let verified = within(bytes, || chunk.verify(&tree.root(), in_span(held, &span)));
    let Ok(verified) = verified else { return };
    let mut all: Entries = in_span(held, &span)
        .map(|(key, value)| (*key, value.to_vec()))
        .collect();
    all.extend(chunk.entries().map(|(key, value)| (*key, value.to_vec())));
    let truth = in_span(state, &span);
    assert!(all.iter().map(|(key, value)| (key, &value[..])).eq(truth));
    let count: u32 = verified.nodes.iter().map(|node| node.entries).sum();
    assert_eq!(count as usize, all.len());
}

fn check_proof(bytes: &[u8]) {
    let Ok(proof) = within(bytes, || SnapshotProof::decode(Copying(bytes))) else {
        return;
    };
    assert_eq!(proof.encode().as_ref(), bytes);
    let Ok(subject) = within(bytes, || proof.check(&CHAIN)) else {
        return;
    };
    let first = proof.headers.first().expect("nothing else is certified");
    assert_eq!((subject.height, subject.id), (first.height, first.id()));
    let names = |(header, parent): (&quorate_types::Header, _)| header.parent == parent;
    let parents = proof.headers.iter().map(quorate_types::Header::id);
    assert!(proof.headers.iter().skip(1).zip(parents).all(names));
    let last = proof.headers.last().expect("there is a first one");
    let certified = proof.finalization.subject;
    assert_eq!(certified.kind, VoteKind::Finalize);
    assert_eq!(certified.payload, last.id());
    let message = HashedMessage::new(&certified.signed_bytes(&CHAIN));
    if setup().scheme.verify(&message, &proof.finalization.proof) {
        // Nothing else was ever signed: see `true_proof`.
        assert_eq!(subject.root, setup().tree.root());
    }
}

/// All of a span, or what has changed, as a peer sends it.
fn true_chunk(asked: &Span, since: u64) -> Vec<u8> {
    let Setup {
        held, state, tree, ..
    } = setup();
    let (span, siblings) = tree.way_to(asked).expect("it is in memory");
    let mut sent: Vec<_> = in_span(state, &span).collect();
    sent.retain(|(key, value)| since == 0 || held.get(*key).is_none_or(|held| held != value));
    let mut bytes = vec![2];
    bytes.extend(span.encode());
    siblings
        .iter()
        .for_each(|sibling| bytes.extend(sibling.encode()));
    bytes.extend(since.to_be_bytes());
    bytes.extend((sent.len() as u32).to_be_bytes());
    for (key, value) in sent {
        bytes.extend(&key[span.bits() / 8..]);
        bytes.push(value.len() as u8);
        for group in value.chunks(8) {
            let kept = group
                .iter()
                .zip((0..8).rev())
                .filter(|(byte, _)| **byte != 0);
            bytes.push(kept.clone().fold(0, |mask, (_, bit)| mask | 1 << bit));
            bytes.extend(kept.map(|(byte, _)| byte));
        }
    }
    bytes
}

/// A proof for the state after block 5, from the finalization of a later block.
fn true_proof(headers: u64) -> SnapshotProof {
    let Setup {
        tree,
        scheme,
        secrets,
        ..
    } = setup();
    let mut chain: Vec<Header> = Vec::new();
    for height in 5..5 + headers {
        chain.push(Header {
            chain: CHAIN,
            epoch: Epoch(0),
            view: View(height),
            height: Height(height),
            parent: chain.last().map_or(Digest::ZERO, Header::id),
            parent_view: View(height - 1),
            timestamp_ms: height,
            executed_height: Height(height.clamp(6, 7) - 2),
            state_root: tree.root(),
            body_root: Header::body_root_of(&[]),
        });
    }
    let last = chain.last().expect("at least one");
    let subject = Subject {
        epoch: last.epoch,
        view: last.view,
        kind: VoteKind::Finalize,
        payload: last.id(),
    };
    let message = HashedMessage::new(&subject.signed_bytes(&CHAIN));
    let parts = [0, 1, 3].map(|signer| (signer, secrets[signer as usize].sign(&message)));
    let proof = scheme.certify(&message, &parts, [7; 32]);
    SnapshotProof {
        registry: None,
        headers: chain,
        finalization: Certificate {
            subject,
            proof: proof.expect("true signatures"),
        },
    }
}

fn write_seeds(folder: &Path) {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for (first, bits) in [
        (0, 0),
        (0xff, 1),
        (0x40, 3),
        (0xa0, 4),
        (0xa0, 6),
        (0x50, 12),
    ] {
        let span = Span::of(&[first; 32], bits).expect("few bits");
        seeds.extend([0, 9].map(|since| true_chunk(&span, since)));
    }
    for seed in &seeds {
        let chunk = Chunk::decode(Copying(seed)).expect("as a peer encodes it");
        let held = match chunk.since() {
            0 => &Entries::new(),
            _ => &setup().held,
        };
        let verified = chunk.verify(&setup().tree.root(), in_span(held, &chunk.span()));
        assert!(verified.is_ok(), "the part is true");
    }
    seeds.extend([1, 3, 4, 12].map(|headers| true_proof(headers).encode().to_vec()));
    fs::create_dir_all(folder).expect("the folder can be made");
    for seed in seeds {
        check(&seed);
        let name = &sha256(&[&seed]).to_string()[..12];
        fs::write(folder.join(name), seed).expect("it can be written");
    }
}

fn check(bytes: &[u8]) {
    check_chunk(bytes);
    check_proof(bytes);
}

fuzz_target!(
    init: if let Some(folder) = env::var_os("CHUNK_SEEDS") {
        write_seeds(Path::new(&folder));
    },
    |bytes: &[u8]| check(bytes)
);
