//! Exactly the guilty are named, whatever they do.

use super::{Committee, SEED, decoded, lagrange, rng, shifted, small_order_point, times};
use crate::bls::{
    CertifyError, CheckCount, HashedMessage, PartialSignature, Proof,
    curve::{Affine, Jacobian},
    point::{G1, G1Affine},
};
use commonware_cryptography::bls12381::primitives::group::Scalar;
use commonware_math::algebra::Random;
use proptest::prelude::*;

fn any_point() -> G1Affine {
    G1Affine::hash(b"some point", b"TEST")
}

#[test]
fn one_bad_part_fails_the_certificate_and_is_named() {
    let committee = Committee::new(10);
    let mut parts = committee.votes.clone();
    parts[3].1 = shifted(&parts[3].1, &any_point());
    let result = committee.scheme.certify(&committee.message, &parts, SEED);
    let Err(CertifyError::Invalid { bad, checks }) = result else {
        panic!("{result:?}");
    };
    assert_eq!(bad, [3]);
    // One check for the combination and two to name a single one.
    assert_eq!(checks.bisections, 0);
    assert_eq!(checks.pairing_checks, 1 + 2);
    parts.remove(3);
    assert!(
        committee
            .scheme
            .certify(&committee.message, &parts, SEED)
            .is_ok()
    );
}

#[test]
fn bad_part_beyond_the_quorum_does_no_harm() {
    let committee = Committee::new(10);
    let mut parts = committee.votes.clone();
    parts[8].1 = PartialSignature([0; 96]);
    assert!(
        committee
            .scheme
            .certify(&committee.message, &parts, SEED)
            .is_ok()
    );
    // But it is named as soon as the parts are looked at one by one.
    parts[1].1 = PartialSignature([0; 96]);
    let result = committee.scheme.certify(&committee.message, &parts, SEED);
    let Err(CertifyError::Invalid { bad, .. }) = result else {
        panic!("{result:?}");
    };
    assert_eq!(bad, [1, 8]);
}

#[test]
fn errors_that_cancel_in_the_combination_certify_but_are_named_when_looked_for() {
    let committee = Committee::new(4);
    let (message, scheme) = (&committee.message, &committee.scheme);
    let honest = scheme
        .certify(message, &committee.votes, SEED)
        .expect("valid");
    let weights = lagrange(&[0, 1, 2]);
    let error = any_point();
    let mut parts = committee.votes[..3].to_vec();
    parts[0].1 = shifted(&parts[0].1, &times(&error, &weights[2]));
    parts[2].1 = shifted(&parts[2].1, &times(&error, &weights[0]).negate());
    // The combined signature is the group's, whatever it was made of.
    assert_eq!(scheme.certify(message, &parts, SEED), Ok(honest));
    assert_eq!(scheme.find_invalid(message, &parts, SEED), [0, 2]);
    // With another subset they do not cancel.
    parts[1] = committee.votes[3];
    let result = scheme.certify(message, &parts, SEED);
    let Err(CertifyError::Invalid { bad, .. }) = result else {
        panic!("{result:?}");
    };
    assert_eq!(bad, [0, 2]);
}

#[test]
fn errors_that_cancel_in_a_plain_sum_are_named() {
    let committee = Committee::new(7);
    let mut parts = committee.votes.clone();
    parts[1].1 = shifted(&parts[1].1, &any_point());
    parts[2].1 = shifted(&parts[2].1, &any_point().negate());
    let found = committee
        .scheme
        .find_invalid(&committee.message, &parts, SEED);
    assert_eq!(found, [1, 2]);
}

#[test]
fn errors_outside_the_subgroup_that_cancel_certify_but_are_named() {
    let committee = Committee::new(4);
    let (message, scheme) = (&committee.message, &committee.scheme);
    let honest = scheme
        .certify(message, &committee.votes, SEED)
        .expect("valid");
    // Validators 0, 1 and 2 have the weights 3, −3 and 1: the same error in 0 and 1 cancels.
    let error = small_order_point();
    let mut parts = committee.votes[..3].to_vec();
    parts[0].1 = shifted(&parts[0].1, &error);
    parts[1].1 = shifted(&parts[1].1, &error);
    assert_eq!(scheme.certify(message, &parts, SEED), Ok(honest));
    assert_eq!(scheme.find_invalid(message, &parts, SEED), [0, 1]);
    for (signer, part) in &parts {
        assert_eq!(scheme.verify_partial(message, *signer, part), *signer == 2);
    }
}

