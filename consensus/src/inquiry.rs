//! What this key may have voted without the journal's knowledge, and asking the others about it.
//!
//! The rules and why they are safe are in the crate's head, *A journal that is lost or old*.

use crate::{
    engine::{Engine, Pending},
    io::{Moment, Notice, Output, Target, Work},
};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_types::{
    Certificate, Epoch, EpochLength, JournalState, Message, Nonce, Position, Record, Silence,
    Standing, Subject, ValidatorIndex, View, Vote, VoteKind,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How far above the newest certificate that `n - f` others hold a lost vote can be, in views.
const GAP_VIEWS: u64 = 2;

/// From how many blocks and views on a key of which nothing is known counts as one that was restored
/// without its journal. Before, validators that start for the first time join at once.
const ESTABLISHED_VIEWS: u64 = 500;

/// How long peers that take part may leave the question of a validator with its journal unanswered.
/// Versions without this question never answer it.
const UNANSWERED_AFTER: Duration = Duration::from_secs(3);

/// What the others are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Whether the journal is an old copy.
    Check,
    /// Whether somebody else votes with this key, now that it may vote again itself.
    Confirm,
    /// How far the lost votes can go.
    Recover,
}

/// A question to all others that is under way.
pub(crate) struct Inquiry {
    pub(crate) purpose: Purpose,
    nonce: Nonce,
    since: Moment,
    /// When those that have not answered are asked again.
    due: Moment,
    answers: BTreeMap<ValidatorIndex, Answer>,
    /// Whose answers are being verified.
    verifying: BTreeSet<ValidatorIndex>,
    /// Who has sent anything since.
    heard: BTreeSet<ValidatorIndex>,
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

/// What is known of this key's votes beside the journal, and of the others' newest votes.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) inquiry: Option<Inquiry>,
    /// What the journal says about its missing votes.
    pub(crate) silence: Option<Silence>,
    /// Nothing on this machine says that the key has voted before, and others may know better.
    fresh: bool,
    /// Peers without a link.
    unlinked: BTreeSet<ValidatorIndex>,
    /// Whether there have been so few links that others could have taken part with this key.
    apart: bool,
    /// Whether it is certain that nobody else used the key when it could vote again.
    confirmed: bool,
    /// Votes up to this view may be missing in an intact journal: they are settled.
    pub(crate) settled: Position,
    /// A vote of this key that this machine has not cast, and who told of it.
    pub(crate) elsewhere: Option<(Subject, Option<ValidatorIndex>)>,
    /// The newest vote of each peer.
    seen: BTreeMap<ValidatorIndex, Vote>,
    /// Inquiries so far.
    inquiries: u32,
    /// Whether the operator was told that its word does not fit.
    refused: bool,
}

/// Whether a validator votes, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voting {
    /// It does.
    Votes,
    /// It asks whether its journal is the newest.
    Checking {
        /// Answers that have come.
        answers: usize,
        /// Answers that it needs.
        needed: usize,
    },
    /// Its journal lacks votes, and it asks how far they can go.
    Recovering {
        /// Answers that have come.
        answers: usize,
        /// Answers that it needs.
        needed: usize,
        /// Validators whose journals are lost, by what they say, this one among them.
        lost: usize,
        /// Whether the operator's word does not fit what the others say.
        refused: bool,
    },
    /// It votes from this view on.
    SilentUntil(Position),
    /// Somebody else votes with its key.
    KeyElsewhere {
        /// Who told, if a single peer did.
        told_by: Option<ValidatorIndex>,
    },
}

/// Whether a view is above all views in which lost votes can be, if `newest` is the newest certificate
/// that the others told of.
pub(crate) fn is_beyond(newest: Position, at: Position) -> bool {
    let gap = if made(Mistake::SilenceTooShort) {
        0
    } else {
        GAP_VIEWS
    };
    if at.epoch == newest.epoch {
        at.view.0 > newest.view.0.saturating_add(gap)
    } else {
        at.epoch > newest.epoch.next() || at.epoch == newest.epoch.next() && at.view.0 > gap
    }
}

/// Whether a chain whose newest certificate is this one has gone on for a while.
fn is_established(newest: Position, epoch_length: EpochLength) -> bool {
    let blocks = newest.epoch.0.saturating_mul(epoch_length.blocks());
    blocks.saturating_add(newest.view.0) >= ESTABLISHED_VIEWS
}

/// The first view beyond, for a machine that is in this epoch.
fn first_beyond(newest: Position, epoch: Epoch) -> Position {
    if epoch > newest.epoch {
        return Position {
            epoch: newest.epoch.next(),
            view: View(GAP_VIEWS + 1),
        };
    }
    Position {
        epoch: newest.epoch,
        view: View(newest.view.0.saturating_add(GAP_VIEWS + 1)),
    }
}

