//! Ed25519 identities: a validator's on the wire, and an account's owner.
//!
//! A signature covers `length(namespace) ‖ namespace ‖ message` (the length as a varint), so a
//! signature made for one purpose is never valid for another. Verification follows ZIP 215, which
//! gives single and batch verification the same verdict on every input; consensus needs that.

use crate::CRYPTOGRAPHY_OFF;
use crate::hash::{ParseBytesError, decode_hex, serde_as_text};
use commonware_codec::{
    Copying, DecodeExt, Encode, Error, FixedSize, Read, Write, extensions::ReadExt,
};
use commonware_cryptography::{BatchEntry, BatchVerifier, Signer as _, Verifier as _, ed25519};
use commonware_math::algebra::Random;
use commonware_parallel::Sequential;
use quick_cache::sync::Cache;
use rand::CryptoRng;
use std::{fmt, str::FromStr, sync::LazyLock};
use zeroize::Zeroizing;

/// An ed25519 public key as its 32 bytes, not yet known to be a point of the curve.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub [u8; 32]);

/// An ed25519 signature as its 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IdentitySignature(pub [u8; 64]);

/// An ed25519 private key. It has no `Debug`, and its memory is wiped when it is dropped.
#[derive(Clone)]
pub struct SecretKey(ed25519::PrivateKey);

/// The y-coordinates of the points whose order divides eight, little-endian: 0 (order 4), 1 (order 1), the
/// two of order 8, and p − 1 (order 2); then p and p + 1, by which ZIP 215 lets 0 and 1 be written as well.
#[rustfmt::skip]
const SMALL_ORDER: [[u8; 32]; 7] = [
    [0; 32],
    [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
     0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05],
    [0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
     0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a],
    [0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
     0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    [0xed, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
     0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    [0xee, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
     0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
];

/// Decoding a key takes a fifth of what verifying a signature in a large batch does, and most who sign do so again. About
/// 2 MB.
static DECODED: LazyLock<Cache<Identity, ed25519::PublicKey>> =
    LazyLock::new(|| Cache::new(DECODED_KEYS));
const DECODED_KEYS: usize = 8_192;

/// One signed message for [`verify_batch`].
#[derive(Clone, Copy)]
pub struct SignedMessage<'a> {
    /// The claimed signer.
    pub signer: Identity,
    /// The signed bytes, without the namespace.
    pub message: &'a [u8],
    /// The signature.
    pub signature: IdentitySignature,
}

impl SecretKey {
    /// A fresh key from the given source of randomness.
    pub fn random(rng: impl CryptoRng) -> Self {
        Self(ed25519::PrivateKey::random(rng))
    }

    /// The key whose seed (RFC 8032, section 5.1.5) is `bytes`.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(ed25519::PrivateKey::decode(Copying(bytes)).expect("any 32 bytes are an ed25519 seed"))
    }

    /// The key's 32-byte seed, for writing it to a file.
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        let mut bytes = Zeroizing::new([0; 32]);
        bytes.copy_from_slice(&self.0.encode());
        bytes
    }

    /// The public half.
    pub fn identity(&self) -> Identity {
        Identity::from_public_key(&self.0.public_key())
    }

    /// Signs `message` within `namespace`.
    pub fn sign(&self, namespace: &[u8], message: &[u8]) -> IdentitySignature {
        let signature = self.0.sign(namespace, message);
        let mut bytes = [0; 64];
        bytes.copy_from_slice(signature.as_ref());
        IdentitySignature(bytes)
    }

    /// The key in the form that the transport's handshake takes.
    pub fn to_private_key(&self) -> ed25519::PrivateKey {
        self.0.clone()
    }
}