#[test]
fn copied_and_swapped_votes_are_named() {
    let committee = Committee::new(7);
    let mut parts = committee.votes.clone();
    parts[4].1 = parts[5].1;
    let found = committee
        .scheme
        .find_invalid(&committee.message, &parts, SEED);
    assert_eq!(found, [4]);
    let mut parts = committee.votes.clone();
    let first = parts[0].1;
    parts[0].1 = parts[6].1;
    parts[6].1 = first;
    let found = committee
        .scheme
        .find_invalid(&committee.message, &parts, SEED);
    assert_eq!(found, [0, 6]);
}

#[test]
fn everyone_voting_for_another_message_is_named() {
    let committee = Committee::new(7);
    let other = HashedMessage::new(b"another message");
    let mut checks = CheckCount::default();
    let found = committee
        .scheme
        .find_invalid_counted(&other, &committee.votes, SEED, &mut checks);
    assert_eq!(found, [0, 1, 2, 3, 4, 5, 6]);
    // One for each, and two searches for a single one in vain.
    assert_eq!(checks.pairing_checks, 9);
    assert_eq!(checks.bisections, 6);
}

#[test]
fn searching_valid_parts_takes_one_check_and_no_parts_none() {
    let committee = Committee::new(7);
    let mut checks = CheckCount::default();
    let mut find = |parts: &[_]| {
        let message = &committee.message;
        committee
            .scheme
            .find_invalid_counted(message, parts, SEED, &mut checks)
    };
    assert!(find(&[]).is_empty());
    assert!(find(&committee.votes).is_empty());
    let expected = CheckCount {
        pairing_checks: 1,
        bisections: 0,
    };
    assert_eq!(checks, expected);
}

#[test]
fn strangers_and_repeated_signers_in_a_search_are_handled() {
    let committee = Committee::new(4);
    let vote = |index: usize| committee.votes[index].1;
    let parts = [
        (9, vote(0)),
        (1, vote(1)),
        (1, vote(2)),
        (1, vote(1)),
        (2, vote(2)),
        (u32::MAX, vote(0)),
    ];
    let found = committee
        .scheme
        .find_invalid(&committee.message, &parts, SEED);
    assert_eq!(found, [1, 9, u32::MAX]);
}

#[test]
fn batch_of_certificates_holds_only_if_each_does() {
    let committee = Committee::new(4);
    let scheme = &committee.scheme;
    let messages: Vec<_> = (0..5_u8).map(|i| HashedMessage::new(&[i])).collect();
    let mut proofs: Vec<Proof> = messages
        .iter()
        .map(|message| {
            let votes = super::votes(&committee.secrets, message);
            scheme.certify(message, &votes, SEED).expect("valid")
        })
        .collect();
    let holds = |proofs: &[Proof]| {
        let items: Vec<_> = messages.iter().zip(proofs).collect();
        scheme.verify_many(&items, SEED)
    };
    for count in 0..=5 {
        assert!(holds(&proofs[..count]));
    }
    // Two of them wrong, so that their plain sum is right.
    let Proof::Threshold(first) = proofs[0].clone() else {
        panic!("a threshold proof");
    };
    let Proof::Threshold(second) = proofs[1].clone() else {
        panic!("a threshold proof");
    };
    let move_by = |bytes, by| {
        let mut sum = G1::identity();
        sum.add(&G1Affine::from_compressed(&bytes).expect("a point"));
        sum.add(&by);
        Proof::Threshold(sum.to_affine().expect("not opposite").to_compressed())
    };
    proofs[0] = move_by(first, any_point());
    assert!(!holds(&proofs[..2]));
    proofs[1] = move_by(second, any_point().negate());
    assert!(!holds(&proofs[..2]));
    proofs[0] = Proof::Threshold(first);
    for count in 2..=5 {
        assert!(!holds(&proofs[..count]));
    }
    proofs[1] = Proof::Threshold(second);
    proofs[4] = Proof::Threshold([0; 48]);
    assert!(!holds(&proofs));
    proofs.swap(2, 3);
    assert!(!holds(&proofs[..4]));
}

