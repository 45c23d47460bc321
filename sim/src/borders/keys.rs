//! The nodes' keys, and the cheap signatures of their votes.
//!
//! A place means another node in another epoch, so the keys of a job are those of its subject's epoch: the set
//! that the first honest node has fixed, and that all others must fix as well.

use crate::{
    crypto::{self, PRIME},
    stock,
};
use quorate_consensus::{Job, JobId, Verdict, VoteSigner, Work};
use quorate_crypto::{
    bls::{HashedMessage, PartialSignature, Proof, Signers, VoteSecret},
    sha256,
};
use quorate_types::{Certificate, ChainId, Digest, Epoch, Identity, Subject, VoteKey};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

/// Making keys takes time, and all runs use the same ones.
static SECRETS: OnceLock<Vec<Arc<VoteSecret>>> = OnceLock::new();
const MOST_NODES: usize = 16;

pub(super) struct Keys {
    identities: Vec<Identity>,
    cheap: Vec<u64>,
    /// The nodes at the places of each epoch.
    sets: Mutex<BTreeMap<Epoch, Vec<usize>>>,
    /// Who has signed what, lately and before.
    signed: Mutex<[HashMap<Digest, BTreeSet<usize>>; 2]>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
}

impl Keys {
    pub(super) fn new(nodes: usize) -> Self {
        assert!(nodes <= MOST_NODES, "at most {MOST_NODES} nodes");
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        Self {
            identities: (0..nodes)
                .map(|node| stock::identity_key(node).identity())
                .collect(),
            cheap: (0..nodes).map(|_| rng.random_range(1..PRIME)).collect(),
            sets: Mutex::default(),
            signed: Mutex::default(),
        }
    }

    pub(super) fn nodes(&self) -> usize {
        self.identities.len()
    }

    pub(super) fn identity(&self, node: usize) -> Identity {
        self.identities[node]
    }

    /// The number of a node.
    pub(super) fn place(&self, identity: &Identity) -> Option<usize> {
        self.identities.iter().position(|held| held == identity)
    }

