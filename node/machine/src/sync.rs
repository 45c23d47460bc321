//! State sync: bringing the state to a recent block by its parts instead of executing every block.
//!
//! A validator that is new, or was away longer than its peers keep blocks, runs this before it takes
//! part again; nothing else of it runs meanwhile, so it casts no vote. It
//!
//! 1. asks all peers for their newest snapshots ([`crate::snapshots`]) and verifies what certifies
//!    each: a finalization, and the headers from it back to the snapshot's block. Nothing is fetched
//!    before. The newest one is the target. On a chain with a registry, the validators may be others by
//!    then: the peer is asked who has validated since the newest ones that are known, and proves it by
//!    handovers ([`quorate_types::Handover`]), which are kept;
//! 2. requests the parts of the state that are not right at the target's height from all peers that
//!    have the snapshot, each of a size that fits one message. Each part is verified against the
//!    root and written together with what is right now, so a crash costs what was on its way;
//! 3. fetches the snapshot's block, which becomes the newest stored one. The engine continues there.
//!
//! Parts that were right at an earlier height are brought up by their changes alone. So a validator
//! that was away for a while, an interrupted sync, and a target that has moved on are one case.
//!
//! Verified parts are written some at a time, while the next ones are verified ([`Saver`]): on a fast link
//! the disk's syncs take about as long as verifying does.
//!
//! # Hostile and slow peers
//!
//! - A part that does not verify is not written; its sender is not asked again, and its link is cut.
//!   It costs one part. Changes that do not verify are requested from another peer before anybody is
//!   blamed; if that fails too, this database may be at fault, and the whole part is fetched.
//! - "Too many entries" cannot be verified. It is believed until the first verified part shows how
//!   dense the state is, and from then on only from two peers.
//! - A peer that has nothing else to do is asked for parts that others were asked for: those outstanding for four times
//!   as long as the fastest peer needs, and those that it is likely to deliver well before the others. The first answer
//!   counts.
//! - Peers that have no snapshot, or an old one, are asked again every few seconds. The target moves
//!   only if no peer has it any longer.
//!
//! What an old but valid snapshot proves: a quorum finalized it once. A validator whose peers are
//! all faulty can be led to an old state of the chain, never to a forged one, and goes on from there
//! as soon as it reaches an honest peer.

#[cfg(test)]
mod changing;
mod inbox;
mod peers;
mod progress;
#[cfg(test)]
pub(crate) mod tests;
mod work;

pub use inbox::{Arrival, Arrivals, SyncInbox, inbox};
use progress::EXPLAINED_AFTER;
pub use progress::{Lack, Progress, Stage};
pub use work::MayAsk;

use self::{
    peers::Peers,
    work::{Item, Work},
};
use crate::{
    clock::Clock,
    directory::{Directory, PeerIndex},
    outlet::{Wire, send_to},
    replica::{Cut, Cutter},
};
use anyhow::Context;
use bytes::Bytes;
use commonware_codec::DecodeExt;
use quorate_consensus::Moment;
use quorate_storage::{
    store::{ChunkError, Coverage, Save, Store, adopt_handovers, next_of_snapshot},
    tree::Chunk,
};
use quorate_types::{
    Block, Certificate, ChainId, ChunkAnswer, ChunkRequest, Committees, Epoch, EpochLength, Frame,
    Handover, Head, Height, Identity, Message, SnapshotFlaw, SnapshotProof, SnapshotSubject,
    ValidatorSet,
};
use std::{sync::Arc, time::Duration};
use tracing::{info, warn};

/// How often all peers are asked for their newest snapshots.
const ASK_INTERVAL: Duration = Duration::from_secs(2);

/// How long the answers of further peers are waited for once there is one.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// How long after the first offer one is taken that peers with newer ones may have as well.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// How long after the first offer one is taken that too few peers make.
const LONE_OFFER_AFTER: Duration = Duration::from_secs(10);

