//! What must never happen, whatever goes wrong.
//!
//! Nothing here asks the code that it checks: quorums, conflicts, ledgers and journal frames are
//! worked out once more, in other words.

use crate::{
    certified::Certified, crypto::Authority, pacemaker::Pacemaker, parents::Parents,
    payloads::PayloadChecker,
};
use commonware_codec::{Copying, DecodeExt};
use quorate_consensus::Moment;
use quorate_storage::store::TransactionPlace;
use quorate_types::genesis::DEFAULT_LIMITS;
use quorate_types::{
    Account, Block, Certificate, Committee, Digest, Epoch, Failure, Frame, Header, Height,
    Identity, Message, Outcome, Record, Subject, Transaction, View, Vote, VoteKind,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

/// What one validator has said in one view, over all its lives.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Said {
    notarize: Option<Digest>,
    finalize: Option<Digest>,
    nullify: bool,
}

/// What has become durable in a validator's journal.
#[derive(Default)]
struct Written {
    votes: BTreeSet<Subject>,
    certificates: BTreeSet<Subject>,
    blocks: BTreeSet<Digest>,
}

/// A block that is final somewhere.
struct Agreed {
    id: Digest,
    root: Digest,
}

/// The checkers of one world. Errors are violations, in words.
pub(crate) struct Checker {
    committee: Committee,
    byzantine: BTreeSet<usize>,
    authority: Arc<Authority>,
    said: BTreeMap<(usize, Epoch, View), Said>,
    written: Vec<Written>,
    agreed: BTreeMap<Height, Agreed>,
    /// The progress that each host has reported.
    told: Vec<Height>,
    /// The accounts after the highest agreed block.
    accounts: BTreeMap<Identity, Account>,
    submitted: BTreeSet<Digest>,
    /// The place of each transaction, and its outcome.
    finals: BTreeMap<Digest, (TransactionPlace, Outcome)>,
    /// Transactions that a host has accepted and that are not final nor told to be dropped, and when
    /// that was.
    open: BTreeMap<(usize, Digest), Moment>,
    final_transactions: u64,
    certificates: BTreeSet<Subject>,
    /// The votes of each Byzantine validator that each honest one has received.
    heard: BTreeMap<(usize, u32, Epoch, View, VoteKind), Digest>,
    /// How often an honest validator has received two valid votes that contradict each other.
    contradictions: BTreeMap<usize, u64>,
    /// `None` once the memory of who signed what was dropped.
    parents: Option<Parents>,
    /// `None` if more than f validators break at some time: nobody's votes are needed then.
    pub(crate) pacemaker: Option<Pacemaker>,
    certified: Certified,
    /// On a chain that only orders.
    pub(crate) payloads: Option<PayloadChecker>,
}

impl Checker {
    pub(crate) fn new(
        committee: Committee,
        byzantine: BTreeSet<usize>,
        authority: Arc<Authority>,
        hosts: usize,
        (accounts, payloads): (BTreeMap<Identity, Account>, Option<PayloadChecker>),
    ) -> Self {
        let faulty = (committee.size() - 1) / 3;
        Self {
            pacemaker: (byzantine.len() <= faulty).then(|| Pacemaker::new(&committee)),
            parents: Some(Parents::new(&committee)),
            certified: Certified::new(committee.size() - faulty),
            committee,
            byzantine,
            authority,
            said: BTreeMap::new(),
            written: (0..hosts).map(|_| Written::default()).collect(),
            agreed: BTreeMap::new(),
            told: vec![Height(0); hosts],
            accounts,
            submitted: BTreeSet::new(),
            finals: BTreeMap::new(),
            open: BTreeMap::new(),
            final_transactions: 0,
            certificates: BTreeSet::new(),
            heard: BTreeMap::new(),
            contradictions: BTreeMap::new(),
            payloads,
        }
    }

    /// A client hands in a transaction.
    pub(crate) fn submitted(&mut self, transaction: &Transaction) {
        self.submitted.insert(transaction.id());
    }

    /// A validator has told a client that it accepts a transaction.
    pub(crate) fn accepted(&mut self, host: usize, id: Digest, at: Moment) {
        if !self.finals.contains_key(&id) {
            self.open.insert((host, id), at);
        }
    }

    /// What a host has accepted and is not known to have come to an end.
    pub(crate) fn open(&self, host: usize) -> Vec<Digest> {
        let from = (host, Digest([0; 32]));
        let to = (host, Digest([255; 32]));
        self.open.range(from..=to).map(|((_, id), _)| *id).collect()
    }

