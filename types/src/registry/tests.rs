//! Bonds, validator sets, and what is unbonded, slashed and paid.

use super::*;
use crate::{Subject, ValidatorIndex, View, Vote, VoteKind};
use commonware_codec::Encode;
use quorate_crypto::{Digest, bls::VoteSecret};
use rand::SeedableRng as _;

const RULES: RegistryRules = RegistryRules {
    min_stake: 100,
    max_validators: 7,
    unbond_epochs: 2,
    slashing: Some(Slashing {
        percent: 10,
        jail_epochs: 3,
    }),
    external: None,
    resharing: false,
};
const OWNER: Identity = Identity([7; 32]);
const CHAIN: &str = "test";

fn context(epoch: u64) -> RegistryContext<'static> {
    RegistryContext {
        rules: Some(&RULES),
        chain_name: CHAIN,
        chain: ChainId(Digest([5; 32])),
        epoch: Epoch(epoch),
        phase: Phase::Over,
        committees: None,
    }
}

fn secret(seed: u64) -> VoteSecret {
    VoteSecret::random(rand::rngs::StdRng::seed_from_u64(seed))
}

fn keys(secret: &VoteSecret, chain: &str, identity: &Identity) -> (VoteKey, Possession) {
    let possession = secret.prove_possession(chain, &identity.0);
    (VoteKey(secret.public_key()), Possession(possession))
}

fn bond() -> Operation {
    let (vote_key, possession) = keys(&secret(1), CHAIN, &OWNER);
    Operation::Bond {
        vote_key,
        possession,
        address: "host:9000".parse().expect("short"),
        name: "one".parse().expect("short"),
    }
}

fn rotation(secret: &VoteSecret, chain: &str, identity: &Identity) -> Operation {
    let (vote_key, possession) = keys(secret, chain, identity);
    Operation::RotateKey {
        vote_key,
        possession,
    }
}

fn bonded(stake: u64) -> Account {
    let mut account = Account::plain(3, 1_000);
    let applied = bond().apply(&context(0), &OWNER, stake, &mut account);
    applied.expect("enough stake");
    account
}

fn total(account: &Account) -> u64 {
    account.balance + account.bond.as_ref().map_or(0, |bond| bond.total())
}

/// A refused operation changes nothing.
fn refusal(
    operation: &Operation,
    context: &RegistryContext<'_>,
    amount: u64,
    account: &Account,
) -> Option<Failure> {
    let mut after = account.clone();
    let refused = operation.apply(context, &OWNER, amount, &mut after).err();
    assert!(refused.is_none() || after == *account);
    refused
}

#[test]
fn a_bond_takes_stake_from_the_balance_and_gives_it_back_after_the_delay() {
    let mut account = bonded(400);
    assert_eq!((account.balance, total(&account)), (600, 1_000));
    let bond = account.bond.clone().expect("bonded");
    assert_eq!((bond.identity, bond.stake), (OWNER, 400));
    let apply = |operation: Operation, epoch, amount, account: &mut Account| {
        let applied = operation.apply(&context(epoch), &OWNER, amount, account);
        assert_eq!(total(account), 1_000, "{operation:?}");
        applied
    };
    apply(Operation::AddStake, 1, 100, &mut account).expect("there is money");
    apply(Operation::Unbond { stake: 400 }, 1, 0, &mut account).expect("100 are left");
    let bond = account.bond.clone().expect("bonded");
    assert_eq!(
        (bond.stake, bond.leaving, bond.leaves_at),
        (100, 400, Epoch(3))
    );
    let early = apply(Operation::Withdraw, 2, 0, &mut account);
    assert_eq!(early, Err(Failure::NothingToWithdraw));
    apply(Operation::Withdraw, 3, 0, &mut account).expect("the delay is over");
    assert_eq!(account.balance, 900);
    apply(Operation::Unbond { stake: 100 }, 3, 0, &mut account).expect("all of it");
    assert!(account.bond.is_some(), "held until it is withdrawn");
    apply(Operation::Withdraw, 5, 0, &mut account).expect("the delay is over");
    assert_eq!(account, Account::plain(3, 1_000));
}

#[test]
fn a_second_unbond_holds_all_for_the_whole_delay() {
    let mut account = bonded(500);
    for epoch in [1, 2] {
        let unbond = Operation::Unbond { stake: 100 };
        let applied = unbond.apply(&context(epoch), &OWNER, 0, &mut account);
        applied.expect("enough is left");
    }
    let early = Operation::Withdraw.apply(&context(3), &OWNER, 0, &mut account);
    assert_eq!(early, Err(Failure::NothingToWithdraw));
}

