//! What a peer sends: any bytes either are no frame, or are the one encoding of what they hold.
#![no_main]

use commonware_codec::{Copying, DecodeExt, Encode};
use libfuzzer_sys::fuzz_target;
use quorate_types::Frame;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = Frame::decode(Copying(bytes)) {
        assert_eq!(frame.encode().as_ref(), bytes);
    }
});
