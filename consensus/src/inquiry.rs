//! What this key may have voted that the journal does not hold, and the inquiry to the other
//! validators about it.
//!
//! The rules and why they are safe are in the crate's head, *A journal that is lost or old*.

use crate::{
    checks::Pending,
    engine::Engine,
    io::{Moment, Notice, Step, Target, Work},
    protocol::LostVotes,
};
use quorate_crypto::Digest;
use quorate_types::{
    Certificate, Epoch, EpochLength, JournalState, Message, Nonce, Position, Record, Silence,
    Standing, Subject, ValidatorIndex, View, Vote, VoteKind,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Blocks from which on a chain is so old that a key without any trace of use counts as
/// restored without its journal. Before that, validators that start for the first time join at
/// once. In the newest epoch views stand for blocks.
pub const ESTABLISHED_BLOCKS: u64 = 500;

/// How long a validator with a journal waits for peers that take part without answering. Versions
/// without this inquiry never answer it.
const UNANSWERED_AFTER: Duration = Duration::from_secs(3);

/// The purpose of an inquiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Whether the journal is an old copy.
    Check,
    /// Whether another process votes with this key, now that this validator may vote again.
    Confirm,
    /// How far the lost votes can go.
    Recover,
}

/// An inquiry that is under way.
pub(crate) struct Inquiry {
    pub(crate) purpose: Purpose,
    nonce: Nonce,
    since: Moment,
    /// When the peers that have not answered are asked again.
    due: Moment,
    answers: BTreeMap<ValidatorIndex, Answer>,
    /// Peers whose answers are being verified.
    verifying: BTreeSet<ValidatorIndex>,
    /// Peers that have sent anything since.
    heard: BTreeSet<ValidatorIndex>,
    /// Peers whose answers do not count, since they speak of an epoch whose keys are not known here.
    ahead: BTreeSet<ValidatorIndex>,
}

impl Inquiry {
    /// Upon a new epoch: who was ahead is asked again at once.
    pub(crate) fn renew(&mut self, now: Moment) {
        if !self.ahead.is_empty() {
            self.due = now;
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Answer {
    journal: JournalState,
    newest: Position,
}

impl Answer {
    fn is_whole(&self) -> bool {
        self.journal == JournalState::Whole
    }

    fn is_lost(&self) -> bool {
        self.journal == JournalState::Lost
    }
}

/// What is known of this key's votes besides the journal, and of the others' newest votes.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) inquiry: Option<Inquiry>,
    /// What the journal says about missing votes.
    pub(crate) silence: Option<Silence>,
    /// Nothing on this machine says that the key has voted before, and others may know better.
    pub(crate) fresh: bool,
    /// Peers without a link.
    unlinked: BTreeSet<ValidatorIndex>,
    /// Whether there have been so few links that the others could have been a quorum with another
    /// process of this key.
    apart: bool,
    /// Whether it is certain that no other process used the key when it could vote again.
    confirmed: bool,
    /// Votes up to this view may be missing in an intact journal: they are settled.
    pub(crate) settled: Position,
    /// A vote of this key that this validator has not cast, and the peer that told of it.
    pub(crate) elsewhere: Option<(Subject, Option<ValidatorIndex>)>,
    /// The newest vote of each peer.
    seen: BTreeMap<ValidatorIndex, Vote>,
    inquiries: u32,
    /// The view that the last block of the epoch before was proposed in, if that is known.
    last_block: Option<View>,
    /// Whether the operator was told that its statement contradicts the answers.
    refused: bool,
    /// The last inquiry that ended.
    ended: Option<Nonce>,
    /// Whether a peer answered it from a later epoch, so that its answer did not count.
    told_of_later: bool,
}

/// Whether this validator votes, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voting {
    Votes,
    /// It checks whether its journal is the newest.
    Checking {
        answers: usize,
        needed: usize,
    },
    /// Its journal lacks votes, and it asks how far they can go.
    Recovering {
        answers: usize,
        needed: usize,
        /// Validators that say their journals are lost, this one included.
        lost: usize,
        /// Whether the operator's statement contradicts the answers.
        refused: bool,
    },
    /// It votes from this view on.
    SilentUntil(Position),
    /// Another process votes with its key.
    KeyElsewhere {
        /// The peer that told, if it was a single one.
        told_by: Option<ValidatorIndex>,
    },
}

/// Whether a chain with this newest certificate is old for a validator that has a seat since an epoch. Before
/// that epoch the key had no vote, so a certificate of an earlier one says nothing, whatever its view.
fn is_established(
    newest: Position,
    since: Epoch,
    (epoch_length, views_per_block): (EpochLength, u64),
) -> bool {
    let Some(epochs) = newest.epoch.0.checked_sub(since.0) else {
        return false;
    };
    let blocks = epochs.saturating_mul(epoch_length.blocks());
    blocks.saturating_add(newest.view.0 / views_per_block) >= ESTABLISHED_BLOCKS
}

pub(crate) fn position_of(subject: &Subject) -> Position {
    Position {
        epoch: subject.epoch,
        view: subject.view,
    }
}

impl Memory {
    /// With the newest votes of others, each at the place that its signer has now. In another set its signer had another one.
    pub(crate) fn knowing(
        votes: Vec<Vote>,
        place: impl Fn(&Vote) -> Option<ValidatorIndex>,
    ) -> Self {
        let placed = votes
            .into_iter()
            .filter_map(|vote| Some((place(&vote)?, vote)));
        Self {
            seen: placed.collect(),
            ..Self::default()
        }
    }
}

impl Engine {
    /// The newest vote of each other validator that was seen, for the engine that comes after this one.
    pub fn seen(&self) -> Vec<Vote> {
        self.memory.seen.values().copied().collect()
    }

