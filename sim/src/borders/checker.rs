//! What must never happen while validators come and leave, worked out without the code that is checked.
//!
//! - One block, one state and one set of validators for each height and epoch, wherever they are known.
//! - An honest validator never contradicts itself in a view, over all its lives and assemblies.
//! - A final block has a certificate of a quorum of the validators of its epoch, and of no others.
//! - Of a set, no more than f leave at a border, and a quorum stays.
//! - No money is made or lost, with all that is at stake.

use super::{
    EPOCH_BLOCKS, epoch_of,
    host::{Host, Shared},
};
use commonware_codec::{Copying, DecodeExt as _};
use quorate_types::{
    Certificate, Digest, Epoch, Frame, Height, Message, Subject, View, Vote, VoteKind,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// For how many epochs it is known at least who has signed what.
const REMEMBERED_EPOCHS: u64 = 16;

/// What one node has said in one view.
#[derive(Clone, Copy, Default)]
struct Said {
    notarize: Option<Digest>,
    finalize: Option<Digest>,
    nullify: bool,
}

pub(super) struct Checker {
    shared: Arc<Shared>,
    /// The id of each block, and the root of the state after it.
    agreed: BTreeMap<Height, (Digest, Digest)>,
    /// The sets of validators by epoch, as nodes.
    sets: BTreeMap<Epoch, Vec<usize>>,
    told: BTreeMap<usize, Height>,
    said: BTreeMap<(Epoch, View, usize), Said>,
    transactions: u64,
    changes: u64,
    largest: u64,
}

impl Checker {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            agreed: BTreeMap::new(),
            sets: BTreeMap::new(),
            told: BTreeMap::new(),
            said: BTreeMap::new(),
            transactions: 0,
            changes: 0,
            largest: 0,
        }
    }

    pub(super) fn height(&self) -> Height {
        self.agreed.last_key_value().map_or(Height(0), |(h, _)| *h)
    }

    /// At how many borders the validators have changed, and at how many as many left as may.
    pub(super) fn changes(&self) -> (u64, u64) {
        (self.changes, self.largest)
    }

    pub(super) fn transactions(&self) -> u64 {
        self.transactions
    }

    /// A node has an older disk than it had.
    pub(super) fn lost(&mut self, host: usize) {
        self.told.remove(&host);
    }

    /// An honest node sends a frame.
    pub(super) fn sent(&mut self, host: usize, bytes: &[u8]) -> Result<(), String> {
        let Ok(Frame(messages)) = Frame::decode(Copying(bytes)) else {
            return Err(format!("host {host} sends what cannot be read"));
        };
        for message in messages {
            match message {
                Message::Vote(vote) => self.vote(host, &vote)?,
                Message::Certificate(certificate) => self.certificate(host, &certificate)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn vote(&mut self, host: usize, vote: &Vote) -> Result<(), String> {
        let Subject {
            epoch,
            view,
            kind,
            payload,
        } = vote.subject;
        let set = self.shared.keys.set(epoch).unwrap_or_default();
        if set.get(vote.signer.as_usize()) != Some(&host) {
            return Err(format!(
                "host {host} votes in {epoch:?} as validator {}, which it is not",
                vote.signer
            ));
        }
        let said = self.said.entry((epoch, view, host)).or_default();
        let before = *said;
        match kind {
            VoteKind::Notarize => said.notarize = Some(payload),
            VoteKind::Finalize => said.finalize = Some(payload),
            VoteKind::Nullify => said.nullify = true,
        }
        let differs = |a: Option<Digest>, b: Option<Digest>| a.is_some() && b.is_some() && a != b;
        let broken = differs(before.notarize, said.notarize)
            || differs(before.finalize, said.finalize)
            || differs(said.notarize, said.finalize)
            || (said.finalize.is_some() && said.nullify);
        match broken {
            true => Err(format!(
                "host {host} contradicts itself in {epoch:?} {view:?}"
            )),
            false => Ok(()),
        }
    }

    /// A certificate stands for a quorum of its epoch.
    fn certificate(&self, host: usize, certificate: &Certificate) -> Result<(), String> {
        let keys = &self.shared.keys;
        let subject = &certificate.subject;
        if subject.epoch.0 + REMEMBERED_EPOCHS <= epoch_of(self.height()).0 {
            return Ok(());
        }
        let set = keys.set(subject.epoch).unwrap_or_default();
        let signed = keys.signers(&self.shared.chain, subject);
        let signers = set.iter().filter(|node| signed.contains(node)).count();
        if signers < set.len() - set.len().saturating_sub(1) / 3 || set.is_empty() {
            return Err(format!(
                "host {host} holds a certificate of {subject:?} that only {signed:?} of {set:?} have signed"
            ));
        }
        Ok(())
    }

    /// Looks at the validators that a host believes to be fixed.
    pub(super) fn look_at_sets(&mut self, host: &Host, number: usize) -> Result<(), String> {
        let Some((store, committees)) = host.view() else {
            return Ok(());
        };
        let epoch = epoch_of(store.tip().height.next());
        for epoch in [epoch, epoch.next()] {
            let Some(set) = committees.set(epoch) else {
                continue;
            };
            let members: Vec<_> = set.members().iter().map(|member| member.identity).collect();
            if let Some(held) = self.shared.keys.fix(epoch, &members) {
                return Err(format!(
                    "host {number} has other validators in {epoch:?} than the nodes {held:?}"
                ));
            }
            self.note_set(epoch)?;
        }
        Ok(())
    }

    /// Looks at what a host has newly executed.
    pub(super) fn look_at(&mut self, host: &Host, number: usize) -> Result<(), String> {
        let Some((store, _)) = host.view() else {
            return Ok(());
        };
        let told = self.told.get(&number).copied().unwrap_or_default();
        let tip = store.tip().height;
        for height in (told.0 + 1..=tip.0).map(Height) {
            let failed = |error: quorate_storage::store::StoreError| error.to_string();
            let (Some(stored), Some(root)) = (
                store.block(height).map_err(failed)?,
                store.root(height).map_err(failed)?,
            ) else {
                return Err(format!(
                    "host {number} has executed {height:?} and lacks it"
                ));
            };
            if let Some(certificate) = &stored.certificate {
                self.certificate(number, certificate)?;
            }
            let found = (stored.block.id(), root);
            match self.agreed.get(&height) {
                Some(held) if *held != found => {
                    return Err(format!("host {number} has another {height:?}"));
                }
                Some(_) => {}
                None => {
                    if height > self.height().next() {
                        return Err(format!("{height:?} is final before the one below it"));
                    }
                    if stored.block.header().epoch != epoch_of(height) {
                        return Err(format!("{height:?} is in another epoch"));
                    }
                    self.transactions += stored.block.transactions().len() as u64;
                    self.agreed.insert(height, found);
                    if height.0.is_multiple_of(EPOCH_BLOCKS) {
                        self.forget();
                    }
                }
            }
        }
        self.told.insert(number, tip.max(told));
        Ok(())
    }

    fn note_set(&mut self, epoch: Epoch) -> Result<(), String> {
        if self.sets.contains_key(&epoch) {
            return Ok(());
        }
        let set = self.shared.keys.set(epoch).unwrap_or_default();
        if let Some(before) = epoch.previous().and_then(|before| self.sets.get(&before)) {
            let next: BTreeSet<usize> = set.iter().copied().collect();
            let left = before.iter().filter(|node| !next.contains(node)).count();
            let may_leave = (before.len() - 1) / 3;
            if left > may_leave {
                return Err(format!(
                    "{left} of {} validators leave at once",
                    before.len()
                ));
            }
            self.changes += u64::from(*before != set);
            self.largest += u64::from(left == may_leave);
        }
        self.sets.insert(epoch, set);
        Ok(())
    }

    /// Forgets what is settled everywhere but on machines that are away.
    fn forget(&mut self) {
        let epoch = epoch_of(self.height());
        if epoch.0.is_multiple_of(4) {
            self.said.retain(|(of, ..), _| of.0 + 4 >= epoch.0);
        }
        if epoch.0.is_multiple_of(REMEMBERED_EPOCHS) {
            self.shared.keys.forget();
        }
    }

    /// The sum of all that is owned and at stake, on each host.
    pub(super) fn at_the_end(&self, hosts: &[Host]) -> Result<(), String> {
        let genesis = &self.shared.genesis;
        let owned: u64 = genesis.accounts.iter().map(|account| account.balance).sum();
        let staked: u64 = genesis.validators.iter().map(|one| one.stake).sum();
        for (number, host) in hosts.iter().enumerate() {
            let Some(accounts) = host.accounts(&self.shared) else {
                continue;
            };
            let sum: u64 = accounts
                .iter()
                .map(|account| {
                    let bond = account.bond.as_ref();
                    account.balance + bond.map_or(0, |bond| bond.stake + bond.leaving)
                })
                .sum();
            if sum != owned + staked {
                return Err(format!(
                    "host {number} holds {sum} of money, not {}",
                    owned + staked
                ));
            }
        }
        Ok(())
    }
}
