//! What blocks do to accounts: no money appears, none vanishes, and each rule holds.
#![allow(missing_docs, clippy::unwrap_used)]

use commonware_codec::Encode as _;
use proptest::{collection::vec, prelude::*};
use quorate_crypto::bls::VoteSecret;
use quorate_machine::ledger::{Execution, Rules, execute, touched};
use quorate_types::{
    Account, Block, BondAddress, BondName, ChainId, Committees, Digest, Epoch, EpochLength,
    ExternalEntry, ExternalRules, Failure, Header, Height, Identity, IdentitySignature, Member,
    Memo, Operation, Outcome, Possession, REGISTRY, RegistryRules, Transaction, Transfer,
    ValidatorSet, View, VoteKey, limits::MAX_BLOCK_OPERATIONS,
};
use std::{collections::BTreeMap, sync::Mutex};

type Accounts = BTreeMap<Identity, Account>;

/// The rules of a chain with a registry.
fn rules() -> Rules {
    Rules::new(
        "test",
        EpochLength::DEFAULT,
        Some(RegistryRules {
            slashing: None,
            external: None,
            resharing: false,
            min_stake: 10,
            max_validators: 7,
            unbond_epochs: 1,
        }),
    )
}

const ALICE: Identity = Identity([1; 32]);
const BOB: Identity = Identity([2; 32]);
const LEADER: Identity = Identity([3; 32]);

fn transfer(sender: Identity, nonce: u64, to: Identity, amount: u64, fee: u64) -> Transfer {
    Transfer {
        chain_tag: [0; 8],
        sender,
        nonce,
        to,
        amount,
        fee,
        memo: Memo::NONE,
    }
}

fn block(transfers: &[Transfer]) -> Block {
    let transactions: Vec<Transaction> = transfers
        .iter()
        .map(|transfer| Transaction::new(transfer.clone(), IdentitySignature([0; 64])))
        .collect();
    let header = Header {
        chain: ChainId(Digest::ZERO),
        epoch: Epoch(0),
        view: View(1),
        height: Height(1),
        parent: Digest::ZERO,
        parent_view: View(0),
        timestamp_ms: 1,
        executed_height: Height(0),
        state_root: Digest::ZERO,
        body_root: Header::body_root_of(&transactions),
    };
    Block::new(header, transactions).unwrap()
}

/// Executes as the executor does: with the touched accounts, those never paid as their default.
fn run(state: &mut Accounts, leader: &Identity, transfers: &[Transfer]) -> Execution {
    let block = block(transfers);
    let before = touched(&block, leader, &rules())
        .into_iter()
        .map(|identity| (identity, state.get(&identity).cloned().unwrap_or_default()))
        .collect();
    let execution = execute(&block, leader, before, &rules());
    state.extend(execution.accounts.clone());
    execution
}

fn holding(balance: u64) -> Account {
    Account::plain(0, balance)
}

fn account(nonce: u64, balance: u64) -> Account {
    Account::plain(nonce, balance)
}

/// One transfer by Alice, who holds 100 at nonce 0.
fn alice_sends(transfer: Transfer) -> (Outcome, Accounts) {
    let mut state = Accounts::from([(ALICE, holding(100))]);
    let execution = run(&mut state, &LEADER, &[transfer]);
    (execution.outcomes[0], execution.accounts)
}

#[test]
fn an_applied_transfer_moves_the_amount_and_pays_the_fee() {
    let (outcome, changed) = alice_sends(transfer(ALICE, 0, BOB, 60, 7));
    assert_eq!(outcome, Outcome::Applied);
    let expected = [
        (ALICE, account(1, 33)),
        (BOB, holding(60)),
        (LEADER, holding(7)),
    ];
    assert_eq!(changed, Accounts::from(expected));
}

#[test]
fn everything_can_be_spent_to_the_last_unit_but_not_one_more() {
    let (outcome, changed) = alice_sends(transfer(ALICE, 0, BOB, 93, 7));
    assert_eq!(outcome, Outcome::Applied);
    assert_eq!(changed[&ALICE], account(1, 0));
    let (outcome, _) = alice_sends(transfer(ALICE, 0, BOB, 94, 7));
    assert_eq!(outcome, Outcome::Failed(Failure::InsufficientBalance));
}

#[test]
fn a_wrong_nonce_charges_nothing() {
    for nonce in [1, 2, u64::MAX] {
        let (outcome, changed) = alice_sends(transfer(ALICE, nonce, BOB, 1, 1));
        assert_eq!(outcome, Outcome::Failed(Failure::WrongNonce));
        assert!(changed.is_empty(), "{changed:?}");
    }
    // The nonce is looked at first: it is the reason even if the fee is too much as well.
    let (outcome, _) = alice_sends(transfer(ALICE, 1, BOB, 1, u64::MAX));
    assert_eq!(outcome, Outcome::Failed(Failure::WrongNonce));
}