    /// Whether a view is above all views that lost votes can be in, given the newest certificate in the answers.
    pub(crate) fn is_beyond(&self, newest: Position, at: Position) -> bool {
        match self.rules().lost_votes() {
            LostVotes::Views(views) if at.epoch == newest.epoch => {
                at.view.0 > newest.view.0.saturating_add(views)
            }
            LostVotes::Views(views) => {
                let is_next = at.epoch == newest.epoch.next();
                let last = self.memory.last_block.filter(|_| at.epoch == self.epoch());
                at.epoch > newest.epoch.next()
                    || is_next && at.view.0 > views
                    || is_next && last.is_some_and(|last| last > newest.view)
            }
            LostVotes::NextEpoch => at.epoch > newest.epoch.next(),
        }
    }

    /// Notes the block that the epoch begins on.
    pub(crate) fn note_last_block(&mut self) {
        let last = self.tip().block.as_ref().map(|block| *block.header());
        let before = last.filter(|header| header.epoch.next() == self.epoch());
        self.memory.last_block = before.map(|header| header.view);
    }

    /// The first such view that this engine can come to.
    fn first_beyond(&self, newest: Position) -> Position {
        let (epoch, view) = match self.rules().lost_votes() {
            LostVotes::Views(views) if self.epoch() > newest.epoch => {
                (newest.epoch.next(), View(views + 1))
            }
            LostVotes::Views(views) => {
                let last = newest.view.0.saturating_add(views);
                (newest.epoch, View(last.saturating_add(1)))
            }
            LostVotes::NextEpoch => (newest.epoch.next().next(), View(1)),
        };
        Position { epoch, view }
    }

    /// Reads what the journal says about itself.
    pub(crate) fn restore_memory(&mut self, records: &mut Vec<Record>) {
        let last_blocks: BTreeSet<Digest> = records
            .iter()
            .filter_map(|record| match record {
                Record::Block(block) => Some(block),
                _ => None,
            })
            .filter(|block| self.config.epoch_length.is_last(block.height()))
            .map(|block| block.id())
            .collect();
        for record in records.iter() {
            let subject = match record {
                Record::Silence(silence) => {
                    self.memory.silence = Some(*silence);
                    continue;
                }
                Record::Certificate(certificate) => &certificate.subject,
                Record::Vote(vote) => &vote.subject,
                Record::Block(_) => continue,
            };
            let settled = match record {
                // R26: the epoch is over, and the votes in its later views may have been dropped.
                Record::Certificate(_)
                    if subject.kind == VoteKind::Finalize
                        && last_blocks.contains(&subject.payload) =>
                {
                    Position {
                        epoch: subject.epoch.next(),
                        view: View(0),
                    }
                }
                Record::Certificate(_) if subject.kind == VoteKind::Finalize => {
                    position_of(subject)
                }
                // This key has left the epochs before, and the journal need not hold its votes
                // there.
                _ => Position {
                    epoch: subject.epoch,
                    view: View(0),
                },
            };
            self.memory.settled = self.memory.settled.max(settled);
        }
        let told = |record: &Record| matches!(record, Record::Vote(_) | Record::Silence(_));
        let was_used = self.config.goes_on || records.iter().any(told);
        self.memory.fresh = self.config.fresh && !was_used;
        records.retain(|record| !matches!(record, Record::Silence(_)));
    }

