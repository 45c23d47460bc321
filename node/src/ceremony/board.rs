//! What one process has seen of a ceremony: at most one message of each participant and step, and at most one fault.
//!
//! [`Board::receive`] takes a message only if it is signed, its step has begun, and everything in it that is public
//! is right. So what is on the board needs no second look.

use super::{
    Plan,
    message::{Body, Message, Step, acceptance, max_message_bytes},
};
use bytes::BufMut as _;
use quorate_crypto::{
    Digest,
    bls::{CheckedDealing, DealingError, KeyError, Round, Scheme, Sum},
    sha256,
};
use quorate_types::{
    ChainId,
    genesis::{Genesis, GenesisError},
};
use std::fmt;

/// The messages that a process has seen, and what follows from them.
pub struct Board {
    plan: Plan,
    digest: Digest,
    /// By participant and step.
    held: Vec<[Option<Held>; Step::ALL.len()]>,
    /// There once all announcements are.
    round: Option<Round>,
    dealings: Vec<CheckedDealing>,
    /// There once somebody has computed it from all dealings.
    outcome: Option<Outcome>,
    fault: Option<(Fault, Verdict)>,
}

struct Held {
    message: Message,
    id: Digest,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    New,
    /// It was there.
    Known,
    /// Its step has not begun.
    Early,
    /// It is not its participant's, or no message of a step.
    Unsigned,
    /// It contradicts another, but all have accepted the chain, which nothing can undo.
    Late,
    /// It has proven a fault, or there was one.
    Fault,
}

/// What all dealings make.
#[derive(Clone)]
pub struct Outcome {
    pub genesis: Genesis,
    pub chain: ChainId,
    pub scheme: Scheme,
}

/// Why no chain comes out of the dealings.
#[derive(Debug, thiserror::Error)]
pub enum OutcomeError {
    #[error("the dealings make no key: {0}")]
    Key(#[from] KeyError),
    #[error("{0}")]
    Genesis(#[from] GenesisError),
}

/// What proves to everybody who has the messages of the earlier steps that a participant is faulty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Two different messages of one step. Tag 0.
    Twice(Box<Message>, Box<Message>),
    /// A message that no honest participant signs. Tag 1.
    Wrong(Box<Message>),
    /// A dealing and a complaint about it. One of the two is wrong. Tag 2.
    Complaint(Box<Message>, Box<Message>),
}

/// Who is faulty, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub guilty: u32,
    pub offence: Offence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    Twice(Step),
    OpeningKey,
    /// Its dealing is for other announcements.
    Context,
    Dealing(DealingError),
    Sealed {
        player: u32,
    },
    Complaint {
        dealer: u32,
    },
    Chain(ChainId),
    Share,
}

