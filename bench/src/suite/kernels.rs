//! Small pieces of work of which whole blocks are made, each run for itself: its time in turn with
//! the baseline's, its instructions by callgrind.

use crate::verify::aggregate_committee;
use anyhow::bail;
use clap::Args;
use quorate_crypto::{
    SecretKey,
    bls::{HashedMessage, PartialSignature, Scheme, VoteSecret, deal},
};
use quorate_types::{ChainId, Digest, Identity, Memo, Transaction, Transfer};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// Validators of the committees.
const VALIDATORS: u32 = 100;

/// Transfers whose signatures are verified at once.
const TRANSFERS: u64 = 200;

/// The kernels' names.
pub(super) const NAMES: [&str; 5] = [
    "certify-threshold",
    "certify-aggregate",
    "find-forger",
    "sign-vote",
    "verify-transfers",
];

/// What to run.
#[derive(Args, Clone)]
pub struct KernelArgs {
    /// Which: certify-threshold, certify-aggregate, find-forger, sign-vote or verify-transfers
    name: String,
    /// Repeat it for so long and print the mean time in microseconds
    #[arg(long, default_value_t = 300, value_name = "MS")]
    milliseconds: u64,
    /// Repeat it so often instead, and print nothing
    #[arg(long)]
    times: Option<u32>,
}

/// Runs one and prints how long it takes, in microseconds.
///
/// # Errors
///
/// If there is none of this name.
pub fn run(args: &KernelArgs) -> anyhow::Result<()> {
    let mut kernel = kernel(&args.name)?;
    if let Some(times) = args.times {
        (0..times).for_each(|_| kernel());
        return Ok(());
    }
    kernel();
    let (begun, enough) = (Instant::now(), Duration::from_millis(args.milliseconds));
    let mut times = 0_u32;
    while begun.elapsed() < enough {
        kernel();
        times += 1;
    }
    println!(
        "{:.3}",
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(times)
    );
    Ok(())
}

type Kernel = Box<dyn FnMut()>;

fn kernel(name: &str) -> anyhow::Result<Kernel> {
    let hashed = HashedMessage::new(b"vote");
    let (keys, secrets) = deal(VALIDATORS, ChaCha20Rng::from_seed([5; 32]));
    let signed = |secrets: &[VoteSecret]| -> Vec<(u32, PartialSignature)> {
        (0..).zip(secrets.iter().map(|s| s.sign(&hashed))).collect()
    };
    let kernel: Kernel = match name {
        "certify-threshold" => {
            let scheme = Scheme::threshold(&keys)?;
            let votes = signed(&secrets);
            certify(scheme, &hashed, &votes)
        }
        "certify-aggregate" => {
            let rng = &mut ChaCha20Rng::from_seed([6; 32]);
            let (scheme, secrets) = aggregate_committee(VALIDATORS, rng)?;
            let votes = signed(&secrets);
            certify(scheme, &hashed, &votes)
        }
        "find-forger" => {
            let scheme = Scheme::threshold(&keys)?;
            let mut votes = signed(&secrets);
            votes.truncate(scheme.quorum() as usize);
            votes[7].1 = secrets[7].sign(&HashedMessage::new(b"another"));
            Box::new(move || {
                let found = black_box(scheme.find_invalid(&hashed, &votes, [1; 32]));
                assert_eq!(found, [7]);
            })
        }
        "sign-vote" => Box::new(move || {
            let hashed = HashedMessage::new(black_box(b"vote"));
            black_box(secrets[0].sign(&hashed));
        }),
        "verify-transfers" => {
            let chain = ChainId(Digest([9; 32]));
            let signed: Vec<(Transaction, Vec<u8>)> = (0..TRANSFERS)
                .map(|nonce| {
                    let secret = SecretKey::from_bytes(&[1 + (nonce % 50) as u8; 32]);
                    let transfer = Transfer {
                        chain_tag: chain.tag(),
                        sender: secret.identity(),
                        nonce,
                        to: Identity([9; 32]),
                        amount: 1,
                        fee: 1,
                        memo: Memo::NONE,
                    };
                    let message = transfer.signed_bytes(&chain);
                    (transfer.sign(&chain, &secret), message)
                })
                .collect();
            Box::new(move || {
                assert!(quorate_machine::validate::verify_signatures(black_box(
                    &signed
                )));
            })
        }
        _ => bail!("no kernel {name}; there are {}", NAMES.join(", ")),
    };
    Ok(kernel)
}

fn certify(scheme: Scheme, hashed: &HashedMessage, votes: &[(u32, PartialSignature)]) -> Kernel {
    let (hashed, votes) = (hashed.clone(), votes.to_vec());
    let quorum = scheme.quorum() as usize;
    let mut turn = 0;
    Box::new(move || {
        // Another set of signers each time, as in a network.
        turn = (turn + 1) % (votes.len() - quorum);
        let parts = &votes[turn..turn + quorum];
        assert!(black_box(scheme.certify(&hashed, parts, [1; 32])).is_ok());
    })
}
