//! What it takes to turn votes into a certificate: one check for all of them, beside verifying each
//! vote at once, and beside commonware's own calls.
//!
//! Every subject starts from the bytes of the votes, as they lie in their slots, and ends with a
//! verified certificate. A fresh random quorum is taken each time, as a network makes them, so
//! nothing that is kept per set of signers is found again.
//!
//! - *ours*: `bls-threshold`, the message on the curve since the validator's own vote was signed.
//! - *ours, hashing*: the same when the validator has not voted itself.
//! - *aggregate*: `bls-aggregate`, hashing included.
//! - *eager*: each vote is verified when it comes, with this node's own code; adding up is free.
//! - *peer*: decode, recover and verify by commonware-cryptography, as its simplex does; upon a
//!   failure its own search for the invalid votes.
//!
//! With bad signers, what is measured is the time until the certificate is there, once: afterwards
//! they are blocked. All of them are among the first quorum, evenly spread, and sign another
//! message, so that their votes are points like any other.

use crate::{
    paired::{Comparison, Spread},
    report::{self, Output},
};
use clap::Args;
use commonware_codec::{DecodeExt, Encode};
use commonware_cryptography::bls12381::{
    dkg::feldman_desmedt::deal_anonymous,
    primitives::{
        group::{G1, Share},
        ops::{self, threshold},
        sharing::{Mode, Sharing},
        variant::{MinSig, PartialSignature as PeerPart},
    },
};
use commonware_parallel::Sequential;
use commonware_utils::{N3f1, Participant, non_empty};
use quorate_crypto::bls::{
    AggregateMember, CertifyError, CheckCount, HashedMessage, PartialSignature, Proof, Scheme,
    VoteSecret, deal,
};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha20Rng;
use serde_json::json;
use std::{cell::RefCell, hint::black_box, num::NonZeroU32};

const MESSAGE: &[u8] = b"notarize: epoch 1, view 2, payload 3";
const OTHER: &[u8] = b"notarize: epoch 1, view 2, payload 4";
const NAMESPACE: &[u8] = b"votes";

/// What to run.
#[derive(Args, Clone)]
pub struct VerifyArgs {
    /// How many validators: one part of the table for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [4, 10, 50, 100, 200])]
    validators: Vec<u32>,
    /// How often each operation is timed.
    #[arg(long, default_value_t = 15)]
    rounds: u32,
    #[command(flatten)]
    output: Output,
}

/// One committee in all forms.
struct Committee {
    faults: usize,
    threshold: Scheme,
    threshold_secrets: Vec<VoteSecret>,
    aggregate: Scheme,
    aggregate_secrets: Vec<VoteSecret>,
    sharing: Sharing<MinSig>,
    shares: Vec<Share>,
}

/// The votes of all validators, of which some signed another message.
struct Votes {
    threshold: Vec<(u32, PartialSignature)>,
    aggregate: Vec<(u32, PartialSignature)>,
    peer: Vec<(Participant, bytes::Bytes)>,
}

/// A committee of the aggregate scheme and its members' secrets.
pub(crate) fn aggregate_committee(
    validators: u32,
    rng: &mut ChaCha20Rng,
) -> anyhow::Result<(Scheme, Vec<VoteSecret>)> {
    let secrets: Vec<_> = (0..validators)
        .map(|_| VoteSecret::random(&mut *rng))
        .collect();
    let members: Vec<_> = secrets
        .iter()
        .map(|secret| AggregateMember {
            identity: [1; 32],
            key: secret.public_key(),
            possession: secret.prove_possession("bench", &[1; 32]),
        })
        .collect();
    Ok((Scheme::aggregate("bench", &members)?, secrets))
}

impl Committee {
    fn new(validators: u32) -> anyhow::Result<Self> {
        let seed = [validators as u8; 32];
        let (keys, threshold_secrets) = deal(validators, ChaCha20Rng::from_seed(seed));
        let mut rng = ChaCha20Rng::from_seed(seed);
        let (aggregate, aggregate_secrets) = aggregate_committee(validators, &mut rng)?;
        let count = NonZeroU32::new(validators).ok_or(anyhow::anyhow!("no validators"))?;
        let (sharing, shares) = deal_anonymous::<MinSig, N3f1>(rng, Mode::NonZeroCounter, count);
        sharing.precompute_partial_publics();
        Ok(Self {
            faults: (validators as usize - 1) / 3,
            threshold: Scheme::threshold(&keys)?,
            threshold_secrets,
            aggregate,
            aggregate_secrets,
            sharing,
            shares,
        })
    }

    fn quorum(&self) -> usize {
        self.threshold.quorum() as usize
    }

