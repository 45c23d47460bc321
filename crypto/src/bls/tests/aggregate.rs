//! The aggregate scheme: what it certifies, and what it refuses.

use super::{SEED, decoded, rng, shifted, votes};
use crate::bls::{
    AggregateMember, Ballot, CertifyError, CheckCount, HashedMessage, KeyError, PartialSignature,
    Proof, Scheme, SchemeKind, Signers, VOTE_DST, VoteSecret,
    curve::{Affine, Jacobian},
    point::{G2, G2Affine},
};
use commonware_codec::{Copying, DecodeExt, Encode};
use commonware_cryptography::bls12381::primitives::{
    group::{G1 as PeerG1, G2 as PeerG2},
    ops,
    variant::MinSig,
};
use commonware_math::algebra::Additive;
use rand::{RngExt, seq::SliceRandom};

const CHAIN: &str = "test";

pub(super) struct Members {
    pub(super) members: Vec<AggregateMember>,
    pub(super) secrets: Vec<VoteSecret>,
    pub(super) scheme: Scheme,
    pub(super) message: HashedMessage,
    pub(super) votes: Vec<(u32, PartialSignature)>,
}

fn identity(index: usize) -> [u8; 32] {
    let mut identity = [9; 32];
    identity[..8].copy_from_slice(&index.to_be_bytes());
    identity
}

fn member(secret: &VoteSecret, index: usize) -> AggregateMember {
    AggregateMember {
        identity: identity(index),
        key: secret.public_key(),
        possession: secret.prove_possession(CHAIN, &identity(index)),
    }
}

impl Members {
    pub(super) fn new(count: usize) -> Self {
        let secrets: Vec<_> = (0..count)
            .map(|i| VoteSecret::random(rng(i as u8)))
            .collect();
        let members: Vec<_> = (0..).zip(&secrets).map(|(i, s)| member(s, i)).collect();
        let message = HashedMessage::new(b"message");
        Self {
            scheme: Scheme::aggregate(CHAIN, &members).expect("fresh keys"),
            votes: votes(&secrets, &message),
            members,
            secrets,
            message,
        }
    }

    fn certify(&self, signers: &[u32]) -> Result<Proof, CertifyError> {
        let parts: Vec<_> = signers.iter().map(|i| self.votes[*i as usize]).collect();
        self.scheme.certify(&self.message, &parts, SEED)
    }
}

fn parts_of(proof: &Proof) -> (Signers, [u8; 48]) {
    match proof {
        Proof::Aggregate { signers, signature } => (signers.clone(), *signature),
        Proof::Threshold(_) => panic!("an aggregate proof"),
    }
}

#[test]
fn any_quorum_makes_a_certificate_that_names_it() {
    for count in [1, 4, 7, 10] {
        let members = Members::new(count);
        let quorum = members.scheme.quorum();
        assert_eq!(members.scheme.kind(), SchemeKind::BlsAggregate);
        let mut order: Vec<u32> = (0..count as u32).collect();
        for seed in 0..6 {
            order.shuffle(&mut rng(seed));
            let proof = members.certify(&order).expect("valid parts");
            let mut expected = order[..quorum as usize].to_vec();
            expected.sort_unstable();
            assert_eq!(members.scheme.signers(&proof), Some(expected));
            assert!(members.scheme.verify(&members.message, &proof));
            let other = HashedMessage::new(b"other");
            assert!(!members.scheme.verify(&other, &proof));
        }
    }
}

#[test]
fn another_implementation_agrees() {
    let members = Members::new(7);
    let proof = members.certify(&[6, 1, 3, 0, 5]).expect("valid parts");
    let (signers, signature) = parts_of(&proof);
    let (mut key, mut sum) = (PeerG2::zero(), PeerG1::zero());
    for signer in signers.members() {
        let member = &members.members[signer as usize];
        key += &PeerG2::decode(Copying(&member.key)).expect("a key");
        let vote = decoded(&members.votes[signer as usize].1).to_compressed();
        sum += &PeerG1::decode(Copying(&vote)).expect("a signature");
    }
    assert_eq!(sum.encode().as_ref(), signature);
    ops::verify::<MinSig>(&key, VOTE_DST, b"message", &sum).expect("valid");
}