/// A target of which no part comes for so long is given up.
const GAINS_WITHIN: Duration = Duration::from_secs(60);

/// The same if there is another offer.
const GAINS_WITHIN_BESIDE: Duration = Duration::from_secs(15);

/// How often a peer is asked for the target's block.
const BLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a request is outstanding at most.
const REQUEST_LASTS: Duration = Duration::from_secs(30);

/// How often the requests under way are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Most requests under way: what their answers take up in memory.
const MAX_OUTSTANDING: usize = 96;

/// How many parts of so many are written at once at most: those that come while others are being written.
/// A crash costs both: about a hundredth, or a few parts. Each time the disk syncs some files, which takes
/// as long as verifying a few parts.
pub fn parts_per_save(parts: usize) -> usize {
    (parts / 200).clamp(LEAST_PARTS_PER_SAVE, MOST_PARTS_PER_SAVE)
}

const LEAST_PARTS_PER_SAVE: usize = 6;

/// Parts are written in so many steps at most, even if the disk could follow: each leaves some files.
const MOST_SAVES: usize = 500;

/// Most parts that are verified and not written: what they take up in memory is 1.5 MB each.
const MOST_PARTS_PER_SAVE: usize = 32;

const UNSIGNED: &str = "a forged snapshot: its finalization does not verify";

/// Verifies a finalization with the committee's keys.
pub type VerifyCertificate = Box<dyn Fn(&Certificate) -> bool + Send>;

/// Who validates, on a chain with a registry: what is known by handovers, which `verify` uses too.
pub struct Validators {
    pub committees: Committees,
    pub epoch_length: EpochLength,
    /// The last epoch that has begun in this database.
    pub begun: Epoch,
}

/// Writes verified parts, in place or beside the verification of the next ones.
pub trait Saver: Send {
    /// Begins to write. What was begun before has been waited for.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    fn begin(&mut self, save: Save) -> anyhow::Result<()>;

    /// Whether something that was begun is still being written.
    fn is_busy(&self) -> bool;

    /// Waits until what was begun is durable.
    ///
    /// # Errors
    ///
    /// If the database failed: halt.
    fn wait(&mut self) -> anyhow::Result<()>;
}

/// Writes in place.
pub struct SaveInPlace(pub Store);

