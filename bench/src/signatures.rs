//! What the signatures of transfers alone allow: how many transfers a second a network on this machine could carry if its
//! validators did nothing but verify each signature once, and its clients nothing but sign. The limit for goodput over
//! loopback.

use crate::{paired::Comparison, report::Output};
use clap::Args;
use quorate_crypto::{Digest, Identity, SecretKey};
use quorate_machine::validate::verify_signatures;
use quorate_types::{ChainId, Memo, Transaction, Transfer};
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use serde_json::json;
use std::{hint::black_box, num::NonZeroUsize, thread::available_parallelism};

const CHAIN: ChainId = ChainId(Digest([7; 32]));

/// Transfers that are verified together, each of another sender.
const TOGETHER: [(&str, usize); 5] = [
    ("1", 1),
    ("16", 16),
    ("64", 64),
    ("256", 256),
    ("1024", 1_024),
];

/// What to run.
#[derive(Args, Clone)]
pub struct SignaturesArgs {
    /// Validators on this machine, each of which verifies all transfers
    #[arg(long, default_value_t = 4)]
    validators: u32,
    /// Cores (default: this machine's)
    #[arg(long)]
    cores: Option<NonZeroUsize>,
    /// How often each is timed
    #[arg(long, default_value_t = 50)]
    rounds: u32,
    #[command(flatten)]
    output: Output,
}

/// Measures on one core, and prints a line for each number of transfers that are verified together.
///
/// # Errors
///
/// If the report cannot be written.
pub fn run(args: &SignaturesArgs) -> anyhow::Result<()> {
    let cores = match args.cores {
        Some(cores) => cores.get(),
        None => available_parallelism()?.get(),
    };
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let most = TOGETHER.iter().map(|(_, together)| *together).max();
    let senders: Vec<SecretKey> = (0..most.unwrap_or(1))
        .map(|_| SecretKey::random(&mut rng))
        .collect();
    let signed: Vec<_> = senders.iter().map(sign).collect();

    let mut comparison = Comparison::default();
    comparison.add("sign", || {
        black_box(sign(&senders[0]));
    });
    for (name, together) in TOGETHER {
        let batch = &signed[..together];
        comparison.add(name, move || assert!(verify_signatures(black_box(batch))));
    }
    comparison.run(args.rounds);

    let signing = comparison.micros("sign");
    println!("signing a transfer: {:.1} µs of a core\n", signing.median);
    println!(
        "{:>10} {:>12} {:>16} {:>36}",
        "together", "µs each", "quartiles", "limit, transfers/s"
    );
    let mut results = Vec::new();
    for (name, together) in TOGETHER {
        let spread = comparison.micros(name);
        let each = |micros: f64| micros / together as f64;
        let verifying = each(spread.median);
        let micros = f64::from(args.validators) * verifying + signing.median;
        let limit = cores as f64 * 1e6 / micros;
        println!(
            "{together:>10} {verifying:>12.1} {:>16} {limit:>36.0}",
            format!("{:.1}-{:.1}", each(spread.low), each(spread.high)),
        );
        results.push(json!({
            "together": together,
            "verify_us": verifying,
            "sign_us": signing.median,
            "validators": args.validators,
            "cores": cores,
            "limit_per_second": limit,
        }));
    }
    println!(
        "\n{} validators that verify each transfer once, and clients that sign it, on {cores} cores",
        args.validators
    );
    args.output.write("signatures", &json!(results))
}

/// A signed transfer, and the bytes that are signed.
fn sign(sender: &SecretKey) -> (Transaction, Vec<u8>) {
    let transfer = Transfer {
        chain_tag: CHAIN.tag(),
        sender: sender.identity(),
        nonce: 7,
        to: Identity([9; 32]),
        amount: 1,
        fee: 1,
        memo: Memo::default(),
    };
    let bytes = transfer.signed_bytes(&CHAIN);
    (transfer.sign(&CHAIN, sender), bytes)
}
