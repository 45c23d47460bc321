//! Recovering the consensus engine from what is durable.

use super::{Durables, Settings};
use crate::{clock::Clock, evidence::EvidenceFolder, offenders::Offenders};
use quorate_consensus::{Config, Engine, Output, Tip};
use quorate_storage::store::Store;
use std::mem;

pub(super) struct Recovered {
    pub(super) engine: Engine,
    pub(super) first: Output,
    pub(super) offenders: Offenders,
    pub(super) evidence: EvidenceFolder,
}

/// Takes the records out of what is durable.
pub(super) fn recover(
    settings: &Settings,
    durables: &mut Durables,
    clock: &dyn Clock,
) -> anyhow::Result<Recovered> {
    let (genesis, committees) = (&settings.genesis, &settings.committees);
    let chain = genesis.chain_id();
    let predecessor = durables.predecessor.take().unwrap_or_default();
    let disk = durables.disk.clone();
    let offenders = Offenders::load(disk.clone(), &settings.data_dir, clock.wall_ms())?;
    let evidence = EvidenceFolder::load(disk, &settings.data_dir, chain)?;
    let config = Config {
        chain,
        protocol: genesis.protocol,
        committees: committees.clone(),
        epoch_length: genesis.epoch_blocks,
        limits: genesis.limits,
        sentences: offenders.sentences(committees.known()),
        evidence: evidence.pairs(),
        pardons: offenders.pardons(committees.known()),
        silent_before: durables.silent_before,
        nonce: durables.nonce,
        fresh: durables.fresh,
        goes_on: predecessor.voted,
        seen: (durables.inherited.as_ref())
            .map_or_else(Vec::new, |inherited| inherited.seen.kept()),
        survivors: durables.survivors,
        own: Some(settings.own.clone()),
        timing: settings.consensus.timing,
        checking: settings.consensus.checking,
    };
    let records = mem::take(&mut durables.records);
    let tip = stored_tip(&durables.store);
    let (engine, first) = Engine::recover(config, tip, records, clock.now())?;
    Ok(Recovered {
        engine,
        first,
        offenders,
        evidence,
    })
}

fn stored_tip(store: &Store) -> Tip {
    let stored = store.tip();
    Tip {
        view: stored.view,
        height: stored.height,
        id: stored.id,
        block: stored.block,
        certificate: stored.certificate,
    }
}
