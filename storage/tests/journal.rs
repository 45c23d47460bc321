//! The vote journal against crashes, damage and mistakes of its operator.
#![allow(missing_docs, clippy::unwrap_used)]

use commonware_codec::Encode;
use quorate_crypto::{
    SecretKey,
    bls::{PartialSignature, Proof},
};
use quorate_storage::disk::{Disk, DiskFile, SystemDisk};
use quorate_storage::journal::{Journal, JournalError, Recovered};
use quorate_types::{
    Block, Certificate, ChainId, Digest, Epoch, Header, Height, Identity, Memo, Record, Silence,
    Subject, Transfer, ValidatorIndex, View, Vote, VoteKind,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// Bytes before the first frame.
const HEADER: usize = 52;
/// Bytes of a frame before its payload.
const FRAME: usize = 24;

fn chain() -> ChainId {
    ChainId(Digest([3; 32]))
}

fn vote(view: u64) -> Record {
    Record::Vote(Vote {
        subject: Subject {
            epoch: Epoch(0),
            view: View(view),
            kind: VoteKind::Notarize,
            payload: Digest([5; 32]),
        },
        signer: ValidatorIndex(1),
        signature: PartialSignature([7; 96]),
    })
}

fn certificate(view: u64) -> Record {
    Record::Certificate(Certificate {
        subject: Subject::nullify(Epoch(0), View(view)),
        proof: Proof::Threshold([8; 48]),
    })
}

fn block_paying(to: [u8; 32]) -> Record {
    block_with(to, Memo::NONE)
}

fn block_with(to: [u8; 32], memo: Memo) -> Record {
    let secret = SecretKey::from_bytes(&[1; 32]);
    let transfer = Transfer {
        chain_tag: chain().tag(),
        sender: secret.identity(),
        nonce: 0,
        to: Identity(to),
        amount: 1,
        fee: 1,
        memo,
    };
    let transactions = vec![transfer.sign(&chain(), &secret); 3];
    let header = Header {
        chain: chain(),
        epoch: Epoch(0),
        view: View(1),
        height: Height(1),
        parent: Digest::ZERO,
        parent_view: View(0),
        timestamp_ms: 1,
        executed_height: Height(0),
        state_root: Digest([9; 32]),
        body_root: Header::body_root_of(&transactions),
    };
    Record::Block(Arc::new(Block::new(header, transactions).unwrap()))
}

fn records(views: std::ops::Range<u64>) -> Vec<Record> {
    views
        .map(|view| match view % 3 {
            0 => certificate(view),
            1 => vote(view),
            _ => block_paying([view as u8; 32]),
        })
        .collect()
}

fn open(folder: &Path) -> (Journal, Recovered) {
    Journal::open(folder, chain()).unwrap()
}

/// Appends the records with one sync for each batch.
fn write(journal: &mut Journal, batches: &[&[Record]]) {
    for batch in batches {
        for record in *batch {
            journal.append(record).unwrap();
        }
        let () = journal.release(()).unwrap().into_inner();
    }
}

/// The bytes of a new journal to which the batches were released.
fn journal_of(batches: &[&[Record]]) -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    write(&mut open(folder.path()).0, batches);
    fs::read(segment(folder.path())).unwrap()
}

/// The only segment in a folder.
fn segment(folder: &Path) -> PathBuf {
    let segments = segments(folder);
    assert_eq!(segments.len(), 1, "{segments:?}");
    folder.join(&segments[0])
}

fn segments(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "LOCK")
        .collect();
    names.sort();
    names
}

/// A folder whose journal has this content.
struct Folder(TempDir);

impl Folder {
    fn new(content: &[u8]) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("journal-0000000001.log"), content).unwrap();
        Self(folder)
    }

    fn set(&self, content: &[u8]) {
        fs::write(segment(self.0.path()), content).unwrap();
    }

    fn open(&self) -> Result<Recovered, JournalError> {
        Journal::open(self.0.path(), chain()).map(|(_, recovered)| recovered)
    }
}

