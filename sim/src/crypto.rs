//! The validators' keys, and their cryptography.
//!
//! Beside BLS there is a scheme for simulations that are not about cryptography. It has the same
//! algebra over the integers modulo 2⁶¹ − 1 and costs next to nothing: a signature is the
//! secret times the message's hash, parts combine by interpolation or by a sum, errors of
//! colluders cancel where they do in BLS, and whoever holds all the secrets can verify. It is worth
//! nothing as cryptography and exists only here.

use quorate_consensus::{Batch, Job, JobId, Verdict, VoteSigner, Work, Worker};
use quorate_crypto::{
    bls::{
        AggregateMember, HashedMessage, PartialSignature, Proof, Scheme, SchemeKind, Signers,
        VoteSecret, deal,
    },
    sha256,
};
use quorate_types::{Certificate, ChainId, Digest, Subject, Vote};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};

/// Which cryptography is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cryptography {
    /// The cheap scheme.
    Cheap,
    /// BLS, as in the node.
    Bls,
}

pub(crate) const PRIME: u64 = (1 << 61) - 1;

pub(crate) fn multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b) % u128::from(PRIME);
    u64::try_from(product).expect("below the prime")
}

pub(crate) fn add(a: u64, b: u64) -> u64 {
    (a + b) % PRIME
}

fn subtract(a: u64, b: u64) -> u64 {
    (a + PRIME - b) % PRIME
}

fn inverse(a: u64) -> u64 {
    let (mut result, mut base, mut exponent) = (1, a, PRIME - 2);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, base);
        }
        base = multiply(base, base);
        exponent >>= 1;
    }
    result
}

pub(crate) fn hash(message: &[u8]) -> u64 {
    let Digest(digest) = sha256(&[message]);
    let number = u64::from_be_bytes(digest[..8].try_into().expect("eight bytes"));
    number % (PRIME - 1) + 1
}

pub(crate) fn cheap_signature(value: u64) -> PartialSignature {
    let mut bytes = [0; 96];
    bytes[..8].copy_from_slice(&value.to_be_bytes());
    PartialSignature(bytes)
}

pub(crate) fn cheap_value(bytes: &[u8]) -> Option<u64> {
    let (value, rest) = bytes.split_at(8);
    let value = u64::from_be_bytes(value.try_into().expect("eight bytes"));
    (value < PRIME && rest.iter().all(|byte| *byte == 0)).then_some(value)
}

enum Keys {
    Cheap {
        group: u64,
        secrets: Vec<u64>,
    },
    Bls {
        worker: Worker,
        secrets: Vec<Arc<VoteSecret>>,
    },
}

/// All keys of a chain, and a memory of who signed what.
pub(crate) struct Authority {
    kind: SchemeKind,
    chain: ChainId,
    quorum: usize,
    keys: Keys,
    signed: Mutex<HashMap<Digest, BTreeSet<u32>>>,
    /// What was found out before; the answers depend on the questions alone.
    found: Mutex<HashMap<Digest, Verdict>>,
}

/// One validator's key, perhaps with an error that another's cancels.
struct Signer {
    authority: Arc<Authority>,
    place: u32,
    /// Added to the secret.
    error: i64,
}

