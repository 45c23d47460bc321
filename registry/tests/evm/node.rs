//! The committed contract on a real node (anvil), and what is read of it there.

use crate::{
    MIN_STAKE,
    anvil::{Anvil, folder, skipped},
    contract::Staking,
    count, entry, entry_of, identity, reader,
};
use alloy_primitives::{Address, hex, keccak256};
use alloy_sol_types::SolCall;
use quorate_crypto::Identity;
use quorate_registry::{MAX_ENTRIES, Reader, View, bond_call};
use quorate_types::ExternalEntry;
use serde_json::{Value, json};
use std::{process::Command, time::Instant};

const DELAY_SECONDS: u64 = 3_600;

struct Node(Anvil);

impl Node {
    async fn start() -> Option<Self> {
        Anvil::start(MIN_STAKE, DELAY_SECONDS).await.map(Self)
    }

    fn address(&self, by: usize) -> Address {
        self.0.accounts[by].parse().unwrap()
    }

    fn contract(&self) -> Address {
        self.0.contract.parse().unwrap()
    }

    async fn act(&self, by: usize, call: &[u8], stake: u64) -> Value {
        let call = self.0.call(by, &hex::encode_prefixed(call), stake);
        self.0.send(call).await
    }

    /// Returns the gas that it used.
    async fn bond(&self, by: usize, (identity, entry): &(Identity, ExternalEntry)) -> u64 {
        let call = bond_call(identity, entry);
        gas(&self.act(by, &call, entry.stake).await)
    }

    /// Why a transaction would fail: that is said by a call only.
    async fn failure(&self, transaction: &Value) -> String {
        let call = json!([transaction, "latest"]);
        self.0.ask("eth_call", call).await.unwrap_err()
    }

    /// Why a call fails: the name of the contract's error.
    async fn refused(&self, by: usize, call: &[u8], stake: u64) -> String {
        let call = self.0.call(by, &hex::encode_prefixed(call), stake);
        let why = self.failure(&call).await;
        let error = ERRORS.iter().find(|error| {
            let hash = keccak256(error.as_bytes());
            why.contains(&hex::encode(&hash[..4]))
        });
        let error = error.unwrap_or_else(|| panic!("{why}"));
        error.split('(').next().unwrap().to_owned()
    }

    async fn finish(&self) {
        self.0.finish().await;
    }

    async fn held(&self, identity: &Identity, by: usize) -> u64 {
        let call = Staking::heldOfCall {
            identity: identity.0.into(),
            owner: self.address(by),
        };
        let call = self.0.call(by, &hex::encode_prefixed(call.abi_encode()), 0);
        let answer = self.0.ask("eth_call", json!([call, "latest"])).await;
        let answer = hex::decode(answer.unwrap().as_str().unwrap()).unwrap();
        let held = Staking::heldOfCall::abi_decode_returns(&answer).unwrap();
        held.stake
    }

    /// An account's ether, in units of stake.
    async fn balance(&self, of: Address) -> u128 {
        let params = json!([of.to_string(), "latest"]);
        let balance = self.0.ask("eth_getBalance", params).await.unwrap();
        let wei = u128::from_str_radix(&balance.as_str().unwrap()[2..], 16).unwrap();
        assert_eq!(wei % 1_000_000_000, 0);
        wei / 1_000_000_000
    }

    fn reader(&self) -> Reader {
        reader(vec![self.0.url.clone()], 1, self.contract())
    }
}

const ERRORS: [&str; 10] = [
    "AlreadyBonded(bytes32)",
    "NotTheOwner(bytes32)",
    "NoIdentity()",
    "BadLength()",
    "BadAmount()",
    "TooLittle(uint64)",
    "Full(uint64)",
    "StillHeld(uint64)",
    "NothingHeld()",
    "PaymentRefused()",
];

async fn twice(reader: &mut Reader) -> View {
    reader.read(1).await;
    reader.read(2).await.clone()
}

fn gas(receipt: &Value) -> u64 {
    u64::from_str_radix(&receipt["gasUsed"].as_str().unwrap()[2..], 16).unwrap()
}

