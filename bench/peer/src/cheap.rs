//! Votes and certificates that cost nothing and prove nothing, for validators that all behave: what
//! real ones would take is charged instead (see [`crate::charged`]).

use crate::charged::Meter;
use bytes::Bytes;
use commonware_codec::FixedSize as _;
use commonware_consensus::simplex::{scheme::Namespace, types::Subject};
use commonware_cryptography::{
    Digest, Hasher as _, Sha256,
    certificate::{
        AssemblyError, Attestation, Membership, Scheme, Subject as _, Verification, Verifier,
    },
    ed25519::PublicKey,
};
use commonware_parallel::Strategy;
use commonware_utils::{
    Faults as _, N3f1, Participant, iter::NonEmpty, ordered::Set, sequence::FixedBytes,
};
use rand::CryptoRng;
use std::sync::Arc;

/// The scheme of one validator. Like the threshold scheme that it stands for, it is batched, not
/// attributable, and its certificates do not name their signers.
#[derive(Clone, Debug)]
pub(crate) struct Cheap {
    pub(crate) me: Participant,
    pub(crate) participants: Set<PublicKey>,
    pub(crate) namespace: Namespace,
    pub(crate) meter: Arc<Meter>,
}

/// As long as a real signature.
type Seal = FixedBytes<48>;

/// A certificate over a message.
fn seal(namespace: &[u8], message: &Bytes) -> Seal {
    let digest = Sha256::hash(&[namespace, message]);
    let mut bytes = [0; 48];
    bytes[..32].copy_from_slice(digest.as_ref());
    Seal::new(bytes)
}

/// Makes a vote of a certificate, and a certificate of a vote.
fn mix(seal: &Seal, signer: Participant) -> Seal {
    let mut bytes: [u8; 48] = std::array::from_fn(|at| seal.as_ref()[at]);
    let place = (signer.get() + 1).to_be_bytes();
    let mixed = bytes.iter_mut().zip(place);
    mixed.for_each(|(byte, place)| *byte ^= place);
    Seal::new(bytes)
}

impl Cheap {
    fn sealed<D: Digest>(&self, subject: &Subject<'_, D>) -> Seal {
        seal(subject.namespace(&self.namespace), &subject.message())
    }

    fn quorum(&self) -> u32 {
        N3f1::quorum(self.participants.len())
    }
}

impl Verifier for Cheap {
    type Subject<'a, D: Digest> = Subject<'a, D>;
    type Faults = N3f1;
    type PublicKey = PublicKey;
    type Certificate = Seal;

    fn verify_certificate<R: CryptoRng, D: Digest>(
        &self,
        _: &mut R,
        subject: Subject<'_, D>,
        certificate: &Seal,
        _: &impl Strategy,
    ) -> bool {
        *certificate == self.sealed(&subject)
    }

    fn is_batchable() -> bool {
        true
    }

    fn max_certificate_size(_: u32) -> usize {
        Seal::SIZE
    }

    fn certificate_codec_config(&self) {}

    fn certificate_codec_config_unbounded() {}
}

impl Scheme for Cheap {
    type Signature = Seal;

    fn me(&self) -> Option<Membership> {
        Some(Membership::Signer(self.me))
    }

    fn participants(&self) -> &Set<PublicKey> {
        &self.participants
    }

    fn sign<D: Digest>(&self, subject: Subject<'_, D>) -> Option<Attestation<Self>> {
        self.meter.sign();
        Some(Attestation {
            signer: self.me,
            signature: mix(&self.sealed(&subject), self.me).into(),
        })
    }

    fn verify_attestation<R: CryptoRng, D: Digest>(
        &self,
        _: &mut R,
        subject: Subject<'_, D>,
        attestation: &Attestation<Self>,
        _: &impl Strategy,
    ) -> bool {
        let signature = attestation.signature.get();
        signature.is_some_and(|it| mix(it, attestation.signer) == self.sealed(&subject))
    }

    fn optimistic_assemble<'a, R, D, I, J>(
        &self,
        rng: &mut R,
        subject: Subject<'_, D>,
        pending: I,
        verified: J,
        strategy: &impl Strategy,
    ) -> Result<Seal, Verification<Self>>
    where
        R: CryptoRng,
        D: Digest,
        I: IntoIterator<Item = Attestation<Self>>,
        I::IntoIter: ExactSizeIterator + Send,
        J: IntoIterator<Item = &'a Attestation<Self>>,
        J::IntoIter: Send,
    {
        self.meter.certify(&subject);
        let sealed = self.sealed(&subject);
        let verified = verified.into_iter().count();
        let checked = self.verify_attestations(rng, subject, pending, strategy);
        let enough = verified + checked.verified.len() >= self.quorum() as usize;
        match enough && checked.invalid.is_empty() {
            true => Ok(sealed),
            false => Err(checked),
        }
    }

    fn assemble<I>(
        &self,
        attestations: NonEmpty<I>,
        _: &impl Strategy,
    ) -> Result<Seal, AssemblyError>
    where
        I: Iterator<Item = Attestation<Self>> + Send,
    {
        let attestations: Vec<_> = attestations.into_iter().collect();
        let found = attestations.len() as u32;
        if found < self.quorum() {
            return Err(AssemblyError::InsufficientAttestations(
                self.quorum(),
                found,
            ));
        }
        let first = &attestations[0];
        let signature = first.signature.get();
        let signature = signature.ok_or(AssemblyError::MalformedSignature(first.signer))?;
        Ok(mix(signature, first.signer))
    }

    fn is_attributable() -> bool {
        false
    }
}
