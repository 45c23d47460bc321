//! The contract's interface as the tests need it, and that the committed one is the same.

use alloy_sol_types::{SolCall, sol};
use quorate_crypto::Identity;
use quorate_types::ExternalEntry;

sol! {
    struct Entry {
        bytes32 identity;
        uint64 stake;
        uint64 keySerial;
        bytes voteKey;
        bytes possession;
        string validatorAddress;
        string name;
    }

    interface Staking {
        function bond(
            bytes32 identity,
            bytes calldata voteKey,
            bytes calldata possession,
            string calldata validatorAddress,
            string calldata name
        ) external payable;
        function addStake(bytes32 identity) external payable;
        function unbond(bytes32 identity, uint64 amount) external;
        function withdraw(bytes32 identity, address payable to) external;
        function rotateKey(bytes32 identity, bytes calldata voteKey, bytes calldata possession) external;
        function describe(bytes32 identity, string calldata validatorAddress, string calldata name) external;
        function count() external view returns (uint256);
        function entries(uint256 from, uint256 to) external view returns (Entry[] memory page);
        function heldOf(bytes32 identity, address owner) external view returns (uint64 stake, uint64 until);
    }
}

/// What the contract lists for an entry.
pub(crate) fn listed(identity: &Identity, entry: &ExternalEntry, key_serial: u64) -> Entry {
    Entry {
        identity: identity.0.into(),
        stake: entry.stake,
        keySerial: key_serial,
        voteKey: entry.vote_key.0.to_vec().into(),
        possession: entry.possession.0.to_vec().into(),
        validatorAddress: entry.address.to_string(),
        name: entry.name.to_string(),
    }
}

/// A function's name and the types of its parameters, as in its selector.
fn signature(function: &serde_json::Value) -> String {
    let inputs = function["inputs"].as_array().unwrap();
    let types: Vec<&str> = inputs
        .iter()
        .map(|input| input["type"].as_str().unwrap())
        .collect();
    format!(
        "{}({})",
        function["name"].as_str().unwrap(),
        types.join(",")
    )
}

#[test]
fn what_is_asked_is_what_the_committed_contract_answers() {
    let built = crate::anvil::built();
    let abi = built["abi"].as_array().unwrap();
    let functions: Vec<String> = (abi.iter())
        .filter(|one| one["type"] == "function")
        .map(signature)
        .collect();
    for asked in [
        Staking::bondCall::SIGNATURE,
        Staking::addStakeCall::SIGNATURE,
        Staking::unbondCall::SIGNATURE,
        Staking::withdrawCall::SIGNATURE,
        Staking::rotateKeyCall::SIGNATURE,
        Staking::describeCall::SIGNATURE,
        Staking::countCall::SIGNATURE,
        Staking::entriesCall::SIGNATURE,
        Staking::heldOfCall::SIGNATURE,
    ] {
        assert!(
            functions.iter().any(|one| one == asked),
            "{asked}: {functions:?}"
        );
    }
    let entries = abi.iter().find(|one| one["name"] == "entries").unwrap();
    let fields = entries["outputs"][0]["components"].as_array().unwrap();
    let fields: Vec<&str> = fields
        .iter()
        .map(|one| one["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            "bytes32", "uint64", "uint64", "bytes", "bytes", "string", "string"
        ]
    );
    // The call that operators are given is one of it.
    let (identity, entry) = crate::entry(1, 100);
    let call = quorate_registry::bond_call(&identity, &entry);
    let call = Staking::bondCall::abi_decode(&call).unwrap();
    assert_eq!((call.identity.0, call.voteKey.len()), (identity.0, 96));
}