/// One for each part, and one for each search for a single one in vain.
fn most_checks(parts: usize) -> usize {
    parts + parts.div_ceil(3)
}

#[test]
fn one_invalid_part_of_any_number_takes_two_checks() {
    let committee = Committee::new(40);
    let other = HashedMessage::new(b"another message");
    for (size, bad) in [(3, 0), (3, 2), (8, 5), (40, 0), (40, 1), (40, 27), (40, 39)] {
        let mut parts = committee.votes[..size].to_vec();
        parts[bad].1 = committee.secrets[bad].sign(&other);
        let mut checks = CheckCount::default();
        let found =
            committee
                .scheme
                .find_invalid_counted(&committee.message, &parts, SEED, &mut checks);
        assert_eq!(found, [bad as u32]);
        let expected = CheckCount {
            pairing_checks: 2,
            bisections: 0,
        };
        assert_eq!(checks, expected, "{bad} of {size}");
    }
}

#[test]
fn two_that_look_like_one_between_them_are_both_named() {
    // Errors d and 3d at the places 0 and 4 have the same sum and the same centre as 4d at place 3,
    // without random weights.
    let committee = Committee::new(7);
    let mut parts = committee.votes.clone();
    let error = any_point();
    let thrice = times(&error, &Scalar::from_u64(3));
    parts[0].1 = shifted(&parts[0].1, &error);
    parts[4].1 = shifted(&parts[4].1, &thrice);
    let found = committee
        .scheme
        .find_invalid(&committee.message, &parts, SEED);
    assert_eq!(found, [0, 4]);
}

/// How a part is spoiled.
#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    OtherMessage,
    AnyPoint,
    Random,
    Opposite,
    SmallOrder,
    Undecodable,
    Copied,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        8 => Just(Fault::None),
        1 => Just(Fault::OtherMessage),
        1 => Just(Fault::AnyPoint),
        1 => Just(Fault::Random),
        1 => Just(Fault::Opposite),
        1 => Just(Fault::SmallOrder),
        1 => Just(Fault::Undecodable),
        1 => Just(Fault::Copied),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn exactly_the_bad_parts_are_named(
        faults in prop::collection::vec(fault(), 2..24),
        seed in any::<[u8; 32]>(),
    ) {
        let committee = Committee::new(faults.len() as u32);
        let other = HashedMessage::new(b"another message");
        let small = small_order_point();
        let mut rng = rng(seed[0]);
        let mut parts = committee.votes.clone();
        let mut bad = Vec::new();
        for (index, fault) in faults.iter().enumerate() {
            let vote = &committee.votes[index].1;
            let spoiled = match fault {
                Fault::None => continue,
                Fault::OtherMessage => committee.secrets[index].sign(&other),
                Fault::AnyPoint => shifted(vote, &any_point()),
                Fault::Random => {
                    let point = times(&any_point(), &Scalar::random(&mut rng));
                    PartialSignature(point.to_uncompressed())
                }
                Fault::Opposite => PartialSignature(decoded(vote).negate().to_uncompressed()),
                Fault::SmallOrder => shifted(vote, &small),
                Fault::Undecodable => PartialSignature([0xff; 96]),
                Fault::Copied => committee.votes[(index + 1) % faults.len()].1,
            };
            parts[index].1 = spoiled;
            bad.push(index as u32);
        }
        let mut checks = CheckCount::default();
        let scheme = &committee.scheme;
        let found = scheme.find_invalid_counted(&committee.message, &parts, seed, &mut checks);
        prop_assert_eq!(&found, &bad);
        prop_assert!(checks.pairing_checks as usize <= most_checks(parts.len()));
        for (signer, part) in &parts {
            let valid = scheme.verify_partial(&committee.message, *signer, part);
            prop_assert_eq!(valid, !bad.contains(signer));
        }
        match scheme.certify(&committee.message, &parts, seed) {
            Ok(proof) => prop_assert!(scheme.verify(&committee.message, &proof)),
            Err(CertifyError::Invalid { bad: named, .. }) => prop_assert_eq!(named, bad),
            Err(error) => panic!("{error}"),
        }
    }
}
