//! Identities and key shares, derived from seeds: every process makes the same ones.

use anyhow::{Context as _, Result};
use commonware_cryptography::{
    Signer as _,
    bls12381::{
        dkg::feldman_desmedt::deal,
        primitives::{
            group::Share,
            sharing::{Mode, Sharing},
            variant::MinSig,
        },
    },
    ed25519::{PrivateKey, PublicKey},
};
use commonware_utils::{N3f1, ordered::Set};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

/// The seed of the dealer.
const DEALER: u64 = 0x7065_6572;

/// The keys of one validator, and what is public of the others.
pub(crate) struct Keys {
    pub(crate) private: PrivateKey,
    pub(crate) public: PublicKey,
    /// In the order of their `--index`, so of their ports.
    pub(crate) by_index: Vec<PublicKey>,
    /// In the library's order, which decides who leads when.
    pub(crate) participants: Set<PublicKey>,
    pub(crate) polynomial: Sharing<MinSig>,
    pub(crate) share: Share,
}

impl Keys {
    pub(crate) fn derive(index: usize, validators: usize) -> Result<Self> {
        let private = (0..validators as u64).map(PrivateKey::from_seed);
        let private: Vec<PrivateKey> = private.collect();
        let by_index: Vec<PublicKey> = private.iter().map(|key| key.public_key()).collect();
        let participants = Set::from_iter_dedup(by_index.iter().cloned());
        let rng = ChaCha20Rng::seed_from_u64(DEALER);
        let (output, shares) =
            deal::<MinSig, _, N3f1>(rng, Mode::NonZeroCounter, participants.clone())
                .context("cannot deal the key shares")?;
        let public = by_index
            .get(index)
            .context("--index must be below --validators")?
            .clone();
        let share = shares.get_value(&public).context("no share")?.clone();
        Ok(Self {
            private: private[index].clone(),
            public,
            by_index,
            participants,
            polynomial: output.public().clone(),
            share,
        })
    }
}