    /// The record that the journal must keep about itself.
    pub(crate) fn silence_record(&self) -> Option<Record> {
        self.memory.silence.map(Record::Silence)
    }

    /// Starts the inquiry at the engine's start.
    pub(crate) fn begin_inquiry(&mut self, step: &mut Step) {
        let beyond = match self.memory.silence {
            None => true,
            Some(Silence::Unknown) => false,
            Some(Silence::Until(newest) | Silence::NullifyFrom(newest)) => {
                self.is_beyond(newest, self.position())
            }
        };
        self.memory.confirmed = beyond;
        if self.config.goes_on && beyond {
            return;
        }
        let told = self.config.survivors.is_some() && !beyond;
        let purpose = match self.memory.silence {
            Some(Silence::Unknown) => Purpose::Recover,
            Some(_) if told => Purpose::Recover,
            _ => Purpose::Check,
        };
        self.inquire(step, purpose);
    }

    /// The current epoch and view.
    pub(crate) fn position(&self) -> Position {
        Position {
            epoch: self.epoch(),
            view: self.view(),
        }
    }

    pub(crate) fn inquire(&mut self, step: &mut Step, purpose: Purpose) {
        if self.own_place().is_none() {
            return;
        }
        let Some(mut nonce) = self.config.nonce else {
            return;
        };
        // Each inquiry has a nonce of its own.
        self.memory.inquiries = self.memory.inquiries.wrapping_add(1);
        for (byte, count) in nonce.0.iter_mut().zip(self.memory.inquiries.to_be_bytes()) {
            *byte ^= count;
        }
        self.memory.inquiry = Some(Inquiry {
            purpose,
            nonce,
            since: step.now,
            due: step.now.after(self.config.timing.fetch_timeout),
            answers: BTreeMap::new(),
            verifying: BTreeSet::new(),
            heard: BTreeSet::new(),
            ahead: BTreeSet::new(),
        });
        step.send(Target::All, Message::Inquiry(nonce));
        self.conclude(step);
    }

    /// When the inquiry is repeated.
    pub(crate) fn inquiry_deadline(&self) -> Option<Moment> {
        self.memory.inquiry.as_ref().map(|inquiry| inquiry.due)
    }

    /// Repeats the inquiry to peers that have not answered, and starts the confirmation when it is
    /// due.
    pub(crate) fn on_inquiry_time(&mut self, step: &mut Step) {
        if self.memory.inquiry.is_none() {
            let newest = match self.memory.silence {
                Some(Silence::Until(newest) | Silence::NullifyFrom(newest)) => newest,
                Some(Silence::Unknown) | None => return,
            };
            let due = !self.memory.confirmed && self.is_beyond(newest, self.position());
            if due && self.memory.elsewhere.is_none() && !self.journal_is_ahead() {
                self.memory.confirmed = true;
                self.inquire(step, Purpose::Confirm);
            }
            return;
        }
        let interval = self.config.timing.fetch_timeout;
        let peers = self.config.peers();
        let Some(inquiry) = &mut self.memory.inquiry else {
            return;
        };
        if inquiry.due > step.now {
            return;
        }
        inquiry.due = step.now.after(interval);
        let (nonce, purpose) = (inquiry.nonce, inquiry.purpose);
        let lacking: Vec<ValidatorIndex> = peers
            .into_iter()
            .filter(|peer| {
                let answer = inquiry.answers.get(peer);
                answer.is_none_or(|answer| purpose == Purpose::Recover && !answer.is_whole())
            })
            .collect();
        for peer in lacking {
            step.send(Target::One(peer), Message::Inquiry(nonce));
        }
        self.conclude(step);
    }