impl Identity {
    /// The identity of a transport-level public key.
    pub fn from_public_key(key: &ed25519::PublicKey) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(key.as_ref());
        Self(bytes)
    }

    /// The key as a point of the curve, or `None` if the bytes are not one.
    pub fn to_public_key(&self) -> Option<ed25519::PublicKey> {
        ed25519::PublicKey::decode(Copying(&self.0)).ok()
    }

    fn decoded(&self) -> Option<ed25519::PublicKey> {
        if let Some(key) = DECODED.get(self) {
            return Some(key);
        }
        let key = self.to_public_key()?;
        DECODED.insert(*self, key.clone());
        Some(key)
    }

    /// Whether these bytes are the encoding that a key has. Verification also accepts a few others,
    /// whose y coordinate is not below the field's prime, 2^255 - 19; no wallet makes them.
    pub fn is_canonical(&self) -> bool {
        let [least, middle @ .., most] = &self.0;
        *least < 0xed || most & 0x7f != 0x7f || middle.iter().any(|byte| *byte != 0xff)
    }

    /// Whether the key is one of the eight points of small order, in any encoding that verification
    /// accepts.
    ///
    /// Nobody holds the secret of such a key, yet anybody can make signatures that verify under it: what
    /// depends on a signature by its owner depends on nothing.
    pub fn is_small_order(&self) -> bool {
        let mut y = self.0;
        // The sign of x: each y is a point's whose negative is of the same order.
        y[31] &= 0x7f;
        SMALL_ORDER.contains(&y)
    }

    /// Whether `signature` is this identity's over `message` within `namespace`.
    pub fn verify(&self, namespace: &[u8], message: &[u8], signature: &IdentitySignature) -> bool {
        if CRYPTOGRAPHY_OFF {
            return true;
        }
        let Some(key) = self.decoded() else {
            return false;
        };
        key.verify(namespace, message, &to_signature(signature))
    }

    /// The first four bytes in hexadecimal, for people.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..4])
    }
}

/// Whether every signature holds; `true` for none. One equation for all (random weights from
/// `rng`), which costs less than half of verifying one by one.
pub fn verify_batch(
    namespace: &[u8],
    messages: &[SignedMessage<'_>],
    rng: &mut impl CryptoRng,
) -> bool {
    if messages.is_empty() || CRYPTOGRAPHY_OFF {
        return true;
    }
    let mut entries = Vec::with_capacity(messages.len());
    for item in messages {
        let Some(key) = item.signer.decoded() else {
            return false;
        };
        entries.push((key, to_signature(&item.signature), item.message));
    }
    ed25519::PublicKey::verify_batch(
        rng,
        &entries,
        |_, (public_key, signature, message)| BatchEntry {
            namespace,
            message,
            public_key,
            signature,
        },
        &Sequential,
    )
}

fn to_signature(signature: &IdentitySignature) -> ed25519::Signature {
    ed25519::Signature::decode(Copying(&signature.0)).expect("any 64 bytes decode as a signature")
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.short())
    }
}

impl fmt::Debug for IdentitySignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdentitySignature({}…)", hex::encode(&self.0[..4]))
    }
}

impl FromStr for Identity {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        decode_hex(text).map(Self)
    }
}

serde_as_text!(Identity);

impl fmt::Display for IdentitySignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for IdentitySignature {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        decode_hex(text).map(Self)
    }
}

serde_as_text!(IdentitySignature);

impl FixedSize for Identity {
    const SIZE: usize = 32;
}

impl Write for Identity {
    fn write(&self, buffer: &mut impl bytes::BufMut) {
        self.0.write(buffer);
    }
}

impl Read for Identity {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl commonware_codec::Buf, _: &()) -> Result<Self, Error> {
        Ok(Self(<[u8; 32]>::read(buffer)?))
    }
}

impl FixedSize for IdentitySignature {
    const SIZE: usize = 64;
}

impl Write for IdentitySignature {
    fn write(&self, buffer: &mut impl bytes::BufMut) {
        self.0.write(buffer);
    }
}

