//! A small chain for the tests of this crate.

use quorate_crypto::{SecretKey, bls::SchemeKind, sha256};
use quorate_storage::store::Store;
use quorate_types::{
    BondAddress, EpochLength,
    genesis::{
        ApplicationKind, DEFAULT_FEES, DEFAULT_LIMITS, Genesis, GenesisAccount, GenesisValidator,
        Protocol,
    },
};
use std::path::Path;

/// The only account's key.
pub(crate) fn account() -> SecretKey {
    SecretKey::from_bytes(&sha256(&[b"account"]).0)
}

/// A new chain of four validators without vote keys, and its database in `db`.
pub(crate) fn chain(directory: &Path) -> (Genesis, Store) {
    let validators = (0u8..4).map(|place| GenesisValidator {
        identity: SecretKey::from_bytes(&sha256(&[b"validator", &[place]]).0).identity(),
        vote_key: String::new(),
        proof_of_possession: None,
        stake: 0,
        address: BondAddress::default(),
    });
    let genesis = Genesis {
        name: "machine".to_owned(),
        timestamp_ms: 1_700_000_000_000,
        protocol: Protocol::Simplex,
        application: ApplicationKind::Ledger,
        scheme: SchemeKind::BlsThreshold.name().to_owned(),
        limits: DEFAULT_LIMITS,
        fees: DEFAULT_FEES,
        epoch_blocks: EpochLength::DEFAULT,
        group_key: None,
        registry: None,
        validators: validators.collect(),
        accounts: vec![GenesisAccount {
            identity: account().identity(),
            balance: 1_000_000_000_000,
        }],
    };
    let (store, _) = Store::open(&directory.join("db"), &genesis).expect("a store");
    (genesis, store)
}
