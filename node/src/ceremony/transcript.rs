//! A ceremony's messages in a file: for its own process to go on after a crash, and for everybody to check.

use super::{
    Plan, PlanError,
    board::{Board, Fault, Outcome, OutcomeError, Received, Verdict},
    message::{Message, Step},
};
use quorate_types::genesis::Genesis;
use serde::{Deserialize, Serialize};

/// The default name of a finished ceremony's file.
pub const TRANSCRIPT_FILE: &str = "transcript.json";

/// Size limit of a transcript: that of 256 participants has 13 MB.
pub const MAX_TRANSCRIPT_BYTES: u64 = 64 << 20;

/// A plan, messages, and a fault if there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transcript {
    pub plan: Plan,
    /// Encoded messages in hexadecimal, by step and participant.
    messages: Vec<String>,
    /// An encoded [`Fault`] in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

/// Why a transcript shows nothing.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    #[error("it is no transcript: {0}")]
    Json(#[from] serde_json::Error),
    #[error("its plan: {0}")]
    Plan(#[from] PlanError),
    #[error("its message {number} is none")]
    Message { number: usize },
    #[error("its message {number} is not signed by its participant, for this plan")]
    Unsigned { number: usize },
    #[error("its message {number} comes before those that it depends on")]
    Early { number: usize },
    #[error("{0}")]
    Guilty(String),
    #[error("its fault is none, or proves nothing")]
    Fault,
    #[error("{0}")]
    Outcome(#[from] OutcomeError),
    #[error("it is not complete: the {step} of {missing:?} are missing (participants, from 0 up)")]
    Incomplete { step: Step, missing: Vec<u32> },
}

impl Transcript {
    /// What is on a board, up to a step.
    pub fn of(board: &Board, last: Step) -> Self {
        let messages = board.messages().into_iter();
        let messages = messages.filter(|message| message.step() <= Some(last));
        Self {
            plan: board.plan().clone(),
            messages: messages.map(|m| hex::encode(m.encode())).collect(),
            fault: board.fault().map(|(fault, _)| hex::encode(fault.encode())),
        }
    }

    /// Adds a message at the end.
    pub fn push(&mut self, message: &Message) {
        self.messages.push(hex::encode(message.encode()));
    }

    /// # Errors
    ///
    /// If it has another shape, or its plan is none.
    pub fn from_json(text: &str) -> Result<Self, TranscriptError> {
        let transcript: Self = serde_json::from_str(text)?;
        transcript.plan.check()?;
        Ok(transcript)
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a transcript has only text keys")
    }

    /// Checks every message, and puts it on a board.
    ///
    /// # Errors
    ///
    /// If a message is none, is not signed, or proves a fault that the transcript does not state.
    pub fn replay(&self) -> Result<Board, TranscriptError> {
        let participants = self.plan.participants.len();
        let mut board = Board::new(self.plan.clone());
        for (number, text) in self.messages.iter().enumerate() {
            let bytes = hex::decode(text).ok();
            let message = bytes.and_then(|bytes| Message::decode(&bytes, participants));
            let message = message.ok_or(TranscriptError::Message { number })?;
            match board.receive(message) {
                Received::New | Received::Known | Received::Late => {}
                Received::Early => return Err(TranscriptError::Early { number }),
                Received::Unsigned => return Err(TranscriptError::Unsigned { number }),
                Received::Fault => return Err(guilty(&board)),
            }
            if board.outcome().is_none()
                && let (Some(round), Some(dealings)) = (board.round(), board.dealings())
            {
                let outcome = Outcome::compute(&self.plan, round, dealings)?;
                board.settle(outcome);
            }
        }
        if let Some(text) = &self.fault {
            let bytes = hex::decode(text).ok();
            let fault = bytes.and_then(|bytes| Fault::decode(&bytes, participants));
            let fault = fault.ok_or(TranscriptError::Fault)?;
            if !board.receive_fault(fault) {
                return Err(TranscriptError::Fault);
            }
        }
        Ok(board)
    }

    /// Checks a complete transcript: the genesis that it leads to.
    ///
    /// # Errors
    ///
    /// As for [`Self::replay`]; if there is a fault, or a message is missing.
    pub fn verify(&self) -> Result<Genesis, TranscriptError> {
        let board = self.replay()?;
        if board.fault().is_some() {
            return Err(guilty(&board));
        }
        for step in [Step::Announcement, Step::Dealing, Step::Acceptance] {
            let missing = board.missing(step);
            if !missing.is_empty() {
                return Err(TranscriptError::Incomplete { step, missing });
            }
        }
        let outcome = board.outcome().expect("there are acceptances");
        Ok(outcome.genesis.clone())
    }
}

fn guilty(board: &Board) -> TranscriptError {
    let describe = |(_, verdict): &(Fault, Verdict)| verdict.describe(board.plan());
    TranscriptError::Guilty(board.fault().map(describe).unwrap_or_default())
}