impl Read for IdentitySignature {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl commonware_codec::Buf, _: &()) -> Result<Self, Error> {
        Ok(Self(<[u8; 64]>::read(buffer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SecretKey {
        SecretKey::from_bytes(&[seed; 32])
    }

    #[test]
    fn signature_holds_only_for_its_signer_namespace_and_message() {
        let signature = key(1).sign(b"transfer", b"pay");
        let identity = key(1).identity();
        assert!(identity.verify(b"transfer", b"pay", &signature));
        assert!(!identity.verify(b"transfer", b"pax", &signature));
        assert!(!identity.verify(b"transferp", b"ay", &signature));
        assert!(!key(2).identity().verify(b"transfer", b"pay", &signature));
    }

    #[test]
    fn an_encoding_beyond_the_prime_is_no_wallets() {
        assert!((1..=50).all(|seed| key(seed).identity().is_canonical()));
        let mut bytes = [0xff; 32];
        for (least, most, canonical) in [
            (0xec, 0x7f, true),
            (0xed, 0x7f, false),
            (0xed, 0xff, false),
            (0xff, 0xff, false),
            (0xff, 0x7e, true),
        ] {
            (bytes[0], bytes[31]) = (least, most);
            assert_eq!(
                Identity(bytes).is_canonical(),
                canonical,
                "{least:x} {most:x}"
            );
        }
    }

    #[test]
    fn batch_fails_when_one_signature_is_wrong_or_one_key_is_no_point() {
        let signed: Vec<_> = (1..=8)
            .map(|seed| (key(seed).identity(), key(seed).sign(b"n", &[seed])))
            .collect();
        let messages: Vec<[u8; 1]> = (1..=8).map(|seed| [seed]).collect();
        let mut batch: Vec<_> = signed
            .iter()
            .zip(&messages)
            .map(|((signer, signature), message)| SignedMessage {
                signer: *signer,
                message,
                signature: *signature,
            })
            .collect();
        let mut rng = rand::rng();
        assert!(verify_batch(b"n", &batch, &mut rng));
        assert!(!verify_batch(b"m", &batch, &mut rng));
        batch[5].signature = batch[4].signature;
        assert!(!verify_batch(b"n", &batch, &mut rng));
        batch[5].signature = signed[5].1;
        batch[7].signer = Identity([0xff; 32]);
        assert!(!verify_batch(b"n", &batch, &mut rng));
        assert!(verify_batch(b"n", &[], &mut rng));
    }

    #[test]
    fn every_key_of_small_order_is_known_in_every_encoding_and_no_other_is() {
        use curve25519_dalek::{constants::EIGHT_TORSION, edwards::CompressedEdwardsY};
        let small_with_either_sign = |y: [u8; 32]| {
            let mut found = 0;
            for sign in [0, 0x80] {
                let mut bytes = y;
                bytes[31] |= sign;
                let point = CompressedEdwardsY(bytes).decompress();
                let small = point.is_some_and(|point| point.is_small_order());
                found += u32::from(small);
                // The sign of a zero x cannot be read, but it is no key that belongs to anybody either.
                assert!(!small || Identity(bytes).is_small_order(), "{bytes:?}");
            }
            found
        };
        let found: u32 = SMALL_ORDER.map(small_with_either_sign).iter().sum();
        assert!(found >= 8);
        for point in EIGHT_TORSION {
            assert!(Identity(point.compress().to_bytes()).is_small_order());
        }
        // All values that are written with the field's modulus added: 2^255 - 19 + 0..19.
        for low in 0xed..=0xff_u8 {
            let mut bytes = [0xff; 32];
            (bytes[0], bytes[31]) = (low, 0x7f);
            small_with_either_sign(bytes);
        }
        assert!((1..=50).all(|seed| !key(seed).identity().is_small_order()));
    }

    #[test]
    fn anybody_can_sign_for_a_key_of_small_order() {
        // Why they are refused: with a zero scalar and the neutral point, the equation of ZIP 215 holds
        // for every message.
        let nobody = Identity([0; 32]);
        let neutral = {
            let mut bytes = [0; 64];
            bytes[0] = 1;
            IdentitySignature(bytes)
        };
        let held = (0..=u8::MAX).any(|byte| nobody.verify(b"n", &[byte], &neutral));
        assert!(held && nobody.is_small_order());
    }

    #[test]
    fn secret_key_survives_its_bytes() {
        let secret = SecretKey::random(rand::rng());
        let again = SecretKey::from_bytes(&secret.to_bytes());
        assert_eq!(secret.identity(), again.identity());
    }
}
