//! The same results as commonware's own BLS module, and results frozen once and for all.

use super::{Committee, SEED, lagrange, rng, shifted, times, votes};
use crate::bls::{
    Ballot, CertifyError, CheckCount, HashedMessage, Proof, Scheme, VOTE_DST, curve::Affine, deal,
    point::G1Affine,
};
use commonware_codec::{Copying, DecodeExt, EncodeFixed};
use commonware_cryptography::bls12381::{
    dkg::feldman_desmedt::deal_anonymous,
    primitives::{
        group::{G1, G1_MESSAGE},
        ops::{self, threshold},
        sharing::Mode,
        variant::{MinSig, PartialSignature as PeerPartial},
    },
};
use commonware_math::algebra::Field;
use commonware_parallel::Sequential;
use commonware_utils::{N3f1, Participant};
use rand::seq::SliceRandom;
use std::num::NonZeroU32;

const MESSAGE: &[u8] = b"message";

#[test]
fn certificates_are_those_of_the_library_that_reshares() {
    for validators in [1_u32, 2, 3, 4, 7, 10, 31, 100, 145] {
        let committee = Committee::new(validators);
        let count = NonZeroU32::new(validators).expect("not zero");
        // The same generator makes the same dealing.
        let generator = rng(validators as u8);
        let (sharing, shares) =
            deal_anonymous::<MinSig, N3f1>(generator, Mode::NonZeroCounter, count);
        assert_eq!(committee.scheme.quorum(), sharing.required());
        let group_key: [u8; 96] = sharing.public().encode_fixed();
        assert_eq!(committee.keys.group_key, group_key);

        let mut rng = rng(7);
        let mut indices: Vec<usize> = (0..validators as usize).collect();
        for _ in 0..3 {
            indices.shuffle(&mut rng);
            let ours: Vec<_> = indices.iter().map(|&i| committee.votes[i]).collect();
            let peers: Vec<_> = indices[..committee.scheme.quorum() as usize]
                .iter()
                .map(|&i| PeerPartial::<MinSig> {
                    index: Participant::from_usize(i),
                    value: ops::sign::<MinSig>(&shares[i].private, VOTE_DST, MESSAGE),
                })
                .collect();
            let proof = committee.scheme.certify(&committee.message, &ours, SEED);
            let peer = threshold::recover(&sharing, &peers, &Sequential).expect("a quorum");
            assert_eq!(proof, Ok(Proof::Threshold(peer.encode_fixed())));
            ops::verify::<MinSig>(sharing.public(), VOTE_DST, MESSAGE, &peer).expect("valid");
        }
    }
}

#[test]
fn votes_are_those_of_the_library_that_reshares() {
    let committee = Committee::new(4);
    let count = NonZeroU32::new(4).expect("not zero");
    let (sharing, shares) = deal_anonymous::<MinSig, N3f1>(rng(4), Mode::NonZeroCounter, count);
    for (index, vote) in &committee.votes {
        let peer = ops::sign::<MinSig>(&shares[*index as usize].private, VOTE_DST, MESSAGE);
        let compressed: [u8; 48] = super::decoded(vote).to_compressed();
        assert!(G1::decode(Copying(&compressed)).expect("a point") == peer);
        let key = sharing.partial_public(Participant::new(*index));
        let key: [u8; 96] = key.expect("a validator").encode_fixed();
        assert_eq!(committee.keys.share_keys[*index as usize], key);
    }
}

#[test]
fn signature_of_another_domain_is_refused() {
    let committee = Committee::new(4);
    let count = NonZeroU32::new(4).expect("not zero");
    let (_, shares) = deal_anonymous::<MinSig, N3f1>(rng(4), Mode::NonZeroCounter, count);
    let foreign = |dst| {
        let signature = ops::sign::<MinSig>(&shares[0].private, dst, MESSAGE);
        let compressed: [u8; 48] = signature.encode_fixed();
        let point = crate::bls::point::G1Affine::from_compressed(&compressed);
        let point = point.expect("a point of the curve");
        crate::bls::PartialSignature(point.to_uncompressed())
    };
    let scheme = &committee.scheme;
    assert!(scheme.verify_partial(&committee.message, 0, &foreign(VOTE_DST)));
    assert!(!scheme.verify_partial(&committee.message, 0, &foreign(G1_MESSAGE)));
    let later = b"QUORATE-V2-BLS12381G1_XMD:SHA-256_SSWU_RO_VOTE";
    assert!(!scheme.verify_partial(&committee.message, 0, &foreign(later)));
}

