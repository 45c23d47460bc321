//! What the threshold vote scheme costs, in microseconds per operation, best of several runs, with
//! the same work done by commonware's own BLS module beside it in the same run:
//!
//! ```text
//! cargo run --release -p quorate-crypto --example bls_cost
//! ```
//!
//! Absolute times wander with the machine; the ratios in the last column hardly do. "certify"
//! takes a fresh random quorum each time, as a real network makes them, so its Lagrange weights
//! are never in the cache; "same quorum" finds them there.

use commonware_codec::{DecodeExt, Encode};
use commonware_cryptography::bls12381::{
    dkg::feldman_desmedt::deal_anonymous,
    primitives::{
        group::{G1, Share},
        ops::{self, threshold},
        sharing::{Mode, Sharing},
        variant::{MinSig, PartialSignature as PeerPartial},
    },
};
use commonware_parallel::Sequential;
use commonware_utils::{N3f1, Participant, non_empty};
use quorate_crypto::{
    SecretKey,
    bls::{
        AggregateMember, Ballot, CheckCount, HashedMessage, PartialSignature, Proof, Scheme,
        VOTE_DST, VoteSecret, deal,
    },
};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha20Rng;
use std::{hint::black_box, num::NonZeroU32, time::Instant};

const MESSAGE: &[u8] = b"notarize: epoch 1, view 2, payload 3";
const NAMESPACE: &[u8] = b"votes";
const RUNS: usize = 9;

