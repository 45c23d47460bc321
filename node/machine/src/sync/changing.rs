//! State sync on a chain whose validators change: who knows the genesis file's learns of the later ones, and
//! believes nothing that they have not signed.

use super::*;
use crate::{
    accounts::Accounts,
    clock::testing::Hand,
    executor::{Executor, ExecutorHandle},
    ledger::Rules,
    registry::{committees, known_validators},
    serve::chunk,
    snapshots::{SnapshotTaker, Snapshots},
};
use commonware_codec::Encode;
use parking_lot::Mutex;
use quorate_consensus::Finalized;
use quorate_crypto::{
    SecretKey,
    bls::{HashedMessage, PartialSignature, VoteSecret},
};
use quorate_lanes::To;
use quorate_types::{
    Account, BondAddress, Digest, EpochKeys, Evidence, Header, IdentitySignature, Memo, Operation,
    Possession, REGISTRY, RegistryRules, SLASHED, Slashing, Subject, Transaction, Transfer, View,
    Vote, VoteKey, VoteKind,
    genesis::{
        ApplicationKind, DEFAULT_LIMITS, Fees, Genesis, GenesisAccount, GenesisValidator, Protocol,
    },
};
use rand_chacha::rand_core::SeedableRng as _;
use std::sync::atomic::Ordering::Relaxed;
use tempfile::TempDir;

const NAME: &str = "changing";
const STAKE: u64 = 1_000_000;
const EPOCH_BLOCKS: u64 = 16;

/// Headers name a state of so many blocks before.
const LAG: u64 = 3;

/// Who exists: the first four validate from the start.
const MACHINES: u8 = 8;

fn identity_key(number: u8) -> SecretKey {
    SecretKey::from_bytes(&[number + 1; 32])
}

fn vote_secret(number: u8) -> VoteSecret {
    VoteSecret::random(rand_chacha::ChaCha20Rng::from_seed([number + 1; 32]))
}

fn genesis() -> Genesis {
    let validators = (0..4).map(|number| {
        let identity = identity_key(number).identity();
        let secret = vote_secret(number);
        GenesisValidator {
            identity,
            vote_key: VoteKey(secret.public_key()).to_string(),
            proof_of_possession: Some(
                Possession(secret.prove_possession(NAME, &identity.0)).to_string(),
            ),
            stake: STAKE,
            address: BondAddress::default(),
        }
    });
    Genesis {
        name: NAME.to_owned(),
        timestamp_ms: 1_700_000_000_000,
        protocol: Protocol::Simplex,
        application: ApplicationKind::Ledger,
        scheme: "bls-aggregate".to_owned(),
        limits: DEFAULT_LIMITS,
        fees: Fees::NONE,
        epoch_blocks: EpochLength::new(EPOCH_BLOCKS).expect("not zero"),
        group_key: None,
        registry: Some(RegistryRules {
            min_stake: STAKE,
            max_validators: 7,
            unbond_epochs: 1,
            slashing: Some(Slashing {
                percent: 5,
                jail_epochs: 2,
            }),
            external: None,
            resharing: false,
        }),
        validators: validators.collect(),
        accounts: (0..MACHINES)
            .map(|number| GenesisAccount {
                identity: identity_key(number).identity(),
                balance: 10 * STAKE,
            })
            .collect(),
    }
}

/// A node that has the chain, and all keys.
struct Chain {
    genesis: Genesis,
    store: Store,
    executor: Executor,
    handle: ExecutorHandle,
    snapshots: Arc<Snapshots>,
    committees: Committees,
    header: Header,
    blocks: Vec<Finalized>,
    nonces: [u64; MACHINES as usize],
    _folder: Option<TempDir>,
}