#[test]
fn a_transaction_is_applied_once() {
    let mut state = Accounts::from([(ALICE, holding(100))]);
    let once = transfer(ALICE, 0, BOB, 10, 1);
    let execution = run(&mut state, &LEADER, &[once.clone(), once.clone()]);
    let replayed = Outcome::Failed(Failure::WrongNonce);
    assert_eq!(execution.outcomes, [Outcome::Applied, replayed]);
    assert_eq!(run(&mut state, &LEADER, &[once]).outcomes, [replayed]);
    assert_eq!(state[&BOB], holding(10));
}

#[test]
fn who_cannot_pay_the_fee_is_charged_nothing_and_keeps_the_nonce() {
    for fee in [101, u64::MAX] {
        let (outcome, changed) = alice_sends(transfer(ALICE, 0, BOB, 0, fee));
        assert_eq!(outcome, Outcome::Failed(Failure::CannotPayFee));
        assert!(changed.is_empty(), "{changed:?}");
    }
    // Nor does the fee come from what the same transfer would bring.
    let (outcome, changed) = alice_sends(transfer(BOB, 0, BOB, 5, 1));
    assert_eq!(outcome, Outcome::Failed(Failure::CannotPayFee));
    assert!(changed.is_empty(), "{changed:?}");
}

#[test]
fn who_cannot_pay_the_amount_pays_the_fee_and_uses_the_nonce() {
    for amount in [94, 100, u64::MAX] {
        let (outcome, changed) = alice_sends(transfer(ALICE, 0, BOB, amount, 7));
        assert_eq!(outcome, Outcome::Failed(Failure::InsufficientBalance));
        let expected = [(ALICE, account(1, 93)), (LEADER, holding(7))];
        assert_eq!(changed, Accounts::from(expected));
    }
}

#[test]
fn the_last_nonce_is_never_used() {
    let mut state = Accounts::from([(ALICE, account(u64::MAX, 100))]);
    let execution = run(&mut state, &LEADER, &[transfer(ALICE, u64::MAX, BOB, 1, 1)]);
    assert!(matches!(execution.outcomes[0], Outcome::Failed(_)));
    assert!(execution.accounts.is_empty());
}

#[test]
fn a_transfer_to_oneself_costs_the_fee_alone_and_needs_the_amount() {
    let (outcome, changed) = alice_sends(transfer(ALICE, 0, ALICE, 93, 7));
    assert_eq!(outcome, Outcome::Applied);
    assert_eq!(changed[&ALICE], account(1, 93));
    let (outcome, changed) = alice_sends(transfer(ALICE, 0, ALICE, 94, 7));
    assert_eq!(outcome, Outcome::Failed(Failure::InsufficientBalance));
    assert_eq!(changed[&ALICE], account(1, 93));
}

#[test]
fn a_leader_pays_the_fee_to_itself() {
    let mut state = Accounts::from([(LEADER, holding(100))]);
    // The fee comes back before the amount is taken.
    let execution = run(&mut state, &LEADER, &[transfer(LEADER, 0, BOB, 100, 100)]);
    assert_eq!(execution.outcomes, [Outcome::Applied]);
    assert_eq!(state[&LEADER], account(1, 0));
    assert_eq!(state[&BOB], holding(100));
    let mut state = Accounts::from([(LEADER, holding(100))]);
    let execution = run(
        &mut state,
        &LEADER,
        &[transfer(LEADER, 0, LEADER, 100, 100)],
    );
    assert_eq!(execution.outcomes, [Outcome::Applied]);
    assert_eq!(state[&LEADER], account(1, 100));
}

#[test]
fn the_whole_supply_moves_in_one_transfer() {
    let mut state = Accounts::from([(ALICE, holding(u64::MAX))]);
    let there = transfer(ALICE, 0, BOB, u64::MAX, 0);
    let back = transfer(BOB, 0, ALICE, 0, u64::MAX);
    let execution = run(&mut state, &LEADER, &[there, back]);
    assert_eq!(execution.outcomes, [Outcome::Applied, Outcome::Applied]);
    assert_eq!(state[&LEADER], holding(u64::MAX));
}