    /// The key that a bond names, and whose possession is proven.
    pub(super) fn secret(&self, node: usize) -> &'static VoteSecret {
        let secrets = SECRETS.get_or_init(|| {
            let mut rng = ChaCha8Rng::seed_from_u64(12);
            let secrets = (0..MOST_NODES).map(|_| Arc::new(VoteSecret::random(&mut rng)));
            secrets.collect()
        });
        &secrets[node]
    }

    pub(super) fn vote_key(&self, node: usize) -> VoteKey {
        VoteKey(self.secret(node).public_key())
    }

    /// Notes who validates in an epoch. Returns the nodes that were noted before, if they are others.
    pub(super) fn fix(&self, epoch: Epoch, members: &[Identity]) -> Option<Vec<usize>> {
        let nodes: Vec<usize> = members.iter().filter_map(|one| self.place(one)).collect();
        let mut sets = lock(&self.sets);
        let held = sets.entry(epoch).or_insert_with(|| nodes.clone());
        (*held != nodes).then(|| held.clone())
    }

    /// The nodes that validate in an epoch.
    pub(super) fn set(&self, epoch: Epoch) -> Option<Vec<usize>> {
        lock(&self.sets).get(&epoch).cloned()
    }

    /// The nodes that have signed for a subject.
    pub(super) fn signers(&self, chain: &ChainId, subject: &Subject) -> BTreeSet<usize> {
        let message = sha256(&[&subject.signed_bytes(chain)]);
        let signed = lock(&self.signed);
        let signers = signed.iter().filter_map(|signed| signed.get(&message));
        signers.flatten().copied().collect()
    }

    /// Forgets who signed what before the last call.
    pub(super) fn forget(&self) {
        let mut signed = lock(&self.signed);
        signed.swap(0, 1);
        signed[0].clear();
    }

    pub(super) fn signer(self: &Arc<Self>, node: usize, forges: bool) -> Arc<dyn VoteSigner> {
        Arc::new(Signer {
            keys: self.clone(),
            node,
            forges,
        })
    }

    /// Does what a node asks for that knows the keys of this epoch.
    pub(super) fn work(&self, chain: &ChainId, known: Epoch, job: Job) -> (JobId, Verdict) {
        let verdict = match &job.work {
            Work::Certify(batch) => {
                let message = crypto::hash(&batch.subject.signed_bytes(chain));
                let set = self.set(batch.subject.epoch).unwrap_or_default();
                let invalid: Vec<u32> = { batch.parts.iter() }
                    .filter(|(place, signature)| !self.holds(&set, *place, message, signature))
                    .map(|(place, _)| *place)
                    .collect();
                let mut places: Vec<u32> = batch.parts.iter().map(|(place, _)| *place).collect();
                places.sort_unstable();
                Verdict::Certified(match invalid.is_empty() {
                    true => Ok(self.proof(&set, &places, message)),
                    false => Err(invalid),
                })
            }
            Work::VerifyCertificates(certificates) => {
                let valid = certificates.iter().map(|one| self.verify(chain, one));
                Verdict::Verified(valid.collect())
            }
            Work::VerifyVotes(votes) => Verdict::Verified(
                votes
                    .iter()
                    .map(|vote| {
                        let message = crypto::hash(&vote.subject.signed_bytes(chain));
                        let set = self.set(known).unwrap_or_default();
                        self.holds(&set, vote.signer.0, message, &vote.signature)
                    })
                    .collect(),
            ),
        };
        (job.id, verdict)
    }

    fn holds(&self, set: &[usize], place: u32, message: u64, signature: &PartialSignature) -> bool {
        let node = set.get(place as usize);
        let expected = node.map(|node| crypto::multiply(self.cheap[*node], message));
        expected.is_some() && crypto::cheap_value(&signature.0) == expected
    }

    /// The sum of the secrets of those at these places; `None` if a place is nobody's.
    fn sum(&self, set: &[usize], places: &[u32]) -> Option<u64> {
        places.iter().try_fold(0, |sum, place| {
            let node = set.get(*place as usize)?;
            Some(crypto::add(sum, self.cheap[*node]))
        })
    }

    fn proof(&self, set: &[usize], places: &[u32], message: u64) -> Proof {
        let sum = self.sum(set, places).unwrap_or(0);
        let mut signature = [0; 48];
        signature[..8].copy_from_slice(&crypto::multiply(sum, message).to_be_bytes());
        let validators = u32::try_from(set.len()).expect("few nodes");
        Proof::Aggregate {
            signers: Signers::new(validators, places).expect("members, ascending"),
            signature,
        }
    }

    pub(super) fn verify(&self, chain: &ChainId, certificate: &Certificate) -> bool {
        let Some(set) = self.set(certificate.subject.epoch) else {
            return false;
        };
        let Proof::Aggregate { signers, signature } = &certificate.proof else {
            return false;
        };
        let members = signers.members();
        let quorum = set.len() - (set.len() - 1) / 3;
        if members.len() < quorum || signers.validators() as usize != set.len() {
            return false;
        }
        let message = crypto::hash(&certificate.subject.signed_bytes(chain));
        let sum = self.sum(&set, &members);
        sum.is_some() && crypto::cheap_value(signature) == sum.map(|s| crypto::multiply(s, message))
    }
}

struct Signer {
    keys: Arc<Keys>,
    node: usize,
    forges: bool,
}

impl VoteSigner for Signer {
    fn sign_vote(&self, message: &[u8]) -> (PartialSignature, Option<Arc<HashedMessage>>) {
        let mut signed = lock(&self.keys.signed);
        let signers = signed[0].entry(sha256(&[message])).or_default();
        signers.insert(self.node);
        drop(signed);
        let secret = self.keys.cheap[self.node];
        let secret = crypto::add(secret, u64::from(self.forges));
        let signature = crypto::multiply(secret, crypto::hash(message));
        (crypto::cheap_signature(signature), None)
    }
}
