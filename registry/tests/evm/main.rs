//! A staking contract as the source: through endpoints that lie, stall, go back or contradict themselves, and through a
//! real node with the real contract.
#![allow(missing_docs, clippy::unwrap_used)]

mod anvil;
mod contract;
mod endpoint;
mod hostile;
mod node;

use anvil::CHAIN_ID;
use quorate_crypto::{Identity, bls::VoteSecret};
use quorate_registry::{Address, Reader, SourceConfig, Terms, View};
use quorate_types::{BondName, ExternalEntry, Possession, VoteKey};
use rand::SeedableRng as _;
use std::time::Duration;

const MIN_STAKE: u64 = 100;
const TIMEOUT: Duration = Duration::from_millis(1_000);

fn terms() -> Terms {
    Terms {
        chain_name: "test".to_owned(),
        min_stake: MIN_STAKE,
    }
}

fn identity(number: u8) -> Identity {
    Identity([number + 1; 32])
}

/// An entry for an identity, with the vote key of a number.
fn entry_of(identity: &Identity, key: u8, stake: u64) -> ExternalEntry {
    let secret = VoteSecret::random(rand::rngs::StdRng::seed_from_u64(u64::from(key)));
    ExternalEntry {
        stake,
        vote_key: VoteKey(secret.public_key()),
        possession: Possession(secret.prove_possession("test", &identity.0)),
        address: format!("host-{key}:1").parse().unwrap(),
        name: BondName::default(),
    }
}

fn entry(number: u8, stake: u64) -> (Identity, ExternalEntry) {
    let identity = identity(number);
    (identity, entry_of(&identity, number, stake))
}

fn reader(urls: Vec<String>, agree: usize, contract: Address) -> Reader {
    let config = SourceConfig::Evm {
        urls,
        contract,
        chain_id: CHAIN_ID,
        agree,
        interval: Duration::from_millis(100),
        timeout: TIMEOUT,
    };
    Reader::new(&config, terms()).unwrap()
}

fn count(view: &View) -> Option<usize> {
    view.reading.as_ref().map(|reading| reading.entries.len())
}