impl Saver for SaveInPlace {
    fn begin(&mut self, save: Save) -> anyhow::Result<()> {
        Ok(self.0.write_save(&save)?)
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// What state sync needs.
pub struct SyncParts {
    pub chain: ChainId,
    /// Whom to fetch from.
    pub peers: Directory,
    /// This node among the peers, if it is.
    pub own: Option<PeerIndex>,
    /// How many of the peers may be faulty.
    pub faults: usize,
    pub store: Store,
    pub saver: Box<dyn Saver>,
    pub clock: Arc<dyn Clock>,
    pub wire: Wire,
    pub cut: Cutter,
    pub verify: VerifyCertificate,
    /// `None` if the validators never change.
    pub validators: Option<Validators>,
    /// Whom a part may be requested from, for comparisons with other ways to share out a state.
    /// `None`: from everybody.
    pub may_ask: Option<MayAsk>,
}

impl SyncParts {
    fn forget_coming_sets(&self) -> anyhow::Result<()> {
        match &self.validators {
            Some(validators) => Ok(self.store.forget_coming_sets(validators.begun)?),
            None => Ok(()),
        }
    }
}

/// State sync under way. Driven by frames, links and time.
pub struct StateSync {
    parts: SyncParts,
    peers: Peers,
    coverage: Coverage,
    /// Whether the database holds the state of no block.
    begun: bool,
    target: Option<SnapshotSubject>,
    /// The validators of the epoch after the target's, if its state names others.
    next: Option<ValidatorSet>,
    work: Work,
    next_ask: Moment,
    first_offer: Option<Moment>,
    next_block_request: Moment,
    /// When a part was verified last, or the target was chosen.
    gained: Moment,
    progress: Progress,
    /// Parts that were verified since the last save.
    unsaved: usize,
    is_done: bool,
}

impl StateSync {
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn new(mut parts: SyncParts) -> anyhow::Result<Self> {
        let now = parts.clock.now();
        let coverage = parts.store.coverage()?;
        let begun = parts.store.is_syncing()?;
        if begun {
            parts.forget_coming_sets()?;
        }
        Ok(Self {
            peers: Peers::new(parts.peers.size(), parts.own),
            coverage,
            begun,
            target: None,
            next: None,
            work: Work::new(parts.may_ask.take()),
            next_ask: now,
            first_offer: None,
            next_block_request: now,
            gained: now,
            progress: Progress::new(now),
            unsaved: 0,
            is_done: false,
            parts,
        })
    }

    /// Whether the state is that of the target, and durable.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// The peers that were caught with something invalid.
    pub fn blamed(&self) -> Vec<Identity> {
        let banned = self.peers.banned().into_iter();
        banned
            .filter_map(|peer| self.parts.peers.identity(peer))
            .collect()
    }

    /// Whether anything was changed in the database. Before that, the sync can be given up.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// When [`Self::tick`] is due.
    pub fn due(&self) -> Moment {
        let look = self.parts.clock.now().after(LOOK_INTERVAL);
        look.min(self.next_ask)
    }

    /// Whether messages of this kind are read at all.
    pub fn wants(head: &Head) -> bool {
        matches!(
            head,
            Head::SnapshotReply | Head::ChunkReply | Head::BlockReply { .. } | Head::HandoverReply
        )
    }

    /// Upon a link that was made or lost.
    pub fn linked(&mut self, peer: Identity, up: bool) {
        let Some(place) = self.parts.peers.find(&peer) else {
            return;
        };
        if up {
            self.peers.at(place).linked = true;
            self.ask(place);
        } else {
            let lost = self.peers.at(place).unlink();
            self.work.put_back(place, lost);
        }
    }

    /// Upon a frame.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    pub fn receive(&mut self, from: Identity, bytes: Bytes) -> anyhow::Result<()> {
        let Some(place) = self.parts.peers.find(&from) else {
            return Ok(());
        };
        if self.peers.at(place).banned || self.is_done {
            return Ok(());
        }
        // Votes and proposals come in too, and are nobody's fault.
        let judge = |head: Head| Self::wants(&head).then_some(()).ok_or(());
        let Ok(messages) = Frame::read_judged(bytes, judge) else {
            return Ok(());
        };
        for message in messages {
            match message {
                Message::SnapshotReply(proof) => self.on_snapshot(place, proof),
                Message::ChunkReply { request, answer } => self.on_chunk(place, request, answer)?,
                Message::BlockReply(block) => self.on_block(block)?,
                Message::HandoverReply { after, handovers } => {
                    self.on_handovers(place, after, &handovers)?;
                }
                _ => {}
            }
        }
        self.go_on()
    }

    /// Does what is due.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    pub fn tick(&mut self) -> anyhow::Result<()> {
        let now = self.parts.clock.now();
        if self.is_done {
            return Ok(());
        }
        if now >= self.next_ask {
            self.next_ask = now.after(ASK_INTERVAL);
            for place in self.peers.linked() {
                self.ask(place);
            }
        }
        let floor = self.floor();
        if let Some(target) = self.target
            && now
                >= self
                    .gained
                    .after(match self.peers.offer_beside(target.height, floor) {
                        true => GAINS_WITHIN_BESIDE,
                        false => GAINS_WITHIN,
                    })
        {
            warn!(height = %target.height, "state sync: nobody delivers this state; looking for another one");
            self.peers.give_up(target.height);
            self.gained = now;
        }
        for place in self.peers.linked() {
            let late = self.peers.at(place).take_overdue(now, REQUEST_LASTS);
            self.work.put_back(place, late);
        }
        self.go_on()
    }