#[test]
fn a_proof_fits_one_committee_one_set_and_one_scheme() {
    let members = Members::new(4);
    let proof = members.certify(&[0, 1, 2]).expect("valid parts");
    let (_, signature) = parts_of(&proof);
    let with = |validators, set: &[u32]| Proof::Aggregate {
        signers: Signers::new(validators, set).expect("in range"),
        signature,
    };
    assert!(
        members
            .scheme
            .verify(&members.message, &with(4, &[0, 1, 2]))
    );
    for wrong in [
        with(4, &[0, 1, 3]),
        with(4, &[0, 1, 2, 3]),
        with(4, &[0, 1]),
        with(4, &[]),
        with(5, &[0, 1, 2]),
        with(3, &[0, 1, 2]),
        Proof::Threshold(signature),
        Proof::Aggregate {
            signers: Signers::new(4, &[0, 1, 2]).expect("in range"),
            signature: [0xc0; 48],
        },
    ] {
        assert!(
            !members.scheme.verify(&members.message, &wrong),
            "{wrong:?}"
        );
        let items = [(&members.message, &proof), (&members.message, &wrong)];
        assert!(!members.scheme.verify_many(&items, SEED), "{wrong:?}");
    }
}

#[test]
fn fewer_than_a_quorum_and_doubles_are_refused_before_any_cryptography() {
    let members = Members::new(4);
    let error = members.certify(&[0, 1]).expect_err("too few");
    assert_eq!(
        error,
        CertifyError::TooFew {
            found: 2,
            quorum: 3
        }
    );
    let error = members.certify(&[0, 1, 1]).expect_err("a double");
    assert_eq!(error, CertifyError::Duplicate { signer: 1 });
}

/// Colluders whose errors cancel make a certificate that holds, since both took part; on their own
/// their parts do not, and with one of them missing both are found out.
#[test]
fn cancelling_errors_hold_together_and_are_found_apart() {
    let members = Members::new(7);
    let error = members.secrets[0].sign(&HashedMessage::new(b"error"));
    let error = decoded(&error);
    let mut parts = members.votes.clone();
    parts[1].1 = shifted(&parts[1].1, &error);
    parts[2].1 = shifted(&parts[2].1, &error.negate());
    let certify = |set: &[usize]| {
        let chosen: Vec<_> = set.iter().map(|i| parts[*i]).collect();
        members.scheme.certify(&members.message, &chosen, SEED)
    };
    assert!(certify(&[0, 1, 2, 3, 4]).is_ok());
    let Err(CertifyError::Invalid { bad, .. }) = certify(&[0, 1, 3, 4, 5]) else {
        panic!("one error alone does not cancel");
    };
    assert_eq!(bad, [1]);
    let found = members.scheme.find_invalid(&members.message, &parts, SEED);
    assert_eq!(found, [1, 2]);
}

#[test]
fn invalid_signers_are_found_whatever_they_sent() {
    let members = Members::new(10);
    let mut parts = members.votes.clone();
    parts[3].1 = PartialSignature([0xff; 96]);
    parts[5].1 = members.secrets[5].sign(&HashedMessage::new(b"other"));
    parts[6].1 = members.secrets[7].sign(&members.message);
    let error = members
        .scheme
        .certify(&members.message, &parts, SEED)
        .expect_err("three are bad");
    let CertifyError::Invalid { bad, checks } = error else {
        panic!("{error:?}");
    };
    assert_eq!(bad, [3, 5, 6]);
    assert!(checks.pairing_checks <= 11, "{checks:?}");
    for (signer, part) in &parts {
        let valid = members
            .scheme
            .verify_partial(&members.message, *signer, part);
        assert_eq!(valid, !bad.contains(signer));
    }
}

#[test]
fn several_certificates_share_a_check_whoever_signed_them() {
    let members = Members::new(7);
    let messages: Vec<_> = (0_u8..4).map(|i| HashedMessage::new(&[i])).collect();
    let sets: [&[usize]; 4] = [
        &[0, 1, 2, 3, 4],
        &[0, 1, 2, 3, 4],
        &[2, 3, 4, 5, 6],
        &[1, 2, 3, 5, 6],
    ];
    let mut parts: Vec<Vec<(u32, PartialSignature)>> = messages
        .iter()
        .zip(sets)
        .map(|(message, set)| {
            let sign = |i: &usize| (*i as u32, members.secrets[*i].sign(message));
            set.iter().map(sign).collect()
        })
        .collect();
    let run = |parts: &[Vec<(u32, PartialSignature)>]| {
        let batches: Vec<_> = messages
            .iter()
            .zip(parts)
            .map(|(message, parts)| Ballot {
                message,
                parts,
                verified: 0,
            })
            .collect();
        let mut checks = CheckCount::default();
        let results = members.scheme.certify_many(&batches, SEED, &mut checks);
        (results, checks)
    };
    let (results, checks) = run(&parts);
    assert_eq!(checks.pairing_checks, 1);
    let proofs: Vec<Proof> = results.into_iter().map(|r| r.expect("valid")).collect();
    let items: Vec<_> = messages.iter().zip(&proofs).collect();
    assert!(members.scheme.verify_many(&items, SEED));
    let swapped: Vec<_> = messages.iter().zip(proofs.iter().rev()).collect();
    assert!(!members.scheme.verify_many(&swapped, SEED));

    parts[2][0].1 = parts[1][0].1;
    let (results, _) = run(&parts);
    let outcomes: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(outcomes, [true, true, false, true]);
}