fn frame_bytes(record: &Record) -> usize {
    FRAME + record.encode().len()
}

#[test]
fn what_was_released_is_there_after_reopening() {
    let folder = TempDir::new().unwrap();
    let all = records(0..9);
    let (mut journal, recovered) = open(folder.path());
    assert!(recovered.created && recovered.records.is_empty());
    write(&mut journal, &[&all[..4], &all[4..5], &[], &all[5..]]);
    let bytes = journal.bytes();
    drop(journal);
    let (journal, recovered) = open(folder.path());
    assert_eq!(recovered.records, all);
    assert_eq!(recovered.truncated_bytes, 0);
    assert!(!recovered.created);
    assert_eq!(journal.bytes(), bytes);
    assert_eq!(fs::metadata(segment(folder.path())).unwrap().len(), bytes);
}

#[test]
fn what_was_not_released_is_not_there() {
    let folder = TempDir::new().unwrap();
    let (mut journal, _) = open(folder.path());
    write(&mut journal, &[&records(0..2)]);
    journal.append(&vote(9)).unwrap();
    drop(journal);
    assert_eq!(open(folder.path()).1.records, records(0..2));
}

#[test]
fn the_journal_goes_on_after_each_reopening() {
    let folder = TempDir::new().unwrap();
    let all = records(0..6);
    for record in &all {
        write(&mut open(folder.path()).0, &[std::slice::from_ref(record)]);
    }
    assert_eq!(open(folder.path()).1.records, all);
    // The frames of all runs are one sequence: damage in the first run's is still noticed.
    let mut content = fs::read(segment(folder.path())).unwrap();
    content[HEADER + FRAME] ^= 1;
    let damaged = Folder::new(&content).open();
    assert!(matches!(damaged, Err(JournalError::Damaged { .. })));
}

#[test]
fn a_torn_tail_is_cut_off_wherever_it_was_torn() {
    let former = records(0..3);
    let last = vote(9);
    let whole = journal_of(&[&former, std::slice::from_ref(&last)]);
    let start = whole.len() - frame_bytes(&last);
    let folder = Folder::new(&whole);
    assert_eq!(folder.open().unwrap().records.len(), 4);
    for cut in start..whole.len() {
        folder.set(&whole[..cut]);
        let recovered = folder.open().unwrap();
        assert_eq!(recovered.records, former, "cut at {cut}");
        assert_eq!(recovered.truncated_bytes, (cut - start) as u64);
        for fill in [0x00, 0xa5] {
            let mut torn = whole.clone();
            torn[cut..].fill(fill);
            if torn == whole {
                continue;
            }
            folder.set(&torn);
            let recovered = folder.open().unwrap();
            assert_eq!(recovered.records, former, "filled from {cut}");
            assert_eq!(recovered.truncated_bytes, (whole.len() - start) as u64);
            let left = fs::metadata(segment(folder.0.path())).unwrap().len();
            assert_eq!(left, start as u64);
        }
    }
}

#[test]
fn records_written_over_a_torn_tail_are_read_back() {
    let former = records(0..3);
    let whole = journal_of(&[&former, &[vote(9)]]);
    let folder = Folder::new(&whole[..whole.len() - 1]);
    let (mut journal, recovered) = open(folder.0.path());
    assert!(recovered.truncated_bytes > 0);
    write(&mut journal, &[&[certificate(10)], &[vote(11)]]);
    drop(journal);
    let mut expected = former;
    expected.extend([certificate(10), vote(11)]);
    let recovered = folder.open().unwrap();
    assert_eq!(recovered.records, expected);
    assert_eq!(recovered.truncated_bytes, 0);
}

