// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.30;

/// The list of validators of a Quorate chain, each with ether at stake. Validators read it at final blocks and report
/// it to their chain (docs/REGISTRY.md, "A contract").
///
/// The contract cannot verify what Quorate's keys have signed. So it lists whatever is bonded, and its readers leave out
/// entries whose proof of possession is wrong. It takes no stake away from anybody.
///
/// - One owner for each identity: who bonds for it first. Only the owner changes the entry, and only the owner gets the
///   stake back.
/// - At most MAX_ENTRIES. Of a full list the smallest stake is displaced by a greater one, and is then held like stake
///   that was unbonded. If a newcomer were refused instead, whoever had filled the list with least stakes would keep
///   everybody else out for ever.
/// - Stake is counted in UNIT, so that all the ether there is fits into 64 bits.
/// - Ether leaves in `withdraw` only, after the state has changed: whoever is called cannot find the stake there again.
contract QuorateStaking {
    /// One unit of stake, in wei.
    uint256 public constant UNIT = 1 gwei;
    uint256 public constant MAX_ENTRIES = 1024;
    uint256 public constant VOTE_KEY_BYTES = 96;
    uint256 public constant POSSESSION_BYTES = 48;
    uint256 public constant MAX_ADDRESS_BYTES = 48;
    uint256 public constant MAX_NAME_BYTES = 24;
    /// The longest time for which a contract may hold stake: a mistaken unit must not lock it for ever.
    uint64 public constant MAX_DELAY_SECONDS = 365 days;

    /// The least stake of an entry, in units.
    uint64 public immutable minStake;
    /// For how long stake is held after it was unbonded.
    uint64 public immutable delaySeconds;

    /// An entry as readers see it.
    struct Entry {
        bytes32 identity;
        /// In units.
        uint64 stake;
        /// Which change of a vote key made it what it is: of two entries with one key the smaller number has it.
        uint64 keySerial;
        bytes voteKey;
        bytes possession;
        /// Where the validator is reached, host:port.
        string validatorAddress;
        string name;
    }

    struct Bond {
        address owner;
        uint64 keySerial;
        /// Its index in the lists.
        uint16 index;
        bytes voteKey;
        bytes possession;
        string validatorAddress;
        string name;
    }

    struct Held {
        /// In units.
        uint64 stake;
        /// In seconds since 1970.
        uint64 until;
    }

    // Stakes are a list of their own, four in a word: finding the smallest of 1,024 reads 256 words.
    bytes32[] private identities;
    uint64[] private stakes;
    mapping(bytes32 identity => Bond) private bonds;
    mapping(bytes32 identity => mapping(address owner => Held)) private held;
    uint64 private keySerials;

    event Bonded(bytes32 indexed identity, address indexed owner, uint64 stake);
    event StakeChanged(bytes32 indexed identity, uint64 stake);
    /// The entry is no longer listed; `displaced` if a greater stake took its place.
    event Removed(bytes32 indexed identity, address indexed owner, bool displaced);
    event KeyRotated(bytes32 indexed identity, bytes voteKey);
    event Described(bytes32 indexed identity, string validatorAddress, string name);
    event Withdrawn(bytes32 indexed identity, address indexed owner, address to, uint64 stake);

    error AlreadyBonded(bytes32 identity);
    error NotTheOwner(bytes32 identity);
    error NoIdentity();
    error BadLength();
    /// The amount is no whole number of units, or more of them than 64 bits count.
    error BadAmount();
    /// Less than the least stake would be left; all of it may be unbonded.
    error TooLittle(uint64 minStake);
    /// The list is full, and the stake is not greater than the smallest one.
    error Full(uint64 smallestStake);
    error StillHeld(uint64 until);
    error NothingHeld();
    error PaymentRefused();
    error BadRules();

    constructor(uint64 minStake_, uint64 delaySeconds_) {
        if (minStake_ == 0 || delaySeconds_ > MAX_DELAY_SECONDS) revert BadRules();
        minStake = minStake_;
        delaySeconds = delaySeconds_;
    }

    /// Lists an identity with the ether that comes along.
    function bond(
        bytes32 identity,
        bytes calldata voteKey,
        bytes calldata possession,
        string calldata validatorAddress,
        string calldata name
    ) external payable {
        if (identity == 0) revert NoIdentity();
        Bond storage entry = bonds[identity];
        if (entry.owner != address(0)) revert AlreadyBonded(identity);
        uint64 stake = units(msg.value);
        if (stake < minStake) revert TooLittle(minStake);
        if (identities.length == MAX_ENTRIES) displaceSmallest(stake);
        entry.owner = msg.sender;
        entry.index = uint16(identities.length);
        identities.push(identity);
        stakes.push(stake);
        setKey(entry, voteKey, possession);
        setDescription(entry, validatorAddress, name);
        emit Bonded(identity, msg.sender, stake);
    }

    /// Adds the ether that comes along to the stake.
    function addStake(bytes32 identity) external payable {
        Bond storage entry = owned(identity);
        uint64 stake = stakes[entry.index] + units(msg.value);
        stakes[entry.index] = stake;
        emit StakeChanged(identity, stake);
    }

    /// Takes this many units out of the stake, or all of it, which removes the entry. They are held for
    /// `delaySeconds`, together with what is held already.
    function unbond(bytes32 identity, uint64 amount) external {
        Bond storage entry = owned(identity);
        uint64 stake = stakes[entry.index];
        if (amount == 0 || amount > stake) revert BadAmount();
        if (amount == stake) {
            remove(identity, false);
            return;
        }
        stake -= amount;
        if (stake < minStake) revert TooLittle(minStake);
        stakes[entry.index] = stake;
        hold(identity, msg.sender, amount);
        emit StakeChanged(identity, stake);
    }

    /// Pays what was unbonded or displaced and is no longer held.
    function withdraw(bytes32 identity, address payable to) external {
        Held memory mine = held[identity][msg.sender];
        if (mine.stake == 0) revert NothingHeld();
        if (block.timestamp < mine.until) revert StillHeld(mine.until);
        delete held[identity][msg.sender];
        emit Withdrawn(identity, msg.sender, to, mine.stake);
        (bool paid, ) = to.call{value: mine.stake * UNIT}("");
        if (!paid) revert PaymentRefused();
    }

    function rotateKey(bytes32 identity, bytes calldata voteKey, bytes calldata possession) external {
        setKey(owned(identity), voteKey, possession);
        emit KeyRotated(identity, voteKey);
    }

    function describe(bytes32 identity, string calldata validatorAddress, string calldata name) external {
        setDescription(owned(identity), validatorAddress, name);
        emit Described(identity, validatorAddress, name);
    }

    /// How many entries there are.
    function count() external view returns (uint256) {
        return identities.length;
    }

    /// The entries from one index up to another, which is not included; fewer if there are not so many. Their order
    /// changes when one is removed, so that pages fit together only if all are read at one block.
    function entries(uint256 from, uint256 to) external view returns (Entry[] memory page) {
        if (to > identities.length) to = identities.length;
        if (from > to) from = to;
        page = new Entry[](to - from);
        for (uint256 index = from; index < to; index++) {
            page[index - from] = entryAt(index);
        }
    }

    /// The entry of an identity and its owner, or zeros.
    function entryOf(bytes32 identity) external view returns (address owner, Entry memory entry) {
        Bond storage found = bonds[identity];
        owner = found.owner;
        if (owner != address(0)) entry = entryAt(found.index);
    }

    /// What of an owner's stake for an identity is held, in units, and until when, in seconds since 1970.
    function heldOf(bytes32 identity, address owner) external view returns (uint64 stake, uint64 until) {
        Held storage found = held[identity][owner];
        return (found.stake, found.until);
    }

    function entryAt(uint256 index) private view returns (Entry memory) {
        bytes32 identity = identities[index];
        Bond storage found = bonds[identity];
        return
            Entry(
                identity,
                stakes[index],
                found.keySerial,
                found.voteKey,
                found.possession,
                found.validatorAddress,
                found.name
            );
    }

    function owned(bytes32 identity) private view returns (Bond storage entry) {
        entry = bonds[identity];
        if (entry.owner != msg.sender) revert NotTheOwner(identity);
    }

    function units(uint256 amount) private pure returns (uint64) {
        if (amount == 0 || amount % UNIT != 0 || amount / UNIT > type(uint64).max) revert BadAmount();
        return uint64(amount / UNIT);
    }

    function setKey(Bond storage entry, bytes calldata voteKey, bytes calldata possession) private {
        if (voteKey.length != VOTE_KEY_BYTES || possession.length != POSSESSION_BYTES) revert BadLength();
        keySerials += 1;
        entry.keySerial = keySerials;
        entry.voteKey = voteKey;
        entry.possession = possession;
    }

    function setDescription(Bond storage entry, string calldata validatorAddress, string calldata name) private {
        uint256 length = bytes(validatorAddress).length;
        if (length == 0 || length > MAX_ADDRESS_BYTES || bytes(name).length > MAX_NAME_BYTES) revert BadLength();
        entry.validatorAddress = validatorAddress;
        entry.name = name;
    }

    function displaceSmallest(uint64 stake) private {
        uint256 smallestIndex = 0;
        uint64 smallest = stakes[0];
        // Of equal ones the first: which one that is depends on removals, and nobody can rely on it.
        for (uint256 index = 1; index < MAX_ENTRIES; index++) {
            uint64 one = stakes[index];
            if (one < smallest) (smallestIndex, smallest) = (index, one);
        }
        if (stake <= smallest) revert Full(smallest);
        remove(identities[smallestIndex], true);
    }

    function remove(bytes32 identity, bool displaced) private {
        Bond storage entry = bonds[identity];
        (address owner, uint16 index) = (entry.owner, entry.index);
        hold(identity, owner, stakes[index]);
        uint256 last = identities.length - 1;
        if (index != last) {
            bytes32 moved = identities[last];
            identities[index] = moved;
            stakes[index] = stakes[last];
            bonds[moved].index = index;
        }
        identities.pop();
        stakes.pop();
        delete bonds[identity];
        emit Removed(identity, owner, displaced);
    }

    function hold(bytes32 identity, address owner, uint64 stake) private {
        Held storage mine = held[identity][owner];
        mine.stake += stake;
        mine.until = uint64(block.timestamp) + delaySeconds;
    }
}
