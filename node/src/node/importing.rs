//! Taking over a snapshot from a file, on a stopped validator.

use super::{
    durable::{
        HeldJournal, KeptStore, lock_directory, lock_vote_key, open_durable, own_data_directory,
    },
    ending::is_full_disk,
    following::open_followers_store,
    syncing::{verify, verify_with},
};
use crate::{
    config::{AnyConfig, NodeConfig},
    moved,
    snapshot_file::SnapshotReader,
};
use anyhow::{Context as _, bail, ensure};
use quorate_machine::{registry, sync::Validators};
use quorate_storage::{
    store::{ChunkError, Store, adopt_handovers, next_of_snapshot},
    tree::Chunk,
};
use quorate_types::{
    Block, Committees, Epoch, Handover, Height, SnapshotProof, SnapshotSubject, Span, ValidatorSet,
};
use std::{fs::File, path::Path, sync::Arc};

/// Parts that are written at once.
const PARTS_PER_SAVE: u64 = 16;

/// What an import does, and how much of that is done: 0 to 1.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// Verifies the file.
    Checks(f64),
    /// Opens the database, or makes a new one.
    Opens,
    /// Takes the state over.
    Takes(f64),
}

/// What was imported.
pub(crate) struct Imported {
    pub(crate) height: Height,
    /// Parts of the state that were written.
    pub(crate) parts: u64,
    pub(crate) accounts: u64,
}

/// Replaces a node's state by that of a file, verified with the chain's keys. An interrupted
/// import continues by the network or by another import.
///
/// # Errors
///
/// If the node runs, the file is not a snapshot of its chain above its newest block, or
/// anything in it does not verify. What was verified stays.
pub(crate) fn import_snapshot(
    config: &AnyConfig,
    file: &Path,
    progress: impl FnMut(Step),
) -> anyhow::Result<Imported> {
    import(config, file, progress).map_err(|error| match is_full_disk(&error) {
        true => error.context("the disk is full: make room, and import again"),
        false => error,
    })
}

fn import(
    config: &AnyConfig,
    file: &Path,
    mut progress: impl FnMut(Step),
) -> anyhow::Result<Imported> {
    let node = config.node();
    if let Some(validator) = config.validator() {
        moved::check(&node.data_dir, &validator.vote_file)
            .with_context(|| node.path.display().to_string())?;
    }
    let shown = file.display();
    let refused = || format!("{shown} is refused");
    // Before anything is changed: a file that is not whole must not cost the state that is there.
    File::open(file).with_context(|| format!("cannot read {shown}"))?;
    let checked = check(node, file, &mut progress).with_context(refused)?;
    let subject = checked.subject;
    let mut reader = SnapshotReader::open(file).with_context(refused)?;
    reader.skip(checked.records).with_context(refused)?;
    own_data_directory(&node.data_dir)?;
    let _lock = lock_directory(&node.data_dir).context("stop the node first")?;
    let validator = config.validator();
    let _key = validator
        .map(|validator| lock_vote_key(&validator.vote_file))
        .transpose()?;
    progress(Step::Opens);
    let store = match validator {
        Some(validator) => {
            let new = (&KeptStore::default(), &HeldJournal::default());
            open_durable(validator, validator.place, new)?.store
        }
        None => open_followers_store(node, &KeptStore::default())?.0,
    };
    let tip = store.tip().height;
    ensure!(
        subject.height > tip,
        "{shown} has the state after block {}, and this node has block {tip} already",
        subject.height
    );
    let (mut next, mut begun) = (None, None);
    if let Some(known) = registry::known_validators(&node.genesis, &store)? {
        begun = Some(known.begun);
        let news = proven(node, known, &checked.handovers, &checked.proof).with_context(refused)?;
        store.take_handovers(&news.0)?;
        next = news.1;
    }
    store.begin_sync()?;
    if let Some(begun) = begun {
        store.forget_coming_sets(begun)?;
    }
    let (parts, accounts) = take_parts(&store, &mut reader, &subject, &mut progress)
        .with_context(|| format!("{shown} cannot be imported"))?;
    store
        .finish_sync(Arc::new(checked.block), None, subject.root, next.as_ref())
        .context("the imported state cannot be completed")?;
    Ok(Imported {
        height: subject.height,
        parts,
        accounts,
    })
}

/// What a file holds beside the parts of the state.
struct Checked {
    handovers: Vec<Handover>,
    proof: SnapshotProof,
    subject: SnapshotSubject,
    block: Block,
    /// The records before the parts.
    records: usize,
}