#[test]
fn damage_to_any_acknowledged_byte_refuses_to_open() {
    let all = records(0..4);
    let batches: Vec<&[Record]> = all.chunks(1).collect();
    let mut content = journal_of(&batches);
    let folder = Folder::new(&content);
    let last = content.len() - frame_bytes(&all[3]);
    for at in HEADER..last {
        let bit = 1 << (at % 8);
        content[at] ^= bit;
        folder.set(&content);
        let opened = folder.open();
        assert!(
            matches!(opened, Err(JournalError::Damaged { .. })),
            "byte {at}: {opened:?}"
        );
        // Nothing may be lost by the attempt.
        assert_eq!(fs::read(segment(folder.0.path())).unwrap(), content);
        content[at] ^= bit;
    }
    folder.set(&content);
    assert_eq!(folder.open().unwrap().records, all);
}

#[test]
fn a_missing_acknowledged_frame_refuses_to_open() {
    let all = [vote(1), vote(2), vote(3), vote(4)];
    let batches: Vec<&[Record]> = all.chunks(1).collect();
    let whole = journal_of(&batches);
    let size = frame_bytes(&all[0]);
    let mut without_second = whole[..HEADER + size].to_vec();
    without_second.extend_from_slice(&whole[HEADER + 2 * size..]);
    let opened = Folder::new(&without_second).open();
    assert!(
        matches!(opened, Err(JournalError::Damaged { offset, .. }) if offset == (HEADER + size) as u64)
    );
    let mut twice = whole[..HEADER + size].to_vec();
    twice.extend_from_slice(&whole[HEADER..]);
    let opened = Folder::new(&twice).open();
    assert!(matches!(opened, Err(JournalError::Damaged { .. })));
}

#[test]
fn a_hole_in_the_last_batch_is_a_torn_write() {
    let former = records(0..3);
    let batch = [vote(10), vote(11), vote(12), vote(13)];
    let whole = journal_of(&[&former[..1], &former[1..], &batch]);
    let size = frame_bytes(&batch[0]);
    let start = whole.len() - 4 * size;
    for hole in 0..3 {
        let mut torn = whole.clone();
        torn[start + hole * size..start + (hole + 1) * size].fill(0);
        let recovered = Folder::new(&torn).open().unwrap();
        let mut kept = former.clone();
        kept.extend_from_slice(&batch[..hole]);
        assert_eq!(recovered.records, kept);
        assert_eq!(recovered.truncated_bytes, ((4 - hole) * size) as u64);
    }
}

#[test]
fn a_torn_first_batch_after_an_empty_rewrite_is_cut_off() {
    let folder = TempDir::new().unwrap();
    let (mut journal, _) = open(folder.path());
    write(&mut journal, &[&records(0..5)]);
    journal.rewrite(&[]).unwrap();
    write(&mut journal, &[&[vote(10), vote(11)]]);
    drop(journal);
    let file = segment(folder.path());
    let mut torn = fs::read(&file).unwrap();
    torn[HEADER..HEADER + FRAME].fill(0);
    fs::write(&file, torn).unwrap();
    assert!(open(folder.path()).1.records.is_empty());
}

#[test]
fn a_batch_after_the_hole_proves_that_it_was_acknowledged() {
    let batch = [vote(10), vote(11), vote(12), vote(13)];
    let mut content = journal_of(&[&batch, &[vote(14)]]);
    let size = frame_bytes(&batch[0]);
    content[HEADER + 2 * size..HEADER + 3 * size].fill(0);
    let opened = Folder::new(&content).open();
    assert!(
        matches!(opened, Err(JournalError::Damaged { offset, .. }) if offset == (HEADER + 2 * size) as u64)
    );
}

/// Anybody chooses a transaction's memo, so it can spell a frame with a record that follows the missing ones. The
/// file's salt is nobody's choice.
#[test]
fn a_frame_spelled_within_a_transaction_does_not_make_a_torn_write_look_acknowledged() {
    let record = Record::Silence(Silence::Unknown).encode();
    let mut spelled = Vec::new();
    spelled.extend_from_slice(&u32::try_from(record.len()).unwrap().to_be_bytes());
    spelled.extend_from_slice(&[1_000_u64.to_be_bytes(); 2].concat());
    let checksum = crc32fast::hash(&[spelled.as_slice(), &record].concat());
    spelled.extend_from_slice(&checksum.to_be_bytes());
    spelled.extend_from_slice(&record);
    let block = block_with([7; 32], Memo::new(spelled).unwrap());
    let mut torn = journal_of(&[&[vote(1)], &[block]]);
    torn.truncate(torn.len() - 1);
    let recovered = Folder::new(&torn).open().unwrap();
    assert_eq!(recovered.records, [vote(1)]);
}

