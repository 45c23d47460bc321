//! What a peer sends: any bytes either are no frame, or are the one encoding of what they hold; and
//! judging each message by its head first changes nothing about that.
#![no_main]

use commonware_codec::{Copying, DecodeExt, Encode};
use libfuzzer_sys::fuzz_target;
use quorate_types::{Frame, Head};

fuzz_target!(|bytes: &[u8]| {
    let frame = Frame::decode(Copying(bytes)).ok();
    if let Some(frame) = &frame {
        assert_eq!(frame.encode().as_ref(), bytes);
    }
    let known = |head| match head {
        Head::Unknown { code } => Err(code),
        _ => Ok(()),
    };
    let judged = Frame::read_judged(bytes.to_vec().into(), known);
    assert_eq!(judged.ok(), frame.map(|frame| frame.0));
});
