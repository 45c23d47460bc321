//! Names and encodings.

use crate::bls::{HashedMessage, PartialSignature, Proof, Scheme, SchemeKind};
use commonware_codec::{Copying, Decode, DecodeExt, Encode, EncodeSize};
use proptest::prelude::*;

#[test]
fn scheme_names_are_read_and_written() {
    for kind in SchemeKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    let error = "bls".parse::<SchemeKind>().expect_err("no such scheme");
    assert_eq!(
        error.to_string(),
        "unknown vote scheme \"bls\"; known: bls-threshold, bls-aggregate"
    );
}

#[test]
fn scheme_and_messages_may_cross_threads() {
    fn check<T: Send + Sync + Clone>() {}
    check::<Scheme>();
    check::<HashedMessage>();
}

#[test]
fn vote_signature_is_any_96_bytes() {
    let bytes = [0xff; 96];
    let signature = PartialSignature::decode(Copying(&bytes)).expect("not looked at");
    assert_eq!(signature, PartialSignature(bytes));
    assert_eq!(signature.encode().as_ref(), bytes);
    assert!(PartialSignature::decode(Copying(&bytes[..95])).is_err());
    assert!(PartialSignature::decode(Copying(&[0xff; 97])).is_err());
}

#[test]
fn proof_is_a_tag_and_what_the_scheme_needs() {
    let proof = Proof::Threshold([7; 48]);
    let encoded = proof.encode();
    assert_eq!(encoded.len(), 49);
    assert!(proof.encode_size() <= Proof::MAX_BYTES);
    assert_eq!(encoded[0], 0);
    assert_eq!(encoded[1..], [7; 48]);
    assert_eq!(Proof::decode(encoded.clone()).expect("valid"), proof);

    assert!(Proof::decode(encoded.slice(..48)).is_err());
    assert!(Proof::decode(Copying(&[])).is_err());
    let mut unknown = encoded.to_vec();
    unknown[0] = 2;
    assert!(Proof::decode(unknown).is_err());
    let mut longer = encoded.to_vec();
    longer.push(0);
    assert!(Proof::decode(longer).is_err());
}

#[test]
fn debug_output_shows_the_beginning_only() {
    let signature = format!("{:?}", PartialSignature([0xab; 96]));
    assert_eq!(signature, "PartialSignature(abababab…)");
    let proof = format!("{:?}", Proof::Threshold([0xcd; 48]));
    assert_eq!(proof, "Threshold(cdcdcdcd…)");
}

proptest! {
    #[test]
    fn decoded_proof_encodes_to_the_same_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..60),
        tag in 0_u8..3,
    ) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = tag;
        }
        if let Ok(proof) = Proof::decode_cfg(Copying(&bytes), &()) {
            prop_assert_eq!(proof.encode(), bytes);
        }
    }
}