    /// Transactions that were accepted by this time and are still unfinished, with the validator
    /// that accepted them.
    pub(crate) fn open_since(&self, at: Moment) -> Vec<(usize, Digest)> {
        let old = self.open.iter().filter(|(_, accepted)| **accepted <= at);
        old.map(|(key, _)| *key).collect()
    }

    /// A host says why it has dropped a transaction that it had accepted.
    pub(crate) fn told_dropped(&mut self, host: usize, id: &Digest) {
        self.open.remove(&(host, *id));
    }

    /// A host reports the place of a transaction in the chain.
    pub(crate) fn told_final(
        &mut self,
        host: usize,
        id: &Digest,
        place: TransactionPlace,
        outcome: Outcome,
    ) -> Result<(), String> {
        self.open.remove(&(host, *id));
        match self.finals.get(id) {
            Some(held) if *held == (place, outcome) => Ok(()),
            held => Err(format!(
                "host {host} says that transaction {id} is {outcome} at {place:?}; the chain says {held:?}"
            )),
        }
    }

    /// The root of the accounts after a final block, if it is remembered.
    pub(crate) fn root(&self, height: Height) -> Option<Digest> {
        self.agreed.get(&height).map(|agreed| agreed.root)
    }

    /// Transactions in final blocks.
    pub(crate) fn final_transactions(&self) -> u64 {
        self.final_transactions
    }

    /// How many blocks of honest leaders a quorum of honest validators has voted for, and are not in the chain.
    pub(crate) fn abandoned(&self) -> u64 {
        self.certified.abandoned()
    }

    /// Who leads the view of a block.
    fn leader(&self, header: &Header) -> usize {
        self.leads(header.epoch, header.view)
    }

    /// Who leads a view.
    pub(crate) fn leads(&self, epoch: Epoch, view: View) -> usize {
        // Each leads so many views in a row.
        let turn = view.0.div_ceil(self.committee.turn());
        ((turn + epoch.0) % self.committee.size() as u64) as usize
    }

    /// The highest height that is final somewhere.
    pub(crate) fn height(&self) -> Height {
        self.agreed.last_key_value().map_or(Height(0), |(h, _)| *h)
    }