    /// All votes in random order; the bad ones are evenly spread over the first quorum.
    fn votes(&self, bad: usize, rng: &mut ChaCha20Rng) -> Votes {
        let (good, other) = (HashedMessage::new(MESSAGE), HashedMessage::new(OTHER));
        let mut order: Vec<usize> = (0..self.shares.len()).collect();
        order.shuffle(rng);
        let quorum = self.quorum();
        let is_bad = |turn: usize| (0..bad).any(|number| number * quorum / bad == turn);
        let mut votes = Votes {
            threshold: Vec::new(),
            aggregate: Vec::new(),
            peer: Vec::new(),
        };
        for (turn, place) in order.into_iter().enumerate() {
            let (hash, bytes) = match is_bad(turn) {
                true => (&other, OTHER),
                false => (&good, MESSAGE),
            };
            let index = place as u32;
            let threshold = self.threshold_secrets[place].sign(hash);
            let aggregate = self.aggregate_secrets[place].sign(hash);
            let peer = threshold::sign_message::<MinSig>(&self.shares[place], NAMESPACE, bytes);
            votes.threshold.push((index, threshold));
            votes.aggregate.push((index, aggregate));
            votes
                .peer
                .push((Participant::new(index), peer.value.encode()));
        }
        votes
    }
}

/// As the engine does it: a quorum is checked at once, who is found out is left out.
fn certify(
    scheme: &Scheme,
    message: &HashedMessage,
    votes: &[(u32, PartialSignature)],
    seed: [u8; 32],
    checks: &mut CheckCount,
) -> Proof {
    let mut bad: Vec<u32> = Vec::new();
    loop {
        let good = votes.iter().filter(|(signer, _)| !bad.contains(signer));
        let parts: Vec<_> = good.take(scheme.quorum() as usize).copied().collect();
        match scheme.certify(message, &parts, seed) {
            Ok(proof) => {
                checks.pairing_checks += 1;
                return proof;
            }
            Err(CertifyError::Invalid {
                bad: found,
                checks: spent,
            }) => {
                checks.pairing_checks += spent.pairing_checks;
                bad.extend(found);
            }
            Err(error) => unreachable!("a quorum of distinct validators: {error}"),
        }
    }
}

/// Verifies one vote after the other until a quorum holds.
fn eager(scheme: &Scheme, message: &HashedMessage, votes: &[(u32, PartialSignature)]) {
    let valid = votes
        .iter()
        .filter(|(signer, signature)| scheme.verify_partial(message, *signer, signature));
    assert_eq!(
        valid.take(scheme.quorum() as usize).count(),
        scheme.quorum() as usize
    );
}

/// The peer's way, with its own calls.
fn peer(committee: &Committee, votes: &[(Participant, bytes::Bytes)], rng: &mut ChaCha20Rng) {
    let decode = |(index, bytes): &(Participant, bytes::Bytes)| PeerPart::<MinSig> {
        index: *index,
        value: G1::decode(bytes.clone()).expect("a point"),
    };
    let quorum = committee.quorum();
    let mut parts: Vec<_> = votes[..quorum].iter().map(decode).collect();
    let mut rest = votes[quorum..].iter();
    loop {
        let signature = threshold::recover(&committee.sharing, &parts, &Sequential);
        let signature = signature.expect("a quorum");
        let public = committee.sharing.public();
        if threshold_holds(public, &signature) {
            black_box(signature);
            return;
        }
        let found = threshold::batch_verify_same_message(
            rng,
            &committee.sharing,
            NAMESPACE,
            MESSAGE,
            non_empty![@parts.iter()],
            &Sequential,
        );
        let bad: Vec<Participant> = match found {
            Ok(()) => Vec::new(),
            Err(found) => found.into_iter().map(|part| part.index).collect(),
        };
        parts.retain(|part| !bad.contains(&part.index));
        parts.extend(rest.by_ref().take(bad.len()).map(decode));
    }
}

fn threshold_holds(
    public: &<MinSig as commonware_cryptography::bls12381::primitives::variant::Variant>::Public,
    signature: &G1,
) -> bool {
    ops::verify_message::<MinSig>(public, NAMESPACE, MESSAGE, signature).is_ok()
}