    /// Upon a link having gone down. With fewer links than a quorum needs, another process with
    /// this key may come to vote unseen.
    pub(crate) fn note_unlinked(&mut self, peer: ValidatorIndex) {
        self.memory.unlinked.insert(peer);
        let committee = &self.committee;
        if committee.size() - self.memory.unlinked.len() < committee.quorum() {
            self.memory.apart = true;
        }
    }

    /// Upon a link having come up: the peer may not have received the inquiry. A validator that was
    /// without a quorum sends another inquiry before it votes.
    pub(crate) fn ask_linked(&mut self, step: &mut Step, peer: ValidatorIndex) {
        self.memory.unlinked.remove(&peer);
        let was_apart = std::mem::take(&mut self.memory.apart);
        let knows =
            self.memory.elsewhere.is_none() && self.memory.silence != Some(Silence::Unknown);
        if was_apart && knows && self.memory.inquiry.is_none() {
            return self.inquire(step, Purpose::Confirm);
        }
        if let Some(inquiry) = &self.memory.inquiry
            && !inquiry.answers.contains_key(&peer)
        {
            let question = Message::Inquiry(inquiry.nonce);
            step.send(Target::One(peer), question);
        }
    }

    /// Notes a peer's newest vote, for its inquiries, and that it takes part.
    pub(crate) fn note_seen(&mut self, from: ValidatorIndex, message: &Message) {
        if let Some(inquiry) = &mut self.memory.inquiry {
            inquiry.heard.insert(from);
        }
        let Message::Vote(vote) = message else {
            return;
        };
        let order = |vote: &Vote| (position_of(&vote.subject), vote.subject.kind);
        let held = self.memory.seen.get(&from);
        if vote.signer == from && held.is_none_or(|held| order(held) < order(vote)) {
            self.memory.seen.insert(from, *vote);
        }
    }

    /// Upon an inquiry of a peer.
    pub(crate) fn on_inquiry(&mut self, step: &mut Step, from: ValidatorIndex, nonce: Nonce) {
        let newest = self.newest_certificate();
        let standing = Standing {
            nonce,
            journal: self.journal_state(newest.as_ref()),
            newest,
            // R28: of an earlier epoch, too, where it may not have found out yet what it has lost.
            vote: self.memory.seen.get(&from).copied(),
        };
        step.send(Target::One(from), Message::Standing(Box::new(standing)));
    }

    fn journal_state(&self, newest: Option<&Certificate>) -> JournalState {
        let lost = match self.memory.silence {
            Some(Silence::Unknown) => true,
            Some(Silence::Until(newest) | Silence::NullifyFrom(newest)) => {
                !self.is_beyond(newest, self.position())
            }
            None => false,
        };
        if lost {
            JournalState::Lost
        } else if self.is_sure(newest) {
            JournalState::Whole
        } else {
            JournalState::Unsure
        }
    }

    /// Whether all votes of this validator are at most in the view that its newest certificate lets
    /// it enter.
    fn is_sure(&self, newest: Option<&Certificate>) -> bool {
        let entered = match newest {
            Some(newest) if newest.subject.epoch == self.epoch() => newest.subject.view.next(),
            // The certificate that ended the epoch before.
            Some(newest) if newest.subject.epoch.next() == self.epoch() => View(1),
            Some(_) => View(0),
            None => View(u64::from(self.epoch() == Epoch(0))),
        };
        let by_view = matches!(self.rules().lost_votes(), LostVotes::Views(_));
        (self.view() <= entered || !by_view)
            && self.own_place().is_some()
            && self.remembers(self.view())
    }

    fn newest_certificate(&self) -> Option<Certificate> {
        let highest = self.views.highest_exit();
        [
            highest,
            self.staging.target(),
            self.tip().certificate.as_ref(),
            self.border.ended_by(),
        ]
        .into_iter()
        .flatten()
        .max_by_key(|held| position_of(&held.subject))
        .cloned()
    }