/// Verifies the whole file, as far as that takes no database.
fn check(
    config: &NodeConfig,
    file: &Path,
    progress: &mut impl FnMut(Step),
) -> anyhow::Result<Checked> {
    let mut reader = SnapshotReader::open(file)?;
    let count: u32 = reader
        .next("the number of changes of the validators")?
        .context("it is empty")?;
    let mut handovers = Vec::new();
    for _ in 0..count {
        let handover = reader.next("a change of the validators")?;
        handovers.push(handover.context("it is damaged: it ends too early; copy it again")?);
    }
    let proof: SnapshotProof = reader.next("what certifies it")?.context("it is empty")?;
    let subject = of_this_chain(config, &proof)?;
    if config.genesis.registry.is_none() {
        ensure!(verify(config)(&proof.finalization), UNSIGNED);
    } else {
        let known = Validators {
            committees: Committees::trusting(ValidatorSet::of_genesis(&config.genesis)?)?,
            epoch_length: config.genesis.epoch_blocks,
            begun: Epoch(0),
        };
        proven(config, known, &handovers, &proof)?;
    }
    let block: Block = reader.next("its block")?.context("it has no block")?;
    ensure!(
        block.id() == subject.id,
        "it is damaged: its block is not the certified one; copy it again"
    );
    check_parts(&mut reader, &subject, progress)?;
    Ok(Checked {
        records: 3 + handovers.len(),
        handovers,
        proof,
        subject,
        block,
    })
}

const UNSIGNED: &str =
    "its finalization does not verify: it is forged, damaged (copy it again), or of another chain";

/// Verifies a snapshot from known validators on. Returns the changes since, and the validators of the epoch
/// after the snapshot's block, if the state names others.
fn proven(
    config: &NodeConfig,
    known: Validators,
    handovers: &[Handover],
    proof: &SnapshotProof,
) -> anyhow::Result<(Vec<Handover>, Option<ValidatorSet>)> {
    let verify = verify_with(config, known.committees.clone());
    let of = (&config.chain, known.epoch_length);
    let (news, flaw) = adopt_handovers(handovers, &known.committees, of, &verify);
    if let Some(flaw) = flaw {
        bail!("a change of the validators in it does not verify: {flaw}; copy it again");
    }
    ensure!(verify(&proof.finalization), UNSIGNED);
    let first = proof.headers.first().map(|header| header.epoch);
    let acting = first.and_then(|epoch| known.committees.set(epoch));
    let acting = acting.context("it is older than the validators that are known here")?;
    let next = next_of_snapshot(proof, of, &acting);
    Ok((news, next.context("it is damaged: copy it again")?))
}

/// What the proof certifies, if it is signed.
fn of_this_chain(config: &NodeConfig, proof: &SnapshotProof) -> anyhow::Result<SnapshotSubject> {
    let other = proof.headers.iter().find(|one| one.chain != config.chain);
    if let Some(header) = other {
        bail!(
            "it is of chain {}, and this node is of chain {} (`genesis` in {}): take a snapshot of this \
             node's chain; if it should be one, copy it again",
            header.chain,
            config.chain,
            config.path.display()
        );
    }
    let subject = proof.check(&config.chain);
    subject.context("it is damaged: copy it again")
}

/// Verifies that the parts are the whole state, in the order of the key space.
fn check_parts(
    reader: &mut SnapshotReader,
    subject: &SnapshotSubject,
    progress: &mut impl FnMut(Step),
) -> anyhow::Result<()> {
    let mut next = Some(*Span::ALL.first());
    let mut parts = 0;
    while let Some(chunk) = reader.next::<Chunk>("a part of the state")? {
        parts += 1;
        ensure!(
            chunk.since() == 0 && next == Some(*chunk.span().first()),
            "it is damaged: part {parts} is not the next one of the state; copy it again"
        );
        if let Err(error) = chunk.verify(&subject.root, std::iter::empty()) {
            bail!("it is damaged: part {parts} does not verify ({error}); copy it again");
        }
        next = chunk.span().after();
        progress(Step::Checks(reader.share()));
    }
    ensure!(
        next.is_none(),
        "it is damaged: parts of the state are missing; copy it again"
    );
    Ok(())
}

/// Verifies and writes all parts. Returns how many, and the accounts in them.
fn take_parts(
    store: &Store,
    reader: &mut SnapshotReader,
    subject: &SnapshotSubject,
    progress: &mut impl FnMut(Step),
) -> anyhow::Result<(u64, u64)> {
    let mut coverage = store.coverage()?;
    let (mut parts, mut accounts) = (0, 0);
    while let Some(chunk) = reader.next::<Chunk>("a part of the state")? {
        ensure!(
            chunk.since() == 0,
            "a part holds changes only, not all of its accounts"
        );
        parts += 1;
        let at = (subject.height, &subject.root);
        match store.take_chunk(chunk, at, &mut coverage) {
            Ok(entries) => accounts += entries as u64,
            Err(ChunkError::Proof(error)) => bail!("part {parts} does not verify: {error}"),
            Err(ChunkError::Store(error)) => return Err(error.into()),
        }
        if parts % PARTS_PER_SAVE == 0 {
            store.save_chunks(&mut coverage)?;
        }
        progress(Step::Takes(reader.share()));
    }
    store.save_chunks(&mut coverage)?;
    let is_whole = coverage.parts().all(|part| part.height == subject.height);
    ensure!(
        is_whole,
        "it is damaged: parts of the state are missing; copy it again"
    );
    Ok((parts, accounts))
}