impl Chain {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let genesis = genesis();
        let (store, tree) = Store::open(&folder.path().join("db"), &genesis).expect("a store");
        let mut chain = Self::open(&genesis, store, tree);
        chain._folder = Some(folder);
        chain
    }

    fn open(
        genesis: &Genesis,
        store: Store,
        tree: quorate_storage::tree::Tree<quorate_storage::tree::TableRows>,
    ) -> Self {
        let committees = committees(genesis, &store).expect("it can be read");
        let snapshots = Arc::new(Snapshots::new(Arc::new(Hand::default())));
        let (executor, handle) = Executor::new(
            Accounts::new(store.clone()),
            (store.clone(), tree),
            SnapshotTaker::new(snapshots.clone(), 10, true),
            (committees.clone(), Rules::of(genesis).knowing(&committees)),
            None,
            (Box::new(|_| {}), Box::new(|| None)),
            super::tests::metrics(),
        )
        .expect("a database");
        let header = Header {
            chain: genesis.chain_id(),
            epoch: Epoch(0),
            view: View(0),
            height: Height(0),
            parent: Digest::ZERO,
            parent_view: View(0),
            timestamp_ms: 1,
            executed_height: Height(0),
            state_root: handle
                .root_at(store.tip().height)
                .expect("the newest state"),
            body_root: Header::body_root_of(&[]),
        };
        Self {
            genesis: genesis.clone(),
            store,
            executor,
            handle,
            snapshots,
            committees,
            header,
            blocks: Vec::new(),
            nonces: [0; MACHINES as usize],
            _folder: None,
        }
    }

    /// Grows to a height with blocks of which the first holds these transactions.
    fn grow_to(&mut self, height: u64, mut transactions: Vec<Transaction>) {
        while self.header.height.0 < height {
            let above = self.header;
            let height = above.height.next();
            let epoch = self.genesis.epoch_blocks.epoch_of(height);
            let view = View(height.0 - epoch.0 * EPOCH_BLOCKS);
            let executed = Height(height.0.saturating_sub(LAG));
            let first = std::mem::take(&mut transactions);
            self.header = Header {
                epoch,
                view,
                height,
                parent: match above.height {
                    Height(0) => Digest::ZERO,
                    _ => above.id(),
                },
                parent_view: View(view.0 - 1),
                timestamp_ms: above.timestamp_ms + 1,
                executed_height: executed,
                state_root: self.handle.root_at(executed).expect("it is executed"),
                body_root: Header::body_root_of(&first),
                ..above
            };
            let block = Arc::new(Block::new(self.header, first).expect("within limits"));
            let set = self.committees.set(epoch).expect("it is fixed");
            let certificate = Some(self.finalize(&self.header, &set));
            let finalized = Finalized { block, certificate };
            self.blocks.push(finalized.clone());
            self.execute(finalized);
        }
    }

    fn execute(&mut self, finalized: Finalized) {
        self.handle.submit(vec![finalized]);
        self.executor.run_waiting().expect("it executes");
    }

    /// The finalization of a header by a quorum of these validators.
    fn finalize(&self, header: &Header, set: &ValidatorSet) -> Certificate {
        self.finalize_as(header, header.id(), set)
    }

    /// The same of another block, with this header's epoch and view.
    fn finalize_as(&self, header: &Header, payload: Digest, set: &ValidatorSet) -> Certificate {
        let subject = Subject {
            epoch: header.epoch,
            view: header.view,
            kind: VoteKind::Finalize,
            payload,
        };
        let message = HashedMessage::new(&subject.signed_bytes(&self.genesis.chain_id()));
        let scheme = set.scheme().expect("proven keys");
        let places = set.members().iter().zip(0..scheme.quorum());
        let parts: Vec<(u32, PartialSignature)> = places
            .map(|(member, place)| {
                let mut numbers = 0..MACHINES;
                let number =
                    numbers.find(|number| vote_secret(*number).public_key() == member.vote_key.0);
                let secret = vote_secret(number.expect("a machine's key"));
                (place, secret.sign(&message))
            })
            .collect();
        let proof = scheme.certify(&message, &parts, [7; 32]);
        Certificate {
            subject,
            proof: proof.expect("valid parts"),
        }
    }

    fn operation(&mut self, number: u8, amount: u64, operation: &Operation) -> Transaction {
        let nonce = &mut self.nonces[usize::from(number)];
        let transfer = Transfer {
            chain_tag: self.genesis.chain_id().tag(),
            sender: identity_key(number).identity(),
            nonce: *nonce,
            to: REGISTRY,
            amount,
            fee: 0,
            memo: Memo::new(operation.encode()).expect("short"),
        };
        *nonce += 1;
        Transaction::new(transfer, IdentitySignature([3; 64]))
    }

    fn bond(&mut self, number: u8) -> Transaction {
        let identity = identity_key(number).identity();
        let secret = vote_secret(number);
        let bond = Operation::Bond {
            vote_key: VoteKey(secret.public_key()),
            possession: Possession(secret.prove_possession(NAME, &identity.0)),
            address: format!("host-{number}:1").parse().expect("short"),
            name: "n".parse().expect("short"),
        };
        self.operation(number, 2 * STAKE, &bond)
    }

    fn unbond(&mut self, number: u8) -> Transaction {
        self.operation(number, 0, &Operation::Unbond { stake: STAKE })
    }

    /// Grows by epochs in which validators come and leave, to the middle of an epoch and some blocks.
    fn change(&mut self) {
        let (first, second) = (self.bond(4), self.bond(5));
        self.grow_to(2, vec![first, second]);
        self.grow_to(3 * EPOCH_BLOCKS, Vec::new());
        let leaves = self.unbond(0);
        self.grow_to(5 * EPOCH_BLOCKS, vec![leaves]);
        let (leaves, comes) = (self.unbond(1), self.bond(6));
        self.grow_to(6 * EPOCH_BLOCKS + 14, vec![leaves, comes]);
    }

    /// Two votes of a machine for a view of an epoch in which it has a seat.
    fn evidence(&self, number: u8, epoch: Epoch) -> Evidence {
        let set = self.committees.set(epoch).expect("it is known");
        let identity = identity_key(number).identity();
        let committee = set.committee().expect("distinct");
        let signer = committee.place(&identity).expect("it has a seat");
        let vote = |payload: u8| {
            let subject = Subject {
                epoch,
                view: View(2),
                kind: VoteKind::Notarize,
                payload: Digest([payload; 32]),
            };
            let message = HashedMessage::new(&subject.signed_bytes(&self.genesis.chain_id()));
            Vote {
                subject,
                signer,
                signature: vote_secret(number).sign(&message),
            }
        };
        Evidence {
            first: vote(1),
            second: vote(2),
        }
    }

    fn accuse(&mut self, by: u8, number: u8, epoch: Epoch) -> Transaction {
        let accuse = Operation::Accuse {
            validator: identity_key(number).identity(),
            evidence: Box::new(self.evidence(number, epoch)),
        };
        self.operation(by, 0, &accuse)
    }

    fn account(&self, identity: &Identity) -> Account {
        let account = self.store.account(identity).expect("it can be read");
        account.unwrap_or_default()
    }

    fn handovers(&self) -> Vec<Handover> {
        let handovers = self.store.handovers(Epoch(0), usize::MAX);
        handovers.expect("it can be read")
    }

    /// The validators as somebody knows them who has only the genesis file.
    fn known(&self) -> (Committees, EpochKeys) {
        let set = ValidatorSet::of_genesis(&self.genesis).expect("proven keys");
        let known = Committees::trusting(set).expect("a committee");
        let scheme = self.genesis.scheme().expect("proven keys");
        let keys = EpochKeys::new(self.genesis.chain_id(), known.clone(), scheme);
        (known, keys)
    }

    /// Whether these handovers are followed to their end.
    fn adopts(&self, handovers: &[Handover]) -> bool {
        let (known, keys) = self.known();
        let of = (&self.genesis.chain_id(), self.genesis.epoch_blocks);
        let verify = |certificate: &Certificate| keys.verify(certificate);
        let (adopted, flaw) = adopt_handovers(handovers, &known, of, &verify);
        assert_eq!(
            known.newest(),
            adopted.last().map_or(Epoch(0), |one| one.set.epoch)
        );
        flaw.is_none() && adopted.len() == handovers.len()
    }
}

