//! What passing a group key on costs one validator in CPU time, by the number of validators:
//!
//! ```sh
//! cargo run --release -p quorate-crypto --example dealing_cost
//! ```
//!
//! The old validators are the new ones, and all deal. Each line is what one of them does in an epoch: it deals, checks
//! every dealing (twice, as voter and as executor), opens its own value of each, and adds up those of a quorum.

#![allow(missing_docs, clippy::unwrap_used)]

use quorate_crypto::{
    Digest,
    bls::{CheckedDealing, Dealing, OpeningSecret, Round, Sum, VoteSecret, deal},
};
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use std::time::{Duration, Instant};

fn timed<T>(what: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let made = what();
    (start.elapsed(), made)
}

fn main() {
    println!("validators  bytes  deal ms  check all ms  open all ms  add up ms  in all, s");
    for count in [4_u32, 7, 10, 25, 50, 100] {
        let (keys, shares) = deal(count, ChaCha20Rng::seed_from_u64(1));
        let secrets: Vec<OpeningSecret> = (0..count)
            .map(|player| OpeningSecret::random(ChaCha20Rng::seed_from_u64(player.into())))
            .collect();
        let round = Round {
            context: Digest([1; 32]),
            players: secrets.iter().map(OpeningSecret::key).collect(),
        };
        let (one, _) = timed(|| round.deal_share(0, &shares[0]).unwrap());
        let dealings: Vec<Dealing> = (0..)
            .zip(&shares)
            .map(|(dealer, share)| round.deal_share(dealer, share).unwrap())
            .collect();
        let check = || -> Vec<CheckedDealing> {
            let numbered = (0_u32..).zip(&dealings);
            let checked = numbered.map(|(dealer, dealing)| {
                let key = &keys.share_keys[dealer as usize];
                dealing.check(&round, dealer, Some(key)).unwrap()
            });
            checked.collect()
        };
        let (checking, checked) = timed(check);
        let open = || -> Vec<(u32, VoteSecret)> {
            let opened = checked.iter().map(|dealing| {
                let value = dealing.open(&round, 0, &secrets[0]);
                (dealing.dealer(), value.ok().unwrap())
            });
            opened.collect()
        };
        let (opening, mut values) = timed(open);
        let quorum = keys.quorum as usize;
        values.truncate(quorum);
        let (adding, passed) = timed(|| Sum::Shares.keys(&round, &checked[..quorum]).unwrap());
        let share = Sum::Shares.share(&values).unwrap();
        assert_eq!(share.public_key(), passed.share_keys[0]);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let all = one + 2 * checking + opening + adding;
        println!(
            "{count:>10} {:>6} {:>8.1} {:>13.1} {:>12.1} {:>10.1} {:>10.3}",
            Dealing::size(count as usize),
            ms(one),
            ms(checking),
            ms(opening),
            ms(adding),
            all.as_secs_f64()
        );
    }
}