impl Authority {
    /// Fresh keys. The BLS ones are the same in all simulations of so many validators, since
    /// making them takes time.
    pub(crate) fn new(
        cryptography: Cryptography,
        kind: SchemeKind,
        validators: u32,
        chain: ChainId,
    ) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        // Written again here, so that the checkers do not depend on the code that they check.
        let quorum = (validators - (validators - 1) / 3) as usize;
        let keys = match cryptography {
            Cryptography::Cheap => {
                let degree = match kind {
                    SchemeKind::BlsThreshold => quorum,
                    SchemeKind::BlsAggregate => 1,
                };
                let polynomial: Vec<u64> =
                    (0..degree).map(|_| rng.random_range(1..PRIME)).collect();
                let share = |place: u32| {
                    let x = u64::from(place) + 1;
                    let steps = polynomial.iter().rev();
                    steps.fold(0, |sum, part| add(multiply(sum, x), *part))
                };
                let secrets = match kind {
                    SchemeKind::BlsThreshold => (0..validators).map(share).collect(),
                    SchemeKind::BlsAggregate => (0..validators)
                        .map(|_| rng.random_range(1..PRIME))
                        .collect(),
                };
                Keys::Cheap {
                    group: polynomial[0],
                    secrets,
                }
            }
            Cryptography::Bls => {
                let (scheme, secrets) = bls(kind, validators, &mut rng);
                let worker = Worker::new(chain, scheme);
                Keys::Bls { worker, secrets }
            }
        };
        Self {
            kind,
            chain,
            quorum,
            keys,
            signed: Mutex::default(),
            found: Mutex::default(),
        }
    }

    /// A validator's key.
    pub(crate) fn signer(self: &Arc<Self>, place: usize, error: i64) -> Arc<dyn VoteSigner> {
        Arc::new(Signer {
            authority: self.clone(),
            place: u32::try_from(place).expect("few validators"),
            error,
        })
    }

    /// The signers of these bytes.
    pub(crate) fn signers_of(&self, subject: &Subject) -> BTreeSet<u32> {
        let message = sha256(&[&subject.signed_bytes(&self.chain)]);
        lock(&self.signed)
            .get(&message)
            .cloned()
            .unwrap_or_default()
    }

    /// Forgets who signed what.
    pub(crate) fn forget(&self) {
        lock(&self.signed).clear();
        lock(&self.found).clear();
    }

    /// Does a job.
    pub(crate) fn work(&self, job: Job, seed: [u8; 32]) -> (JobId, Verdict) {
        let Keys::Bls { worker, .. } = &self.keys else {
            return (job.id, self.cheap_work(&job.work));
        };
        let question = sha256(&[format!("{:?}", Question(&job.work)).as_bytes()]);
        if let Some(verdict) = lock(&self.found).get(&question) {
            return (job.id, verdict.clone());
        }
        let last = worker.clone().run(vec![job], seed).pop();
        let (id, verdict) = last.expect("every job is answered");
        lock(&self.found).insert(question, verdict.clone());
        (id, verdict)
    }

    fn cheap_work(&self, work: &Work) -> Verdict {
        match work {
            Work::Certify(batch) => Verdict::Certified(self.certify(batch)),
            Work::VerifyCertificates(certificates) => {
                Verdict::Verified(certificates.iter().map(|c| self.verify(c)).collect())
            }
            Work::VerifyVotes(votes) => {
                Verdict::Verified(votes.iter().map(|vote| self.verify_vote(vote)).collect())
            }
        }
    }

    fn cheap_keys(&self) -> (u64, &[u64]) {
        match &self.keys {
            Keys::Cheap { group, secrets } => (*group, secrets),
            Keys::Bls { .. } => (0, &[]),
        }
    }

    fn certify(&self, batch: &Batch) -> Result<Proof, Vec<u32>> {
        let (group, secrets) = self.cheap_keys();
        let message = hash(&batch.subject.signed_bytes(&self.chain));
        let places: Vec<u32> = batch.parts.iter().map(|(place, _)| *place).collect();
        let distinct: BTreeSet<u32> = places.iter().copied().collect();
        let values: Option<Vec<u64>> = batch
            .parts
            .iter()
            .map(|(_, signature)| cheap_value(&signature.0))
            .collect();
        if let Some(values) = values
            && distinct.len() == places.len()
            && places.len() >= self.quorum
        {
            let (combined, expected) = match self.kind {
                SchemeKind::BlsThreshold => {
                    (interpolate(&places, &values), multiply(group, message))
                }
                SchemeKind::BlsAggregate => {
                    let secret = places.iter().fold(0, |sum, place| {
                        add(sum, secrets.get(*place as usize).copied().unwrap_or(0))
                    });
                    let sum = values.iter().fold(0, |sum, value| add(sum, *value));
                    (sum, multiply(secret, message))
                }
            };
            if combined == expected {
                return Ok(self.proof(combined, &distinct));
            }
        }
        Err(batch
            .parts
            .iter()
            .filter(|(place, signature)| !self.holds(*place, message, signature))
            .map(|(place, _)| *place)
            .collect())
    }

    fn proof(&self, combined: u64, signers: &BTreeSet<u32>) -> Proof {
        let mut signature = [0; 48];
        signature[..8].copy_from_slice(&combined.to_be_bytes());
        match self.kind {
            SchemeKind::BlsThreshold => Proof::Threshold(signature),
            SchemeKind::BlsAggregate => {
                let (_, secrets) = self.cheap_keys();
                let members: Vec<u32> = signers.iter().copied().collect();
                let validators = u32::try_from(secrets.len()).expect("few validators");
                Proof::Aggregate {
                    signers: Signers::new(validators, &members).expect("members, ascending"),
                    signature,
                }
            }
        }
    }

    fn verify(&self, certificate: &Certificate) -> bool {
        let (group, secrets) = self.cheap_keys();
        let message = hash(&certificate.subject.signed_bytes(&self.chain));
        let (secret, signature) = match (&certificate.proof, self.kind) {
            (Proof::Threshold(signature), SchemeKind::BlsThreshold) => (group, signature),
            (Proof::Aggregate { signers, signature }, SchemeKind::BlsAggregate) => {
                let members = signers.members();
                if members.len() < self.quorum || signers.validators() as usize != secrets.len() {
                    return false;
                }
                let secret = members.iter().fold(0, |sum, place| {
                    add(sum, secrets.get(*place as usize).copied().unwrap_or(0))
                });
                (secret, signature)
            }
            _ => return false,
        };
        cheap_value(signature) == Some(multiply(secret, message))
    }

    /// Whether a vote's signature holds, if that costs nothing to find out.
    pub(crate) fn holds_cheaply(&self, vote: &Vote) -> bool {
        matches!(self.keys, Keys::Cheap { .. }) && self.verify_vote(vote)
    }

    fn verify_vote(&self, vote: &Vote) -> bool {
        let message = hash(&vote.subject.signed_bytes(&self.chain));
        self.holds(vote.signer.0, message, &vote.signature)
    }

    fn holds(&self, place: u32, message: u64, signature: &PartialSignature) -> bool {
        let (_, secrets) = self.cheap_keys();
        let expected = secrets.get(place as usize).map(|s| multiply(*s, message));
        expected.is_some() && cheap_value(&signature.0) == expected
    }
}