/// Journals of version 1 have no salt. They are read and appended to, and the next rewrite makes them new ones.
#[test]
fn a_journal_without_a_salt_is_read_and_gets_one() {
    let mut old = Vec::new();
    old.extend_from_slice(b"QUORJRNL");
    old.extend_from_slice(&1_u32.to_be_bytes());
    old.extend_from_slice(&chain().0.0);
    old.extend_from_slice(&crc32fast::hash(&old).to_be_bytes());
    for (sequence, record) in records(0..3).iter().enumerate() {
        let payload = record.encode();
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(&(sequence as u64 + 1).to_be_bytes());
        frame.extend_from_slice(&(sequence as u64).to_be_bytes());
        let checksum = crc32fast::hash(&[frame.as_slice(), &payload].concat());
        old.extend_from_slice(&frame);
        old.extend_from_slice(&checksum.to_be_bytes());
        old.extend_from_slice(&payload);
    }
    let folder = Folder::new(&old);
    let (mut journal, recovered) = open(folder.0.path());
    assert_eq!(recovered.records, records(0..3));
    write(&mut journal, &[&records(3..4)]);
    drop(journal);
    let (mut journal, recovered) = open(folder.0.path());
    assert_eq!(recovered.records, records(0..4));
    journal.rewrite(&records(2..4)).unwrap();
    drop(journal);
    assert_eq!(
        fs::read(segment(folder.0.path())).unwrap()[8..12],
        [0, 0, 0, 2]
    );
    assert_eq!(folder.open().unwrap().records, records(2..4));
}

#[test]
fn each_file_has_another_salt() {
    let salt = |content: Vec<u8>| content[44..48].to_vec();
    let batches: &[&[Record]] = &[&[vote(1)]];
    let salts: std::collections::BTreeSet<_> = (0..8).map(|_| salt(journal_of(batches))).collect();
    assert!(salts.len() > 6, "{salts:?}");
}

#[test]
fn a_damaged_or_foreign_header_is_refused() {
    let whole = journal_of(&[&records(0..2)]);
    for at in 0..HEADER {
        let mut content = whole.clone();
        content[at] ^= 1;
        let folder = Folder::new(&content);
        let checked = Journal::check_folder(folder.0.path(), chain());
        for error in [checked.err(), folder.open().err()] {
            match error {
                // Magic bytes, version and chain; then the salt and the checksum.
                Some(JournalError::Foreign { .. }) => assert!(at < 44, "{at}"),
                Some(JournalError::Damaged { offset: 0, .. }) => assert!(at >= 44, "{at}"),
                other => panic!("{at}: {other:?}"),
            }
        }
    }
    for length in 0..HEADER {
        let folder = Folder::new(&whole[..length]);
        let checked = Journal::check_folder(folder.0.path(), chain());
        for error in [checked.err(), folder.open().err()] {
            assert!(matches!(
                error,
                Some(JournalError::Damaged { offset: 0, .. })
            ));
        }
    }
    let folder = Folder::new(&whole);
    Journal::check_folder(folder.0.path(), chain()).unwrap();
}

#[test]
fn a_journal_that_was_deleted_promises_nothing() {
    let folder = Folder::new(&journal_of(&[&records(0..2)]));
    let (mut journal, _) = Journal::open(folder.0.path(), chain()).unwrap();
    journal.append(&vote(7)).unwrap();
    let _ = journal.release(()).unwrap();
    std::fs::remove_dir_all(folder.0.path()).unwrap();
    journal.append(&vote(8)).unwrap();
    let error = journal.release(()).err().unwrap().to_string();
    assert!(
        error.contains("it was deleted while it was in use"),
        "{error}"
    );
    assert!(matches!(
        journal.append(&vote(9)),
        Err(JournalError::Poisoned { .. })
    ));
}