fn unbond(identity: &Identity, amount: u64) -> Vec<u8> {
    let identity = identity.0.into();
    Staking::unbondCall { identity, amount }.abi_encode()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_bonded_on_a_real_node_is_read_once_it_is_final() {
    let Some(node) = Node::start().await else {
        return;
    };
    let mut reader = node.reader();
    let mut bonds: Vec<_> = (0..4).map(|number| entry(number, MIN_STAKE)).collect();
    for (by, bond) in bonds.iter().enumerate() {
        node.bond(by, bond).await;
    }
    node.finish().await;
    let view = twice(&mut reader).await;
    assert_eq!((count(&view), view.trouble.clone()), (Some(4), None));
    assert_eq!(
        view.reading.unwrap().entries,
        bonds.iter().cloned().collect()
    );
    assert!(view.block.is_some() && view.block == view.sources[0].block);

    // A fifth, with a key of somebody else in the list: not before it is final.
    bonds.push(entry(4, 3 * MIN_STAKE));
    node.bond(4, &bonds[4]).await;
    let stranger = identity(8);
    let (_, proven_for_another) = entry(0, 9 * MIN_STAKE);
    node.bond(5, &(stranger, proven_for_another)).await;
    assert_eq!(count(&twice(&mut reader).await), Some(4), "it is not final");
    node.finish().await;
    let view = twice(&mut reader).await;
    assert_eq!((count(&view), view.trouble), (Some(5), None));
    let reading = view.reading.unwrap();
    assert_eq!(reading.entries, bonds.iter().cloned().collect());
    assert_eq!(reading.left_out.keys().collect::<Vec<_>>(), [&stranger]);

    // The owner changes everything that can be changed.
    let (own, _) = bonds[4];
    let mut changed = entry_of(&own, 30, 5 * MIN_STAKE);
    changed.address = "elsewhere:2".parse().unwrap();
    changed.name = "fifth".parse().unwrap();
    let rotate = Staking::rotateKeyCall {
        identity: own.0.into(),
        voteKey: changed.vote_key.0.to_vec().into(),
        possession: changed.possession.0.to_vec().into(),
    };
    let describe = Staking::describeCall {
        identity: own.0.into(),
        validatorAddress: changed.address.to_string(),
        name: changed.name.to_string(),
    };
    let add = Staking::addStakeCall {
        identity: own.0.into(),
    };
    for (call, stake) in [
        (rotate.abi_encode(), 0),
        (describe.abi_encode(), 0),
        (add.abi_encode(), 2 * MIN_STAKE),
    ] {
        assert_eq!(node.refused(0, &call, stake).await, "NotTheOwner");
        node.act(4, &call, stake).await;
    }
    bonds[4].1 = changed;
    node.finish().await;
    let reading = twice(&mut reader).await.reading.unwrap();
    assert_eq!(reading.entries, bonds.iter().cloned().collect());

    // One leaves, and the last one takes its index.
    let (gone, _) = bonds.remove(0);
    node.act(0, &unbond(&gone, MIN_STAKE), 0).await;
    node.finish().await;
    let reading = twice(&mut reader).await.reading.unwrap();
    assert_eq!(reading.entries, bonds.iter().cloned().collect());

    // The chain goes back behind what was final: that is told, and changes nothing.
    let block = reader.view().block.unwrap();
    let old = node.0.ask("evm_snapshot", json!([])).await.unwrap();
    node.act(1, &unbond(&bonds[0].0, MIN_STAKE), 0).await;
    node.finish().await;
    let trouble = twice(&mut reader).await.trouble.unwrap();
    assert!(trouble.contains("fewer than 4"), "{trouble}");
    let later = reader.view().sources[0].block.unwrap();
    assert!(later > block);
    node.0.ask("evm_revert", json!([old])).await.unwrap();
    let view = twice(&mut reader).await;
    let trouble = view.trouble.unwrap();
    assert!(
        trouble.contains("goes back") && trouble.contains(&later.to_string()),
        "{trouble}"
    );
    assert_eq!(view.reading.unwrap().entries, bonds.into_iter().collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_keeps_its_rules() {
    let Some(node) = Node::start().await else {
        return;
    };
    let (own, good) = entry(1, 3 * MIN_STAKE);
    let call = |change: fn(&mut Staking::bondCall)| {
        let mut call = Staking::bondCall::abi_decode(&bond_call(&own, &good)).unwrap();
        change(&mut call);
        call.abi_encode()
    };
    for (call, stake, why) in [
        (call(|_| ()), 0, "BadAmount"),
        (call(|_| ()), MIN_STAKE - 1, "TooLittle"),
        (
            call(|call| call.identity = [0; 32].into()),
            MIN_STAKE,
            "NoIdentity",
        ),
        (
            call(|call| call.voteKey = vec![1; 95].into()),
            MIN_STAKE,
            "BadLength",
        ),
        (
            call(|call| call.voteKey = vec![1; 97].into()),
            MIN_STAKE,
            "BadLength",
        ),
        (
            call(|call| call.possession = vec![1; 49].into()),
            MIN_STAKE,
            "BadLength",
        ),
        (
            call(|call| call.validatorAddress.clear()),
            MIN_STAKE,
            "BadLength",
        ),
        (
            call(|call| call.validatorAddress = "a".repeat(49)),
            MIN_STAKE,
            "BadLength",
        ),
        (
            call(|call| call.name = "a".repeat(25)),
            MIN_STAKE,
            "BadLength",
        ),
    ] {
        assert_eq!(node.refused(1, &call, stake).await, why);
    }
    // Less than a unit is no stake, and ether without a call is refused.
    let mut call = node
        .0
        .call(1, &hex::encode_prefixed(bond_call(&own, &good)), MIN_STAKE);
    call["value"] = json!("0x174876e801");
    node.failure(&call).await;
    node.failure(&node.0.call(1, "0x", 1)).await;

    node.bond(1, &(own, good.clone())).await;
    assert_eq!(
        node.refused(2, &bond_call(&own, &good), MIN_STAKE).await,
        "AlreadyBonded"
    );
    assert_eq!(node.refused(2, &unbond(&own, 1), 0).await, "NotTheOwner");
    assert_eq!(node.refused(1, &unbond(&own, 0), 0).await, "BadAmount");
    assert_eq!(
        node.refused(1, &unbond(&own, 3 * MIN_STAKE + 1), 0).await,
        "BadAmount"
    );
    assert_eq!(
        node.refused(1, &unbond(&own, 2 * MIN_STAKE + 1), 0).await,
        "TooLittle"
    );
    node.act(1, &unbond(&own, MIN_STAKE), 0).await;
    node.act(1, &unbond(&own, 2 * MIN_STAKE), 0).await;
    assert_eq!(node.held(&own, 1).await, 3 * MIN_STAKE);

    // It is paid after the delay, to whom the owner says, and once.
    let to = Address::repeat_byte(0x77);
    let identity = own.0.into();
    let withdraw = |to| Staking::withdrawCall { identity, to }.abi_encode();
    assert_eq!(node.refused(1, &withdraw(to), 0).await, "StillHeld");
    let wait = json!([format!("{DELAY_SECONDS:#x}")]);
    node.0.ask("evm_increaseTime", wait).await.unwrap();
    node.finish().await;
    assert_eq!(node.refused(2, &withdraw(to), 0).await, "NothingHeld");
    // The contract itself takes nothing, and the stake stays its owner's.
    assert_eq!(
        node.refused(1, &withdraw(node.contract()), 0).await,
        "PaymentRefused"
    );
    node.act(1, &withdraw(to), 0).await;
    assert_eq!(node.balance(to).await, u128::from(3 * MIN_STAKE));
    assert_eq!(node.refused(1, &withdraw(to), 0).await, "NothingHeld");
    assert_eq!(node.balance(node.contract()).await, 0);
    // The identity is free, for anybody.
    node.bond(2, &(own, good)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_full_list_the_smallest_stake_is_displaced_by_a_greater_one() {
    let Some(node) = Node::start().await else {
        return;
    };
    let good: Vec<_> = (0..4).map(|number| entry(number, 5 * MIN_STAKE)).collect();
    for (by, bond) in good.iter().enumerate() {
        node.bond(by, bond).await;
    }
    let (_, template) = entry(9, MIN_STAKE + 1);
    let filler = |number: usize| {
        let mut identity = [7; 32];
        identity[..8].copy_from_slice(&(number as u64).to_be_bytes());
        (Identity(identity), template.clone())
    };
    let smallest = 700;
    let mut plain = 0;
    for number in 4..MAX_ENTRIES {
        let (identity, mut one) = filler(number);
        one.stake -= u64::from(number == smallest);
        plain = node.bond(5, &(identity, one)).await;
    }
    let (newcomer, new) = entry(6, MIN_STAKE);
    assert_eq!(
        node.refused(6, &bond_call(&newcomer, &new), MIN_STAKE)
            .await,
        "Full"
    );
    let receipt = node
        .act(6, &bond_call(&newcomer, &new), MIN_STAKE + 1)
        .await;
    let used = gas(&receipt);
    let (displaced, _) = filler(smallest);
    assert_eq!(node.held(&displaced, 5).await, MIN_STAKE);
    // The next one must offer more than the rest have.
    let (another, next) = entry(7, MIN_STAKE);
    assert_eq!(
        node.refused(7, &bond_call(&another, &next), MIN_STAKE + 1)
            .await,
        "Full"
    );

    node.finish().await;
    let mut reader = node.reader();
    let started = Instant::now();
    let view = twice(&mut reader).await;
    let took = started.elapsed();
    assert_eq!((count(&view), view.trouble), (Some(5), None));
    assert_eq!(view.sources[0].entries, Some(MAX_ENTRIES));
    let reading = view.reading.unwrap();
    assert!(reading.entries.contains_key(&newcomer));
    assert_eq!(reading.left_out.len(), MAX_ENTRIES - 5);
    assert!(!reading.left_out.contains_key(&displaced));
    println!(
        "a bond took {plain} gas, and {used} when it displaced another; two readings of {MAX_ENTRIES} entries took {took:?}"
    );
}

/// Nobody needs a compiler, so the committed bytecode is to be that of the committed source.
#[test]
fn the_committed_bytecode_is_that_of_the_source() {
    if !folder().join("node_modules/solc").is_dir() {
        skipped("there is no solc, so the bytecode is not made again (deploy/install-tools anvil)");
        return;
    }
    let checked = Command::new("node")
        .args(["build.mjs", "--check"])
        .current_dir(folder())
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
}
