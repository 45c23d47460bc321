//! What must hold of payloads, on a chain that only orders.
//!
//! - A validator votes for a new block only when all bundles in it are on its disk, and they still are after a crash.
//! - It sends its bundles only when they are on its disk, and gives each number to one of them.
//! - What it tells a client is stored is ordered in the end, once; what it tells to be ordered is, at that place.
//! - Payloads of honest validators are what their clients submitted.
//! - In the end all have all bundles of all final blocks.

use bytes::Bytes;
use commonware_codec::{Copying, DecodeExt as _};
use quorate_consensus::Moment;
use quorate_machine::payloads::{OrderedPayloads, Payloads, StoredPayloads};
use quorate_types::{
    Account, Block, BundleRef, Committee, Digest, Frame, Height, Identity, Message, Outcome, View,
    VoteKind,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Errors are violations, in words.
pub(crate) struct PayloadChecker {
    committee: Committee,
    byzantine: BTreeSet<usize>,
    /// The payloads of each host that runs.
    hosts: Vec<Option<Arc<Payloads>>>,
    /// Bundles that each host has relied upon: they are on its disk for good.
    held: Vec<BTreeSet<Digest>>,
    /// The view and the bundles of each block that an honest validator has written down.
    blocks: BTreeMap<Digest, (View, Vec<Digest>)>,
    /// Whose client submitted a payload.
    submitted: BTreeMap<Bytes, usize>,
    /// Payloads that a host has told to be stored and that are not ordered, and since when.
    open: BTreeMap<Bytes, (usize, Moment)>,
    ordered: BTreeSet<Bytes>,
    /// What honest validators have sent under each of their numbers.
    numbers: BTreeMap<(usize, u64), Digest>,
    /// The bundles of final blocks: heights, and places of their transactions.
    finals: BTreeMap<(Height, u32), Digest>,
    /// Those of honest authors whose payloads nobody has been asked for yet.
    unread: Vec<(usize, Digest)>,
}

impl PayloadChecker {
    pub(crate) fn new(committee: Committee, byzantine: BTreeSet<usize>, hosts: usize) -> Self {
        Self {
            committee,
            byzantine,
            hosts: vec![None; hosts],
            held: vec![BTreeSet::new(); hosts],
            blocks: BTreeMap::new(),
            submitted: BTreeMap::new(),
            open: BTreeMap::new(),
            ordered: BTreeSet::new(),
            numbers: BTreeMap::new(),
            finals: BTreeMap::new(),
            unread: Vec::new(),
        }
    }

    /// A host starts.
    pub(crate) fn started(&mut self, host: usize, payloads: Arc<Payloads>) -> Result<(), String> {
        let lost = self.held[host]
            .iter()
            .find(|digest| !payloads.holds(digest));
        if let Some(lost) = lost {
            return Err(format!(
                "host {host} has lost bundle {lost}, which it relied upon"
            ));
        }
        self.hosts[host] = Some(payloads);
        Ok(())
    }

    /// A client hands in a payload.
    pub(crate) fn submitted(&mut self, host: usize, payload: Bytes) {
        self.submitted.insert(payload, host);
    }

    /// A client is told that its payload is stored.
    pub(crate) fn stored(
        &mut self,
        host: usize,
        payload: Bytes,
        told: StoredPayloads,
        at: Moment,
    ) -> Result<(), String> {
        self.relies(host, told.bundle, "says that it has stored")?;
        let payloads = self.hosts[host].as_ref().expect("it answers");
        let bundle = payloads
            .get(&told.bundle)
            .map_err(|error| error.to_string())?;
        let held = bundle.and_then(|b| b.bundle().payloads().nth(told.first as usize));
        if held.as_ref() != Some(&payload) {
            return Err(format!(
                "host {host} says that a payload stands at {} in bundle {}, where {held:?} stands",
                told.first, told.bundle
            ));
        }
        if !self.ordered.contains(&payload) {
            self.open.insert(payload, (host, at));
        }
        Ok(())
    }

    /// A client is told that its payload is ordered.
    pub(crate) fn told_ordered(&self, host: usize, told: OrderedPayloads) -> Result<(), String> {
        let there = self.finals.get(&(told.height, told.place));
        match there == Some(&told.stored.bundle) {
            true => Ok(()),
            false => Err(format!(
                "host {host} says that {:?} orders bundle {} at {}, where {there:?} stands",
                told.height, told.stored.bundle, told.place
            )),
        }
    }

    /// A block is about to be voted for.
    pub(crate) fn journaled(&mut self, block: &Block) {
        let bundles = bundles(block).map(|(_, _, digest)| digest);
        let view = block.header().view;
        self.blocks.insert(block.id(), (view, bundles.collect()));
    }

    /// An honest validator sends a frame.
    pub(crate) fn sent(&mut self, host: usize, bytes: &[u8]) -> Result<(), String> {
        let Ok(Frame(messages)) = Frame::decode(Copying(bytes)) else {
            return Ok(());
        };
        for message in messages {
            match message {
                Message::Vote(vote) if vote.subject.kind == VoteKind::Notarize => {
                    // A block that is proposed again was notarized: a quorum has its bundles.
                    let voted = self.blocks.get(&vote.subject.payload);
                    let voted = voted.filter(|(view, _)| *view == vote.subject.view);
                    for digest in voted.cloned().unwrap_or_default().1 {
                        self.relies(host, digest, "votes for a block with")?;
                    }
                }
                Message::Bundle(bundle) => {
                    let digest = bundle.reference().digest;
                    self.relies(host, digest, "sends")?;
                    let transfer = bundle.transaction().transfer();
                    if self.place(&transfer.sender) != Some(host) {
                        continue;
                    }
                    let number = (host, transfer.nonce);
                    let held = *self.numbers.entry(number).or_insert(digest);
                    if held != digest {
                        return Err(format!(
                            "host {host} has two bundles of number {}: {held} and {digest}",
                            transfer.nonce
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn relies(&mut self, host: usize, digest: Digest, what: &str) -> Result<(), String> {
        let holds = self.hosts[host]
            .as_ref()
            .is_some_and(|payloads| payloads.holds(&digest));
        if !holds {
            return Err(format!(
                "host {host} {what} bundle {digest}, which is not on its disk"
            ));
        }
        self.held[host].insert(digest);
        Ok(())
    }

    fn place(&self, author: &Identity) -> Option<usize> {
        self.committee.place(author).map(|place| place.as_usize())
    }

    /// The rules of ordering, in other words than the node's: a new final block changes its authors' numbers. Returns
    /// the outcomes.
    pub(crate) fn apply(
        &mut self,
        block: &Block,
        accounts: &mut BTreeMap<Identity, Account>,
    ) -> Result<Vec<Outcome>, String> {
        let height = block.height();
        for (place, author, digest) in bundles(block) {
            let transfer = block.transactions()[place as usize].transfer();
            let number = &mut accounts.entry(author).or_default().nonce;
            if *number != transfer.nonce {
                return Err(format!(
                    "{height:?} orders bundle {} of {author} after bundle {number}",
                    transfer.nonce
                ));
            }
            *number += 1;
            self.finals.insert((height, place), digest);
            match self.place(&author) {
                Some(place) if self.byzantine.contains(&place) => {}
                Some(place) => self.unread.push((place, digest)),
                None => {
                    return Err(format!(
                        "{height:?} orders a bundle of {author}, who is nobody"
                    ));
                }
            }
        }
        let count = block.transactions().len();
        if bundles(block).count() < count {
            return Err(format!(
                "{height:?} holds a transaction that orders nothing"
            ));
        }
        self.read()?;
        Ok(vec![Outcome::Applied; count])
    }

    /// Looks at what was ordered.
    pub(crate) fn read(&mut self) -> Result<(), String> {
        for (author, digest) in std::mem::take(&mut self.unread) {
            let running = self.hosts.iter().flatten();
            let mut found = running.filter_map(|host| host.get(&digest).ok().flatten());
            let Some(bundle) = found.next() else {
                self.unread.push((author, digest));
                continue;
            };
            for payload in bundle.bundle().payloads() {
                if self.submitted.get(&payload) != Some(&author) {
                    return Err(format!(
                        "host {author} has ordered a payload that no client of its has submitted"
                    ));
                }
                self.open.remove(&payload);
                if !self.ordered.insert(payload) {
                    return Err(format!(
                        "bundle {digest} orders a payload for the second time"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Payloads that were told to be stored by this time and are not ordered, with the hosts that told it.
    pub(crate) fn open_since(&self, at: Moment) -> Vec<(usize, Digest)> {
        let old = self.open.iter().filter(|(_, (_, since))| *since <= at);
        old.map(|(payload, (host, _))| (*host, quorate_crypto::sha256(&[payload])))
            .collect()
    }

    /// Bundles of final blocks that a host lacks.
    pub(crate) fn lacks(&self, host: usize) -> Option<Digest> {
        let payloads = self.hosts[host].as_ref()?;
        let mut finals = self.finals.values();
        finals.find(|digest| !payloads.holds(digest)).copied()
    }
}

/// The bundles that a block orders: the places of their transactions, and their authors.
fn bundles(block: &Block) -> impl Iterator<Item = (u32, Identity, Digest)> {
    let transactions = (0_u32..).zip(block.transactions());
    transactions.filter_map(|(place, transaction)| {
        let transfer = transaction.transfer();
        let reference = BundleRef::of(transfer)?;
        Some((place, transfer.sender, reference.digest))
    })
}
