//! Tests of the vote schemes, by subject.

mod agreement;
mod bisection;
mod hostile;
mod keys;
mod primitives;
mod wire;
mod tune;

use super::{HashedMessage, PartialSignature, Scheme, ThresholdKeys, VoteSecret, deal};
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

/// Whatever the signers could not foresee.
const SEED: [u8; 32] = [42; 32];

fn rng(seed: u8) -> ChaCha20Rng {
    ChaCha20Rng::from_seed([seed; 32])
}

/// A committee with its scheme, and everyone's vote for one message.
struct Committee {
    keys: ThresholdKeys,
    secrets: Vec<VoteSecret>,
    scheme: Scheme,
    message: HashedMessage,
    votes: Vec<(u32, PartialSignature)>,
}

impl Committee {
    fn new(validators: u32) -> Self {
        let (keys, secrets) = deal(validators, rng(validators as u8));
        let scheme = Scheme::threshold(&keys).expect("a fresh dealing is valid");
        let message = HashedMessage::new(b"message");
        let votes = votes(&secrets, &message);
        Self {
            keys,
            secrets,
            scheme,
            message,
            votes,
        }
    }
}

fn votes(secrets: &[VoteSecret], message: &HashedMessage) -> Vec<(u32, PartialSignature)> {
    let sign = |(index, secret): (u32, &VoteSecret)| (index, secret.sign(message));
    (0..).zip(secrets).map(sign).collect()
}
