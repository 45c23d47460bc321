//! The log of bundles: what is durable, what a crash may leave, what is forgotten.
#![allow(missing_docs, clippy::unwrap_used)]

use quorate_crypto::{SecretKey, sha256};
use quorate_storage::{
    bundles::{BundleLog, BundleLogError, BundleReader, Entry, FoundBundles},
    disk::SystemDisk,
};
use quorate_types::{Bundle, ChainId, Digest, Height, Identity, OrderedBundle};
use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;

const PLENTY: u64 = 1 << 30;

fn chain() -> ChainId {
    ChainId(sha256(&[b"bundles"]))
}

fn bundle(number: u64) -> OrderedBundle {
    let bundle = Bundle::of([number.to_be_bytes().to_vec(), vec![7; 1_000]]).unwrap();
    let author = SecretKey::from_bytes(&[1; 32]);
    let transaction = bundle.reference().order(&chain(), &author, number);
    OrderedBundle::new(transaction, bundle).unwrap()
}

fn stored(reader: &BundleReader) -> Vec<(Digest, Identity, u64)> {
    let entries = reader.entries().into_iter();
    entries.map(|e| (e.digest, e.author, e.number)).collect()
}

#[test]
fn the_same_payloads_are_stored_for_each_author_and_number() {
    let folder = TempDir::new().unwrap();
    let payloads = bundle(0).bundle().clone();
    let by = |seed, number| {
        let author = SecretKey::from_bytes(&[seed; 32]);
        let transaction = payloads.reference().order(&chain(), &author, number);
        OrderedBundle::new(transaction, payloads.clone()).unwrap()
    };
    let bundles = [by(1, 0), by(2, 5), by(1, 1)];
    let (mut log, _) = open(folder.path(), PLENTY);
    bundles
        .iter()
        .for_each(|bundle| log.append(bundle).unwrap());
    log.sync().unwrap();
    drop(log);
    let (log, _) = open(folder.path(), PLENTY);
    let reader = log.reader();
    let entries = reader.entries();
    let read: Vec<_> = entries
        .iter()
        .map(|e| reader.of(e).unwrap().unwrap())
        .collect();
    assert_eq!(read, bundles);
}

fn open(folder: &Path, keep: u64) -> (BundleLog, FoundBundles) {
    BundleLog::open(Arc::new(SystemDisk), folder, chain(), keep).unwrap()
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_log = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "log");
    let mut paths: Vec<_> = paths.filter(is_log).collect();
    paths.sort();
    paths
}

#[test]
fn what_was_synced_is_there_and_what_was_not_is_not_promised() {
    let folder = TempDir::new().unwrap();
    let (mut log, found) = open(folder.path(), PLENTY);
    assert_eq!((found.bundles, found.truncated_bytes), (0, 0));
    let reader = log.reader();
    for number in 0..10 {
        log.append(&bundle(number)).unwrap();
    }
    let digest = |number| bundle(number).reference().digest;
    assert!(!reader.holds(&digest(3)), "not before the sync");
    log.sync().unwrap();
    assert_eq!(reader.get(&digest(3)).unwrap(), Some(bundle(3)));
    assert_eq!(reader.get(&digest(10)).unwrap(), None);
    let author = bundle(0).transaction().transfer().sender;
    let entries: Vec<_> = (0..10).map(|n| (digest(n), author, n)).collect();
    assert_eq!(stored(&reader), entries);
    drop(log);
    let (log, found) = open(folder.path(), PLENTY);
    assert_eq!((found.bundles, found.truncated_bytes), (10, 0));
    assert_eq!(log.reader().get(&digest(9)).unwrap(), Some(bundle(9)));
    assert_eq!(stored(&log.reader()), entries);
}

#[test]
fn a_torn_end_is_cut_off_wherever_it_was_torn() {
    let folder = TempDir::new().unwrap();
    let (mut log, _) = open(folder.path(), PLENTY);
    log.append(&bundle(0)).unwrap();
    log.sync().unwrap();
    drop(log);
    let path = segments(folder.path()).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    for torn in [1, 7, 8, 9, 200, 1_100] {
        let (mut log, _) = open(folder.path(), PLENTY);
        log.append(&bundle(1)).unwrap();
        log.sync().unwrap();
        drop(log);
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len((whole.len() + torn) as u64)
            .unwrap();
        let (log, found) = open(folder.path(), PLENTY);
        assert_eq!((found.bundles, found.truncated_bytes), (1, torn as u64));
        assert!(log.reader().holds(&bundle(0).reference().digest));
        drop(log);
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    // Bytes in the middle of the last record.
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&whole[48..]).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 500;
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (_, found) = open(folder.path(), PLENTY);
    assert_eq!(found.truncated_bytes, (whole.len() - 48) as u64);
}