/// The attack that proofs of possession are for: a key that cancels all others, with which one
/// secret signs for everybody.
#[test]
fn a_rogue_key_is_refused() {
    let honest = Members::new(3);
    let attacker = VoteSecret::random(rng(99));
    let mut rogue = G2::identity();
    rogue.add(&G2Affine::from_compressed(&attacker.public_key()).expect("a key"));
    for member in &honest.members {
        rogue.add(
            &G2Affine::from_compressed(&member.key)
                .expect("a key")
                .negate(),
        );
    }
    let key = rogue.to_affine().expect("not the identity").to_compressed();
    let mut members = honest.members;
    members.push(AggregateMember {
        identity: identity(3),
        key,
        possession: attacker.prove_possession(CHAIN, &identity(3)),
    });
    let error = Scheme::aggregate(CHAIN, &members).err();
    assert_eq!(error, Some(KeyError::Possession { index: 3 }));
}

#[test]
fn a_proof_of_possession_is_for_one_chain_one_identity_and_one_purpose() {
    let members = Members::new(4);
    assert!(members.members.iter().all(|member| member.is_proven(CHAIN)));
    assert!(!members.members[1].is_proven("another"));
    assert_eq!(
        Scheme::aggregate("another", &members.members).err(),
        Some(KeyError::Possession { index: 0 })
    );
    let refused = |change: &dyn Fn(&mut AggregateMember)| {
        let mut members = members.members.clone();
        change(&mut members[2]);
        Scheme::aggregate(CHAIN, &members).err()
    };
    let possession = Some(KeyError::Possession { index: 2 });
    assert_eq!(refused(&|m| m.identity = identity(7)), possession);
    assert_eq!(refused(&|m| m.possession = [0; 48]), possession);
    assert_eq!(
        refused(&|m| m.possession = members.members[1].possession),
        possession
    );
    // A vote over the very same bytes is in another domain.
    let vote = members.secrets[2].sign(&HashedMessage::new(b"quorate/possession/1"));
    assert_eq!(
        refused(&|m| m.possession = decoded(&vote).to_compressed()),
        possession
    );
    assert_eq!(
        refused(&|m| m.key = [0xc0; 96]),
        Some(KeyError::VoteKey { index: 2 })
    );
    assert_eq!(
        refused(&|m| *m = members.members[0].clone()),
        Some(KeyError::SameVoteKey {
            first: 0,
            second: 2
        })
    );
    assert_eq!(
        Scheme::aggregate(CHAIN, &[]).err(),
        Some(KeyError::Validators { found: 0 })
    );
}

/// One bad proof in a batch that is verified together is named.
#[test]
fn the_one_bad_proof_among_many_is_named() {
    let members = Members::new(100);
    for bad in [0, 63, 64, 99] {
        let mut changed = members.members.clone();
        changed[bad].possession = changed[(bad + 1) % 100].possession;
        let index = bad as u32;
        assert_eq!(
            Scheme::aggregate(CHAIN, &changed).err(),
            Some(KeyError::Possession { index })
        );
    }
}

/// However the sum of keys came about (from all, from nothing, from another set), it is the same.
#[test]
fn key_sums_do_not_depend_on_what_was_asked_before() {
    let members = Members::new(13);
    let mut generator = rng(3);
    for _ in 0..60 {
        let count = generator.random_range(9..=13);
        let mut set: Vec<u32> = (0..13).collect();
        set.shuffle(&mut generator);
        set.truncate(count);
        let proof = members.certify(&set).expect("valid parts");
        let fresh = Scheme::aggregate(CHAIN, &members.members).expect("fresh keys");
        assert!(fresh.verify(&members.message, &proof));
    }
}