/// One line of the table.
struct Row {
    validators: u32,
    bad: usize,
    checks: u32,
    subjects: Vec<(&'static str, Spread)>,
    ratios: Vec<(&'static str, Spread)>,
}

fn row(committee: &Committee, bad: usize, rounds: u32) -> Row {
    let rng = RefCell::new(ChaCha20Rng::from_seed([9; 32]));
    // Several sets of votes, so that each time another quorum comes first.
    let sets: Vec<Votes> = {
        let mut rng = rng.borrow_mut();
        (0..16).map(|_| committee.votes(bad, &mut rng)).collect()
    };
    let hashed = HashedMessage::new(MESSAGE);
    let checks = RefCell::new(CheckCount::default());
    let runs = RefCell::new(0);
    let seed = || {
        let mut seed = [0; 32];
        rng.borrow_mut().fill_bytes(&mut seed);
        seed
    };
    let pick = || &sets[(rng.borrow_mut().next_u32() % 16) as usize];
    let hash = || HashedMessage::new(black_box(MESSAGE));

    let mut comparison = Comparison::default();
    comparison.add("ours", || {
        *runs.borrow_mut() += 1;
        let votes = &pick().threshold;
        let checks = &mut checks.borrow_mut();
        black_box(certify(
            &committee.threshold,
            &hashed,
            votes,
            seed(),
            checks,
        ));
    });
    comparison.add("ours_hashing", || {
        let mut spent = CheckCount::default();
        let votes = &pick().threshold;
        black_box(certify(
            &committee.threshold,
            &hash(),
            votes,
            seed(),
            &mut spent,
        ));
    });
    comparison.add("aggregate", || {
        let mut spent = CheckCount::default();
        let votes = &pick().aggregate;
        black_box(certify(
            &committee.aggregate,
            &hash(),
            votes,
            seed(),
            &mut spent,
        ));
    });
    comparison.add("eager", || {
        eager(&committee.threshold, &hashed, &pick().threshold)
    });
    comparison.add("peer", || {
        let mut rng = rng.borrow_mut();
        let votes = &sets[(rng.next_u32() % 16) as usize].peer;
        peer(committee, votes, &mut rng);
    });
    let one = &sets[0].aggregate.last().expect("somebody voted");
    comparison.add("one_check", || {
        assert!(committee.aggregate.verify_partial(&hash(), one.0, &one.1));
    });
    comparison.run(rounds);
    let names = [
        "ours",
        "ours_hashing",
        "aggregate",
        "eager",
        "peer",
        "one_check",
    ];
    let ratios = vec![
        ("peer_to_ours", comparison.ratio("peer", "ours")),
        (
            "peer_to_ours_hashing",
            comparison.ratio("peer", "ours_hashing"),
        ),
        ("peer_to_aggregate", comparison.ratio("peer", "aggregate")),
        ("eager_to_ours", comparison.ratio("eager", "ours")),
        (
            "aggregate_to_one_check",
            comparison.ratio("aggregate", "one_check"),
        ),
    ];
    let subjects = names.map(|name| (name, comparison.micros(name))).to_vec();
    drop(comparison);
    let runs: u32 = runs.into_inner();
    Row {
        validators: committee.threshold.validators(),
        bad,
        checks: (checks.into_inner().pairing_checks + runs / 2) / runs,
        subjects,
        ratios,
    }
}

/// Runs the comparison and prints its report.
///
/// # Errors
///
/// When a report cannot be written.
pub fn run(args: &VerifyArgs) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    println!(
        "from the votes' bytes to a verified certificate, µs (median of {} rounds, in turn)\n\n\
         {:>4} {:>4} {:>7} | {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} | {:>6} {:>6} {:>6} {:>6}",
        args.rounds,
        "n",
        "bad",
        "checks",
        "ours",
        "hashing",
        "aggregate",
        "eager",
        "peer",
        "one check",
        "peer÷",
        "agg.",
        "eager÷",
        "agg./1"
    );
    for &validators in &args.validators {
        let committee = Committee::new(validators)?;
        let faults = committee.faults;
        let mut numbers = vec![0, 1, faults / 2, faults];
        numbers.retain(|bad| *bad <= faults);
        numbers.sort_unstable();
        numbers.dedup();
        for bad in numbers {
            let row = row(&committee, bad, args.rounds);
            print!("{validators:>4} {bad:>4} {:>7} |", row.checks);
            row.subjects
                .iter()
                .for_each(|(_, time)| print!(" {:>9.0}", time.median));
            print!(" |");
            for name in [
                "peer_to_ours",
                "peer_to_aggregate",
                "eager_to_ours",
                "aggregate_to_one_check",
            ] {
                let found = row.ratios.iter().find(|(ratio, _)| *ratio == name);
                print!(
                    " {:>6.2}",
                    found.map_or(f64::NAN, |(_, ratio)| ratio.median)
                );
            }
            println!();
            rows.push(row);
        }
    }
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "validators": row.validators,
                "bad": row.bad,
                "pairing_checks": row.checks,
                "micros": report::spreads(&row.subjects),
                "ratios": report::spreads(&row.ratios),
            })
        })
        .collect();
    args.output
        .write("verify", &json!({ "rounds": args.rounds, "rows": rows }))
}
