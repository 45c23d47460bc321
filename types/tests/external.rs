//! Genesis files of chains whose registry is elsewhere.
#![allow(missing_docs, clippy::unwrap_used)]

use quorate_types::{
    BondAddress, EpochLength, ExternalRules, Identity, RegistryRules, Slashing,
    genesis::{
        ApplicationKind, BlockLimits, Fees, Genesis, GenesisAccount, GenesisValidator, Protocol,
    },
    registry::report_slot,
};

const STAKE: u64 = u64::MAX;

fn genesis() -> Genesis {
    let validators = [1, 2, 3, 4].map(|seed| GenesisValidator {
        identity: Identity([seed; 32]),
        vote_key: "cd".repeat(96),
        proof_of_possession: Some("ab".repeat(48)),
        stake: STAKE,
        address: BondAddress::default(),
    });
    Genesis {
        name: "external".into(),
        timestamp_ms: 1_800_000_000_000,
        protocol: Protocol::Simplex,
        application: ApplicationKind::Ledger,
        scheme: "bls-aggregate".into(),
        fees: Fees::NONE,
        limits: BlockLimits {
            max_transactions: 4_096,
            max_bytes: 1_048_576,
        },
        epoch_blocks: EpochLength::new(100).unwrap(),
        group_key: None,
        registry: Some(RegistryRules {
            min_stake: 1,
            max_validators: 7,
            unbond_epochs: 1,
            slashing: None,
            external: Some(ExternalRules { report_epochs: 4 }),
            resharing: false,
        }),
        validators: validators.to_vec(),
        accounts: vec![GenesisAccount {
            identity: Identity([9; 32]),
            balance: u64::MAX,
        }],
    }
}

/// What is wrong with it.
fn refusal(change: impl FnOnce(&mut Genesis)) -> String {
    let mut genesis = genesis();
    change(&mut genesis);
    Genesis::from_json(&genesis.to_json())
        .unwrap_err()
        .to_string()
}

fn rules(genesis: &mut Genesis) -> &mut RegistryRules {
    genesis.registry.as_mut().unwrap()
}

#[test]
fn stake_elsewhere_is_no_part_of_the_supply() {
    let mut genesis = genesis();
    let read = Genesis::from_json(&genesis.to_json()).unwrap();
    assert_eq!(read, genesis);
    assert_eq!(read.supply(), u64::MAX);
    let native = refusal(|genesis| rules(genesis).external = None);
    assert!(native.contains("supply is below 2^64"), "{native}");
    rules(&mut genesis).external = None;
    assert_ne!(read.chain_id(), genesis.chain_id());
}

#[test]
fn what_cannot_be_is_refused_by_its_key() {
    let slashing = refusal(|genesis| {
        rules(genesis).slashing = Some(Slashing {
            percent: 5,
            jail_epochs: 1,
        });
    });
    assert!(slashing.contains("`registry.slashing`") && slashing.contains("registry.external"));
    for report_epochs in [0, 1_001] {
        let lag =
            refusal(|genesis| rules(genesis).external = Some(ExternalRules { report_epochs }));
        assert!(
            lag.contains("`registry.external.report_epochs` must be 1 to 1000"),
            "{lag}"
        );
    }
    let least = refusal(|genesis| rules(genesis).min_stake = 0);
    assert!(
        least.contains("`registry.min_stake` must be at least 1"),
        "{least}"
    );
    let slot = refusal(|genesis| genesis.accounts[0].identity = report_slot(3));
    assert!(slot.contains("the registry's are none"), "{slot}");
}

#[test]
fn the_stake_that_is_said_to_suffice_does_and_less_does_not() {
    let with = |stake: u64| {
        let mut genesis = genesis();
        let rules = rules(&mut genesis);
        rules.external = None;
        rules.min_stake = stake;
        genesis.accounts[0].balance = 1_000_000_007;
        for validator in &mut genesis.validators {
            validator.stake = stake;
        }
        Genesis::from_json(&genesis.to_json())
    };
    let refused = with(1).unwrap_err().to_string();
    let (_, after) = refused.split_once("at least ").unwrap();
    let each: u64 = after.split(',').next().unwrap().parse().unwrap();
    assert!(with(each).is_ok(), "{refused}");
    assert!(with(each - 1).is_err(), "{refused}");
}

#[test]
fn the_registry_says_from_the_start_where_the_genesis_validators_are() {
    let mut genesis = genesis();
    let without = genesis.chain_id();
    let address = "v1.example.org:26600";
    genesis.validators[1].address = address.parse().unwrap();
    assert_ne!(genesis.chain_id(), without);
    let read = Genesis::from_json(&genesis.to_json()).unwrap();
    let bonds = read.initial_accounts().unwrap();
    let bond = bonds[&read.validators[1].identity].bond.clone().unwrap();
    assert_eq!(bond.address.as_str(), address);
    assert_eq!(read.validators[1].member().unwrap().address, bond.address);
    // What verifiers get has none.
    let trust = read.trust();
    assert!(trust.validators.iter().all(|v| v.address.is_empty()));
    let malformed = refusal(|genesis| {
        genesis.validators[1].address = "v1.example.org".parse().unwrap();
    });
    assert!(
        malformed.contains("`validators[].address` must be host:port"),
        "{malformed}"
    );
    let useless = refusal(|genesis| {
        genesis.validators[1].address = address.parse().unwrap();
        genesis.registry = None;
        genesis.validators.iter_mut().for_each(|v| v.stake = 0);
    });
    let key = "`validators[].address` must be left out without";
    assert!(useless.contains(key), "{useless}");
}