/// A change of any of these values makes old chains unreadable: it needs a new domain or genesis
/// version, not a new vector.
#[test]
fn golden_vector() {
    let (keys, secrets) = deal(4, rng(1));
    let message = HashedMessage::new(b"golden");
    let votes = votes(&secrets, &message);
    assert_eq!(
        hex::encode(keys.group_key),
        concat!(
            "a4090fa4ebbcf1a39a3366bcf1e5e11c9dd1cf40fe49f4cd5af8c9c7fd887bdbc317d987",
            "c59cec992eebb474676010ee0992e85ea3a32a005a943cd4ef775945e08c86d1080525a7",
            "6c03e3f6fd312e6cad59856989c0164cdb0cb8e983a287fc",
        )
    );
    assert_eq!(
        hex::encode(keys.share_keys[3]),
        concat!(
            "a7d02f8fcb81c5e642610b32d17e6b130be816c5bd8e7c4c314c40e836eacbe412cd62a4",
            "2da3598835b7a26eec9c2b5711641bc5e2425e02461c50a90a85e6bfabe27178d02b6e4f",
            "9bb4be1bebd4b81d622ca70bf8746a9511a126d9e48a0075",
        )
    );
    assert_eq!(
        hex::encode(*secrets[3].to_bytes()),
        "548080083c8a92e10edc7187b248e43e708e5ae645fb890d7c9deecc247fd18b"
    );
    assert_eq!(
        hex::encode(votes[3].1.0),
        concat!(
            "0e3d3e241c94d4c9cf50b18e4ca8c486ef29d947f81224e1cd3784987b6492df0afebc10",
            "e35435072ece93ffe103a6ae1071f7339b855698682515d395021836cbd448feac5d2430",
            "7a0f51e82f021ab7cadefd0b3d9bacaa8a3c976d2c9a64ba",
        )
    );
    let scheme = Scheme::threshold(&keys).expect("a fresh dealing");
    for absent in 0..4 {
        let mut parts = votes.clone();
        parts.remove(absent);
        let Proof::Threshold(proof) = scheme.certify(&message, &parts, SEED).expect("valid") else {
            panic!("a threshold proof");
        };
        assert_eq!(
            hex::encode(proof),
            concat!(
                "993f31657e9ba61e80ccc6ee22d3704c6d76aa6f3dbf36618a96494f1f95cb28f0facc11",
                "fa4c09bc2e7d29a7e5f30362",
            )
        );
    }
}

#[test]
fn certificates_made_together_equal_those_made_alone_at_half_the_checks() {
    let (keys, secrets) = deal(7, rng(1));
    let scheme = Scheme::threshold(&keys).expect("a fresh dealing");
    let messages = [b"finalize 1", b"notarize 2"].map(|text| HashedMessage::new(text));
    let parts = messages.each_ref().map(|message| {
        (0..5_u32)
            .map(|i| (i, secrets[i as usize].sign(message)))
            .collect::<Vec<_>>()
    });
    let ballot = |index: usize, parts| Ballot {
        message: &messages[index],
        parts,
        verified: 0,
    };
    let batches = [ballot(0, &parts[0][..]), ballot(1, &parts[1])];
    let mut checks = CheckCount::default();
    let together = scheme.certify_many(&batches, [3; 32], &mut checks);
    assert_eq!(checks.pairing_checks, 1);
    for (ballot, proof) in batches.iter().zip(together) {
        assert_eq!(proof, scheme.certify(ballot.message, ballot.parts, [4; 32]));
    }
    // A bad part in one batch spoils only that one.
    let mut spoiled = parts[1].clone();
    spoiled[2].1 = parts[0][2].1;
    let batches = [ballot(0, &parts[0][..]), ballot(1, &spoiled)];
    let results = scheme.certify_many(&batches, [5; 32], &mut checks);
    assert!(results[0].is_ok());
    assert!(matches!(
        &results[1],
        Err(CertifyError::Invalid { bad, .. }) if *bad == [2]
    ));
    // Errors that would cancel in a plain sum of both certificates do not help.
    let error = G1Affine::hash(b"some point", b"TEST");
    let weights = lagrange(&[0, 1, 2, 3, 4]);
    let mut shifted_parts = parts.clone();
    for (parts, error) in shifted_parts.iter_mut().zip([error, error.negate()]) {
        let error = times(&error, &weights[0].inv());
        parts[0].1 = shifted(&parts[0].1, &error);
    }
    let batches = [
        ballot(0, &shifted_parts[0][..]),
        ballot(1, &shifted_parts[1]),
    ];
    for result in scheme.certify_many(&batches, [6; 32], &mut checks) {
        assert!(matches!(result, Err(CertifyError::Invalid { bad, .. }) if bad == [0]));
    }
    // Parts that never come to a pairing are not counted as one.
    let mut none = CheckCount::default();
    let short = [ballot(0, &parts[0][..4]), ballot(1, &parts[1][..0])];
    for result in scheme.certify_many(&short, [7; 32], &mut none) {
        assert!(matches!(result, Err(CertifyError::TooFew { .. })));
    }
    assert_eq!(none, CheckCount::default());
}