pub(crate) fn position_of(subject: &Subject) -> Position {
    Position {
        epoch: subject.epoch,
        view: subject.view,
    }
}

impl Engine {
    /// Takes from the journal what it says about itself.
    pub(crate) fn restore_memory(&mut self, records: &mut Vec<Record>) {
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
                Record::Certificate(_) if subject.kind == VoteKind::Finalize => {
                    position_of(subject)
                }
                // This key has left the epochs before, and the journal need not tell what it said there.
                _ => Position {
                    epoch: subject.epoch,
                    view: View(0),
                },
            };
            self.memory.settled = self.memory.settled.max(settled);
        }
        let told = |record: &Record| matches!(record, Record::Vote(_) | Record::Silence(_));
        self.memory.fresh = self.config.fresh && !records.iter().any(told);
        records.retain(|record| !matches!(record, Record::Silence(_)));
    }

    /// What the journal must go on saying about itself.
    pub(crate) fn silence_record(&self) -> Option<Record> {
        self.memory.silence.map(Record::Silence)
    }

    /// Begins to ask, at the start of the machine.
    pub(crate) fn begin_inquiry(&mut self, now: Moment, out: &mut Output) {
        let beyond = match self.memory.silence {
            None => true,
            Some(Silence::Unknown) => false,
            Some(Silence::Until(newest) | Silence::NullifyFrom(newest)) => {
                is_beyond(newest, self.position())
            }
        };
        self.memory.confirmed = beyond;
        let told = self.config.survivors.is_some() && !beyond;
        let purpose = match self.memory.silence {
            Some(Silence::Unknown) => Purpose::Recover,
            Some(_) if told => Purpose::Recover,
            _ => Purpose::Check,
        };
        self.inquire(now, purpose, out);
    }

    /// The view that the machine is in.
    pub(crate) fn position(&self) -> Position {
        Position {
            epoch: self.epoch(),
            view: self.view,
        }
    }

    pub(crate) fn inquire(&mut self, now: Moment, purpose: Purpose, out: &mut Output) {
        if self.own_place().is_none() {
            return;
        }
        let Some(mut nonce) = self.config.nonce else {
            return;
        };
        // Each question has a name of its own.
        self.memory.inquiries = self.memory.inquiries.wrapping_add(1);
        for (byte, count) in nonce.0.iter_mut().zip(self.memory.inquiries.to_be_bytes()) {
            *byte ^= count;
        }
        self.memory.inquiry = Some(Inquiry {
            purpose,
            nonce,
            since: now,
            due: now.after(self.config.timing.fetch_timeout),
            answers: BTreeMap::new(),
            verifying: BTreeSet::new(),
            heard: BTreeSet::new(),
        });
        self.send(Target::All, Message::Inquiry(nonce), out);
        self.conclude(now, out);
    }

    /// When the question is due again.
    pub(crate) fn inquiry_deadline(&self) -> Option<Moment> {
        self.memory.inquiry.as_ref().map(|inquiry| inquiry.due)
    }

    /// Asks again those that have not answered, and asks for confirmation once it is time.
    pub(crate) fn on_inquiry_time(&mut self, now: Moment, out: &mut Output) {
        if self.memory.inquiry.is_none() {
            let newest = match self.memory.silence {
                Some(Silence::Until(newest) | Silence::NullifyFrom(newest)) => newest,
                Some(Silence::Unknown) | None => return,
            };
            let due = !self.memory.confirmed && is_beyond(newest, self.position());
            if due && self.memory.elsewhere.is_none() && self.future.is_empty() {
                self.memory.confirmed = true;
                self.inquire(now, Purpose::Confirm, out);
            }
            return;
        }
        let interval = self.config.timing.fetch_timeout;
        let peers = self.config.peers();
        let Some(inquiry) = &mut self.memory.inquiry else {
            return;
        };
        if inquiry.due > now {
            return;
        }
        inquiry.due = now.after(interval);
        let (nonce, purpose) = (inquiry.nonce, inquiry.purpose);
        let lacking: Vec<ValidatorIndex> = peers
            .into_iter()
            .filter(|peer| {
                let answer = inquiry.answers.get(peer);
                answer.is_none_or(|answer| purpose == Purpose::Recover && !answer.is_whole())
            })
            .collect();
        for peer in lacking {
            self.send(Target::One(peer), Message::Inquiry(nonce), out);
        }
        self.conclude(now, out);
    }

    /// Upon the end of a link. With fewer than a quorum in reach, another process with this key may come
    /// to vote unseen.
    pub(crate) fn note_unlinked(&mut self, peer: ValidatorIndex) {
        self.memory.unlinked.insert(peer);
        let committee = &self.config.committee;
        if committee.size() - self.memory.unlinked.len() < committee.quorum() {
            self.memory.apart = true;
        }
    }

    /// A link has come up: its other end may not have heard the question. Who was without a quorum asks
    /// once more before it votes.
    pub(crate) fn ask_linked(&mut self, now: Moment, peer: ValidatorIndex, out: &mut Output) {
        self.memory.unlinked.remove(&peer);
        let was_apart = std::mem::take(&mut self.memory.apart);
        let knows =
            self.memory.elsewhere.is_none() && self.memory.silence != Some(Silence::Unknown);
        if was_apart && knows && self.memory.inquiry.is_none() {
            return self.inquire(now, Purpose::Confirm, out);
        }
        if let Some(inquiry) = &self.memory.inquiry
            && !inquiry.answers.contains_key(&peer)
        {
            let question = Message::Inquiry(inquiry.nonce);
            self.send(Target::One(peer), question, out);
        }
    }

    /// Notes a peer's newest vote, for when it asks; and that it takes part.
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

    /// Upon a question from a validator that starts.
    pub(crate) fn on_inquiry(&mut self, from: ValidatorIndex, nonce: Nonce, out: &mut Output) {
        let newest = self.newest_certificate();
        let standing = Standing {
            nonce,
            journal: self.journal_state(newest.as_ref()),
            newest,
            vote: self.memory.seen.get(&from).copied(),
        };
        self.send(
            Target::One(from),
            Message::Standing(Box::new(standing)),
            out,
        );
    }

    fn journal_state(&self, newest: Option<&Certificate>) -> JournalState {
        let lost = match self.memory.silence {
            Some(Silence::Unknown) => true,
            Some(Silence::Until(newest) | Silence::NullifyFrom(newest)) => {
                !is_beyond(newest, self.position())
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

    /// Whether all votes of this validator are at most in the view that its newest certificate lets it
    /// enter.
    fn is_sure(&self, newest: Option<&Certificate>) -> bool {
        let entered = match newest {
            Some(newest) if newest.subject.epoch == self.epoch() => newest.subject.view.next(),
            // What ended the epoch before.
            Some(newest) if newest.subject.epoch.next() == self.epoch() => View(1),
            Some(_) => View(0),
            None => View(u64::from(self.epoch() == Epoch(0))),
        };
        self.view <= entered && self.own_place().is_some() && self.remembers(self.view)
    }

    fn newest_certificate(&self) -> Option<Certificate> {
        let highest = self.rounds.iter().rev().find_map(|(_, round)| round.exit());
        [
            highest,
            self.target.as_ref(),
            self.tip.certificate.as_ref(),
            self.border.as_ref(),
        ]
        .into_iter()
        .flatten()
        .max_by_key(|held| position_of(&held.subject))
        .cloned()
    }

    /// Whether everything is known that this key has said in a view of this epoch.
    fn remembers(&self, view: View) -> bool {
        self.may_cast(view, VoteKind::Notarize)
    }

    /// Whether nothing that this key may have said before forbids this kind of vote in a view of this
    /// epoch.
    pub(crate) fn may_cast(&self, view: View, kind: VoteKind) -> bool {
        let memory = &self.memory;
        let at = Position {
            epoch: self.epoch(),
            view,
        };
        let quiet = memory.inquiry.is_some()
            || memory.elsewhere.is_some()
            || at.epoch < self.config.silent_before
            // The journal tells of votes in a later epoch, so what was said in this one is forgotten
            // already: saying anything could contradict it.
            || (!self.future.is_empty() && !made(Mistake::LaterEpochForgotten));
        if quiet {
            return false;
        }
        match memory.silence {
            None => true,
            Some(Silence::Unknown) => false,
            Some(Silence::Until(newest)) => is_beyond(newest, at),
            Some(Silence::NullifyFrom(newest)) => {
                is_beyond(newest, at) || (kind == VoteKind::Nullify && at > newest)
            }
        }
    }

    /// Whether this validator votes, and why not.
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
                if !is_beyond(newest, self.position()) =>
            {
                Voting::SilentUntil(first_beyond(newest, self.epoch()))
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
        let quorum = self.config.committee.quorum();
        match purpose {
            // R28
            Purpose::Check | Purpose::Confirm => quorum - 1,
            Purpose::Recover if made(Mistake::AnswersTooFew) => quorum - 2,
            // R27
            Purpose::Recover => quorum,
        }
    }

    /// Upon an answer. It counts only for the question that is under way, and once what it says is
    /// verified.
    pub(crate) fn on_standing(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        standing: Standing,
        out: &mut Output,
    ) {
        let unknown = standing.vote.filter(|vote| self.is_unknown(vote));
        let (key_is_fresh, epoch_length) = (self.memory.fresh, self.config.epoch_length);
        let Some(inquiry) = &mut self.memory.inquiry else {
            return;
        };
        let fresh = standing.nonce == inquiry.nonce || made(Mistake::StaleStandings);
        let answered = inquiry.answers.get(&from).is_some_and(Answer::is_whole);
        if !fresh || answered || inquiry.verifying.contains(&from) {
            return;
        }
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
                    is_established(position_of(&newest.subject), epoch_length)
                        .then(|| Work::VerifyCertificates(vec![newest]))
                }
                (None, _) => None,
            },
        };
        let Some(work) = work else {
            inquiry.answers.insert(from, answer);
            return self.conclude(now, out);
        };
        inquiry.verifying.insert(from);
        let pending = Pending::Standing {
            from,
            nonce: inquiry.nonce,
            answer,
            vote: unknown.map(|vote| vote.subject),
        };
        self.start(work, pending, out);
    }

    /// Upon the verification of what an answer says.
    pub(crate) fn on_standing_checked(
        &mut self,
        now: Moment,
        (from, nonce): (ValidatorIndex, Nonce),
        (answer, vote): (Answer, Option<Subject>),
        valid: bool,
        out: &mut Output,
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
            // A forged vote tells nothing of this key.
            (Purpose::Check | Purpose::Confirm, Some(vote)) if valid => {
                return self.on_unknown_vote(now, vote, Some(from), out);
            }
            (Purpose::Check, None) if valid => return self.on_restored_key(now, from, out),
            (Purpose::Check | Purpose::Confirm, _) => {
                inquiry.answers.insert(from, answer);
            }
        }
        self.conclude(now, out);
    }

    /// Draws the conclusion once enough have answered.
    fn conclude(&mut self, now: Moment, out: &mut Output) {
        let Some(inquiry) = &self.memory.inquiry else {
            return;
        };
        let needed = self.answers_needed(inquiry.purpose);
        if inquiry.purpose != Purpose::Recover {
            let overdue = now.since(inquiry.since) >= UNANSWERED_AFTER;
            let silent = |peer: &&ValidatorIndex| !inquiry.answers.contains_key(*peer);
            let silent = inquiry.heard.iter().filter(silent).count();
            let doubtful = self.memory.fresh && !inquiry.verifying.is_empty();
            if !doubtful && inquiry.answers.len() + if overdue { silent } else { 0 } >= needed {
                self.memory.inquiry = None;
                self.memory.fresh = false;
                self.vote_again(now, out);
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
            self.recovered(now, Silence::Until(newest), out);
        } else if let Some(told) = self.config.survivors
            && sure + lost + 1 == self.config.committee.size()
        {
            match self.fits(told, newest, lost + 1) {
                Ok(()) => self.recovered(now, Silence::NullifyFrom(newest), out),
                Err(reason) if !self.memory.refused => {
                    self.memory.refused = true;
                    out.notices.push(Notice::WordRefused(reason));
                }
                Err(_) => {}
            }
        }
    }

    /// Whether the operator's word fits what the others say.
    fn fits(&self, told: Position, newest: Position, lost: usize) -> Result<(), String> {
        // R30
        let (size, quorum) = (self.config.committee.size(), self.config.committee.quorum());
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

    /// Upon the proof that the chain has gone on for long, to a key of which nothing is known here: it may
    /// have voted on a machine that is gone.
    fn on_restored_key(&mut self, now: Moment, told_by: ValidatorIndex, out: &mut Output) {
        self.memory.fresh = false;
        self.keep_silence(Silence::Unknown, out);
        out.notices.push(Notice::RestoredKey { told_by });
        self.inquire(now, Purpose::Recover, out);
    }

    fn recovered(&mut self, now: Moment, silence: Silence, out: &mut Output) {
        self.memory.inquiry = None;
        self.memory.confirmed = false;
        self.keep_silence(silence, out);
        let newest = match silence {
            Silence::Until(newest) | Silence::NullifyFrom(newest) => newest,
            Silence::Unknown => Position::default(),
        };
        out.notices.push(Notice::Recovered {
            from: first_beyond(newest, self.epoch()),
        });
        self.vote_again(now, out);
    }

    pub(crate) fn keep_silence(&mut self, silence: Silence, out: &mut Output) {
        self.memory.silence = Some(silence);
        out.persist.push(Record::Silence(silence));
        out.urgent = true;
    }

    /// What was not said while the others were asked is due now.
    fn vote_again(&mut self, now: Moment, out: &mut Output) {
        self.pace(now, true);
        self.on_new_block(now, out);
    }
}