    fn ask(&mut self, peer: PeerIndex) {
        self.peers.at(peer).asked = true;
        self.send(peer, Message::SnapshotRequest);
    }

    fn send(&self, peer: PeerIndex, message: Message) {
        if let Some(identity) = self.parts.peers.identity(peer) {
            send_to(&self.parts.wire, identity, message);
        }
    }

    fn on_snapshot(&mut self, from: PeerIndex, proof: Option<Box<SnapshotProof>>) {
        let peer = self.peers.at(from);
        if !std::mem::take(&mut peer.asked) {
            return;
        }
        peer.answered = true;
        let Some(proof) = proof else {
            // It may have had one before it was started again.
            (peer.offer, peer.proof) = (None, None);
            return;
        };
        if peer.proof.as_ref() == Some(&*proof) {
            return;
        }
        // The validators may have changed since it told.
        peer.told_all = false;
        self.judge_offer(from, proof);
    }

    fn judge_offer(&mut self, from: PeerIndex, proof: Box<SnapshotProof>) {
        let subject = match proof.check(&self.parts.chain) {
            Ok(subject) => subject,
            Err(flaw) => return self.blame(from, &format!("a forged snapshot: {flaw}")),
        };
        // What former validators have signed verifies with what is known as long as nobody has told who came
        // after them. So each peer is asked first.
        if self.parts.validators.is_some() && !self.peers.at(from).told_all {
            self.peers.at(from).unproven = Some(proof);
            return self.ask_who_validates(from);
        }
        if !(self.parts.verify)(&proof.finalization) {
            return self.blame(from, UNSIGNED);
        }
        let next = match &self.parts.validators {
            None => Ok(None),
            Some(validators) => {
                let first = proof.headers.first().map(|header| header.epoch);
                let acting = first.and_then(|epoch| validators.committees.set(epoch));
                let acting = acting.ok_or(SnapshotFlaw::Registry);
                let of = (&self.parts.chain, validators.epoch_length);
                acting.and_then(|acting| next_of_snapshot(&proof, of, &acting))
            }
        };
        match next {
            Ok(next) => {
                let now = self.parts.clock.now();
                self.first_offer.get_or_insert(now);
                let peer = self.peers.at(from);
                peer.offer = Some(subject);
                peer.proof = Some(*proof);
                peer.next = next;
            }
            Err(flaw) => self.blame(from, &format!("a forged snapshot: {flaw}")),
        }
    }

    fn ask_who_validates(&mut self, peer: PeerIndex) {
        let Some(validators) = &self.parts.validators else {
            return;
        };
        let newest = validators.committees.newest();
        if self.peers.at(peer).asked_after.is_none() {
            self.peers.at(peer).asked_after = Some(newest);
            self.send(peer, Message::HandoverRequest(newest));
        }
    }

    /// Learns who has validated, as far as it is proven, and judges what could not be verified before.
    fn on_handovers(
        &mut self,
        from: PeerIndex,
        after: Epoch,
        handovers: &[Handover],
    ) -> anyhow::Result<()> {
        let asked = self
            .peers
            .at(from)
            .asked_after
            .take_if(|asked| *asked == after);
        let (Some(_), Some(validators)) = (asked, &self.parts.validators) else {
            return Ok(());
        };
        let (taken, flaw) = adopt_handovers(
            handovers,
            &validators.committees,
            (&self.parts.chain, validators.epoch_length),
            &self.parts.verify,
        );
        let newest = validators.committees.newest();
        if !taken.is_empty() {
            info!(epoch = %newest, changes = taken.len(), "state sync: learnt who validates");
            self.parts
                .store
                .take_handovers(&taken)
                .context("state sync")?;
        }
        if let Some(flaw) = flaw {
            self.blame(from, &format!("a forged handover: {flaw}"));
        } else {
            self.peers.at(from).told_all = newest <= after;
        }
        for place in self.peers.linked() {
            let peer = self.peers.at(place);
            if let Some(proof) = peer.unproven.take() {
                self.judge_offer(place, proof);
            } else if let (Some(proof), false) = (&peer.proof, taken.is_empty())
                && !(self.parts.verify)(&proof.finalization)
            {
                self.blame(place, UNSIGNED);
            }
        }
        Ok(())
    }

