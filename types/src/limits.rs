//! Limits on everything that comes from outside. Each is checked before memory is taken.

/// Most validators in a committee.
pub const MAX_VALIDATORS: usize = quorate_crypto::bls::MAX_VALIDATORS as usize;

/// Most transactions in a block, whatever the genesis file says.
pub const MAX_BLOCK_TRANSACTIONS: usize = 8_192;

/// Most bytes of a transaction's memo.
pub const MAX_MEMO_BYTES: usize = 4_096;

/// Most bytes of an encoded block: header and [`MAX_BLOCK_TRANSACTIONS`] transactions without memos,
/// or fewer with.
pub const MAX_BLOCK_BYTES: usize = 2 * 1024 * 1024;

/// Most bytes of a frame between validators: a proposal with its block and certificates, or a
/// reply with a range of blocks.
pub const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// Most bytes of a frame that is relayed: with its signature it is a frame itself.
pub const MAX_RELAYED_BYTES: usize = MAX_FRAME_BYTES - 1_024;

/// Most messages in one frame.
pub const MAX_FRAME_MESSAGES: usize = 64;

/// Most certificates that a proposal carries beside its parent's.
/// A voter that needs more asks for them.
pub const MAX_PROPOSAL_CERTIFICATES: usize = 64;

/// Most blocks in the reply to one range request.
pub const MAX_RANGE_BLOCKS: usize = 256;

/// Bytes after which a range reply takes no further block.
pub const RANGE_REPLY_BYTES: usize = 1024 * 1024;

/// Most certificates that one request may ask for.
pub const MAX_CERTIFICATE_REPLIES: usize = 64;

/// Most headers that prove a snapshot. Under load a block names the state of one a few blocks before it.
pub const MAX_SNAPSHOT_HEADERS: usize = 256;

/// Most bytes of an encoded part of the state.
pub const MAX_CHUNK_BYTES: usize = 1280 * 1024;

/// Most transactions in one forwarded batch.
pub const MAX_FORWARDED_TRANSACTIONS: usize = 2_048;

/// Bytes after which a forwarded batch takes no further transaction.
pub const FORWARDED_BYTES: usize = 1024 * 1024;

/// Most bytes of a payload, on a chain that only orders.
pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;

/// Most bytes of a bundle of payloads: with the transaction that orders it, it is a frame itself.
pub const MAX_BUNDLE_BYTES: usize = 960 * 1024;

/// Most bytes of the bundles that one block orders.
pub const MAX_BLOCK_BUNDLE_BYTES: u64 = 64 * 1024 * 1024;

/// Most bytes of a bonded validator's address, `host:port`.
pub const MAX_BOND_ADDRESS_BYTES: usize = 48;

/// Most bytes of a bonded validator's name.
pub const MAX_BOND_NAME_BYTES: usize = 24;

/// Fewest validators of a chain with a registry: as many as it takes to tolerate one fault.
pub const MIN_REGISTERED_VALIDATORS: usize = 4;

/// Shortest epochs of a chain with a registry, in blocks. Half an epoch must suffice to execute the block
/// that fixes the next validators, or they stay for another epoch.
pub const MIN_REGISTERED_EPOCH_BLOCKS: u64 = 16;

/// Most bonds of a chain: the least stake is such a part of the supply.
pub const MAX_BONDS: u64 = 1_024;

/// Most operations on the registry in a block: some need a pairing check each.
pub const MAX_BLOCK_OPERATIONS: usize = 16;

/// Most bytes of a chain's name.
pub const MAX_CHAIN_NAME_BYTES: usize = 64;

/// Most bytes of an encoded proof of an account in the state tree.
pub const MAX_ACCOUNT_PROOF_BYTES: usize = 8_448;

/// Bytes of handovers from which on one answer takes no more of them.
pub const HANDOVER_REPLY_BYTES: usize = 1024 * 1024;

/// Most handovers in one answer.
pub const MAX_HANDOVERS: usize = 1_024;