#[test]
fn the_journal_of_another_chain_is_refused() {
    let folder = Folder::new(&journal_of(&[&records(0..2)]));
    let other = ChainId(Digest([4; 32]));
    let error = Journal::open(folder.0.path(), other).err().unwrap();
    assert!(matches!(&error, JournalError::Foreign { .. }));
    let message = error.to_string();
    assert!(message.contains("chain"), "{message}");
    assert!(
        message.contains(folder.0.path().to_str().unwrap()),
        "{message}"
    );
    assert_eq!(folder.open().unwrap().records, records(0..2));
}

#[test]
fn a_folder_in_use_is_refused_until_it_is_free() {
    let folder = TempDir::new().unwrap();
    let (mut journal, _) = open(folder.path());
    let second = Journal::open(folder.path(), chain()).err();
    assert!(matches!(second, Some(JournalError::InUse { .. })));
    // The refused attempt did the first one no harm.
    write(&mut journal, &[&records(0..2)]);
    drop(journal);
    assert_eq!(open(folder.path()).1.records, records(0..2));
}

#[test]
fn a_rewrite_keeps_exactly_the_given_records() {
    let folder = TempDir::new().unwrap();
    let (mut journal, _) = open(folder.path());
    write(&mut journal, &[&records(0..20)]);
    assert!(!journal.is_rewritten());
    let before = journal.bytes();
    journal.append(&vote(99)).unwrap();
    journal.rewrite(&records(15..20)).unwrap();
    assert!(journal.bytes() < before);
    assert!(journal.is_rewritten());
    let file = segment(folder.path());
    assert_eq!(fs::metadata(&file).unwrap().len(), journal.bytes());
    drop(journal);
    let (mut journal, recovered) = open(folder.path());
    assert!(journal.is_rewritten());
    assert_eq!(recovered.records, records(15..20));
    write(&mut journal, &[&records(20..22)]);
    drop(journal);
    let (mut journal, recovered) = open(folder.path());
    assert_eq!(recovered.records, records(15..22));
    journal.rewrite(&[]).unwrap();
    write(&mut journal, &[&records(30..31)]);
    drop(journal);
    assert_eq!(open(folder.path()).1.records, records(30..31));
}

#[test]
fn damage_to_rewritten_records_refuses_to_open() {
    let folder = TempDir::new().unwrap();
    let (mut journal, _) = open(folder.path());
    write(&mut journal, &[&records(0..3)]);
    journal.rewrite(&records(3..7)).unwrap();
    drop(journal);
    let file = segment(folder.path());
    let whole = fs::read(&file).unwrap();
    let mut start = HEADER;
    for record in &records(3..6) {
        let mut content = whole.clone();
        content[start + FRAME] ^= 1;
        fs::write(&file, &content).unwrap();
        let opened = Journal::open(folder.path(), chain()).map(|_| ());
        assert!(
            matches!(opened, Err(JournalError::Damaged { offset, .. }) if offset == start as u64)
        );
        start += frame_bytes(record);
    }
}

#[test]
fn the_leavings_of_a_crash_in_a_rewrite_are_removed() {
    let folder = TempDir::new().unwrap();
    let (mut journal, _) = open(folder.path());
    write(&mut journal, &[&records(0..3)]);
    drop(journal);
    let old = segment(folder.path());
    let old_content = fs::read(&old).unwrap();

    // Before the new file had its name.
    fs::write(
        folder.path().join("journal.tmp"),
        &old_content[..HEADER + 9],
    )
    .unwrap();
    let (mut journal, recovered) = open(folder.path());
    assert_eq!(recovered.records, records(0..3));
    assert_eq!(segments(folder.path()).len(), 1);

    // Before the old file was removed.
    journal.rewrite(&records(2..5)).unwrap();
    drop(journal);
    let new = segment(folder.path());
    assert_ne!(new, old);
    fs::write(&old, &old_content).unwrap();
    let (mut journal, recovered) = open(folder.path());
    assert_eq!(recovered.records, records(2..5));
    assert_eq!(segment(folder.path()), new);
    write(&mut journal, &[&records(5..6)]);
    drop(journal);
    assert_eq!(open(folder.path()).1.records, records(2..6));
}