    /// Does what can be done now.
    fn go_on(&mut self) -> anyhow::Result<()> {
        self.choose_target()?;
        let now = self.parts.clock.now();
        // Links take a moment.
        let has_waited = now >= self.progress.started.after(EXPLAINED_AFTER);
        self.progress.lacks = self.peers.lack().filter(|_| has_waited);
        let Some(target) = self.target else {
            let text = match self.peers.any_unproven() {
                true => "who has validated since this node's newest block".to_owned(),
                false => self.peers.waiting_text(self.least()),
            };
            self.progress.waiting(text);
            return Ok(());
        };
        let right = self.coverage.share_at(target.height);
        let is_whole = self
            .coverage
            .parts()
            .all(|part| part.height == target.height);
        self.progress.fetching(now, target.height, right, is_whole);
        if is_whole {
            self.request_block(target);
        } else {
            self.request_parts(target);
        }
        self.progress.explain(now.since(self.gained));
        Ok(())
    }

    /// The height that a target must be above.
    fn floor(&self) -> Height {
        let covered = self.coverage.parts().map(|part| part.height).max();
        covered.unwrap_or(self.parts.store.tip().height)
    }

    /// The least height of a target. That of a state of which everything is here needs its block only, so
    /// it may be the target again.
    fn least(&self) -> Height {
        match self.begun {
            true => self.floor(),
            false => self.floor().next(),
        }
    }

    /// Chooses the newest snapshot, if there is no target, if no peer has it, or if so few have it that all
    /// of them may be faulty, while more offer a newer one.
    fn choose_target(&mut self) -> anyhow::Result<()> {
        // What a single peer offers may be a lure: a final state that nobody else keeps, and that it
        // does not serve. With f + 1 there is an honest one among them.
        let enough = self.parts.faults + 1;
        let is_deserted = self.target.is_some_and(|target| {
            self.peers.serving(target.height).len() < enough
                && (self.peers)
                    .newest_offer(enough, target.height.next())
                    .is_some()
        });
        if let Some(target) = &self.target
            && self.peers.have(target.height)
            && !is_deserted
        {
            return Ok(());
        }
        let now = self.parts.clock.now();
        let waited = self
            .first_offer
            .is_some_and(|first| now >= first.after(ANSWERS_WITHIN));
        if !waited && !self.peers.all_answered() {
            return Ok(());
        }
        let is_late = !self.peers.can_agree(enough)
            || (self.first_offer).is_some_and(|first| now >= first.after(LONE_OFFER_AFTER));
        let is_settled = self
            .first_offer
            .is_some_and(|first| now >= first.after(SETTLED_AFTER));
        let least = match is_deserted {
            false => self.least(),
            true => self.floor().next(),
        };
        // Peers that offer a newer state may not have this one any longer, or never had it: after a
        // start each takes a snapshot of its own.
        let above = || self.peers.newest_offer(enough, least);
        let above = || above().filter(|_| is_settled || self.target.is_some());
        let lone = || self.peers.newest_offer(1, least).filter(|_| is_late);
        let agreed = self.peers.agreed_offer(enough, least);
        let newest = agreed.or_else(above).or_else(lone);
        let Some(offer) = newest else {
            return Ok(());
        };
        if self.target.is_some_and(|target| target == offer) {
            return Ok(());
        }
        let continues = self.begun && self.target.is_none();
        if !self.begun {
            self.parts.store.begin_sync()?;
            self.parts.forget_coming_sets()?;
            self.coverage = self.parts.store.coverage()?;
            self.begun = true;
        }
        info!(height = %offer.height, root = %offer.root, "state sync: the target");
        if continues {
            // What has not come yet has the height of the genesis block.
            let here = 100.0 * (1.0 - self.coverage.share_at(Height(0)));
            info!(
                "state sync: continues: {here:.1} % of the state is here, and of that only changes are fetched"
            );
        }
        self.target = Some(offer);
        self.next = self.peers.next_of(&offer);
        self.gained = now;
        for peer in self.peers.iter_mut() {
            peer.forget_requests();
        }
        let open = self.coverage.parts();
        let open = open.filter(|part| part.height != offer.height);
        self.work.begin(open.map(|part| (part.span, part.height)));
        Ok(())
    }

