//! What the staking contract (`deploy/staking/QuorateStaking.sol`) is asked, and what it answers.
//!
//! Answers are decoded to tokens, which point into the answer, and each length is checked before anything is copied: an
//! answer whose entries all point to the same large text would otherwise become as many copies of it.

use crate::reading::MAX_ENTRIES;
use alloy_primitives::U256;
use alloy_sol_types::{SolCall as _, SolType, abi, sol, sol_data};
use quorate_crypto::{Digest, Identity, sha256};
use quorate_types::{
    ExternalEntry, Possession, VoteKey,
    limits::{MAX_BOND_ADDRESS_BYTES, MAX_BOND_NAME_BYTES},
};

sol! {
    #[allow(missing_docs)]
    interface Staking {
        struct Entry {
            bytes32 identity;
            uint64 stake;
            uint64 keySerial;
            bytes voteKey;
            bytes possession;
            string validatorAddress;
            string name;
        }

        function bond(
            bytes32 identity,
            bytes calldata voteKey,
            bytes calldata possession,
            string calldata validatorAddress,
            string calldata name
        ) external payable;
        function count() external view returns (uint256);
        function entries(uint256 from, uint256 to) external view returns (Entry[] memory page);
    }
}

/// Entries of one answer: some 1,220 characters each, so that an answer is far from the limit, and some 35,000 gas each,
/// so that it is from the least that nodes allow for a call.
pub(super) const PAGE_ENTRIES: usize = 128;

/// An entry as the contract lists it. Its texts and keys are whatever its owner has put there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) identity: Identity,
    pub(crate) stake: u64,
    /// Of two entries with the same vote key, the smaller one has had it longer.
    pub(crate) key_serial: u64,
    pub(crate) vote_key: VoteKey,
    pub(crate) possession: Possession,
    pub(crate) address: Box<[u8]>,
    pub(crate) name: Box<[u8]>,
}

/// The call that bonds for a validator, for whoever signs the transaction.
pub fn bond_call(identity: &Identity, entry: &ExternalEntry) -> Vec<u8> {
    Staking::bondCall {
        identity: identity.0.into(),
        voteKey: entry.vote_key.0.to_vec().into(),
        possession: entry.possession.0.to_vec().into(),
        validatorAddress: entry.address.to_string(),
        name: entry.name.to_string(),
    }
    .abi_encode()
}

pub(super) fn count_call() -> Vec<u8> {
    Staking::countCall {}.abi_encode()
}

/// How many entries there are, up to what fits; `None` if it is no answer of the contract.
pub(super) fn count(answer: &[u8]) -> Option<usize> {
    let count: U256 = sol_data::Uint::<256>::abi_decode(answer).ok()?;
    (answer.len() == 32).then(|| count.saturating_to())
}

pub(super) fn entries_call(from: usize, to: usize) -> Vec<u8> {
    let [from, to] = [from, to].map(U256::from);
    Staking::entriesCall { from, to }.abi_encode()
}

/// The `expected` entries of a page; `None` if the answer is not that many well-formed ones.
pub(super) fn entries(answer: &[u8], expected: usize) -> Option<Vec<Listed>> {
    type Page<'a> = <sol_data::Array<Staking::Entry> as SolType>::Token<'a>;
    debug_assert!(expected <= MAX_ENTRIES);
    let page = abi::decode::<Page<'_>>(answer).ok()?;
    if page.0.len() != expected {
        return None;
    }
    let listed = page.0.iter().map(|entry| {
        let (identity, stake, key_serial, vote_key, possession, address, name) = entry;
        let text = |bytes: &[u8], most: usize| (bytes.len() <= most).then(|| bytes.into());
        Some(Listed {
            identity: Identity(identity.0.0),
            stake: number(&stake.0.0)?,
            key_serial: number(&key_serial.0.0)?,
            vote_key: VoteKey(vote_key.0.try_into().ok()?),
            possession: Possession(possession.0.try_into().ok()?),
            address: text(address.0, MAX_BOND_ADDRESS_BYTES)?,
            name: text(name.0, MAX_BOND_NAME_BYTES)?,
        })
    });
    listed.collect()
}

fn number(word: &[u8; 32]) -> Option<u64> {
    let (high, low) = word.split_at(24);
    let low = low.try_into().expect("32 bytes without 24");
    (high.iter().all(|byte| *byte == 0)).then(|| u64::from_be_bytes(low))
}

/// What lists at one block are compared by.
pub(super) fn digest(block: &[u8; 32], listed: &[Listed]) -> Digest {
    let mut bytes = Vec::with_capacity(listed.len() * 256);
    for one in listed {
        bytes.extend_from_slice(&one.identity.0);
        bytes.extend_from_slice(&one.stake.to_be_bytes());
        bytes.extend_from_slice(&one.key_serial.to_be_bytes());
        bytes.extend_from_slice(&one.vote_key.0);
        bytes.extend_from_slice(&one.possession.0);
        for text in [&one.address, &one.name] {
            bytes.push(u8::try_from(text.len()).expect("texts are bounded by 48 bytes"));
            bytes.extend_from_slice(text);
        }
    }
    sha256(&[b"quorate/contract-list/1", block, &bytes])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn page() -> Vec<u8> {
        let entry = |number: u8| Staking::Entry {
            identity: [number; 32].into(),
            stake: 0x1122_3344_5566_7788,
            keySerial: u64::from(number),
            voteKey: vec![number; 96].into(),
            possession: vec![number; 48].into(),
            validatorAddress: "host:1".to_owned(),
            name: String::new(),
        };
        Staking::entriesCall::abi_encode_returns(&vec![entry(1), entry(2)])
    }

    #[test]
    fn a_page_is_read_whole_or_not_at_all() {
        let page = page();
        let listed = entries(&page, 2).unwrap();
        assert_eq!(listed[1].identity, Identity([2; 32]));
        assert_eq!(
            (listed[0].stake, listed[1].key_serial),
            (0x1122_3344_5566_7788, 2)
        );
        assert_eq!(
            (&*listed[0].address, &*listed[0].name),
            (&b"host:1"[..], &b""[..])
        );
        assert_eq!(entries(&page, 1), None);
        assert_eq!(entries(&page, 3), None);
        for end in 0..page.len() {
            // The last word is padding, or the empty name.
            let cut = entries(&page[..end], 2);
            assert!(cut.is_none_or(|cut| cut == listed), "{end}");
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_none() {
        let page = page();
        let stake = 0x1122_3344_5566_7788_u64.to_be_bytes();
        let at = page.windows(8).position(|bytes| bytes == stake).unwrap();
        for bit in 0..24 {
            let mut page = page.clone();
            page[at - 1 - bit] = 1;
            assert_eq!(entries(&page, 2), None, "{bit}");
        }
        assert_eq!(count(&[0xff; 32]), Some(usize::MAX));
        assert_eq!(count(&[0; 31]), None);
        assert_eq!(count(&[0; 64]), None);
    }

    #[test]
    fn no_byte_of_an_answer_can_do_harm() {
        let page = page();
        for at in 0..page.len() {
            for byte in [0, 1, 0x20, 0x7f, 0x80, 0xff] {
                let mut page = page.clone();
                page[at] = byte;
                let listed = entries(&page, 2);
                assert!(listed.is_none_or(|listed| listed.len() == 2));
            }
        }
    }
}