#[test]
fn segments_are_found_by_their_index_and_without_it() {
    let folder = TempDir::new().unwrap();
    let (mut log, _) = open(folder.path(), PLENTY);
    log.end_segments_at(3_000);
    for number in 0..12 {
        log.append(&bundle(number)).unwrap();
        log.sync().unwrap();
    }
    let before = stored(&log.reader());
    drop(log);
    let first = segments(folder.path()).remove(0);
    let index = first.with_extension("index");
    let whole = fs::read(&index).unwrap();
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    for content in [None, Some(&whole[..30]), Some(&damaged), Some(&whole)] {
        match content {
            Some(content) => fs::write(&index, content).unwrap(),
            None => fs::remove_file(&index).unwrap(),
        }
        let (log, _) = open(folder.path(), PLENTY);
        assert_eq!(stored(&log.reader()), before);
        for number in 0..12 {
            let digest = bundle(number).reference().digest;
            assert_eq!(log.reader().get(&digest).unwrap(), Some(bundle(number)));
        }
        drop(log);
        assert_eq!(fs::read(&index).unwrap(), whole, "it is made again");
    }
    // What its index names must be there.
    let content = fs::read(&first).unwrap();
    fs::write(&first, &content[..content.len() - 1]).unwrap();
    let opened = BundleLog::open(Arc::new(SystemDisk), folder.path(), chain(), PLENTY);
    assert!(matches!(opened, Err(BundleLogError::Damaged { .. })));
}

#[test]
fn what_is_complete_is_remembered_unless_a_segment_is_missing() {
    let folder = TempDir::new().unwrap();
    let (mut log, _) = open(folder.path(), PLENTY);
    assert_eq!(log.complete_below(), Height(0));
    log.end_segments_at(3_000);
    for number in 0..12 {
        log.append(&bundle(number)).unwrap();
        log.sync().unwrap();
    }
    log.note_complete(Height(7)).unwrap();
    drop(log);
    let (log, _) = open(folder.path(), PLENTY);
    assert_eq!(log.complete_below(), Height(7));
    drop(log);
    fs::remove_file(&segments(folder.path())[1]).unwrap();
    let (log, _) = open(folder.path(), PLENTY);
    assert_eq!(log.complete_below(), Height(0));
}

#[test]
fn old_segments_go_and_what_is_in_a_newer_one_stays() {
    let folder = TempDir::new().unwrap();
    let (mut log, _) = open(folder.path(), 8_000);
    log.end_segments_at(3_000);
    let reader = log.reader();
    for number in [0, 1, 2, 0, 4, 5, 0, 7, 8, 9, 10, 11] {
        log.append(&bundle(number)).unwrap();
        log.sync().unwrap();
    }
    assert!(reader.bytes() <= 8_000, "{}", reader.bytes());
    let on_disk: u64 = segments(folder.path())
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert_eq!(on_disk, reader.bytes());
    let holds = |number| reader.holds(&bundle(number).reference().digest);
    assert!(!holds(1) && !holds(2) && holds(11) && holds(10));
    assert_eq!(reader.get(&bundle(1).reference().digest).unwrap(), None);
    for Entry { digest, .. } in reader.entries() {
        assert!(reader.get(&digest).unwrap().is_some());
    }
}

#[test]
fn a_payload_that_is_stored_twice_survives_its_first_copy() {
    let folder = TempDir::new().unwrap();
    let (mut log, _) = open(folder.path(), 5_000);
    log.end_segments_at(2_000);
    for number in [0, 1, 0, 2, 3] {
        log.append(&bundle(number)).unwrap();
        log.sync().unwrap();
    }
    let digest = bundle(0).reference().digest;
    assert_eq!(log.reader().get(&digest).unwrap(), Some(bundle(0)));
}

#[test]
fn another_chains_log_and_a_second_process_are_refused() {
    let folder = TempDir::new().unwrap();
    let (log, _) = open(folder.path(), PLENTY);
    let again = BundleLog::open(Arc::new(SystemDisk), folder.path(), chain(), PLENTY);
    assert!(matches!(again, Err(BundleLogError::InUse { .. })));
    drop(log);
    let other = ChainId(sha256(&[b"another"]));
    let foreign = BundleLog::open(Arc::new(SystemDisk), folder.path(), other, PLENTY);
    assert!(matches!(foreign, Err(BundleLogError::Foreign { .. })));
}
