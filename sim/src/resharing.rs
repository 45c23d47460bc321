//! Passing the shares of a group key on from epoch to epoch, with the real cryptography: what transactions, execution
//! and validators do about it, without the network and the consensus around them.
//!
//! Transactions come late and in another order than they were sent, or never; nodes crash, before and after they have
//! sent something, lose their shares, and are away for epochs; one of them is faulty: it deals nothing,
//! or something wrong, objects to what is right, wants a share and proves none. The network is never synchronous.
//!
//! What must hold after each epoch:
//!
//! - there is one set, with the genesis's group key;
//! - if it has new shares, every honest member of it has its own on disk, and honest members alone certify with them
//!   under the genesis's key;
//! - shares of two epochs do not certify together;
//! - no honest dealer is convicted, and no money is lost;
//! - once the network is synchronous and nobody faulty, shares are passed on in the end.

use crate::stock;
use commonware_codec::{Copying, DecodeExt as _, Encode as _};
use quorate_crypto::{
    Digest, IdentitySignature,
    bls::{Complaint, Dealing, HashedMessage, OpeningSecret, PartialSignature, VoteSecret, deal},
};
use quorate_machine::resharing::{Keep, Known, MakeOpening, Shares, duties};
use quorate_storage::{
    execution::execute,
    store::tree_updates,
    tree::{MemoryStore, Tree},
};
use quorate_types::{
    Account, Block, Bond, BondAddress, BondName, ChainId, Committees, Epoch, EpochLength, Header,
    Height, Identity, Member, Memo, OpeningKey, Operation, Outcome, Phase, REGISTRY, RegistryRules,
    Transaction, Transfer, ValidatorSet, View, VoteKey,
    execution::Rules,
    registry::resharing::{DEALING_PART_BYTES, player_slot, round_of},
    state_key,
};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

const NODES: usize = 10;
const EPOCH_BLOCKS: u64 = 96;
const STAKE: u64 = 1_000;
const BALANCE: u64 = 1 << 40;

/// How many epochs at the end of a run are without faults of the network.
const CALM_EPOCHS: u64 = 12;

/// A run: everything in it follows from its seed.
#[derive(Clone, Copy, Debug)]
pub struct ResharingScenario {
    pub seed: u64,
    /// How many epochs, the calm ones included.
    pub epochs: u64,
}

/// What runs have seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResharingReport {
    pub epochs: u64,
    /// New shares counted.
    pub passed_on: u64,
    /// Of these, to other validators than before.
    pub changes: u64,
    /// The old validators stayed.
    pub failed: u64,
    pub crashes: u64,
    pub convicted: u64,
    /// Operations that the chain has refused.
    pub refused: u64,
    pub operations: u64,
}

/// A rule that was broken.
#[derive(Clone, Debug)]
pub struct ResharingViolation {
    pub seed: u64,
    pub epoch: Epoch,
    pub what: String,
}

impl ResharingReport {
    pub fn add(&mut self, other: &Self) {
        self.epochs += other.epochs;
        self.passed_on += other.passed_on;
        self.changes += other.changes;
        self.failed += other.failed;
        self.crashes += other.crashes;
        self.convicted += other.convicted;
        self.refused += other.refused;
        self.operations += other.operations;
    }
}

impl fmt::Display for ResharingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} epochs, shares passed on in {} ({} to other validators), not in {}; {} crashes, {} dealers \
             convicted, {} of {} operations refused",
            self.epochs,
            self.passed_on,
            self.changes,
            self.failed,
            self.crashes,
            self.convicted,
            self.refused,
            self.operations
        )
    }
}

impl fmt::Display for ResharingViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, epoch {}: {}", self.seed, self.epoch, self.what)
    }
}

/// A disk with one file, whose writes may fail.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<(Vec<u8>, bool)>>);

impl Keep for Disk {
    fn keep(&mut self, content: &[u8]) -> anyhow::Result<()> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow::ensure!(!held.1, "the disk is full");
        held.0 = content.to_vec();
        Ok(())
    }
}

