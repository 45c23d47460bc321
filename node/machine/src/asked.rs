//! Requests under way to each peer. An answer that was not requested is not even decoded.

use parking_lot::Mutex;
use quorate_types::{Digest, Height, Message, ValidatorIndex};
use std::collections::VecDeque;

/// Most requests to one peer that are remembered; the oldest is forgotten. Twice what the engine
/// fetches at once.
const MAX_QUESTIONS: usize = 2 * quorate_consensus::MAX_WANTS;

/// A request whose answer is large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Block(Digest),
    /// Blocks from a height on.
    Range(Height),
}

/// The requests to each peer, counted as often as they were sent.
pub(crate) struct Asked(Vec<Mutex<VecDeque<Question>>>);

impl Asked {
    pub(crate) fn new(validators: usize) -> Self {
        Self((0..validators).map(|_| Mutex::default()).collect())
    }

    /// Notes the request in a message to a peer, if there is one.
    pub(crate) fn note(&self, peer: ValidatorIndex, message: &Message) {
        let question = match message {
            Message::BlockRequest(id) => Question::Block(*id),
            Message::RangeRequest(from) => Question::Range(*from),
            _ => return,
        };
        let Some(questions) = self.0.get(peer.as_usize()) else {
            return;
        };
        let mut questions = questions.lock();
        if questions.len() >= MAX_QUESTIONS {
            questions.pop_front();
        }
        questions.push_back(question);
    }

    /// Whether the peer was asked for this. The request then counts as answered.
    pub(crate) fn answered(&self, peer: ValidatorIndex, question: Question) -> bool {
        let mut questions = self.0[peer.as_usize()].lock();
        let place = questions.iter().position(|asked| *asked == question);
        place.and_then(|place| questions.remove(place)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_has_one_answer_from_whom_it_was_asked() {
        let asked = Asked::new(2);
        let (one, other) = (ValidatorIndex(0), ValidatorIndex(1));
        let request = Message::BlockRequest(Digest([1; 32]));
        let block = Question::Block(Digest([1; 32]));
        asked.note(one, &request);
        asked.note(one, &request);
        asked.note(one, &Message::RangeRequest(Height(7)));
        assert!(!asked.answered(other, block));
        assert!(!asked.answered(one, Question::Range(Height(8))));
        assert!(asked.answered(one, Question::Range(Height(7))));
        assert!(asked.answered(one, block) && asked.answered(one, block));
        assert!(!asked.answered(one, block));
    }

    #[test]
    fn the_oldest_question_is_forgotten() {
        let asked = Asked::new(1);
        let peer = ValidatorIndex(0);
        for height in 0..=MAX_QUESTIONS as u64 {
            asked.note(peer, &Message::RangeRequest(Height(height)));
        }
        assert!(!asked.answered(peer, Question::Range(Height(0))));
        assert!(asked.answered(peer, Question::Range(Height(1))));
    }
}