#[test]
fn handovers_lead_from_the_genesis_validators_to_the_newest() {
    let mut chain = Chain::new();
    chain.change();
    let handovers = chain.handovers();
    let sets: Vec<ValidatorSet> = handovers.iter().map(|one| one.set.clone()).collect();
    let mut stored = chain.store.sets().expect("it can be read");
    // What the middle of this epoch has fixed is not handed over yet.
    let coming = stored.pop().expect("others come");
    assert_eq!(coming.epoch, Epoch(7));
    assert_eq!(sets, stored);
    assert!(sets.len() >= 2, "{sets:?}");
    assert!(chain.adopts(&handovers));
    // A part of them, and those that are known already, are no lie.
    assert!(chain.adopts(&handovers[..1]));
    let (known, keys) = chain.known();
    for _ in 0..2 {
        let of = (&chain.genesis.chain_id(), chain.genesis.epoch_blocks);
        let (_, flaw) = adopt_handovers(&handovers, &known, of, &|one| keys.verify(one));
        assert_eq!(flaw, None);
    }
}

#[test]
fn no_forged_handover_is_followed() {
    let mut chain = Chain::new();
    chain.change();
    let handovers = chain.handovers();
    let refuses = |what: &str, change: &dyn Fn(&mut Handover)| {
        for place in 0..handovers.len() {
            let mut forged = handovers.clone();
            change(&mut forged[place]);
            assert!(!chain.adopts(&forged[..=place]), "{what} at {place}");
        }
    };
    let block = |height: u64| {
        let finalized = &chain.blocks[height as usize - 1];
        (
            *finalized.block.header(),
            finalized.certificate.clone().expect("all have one"),
        )
    };
    refuses("another validator", &|one| {
        let mut members = one.set.members().to_vec();
        members[0].identity = identity_key(7).identity();
        one.set = ValidatorSet::of_members(one.set.epoch, members);
    });
    refuses("another key", &|one| {
        let mut members = one.set.members().to_vec();
        members[0].vote_key = VoteKey(vote_secret(7).public_key());
        one.set = ValidatorSet::of_members(one.set.epoch, members);
    });
    refuses("another address", &|one| {
        let mut members = one.set.members().to_vec();
        members[0].address = "liar:1".parse().expect("short");
        one.set = ValidatorSet::of_members(one.set.epoch, members);
    });
    refuses("another epoch", &|one| {
        one.set = one.set.clone().of_epoch(one.set.epoch.next());
    });
    refuses("a block before the last", &|one| {
        (one.header, one.finalization) = block(one.header.height.0 - 1);
    });
    refuses("the last block of another epoch", &|one| {
        let height = one.header.height.0;
        let other = if height > EPOCH_BLOCKS {
            height - EPOCH_BLOCKS
        } else {
            2 * EPOCH_BLOCKS
        };
        (one.header, one.finalization) = block(other);
    });
    refuses("another block's finalization", &|one| {
        one.finalization = block(one.header.height.0 - 1).1;
    });
    refuses("a finalization by the new validators", &|one| {
        one.finalization = chain.finalize(&one.header, &one.set);
    });
    refuses("a header that names a state before the middle", &|one| {
        let old = Height(one.header.height.0 - EPOCH_BLOCKS / 2 - 1);
        one.header.executed_height = old;
        let set = chain.committees.set(one.header.epoch).expect("it is known");
        one.finalization = chain.finalize(&one.header, &set);
    });
    refuses("no proof", &|one| one.proof = Bytes::new());
    refuses("a proof of another state", &|one| {
        let others = handovers
            .iter()
            .find(|other| other.set.epoch != one.set.epoch);
        one.proof = others.expect("there are some").proof.clone();
    });
    refuses("a bit of the proof", &|one| {
        let mut bytes = one.proof.to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        one.proof = bytes.into();
    });
    // One that is left out cannot be skipped: it has other keys.
    for left_out in 0..handovers.len() - 1 {
        let mut some = handovers.clone();
        some.remove(left_out);
        assert!(!chain.adopts(&some), "{left_out} is left out");
    }
}