#[test]
fn money_received_in_a_block_is_spent_in_the_same_block() {
    let mut state = Accounts::from([(ALICE, holding(100))]);
    let pay = transfer(ALICE, 0, BOB, 50, 0);
    let spend = transfer(BOB, 0, ALICE, 50, 0);
    assert_eq!(
        run(&mut state.clone(), &LEADER, &[spend.clone(), pay.clone()]).outcomes[0],
        Outcome::Failed(Failure::InsufficientBalance)
    );
    let execution = run(&mut state, &LEADER, &[pay, spend]);
    assert_eq!(execution.outcomes, [Outcome::Applied, Outcome::Applied]);
    assert_eq!(state[&ALICE], account(1, 100));
}

#[test]
fn an_empty_block_touches_nobody() {
    assert!(touched(&block(&[]), &LEADER, &rules()).is_empty());
    let execution = run(&mut Accounts::new(), &LEADER, &[]);
    assert_eq!(execution, Execution::default());
}

/// On a chain whose registry is elsewhere, stake is no money: reports cost their fees and move nothing else.
#[test]
fn reports_make_bonds_and_no_money() {
    let members = [1, 2, 3, 4].map(|seed| Member {
        identity: Identity([seed; 32]),
        vote_key: VoteKey([seed; 96]),
        address: BondAddress::default(),
        name: BondName::default(),
    });
    let set = ValidatorSet::of_members(Epoch(0), members.to_vec());
    let committees = Committees::trusting(set).unwrap();
    let external = RegistryRules {
        external: Some(ExternalRules { report_epochs: 1 }),
        resharing: false,
        ..*rules().registry().unwrap()
    };
    let rules = Rules::new("test", EpochLength::DEFAULT, Some(external)).knowing(&committees);
    let fifth = Identity([5; 32]);
    let Operation::Bond {
        vote_key,
        possession,
        address,
        name,
    } = bond_of(fifth)
    else {
        unreachable!()
    };
    let entry = ExternalEntry {
        stake: u64::MAX,
        vote_key,
        possession,
        address,
        name,
    };
    let operation = |sender: u8, operation: &Operation, amount| Transfer {
        memo: Memo::new(operation.encode()).unwrap(),
        ..transfer(Identity([sender; 32]), 0, REGISTRY, amount, 3)
    };
    let report = Operation::Report {
        validator: fifth,
        entry: Some(Box::new(entry)),
    };
    let transfers = [
        operation(5, &report, 0),
        operation(1, &report, 0),
        operation(2, &report, 1),
        operation(3, &report, 0),
        operation(6, &bond_of(Identity([6; 32])), 50),
        operation(4, &report, 0),
        Transfer {
            nonce: 1,
            ..operation(2, &report, 0)
        },
    ];
    let mut state: Accounts = (1..=6)
        .map(|seed| (Identity([seed; 32]), holding(100)))
        .collect();
    let block = block(&transfers);
    let before = touched(&block, &LEADER, &rules).into_iter();
    let before = before.map(|one| (one, state.get(&one).cloned().unwrap_or_default()));
    let execution = execute(&block, &LEADER, before.collect(), &rules);
    let failed = |failure| Outcome::Failed(failure);
    assert_eq!(
        execution.outcomes,
        [
            failed(Failure::NotActing),
            Outcome::Applied,
            failed(Failure::BadOperation),
            Outcome::Applied,
            failed(Failure::WrongRegistry),
            Outcome::Applied,
            Outcome::Applied,
        ]
    );
    state.extend(execution.accounts);
    let balances: u64 = state.values().map(|account| account.balance).sum();
    assert_eq!(balances, 600);
    let bond = state[&fifth].bond.as_ref().unwrap();
    assert_eq!((bond.stake, bond.since), (u64::MAX, Epoch(1)));
    assert!(state.values().all(|account| account.report.is_none()));
}

fn person() -> impl Strategy<Value = Identity> {
    (1..=5_u8).prop_map(|seed| Identity([seed; 32]))
}

fn money() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..50_u64,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
        1 => Just(u64::MAX / 2),
    ]
}

/// Turns a transfer into one of the operations on the registry.
fn as_operation(transfer: Transfer, choice: u64) -> Transfer {
    let owner = transfer.sender;
    let (operation, amount) = match choice % 8 {
        0..3 => (bond_of(owner), transfer.amount),
        3 => (Operation::AddStake, transfer.amount),
        4 | 5 => (
            Operation::Unbond {
                stake: transfer.amount,
            },
            0,
        ),
        6 => (Operation::Withdraw, 0),
        _ => (Operation::Withdraw, 1),
    };
    Transfer {
        to: REGISTRY,
        amount,
        memo: Memo::new(operation.encode()).unwrap(),
        ..transfer
    }
}