    /// Whether all votes of this key in a view of this epoch are known.
    fn remembers(&self, view: View) -> bool {
        self.may_cast(view, VoteKind::Notarize)
    }

    /// Whether no vote that this key may have cast before forbids this kind of vote in a view of
    /// this epoch.
    pub(crate) fn may_cast(&self, view: View, kind: VoteKind) -> bool {
        let memory = &self.memory;
        let at = Position {
            epoch: self.epoch(),
            view,
        };
        let quiet = memory.inquiry.is_some()
            || memory.elsewhere.is_some()
            || at.epoch < self.config.silent_before
            // Votes of this epoch may have been dropped already, and any vote could contradict them.
            || self.journal_is_ahead();
        if quiet {
            return false;
        }
        match memory.silence {
            None => true,
            Some(Silence::Unknown) => false,
            Some(Silence::Until(newest)) => self.is_beyond(newest, at),
            Some(Silence::NullifyFrom(newest)) => {
                self.is_beyond(newest, at) || (kind == VoteKind::Nullify && at > newest)
            }
        }
    }

    /// Whether another engine may go on from this one without an inquiry (R28, *gone on*): it votes, and has had links
    /// to a quorum all the time, and nobody is ahead who may know of its votes.
    pub fn can_be_followed(&self) -> bool {
        self.voting() == Voting::Votes && !self.memory.apart && !self.memory.told_of_later
    }

    /// Whether this validator votes, and if not, why.
    pub fn voting(&self) -> Voting {
        let memory = &self.memory;
        if let Some((_, told_by)) = memory.elsewhere {
            return Voting::KeyElsewhere { told_by };
        }
        if let Some(inquiry) = &memory.inquiry {
            let needed = self.answers_needed(inquiry.purpose);
            return match inquiry.purpose {
                Purpose::Check | Purpose::Confirm => Voting::Checking {
                    answers: inquiry.answers.len(),
                    needed,
                },
                Purpose::Recover => Voting::Recovering {
                    answers: inquiry.answers.values().filter(|a| a.is_whole()).count(),
                    needed,
                    lost: 1 + inquiry.answers.values().filter(|a| a.is_lost()).count(),
                    refused: memory.refused,
                },
            };
        }
        match memory.silence {
            Some(Silence::Unknown) => Voting::Recovering {
                answers: 0,
                needed: self.answers_needed(Purpose::Recover),
                lost: 1,
                refused: false,
            },
            Some(Silence::Until(newest) | Silence::NullifyFrom(newest))
                if !self.is_beyond(newest, self.position()) =>
            {
                Voting::SilentUntil(self.first_beyond(newest))
            }
            _ => match self.later_epoch() {
                Some(epoch) => Voting::SilentUntil(Position {
                    epoch,
                    view: View(1),
                }),
                None => Voting::Votes,
            },
        }
    }

    /// How many others must answer.
    fn answers_needed(&self, purpose: Purpose) -> usize {
        let quorum = self.committee.quorum();
        match purpose {
            // R28
            Purpose::Check | Purpose::Confirm => quorum - 1,
            // R27
            Purpose::Recover => quorum,
        }
    }

