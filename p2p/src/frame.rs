//! The header of every frame, in all lanes.
//!
//! ```text
//! version (1 byte, = 1) ‖ tag (first 8 bytes of the chain id) ‖ payload (at least 1 byte)
//! ```
//!
//! The handshake already separates chains by namespace. The tag protects the decoders above from
//! frames of another chain if a node's namespace is misconfigured.

use bytes::Bytes;
use commonware_runtime::IoBuf;

pub(crate) const VERSION: u8 = 1;

pub(crate) const HEADER_BYTES: usize = 9;

/// First 8 bytes of the chain id.
pub type FrameTag = [u8; 8];

/// Why a received frame is dropped undecoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Shorter than a header and one byte.
    Empty,
    /// Another version of the frame format.
    Version,
    /// The tag of another chain.
    Tag,
    /// Longer than the lane allows.
    Oversize,
}

/// The header of all frames with this tag; clones share the buffer.
pub(crate) fn header(tag: FrameTag) -> IoBuf {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.push(VERSION);
    bytes.extend_from_slice(&tag);
    IoBuf::from(bytes)
}

/// Checks the header of a received frame and returns its payload, without copying.
pub(crate) fn open(
    frame: Bytes,
    tag: &FrameTag,
    max_payload_bytes: usize,
) -> Result<Bytes, Malformed> {
    if frame.first().is_some_and(|version| *version != VERSION) {
        return Err(Malformed::Version);
    }
    if frame.len() <= HEADER_BYTES {
        return Err(Malformed::Empty);
    }
    if frame[1..HEADER_BYTES] != tag[..] {
        return Err(Malformed::Tag);
    }
    if frame.len() - HEADER_BYTES > max_payload_bytes {
        return Err(Malformed::Oversize);
    }
    Ok(frame.slice(HEADER_BYTES..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng as _;

    const TAG: FrameTag = *b"chain-id";

    fn frame(payload: &[u8]) -> Bytes {
        let mut bytes = header(TAG).as_ref().to_vec();
        bytes.extend_from_slice(payload);
        bytes.into()
    }

    #[test]
    fn payload_comes_back_as_it_was_sent() {
        assert_eq!(open(frame(b"vote"), &TAG, 4), Ok(Bytes::from("vote")));
    }

    #[test]
    fn each_defect_is_told_apart() {
        let mut other_version = frame(b"vote").to_vec();
        other_version[0] = 2;
        assert_eq!(open(other_version.into(), &TAG, 4), Err(Malformed::Version));
        assert_eq!(open(frame(b"vote"), b"chain-ie", 4), Err(Malformed::Tag));
        assert_eq!(open(frame(b"votes"), &TAG, 4), Err(Malformed::Oversize));
        assert_eq!(open(frame(b""), &TAG, 4), Err(Malformed::Empty));
    }

    #[test]
    fn no_prefix_of_a_frame_panics_or_passes() {
        let whole = frame(b"v");
        for length in 0..whole.len() {
            assert_eq!(
                open(whole.slice(..length), &TAG, 4),
                Err(Malformed::Empty),
                "{length}"
            );
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = rand::rng();
        for length in 0..64 {
            for _ in 0..500 {
                let mut bytes = vec![0; length];
                random.fill_bytes(&mut bytes);
                // Half of them pass the version check.
                if let Some(first) = bytes.first_mut() {
                    *first &= 1;
                }
                assert!(open(bytes.into(), &TAG, 4).is_err());
            }
        }
    }
}