#[test]
fn who_contradicts_itself_is_slashed_leaves_and_may_come_back() {
    let mut chain = Chain::new();
    let bonds = [4, 5].map(|number| chain.bond(number));
    chain.grow_to(2, bonds.to_vec());
    chain.grow_to(3 * EPOCH_BLOCKS + 1, Vec::new());
    let guilty = identity_key(5).identity();
    let has_seat = |chain: &Chain, epoch: u64| {
        let committee = chain.committees.of(Epoch(epoch));
        committee.place(&guilty).is_some()
    };
    assert!(has_seat(&chain, 3));
    // Two accuse it of the same, in one block, and one of them once more.
    let accusations = vec![
        chain.accuse(6, 5, Epoch(3)),
        chain.accuse(7, 5, Epoch(3)),
        chain.accuse(6, 5, Epoch(3)),
    ];
    let height = chain.header.height.next();
    chain.grow_to(4 * EPOCH_BLOCKS, accusations);
    let outcomes: Vec<String> = (0..3)
        .map(|index| {
            let place = quorate_storage::store::TransactionPlace { height, index };
            let outcome = chain.store.outcome(place).expect("it can be read");
            outcome.expect("it is stored").name().to_owned()
        })
        .collect();
    assert_eq!(
        outcomes,
        ["applied", "already_punished", "already_punished"]
    );
    let bond = chain.account(&guilty).bond.expect("it stays");
    assert_eq!((bond.stake, bond.since), (2 * STAKE - STAKE / 10, Epoch(5)));
    assert_eq!(chain.account(&SLASHED).balance, STAKE / 10);
    assert!(!has_seat(&chain, 4) && !has_seat(&chain, 5));
    // The state in the middle of epoch 5 lets it in again.
    chain.grow_to(6 * EPOCH_BLOCKS, Vec::new());
    assert!(has_seat(&chain, 6));
    // Others arrive at the same state from it, and a key that it has rotated since does not protect it.
    assert!(chain.adopts(&chain.handovers()));
}