    /// Hands out parts to the peers that have room, the fastest first.
    fn request_parts(&mut self, target: SnapshotSubject) {
        let now = self.parts.clock.now();
        let serving = self.peers.serving(target.height);
        let count = serving.len().max(1);
        let delivering = serving
            .iter()
            .filter(|peer| !self.peers.at(**peer).hangs(now));
        self.progress.peers = delivering.count();
        if serving.is_empty() {
            let text = self.peers.waiting_text(target.height.next());
            self.progress.waits_for = Some(text);
            return;
        }
        self.progress.waits_for = None;
        let mut open = self.peers.outstanding();
        let usual = self.peers.usual_time();
        for place in serving {
            let share = self.work.left().div_ceil(count).max(1);
            loop {
                let peer = self.peers.at(place);
                if peer.outstanding.len() >= peer.window.min(share) || open >= MAX_OUTSTANDING {
                    break;
                }
                let Some(item) = (self.work).next(place, now, usual, |peer| self.peers.takes(peer))
                else {
                    break;
                };
                let request = ChunkRequest {
                    height: target.height,
                    span: item.span,
                    since: item.since,
                };
                self.peers.at(place).outstanding.push((request, now));
                open += 1;
                self.send(place, Message::ChunkRequest(request));
            }
        }
    }

    fn on_chunk(
        &mut self,
        from: PeerIndex,
        request: ChunkRequest,
        answer: ChunkAnswer,
    ) -> anyhow::Result<()> {
        let now = self.parts.clock.now();
        let Some(took) = self.peers.at(from).answered(&request, now) else {
            return Ok(());
        };
        let Some(target) = self.target.filter(|target| target.height == request.height) else {
            return Ok(());
        };
        let item = Item {
            span: request.span,
            since: request.since,
        };
        let bytes = match answer {
            ChunkAnswer::Absent => {
                let peer = self.peers.at(from);
                peer.absent = Some(request.height);
                let mut lost = peer.forget_requests();
                lost.push(item);
                self.work.put_back(from, lost);
                // It may have a newer one.
                if !self.peers.at(from).asked {
                    self.ask(from);
                }
                return Ok(());
            }
            ChunkAnswer::TooMany => {
                let others = self.peers.serving(target.height).len();
                let believed = others.min(self.parts.faults + 1);
                if !self.work.too_many(item, from, believed) {
                    self.peers.at(from).refused();
                }
                return Ok(());
            }
            ChunkAnswer::Chunk(bytes) => bytes,
        };
        let size = bytes.len();
        self.progress.received(now, size as u64);
        if self.coverage.is_right_at(&item.span, target.height) {
            // Somebody else was faster.
            self.work.done(&item);
            return Ok(());
        }
        let chunk = Chunk::decode(bytes)
            .ok()
            .filter(|chunk| chunk.span().covers(&item.span) && chunk.since() == item.since.0);
        let Some(chunk) = chunk else {
            self.work.put_back(from, vec![item]);
            self.blame(
                from,
                "a part that does not decode, or is not the requested one",
            );
            return Ok(());
        };
        let at = (target.height, &target.root);
        let span = chunk.span();
        if self.coverage.is_saving(&span) {
            self.end_save()?;
        }
        let taken = self.parts.store.take_chunk(chunk, at, &mut self.coverage);
        match taken {
            Ok(entries) => {
                self.peers.at(from).delivered(took, size);
                self.gained = now;
                self.progress.verified(entries);
                self.work.learn(&span, entries);
                self.unsaved += 1;
                let parts = self.progress.parts as usize + self.work.left();
                let is_idle = !self.parts.saver.is_busy();
                if self.unsaved >= parts_per_save(parts)
                    || (is_idle && self.unsaved >= (parts / MOST_SAVES).max(1))
                {
                    self.begin_save()?;
                }
                for liar in self.work.done(&item) {
                    self.blame(liar, "changes that do not verify, while another peer's do");
                }
                Ok(())
            }
            Err(ChunkError::Proof(_)) if item.since > Height(0) => {
                let others = self.peers.serving(target.height).len();
                self.work.doubt(item, from, others);
                Ok(())
            }
            Err(ChunkError::Proof(_)) => {
                self.work.put_back(from, vec![item]);
                self.blame(from, "a part that does not verify");
                Ok(())
            }
            Err(ChunkError::Store(error)) => Err(error).context("state sync"),
        }
    }