fn bond_of(owner: Identity) -> Operation {
    static PROVEN: Mutex<BTreeMap<Identity, Operation>> = Mutex::new(BTreeMap::new());
    let mut proven = PROVEN.lock().unwrap();
    let bond = proven.entry(owner).or_insert_with(|| {
        let secret = VoteSecret::from_bytes(&[owner.0[0]; 32]).unwrap();
        Operation::Bond {
            vote_key: VoteKey(secret.public_key()),
            possession: Possession(secret.prove_possession("test", &owner.0)),
            address: "host:1".parse().unwrap(),
            name: BondName::default(),
        }
    });
    bond.clone()
}

/// Transfers of which many have the right nonce, and balances whose sum may be the largest.
fn scene() -> impl Strategy<Value = (Vec<Transfer>, Accounts, Identity)> {
    let wish = (person(), person(), money(), money(), 0..8_u8, any::<u64>());
    let balances = (vec(money(), 5), any::<bool>());
    (vec(wish, 0..40), balances, person()).prop_map(|(wishes, (balances, full), leader)| {
        let mut next = BTreeMap::new();
        let mut operations = 0;
        let transfers = wishes
            .into_iter()
            .map(|(sender, to, amount, fee, luck, other)| {
                let next: &mut u64 = next.entry(sender).or_default();
                let nonce = if luck == 0 { other } else { *next };
                // Right unless this one fails for its fee, which makes the others fail.
                let fee = if luck > 2 { fee % 3 } else { fee };
                *next += u64::from(luck > 1);
                let transfer = transfer(sender, nonce, to, amount, fee);
                if luck < 6 || operations == MAX_BLOCK_OPERATIONS {
                    return transfer;
                }
                operations += 1;
                as_operation(transfer, other)
            })
            .collect();
        let mut left = u64::MAX;
        let mut state = Accounts::new();
        for (seed, wanted) in (1..=5_u8).zip(balances) {
            let last = seed == 5 && full;
            let balance = if last { left } else { wanted.min(left) };
            left -= balance;
            if balance > 0 {
                state.insert(Identity([seed; 32]), holding(balance));
            }
        }
        (transfers, state, leader)
    })
}

fn supply(state: &Accounts) -> u128 {
    state
        .values()
        .map(|account| {
            let bonded = account.bond.as_ref().map_or(0, |bond| bond.total());
            u128::from(account.balance) + u128::from(bonded)
        })
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4_096) })]

    #[test]
    fn the_supply_never_changes((transfers, mut state, leader) in scene()) {
        let (before, total) = (state.clone(), supply(&state));
        let execution = run(&mut state, &leader, &transfers);
        prop_assert_eq!(execution.outcomes.len(), transfers.len());
        prop_assert_eq!(supply(&state), total);
        for (identity, account) in &execution.accounts {
            let old = before.get(identity).cloned().unwrap_or_default();
            prop_assert_ne!(&old, account, "an unchanged account is no change");
            prop_assert!(old.nonce <= account.nonce);
        }
        // A nonce counts what was executed.
        let charged = transfers.iter().zip(&execution.outcomes);
        let charged = charged.filter(|(_, outcome)| outcome.used_nonce());
        let nonces: u64 = state.values().map(|account| account.nonce).sum();
        prop_assert_eq!(nonces, charged.count() as u64);
    }

    #[test]
    fn one_block_does_what_its_transactions_do_one_by_one((transfers, state, leader) in scene()) {
        let (mut whole, mut single) = (state.clone(), state);
        let outcomes = run(&mut whole, &leader, &transfers).outcomes;
        let one_by_one: Vec<Outcome> = transfers
            .iter()
            .flat_map(|transfer| run(&mut single, &leader, std::slice::from_ref(transfer)).outcomes)
            .collect();
        prop_assert_eq!(outcomes, one_by_one);
        prop_assert_eq!(whole, single);
    }

    #[test]
    fn neither_the_order_of_the_accounts_nor_strangers_matter((transfers, state, leader) in scene()) {
        let block = block(&transfers);
        let needed: Vec<(Identity, Account)> = touched(&block, &leader, &rules())
            .into_iter()
            .map(|identity| (identity, state.get(&identity).cloned().unwrap_or_default()))
            .collect();
        let forwards = execute(&block, &leader, needed.iter().cloned().collect(), &rules());
        let mut backwards: Accounts = needed.into_iter().rev().collect();
        backwards.insert(Identity([0xff; 32]), holding(0));
        backwards.insert(Identity([0; 32]), account(9, 0));
        prop_assert_eq!(execute(&block, &leader, backwards, &rules()), forwards);
    }
}
