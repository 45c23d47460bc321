//! What Byzantine validators do. Each is an honest validator whose messages pass through here, where
//! they are changed, withheld, doubled, held back, and joined by others that no honest one would
//! send. Attacks combine freely.

use crate::{crypto::Authority, lies::Lies};
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_consensus::VoteSigner;
use quorate_crypto::{
    SecretKey,
    bls::{PartialSignature, Proof, SchemeKind, Signers},
    sha256,
};
use quorate_lanes::Lane;
use quorate_types::{
    Block, Bundle, BundleRef, Certificate, ChainId, ChunkAnswer, Digest, Epoch, Evidence, Frame,
    Header, Height, IdentitySignature, Memo, Message, OrderedBundle, Proposal, SnapshotProof,
    Status, Subject, Transaction, Transfer, ValidatorIndex, View, Vote, VoteKind,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// One way not to behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attack {
    /// It sends nothing.
    Silent,
    /// Every vote's signature is garbage: bytes, or a point of another message.
    GarbageVotes,
    /// As before, but only from the first to the second time, in milliseconds: a fault that heals.
    Glitch(u64, u64),
    /// Every vote's signature has an error that another colluder's cancels in a plain sum.
    Collude,
    /// With each vote goes a conflicting one, to all.
    EquivocateVotes,
    /// With each vote goes a conflicting one; each half of the others gets one of them.
    SplitVotes,
    /// As a leader, it proposes different blocks to the two halves of the others.
    EquivocateProposals,
    /// It runs twice, each talking to one half of the others, and now and then to the other.
    Twins,
    /// It runs twice, and the network alone decides which peers receive which copy's frames.
    FreeTwins,
    /// Its proposals reach a few only, and it never serves a block.
    WithholdBlocks,
    /// Its proposals name parents that they must not.
    WrongParents,
    /// It votes in views far in the future, and claims certificates for them.
    FarFuture,
    /// It sends old frames again, its own and others' votes.
    Replay,
    /// It sends votes of other epochs and chains.
    WrongEpoch,
    /// It sends frames that are too long or no frames at all.
    Oversized,
    /// Each of its messages reaches a part of the others only.
    Selective,
    /// It passes on no certificate.
    WithholdCertificates,
    /// It answers requests with something else, and sends answers that were not requested.
    GarbageReplies,
    /// It votes everything in every view of the window, validly signed.
    VoteSpam,
    /// As a leader, it proposes at the last moment.
    LateLeader,
    /// It sends certificates that no quorum signed.
    ForgeCertificates,
    /// It accuses others with forged evidence.
    FalseEvidence,
    /// It votes in others' names.
    Impersonate,
    /// Its blocks hold transactions without a valid signature.
    BadTransactions,
    /// Its blocks begin with transactions that older blocks hold.
    ReplayTransactions,
    /// It votes, and says again and again how far it is, but never proposes.
    Lazy,
    /// It proposes in every second of its turns only.
    Moody,
    /// Its blocks have impossible heights, or unknown parents.
    JunkBlocks,
    /// It lies to validators that ask what their lost journals held: certificates that are too old, forged
    /// or none, answers to earlier questions, old and forged votes, silence. Not part of [`Self::ALL`]:
    /// it takes lost journals beside.
    LyingStandings,
    /// As a leader that must propose the epoch's last block once more, it proposes another one, with a
    /// notarization that nobody signed. Not part of [`Self::ALL`]: seeds keep their other faults.
    OtherBorder,
    /// It sends certificates with a valid signature, its own alone. Not part of [`Self::ALL`] either.
    ShortCertificates,
    /// It offers the oldest snapshot that it ever had, and delivers nothing of it. Not part of
    /// [`Self::ALL`]: it takes validators that fetch the state beside.
    StaleSnapshots,
    /// On a chain that only orders: about half of its bundles do not reach a validator, whether it asks or not.
    KeepPayloads,
    /// On a chain that only orders: half of the others get other payloads under each of its numbers.
    DoubleNumbers,
    /// On a chain that only orders: its blocks also order bundles of its own that nobody has, often more than are fetched
    /// at a time.
    OrderNothing,
    /// On a chain that only orders: it sends bundles in others' names, and asks for bundles that nobody has.
    ForgePayloads,
    /// In its own turns it says nothing to the leader of the next turn, which it does not give up either. Not part of
    /// [`Self::ALL`]: seeds keep their other faults.
    ShunNext,
    /// As before, but in all turns. Not part of [`Self::ALL`] either.
    ShunAlways,
    /// As a leader, it proposes as late as the others let it for nothing. Not part of [`Self::ALL`] either.
    Dawdle,
    /// It proposes nothing, and has said nullify in the views before its own before anybody is there. Not part of
    /// [`Self::ALL`] either.
    NullifyBefore,
    /// It means well, but its disk lies: after a crash it may contradict itself. Not part of
    /// [`Self::ALL`], since it takes [`crate::Mishap::Lie`] beside.
    LyingDisk,
}