    /// Upon an answer. It counts only for the inquiry under way, and only once it is verified.
    pub(crate) fn on_standing(
        &mut self,
        step: &mut Step,
        from: ValidatorIndex,
        standing: Standing,
    ) {
        let unknown = standing.vote.filter(|vote| self.is_unknown(vote));
        let ahead = self.is_of_unknown_epoch(&standing);
        let key_is_fresh = self.memory.fresh;
        let views_per_block = self.config.protocol.views_per_block();
        let lengths = (self.config.epoch_length, views_per_block);
        let own = self
            .own_place()
            .and_then(|own| self.committee.identity(own));
        let since = own.map_or(Epoch(0), |own| self.config.committees.first_seat(&own));
        let Some(inquiry) = &mut self.memory.inquiry else {
            self.memory.told_of_later |= ahead && self.memory.ended == Some(standing.nonce);
            return;
        };
        let fresh = standing.nonce == inquiry.nonce;
        let answered = inquiry.answers.get(&from).is_some_and(Answer::is_whole);
        if !fresh || answered || inquiry.verifying.contains(&from) {
            return;
        }
        // R28
        if ahead && inquiry.purpose != Purpose::Recover {
            inquiry.ahead.insert(from);
            return;
        }
        inquiry.ahead.remove(&from);
        let mut answer = Answer {
            journal: standing.journal,
            newest: Position::default(),
        };
        let work = match inquiry.purpose {
            Purpose::Recover => standing.newest.filter(|_| answer.is_whole()).map(|newest| {
                answer.newest = position_of(&newest.subject);
                Work::VerifyCertificates(vec![newest])
            }),
            Purpose::Check | Purpose::Confirm => match (unknown, standing.newest) {
                (Some(vote), _) => Some(Work::VerifyVotes(vec![vote])),
                (None, Some(newest)) if key_is_fresh => {
                    is_established(position_of(&newest.subject), since, lengths)
                        .then(|| Work::VerifyCertificates(vec![newest]))
                }
                (None, _) => None,
            },
        };
        let Some(work) = work else {
            inquiry.answers.insert(from, answer);
            return self.conclude(step);
        };
        inquiry.verifying.insert(from);
        let pending = Pending::Standing {
            from,
            nonce: inquiry.nonce,
            answer,
            vote: unknown.map(|vote| vote.subject),
        };
        self.checks.start(step, work, pending);
    }

    /// Whether an answer tells of an epoch whose validators and keys are not known here, so that nothing in it can be
    /// verified.
    fn is_of_unknown_epoch(&self, standing: &Standing) -> bool {
        let votes = standing.vote.iter().map(|vote| &vote.subject);
        let certificates = standing.newest.iter().map(|newest| &newest.subject);
        votes.chain(certificates).any(|subject| {
            subject.epoch > self.epoch() && !self.config.committees.votes_alike(subject.epoch)
        })
    }

    /// Upon the verification of an answer.
    pub(crate) fn on_standing_checked(
        &mut self,
        step: &mut Step,
        (from, nonce): (ValidatorIndex, Nonce),
        (answer, vote): (Answer, Option<Subject>),
        valid: bool,
    ) {
        let Some(inquiry) = &mut self.memory.inquiry else {
            return;
        };
        if inquiry.nonce != nonce {
            return;
        }
        inquiry.verifying.remove(&from);
        match (inquiry.purpose, vote) {
            // A claim without proof is no answer.
            (Purpose::Recover, _) if !valid => {}
            (Purpose::Recover, _) => {
                inquiry.answers.insert(from, answer);
            }
            // A forged vote says nothing about this key.
            (Purpose::Check | Purpose::Confirm, Some(vote)) if valid => {
                return self.on_unknown_vote(step, vote, Some(from));
            }
            (Purpose::Check, None) if valid => return self.on_restored_key(step, from),
            (Purpose::Check | Purpose::Confirm, _) => {
                inquiry.answers.insert(from, answer);
            }
        }
        self.conclude(step);
    }

    /// Concludes the inquiry once enough peers have answered.
    fn conclude(&mut self, step: &mut Step) {
        let Some(inquiry) = &self.memory.inquiry else {
            return;
        };
        let needed = self.answers_needed(inquiry.purpose);
        if inquiry.purpose != Purpose::Recover {
            let overdue = step.now.since(inquiry.since) >= UNANSWERED_AFTER;
            let silent = |peer: &&ValidatorIndex| {
                !inquiry.answers.contains_key(*peer) && !inquiry.ahead.contains(*peer)
            };
            let silent = inquiry.heard.iter().filter(silent).count();
            let doubtful = self.memory.fresh && !inquiry.verifying.is_empty();
            if !doubtful && inquiry.answers.len() + if overdue { silent } else { 0 } >= needed {
                self.memory.ended = Some(inquiry.nonce);
                self.memory.told_of_later = !inquiry.ahead.is_empty();
                self.memory.inquiry = None;
                self.memory.fresh = false;
                self.vote_again(step);
            }
            return;
        }
        let sure = inquiry.answers.values().filter(|answer| answer.is_whole());
        let newest = sure.clone().map(|answer| answer.newest).max();
        let sure = sure.count();
        let lost = inquiry.answers.values().filter(|answer| answer.is_lost());
        let lost = lost.count();
        let Some(newest) = newest else {
            return;
        };
        if sure >= needed {
            self.recovered(step, Silence::Until(newest));
        } else if let Some(told) = self.config.survivors
            && sure + lost + 1 == self.committee.size()
        {
            match self.fits(told, newest, lost + 1) {
                Ok(()) => self.recovered(step, Silence::NullifyFrom(newest)),
                Err(reason) if !self.memory.refused => {
                    self.memory.refused = true;
                    step.out.notices.push(Notice::WordRefused(reason));
                }
                Err(_) => {}
            }
        }
    }