#[test]
fn a_crash_while_the_journal_was_made_leaves_none() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("journal.tmp"), b"QUOR").unwrap();
    let (_journal, recovered) = open(folder.path());
    assert!(recovered.created);
}

#[test]
fn after_a_failed_write_nothing_is_written_or_released() {
    let parent = TempDir::new().unwrap();
    let folder = parent.path().join("votes");
    let (mut journal, _) = open(&folder);
    write(&mut journal, &[&records(0..2)]);
    fs::remove_dir_all(&folder).unwrap();
    let failed = journal.rewrite(&records(0..2));
    assert!(matches!(failed, Err(JournalError::Io { .. })));
    let poisoned = |result: Result<(), JournalError>| {
        assert!(matches!(result, Err(JournalError::Poisoned { .. })));
    };
    poisoned(journal.append(&vote(1)));
    poisoned(journal.release(()).map(|durable| durable.into_inner()));
    poisoned(journal.rewrite(&[]));
}

/// Only after a sync may a vote leave the node: nobody but the journal says that there was one.
#[test]
fn only_the_journal_marks_values_as_durable() {
    let needle = ["after_sync", "("].concat();
    let root = Path::new("..");
    let (mut found, mut seen) = (Vec::new(), 0);
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") {
                seen += 1;
                if fs::read_to_string(&path).unwrap().contains(&needle) {
                    found.push(path.strip_prefix(root).unwrap().to_path_buf());
                }
            }
        }
    }
    found.sort();
    assert!(seen > 50, "the sources are not where they were");
    let allowed = ["storage/src/journal.rs", "types/src/durable.rs"];
    assert_eq!(found, allowed.map(PathBuf::from));
}

/// Damage of any kind anywhere: the journal does not open, or it holds what was promised. Only damage
/// that reaches the very last write cannot be told from one that was cut short there.
#[test]
fn random_damage_never_makes_a_promised_record_disappear_unnoticed() {
    let cases = match std::env::var_os("QUORATE_NIGHTLY") {
        Some(_) => 5_000,
        None => 500,
    };
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let all = records(0..40);
    let (mut refused, mut whole, mut shorter) = (0, 0, 0);
    for case in 0..cases {
        // Batches of different lengths; now and then a journal that begins with a rewrite.
        let sizes = [1, 3, 7];
        let batches: Vec<&[Record]> = all.chunks(sizes[case % sizes.len()]).collect();
        let content = journal_of(&batches);
        let last: usize = batches.last().unwrap().iter().map(frame_bytes).sum();
        let last_write = content.len() - last;
        let mut damaged = content.clone();
        let at = rng.random_range(0..damaged.len());
        let end = (at + rng.random_range(1..600)).min(damaged.len());
        match case % 4 {
            0 => damaged[at] ^= 1 << rng.random_range(0..8),
            1 => rng.fill(&mut damaged[at..end]),
            2 => damaged[at..end].fill(0),
            _ => drop(damaged.drain(at..end)),
        }
        let folder = Folder::new(&damaged);
        match folder.open() {
            Err(_) => refused += 1,
            Ok(recovered) if recovered.records == all => whole += 1,
            Ok(recovered) => {
                shorter += 1;
                let kept = recovered.records.len();
                let reach = if case % 4 == 0 { at + 1 } else { end };
                assert!(reach > last_write, "case {case}: {kept} of {}", all.len());
                let untouched: usize = all[..kept + 1].iter().map(frame_bytes).sum();
                assert!(
                    HEADER + untouched > at,
                    "case {case}: more is lost than was damaged"
                );
                assert_eq!(recovered.records, all[..kept], "case {case}");
            }
        }
    }
    eprintln!("{refused} refused, {whole} whole, {shorter} without the last write");
    assert!(refused > 0 && shorter > 0);
}