impl Disk {
    fn content(&self) -> Vec<u8> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.0.clone()
    }

    fn fails(&self, fails: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1 = fails;
    }
}

/// How a faulty node behaves in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It announces itself, and nothing else.
    ProvesNothing,
    DealsNothing,
    /// It gives some players something else than it deals.
    DealsWrong,
    /// It deals what another one has dealt.
    DealsCopied,
    /// It deals with another's point.
    DealsStolen,
    /// It objects to everybody.
    Objects,
    /// It sends operations that make no sense, and otherwise behaves.
    Babbles,
}

const FAULTS: [Fault; 7] = [
    Fault::ProvesNothing,
    Fault::DealsNothing,
    Fault::DealsWrong,
    Fault::DealsCopied,
    Fault::DealsStolen,
    Fault::Objects,
    Fault::Babbles,
];

struct Node {
    identity: Identity,
    disk: Disk,
    /// Without, it is down.
    shares: Option<Shares>,
    first_share: Option<VoteSecret>,
    up_at: Height,
    fault: Option<Fault>,
    nonce: u64,
    starts: u64,
}

/// An operation on its way.
struct Sent {
    from: usize,
    operation: Operation,
    arrives: Height,
}

struct World {
    scenario: ResharingScenario,
    rng: ChaCha8Rng,
    chain: ChainId,
    rules: Rules,
    committees: Committees,
    tree: Tree<MemoryStore>,
    bonds: BTreeMap<Identity, Bond>,
    nodes: Vec<Node>,
    faulty: BTreeSet<usize>,
    sent: Vec<Sent>,
    height: Height,
    report: ResharingReport,
    group_key: VoteKey,
    supply: u64,
}

/// Runs a scenario.
///
/// # Errors
///
/// The first rule that is broken.
pub fn run_resharing(scenario: ResharingScenario) -> Result<ResharingReport, ResharingViolation> {
    World::new(scenario).run()
}

fn length() -> EpochLength {
    EpochLength::new(EPOCH_BLOCKS).expect("not zero")
}

fn openings(seed: u64) -> MakeOpening {
    let mut rng = rand_chacha::ChaCha20Rng::seed_from_u64(seed);
    Box::new(move || OpeningSecret::random(&mut rng))
}

fn decode(bytes: Option<Vec<u8>>) -> Account {
    bytes.map_or_else(Account::default, |bytes| {
        Account::decode(Copying(&bytes)).expect("the state holds accounts")
    })
}