/// How a peer answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    Honest,
    /// Names another next set than the state does.
    OtherNext,
    /// Leaves out what the state says about the validators.
    NoRegistry,
    /// Hands over to itself.
    OwnSet,
    /// Says that the validators have never changed, and offers the state all the same.
    NothingChanged,
    /// The same, with a state that the keys of the genesis file's validators have signed.
    Stale,
    /// The same keys sign a state of later validators' height, as one of their own epoch.
    Backdated,
    /// The same keys sign the newest state in their own epoch.
    OtherEpoch,
}

/// A node with nothing but the genesis file, that fetches the state from three others.
struct Receiver {
    folder: TempDir,
    sync: StateSync,
    sent: Arc<Mutex<Vec<(usize, Message)>>>,
    clock: Arc<Hand>,
}

impl Receiver {
    fn new(genesis: &Genesis) -> Self {
        Self::at(tempfile::tempdir().expect("a directory"), genesis)
    }

    /// A node with this folder's database.
    fn at(folder: TempDir, genesis: &Genesis) -> Self {
        let (store, _) = Store::open(&folder.path().join("db"), genesis).expect("a store");
        let sent: Arc<Mutex<Vec<(usize, Message)>>> = Arc::default();
        let clock = Arc::new(Hand::default());
        let validators = known_validators(genesis, &store).expect("it can be read");
        let known = validators.as_ref().expect("a registry").committees.clone();
        let scheme = genesis.scheme().expect("proven keys");
        let keys = EpochKeys::new(genesis.chain_id(), known, scheme);
        let places = genesis.committee().expect("four");
        let (to, find) = (sent.clone(), places.clone());
        let mut sync = StateSync::new(SyncParts {
            chain: genesis.chain_id(),
            peers: Directory::of_validator(&places, &[]),
            own: Some(PeerIndex(0)),
            faults: places.faults(),
            saver: Box::new(SaveInPlace(store.clone())),
            store,
            clock: clock.clone(),
            wire: Arc::new(move |_, target, bytes| {
                let To::One(identity) = target else { return };
                let place = find.place(identity).expect("a member").as_usize();
                let frame = Frame::decode(bytes).expect("a frame");
                to.lock()
                    .extend(frame.0.into_iter().map(|message| (place, message)));
            }),
            cut: Arc::new(|_, _| {}),
            verify: Box::new(move |certificate| keys.verify(certificate)),
            validators,
            may_ask: None,
        })
        .expect("it can be read");
        for identity in &places.identities()[1..] {
            sync.linked(*identity, true);
        }
        Self {
            folder,
            sync,
            sent,
            clock,
        }
    }

    /// Runs for so many steps of 50 ms, or until the state is whole. Returns whether it is.
    fn run(&mut self, chain: &Chain, manners: [Manner; 3], steps: usize) -> bool {
        let identities = chain
            .genesis
            .committee()
            .expect("four")
            .identities()
            .to_vec();
        for _ in 0..steps {
            self.clock.0.fetch_add(50_000, Relaxed);
            let asked = std::mem::take(&mut *self.sent.lock());
            for (peer, message) in asked {
                if let Some(answer) = answer(chain, manners[peer - 1], message) {
                    let bytes = Frame(vec![answer]).encode();
                    let received = self.sync.receive(identities[peer], bytes);
                    received.expect("no disk fails");
                }
            }
            self.sync.tick().expect("no disk fails");
            if self.sync.is_done() {
                return true;
            }
        }
        false
    }
}

