//! What lies on disk, comes as evidence or stands in a memo: one encoding each, and no panic.
#![no_main]

use commonware_codec::{Copying, DecodeExt, Encode};
use libfuzzer_sys::fuzz_target;
use quorate_types::{Account, Block, Certificate, Evidence, Operation, Outcome, Receipt, Record};

fn check<T: DecodeExt<()> + Encode>(bytes: &[u8]) {
    if let Ok(value) = T::decode(Copying(bytes)) {
        assert_eq!(value.encode().as_ref(), bytes);
    }
}

fuzz_target!(|bytes: &[u8]| {
    check::<Record>(bytes);
    check::<Block>(bytes);
    check::<Certificate>(bytes);
    check::<Evidence>(bytes);
    check::<Account>(bytes);
    check::<Operation>(bytes);
    check::<Receipt>(bytes);
    check::<Outcome>(bytes);
});
