//! What clients and operators hand in: transactions as bytes, genesis and trust files as text.
#![no_main]

use commonware_codec::{Copying, DecodeExt, Encode};
use libfuzzer_sys::fuzz_target;
use quorate_types::{
    ChainId, Digest, Transaction,
    genesis::{Fees, Genesis, Trust},
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(transaction) = Transaction::decode(Copying(bytes)) {
        assert_eq!(transaction.encode().as_ref(), bytes);
        let _ = transaction.verify(&ChainId(Digest([1; 32])), &Fees::NONE);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(genesis) = Genesis::from_json(text) {
            let _ = genesis.chain_id();
        }
        if let Ok(trust) = Trust::from_json(text) {
            let _ = trust.verifier();
        }
    }
});