impl Board {
    /// An empty board for a plan that has been checked.
    pub fn new(plan: Plan) -> Self {
        let digest = plan.digest();
        let held = plan.participants.iter().map(|_| Default::default());
        Self {
            digest,
            held: held.collect(),
            plan,
            round: None,
            dealings: Vec::new(),
            outcome: None,
            fault: None,
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    pub fn message(&self, participant: u32, step: Step) -> Option<&Message> {
        let held = self.held.get(participant as usize)?;
        held[step as usize].as_ref().map(|held| &held.message)
    }

    /// The [`Message::id`] of a message.
    pub fn id(&self, participant: u32, step: Step) -> Option<Digest> {
        let held = self.held.get(participant as usize)?;
        held[step as usize].as_ref().map(|held| held.id)
    }

    /// All messages, by step.
    pub fn messages(&self) -> Vec<&Message> {
        let all = |step| (0..self.plan.size()).filter_map(move |one| self.message(one, step));
        Step::ALL.into_iter().flat_map(all).collect()
    }

    /// Whose message of a step is missing.
    pub fn missing(&self, step: Step) -> Vec<u32> {
        let all = 0..self.plan.size();
        all.filter(|one| self.message(*one, step).is_none())
            .collect()
    }

    /// Whether messages of a step are taken.
    pub fn has_begun(&self, step: Step) -> bool {
        match step {
            Step::Announcement => true,
            Step::Dealing => self.round.is_some(),
            Step::Acceptance => self.outcome.is_some(),
            Step::Done => self.outcome.is_some() && self.missing(Step::Acceptance).is_empty(),
        }
    }

    /// Players and context, once all have announced their keys.
    pub fn round(&self) -> Option<&Round> {
        self.round.as_ref()
    }

    /// All dealings by their dealers' places, once they are all there.
    pub fn dealings(&self) -> Option<&[CheckedDealing]> {
        let is_complete = self.dealings.len() == self.plan.participants.len();
        is_complete.then_some(&*self.dealings)
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The acceptances begin.
    pub fn settle(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    pub fn fault(&self) -> Option<&(Fault, Verdict)> {
        self.fault.as_ref()
    }

    /// Takes a message. What proves a fault is kept as such, if it is the first.
    pub fn receive(&mut self, message: Message) -> Received {
        let Some(step) = message.step() else {
            return Received::Unsigned;
        };
        let participant = message.participant as usize;
        let id = message.id(&self.digest);
        let held = self.held.get(participant);
        let held = held.and_then(|steps| steps[step as usize].as_ref());
        if held.is_some_and(|held| held.id == id) {
            return Received::Known;
        }
        if self.fault.is_some() {
            return Received::Fault;
        }
        if held.is_some() && self.has_begun(Step::Done) {
            return Received::Late;
        }
        if !message.is_signed(&self.plan, &self.digest) {
            return Received::Unsigned;
        }
        if let Some(held) = held {
            let first = Box::new(held.message.clone());
            return self.convict(Fault::Twice(first, Box::new(message)));
        }
        match self.judge(&message) {
            Judged::Early => return Received::Early,
            Judged::Bad(_) => return self.convict(Fault::Wrong(Box::new(message))),
            Judged::Dealing(dealing) => {
                let at = self
                    .dealings
                    .partition_point(|one| one.dealer() < dealing.dealer());
                self.dealings.insert(at, *dealing);
            }
            Judged::Good => {}
        }
        self.held[participant][step as usize] = Some(Held { message, id });
        if self.round.is_none() && self.missing(Step::Announcement).is_empty() {
            self.round = Some(self.make_round());
        }
        Received::New
    }

    /// Takes a fault that somebody shows; `false` if it proves nothing, or nothing yet.
    pub fn receive_fault(&mut self, fault: Fault) -> bool {
        if self.fault.is_some() {
            return true;
        }
        if self.has_begun(Step::Done) {
            return false;
        }
        let Some(verdict) = self.verdict(&fault) else {
            return false;
        };
        self.fault = Some((fault, verdict));
        true
    }

    fn convict(&mut self, fault: Fault) -> Received {
        let holds = self.receive_fault(fault);
        debug_assert!(holds, "a fault of our own finding holds");
        Received::Fault
    }

    fn make_round(&self) -> Round {
        let mut players = Vec::with_capacity(self.held.len());
        let mut content = Vec::new();
        for place in 0..self.plan.size() {
            if let Some(Message {
                body: Body::Announcement(key),
                ..
            }) = self.message(place, Step::Announcement)
            {
                players.push(*key);
                content.put_slice(&key.0);
            }
        }
        Round {
            context: sha256(&[b"quorate/ceremony-context/1", &self.digest.0, &content]),
            players,
        }
    }

    /// Whether an honest participant could have signed this.
    fn judge(&self, message: &Message) -> Judged {
        let bad_unless = |good: bool, offence| match good {
            true => Judged::Good,
            false => Judged::Bad(offence),
        };
        match (&message.body, &self.round, &self.outcome) {
            (Body::Announcement(key), ..) => bad_unless(key.is_valid(), Offence::OpeningKey),
            (Body::Dealing { context, dealing }, Some(round), _) => {
                if *context != round.context {
                    return Judged::Bad(Offence::Context);
                }
                match dealing.check(round, message.participant, None) {
                    Ok(checked) => Judged::Dealing(Box::new(checked)),
                    Err(error) => Judged::Bad(Offence::Dealing(error)),
                }
            }
            (Body::Acceptance { chain, share }, _, Some(outcome)) => {
                if *chain != outcome.chain {
                    return Judged::Bad(Offence::Chain(*chain));
                }
                let signed = acceptance(&self.digest, chain, message.participant);
                let scheme = &outcome.scheme;
                let holds = scheme.verify_partial(&signed, message.participant, share);
                bad_unless(holds, Offence::Share)
            }
            // Another chain here is no fault: it could stop nobody but those who are a moment behind.
            (Body::Done(chain), _, Some(outcome))
                if self.has_begun(Step::Done) && *chain == outcome.chain =>
            {
                Judged::Good
            }
            _ => Judged::Early,
        }
    }

    /// Whom a fault names; `None` if it proves nothing by the messages that are here.
    pub fn verdict(&self, fault: &Fault) -> Option<Verdict> {
        let mut messages = fault.messages().into_iter();
        if !messages.all(|message| message.is_signed(&self.plan, &self.digest)) {
            return None;
        }
        match fault {
            Fault::Twice(first, second) => {
                let is_one_step =
                    first.participant == second.participant && first.step() == second.step();
                let differ = first.id(&self.digest) != second.id(&self.digest);
                (is_one_step && differ).then_some(Verdict {
                    guilty: first.participant,
                    offence: Offence::Twice(first.step()?),
                })
            }
            Fault::Wrong(message) => match self.judge(message) {
                Judged::Bad(offence) => Some(Verdict {
                    guilty: message.participant,
                    offence,
                }),
                _ => None,
            },
            Fault::Complaint(dealt, complained) => self.hear(dealt, complained),
        }
    }

    /// Who is right, the dealer or who complains.
    fn hear(&self, dealt: &Message, complained: &Message) -> Option<Verdict> {
        let round = self.round.as_ref()?;
        let Body::Complaint {
            context,
            dealer,
            complaint,
        } = &complained.body
        else {
            return None;
        };
        let Judged::Dealing(dealing) = self.judge(dealt) else {
            return None;
        };
        if *context != round.context || *dealer != dealt.participant {
            return None;
        }
        let player = complained.participant;
        Some(match dealing.is_convicted_by(round, player, complaint) {
            true => Verdict {
                guilty: *dealer,
                offence: Offence::Sealed { player },
            },
            false => Verdict {
                guilty: player,
                offence: Offence::Complaint { dealer: *dealer },
            },
        })
    }
}

/// What [`Board::judge`] finds.
enum Judged {
    /// What it depends on is not there.
    Early,
    Good,
    Dealing(Box<CheckedDealing>),
    Bad(Offence),
}

impl Outcome {
    /// The chain that all dealings of a round make.
    ///
    /// # Errors
    ///
    /// See [`OutcomeError`]; by chance with a probability of about 2⁻²⁵⁰.
    pub fn compute(
        plan: &Plan,
        round: &Round,
        dealings: &[CheckedDealing],
    ) -> Result<Self, OutcomeError> {
        let genesis = plan.genesis(&Sum::Fresh.keys(round, dealings)?)?;
        Ok(Self {
            chain: genesis.chain_id(),
            scheme: genesis.scheme()?,
            genesis,
        })
    }
}

impl Fault {
    /// The most bytes of an encoded fault.
    pub fn max_bytes(participants: usize) -> usize {
        1 + 2 * (4 + max_message_bytes(participants))
    }

    pub fn messages(&self) -> Vec<&Message> {
        match self {
            Self::Wrong(one) => vec![one],
            Self::Twice(one, other) | Self::Complaint(one, other) => vec![one, other],
        }
    }

    /// A tag, then each message with its length in four bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![match self {
            Self::Twice(..) => 0,
            Self::Wrong(_) => 1,
            Self::Complaint(..) => 2,
        }];
        for message in self.messages() {
            let message = message.encode();
            bytes.put_u32(u32::try_from(message.len()).expect("a message has less than 4 GiB"));
            bytes.extend(message);
        }
        bytes
    }

    /// Reads a fault in a ceremony of this many; `None` if it is none.
    pub fn decode(bytes: &[u8], participants: usize) -> Option<Self> {
        let (tag, mut rest) = bytes.split_first()?;
        let mut next = || {
            let (length, after) = rest.split_first_chunk()?;
            let (message, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            rest = after;
            Message::decode(message, participants).map(Box::new)
        };
        let fault = match tag {
            0 => Self::Twice(next()?, next()?),
            1 => Self::Wrong(next()?),
            2 => Self::Complaint(next()?, next()?),
            _ => return None,
        };
        rest.is_empty().then_some(fault)
    }
}

impl Verdict {
    /// What is said of it, with the participants' names.
    pub fn describe(&self, plan: &Plan) -> String {
        let guilty = plan.name_of(self.guilty);
        match self.offence {
            Offence::Sealed { player } => format!(
                "{guilty} has dealt {} a value that does not fit its own dealing",
                plan.name_of(player)
            ),
            Offence::Complaint { dealer } => format!(
                "{guilty} complains of the dealing of {}, and its complaint does not hold",
                plan.name_of(dealer)
            ),
            offence => format!("{guilty} {offence}"),
        }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice(Step::Announcement) => {
                f.write_str("has signed two different announcements")
            }
            Self::Twice(Step::Dealing) => f.write_str("has signed two different dealings"),
            Self::Twice(Step::Acceptance) => f.write_str("has accepted two different chains"),
            Self::Twice(Step::Done) => f.write_str("is done with two different chains"),
            Self::OpeningKey => f.write_str("has announced a key that is none"),
            Self::Context => f.write_str(
                "has dealt for other announcements than those that are here. Either it is faulty, or a participant \
                 has announced two keys",
            ),
            Self::Dealing(error) => write!(f, "has dealt wrongly: {error}"),
            Self::Sealed { player } => write!(f, "has dealt a wrong value to participant {player}"),
            Self::Complaint { dealer } => {
                write!(f, "complains of participant {dealer} without cause")
            }
            Self::Chain(chain) => {
                write!(f, "says that the chain is {chain}, and the dealings make another")
            }
            Self::Share => f.write_str("does not sign with the share that it was dealt"),
        }
    }
}
