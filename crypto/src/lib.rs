//! Hashes, identities and the BLS vote schemes.
//!
//! This crate is the only home of `unsafe` code and of direct calls to `blst`. Everything above
//! it sees digests, identities, vote signatures and the questions "does it verify" and "who is to
//! blame if it does not".

pub mod bls;
mod hash;
mod identity;
mod off;

pub use hash::{Digest, ParseBytesError, sha256};
pub use identity::{Identity, IdentitySignature, SecretKey, SignedMessage, verify_batch};
pub use off::CRYPTOGRAPHY_OFF;