fn answer(chain: &Chain, manner: Manner, message: Message) -> Option<Message> {
    Some(match message {
        Message::SnapshotRequest => {
            let mut proof = chain.snapshots.newest()?.proof.clone();
            let registry = proof.registry.as_mut()?;
            match manner {
                Manner::OtherNext => {
                    let next = registry.next.as_mut()?;
                    let mut members = next.members().to_vec();
                    members[0].identity = identity_key(7).identity();
                    *next = ValidatorSet::of_members(next.epoch, members);
                }
                Manner::NoRegistry => proof.registry = None,
                Manner::Stale => {
                    let set = ValidatorSet::of_genesis(&chain.genesis).ok()?;
                    let last = proof.headers.last()?;
                    proof.finalization = chain.finalize(last, &set);
                }
                Manner::OtherEpoch => {
                    let set = ValidatorSet::of_genesis(&chain.genesis).ok()?;
                    let own = Header {
                        epoch: Epoch(0),
                        ..*proof.headers.last()?
                    };
                    let of = proof.headers.last()?.id();
                    proof.finalization = chain.finalize_as(&own, of, &set);
                }
                Manner::Backdated => {
                    let set = ValidatorSet::of_genesis(&chain.genesis).ok()?;
                    let first = Header {
                        epoch: Epoch(0),
                        ..*proof.headers.first()?
                    };
                    let second = Header {
                        height: first.height.next(),
                        parent: first.id(),
                        executed_height: first.height,
                        ..first
                    };
                    proof.headers = vec![first, second];
                    proof.finalization = chain.finalize(&second, &set);
                }
                _ => {}
            }
            Message::SnapshotReply(Some(Box::new(proof)))
        }
        Message::HandoverRequest(after) => {
            let mut handovers = chain.store.handovers(after, usize::MAX).ok()?;
            match manner {
                Manner::OwnSet => {
                    let first = handovers.first_mut()?;
                    let mut members = first.set.members().to_vec();
                    members[1].vote_key = VoteKey(vote_secret(7).public_key());
                    first.set = ValidatorSet::of_members(first.set.epoch, members);
                }
                Manner::NothingChanged | Manner::Stale => handovers.clear(),
                // One at a time.
                _ => handovers.truncate(1),
            }
            Message::HandoverReply { after, handovers }
        }
        Message::ChunkRequest(request) => {
            let answer = chunk(&chain.snapshots, &request).ok()?;
            Message::ChunkReply { request, answer }
        }
        Message::BlockRequest(id) => {
            let mut blocks = chain.blocks.iter();
            let found = blocks.find(|finalized| finalized.block.id() == id)?;
            Message::BlockReply(found.block.clone())
        }
        _ => return None,
    })
}

/// The state of the receiver is that of the chain, and it crosses the next borders with it.
fn goes_on(receiver: Receiver, chain: &mut Chain) {
    let Receiver { folder, sync, .. } = receiver;
    drop(sync);
    let (store, tree) = Store::open(&folder.path().join("db"), &chain.genesis).expect("a store");
    let tip = store.tip();
    assert!(tip.height > Height(EPOCH_BLOCKS));
    assert_eq!(
        chain.store.root(tip.height).expect("it can be read"),
        Some(tip.state_root)
    );
    let mut follower = Chain::open(&chain.genesis, store, tree);
    chain.grow_to(9 * EPOCH_BLOCKS + 3, Vec::new());
    for finalized in chain.blocks.clone() {
        if finalized.block.height() > tip.height {
            follower.execute(finalized);
        }
    }
    let (ours, theirs) = (follower.store.tip(), chain.store.tip());
    assert_eq!((ours.id, ours.state_root), (theirs.id, theirs.state_root));
    assert_eq!(
        follower.store.sets().expect("sets"),
        chain.store.sets().expect("sets")
    );
    assert_eq!(follower.handovers(), chain.handovers());
}