impl World {
    fn new(scenario: ResharingScenario) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed);
        let validators = rng.random_range(4..=7_u32);
        let (keys, secrets) = deal(
            validators,
            rand_chacha::ChaCha20Rng::seed_from_u64(scenario.seed),
        );
        let mut secrets: Vec<Option<VoteSecret>> = secrets.into_iter().map(Some).collect();
        let nodes: Vec<Node> = (0..NODES)
            .map(|number| Node {
                identity: stock::identity_key(number).identity(),
                disk: Disk::default(),
                shares: None,
                first_share: secrets.get_mut(number).and_then(Option::take),
                up_at: Height(0),
                fault: None,
                nonce: 0,
                starts: 0,
            })
            .collect();
        let bonds: BTreeMap<Identity, Bond> = nodes
            .iter()
            .map(|node| {
                let bond = Bond {
                    identity: node.identity,
                    stake: STAKE + rng.random_range(0..STAKE),
                    leaving: 0,
                    leaves_at: Epoch(0),
                    since: Epoch(0),
                    vote_key: VoteKey::NONE,
                    address: BondAddress::default(),
                    name: BondName::default(),
                };
                (node.identity, bond)
            })
            .collect();
        let members = keys
            .share_keys
            .iter()
            .zip(&nodes)
            .map(|(key, node)| Member {
                identity: node.identity,
                vote_key: VoteKey(*key),
                address: BondAddress::default(),
                name: BondName::default(),
            });
        let group_key = VoteKey(keys.group_key);
        let set = ValidatorSet::of_members(Epoch(0), members.collect()).sharing(Some(group_key));
        let committees = Committees::changing(vec![set], Epoch(0), Epoch(0), BTreeMap::new())
            .expect("a committee");
        let rules = RegistryRules {
            min_stake: STAKE,
            max_validators: rng.random_range(validators..=8),
            unbond_epochs: 1,
            slashing: None,
            external: None,
            resharing: true,
        };
        let mut tree = Tree::open(MemoryStore::default()).expect("an empty tree");
        let accounts: BTreeMap<Identity, Account> = bonds
            .iter()
            .map(|(identity, bond)| {
                let account = Account {
                    bond: Some(Box::new(bond.clone())),
                    ..Account::plain(0, BALANCE)
                };
                (*identity, account)
            })
            .collect();
        let changes = tree.prepare(&tree_updates(&accounts)).expect("in memory");
        tree.store_mut().apply(&changes);
        tree.commit(changes);
        let mut world = Self {
            scenario,
            rng,
            chain: ChainId(Digest([7; 32])),
            rules: Rules::new("resharing", length(), Some(rules)).knowing(&committees),
            committees,
            tree,
            bonds,
            nodes,
            faulty: BTreeSet::new(),
            sent: Vec::new(),
            height: Height(0),
            report: ResharingReport::default(),
            group_key,
            supply: 0,
        };
        world.supply = world.money();
        world
    }

    fn run(mut self) -> Result<ResharingReport, ResharingViolation> {
        let mut changed_in_calm = false;
        let calm_from = self.scenario.epochs.saturating_sub(CALM_EPOCHS);
        for epoch in (0..self.scenario.epochs).map(Epoch) {
            let is_calm = epoch.0 >= calm_from;
            self.begin(epoch, is_calm);
            for _ in 0..EPOCH_BLOCKS {
                self.act(epoch, is_calm)?;
                self.block(epoch, is_calm)?;
            }
            changed_in_calm |= self.check_epoch(epoch)? && is_calm;
            self.report.epochs += 1;
        }
        if !changed_in_calm {
            let epoch = Epoch(self.scenario.epochs);
            return Err(self.violation(epoch, "no shares were passed on in calm epochs"));
        }
        if self.money() != self.supply {
            return Err(self.violation(Epoch(self.scenario.epochs), "money was lost or made"));
        }
        Ok(self.report)
    }

    fn violation(&self, epoch: Epoch, what: impl Into<String>) -> ResharingViolation {
        ResharingViolation {
            seed: self.scenario.seed,
            epoch,
            what: what.into(),
        }
    }

    fn account(&self, identity: &Identity) -> Account {
        decode(self.tree.get(&state_key(identity).0).expect("in memory"))
    }

    fn money(&self) -> u64 {
        let accounts = self.nodes.iter().map(|node| self.account(&node.identity));
        let sums = accounts.map(|one| one.balance + one.bond.map_or(0, |bond| bond.total()));
        sums.sum()
    }

    fn acting(&self, epoch: Epoch) -> ValidatorSet {
        self.committees.set(epoch).expect("it is fixed")
    }

    /// Chooses who is faulty: one node of all, since sets of four to eight may follow each other.
    fn begin(&mut self, epoch: Epoch, is_calm: bool) {
        let acting = self.acting(epoch);
        // Who is faulty stays so while it has a seat.
        self.faulty
            .retain(|node| acting.place(&self.nodes[*node].identity).is_some());
        if is_calm {
            self.faulty.clear();
        } else if self.faulty.is_empty() && self.rng.random_bool(0.7) {
            let node = self.rng.random_range(0..NODES);
            self.faulty.insert(node);
        }
        for number in 0..NODES {
            let fault = FAULTS[self.rng.random_range(0..FAULTS.len())];
            let node = &mut self.nodes[number];
            node.fault = self.faulty.contains(&number).then_some(fault);
            if is_calm {
                node.up_at = Height(0);
            } else if self.rng.random_bool(0.02) {
                // Away for up to three epochs.
                let until = self.height.0 + self.rng.random_range(1..3 * EPOCH_BLOCKS);
                node.shares = None;
                node.up_at = Height(until);
                self.report.crashes += 1;
            }
        }
        if is_calm {
            self.sent.clear();
        }
    }

    /// Nodes look at the state, and send what they should.
    fn act(&mut self, epoch: Epoch, is_calm: bool) -> Result<(), ResharingViolation> {
        let acting = self.acting(epoch);
        let (phase, _) = length().phase(self.height.next());
        for number in 0..NODES {
            if self.height < self.nodes[number].up_at || !self.rng.random_bool(0.5) {
                continue;
            }
            self.start(number, epoch)?;
            if self.sent.iter().any(|sent| sent.from == number) {
                continue;
            }
            let fails = !is_calm && self.rng.random_bool(0.002);
            self.nodes[number].disk.fails(fails);
            let operations = self.duties(number, epoch, phase, &acting);
            self.nodes[number].disk.fails(false);
            let Ok(mut operations) = operations else {
                self.crash(number);
                continue;
            };
            if !is_calm && self.rng.random_bool(0.001) {
                // After its secrets are kept, before anything is sent.
                self.crash(number);
                continue;
            }
            self.spoil(number, epoch, phase, &mut operations);
            for operation in operations {
                let is_late = !is_calm && self.rng.random_bool(0.05);
                let lag = self.rng.random_range(1..=if is_late { 16 } else { 3 });
                if !is_calm && self.rng.random_bool(0.03) {
                    continue;
                }
                self.sent.push(Sent {
                    from: number,
                    operation,
                    arrives: Height(self.height.0 + lag),
                });
            }
            if !is_calm && self.rng.random_bool(0.001) {
                self.crash(number);
            }
        }
        Ok(())
    }

    fn start(&mut self, number: usize, epoch: Epoch) -> Result<(), ResharingViolation> {
        if self.nodes[number].shares.is_some() {
            return Ok(());
        }
        let node = &mut self.nodes[number];
        node.starts += 1;
        let seed = self.scenario.seed ^ ((number as u64) << 32) ^ (node.starts << 40);
        let opened = Shares::open(
            &node.disk.content(),
            Box::new(node.disk.clone()),
            openings(seed),
        );
        match opened {
            Ok(shares) => node.shares = Some(shares),
            Err(damaged) => return Err(self.violation(epoch, damaged.to_string())),
        }
        Ok(())
    }

    fn crash(&mut self, number: usize) {
        self.report.crashes += 1;
        let until = self.height.0 + self.rng.random_range(1..12);
        let node = &mut self.nodes[number];
        node.shares = None;
        node.up_at = Height(until);
    }

    fn duties(
        &mut self,
        number: usize,
        epoch: Epoch,
        phase: Phase,
        acting: &ValidatorSet,
    ) -> anyhow::Result<Vec<Operation>> {
        let tree = &self.tree;
        let node = &mut self.nodes[number];
        let Some(shares) = node.shares.as_mut() else {
            return Ok(Vec::new());
        };
        let mut read = |identity: &Identity| {
            let bytes = tree.get(&state_key(identity).0)?;
            Ok(bytes.map(|bytes| decode(Some(bytes))))
        };
        let known = Known {
            own: &node.identity,
            chain: &self.chain,
            epoch,
            phase,
            acting,
            bond: self.bonds.get(&node.identity),
            first_share: node.first_share.as_ref(),
        };
        duties(known, shares, &mut read)
    }

    /// A node's dealing with a change, in one part.
    fn deals(
        &self,
        number: usize,
        epoch: Epoch,
        acting: &ValidatorSet,
        change: impl FnOnce(&mut Dealing),
    ) -> Option<Vec<u8>> {
        let node = &self.nodes[number];
        let place = acting.place(&node.identity)?;
        let key = acting.members()[usize::from(place)].vote_key;
        let first = (node.first_share.as_ref()).filter(|share| share.public_key() == key.0);
        let share = node.shares.as_ref()?.share(&key).or(first)?;
        let account = |identity: &Identity| {
            let bytes = self.tree.get(&state_key(identity).0).ok()??;
            Some(decode(Some(bytes)))
        };
        let round = account(&REGISTRY)?.note?.round?;
        let players = (0..round.players).map(player_slot);
        let accounts: BTreeMap<Identity, Account> = players
            .filter_map(|slot| Some((slot, account(&slot)?)))
            .collect();
        let parties = round_of(&round, &accounts, epoch)?;
        let dealing = parties.deal_share_but(place.into(), share, change).ok()?;
        Some(dealing.encode().to_vec())
    }

    /// What a faulty node sends instead.
    fn spoil(
        &mut self,
        number: usize,
        epoch: Epoch,
        phase: Phase,
        operations: &mut Vec<Operation>,
    ) {
        let Some(fault) = self.nodes[number].fault else {
            return;
        };
        let acting = self.acting(epoch);
        match (fault, phase) {
            (Fault::ProvesNothing, Phase::Deal | Phase::Object | Phase::Prove)
            | (Fault::DealsNothing, Phase::Deal) => operations.clear(),
            (Fault::DealsWrong, Phase::Deal) => {
                let victims = self.rng.random_range(1..=3);
                let flips: Vec<(usize, u8)> = (0..victims)
                    .map(|_| {
                        (
                            self.rng.random_range(0..4 * 32),
                            self.rng.random_range(0..8),
                        )
                    })
                    .collect();
                let wrong = self.deals(number, epoch, &acting, |dealing| {
                    for (at, bit) in flips {
                        dealing.sealed[at / 32][at % 32] ^= 1 << bit;
                    }
                });
                for operation in operations.iter_mut() {
                    if let (Operation::Deal { bytes, .. }, Some(wrong)) = (operation, &wrong) {
                        bytes.clone_from(wrong);
                    }
                }
            }
            (Fault::DealsStolen, Phase::Deal) => {
                // The point of another's dealing, whose seals the complaints about this one would open.
                let mut others = self.sent.iter().filter(|sent| sent.from != number);
                let dealing = others.find_map(|sent| match &sent.operation {
                    Operation::Deal { part: 0, bytes } => {
                        let players =
                            (1..=NODES).find(|count| Dealing::size(*count) == bytes.len())?;
                        Dealing::read_for(players, &mut Copying(bytes)).ok()
                    }
                    _ => None,
                });
                if let Some(Dealing { point, .. }) = dealing {
                    let stolen =
                        self.deals(number, epoch, &acting, |dealing| dealing.point = point);
                    for operation in operations.iter_mut() {
                        if let (Operation::Deal { bytes, .. }, Some(stolen)) = (operation, &stolen)
                        {
                            bytes.clone_from(stolen);
                        }
                    }
                }
            }
            (Fault::DealsCopied, Phase::Deal) => {
                let others = self.sent.iter().filter(|sent| sent.from != number);
                let copied = others.filter_map(|sent| match &sent.operation {
                    operation @ Operation::Deal { .. } => Some(operation.clone()),
                    _ => None,
                });
                let copied: Vec<Operation> = copied.collect();
                if !copied.is_empty() {
                    *operations = copied;
                }
            }
            (Fault::Objects, Phase::Object) => {
                let player = acting.place(&self.nodes[number].identity).unwrap_or(0);
                for dealer in 0..acting.members().len() as u16 {
                    let mut bytes = [0; 112];
                    self.rng.fill(&mut bytes[..]);
                    let complaint = Complaint::decode(Copying(&bytes)).expect("112 bytes");
                    operations.push(Operation::Object {
                        player,
                        dealer,
                        complaint: Box::new(complaint),
                    });
                }
            }
            (Fault::Babbles, _) => {
                let (from, to) = (self.rng.random_range(0..9), self.rng.random_range(0..9));
                let mut key = [0; 48];
                self.rng.fill(&mut key[..]);
                let mut long = vec![0; self.rng.random_range(0..DEALING_PART_BYTES)];
                self.rng.fill(&mut long[..]);
                operations.push(match self.rng.random_range(0..4) {
                    0 => Operation::Announce {
                        epoch: Epoch(epoch.0 + from as u64 / 8),
                        key: OpeningKey(key),
                    },
                    1 => Operation::Deal {
                        part: self.rng.random_range(0..3),
                        bytes: long,
                    },
                    2 => Operation::Prove {
                        player: from,
                        signature: PartialSignature([to as u8; 96]),
                    },
                    _ => Operation::Object {
                        player: from,
                        dealer: to,
                        complaint: Box::new(Complaint {
                            opened: key,
                            challenge: [1; 32],
                            response: [2; 32],
                        }),
                    },
                });
            }
            _ => {}
        }
    }

    /// A block with what has arrived.
    fn block(&mut self, epoch: Epoch, is_calm: bool) -> Result<(), ResharingViolation> {
        let height = self.height.next();
        let mut arrived = Vec::new();
        let mut still = Vec::new();
        for sent in std::mem::take(&mut self.sent) {
            if sent.arrives <= height && arrived.len() < 16 {
                arrived.push(sent);
            } else {
                still.push(sent);
            }
        }
        self.sent = still;
        arrived.shuffle(&mut self.rng);
        let transactions: Vec<Transaction> = arrived
            .iter()
            .map(|sent| {
                let node = &mut self.nodes[sent.from];
                let transfer = Transfer {
                    chain_tag: self.chain.tag(),
                    sender: node.identity,
                    nonce: node.nonce,
                    to: REGISTRY,
                    amount: 0,
                    fee: 1,
                    memo: Memo::new(sent.operation.encode()).expect("an operation is a memo"),
                };
                node.nonce += 1;
                Transaction::new(transfer, IdentitySignature([3; 64]))
            })
            .collect();
        self.report.operations += transactions.len() as u64;
        // The last block of an epoch may name a state of before the next set was fixed.
        let lags = length().is_last(height) && !is_calm && self.rng.random_bool(0.05);
        let lag = if lags { EPOCH_BLOCKS } else { 3 };
        let header = Header {
            chain: self.chain,
            epoch,
            view: View(height.0 - epoch.0 * EPOCH_BLOCKS),
            height,
            parent: Digest::ZERO,
            parent_view: View(0),
            timestamp_ms: height.0,
            executed_height: Height(height.0.saturating_sub(lag)),
            state_root: Digest::ZERO,
            body_root: Header::body_root_of(&transactions),
        };
        let block = Block::new(header, transactions).expect("within limits");
        let bonds = self.bonds.clone();
        let executed = execute(&self.tree, &block, &self.committees, &self.rules, || {
            Ok(bonds)
        });
        let executed = executed.map_err(|error| self.violation(epoch, error.to_string()))?;
        for (sent, outcome) in arrived.iter().zip(&executed.execution.outcomes) {
            let is_refused = !matches!(outcome, Outcome::Applied);
            self.report.refused += u64::from(is_refused);
            let is_honest = self.nodes[sent.from].fault.is_none();
            if let (Operation::Object { .. }, true, true) = (&sent.operation, is_honest, is_calm)
                && is_refused
                && *outcome != Outcome::Failed(quorate_types::Failure::WrongPhase)
            {
                // Another player may have convicted the dealer in the same block.
                let convicted = self.round(epoch).map(|round| round.convicted);
                if let Operation::Object { dealer, .. } = &sent.operation
                    && !convicted.is_some_and(|convicted| convicted.holds(*dealer))
                    && !arrived.iter().any(|other| {
                        other.from != sent.from
                            && matches!(&other.operation, Operation::Object { dealer: of, .. } if of == dealer)
                    })
                {
                    return Err(self.violation(epoch, "an honest player was not believed"));
                }
            }
        }
        quorate_storage::execution::update_bonds(&mut self.bonds, &executed.execution.accounts);
        self.tree.store_mut().apply(&executed.changes);
        self.tree.commit(executed.changes);
        if let Some(decision) = executed.decision {
            self.committees.decide(decision.set);
        }
        self.height = height;
        Ok(())
    }

    fn round(&self, epoch: Epoch) -> Option<quorate_types::registry::RoundNote> {
        let note = self.account(&REGISTRY).note?;
        (note.epoch == epoch).then_some(note.round)?
    }

    /// Checks what an epoch has led to. Returns whether shares were passed on.
    fn check_epoch(&mut self, epoch: Epoch) -> Result<bool, ResharingViolation> {
        let (before, after) = (self.acting(epoch), self.acting(epoch.next()));
        if after.group_key() != Some(self.group_key) {
            return Err(self.violation(epoch, "the group key has changed"));
        }
        if let Some(round) = self.round(epoch) {
            for dealer in round.convicted.iter() {
                let identity = before.members()[usize::from(dealer)].identity;
                let node = self.nodes.iter().find(|node| node.identity == identity);
                if node.is_some_and(|node| node.fault.is_none()) {
                    return Err(self.violation(epoch, "an honest dealer was convicted"));
                }
                self.report.convicted += 1;
            }
        }
        if after.votes_as(&before) {
            self.report.failed += 1;
            return Ok(false);
        }
        self.report.passed_on += 1;
        let identities = |set: &ValidatorSet| -> Vec<Identity> {
            set.members().iter().map(|one| one.identity).collect()
        };
        self.report.changes += u64::from(identities(&before) != identities(&after));
        let stays = identities(&after);
        let stays = stays.iter().filter(|one| before.place(one).is_some());
        if stays.count() < before.quorum().max(after.quorum()) {
            return Err(self.violation(epoch, "those who stay are no quorum"));
        }
        let message = HashedMessage::new(b"after");
        let (mut parts, mut old) = (Vec::new(), None);
        for (place, member) in (0_u32..).zip(after.members()) {
            let number = self
                .nodes
                .iter()
                .position(|one| one.identity == member.identity);
            let number = number.expect("a node");
            if self.nodes[number].fault.is_some() {
                continue;
            }
            let disk = self.nodes[number].disk.content();
            let shares = Shares::open(&disk, Box::new(Disk::default()), openings(0));
            let shares = shares.map_err(|damaged| self.violation(epoch, damaged.to_string()))?;
            let Some(share) = shares.share(&member.vote_key) else {
                return Err(self.violation(epoch, format!("node {number} has no share of its own")));
            };
            parts.push((place, share.sign(&message)));
            let old_key = before.place(&member.identity);
            let old_key = old_key.map(|place| before.members()[usize::from(place)].vote_key);
            let old_share = old_key.and_then(|key| shares.share(&key));
            old = old.or(old_share.map(|share| share.sign(&message)));
        }
        let scheme = after.scheme();
        let scheme = scheme.map_err(|error| self.violation(epoch, error.to_string()))?;
        let certificate = scheme.certify(&message, &parts, [5; 32]);
        let certificate = certificate
            .map_err(|error| self.violation(epoch, format!("no certificate: {error}")))?;
        // With the genesis's key alone, whatever the set.
        let key = quorate_crypto::bls::GroupKey::new(&self.group_key.0);
        let holds = key.is_ok_and(|key| key.verify(&message, &certificate));
        if !holds {
            return Err(
                self.violation(epoch, "a certificate does not hold under the genesis's key")
            );
        }
        // Not with an older share among them.
        if let (Some(old), Some(first)) = (old, parts.first_mut()) {
            first.1 = old;
            if scheme.certify(&message, &parts, [5; 32]).is_ok() {
                return Err(self.violation(epoch, "shares of two epochs certify together"));
            }
        }
        Ok(true)
    }
}