impl Attack {
    /// All that need no numbers.
    pub const ALL: [Self; 27] = [
        Self::Silent,
        Self::GarbageVotes,
        Self::Collude,
        Self::EquivocateVotes,
        Self::SplitVotes,
        Self::EquivocateProposals,
        Self::Twins,
        Self::FreeTwins,
        Self::WithholdBlocks,
        Self::WrongParents,
        Self::FarFuture,
        Self::Replay,
        Self::WrongEpoch,
        Self::Oversized,
        Self::Selective,
        Self::WithholdCertificates,
        Self::GarbageReplies,
        Self::VoteSpam,
        Self::LateLeader,
        Self::ForgeCertificates,
        Self::FalseEvidence,
        Self::Impersonate,
        Self::BadTransactions,
        Self::ReplayTransactions,
        Self::Lazy,
        Self::Moody,
        Self::JunkBlocks,
    ];

    /// Its name, without numbers.
    pub fn name(self) -> String {
        match self {
            Self::Glitch(..) => "Glitch".to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// Whether it takes a second host.
    pub fn is_twin(self) -> bool {
        matches!(self, Self::Twins | Self::FreeTwins)
    }
}

/// A frame on its way to one validator.
pub(crate) struct Parcel {
    pub(crate) to: usize,
    pub(crate) lane: Lane,
    pub(crate) bytes: Vec<u8>,
    /// How long it is held back.
    pub(crate) delay: Duration,
}

/// What an adversary knows of the world.
pub(crate) struct Facts {
    pub(crate) now_ms: u64,
    pub(crate) epoch: Epoch,
    pub(crate) view: View,
    pub(crate) leader_timeout: Duration,
    /// The least that a proposal may take and cost its leader nothing with any validator.
    pub(crate) free: Duration,
    /// Whether it is the second host of a twin.
    pub(crate) second: bool,
}

/// A Byzantine validator's mouth.
pub(crate) struct Adversary {
    place: usize,
    validators: usize,
    /// How many views in a row a validator leads.
    turn: u64,
    chain: ChainId,
    kind: SchemeKind,
    attacks: BTreeSet<Attack>,
    signer: Arc<dyn VoteSigner>,
    /// Signs with the error that the colluders share.
    colluder: Arc<dyn VoteSigner>,
    rng: ChaCha8Rng,
    /// Blocks that any validator proposed.
    seen: Vec<Arc<Block>>,
    /// Frames that may be sent again.
    memory: Vec<(Lane, Vec<u8>)>,
    lies: Lies,
    /// The first snapshot that it offered, or had.
    snapshot: Option<Box<SnapshotProof>>,
    /// The newest view before one of its own that it has given up.
    given_up: (Epoch, View),
}

/// Views ahead in which votes are kept.
const LOOKAHEAD: u64 = 8;

/// Frames that are remembered.
const MAX_MEMORY: usize = 64;

impl Adversary {
    pub(crate) fn new(
        place: usize,
        (validators, turn): (usize, u64),
        chain: ChainId,
        kind: SchemeKind,
        attacks: BTreeSet<Attack>,
        authority: &Arc<Authority>,
        seed: u64,
    ) -> Self {
        let error = if place.is_multiple_of(2) { 7 } else { -7 };
        Self {
            place,
            validators,
            turn,
            chain,
            kind,
            attacks,
            signer: authority.signer(place, 0),
            colluder: authority.signer(place, error),
            rng: ChaCha8Rng::seed_from_u64(seed),
            seen: Vec::new(),
            memory: Vec::new(),
            lies: Lies::default(),
            snapshot: None,
            given_up: (Epoch(0), View(0)),
        }
    }

    fn does(&self, attack: Attack) -> bool {
        self.attacks.contains(&attack)
    }

    /// What the adversary makes of a frame that the validator sends to these peers.
    pub(crate) fn pass(
        &mut self,
        facts: &Facts,
        lane: Lane,
        receivers: &[usize],
        bytes: &[u8],
    ) -> Vec<Parcel> {
        if self.does(Attack::Silent) {
            return Vec::new();
        }
        let Ok(Frame(messages)) = Frame::decode(Copying(bytes)) else {
            return Vec::new();
        };
        self.remember(lane, bytes);
        let mut parcels = Vec::new();
        self.give_up_before_own(facts, &mut parcels);
        // One decision for all receivers where the attack is to say different things.
        let changed = self.change(facts, messages);
        for &to in receivers {
            if !self.reaches(facts, to) {
                continue;
            }
            let mut mine: Vec<Message> = Vec::new();
            let mut delay = Duration::ZERO;
            for message in &changed {
                match self.for_receiver(facts, to, message) {
                    Some((message, held)) => {
                        delay = delay.max(held);
                        mine.extend(message);
                    }
                    None => continue,
                }
            }
            if !mine.is_empty() {
                parcels.push(Parcel {
                    to,
                    lane,
                    bytes: Frame(mine).encode().to_vec(),
                    delay,
                });
            }
        }
        parcels
    }

    /// It has a snapshot, which it may offer when it is old.
    pub(crate) fn has_snapshot(&mut self, proof: &SnapshotProof) {
        if self.does(Attack::StaleSnapshots) && self.snapshot.is_none() {
            self.snapshot = Some(Box::new(proof.clone()));
        }
    }

    /// What it sends from time to time in addition.
    pub(crate) fn spontaneous(&mut self, facts: &Facts) -> Vec<Parcel> {
        let mut parcels = Vec::new();
        if self.does(Attack::Silent) {
            return parcels;
        }
        let mut votes = Vec::new();
        if self.does(Attack::VoteSpam) {
            for ahead in 0..12 {
                for kind in VoteKind::ALL {
                    let view = View(facts.view.0.saturating_add(ahead));
                    votes.push(Message::Vote(self.vote(facts.epoch, view, kind)));
                }
            }
        }
        if self.does(Attack::FarFuture) {
            for _ in 0..8 {
                let view = View(self.rng.random_range(facts.view.0 + 9..=u64::MAX));
                let kind = VoteKind::ALL[self.rng.random_range(0..3)];
                votes.push(Message::Vote(self.vote(facts.epoch, view, kind)));
                votes.push(Message::Certificate(self.forged(facts.epoch, view, kind)));
            }
            let mine = (self.place as u64 + self.validators as u64
                - facts.epoch.0 % self.validators as u64)
                % self.validators as u64;
            for round in 1..12 {
                let now = facts.view.0.div_ceil(self.turn);
                let turns = now / self.validators as u64 + round;
                let number = turns * self.validators as u64 + mine;
                let view = View((number - 1) * self.turn + 1);
                votes.push(self.empty_proposal(facts.epoch, view));
            }
        }
        if self.does(Attack::WrongEpoch) {
            for epoch in [facts.epoch.0.wrapping_sub(1), facts.epoch.0 + 1, u64::MAX] {
                let kind = VoteKind::ALL[self.rng.random_range(0..3)];
                votes.push(Message::Vote(self.vote(Epoch(epoch), facts.view, kind)));
            }
            for _ in 0..60 {
                let kind = VoteKind::ALL[self.rng.random_range(0..3)];
                let view = View(self.rng.random_range(1..9));
                let mut vote = self.vote(facts.epoch.next(), view, kind);
                self.rng.fill_bytes(&mut vote.signature.0);
                votes.push(Message::Vote(vote));
            }
            let mut other = self.vote(facts.epoch, facts.view, VoteKind::Nullify);
            let subject = Subject::nullify(facts.epoch, facts.view);
            let elsewhere = ChainId(Digest([9; 32]));
            other.signature = self.signer.sign_vote(&subject.signed_bytes(&elsewhere)).0;
            votes.push(Message::Vote(other));
        }
        if self.does(Attack::ForgeCertificates) {
            for kind in VoteKind::ALL {
                votes.push(Message::Certificate(self.forged(
                    facts.epoch,
                    facts.view,
                    kind,
                )));
            }
        }
        if self.does(Attack::ShortCertificates) && self.kind == SchemeKind::BlsAggregate {
            for kind in VoteKind::ALL {
                let vote = self.vote(facts.epoch, facts.view, kind);
                // The cheap stand-in's signatures are no points.
                let Some(signature) = vote.signature.to_compressed() else {
                    continue;
                };
                let size = u32::try_from(self.validators).expect("few validators");
                let signers = Signers::new(size, &[vote.signer.0]).expect("a validator");
                votes.push(Message::Certificate(Certificate {
                    subject: vote.subject,
                    proof: Proof::Aggregate { signers, signature },
                }));
            }
        }
        if self.does(Attack::Impersonate) {
            let mut vote = self.vote(facts.epoch, facts.view, VoteKind::Nullify);
            let other =
                (self.place + 1 + self.rng.random_range(0..self.validators - 1)) % self.validators;
            vote.signer = ValidatorIndex(other as u32);
            votes.push(Message::Vote(vote));
        }
        for chunk in votes.chunks(quorate_types::limits::MAX_FRAME_MESSAGES) {
            self.to_all(Lane::Votes, chunk.to_vec(), &mut parcels);
        }
        if self.does(Attack::Lazy) {
            let status = Status {
                epoch: facts.epoch,
                view: facts.view,
                finalized_height: Height(0),
                executed_height: Height(0),
                convicted: Digest::ZERO,
            };
            self.to_all(Lane::Votes, vec![Message::Status(status)], &mut parcels);
        }
        if self.does(Attack::FalseEvidence) {
            let evidence = self.false_evidence(facts);
            let message = Message::Evidence(Box::new(evidence));
            self.to_all(Lane::Control, vec![message], &mut parcels);
        }
        if self.does(Attack::GarbageReplies) {
            for message in self.garbage_replies(facts) {
                self.to_all(Lane::Fetch, vec![message], &mut parcels);
            }
        }
        if self.does(Attack::Oversized) {
            self.oversized(&mut parcels);
        }
        if self.does(Attack::ForgePayloads) {
            let bundle = self.forged_payloads();
            let requests = (0..8).map(|_| Message::BundleRequest(Digest(self.rng.random())));
            let requests = requests.collect();
            self.to_all(Lane::Transactions, vec![bundle], &mut parcels);
            self.to_all(Lane::Fetch, requests, &mut parcels);
        }
        if self.does(Attack::Replay) {
            for _ in 0..4 {
                if let Some(index) = self.memory.len().checked_sub(1) {
                    let index = self.rng.random_range(0..=index);
                    let (lane, bytes) = self.memory[index].clone();
                    for to in self.others() {
                        parcels.push(Parcel {
                            to,
                            lane,
                            bytes: bytes.clone(),
                            delay: Duration::ZERO,
                        });
                    }
                }
            }
        }
        parcels
    }

    /// Takes note of what others say, to say it again.
    pub(crate) fn overhears(&mut self, lane: Lane, bytes: &[u8]) {
        if self.does(Attack::LyingStandings)
            && let Ok(Frame(messages)) = Frame::decode(Copying(bytes))
        {
            self.lies.overhear(&messages, &mut self.rng);
        }
        if self.does(Attack::Replay) && self.rng.random_bool(0.1) {
            self.remember(lane, bytes);
        }
        if (self.does(Attack::WrongParents) || self.does(Attack::ReplayTransactions))
            && lane == Lane::Votes
            && let Ok(Frame(messages)) = Frame::decode(Copying(bytes))
        {
            for message in messages {
                if let Message::Proposal(proposal) = message {
                    self.saw(proposal.block);
                }
            }
        }
    }

    fn saw(&mut self, block: Arc<Block>) {
        if self.seen.len() == MAX_MEMORY {
            self.seen.remove(0);
        }
        self.seen.push(block);
    }

    fn remember(&mut self, lane: Lane, bytes: &[u8]) {
        if !self.does(Attack::Replay) {
            return;
        }
        if self.memory.len() < MAX_MEMORY {
            self.memory.push((lane, bytes.to_vec()));
        } else {
            let index = self.rng.random_range(0..MAX_MEMORY);
            self.memory[index] = (lane, bytes.to_vec());
        }
    }

    /// Other payloads under the number of one of its bundles; others' bundles are left as they are.
    fn other_payloads(&self, bundle: &OrderedBundle) -> OrderedBundle {
        let transfer = bundle.transaction().transfer();
        let key = crate::stock::identity_key(self.place);
        if transfer.sender != key.identity() {
            return bundle.clone();
        }
        let text = format!("other payloads than {}", bundle.reference().digest);
        let other = Bundle::of([text]).expect("it is small");
        let transaction = other.reference().order(&self.chain, &key, transfer.nonce);
        OrderedBundle::new(transaction, other).expect("it is its own reference")
    }

    /// A bundle in another's name: the signature is its own.
    fn forged_payloads(&mut self) -> Message {
        let bundle = Bundle::of([format!("forged {}", self.rng.random::<u64>())]);
        let bundle = bundle.expect("it is small");
        let key = crate::stock::identity_key(self.place);
        let order = bundle.reference().order(&self.chain, &key, 0);
        let victim = (self.place + 1) % self.validators;
        let transfer = Transfer {
            sender: crate::stock::identity_key(victim).identity(),
            nonce: self.rng.random_range(0..1_000),
            ..order.transfer().clone()
        };
        let transaction = Transaction::new(transfer, *order.signature());
        let forged = OrderedBundle::new(transaction, bundle);
        Message::Bundle(Box::new(forged.expect("it is its own reference")))
    }

    fn others(&self) -> Vec<usize> {
        (0..self.validators).filter(|v| *v != self.place).collect()
    }

    fn to_all(&self, lane: Lane, messages: Vec<Message>, parcels: &mut Vec<Parcel>) {
        let bytes = Frame(messages).encode().to_vec();
        for to in self.others() {
            parcels.push(Parcel {
                to,
                lane,
                bytes: bytes.clone(),
                delay: Duration::ZERO,
            });
        }
    }

    /// Whether it leads a view.
    fn leads(&self, epoch: Epoch, view: View) -> bool {
        self.leader(epoch, view) == self.place
    }

    fn leader(&self, epoch: Epoch, view: View) -> usize {
        let turn = view.0.div_ceil(self.turn).wrapping_add(epoch.0);
        (turn % self.validators as u64) as usize
    }

    fn give_up_before_own(&mut self, facts: &Facts, parcels: &mut Vec<Parcel>) {
        if !self.does(Attack::NullifyBefore) {
            return;
        }
        for ahead in 0..LOOKAHEAD {
            let view = View(facts.view.0.saturating_add(ahead));
            let is_before = self.leads(facts.epoch, view.next());
            if is_before && self.given_up < (facts.epoch, view) {
                self.given_up = (facts.epoch, view);
                let vote = self.vote(facts.epoch, view, VoteKind::Nullify);
                self.to_all(Lane::Votes, vec![Message::Vote(vote)], parcels);
            }
        }
    }

    fn reaches(&mut self, facts: &Facts, to: usize) -> bool {
        if self.does(Attack::Selective) && self.rng.random_bool(0.4) {
            return false;
        }
        if self.does(Attack::Twins) {
            // Without an exchange between the groups now and then, no validator would ever see both
            // votes.
            let other_half = to.is_multiple_of(2) == facts.second;
            return !other_half || self.rng.random_bool(0.1);
        }
        true
    }

    /// Changes that all receivers see alike.
    fn change(&mut self, facts: &Facts, messages: Vec<Message>) -> Vec<Message> {
        let mut changed = Vec::with_capacity(messages.len());
        for message in messages {
            match message {
                Message::Vote(mut vote) => {
                    let glitch = self.attacks.iter().any(|attack| match attack {
                        Attack::Glitch(from, until) => (*from..*until).contains(&facts.now_ms),
                        _ => false,
                    });
                    if glitch || self.does(Attack::GarbageVotes) {
                        vote.signature = self.garbage(vote.subject);
                    } else if self.does(Attack::Collude) {
                        let bytes = vote.subject.signed_bytes(&self.chain);
                        vote.signature = self.colluder.sign_vote(&bytes).0;
                    }
                    changed.push(Message::Vote(vote));
                    if self.does(Attack::EquivocateVotes) {
                        changed.extend(self.contradict(vote).map(Message::Vote));
                    }
                }
                Message::Certificate(_) if self.does(Attack::WithholdCertificates) => {}
                Message::Proposal(_)
                    if self.does(Attack::Lazy) || self.does(Attack::NullifyBefore) => {}
                Message::Proposal(proposal)
                    if self.does(Attack::Moody)
                        && (proposal.view.0 / self.validators as u64).is_multiple_of(2) => {}
                Message::Proposal(proposal) if self.does(Attack::JunkBlocks) => {
                    let junk = self.junk(&proposal);
                    changed.push(Message::Proposal(Box::new(junk)));
                }
                Message::Proposal(proposal) if self.does(Attack::WithholdCertificates) => {
                    let bare = Proposal {
                        certificates: Vec::new(),
                        ..*proposal
                    };
                    changed.push(Message::Proposal(Box::new(bare)));
                }
                Message::Proposal(proposal) if self.does(Attack::BadTransactions) => {
                    let bad = self.with_bad_transactions(*proposal);
                    changed.push(Message::Proposal(Box::new(bad)));
                }
                Message::Proposal(proposal) if self.does(Attack::OrderNothing) => {
                    let more = self.with_missing_bundles(*proposal);
                    changed.push(Message::Proposal(Box::new(more)));
                }
                Message::Proposal(proposal) if self.does(Attack::ReplayTransactions) => {
                    let again = self.with_old_transactions(*proposal);
                    changed.push(Message::Proposal(Box::new(again)));
                }
                Message::Proposal(proposal)
                    if self.does(Attack::OtherBorder)
                        && proposal.block.header().view < proposal.view =>
                {
                    let other = self.other_border(&proposal);
                    changed.push(Message::Proposal(Box::new(other)));
                }
                Message::Proposal(proposal) if self.does(Attack::WrongParents) => {
                    let wrong = self.wrong_parent(*proposal);
                    changed.push(Message::Proposal(Box::new(wrong)));
                }
                Message::BlockReply(_) | Message::RangeReply { .. }
                    if self.does(Attack::WithholdBlocks) => {}
                Message::BlockReply(_) if self.does(Attack::GarbageReplies) => {
                    changed.extend(self.garbage_replies(facts).into_iter().next());
                }
                Message::RangeReply { blocks, .. } if self.does(Attack::GarbageReplies) => {
                    changed.push(self.garbage_range(facts, blocks));
                }
                Message::SnapshotReply(Some(proof)) if self.does(Attack::StaleSnapshots) => {
                    let old = self.snapshot.get_or_insert(proof).clone();
                    changed.push(Message::SnapshotReply(Some(old)));
                }
                Message::ChunkReply { .. } if self.does(Attack::StaleSnapshots) => {}
                Message::SnapshotReply(proof) if self.does(Attack::GarbageReplies) => {
                    changed.push(Message::SnapshotReply(self.garbage_snapshot(proof)));
                }
                Message::ChunkReply { request, answer } if self.does(Attack::GarbageReplies) => {
                    let answer = self.garbage_part(answer);
                    changed.push(Message::ChunkReply { request, answer });
                }
                other => changed.push(other),
            }
        }
        changed
    }

    /// Another snapshot than the newest: none, an older one, or one that nobody has certified.
    fn garbage_snapshot(
        &mut self,
        proof: Option<Box<SnapshotProof>>,
    ) -> Option<Box<SnapshotProof>> {
        let mut proof = proof?;
        let old = self.snapshot.get_or_insert_with(|| proof.clone()).clone();
        match self.rng.random_range(0..5) {
            0 => return None,
            1 => return Some(old),
            2 => proof.finalization = old.finalization,
            3 => drop(proof.headers.pop()),
            _ => {
                // All is as it should be, but the signature.
                let state = proof.headers.first().map(|header| header.height);
                let mut parent = None;
                for header in &mut proof.headers {
                    if Some(header.executed_height) == state {
                        header.state_root = sha256(&[b"no state"]);
                    }
                    header.parent = parent.unwrap_or(header.parent);
                    parent = Some(header.id());
                }
                proof.finalization.subject.payload = parent.unwrap_or(Digest::ZERO);
            }
        }
        Some(proof)
    }

    fn garbage_part(&mut self, answer: ChunkAnswer) -> ChunkAnswer {
        match (self.rng.random_range(0..4), answer) {
            (0, _) => ChunkAnswer::TooMany,
            (1, _) => ChunkAnswer::Absent,
            (_, ChunkAnswer::Chunk(bytes)) => {
                let mut changed = bytes.to_vec();
                let place = self.rng.random_range(0..changed.len().max(1));
                if let Some(byte) = changed.get_mut(place) {
                    *byte ^= 1 << self.rng.random_range(0..8);
                }
                ChunkAnswer::Chunk(changed.into())
            }
            (_, other) => other,
        }
    }

    /// What one receiver gets of a message, and how long it is held back; `None` for nothing.
    fn for_receiver(
        &mut self,
        facts: &Facts,
        to: usize,
        message: &Message,
    ) -> Option<(Vec<Message>, Duration)> {
        let upper = to >= self.validators / 2;
        if self.does(Attack::ShunNext) || self.does(Attack::ShunAlways) {
            let view = match message {
                Message::Proposal(proposal) => Some((proposal.epoch, proposal.view)),
                Message::Vote(vote) => Some((vote.subject.epoch, vote.subject.view)),
                Message::Certificate(held) => Some((held.subject.epoch, held.subject.view)),
                _ => None,
            };
            let leader = view.map(|(epoch, view)| self.leader(epoch, view));
            let shuns = |leader| leader == self.place || self.does(Attack::ShunAlways);
            if leader.is_some_and(|leader| shuns(leader) && to == (leader + 1) % self.validators) {
                return None;
            }
        }
        if self.does(Attack::ShunNext)
            && let Message::Vote(Vote { subject, .. }) = message
            && subject.kind == VoteKind::Nullify
            && self.leads(
                subject.epoch,
                View(subject.view.0.saturating_sub(self.turn)),
            )
        {
            return None;
        }
        match message {
            Message::Proposal(proposal) => {
                if self.does(Attack::WithholdBlocks) && !to.is_multiple_of(3) {
                    return None;
                }
                let delay = if self.does(Attack::LateLeader) {
                    facts.leader_timeout * 19 / 20
                } else if self.does(Attack::Dawdle) {
                    facts.free * 19 / 20
                } else {
                    Duration::ZERO
                };
                let proposal = if self.does(Attack::EquivocateProposals) && upper {
                    self.twisted(proposal)
                } else {
                    (**proposal).clone()
                };
                Some((vec![Message::Proposal(Box::new(proposal))], delay))
            }
            Message::Bundle(_) if self.does(Attack::KeepPayloads) && self.rng.random_bool(0.5) => {
                None
            }
            Message::Bundle(bundle) if self.does(Attack::DoubleNumbers) && upper => {
                let other = self.other_payloads(bundle);
                Some((vec![Message::Bundle(Box::new(other))], Duration::ZERO))
            }
            Message::Vote(vote) if self.does(Attack::SplitVotes) && upper => {
                let vote = self.contradict(*vote).unwrap_or(*vote);
                Some((vec![Message::Vote(vote)], Duration::ZERO))
            }
            // It votes for what it proposed to each.
            Message::Vote(vote) if self.does(Attack::EquivocateProposals) && upper => {
                let second = self.contradict(*vote);
                let votes = second.into_iter().map(Message::Vote).collect();
                Some((votes, Duration::ZERO))
            }
            Message::Standing(standing) if self.does(Attack::LyingStandings) => {
                let forged = self.forged(facts.epoch, facts.view.next(), VoteKind::Nullify);
                let asker = ValidatorIndex(to as u32);
                let lie = self.lies.tell(standing, asker, forged, &mut self.rng)?;
                Some((vec![Message::Standing(Box::new(lie))], Duration::ZERO))
            }
            other => Some((vec![other.clone()], Duration::ZERO)),
        }
    }

    /// The same proposal with another timestamp: as valid as the first.
    fn twisted(&self, proposal: &Proposal) -> Proposal {
        let header = Header {
            timestamp_ms: proposal.block.header().timestamp_ms + 1,
            ..*proposal.block.header()
        };
        self.with_header(proposal, header)
    }

    /// A last block of the epoch that was never proposed, as if it had been notarized.
    fn other_border(&mut self, proposal: &Proposal) -> Proposal {
        let mut other = self.twisted(proposal);
        let subject = Subject {
            payload: other.block.id(),
            view: other.block.header().view,
            epoch: proposal.epoch,
            kind: VoteKind::Notarize,
        };
        let forged = self.forged(subject.epoch, subject.view, subject.kind);
        other.parent_certificate = Some(Certificate { subject, ..forged });
        other
    }

    fn junk(&mut self, proposal: &Proposal) -> Proposal {
        let header = *proposal.block.header();
        let header = if self.rng.random_bool(0.5) {
            Header {
                height: Height(1_000_000_000),
                ..header
            }
        } else {
            Header {
                parent: sha256(&[b"nobody's block", &header.view.0.to_be_bytes()]),
                ..header
            }
        };
        let mut junk = self.with_header(proposal, header);
        junk.parent_certificate = None;
        junk
    }

    fn wrong_parent(&mut self, proposal: Proposal) -> Proposal {
        self.saw(proposal.block.clone());
        let header = *proposal.block.header();
        let header = match self.rng.random_range(0..15) {
            choice @ 5.. => return self.forked(&proposal, choice % 2 == 0),
            0 => Header {
                parent: sha256(&[b"no such block"]),
                ..header
            },
            1 => Header {
                parent_view: View(header.parent_view.0.saturating_sub(1)),
                ..header
            },
            2 => Header {
                height: header.height.next(),
                ..header
            },
            3 => Header {
                parent: Digest::ZERO,
                parent_view: View(0),
                height: Height(1),
                ..header
            },
            _ => Header {
                state_root: sha256(&[b"no such state"]),
                ..header
            },
        };
        let mut wrong = self.with_header(&proposal, header);
        if self.rng.random_bool(0.3) {
            wrong.parent_certificate = None;
        }
        wrong
    }

    /// A block on some older one, which it says was notarized when it was, or just now.
    fn forked(&mut self, proposal: &Proposal, truly: bool) -> Proposal {
        let back = self.rng.random_range(1..=self.seen.len().min(4));
        let old = self.seen[self.seen.len() - back].clone();
        let above = *old.header();
        let header = *proposal.block.header();
        let parent_view = if truly {
            above.view
        } else {
            header.parent_view
        };
        let header = Header {
            parent: old.id(),
            parent_view,
            height: above.height.next(),
            timestamp_ms: header.timestamp_ms.max(above.timestamp_ms + 1),
            executed_height: above.executed_height,
            state_root: above.state_root,
            body_root: Header::body_root_of(&[]),
            ..header
        };
        Proposal {
            block: Arc::new(Block::new(header, Vec::new()).expect("an empty block")),
            ..proposal.clone()
        }
    }

    fn with_bad_transactions(&mut self, proposal: Proposal) -> Proposal {
        let mut transactions = proposal.block.transactions().to_vec();
        let victim = SecretKey::from_bytes(&[self.rng.random_range(1..9); 32]);
        // All is well with it but the signature, if there is a transaction that it can follow.
        let last = transactions.last().map(Transaction::transfer);
        let transfer = Transfer {
            chain_tag: self.chain.tag(),
            sender: last.map_or(victim.identity(), |last| last.sender),
            nonce: last.map_or(self.rng.random_range(0..100), |last| last.nonce + 1),
            to: victim.identity(),
            amount: 1,
            fee: 1,
            memo: Memo::NONE,
        };
        transactions.push(Transaction::new(transfer, IdentitySignature([7; 64])));
        Self::with_transactions(&proposal, transactions).expect("one more fits")
    }

    /// The same block with other transactions; `None` if they are too many.
    fn with_transactions(proposal: &Proposal, transactions: Vec<Transaction>) -> Option<Proposal> {
        let header = Header {
            body_root: Header::body_root_of(&transactions),
            ..*proposal.block.header()
        };
        let block = Block::new(header, transactions).ok()?;
        Some(Proposal {
            block: Arc::new(block),
            ..proposal.clone()
        })
    }

    /// The same block, with further bundles of its own that were never made, if it has ordered one of its own there.
    fn with_missing_bundles(&mut self, proposal: Proposal) -> Proposal {
        let key = crate::stock::identity_key(self.place);
        let mut transactions = proposal.block.transactions().to_vec();
        let mut own = transactions.iter().map(Transaction::transfer).rev();
        let last = own.find(|own| own.sender == key.identity());
        let Some(first) = last.map(|last| last.nonce + 1) else {
            return proposal;
        };
        let count = if self.rng.random_bool(0.1) { 1_100 } else { 20 };
        for number in first..first + count {
            let reference = BundleRef {
                digest: Digest(self.rng.random()),
                bytes: 100,
                count: 1,
            };
            transactions.push(reference.order(&self.chain, &key, number));
        }
        Self::with_transactions(&proposal, transactions).unwrap_or(proposal)
    }

    /// The same block, with what some older one holds before its own transactions; now and then with
    /// what it holds itself twice.
    fn with_old_transactions(&mut self, proposal: Proposal) -> Proposal {
        self.saw(proposal.block.clone());
        let own = proposal.block.transactions();
        let old = self.seen[self.rng.random_range(0..self.seen.len())].clone();
        let transactions: Vec<Transaction> =
            old.transactions().iter().chain(own).cloned().collect();
        Self::with_transactions(&proposal, transactions).unwrap_or(proposal)
    }

    fn with_header(&self, proposal: &Proposal, header: Header) -> Proposal {
        let transactions = proposal.block.transactions().to_vec();
        let block = Block::new(header, transactions).expect("as many transactions as before");
        Proposal {
            block: Arc::new(block),
            ..proposal.clone()
        }
    }

    fn garbage(&mut self, subject: Subject) -> PartialSignature {
        if self.rng.random_bool(0.5) {
            let mut bytes = [0; 96];
            self.rng.fill_bytes(&mut bytes);
            return PartialSignature(bytes);
        }
        // A signature as good as any, but of another message.
        let other = subject.view.0.to_be_bytes();
        self.signer.sign_vote(&other).0
    }

    /// A valid vote that conflicts with this one, unless it is a nullify.
    fn contradict(&self, vote: Vote) -> Option<Vote> {
        if vote.subject.kind == VoteKind::Nullify {
            return None;
        }
        let subject = Subject {
            payload: sha256(&[b"another block", &vote.subject.payload.0]),
            ..vote.subject
        };
        let signature = self.signer.sign_vote(&subject.signed_bytes(&self.chain)).0;
        Some(Vote {
            subject,
            signature,
            ..vote
        })
    }

    fn vote(&mut self, epoch: Epoch, view: View, kind: VoteKind) -> Vote {
        let payload = match kind {
            VoteKind::Nullify => Digest::ZERO,
            _ => sha256(&[b"spam", &self.rng.random_range(0..4_u64).to_be_bytes()]),
        };
        let subject = Subject {
            epoch,
            view,
            kind,
            payload,
        };
        Vote {
            subject,
            signer: ValidatorIndex(self.place as u32),
            signature: self.signer.sign_vote(&subject.signed_bytes(&self.chain)).0,
        }
    }

    fn forged(&mut self, epoch: Epoch, view: View, kind: VoteKind) -> Certificate {
        let payload = match kind {
            VoteKind::Nullify => Digest::ZERO,
            _ => sha256(&[b"forged"]),
        };
        let mut signature = [0; 48];
        self.rng.fill_bytes(&mut signature);
        let proof = match self.kind {
            SchemeKind::BlsThreshold => Proof::Threshold(signature),
            SchemeKind::BlsAggregate => {
                // Now and then too few, now and then of another committee.
                let size = self.validators as u32 + u32::from(self.rng.random_bool(0.2));
                let count = self.rng.random_range(0..=size);
                let members: Vec<u32> = (0..count).collect();
                let signers = Signers::new(size, &members).expect("ascending members");
                Proof::Aggregate { signers, signature }
            }
        };
        Certificate {
            subject: Subject {
                epoch,
                view,
                kind,
                payload,
            },
            proof,
        }
    }

    fn empty_proposal(&mut self, epoch: Epoch, view: View) -> Message {
        let header = Header {
            chain: self.chain,
            epoch,
            view,
            height: Height(view.0),
            parent: sha256(&[b"some parent"]),
            parent_view: View(view.0 - 1),
            timestamp_ms: 1,
            executed_height: Height(0),
            state_root: Digest::ZERO,
            body_root: Header::body_root_of(&[]),
        };
        Message::Proposal(Box::new(Proposal {
            epoch,
            view,
            block: Arc::new(Block::new(header, Vec::new()).expect("an empty block")),
            parent_certificate: None,
            certificates: Vec::new(),
        }))
    }

    fn false_evidence(&mut self, facts: &Facts) -> Evidence {
        let victim = (self.place + 1) % self.validators;
        let vote = |payload: u8, signature: PartialSignature| Vote {
            subject: Subject {
                epoch: facts.epoch,
                view: facts.view,
                kind: VoteKind::Notarize,
                payload: Digest([payload; 32]),
            },
            signer: ValidatorIndex(victim as u32),
            signature,
        };
        let subject = vote(1, PartialSignature([0; 96])).subject;
        let first = self.garbage(subject);
        let own = self.signer.sign_vote(&subject.signed_bytes(&self.chain)).0;
        Evidence {
            first: vote(1, own),
            second: vote(if self.rng.random_bool(0.5) { 1 } else { 2 }, first),
        }
    }

    fn garbage_replies(&mut self, facts: &Facts) -> Vec<Message> {
        let header = Header {
            chain: self.chain,
            epoch: facts.epoch,
            view: facts.view,
            height: Height(self.rng.random_range(1..1_000)),
            parent: sha256(&[b"nobody's child"]),
            parent_view: View(facts.view.0.saturating_sub(1)),
            timestamp_ms: 1,
            executed_height: Height(0),
            state_root: Digest::ZERO,
            body_root: Header::body_root_of(&[]),
        };
        let block = Arc::new(Block::new(header, Vec::new()).expect("an empty block"));
        let finalization = Subject {
            epoch: facts.epoch,
            view: facts.view,
            kind: VoteKind::Finalize,
            payload: block.id(),
        };
        let mut forged = self.forged(facts.epoch, facts.view, VoteKind::Finalize);
        forged.subject = finalization;
        vec![
            Message::BlockReply(block.clone()),
            Message::RangeReply {
                blocks: vec![block],
                finalization: Some(forged),
            },
        ]
    }

    /// The asked blocks, the last of them replaced, or all in disorder.
    fn garbage_range(&mut self, facts: &Facts, mut blocks: Vec<Arc<Block>>) -> Message {
        let mut finalization = self.forged(facts.epoch, facts.view, VoteKind::Finalize);
        if self.rng.random_bool(0.3) {
            blocks.reverse();
        } else if let Some(last) = blocks.pop() {
            let header = Header {
                timestamp_ms: last.header().timestamp_ms + 1,
                ..*last.header()
            };
            let transactions = last.transactions().to_vec();
            let block = Block::new(header, transactions).expect("as many as before");
            finalization.subject.epoch = header.epoch;
            finalization.subject.view = header.view;
            finalization.subject.payload = block.id();
            blocks.push(Arc::new(block));
        }
        Message::RangeReply {
            blocks,
            finalization: Some(finalization),
        }
    }

    fn oversized(&mut self, parcels: &mut Vec<Parcel>) {
        let mut noise = vec![0; self.rng.random_range(1..4_000)];
        self.rng.fill_bytes(&mut noise);
        // A list that claims to be longer than it is.
        let claim = vec![0xff; 9];
        let vote = self.vote(Epoch(0), View(1), VoteKind::Nullify);
        let long = Frame(vec![
            Message::Vote(vote);
            quorate_types::limits::MAX_FRAME_MESSAGES + 1
        ]);
        for bytes in [noise, claim, long.encode().to_vec(), Vec::new()] {
            for to in self.others() {
                parcels.push(Parcel {
                    to,
                    lane: Lane::Votes,
                    bytes: bytes.clone(),
                    delay: Duration::ZERO,
                });
            }
        }
    }
}