    /// Writes the parts that were verified, and waits until they are durable.
    ///
    /// # Errors
    ///
    /// If the database fails: halt.
    pub fn save(&mut self) -> anyhow::Result<()> {
        self.begin_save()?;
        self.end_save()
    }

    /// Begins to write the parts that were verified. One save at a time: if the disk is slower than
    /// verification, verification waits here.
    fn begin_save(&mut self) -> anyhow::Result<()> {
        self.end_save()?;
        self.unsaved = 0;
        match self.coverage.begin_save() {
            Some(save) => self.parts.saver.begin(save).context("state sync"),
            None => Ok(()),
        }
    }

    fn end_save(&mut self) -> anyhow::Result<()> {
        self.parts.saver.wait().context("state sync")?;
        self.coverage.end_save();
        Ok(())
    }

    /// The peer is faulty. It is not asked again, and its link is cut.
    fn blame(&mut self, place: PeerIndex, why: &str) {
        let Some(identity) = self.parts.peers.identity(place) else {
            return;
        };
        if self.peers.at(place).banned {
            return;
        }
        warn!(peer = identity.short(), why, "state sync: a peer is faulty");
        let peer = self.peers.at(place);
        peer.banned = true;
        peer.offer = None;
        let lost = peer.unlink();
        self.work.put_back(place, lost);
        self.progress.blamed += 1;
        (self.parts.cut)(identity, Cut::Off);
    }

    /// Requests the target's block from one peer after the other.
    fn request_block(&mut self, target: SnapshotSubject) {
        let now = self.parts.clock.now();
        if now < self.next_block_request {
            return;
        }
        self.next_block_request = now.after(BLOCK_INTERVAL);
        if let Some(peer) = self.peers.next_in_turn() {
            self.send(peer, Message::BlockRequest(target.id));
        }
    }

    fn on_block(&mut self, block: Arc<Block>) -> anyhow::Result<()> {
        let Some(target) = self.target.filter(|target| target.id == block.id()) else {
            return Ok(());
        };
        if !self
            .coverage
            .parts()
            .all(|part| part.height == target.height)
        {
            return Ok(());
        }
        self.save()?;
        let finished = self
            .parts
            .store
            .finish_sync(block, None, target.root, self.next.as_ref());
        finished.context("state sync")?;
        info!(height = %target.height, bytes = self.progress.bytes, "state sync: the state is whole");
        self.progress.done();
        self.is_done = true;
        Ok(())
    }
}

impl std::fmt::Debug for StateSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StateSync({:?})", self.progress)
    }
}