/// A disk whose operations fail from some point on, once or for good.
struct Failing {
    inner: SystemDisk,
    left: Arc<AtomicI64>,
    heals: bool,
}

struct FailingFile {
    inner: Box<dyn DiskFile>,
    left: Arc<AtomicI64>,
    heals: bool,
}

fn fail_in_turn(left: &AtomicI64, heals: bool) -> std::io::Result<()> {
    match left.fetch_sub(1, Ordering::Relaxed) {
        1 => Err(std::io::Error::other("input/output error")),
        count if count < 1 && !heals => Err(std::io::Error::other("input/output error")),
        _ => Ok(()),
    }
}

impl Disk for Failing {
    fn make_folder(&self, path: &Path) -> std::io::Result<()> {
        self.inner.make_folder(path)
    }

    fn lock(&self, path: &Path) -> std::io::Result<Box<dyn Send>> {
        self.inner.lock(path)
    }

    fn names(&self, folder: &Path) -> std::io::Result<Vec<String>> {
        self.inner.names(folder)
    }

    fn read(&self, path: &Path, max_bytes: u64) -> std::io::Result<Vec<u8>> {
        self.inner.read(path, max_bytes)
    }

    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> std::io::Result<Vec<u8>> {
        SystemDisk.read_at(path, offset, bytes)
    }

    fn open(&self, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(FailingFile {
            inner: self.inner.open(path)?,
            left: self.left.clone(),
            heals: self.heals,
        }))
    }

    fn create(&self, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
        fail_in_turn(&self.left, self.heals)?;
        Ok(Box::new(FailingFile {
            inner: self.inner.create(path)?,
            left: self.left.clone(),
            heals: self.heals,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        fail_in_turn(&self.left, self.heals)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        self.inner.remove(path)
    }

    fn sync_folder(&self, folder: &Path) -> std::io::Result<()> {
        fail_in_turn(&self.left, self.heals)?;
        self.inner.sync_folder(folder)
    }
}

impl DiskFile for FailingFile {
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        fail_in_turn(&self.left, self.heals)?;
        self.inner.append(bytes)
    }

    fn cut(&mut self, bytes: u64) -> std::io::Result<()> {
        fail_in_turn(&self.left, self.heals)?;
        self.inner.cut(bytes)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        fail_in_turn(&self.left, self.heals)?;
        self.inner.sync()
    }
}

/// Whichever operation fails, and though the disk works again afterwards: nothing is released any
/// more, and what was released is there when the journal is opened again.
#[test]
fn after_any_failed_operation_nothing_more_is_released_and_nothing_released_is_lost() {
    let all = records(0..12);
    let mut failures = 0;
    for heals in [true, false] {
        for fails_at in 1..60 {
            let folder = TempDir::new().unwrap();
            let left = Arc::new(AtomicI64::new(fails_at));
            let disk = Failing {
                inner: SystemDisk,
                left,
                heals,
            };
            let mut released = Vec::new();
            if let Ok((mut journal, _)) = Journal::open_on(Arc::new(disk), folder.path(), chain()) {
                let mut broken = false;
                for (number, record) in all.iter().enumerate() {
                    let kept = journal
                        .append(record)
                        .and_then(|()| journal.release(()).map(drop));
                    assert!(!(broken && kept.is_ok()), "a release after a failure");
                    match kept {
                        Ok(()) => released.push(record.clone()),
                        Err(_) => broken = true,
                    }
                    if number == 5 && !broken {
                        broken = journal.rewrite(&released).is_err();
                    }
                }
                failures += usize::from(broken);
            }
            let (_journal, recovered) = open(folder.path());
            let kept = recovered.records;
            assert!(kept.len() >= released.len(), "{fails_at}: {}", kept.len());
            assert_eq!(kept[..released.len()], released, "{fails_at}");
            // One more at most: it was written, and its release was refused.
            assert!(kept.len() <= released.len() + 1);
        }
    }
    assert!(failures > 40, "{failures}");
}