#[test]
fn who_has_only_the_genesis_file_learns_who_validates_and_goes_on() {
    let mut chain = Chain::new();
    chain.change();
    let offered = chain.snapshots.newest().expect("one is kept");
    let registry = offered.proof.registry.as_ref().expect("it is there");
    assert!(registry.next.is_some(), "others come after this epoch");
    let mut receiver = Receiver::new(&chain.genesis);
    assert!(receiver.run(&chain, [Manner::Honest; 3], 400));
    assert_eq!(receiver.sync.blamed(), []);
    goes_on(receiver, &mut chain);
}

#[test]
fn who_stopped_between_the_choice_of_validators_and_the_border_learns_of_that_border_too() {
    let mut chain = Chain::new();
    chain.change();
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("db");
    {
        let (store, tree) = Store::open(&path, &chain.genesis).expect("a store");
        let mut absent = Chain::open(&chain.genesis, store, tree);
        let stopped_at = 2 * EPOCH_BLOCKS - 2;
        for finalized in chain.blocks[..stopped_at as usize].iter().cloned() {
            absent.execute(finalized);
        }
        let sets = absent.store.sets().expect("it can be read");
        assert_eq!(sets.len(), 1, "the middle of the epoch has fixed others");
        assert!(absent.handovers().is_empty());
    }
    let mut receiver = Receiver::at(folder, &chain.genesis);
    assert!(receiver.run(&chain, [Manner::Honest; 3], 400));
    assert_eq!(receiver.sync.blamed(), []);
    goes_on(receiver, &mut chain);
}

#[test]
fn nobody_can_accuse_the_registry_itself() {
    let mut chain = Chain::new();
    let bonds = [4, 5].map(|number| chain.bond(number));
    chain.grow_to(2, bonds.to_vec());
    chain.grow_to(2 * EPOCH_BLOCKS - 4, Vec::new());
    let note = chain.account(&REGISTRY);
    assert!(note.note.is_some());
    for accused in [REGISTRY, SLASHED, Identity([9; 32])] {
        let accuse = Operation::Accuse {
            validator: accused,
            evidence: Box::new(chain.evidence(0, Epoch(1))),
        };
        let transaction = chain.operation(6, 0, &accuse);
        let height = chain.header.height.next();
        chain.grow_to(height.0, vec![transaction]);
        let place = quorate_storage::store::TransactionPlace { height, index: 0 };
        let outcome = chain.store.outcome(place).expect("it can be read");
        assert_eq!(outcome.expect("it is stored").name(), "not_bonded");
        assert_eq!(chain.account(&REGISTRY), note);
        let untouched = chain.store.account(&Identity([9; 32]));
        assert_eq!(untouched.expect("it can be read"), None);
    }
    chain.grow_to(3 * EPOCH_BLOCKS, Vec::new());
    assert!(!chain.handovers().is_empty() && chain.adopts(&chain.handovers()));
}

#[test]
fn whoever_lies_about_the_validators_is_blamed_and_one_honest_peer_suffices() {
    let mut chain = Chain::new();
    chain.change();
    for liar in [
        Manner::OtherNext,
        Manner::NoRegistry,
        Manner::OwnSet,
        Manner::NothingChanged,
        Manner::Stale,
        Manner::Backdated,
        Manner::OtherEpoch,
    ] {
        // Nothing of what they say is taken for the state of the chain. Only keys of former validators can
        // deceive somebody who hears nobody else.
        let mut receiver = Receiver::new(&chain.genesis);
        if liar != Manner::Stale {
            assert!(!receiver.run(&chain, [liar; 3], 400), "{liar:?}");
            assert_eq!(receiver.sync.blamed().len(), 3, "{liar:?}");
            assert!(!receiver.sync.has_begun(), "{liar:?}");
        }

        let mut receiver = Receiver::new(&chain.genesis);
        let manners = [liar, liar, Manner::Honest];
        assert!(receiver.run(&chain, manners, 800), "{liar:?}");
        // Who tells nothing of the validators may offer a state that the others' handovers prove.
        let blamed = receiver.sync.blamed().len();
        assert!(blamed == 2 || liar == Manner::NothingChanged, "{liar:?}");
    }
    let mut receiver = Receiver::new(&chain.genesis);
    let manners = [Manner::OwnSet, Manner::OtherNext, Manner::Honest];
    assert!(receiver.run(&chain, manners, 800));
    goes_on(receiver, &mut chain);
}