    /// Bytes of a file have become durable.
    pub(crate) fn durable(&mut self, host: usize, path: &Path, offset: usize, bytes: &[u8]) {
        let is_journal = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("journal"));
        if !is_journal {
            return;
        }
        // A file header of 52 bytes, then frames: length, 8 and 8 bytes of numbers, a checksum.
        let mut rest = bytes.get(if offset == 0 { 52 } else { 0 }..).unwrap_or(&[]);
        while let Some(head) = rest.first_chunk::<4>() {
            let length = u32::from_be_bytes(*head) as usize;
            let Some(payload) = rest.get(24..24 + length) else {
                return;
            };
            match Record::decode(Copying(payload)) {
                Ok(Record::Vote(vote)) => drop(self.written[host].votes.insert(vote.subject)),
                Ok(Record::Certificate(c)) => {
                    self.written[host].certificates.insert(c.subject);
                }
                Ok(Record::Block(block)) => {
                    self.written[host].blocks.insert(block.id());
                    self.certified
                        .journaled(&block, self.leader(block.header()));
                    self.parents.iter_mut().for_each(|p| p.journaled(&block));
                    self.payloads.iter_mut().for_each(|p| p.journaled(&block));
                }
                Ok(Record::Silence(_)) => {}
                Err(_) => return,
            }
            rest = &rest[24 + length..];
        }
    }

    /// An honest validator sends a frame. Returns whether a vote in it is cast for the first time.
    pub(crate) fn sent(&mut self, host: usize, bytes: &[u8]) -> Result<bool, String> {
        let mut votes = false;
        if let Some(payloads) = &mut self.payloads {
            payloads.sent(host, bytes)?;
        }
        let Ok(Frame(messages)) = Frame::decode(Copying(bytes)) else {
            return Err(format!("host {host} sends what cannot be read"));
        };
        for message in messages {
            match message {
                Message::Vote(vote) => {
                    let first = self.vote(host, vote)?;
                    self.journaled(host, vote)?;
                    if let Some(pacemaker) = &mut self.pacemaker {
                        pacemaker.vote(host, vote.subject, &self.written[host].votes)?;
                    }
                    votes |= first;
                    let Subject { epoch, view, .. } = vote.subject;
                    match vote.subject.kind {
                        VoteKind::Notarize if first => {
                            self.certified.vote(host, vote.subject.payload);
                            self.builds_on_what_is_decided(host, vote.subject)?;
                        }
                        VoteKind::Finalize => {
                            let parents = self.parents.as_mut();
                            parents
                                .into_iter()
                                .for_each(|p| p.finalize(host, epoch, view));
                        }
                        _ => {}
                    }
                }
                Message::Certificate(certificate) => self.certificate(host, &certificate)?,
                Message::Proposal(proposal) => {
                    let held = proposal.parent_certificate.iter();
                    for certificate in held.chain(&proposal.certificates) {
                        self.certificate(host, certificate)?;
                    }
                }
                Message::Evidence(pair) => {
                    let signer = pair.first.signer.as_usize();
                    if !self.byzantine.contains(&signer) {
                        return Err(format!(
                            "host {host} passes on evidence against honest validator {signer}"
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(votes)
    }

    /// A frame of a Byzantine validator reaches an honest one, which is in this epoch and view.
    pub(crate) fn heard(&mut self, host: usize, sender: usize, at: (Epoch, View), bytes: &[u8]) {
        let Ok(Frame(messages)) = Frame::decode(Copying(bytes)) else {
            return;
        };
        for message in messages {
            let Message::Vote(vote) = message else {
                continue;
            };
            let Subject {
                epoch,
                view,
                kind,
                payload,
            } = vote.subject;
            let now = (epoch, view) == at && vote.signer.as_usize() == sender;
            if !now || !self.authority.holds_cheaply(&vote) {
                continue;
            }
            let key = (host, vote.signer.0, epoch, view, kind);
            if *self.heard.entry(key).or_insert(payload) != payload {
                *self.contradictions.entry(sender).or_default() += 1;
            }
        }
    }

    /// Validators that have contradicted themselves before honest ones so often that one must have
    /// noticed.
    pub(crate) fn equivocators(&self) -> impl Iterator<Item = usize> + '_ {
        let often = self.contradictions.iter();
        often.filter(|(_, count)| **count >= 4).map(|(v, _)| *v)
    }

    /// An honest validator never contradicts itself: in one view, over all its lives, it says
    /// notarize for one block, finalize for that block only, and finalize or nullify. Whether it says
    /// this for the first time.
    fn vote(&mut self, host: usize, vote: Vote) -> Result<bool, String> {
        let Subject {
            epoch,
            view,
            kind,
            payload,
        } = vote.subject;
        let said = self.said.entry((host, epoch, view)).or_default();
        let before = *said;
        match kind {
            VoteKind::Notarize => said.notarize = Some(payload),
            VoteKind::Finalize => said.finalize = Some(payload),
            VoteKind::Nullify => said.nullify = true,
        }
        let twice = |a: Option<Digest>, b: Option<Digest>| a.is_some() && a != b;
        let broken = if twice(before.notarize, said.notarize) {
            "two notarize votes"
        } else if twice(before.finalize, said.finalize) {
            "two finalize votes"
        } else if said.finalize.is_some() && said.nullify {
            "finalize and nullify"
        } else if said.notarize.is_some()
            && said.finalize.is_some()
            && said.notarize != said.finalize
        {
            "notarize for one block and finalize for another"
        } else {
            return Ok(before != *said);
        };
        Err(format!(
            "host {host} contradicts itself in {epoch:?} {view:?}: {broken}"
        ))
    }

    /// No vote is sent before it is durable, with its block, and for finalize the notarization.
    fn journaled(&self, host: usize, vote: Vote) -> Result<(), String> {
        let Subject {
            epoch,
            view,
            kind,
            payload,
        } = vote.subject;
        let written = &self.written[host];
        if !written.votes.contains(&vote.subject) {
            return Err(format!(
                "host {host} sends {kind} of {epoch:?} {view:?} before it is durable"
            ));
        }
        if kind == VoteKind::Nullify {
            return Ok(());
        }
        let executed = self
            .agreed
            .range(..=self.told[host])
            .any(|(_, agreed)| agreed.id == payload);
        if !written.blocks.contains(&payload) && !executed {
            return Err(format!(
                "host {host} sends {kind} of {epoch:?} {view:?} and its block is not durable"
            ));
        }
        let notarization = Subject {
            kind: VoteKind::Notarize,
            ..vote.subject
        };
        if kind == VoteKind::Finalize && !written.certificates.contains(&notarization) {
            return Err(format!(
                "host {host} sends finalize of {epoch:?} {view:?} without the notarization on disk"
            ));
        }
        Ok(())
    }

    /// A certificate stands for a quorum of signers, at most the Byzantine of which have not
    /// signed through their keys.
    pub(crate) fn certificate(
        &mut self,
        host: usize,
        certificate: &Certificate,
    ) -> Result<(), String> {
        self.quorum_of(&certificate.subject).map_err(|signers| {
            format!(
                "host {host} holds a certificate of {:?} that only {signers:?} have signed",
                certificate.subject
            )
        })
    }

    /// Whether a certificate of this subject can exist; else its possible signers.
    fn quorum_of(&mut self, subject: &Subject) -> Result<(), BTreeSet<u32>> {
        if self.certificates.contains(subject) {
            return Ok(());
        }
        let all = self.committee.size();
        let needed = all - (all - 1) / 3;
        let signers = self.authority.signers_of(subject);
        let honest = signers
            .iter()
            .filter(|signer| !self.byzantine.contains(&(**signer as usize)))
            .count();
        if honest + self.byzantine.len() < needed {
            return Err(signers);
        }
        self.certificates.insert(*subject);
        Ok(())
    }

    /// An honest validator votes for blocks only whose parent is decided, and nothing between.
    fn builds_on_what_is_decided(&mut self, host: usize, subject: Subject) -> Result<(), String> {
        let Some(mut parents) = self.parents.take() else {
            return Ok(());
        };
        let at = (subject.epoch, subject.view, subject.payload);
        let agreed = std::mem::take(&mut self.agreed);
        let signed = |subject| self.quorum_of(&subject).is_ok();
        let result = parents.vote(host, at, signed, |height| agreed.get(&height).map(|a| a.id));
        self.agreed = agreed;
        self.parents = Some(parents);
        result
    }

    /// An honest validator tells that it has executed a block, and the state's root after it.
    pub(crate) fn executed(
        &mut self,
        host: usize,
        block: &Block,
        root: Digest,
    ) -> Result<(), String> {
        let height = block.height();
        if height != self.told[host].next() {
            return Err(format!(
                "host {host} executes {height:?} after {:?}",
                self.told[host]
            ));
        }
        self.told[host] = height;
        match self.agreed.get(&height) {
            Some(agreed) if agreed.id != block.id() => {
                return Err(format!("two blocks are final at {height:?}"));
            }
            Some(agreed) if agreed.root != root => {
                return Err(format!("two states are reached at {height:?}"));
            }
            Some(_) => return Ok(()),
            None => {}
        }
        self.follows(block)?;
        self.apply(block)?;
        let id = block.id();
        self.agreed.insert(height, Agreed { id, root });
        self.certified.agreed(height, id, &self.byzantine);
        let parents = self.parents.as_mut();
        parents.map_or(Ok(()), |parents| parents.agreed(height, id))
    }

    /// A new final block extends the chain by the rules that everybody can check.
    fn follows(&self, block: &Block) -> Result<(), String> {
        let header = block.header();
        let height = header.height;
        let before = Height(height.0 - 1);
        let parent = match self.agreed.get(&before) {
            Some(agreed) => agreed.id,
            None if before == Height(0) => Digest::ZERO,
            None => return Err(format!("{height:?} is final before its parent")),
        };
        if header.parent != parent {
            return Err(format!("{height:?} is final on another parent"));
        }
        let named = self.agreed.get(&header.executed_height);
        if named.is_some_and(|named| named.root != header.state_root) {
            return Err(format!("{height:?} names a state that is not the chain's"));
        }
        if block.transactions().len() > DEFAULT_LIMITS.max_transactions {
            return Err(format!("{height:?} is too large"));
        }
        Ok(())
    }

    fn apply(&mut self, block: &Block) -> Result<(), String> {
        let Some(payloads) = &mut self.payloads else {
            return self.apply_transfers(block);
        };
        let outcomes = payloads.apply(block, &mut self.accounts)?;
        let transactions = block.transactions().iter().zip(outcomes);
        for (index, (transaction, outcome)) in (0_u32..).zip(transactions) {
            self.note_final(transaction.id(), (block.height(), index), outcome)?;
        }
        Ok(())
    }

    fn note_final(
        &mut self,
        id: Digest,
        (height, index): (Height, u32),
        outcome: Outcome,
    ) -> Result<(), String> {
        let place = TransactionPlace { height, index };
        if self.finals.insert(id, (place, outcome)).is_some() {
            return Err(format!(
                "transaction {id} stands in {height:?} and in an earlier block"
            ));
        }
        self.final_transactions += 1;
        Ok(())
    }

    /// The ledger's rules, in other words than the node's.
    fn apply_transfers(&mut self, block: &Block) -> Result<(), String> {
        let header = block.header();
        let leader = quorate_types::ValidatorIndex(self.leader(header) as u32);
        let leader = self.committee.identity(leader).expect("a member");
        for (index, transaction) in (0_u32..).zip(block.transactions()) {
            if !self.submitted.contains(&transaction.id()) {
                return Err(format!(
                    "{:?} holds a transaction that no client made",
                    header.height
                ));
            }
            let transfer = transaction.transfer();
            let from = self.accounts.entry(transfer.sender).or_default();
            if from.nonce != transfer.nonce || from.balance < transfer.fee {
                return Err(format!(
                    "{:?} holds transaction {}, which costs its sender nothing: its nonce was used, or \
                     its fee cannot be paid",
                    header.height,
                    transaction.id()
                ));
            }
            from.nonce += 1;
            from.balance -= transfer.fee;
            let pays = from.balance >= transfer.amount;
            if pays {
                from.balance -= transfer.amount;
            }
            self.accounts.entry(leader).or_default().balance += transfer.fee;
            if pays {
                self.accounts.entry(transfer.to).or_default().balance += transfer.amount;
            }
            let outcome = if pays {
                Outcome::Applied
            } else {
                Outcome::Failed(Failure::InsufficientBalance)
            };
            self.note_final(transaction.id(), (header.height, index), outcome)?;
        }
        Ok(())
    }

    /// What a validator at the chain's newest height must hold.
    pub(crate) fn accounts(&self) -> &BTreeMap<Identity, Account> {
        &self.accounts
    }

    /// A validator starts again, with this height on disk.
    pub(crate) fn restarted(&mut self, host: usize, height: Height) -> Result<(), String> {
        if height < self.told[host] {
            return Err(format!(
                "host {host} had told of {:?} and has only {height:?} after its crash",
                self.told[host]
            ));
        }
        Ok(())
    }

    /// A host's database is gone: it may tell of everything again.
    pub(crate) fn lost(&mut self, host: usize) {
        self.open.retain(|(of, _), _| *of != host);
        self.told[host] = Height(0);
    }

    /// A host has fetched the state after a block. What became of transactions in the blocks before it
    /// is not known to it.
    pub(crate) fn fetched_state(
        &mut self,
        host: usize,
        height: Height,
        (id, root): (Digest, Digest),
    ) -> Result<(), String> {
        match self.agreed.get(&height) {
            Some(agreed) if (agreed.id, agreed.root) == (id, root) => {}
            Some(_) => {
                return Err(format!(
                    "host {host} has fetched another state of {height:?}"
                ));
            }
            None => {
                return Err(format!(
                    "host {host} has the state of {height:?}, which is not final"
                ));
            }
        }
        if height < self.told[host] {
            return Err(format!("host {host} went back to {height:?} by state sync"));
        }
        self.open.retain(|(of, _), _| *of != host);
        self.told[host] = height;
        Ok(())
    }

    /// A host has executed blocks up to this one in one go and keeps them no longer. What became of their
    /// transactions cannot be looked up there.
    pub(crate) fn passed(&mut self, host: usize, height: Height) -> Result<(), String> {
        if !self.agreed.contains_key(&height) {
            return Err(format!(
                "host {host} no longer keeps {height:?}, which no other has executed"
            ));
        }
        let finals = &self.finals;
        let gone = |id: &Digest| finals.get(id).is_some_and(|(at, _)| at.height <= height);
        self.open.retain(|(of, id), _| *of != host || !gone(id));
        self.told[host] = height;
        Ok(())
    }

    /// The progress that a host has reported.
    pub(crate) fn told(&self, host: usize) -> Height {
        self.told[host]
    }

    /// Forgets what no rule needs any more, for long runs.
    pub(crate) fn prune(&mut self, below: Height, epoch: Epoch) {
        self.parents = None;
        let kept = self.agreed.split_off(&below);
        let gone = std::mem::replace(&mut self.agreed, kept);
        self.finals.retain(|_, (place, _)| place.height >= below);
        self.said.retain(|(_, of, _), _| of.next() >= epoch);
        self.certificates
            .retain(|subject| subject.epoch.next() >= epoch);
        self.heard.retain(|(_, _, of, ..), _| of.next() >= epoch);
        for written in &mut self.written {
            written.votes.retain(|s| s.epoch.next() >= epoch);
            written.certificates.retain(|s| s.epoch.next() >= epoch);
            for agreed in gone.values() {
                written.blocks.remove(&agreed.id);
            }
        }
    }
}