    /// Whether the operator's statement agrees with the answers.
    fn fits(&self, told: Position, newest: Position, lost: usize) -> Result<(), String> {
        // R30
        if self.rules().lost_votes() == LostVotes::NextEpoch {
            return Err(
                "with this protocol no word of an operator replaces a journal: what was voted for binds until the \
                 epoch ends"
                    .to_owned(),
            );
        }
        let (size, quorum) = (self.committee.size(), self.committee.quorum());
        let entered = Position {
            epoch: newest.epoch,
            view: newest.view.next(),
        };
        let border = Position {
            epoch: newest.epoch.next(),
            view: View(1),
        };
        if told != entered && told != border {
            return Err(format!(
                "the validators with a journal are in view {}.{}, not {}.{}",
                entered.epoch, entered.view, told.epoch, told.view
            ));
        }
        if lost >= quorum {
            return Err(format!(
                "{lost} of {size} validators say that their journal is lost: as many as a quorum, so \
                 those that remember cannot know of all certificates"
            ));
        }
        Ok(())
    }

    /// Upon proof that the chain is old, for a key without any trace of use here: it may have voted
    /// on a machine that is gone.
    fn on_restored_key(&mut self, step: &mut Step, told_by: ValidatorIndex) {
        self.memory.fresh = false;
        self.keep_silence(step, Silence::Unknown);
        step.out.notices.push(Notice::RestoredKey { told_by });
        self.inquire(step, Purpose::Recover);
    }

    fn recovered(&mut self, step: &mut Step, silence: Silence) {
        self.memory.inquiry = None;
        self.memory.confirmed = false;
        self.keep_silence(step, silence);
        let newest = match silence {
            Silence::Until(newest) | Silence::NullifyFrom(newest) => newest,
            Silence::Unknown => Position::default(),
        };
        step.out.notices.push(Notice::Recovered {
            from: self.first_beyond(newest),
        });
        self.vote_again(step);
    }

    pub(crate) fn keep_silence(&mut self, step: &mut Step, silence: Silence) {
        self.memory.silence = Some(silence);
        step.out.persist.push(Record::Silence(silence));
        step.out.urgent = true;
    }

    /// What was not said while the others were asked is due now.
    fn vote_again(&mut self, step: &mut Step) {
        self.pace(step.now, true);
        self.on_new_block(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R28
    #[test]
    fn a_chain_is_old_for_a_newcomer_only_by_what_came_since_its_first_seat() {
        let length = EpochLength::new(1_000).expect("not zero");
        let is_old = |epoch, view, since| {
            let newest = Position {
                epoch: Epoch(epoch),
                view: View(view),
            };
            is_established(newest, Epoch(since), (length, 1))
        };
        // The genesis file's validators.
        assert!(!is_old(0, 499, 0));
        assert!(is_old(0, 500, 0) && is_old(1, 1, 0) && is_old(9, 0, 0));
        // A newcomer of epoch 7: the others show the end of epoch 6, or are further behind.
        assert!(!is_old(6, 1_004, 7) && !is_old(2, 700, 7));
        assert!(!is_old(7, 499, 7));
        // In these it has a seat, and may have voted on a machine that is gone.
        assert!(is_old(7, 500, 7) && is_old(8, 0, 7));
        // Basic HotStuff has three views for each block.
        let newest = |view| Position {
            epoch: Epoch(0),
            view: View(view),
        };
        assert!(!is_established(newest(1_499), Epoch(0), (length, 3)));
        assert!(is_established(newest(1_500), Epoch(0), (length, 3)));
    }
}
