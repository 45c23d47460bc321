//! What a Byzantine validator answers to one that has lost its journal.

use quorate_types::{
    Certificate, JournalState, Message, Nonce, Standing, ValidatorIndex, View, Vote,
};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Most items of a kind that are remembered.
const MAX_HELD: usize = 24;

/// What it has received and may repeat at the wrong time.
#[derive(Default)]
pub(crate) struct Lies {
    certificates: Vec<Certificate>,
    votes: Vec<Vote>,
    nonces: Vec<Nonce>,
}

/// Keeps the old as well as the new.
fn keep<T>(held: &mut Vec<T>, thing: T, rng: &mut ChaCha8Rng) {
    if held.len() < MAX_HELD {
        held.push(thing);
    } else {
        let index = rng.random_range(0..MAX_HELD);
        held[index] = thing;
    }
}

impl Lies {
    pub(crate) fn overhear(&mut self, messages: &[Message], rng: &mut ChaCha8Rng) {
        for message in messages {
            match message {
                Message::Vote(vote) => keep(&mut self.votes, *vote, rng),
                Message::Certificate(certificate) => {
                    keep(&mut self.certificates, certificate.clone(), rng);
                }
                Message::Proposal(proposal) => {
                    let certificates = proposal.parent_certificate.iter();
                    for certificate in certificates.chain(&proposal.certificates) {
                        keep(&mut self.certificates, certificate.clone(), rng);
                    }
                }
                Message::Inquiry(nonce) => keep(&mut self.nonces, *nonce, rng),
                _ => {}
            }
        }
    }

    /// What it makes of an honest answer; `None` if it is withheld.
    pub(crate) fn tell(
        &self,
        honest: &Standing,
        asker: ValidatorIndex,
        forged: Certificate,
        rng: &mut ChaCha8Rng,
    ) -> Option<Standing> {
        // Claiming a whole journal is the lie that makes the others count its answer.
        let whole = Standing {
            journal: JournalState::Whole,
            ..honest.clone()
        };
        let any = |count: usize, rng: &mut ChaCha8Rng| {
            count.checked_sub(1).map(|last| rng.random_range(0..=last))
        };
        Some(match rng.random_range(0..10) {
            0 => return None,
            1 | 2 => Standing {
                newest: None,
                ..whole
            },
            3 | 4 => {
                let oldest = self.certificates.iter();
                let oldest = oldest.min_by_key(|held| (held.subject.epoch, held.subject.view));
                Standing {
                    newest: oldest.cloned(),
                    ..whole
                }
            }
            5 => Standing {
                newest: Some(forged),
                ..whole
            },
            6 => Standing {
                nonce: any(self.nonces.len(), rng).map_or(honest.nonce, |at| self.nonces[at]),
                newest: None,
                ..whole
            },
            7 => {
                let own: Vec<&Vote> = self.votes.iter().filter(|v| v.signer == asker).collect();
                let newest = own.iter().max_by_key(|v| (v.subject.epoch, v.subject.view));
                let vote = if rng.random_bool(0.5) {
                    newest.copied()
                } else {
                    any(own.len(), rng).map(|at| own[at])
                };
                Standing {
                    vote: vote.copied(),
                    ..whole
                }
            }
            8 => {
                let votes = &self.votes;
                let vote = any(votes.len(), rng).map(|at| {
                    let mut vote = votes[at];
                    vote.signer = asker;
                    vote.subject.view = View(vote.subject.view.0.saturating_add(1_000));
                    vote
                });
                Standing { vote, ..whole }
            }
            _ => Standing {
                journal: JournalState::Lost,
                ..honest.clone()
            },
        })
    }
}