#[test]
fn each_rule_refuses_by_its_name() {
    let plain = Account::plain(0, 1_000);
    let with = bonded(400);
    let now = context(0);
    let none = RegistryContext {
        rules: None,
        ..context(0)
    };
    let is = |operation: &Operation, context: &_, amount, account: &Account, why| {
        assert_eq!(
            refusal(operation, context, amount, account),
            Some(why),
            "{operation:?}"
        );
    };
    is(&bond(), &none, 400, &plain, Failure::NoRegistry);
    is(&bond(), &now, 99, &plain, Failure::StakeTooSmall);
    is(&bond(), &now, 1_001, &plain, Failure::InsufficientBalance);
    is(&bond(), &now, 400, &with, Failure::AlreadyBonded);
    for operation in [
        Operation::AddStake,
        Operation::Unbond { stake: 1 },
        Operation::Withdraw,
        rotation(&secret(2), CHAIN, &OWNER),
    ] {
        is(&operation, &now, 0, &plain, Failure::NotBonded);
    }
    is(&Operation::Withdraw, &now, 1, &with, Failure::BadOperation);
    is(&Operation::AddStake, &now, 0, &with, Failure::StakeTooSmall);
    for stake in [0, 301, 401, u64::MAX] {
        is(
            &Operation::Unbond { stake },
            &now,
            0,
            &with,
            Failure::StakeTooSmall,
        );
    }
    is(
        &Operation::Withdraw,
        &now,
        0,
        &with,
        Failure::NothingToWithdraw,
    );
    for (chain, identity) in [("other", OWNER), (CHAIN, Identity([8; 32]))] {
        let foreign = rotation(&secret(2), chain, &identity);
        is(&foreign, &now, 0, &with, Failure::BadPossession);
    }
    let own = rotation(&secret(2), CHAIN, &OWNER);
    assert_eq!(refusal(&own, &now, 0, &with), None);
}

/// Two votes of the validator at a place of the set below, for a view of an epoch.
fn pair(place: u32, epoch: u64, key: &VoteSecret, kinds: [VoteKind; 2]) -> Evidence {
    let vote = |kind: VoteKind, payload: u8| {
        let subject = Subject {
            epoch: Epoch(epoch),
            view: View(3),
            kind,
            payload: Digest([payload; 32]),
        };
        let message = HashedMessage::new(&subject.signed_bytes(&context(0).chain));
        Vote {
            subject,
            signer: ValidatorIndex(place),
            signature: key.sign(&message),
        }
    };
    Evidence {
        first: vote(kinds[0], 1),
        second: vote(kinds[1], 2),
    }
}

