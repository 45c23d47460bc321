//! A build without signatures, to measure what they cost.
//!
//! With the feature `cryptography-off` votes are not signed, every signature holds, and nothing is
//! hashed to the curve, combined or paired. Messages keep their sizes and links stay authenticated.
//! Such a build protects nobody: the node refuses to run it on any chain but those for chaos tests.

/// Whether this build leaves signatures out.
pub const CRYPTOGRAPHY_OFF: bool = cfg!(feature = "cryptography-off");