/// What a piece of work asks, without what only helps to answer it.
struct Question<'a>(&'a Work);

impl std::fmt::Debug for Question<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Work::Certify(batch) => {
                write!(f, "certify {:?}", batch.subject)?;
                for (place, signature) in &batch.parts {
                    write!(f, " {place} {:?}", signature.0)?;
                }
                Ok(())
            }
            Work::VerifyCertificates(certificates) => {
                write!(f, "certificates")?;
                for certificate in certificates {
                    write!(f, " {:?} {:?}", certificate.subject, bytes_of(certificate))?;
                }
                Ok(())
            }
            Work::VerifyVotes(votes) => {
                write!(f, "votes")?;
                for vote in votes {
                    let signature = vote.signature.0;
                    write!(f, " {:?} {} {signature:?}", vote.subject, vote.signer.0)?;
                }
                Ok(())
            }
        }
    }
}

fn bytes_of(certificate: &Certificate) -> Vec<u8> {
    use commonware_codec::Encode;
    certificate.encode().to_vec()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// The value at zero of the polynomial through these points.
fn interpolate(places: &[u32], values: &[u64]) -> u64 {
    let mut sum = 0;
    for (i, value) in places.iter().zip(values) {
        let own = u64::from(*i) + 1;
        let (mut above, mut below) = (1, 1);
        for j in places.iter().filter(|j| *j != i) {
            let other = u64::from(*j) + 1;
            above = multiply(above, other);
            below = multiply(below, subtract(other, own));
        }
        sum = add(sum, multiply(*value, multiply(above, inverse(below))));
    }
    sum
}

fn bls(kind: SchemeKind, validators: u32, rng: &mut ChaCha8Rng) -> (Scheme, Vec<Arc<VoteSecret>>) {
    let (scheme, secrets) = match kind {
        SchemeKind::BlsThreshold => {
            let (keys, secrets) = deal(validators, rng);
            (Scheme::threshold(&keys), secrets)
        }
        SchemeKind::BlsAggregate => {
            let secrets: Vec<VoteSecret> = (0..validators)
                .map(|_| VoteSecret::random(&mut *rng))
                .collect();
            let members: Vec<AggregateMember> = secrets
                .iter()
                .map(|secret| AggregateMember {
                    identity: [0; 32],
                    key: secret.public_key(),
                    possession: secret.prove_possession("simulation", &[0; 32]),
                })
                .collect();
            (Scheme::aggregate("simulation", &members), secrets)
        }
    };
    let secrets = secrets.into_iter().map(Arc::new).collect();
    (scheme.expect("fresh keys"), secrets)
}

impl VoteSigner for Signer {
    fn sign_vote(&self, message: &[u8]) -> (PartialSignature, Option<Arc<HashedMessage>>) {
        if self.error == 0 {
            let mut signed = lock(&self.authority.signed);
            let signers = signed.entry(sha256(&[message])).or_default();
            signers.insert(self.place);
        }
        match &self.authority.keys {
            Keys::Cheap { secrets, .. } => {
                let secret = secrets[self.place as usize];
                let error = self.error.unsigned_abs();
                let secret = if self.error < 0 {
                    subtract(secret, error)
                } else {
                    add(secret, error)
                };
                (cheap_signature(multiply(secret, hash(message))), None)
            }
            Keys::Bls { secrets, .. } => {
                let secret = &secrets[self.place as usize];
                if self.error == 0 {
                    return secret.sign_vote(message);
                }
                shifted(secret, self.error).sign_vote(message)
            }
        }
    }
}

/// The secret with a small number added to it.
fn shifted(secret: &VoteSecret, error: i64) -> VoteSecret {
    let mut bytes = *secret.to_bytes();
    let mut carry = i128::from(error);
    for byte in bytes.iter_mut().rev() {
        carry += i128::from(*byte);
        *byte = carry.rem_euclid(256) as u8;
        carry = carry.div_euclid(256);
    }
    VoteSecret::from_bytes(&bytes).expect("hardly any secret is that near to the order")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{Epoch, ValidatorIndex, View, VoteKind};

    fn subject() -> Subject {
        Subject {
            epoch: Epoch(0),
            view: View(3),
            kind: VoteKind::Notarize,
            payload: Digest([7; 32]),
        }
    }

    /// The errors of two colluders cancel in a sum, and in no interpolation; whoever looks at the
    /// parts finds both. The cheap scheme must do here what BLS does.
    #[test]
    fn the_cheap_scheme_answers_as_bls_does() {
        let chain = ChainId(Digest([1; 32]));
        for kind in SchemeKind::ALL {
            for cryptography in [Cryptography::Cheap, Cryptography::Bls] {
                let authority = Arc::new(Authority::new(cryptography, kind, 4, chain));
                let part = |place: usize, error: i64| {
                    let signer = authority.signer(place, error);
                    let (signature, _) = signer.sign_vote(&subject().signed_bytes(&chain));
                    (place as u32, signature)
                };
                let certify = |parts: Vec<(u32, PartialSignature)>| {
                    let work = Work::Certify(Batch {
                        subject: subject(),
                        message: None,
                        parts,
                        verified: 0,
                    });
                    let job = Job { id: JobId(1), work };
                    match authority.work(job, [3; 32]).1 {
                        Verdict::Certified(result) => result,
                        _ => panic!("another answer"),
                    }
                };
                let proof = certify(vec![part(0, 0), part(1, 0), part(3, 0)]).expect("all hold");
                let certificate = Certificate {
                    subject: subject(),
                    proof,
                };
                let verify =
                    |work: Work| match authority.work(Job { id: JobId(2), work }, [4; 32]).1 {
                        Verdict::Verified(valid) => valid,
                        _ => panic!("another answer"),
                    };
                let mut other = certificate.clone();
                other.subject.view = View(4);
                let both = Work::VerifyCertificates(vec![certificate, other]);
                assert_eq!(verify(both), [true, false]);
                assert_eq!(
                    certify(vec![part(0, 0), part(1, 5), part(3, 0)]),
                    Err(vec![1])
                );
                let cancelled = certify(vec![part(0, 0), part(1, 5), part(3, -5)]);
                match kind {
                    SchemeKind::BlsThreshold => assert_eq!(cancelled, Err(vec![1, 3])),
                    SchemeKind::BlsAggregate => assert!(cancelled.is_ok()),
                }
                let vote = |error: i64| Vote {
                    subject: subject(),
                    signer: ValidatorIndex(2),
                    signature: part(2, error).1,
                };
                let work = Work::VerifyVotes(vec![vote(0), vote(1)]);
                assert_eq!(verify(work), [true, false]);
            }
        }
    }
}