/// Best mean over [`RUNS`] runs of `times` calls each, in microseconds.
fn measure(times: usize, mut operation: impl FnMut()) -> f64 {
    let run = |_| {
        let start = Instant::now();
        (0..times).for_each(|_| operation());
        start.elapsed().as_secs_f64() * 1e6 / times as f64
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

fn line(name: &str, ours: f64, peer: Option<f64>) {
    match peer {
        Some(peer) => println!("{name:<44} {ours:>9.1} {peer:>9.1} {:>7.2}", peer / ours),
        None => println!("{name:<44} {ours:>9.1}"),
    }
}

/// One committee, with the keys in our form and in the peer's.
struct Committee {
    scheme: Scheme,
    secrets: Vec<VoteSecret>,
    sharing: Sharing<MinSig>,
    shares: Vec<Share>,
}

impl Committee {
    fn new(validators: u32) -> Self {
        let seed = [validators as u8; 32];
        let (keys, secrets) = deal(validators, ChaCha20Rng::from_seed(seed));
        let count = NonZeroU32::new(validators).expect("committees are not empty");
        let (sharing, shares) = deal_anonymous::<MinSig, N3f1>(
            ChaCha20Rng::from_seed(seed),
            Mode::NonZeroCounter,
            count,
        );
        sharing.precompute_partial_publics();
        Self {
            scheme: Scheme::threshold(&keys).expect("a fresh dealing"),
            secrets,
            sharing,
            shares,
        }
    }

    fn votes(&self, hashed: &HashedMessage) -> Vec<(u32, PartialSignature)> {
        let sign = |(index, secret): (u32, &VoteSecret)| (index, secret.sign(hashed));
        (0..).zip(&self.secrets).map(sign).collect()
    }

    fn peer_votes(&self) -> Vec<PeerPartial<MinSig>> {
        let sign = |(index, share): (u32, &Share)| PeerPartial {
            index: Participant::new(index),
            value: ops::sign::<MinSig>(&share.private, VOTE_DST, MESSAGE),
        };
        (0..).zip(&self.shares).map(sign).collect()
    }
}

fn one_signature() {
    let committee = Committee::new(4);
    let hashed = HashedMessage::new(MESSAGE);
    let secret = &committee.secrets[0];
    let private = &committee.shares[0].private;
    let public = committee.sharing.partial_public(Participant::new(0));
    let public = public.expect("validator 0 exists");
    let vote = secret.sign(&hashed);
    let peer_vote = ops::sign::<MinSig>(private, VOTE_DST, MESSAGE).encode();

    let time = measure(200, || {
        black_box(HashedMessage::new(black_box(MESSAGE)));
    });
    line("hash a message to the curve", time, None);
    let ours = measure(200, || {
        black_box(secret.sign(&hashed));
    });
    let peer = measure(200, || {
        black_box(ops::sign::<MinSig>(private, VOTE_DST, MESSAGE));
    });
    line("sign (ours: message already hashed)", ours, Some(peer));
    let ours = measure(50, || {
        assert!(committee.scheme.verify_partial(&hashed, 0, &vote));
    });
    let peer = measure(50, || {
        let signature = G1::decode(peer_vote.clone()).expect("a point");
        ops::verify::<MinSig>(&public, VOTE_DST, MESSAGE, &signature).expect("valid");
    });
    line("verify one vote, from bytes", ours, Some(peer));
}

fn certificate(validators: u32) {
    let committee = Committee::new(validators);
    let scheme = &committee.scheme;
    let hashed = HashedMessage::new(MESSAGE);
    let mut votes = committee.votes(&hashed);
    let mut rng = ChaCha20Rng::from_seed([7; 32]);
    let quorum = scheme.quorum() as usize;
    let times = 20;

    println!("\n{validators} validators, quorum {quorum}");
    let ours = measure(times, || {
        votes.shuffle(&mut rng);
        scheme.certify(&hashed, &votes, [1; 32]).expect("valid");
    });
    let warm = measure(times, || {
        scheme.certify(&hashed, &votes, [1; 32]).expect("valid");
    });
    let mut encoded: Vec<_> = committee
        .peer_votes()
        .iter()
        .map(|vote| (vote.index, vote.value.encode()))
        .collect();
    let decode = |votes: &[(Participant, bytes::Bytes)]| -> Vec<PeerPartial<MinSig>> {
        let parts = votes.iter().take(quorum).map(|(index, bytes)| PeerPartial {
            index: *index,
            value: G1::decode(bytes.clone()).expect("a point"),
        });
        parts.collect()
    };
    let peer_public = committee.sharing.public();
    let recover = |parts: &[PeerPartial<MinSig>]| {
        let signature = threshold::recover(&committee.sharing, parts, &Sequential);
        let signature = signature.expect("a quorum");
        ops::verify::<MinSig>(peer_public, VOTE_DST, MESSAGE, &signature).expect("valid");
        signature
    };
    let peer_certify = measure(times, || {
        encoded.shuffle(&mut rng);
        black_box(recover(&decode(&encoded)));
    });
    let parts = decode(&encoded);
    let peer_decoded = measure(times, || {
        black_box(recover(&parts));
    });
    line(
        "certify (peer: decode, recover, verify)",
        ours,
        Some(peer_certify),
    );
    line(
        "certify, same quorum (peer: without decode)",
        warm,
        Some(peer_decoded),
    );

    let proof = scheme.certify(&hashed, &votes, [1; 32]).expect("valid");
    let peer_signature = recover(&parts).encode();
    assert_eq!(
        proof,
        Proof::Threshold(peer_signature.as_ref().try_into().expect("48 bytes"))
    );
    let ours = measure(times, || assert!(scheme.verify(&hashed, &proof)));
    let peer = measure(times, || {
        let signature = G1::decode(peer_signature.clone()).expect("a point");
        ops::verify::<MinSig>(peer_public, VOTE_DST, MESSAGE, &signature).expect("valid");
    });
    line("verify a certificate, from bytes", ours, Some(peer));

    let other = HashedMessage::new(b"finalize");
    let second = scheme.certify(&other, &committee.votes(&other), [1; 32]);
    let second = second.expect("valid");
    let items = [(&hashed, &proof), (&other, &second)];
    let ours = measure(times, || assert!(scheme.verify_many(&items, [2; 32])));
    line("verify two certificates at once", ours, Some(2.0 * peer));

    let others = committee.votes(&other);
    let ballot = |message, parts| Ballot {
        message,
        parts,
        verified: 0,
    };
    let batches = [ballot(&hashed, votes.as_slice()), ballot(&other, &others)];
    let ours = measure(times, || {
        let mut checks = CheckCount::default();
        let made = scheme.certify_many(&batches, [2; 32], &mut checks);
        assert!(made.iter().all(Result::is_ok) && checks.pairing_checks == 1);
    });
    line("certify two at once", ours, Some(2.0 * peer_certify));

    for bad in [0, 1, (validators as usize - 1) / 3] {
        find_invalid(&committee, bad);
    }
}

/// Naming `bad` signers among a quorum. The peer's votes are decoded already; ours are bytes.
fn find_invalid(committee: &Committee, bad: usize) {
    let scheme = &committee.scheme;
    let quorum = scheme.quorum() as usize;
    let hashed = HashedMessage::new(MESSAGE);
    let other = HashedMessage::new(b"another message");
    let mut votes = committee.votes(&hashed);
    votes.truncate(quorum);
    let sign = |share: &Share, message| threshold::sign_message(share, NAMESPACE, message);
    let mut peer_votes: Vec<PeerPartial<MinSig>> = committee.shares[..quorum]
        .iter()
        .map(|share| sign(share, MESSAGE))
        .collect();
    for number in 0..bad {
        let victim = number * quorum / bad;
        votes[victim].1 = committee.secrets[victim].sign(&other);
        peer_votes[victim] = sign(&committee.shares[victim], b"another message");
    }
    let mut rng = ChaCha20Rng::from_seed([8; 32]);
    let mut checks = CheckCount::default();
    let ours = measure(3, || {
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        checks = CheckCount::default();
        let found = scheme.find_invalid_counted(&hashed, &votes, seed, &mut checks);
        assert_eq!(found.len(), bad);
    });
    let peer = measure(3, || {
        let found = threshold::batch_verify_same_message(
            &mut rng,
            &committee.sharing,
            NAMESPACE,
            MESSAGE,
            non_empty![@peer_votes.iter()],
            &Sequential,
        );
        assert_eq!(found.map_or_else(|found| found.len(), |()| 0), bad);
    });
    let name = format!(
        "find {bad} bad of {quorum}, {} checks (peer: decoded)",
        checks.pairing_checks
    );
    line(&name, ours, Some(peer));
}

/// The aggregate scheme beside one pairing check, and what an identity signature on each vote
/// would cost.
fn aggregate(validators: u32) {
    let mut rng = ChaCha20Rng::from_seed([3; 32]);
    let secrets: Vec<VoteSecret> = (0..validators)
        .map(|_| VoteSecret::random(&mut rng))
        .collect();
    let members: Vec<AggregateMember> = secrets
        .iter()
        .map(|secret| AggregateMember {
            identity: [1; 32],
            key: secret.public_key(),
            possession: secret.prove_possession("cost", &[1; 32]),
        })
        .collect();
    println!("\n{validators} validators, aggregate");
    let mut opened = None;
    let time = measure(1, || {
        opened = Some(Scheme::aggregate("cost", &members).expect("fresh keys"));
    });
    line("check all keys and proofs of possession", time, None);
    let scheme = opened.expect("just opened");
    let hashed = HashedMessage::new(MESSAGE);
    let mut votes: Vec<(u32, PartialSignature)> = (0..)
        .zip(&secrets)
        .map(|(index, secret)| (index, secret.sign(&hashed)))
        .collect();
    let times = 20;
    let one = measure(times, || {
        let hashed = HashedMessage::new(black_box(MESSAGE));
        black_box(scheme.verify_partial(&hashed, 0, &votes[0].1));
    });
    line("one pairing check, hash included", one, None);
    let ours = measure(times, || {
        votes.shuffle(&mut rng);
        let hashed = HashedMessage::new(black_box(MESSAGE));
        scheme.certify(&hashed, &votes, [1; 32]).expect("valid");
    });
    line("certify, hash included (peer: one check)", ours, Some(one));
    let proof = scheme.certify(&hashed, &votes, [1; 32]).expect("valid");
    let warm = measure(times, || assert!(scheme.verify(&hashed, &proof)));
    line("verify a certificate, same signers", warm, None);

    let identities: Vec<SecretKey> = (0..scheme.quorum() as u8)
        .map(|seed| SecretKey::from_bytes(&[seed; 32]))
        .collect();
    let time = measure(times, || {
        black_box(identities[0].sign(b"vote", MESSAGE));
    });
    line("an identity signature on a vote", time, None);
    let signed: Vec<_> = identities
        .iter()
        .map(|secret| (secret.identity(), secret.sign(b"vote", MESSAGE)))
        .collect();
    let time = measure(times, || {
        for (identity, signature) in &signed {
            assert!(identity.verify(b"vote", MESSAGE, signature));
        }
    });
    line("verify a quorum's, one by one", time, None);
}

/// Opening a scheme: decoding and checking all keys.
fn keys(validators: u32) {
    let (keys, _) = deal(validators, ChaCha20Rng::from_seed([1; 32]));
    let time = measure(1, || {
        black_box(Scheme::threshold(&keys).expect("a fresh dealing"));
    });
    let name = format!("check the keys of {validators} validators");
    line(&name, time, None);
}

fn main() {
    println!(
        "{:<44} {:>9} {:>9} {:>7}",
        "µs per operation", "ours", "peer", "ratio"
    );
    one_signature();
    for validators in [4, 100, 1024] {
        keys(validators);
    }
    for validators in [4, 10, 50, 100, 200] {
        certificate(validators);
        aggregate(validators);
    }
}