#[test]
fn two_contradicting_votes_cost_stake_and_some_epochs_and_only_once() {
    let members = (0..4).map(|place| Member {
        identity: Identity([place + 7; 32]),
        vote_key: VoteKey(secret(u64::from(place)).public_key()),
        address: BondAddress::default(),
        name: BondName::default(),
    });
    let set = ValidatorSet::of_members(Epoch(0), members.collect());
    let committees = Committees::trusting(set).expect("four");
    let now = |epoch| RegistryContext {
        committees: Some(&committees),
        ..context(epoch)
    };
    let notarize = [VoteKind::Notarize; 2];
    let guilty = pair(0, 6, &secret(0), notarize);
    let mut account = bonded(401);
    let unbond = Operation::Unbond { stake: 200 };
    unbond
        .apply(&now(5), &OWNER, 0, &mut account)
        .expect("enough is left");
    let before = account.clone();
    let refused = |context: &RegistryContext<'_>, evidence: &Evidence, why| {
        let mut account = before.clone();
        let punished = context.punish(&OWNER, evidence, &mut account);
        assert_eq!((punished, &account), (Err(why), &before), "{evidence:?}");
    };
    // Another's votes, another's key, votes that an honest validator casts, of an epoch to come, forged ones.
    refused(
        &now(6),
        &pair(1, 6, &secret(1), notarize),
        Failure::BadEvidence,
    );
    refused(
        &now(6),
        &pair(0, 6, &secret(1), notarize),
        Failure::BadEvidence,
    );
    let honest = [VoteKind::Notarize, VoteKind::Nullify];
    refused(
        &now(6),
        &pair(0, 6, &secret(0), honest),
        Failure::BadEvidence,
    );
    refused(&now(5), &guilty, Failure::BadEvidence);
    let mut forged = guilty;
    forged.second.subject.payload = Digest([9; 32]);
    refused(&now(6), &forged, Failure::BadEvidence);
    let mut same = guilty;
    same.second = same.first;
    refused(&now(6), &same, Failure::BadEvidence);
    refused(&context(6), &guilty, Failure::BadEvidence);
    refused(&now(9), &guilty, Failure::BadEvidence);
    let spared = RegistryRules {
        slashing: None,
        ..RULES
    };
    let without = RegistryContext {
        rules: Some(&spared),
        ..now(6)
    };
    refused(&without, &guilty, Failure::BadEvidence);

    // A tenth of both, rounded up, and three epochs.
    let taken = now(6).punish(&OWNER, &guilty, &mut account);
    assert_eq!(taken, Ok(21 + 20));
    let bond = account.bond.clone().expect("it stays");
    assert_eq!((bond.stake, bond.leaving, bond.since), (180, 180, Epoch(9)));
    // Once for all that it did before.
    for epoch in [0, 6, 8] {
        let more = pair(0, epoch, &secret(0), notarize);
        let again = now(9).punish(&OWNER, &more, &mut account);
        assert_eq!(again, Err(Failure::AlreadyPunished));
    }
    let later = now(9).punish(&OWNER, &pair(0, 9, &secret(0), notarize), &mut account);
    assert_eq!(later, Ok(18 + 18));
    // The accused can do nothing about it by operations of its own.
    let accuse = Operation::Accuse {
        validator: OWNER,
        evidence: Box::new(guilty),
    };
    let own = accuse.apply(&now(9), &OWNER, 0, &mut account);
    assert_eq!(own, Err(Failure::BadOperation));
    let nobody = now(6).punish(&OWNER, &guilty, &mut Account::plain(0, 9));
    assert_eq!(nobody, Err(Failure::NotBonded));
}

#[test]
fn operations_and_bonds_have_one_encoding_and_hostile_bytes_none() {
    let longest = Bond {
        identity: OWNER,
        stake: u64::MAX,
        leaving: u64::MAX,
        leaves_at: Epoch(u64::MAX),
        since: Epoch(u64::MAX),
        vote_key: VoteKey([9; 96]),
        address: "a".repeat(MAX_BOND_ADDRESS_BYTES).parse().expect("fits"),
        name: "n".repeat(MAX_BOND_NAME_BYTES).parse().expect("fits"),
    };
    let mut account = Account::plain(1, 2);
    account.bond = Some(Box::new(longest));
    let bytes = account.encode();
    assert_eq!(bytes.len(), 251);
    assert_eq!(Account::decode(bytes).expect("its own encoding"), account);
    for operation in [
        bond(),
        Operation::AddStake,
        Operation::Unbond { stake: 5 },
        Operation::Withdraw,
        rotation(&secret(2), CHAIN, &OWNER),
        Operation::Describe {
            address: BondAddress::default(),
            name: "n".parse().expect("short"),
        },
        Operation::Accuse {
            validator: OWNER,
            evidence: Box::new(pair(0, 1, &secret(0), [VoteKind::Notarize; 2])),
        },
        Operation::Report {
            validator: OWNER,
            entry: None,
        },
        Operation::Report {
            validator: OWNER,
            entry: Some(Box::new(ExternalEntry {
                stake: 5,
                vote_key: VoteKey([9; 96]),
                possession: Possession([8; 48]),
                address: "host:9000".parse().expect("short"),
                name: "one".parse().expect("short"),
            })),
        },
    ] {
        let bytes = operation.encode();
        assert_eq!(bytes.len(), operation.encode_size());
        let read = Operation::from_memo(&bytes).expect("its own encoding");
        assert_eq!(read, operation);
        for cut in 0..bytes.len() {
            assert!(Operation::from_memo(&bytes[..cut]).is_err());
        }
        assert!(Operation::from_memo(&[&bytes[..], &[0]].concat()).is_err());
    }
    assert!(Operation::from_memo(&[1, 8]).is_err());
    assert!("with space".parse::<BondName>().is_err());
    assert!(
        "x".repeat(MAX_BOND_NAME_BYTES + 1)
            .parse::<BondName>()
            .is_err()
    );
}
