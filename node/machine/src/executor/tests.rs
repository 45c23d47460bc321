//! What the executor forgets, and when it can prove.

use super::*;
use crate::{
    clock::testing::Hand,
    snapshots::Snapshots,
    testing::{account, chain},
};
use commonware_codec::{Copying, DecodeExt as _};
use parking_lot::Mutex;
use quorate_crypto::bls;
use quorate_types::{
    Certificate, Epoch, Header, Memo, Subject, Transaction, Transfer, VoteKind, state_key,
};

/// A chain of blocks, one each so many milliseconds.
struct Chain {
    executor: Executor,
    handle: ExecutorHandle,
    header: Header,
    /// Whether each header names the state after its parent; else all name the first one.
    names_states: bool,
    /// What the slowest other validator has executed.
    slowest: Arc<Mutex<Option<Height>>>,
    _directory: tempfile::TempDir,
}

impl Chain {
    fn new(retention: Option<Retention>) -> Self {
        Self::with_snapshots(retention, 0)
    }

    /// With a snapshot after so many blocks.
    fn with_snapshots(retention: Option<Retention>, interval: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (genesis, store) = chain(directory.path());
        drop(store);
        let opened = Store::open(&directory.path().join("db"), &genesis);
        let (store, tree) = opened.expect("a store");
        let slowest: Arc<Mutex<Option<Height>>> = Arc::default();
        let claimed = slowest.clone();
        let registry = prometheus::Registry::new();
        let snapshots = Arc::new(Snapshots::new(Arc::new(Hand::default())));
        let (executor, handle) = Executor::new(
            Accounts::new(store.clone()),
            (store, tree),
            SnapshotTaker::new(snapshots, interval, false),
            (
                Committees::fixed(genesis.committee().expect("four")),
                crate::ledger::Rules::of(&genesis),
            ),
            retention,
            (Box::new(|_| {}), Box::new(move || *claimed.lock())),
            Arc::new(NodeMetrics::register(&registry).expect("empty")),
        )
        .expect("a new database");
        let header = Header {
            chain: genesis.chain_id(),
            epoch: Epoch(0),
            view: View(0),
            height: Height(0),
            parent: Digest::ZERO,
            parent_view: View(0),
            timestamp_ms: 1_000_000_000,
            executed_height: Height(0),
            state_root: handle.root_at(Height(0)).expect("the genesis state"),
            body_root: Header::body_root_of(&[]),
        };
        Self {
            executor,
            handle,
            header,
            names_states: false,
            slowest,
            _directory: directory,
        }
    }

    fn grow(&mut self, blocks: u64, each_ms: u64) {
        for _ in 0..blocks {
            self.add(each_ms, Vec::new());
        }
    }

    fn add(&mut self, ms: u64, transactions: Vec<Transaction>) {
        let above = self.header;
        let executed_height = match self.names_states {
            true => above.height,
            false => above.executed_height,
        };
        self.header = Header {
            view: above.view.next(),
            height: above.height.next(),
            parent: match above.height {
                Height(0) => Digest::ZERO,
                _ => above.id(),
            },
            parent_view: above.view,
            timestamp_ms: above.timestamp_ms + ms,
            executed_height,
            state_root: self.handle.root_at(executed_height).expect("a late one"),
            body_root: Header::body_root_of(&transactions),
            ..above
        };
        let block = Arc::new(Block::new(self.header, transactions).expect("within limits"));
        let subject = Subject {
            epoch: self.header.epoch,
            view: self.header.view,
            kind: VoteKind::Finalize,
            payload: block.id(),
        };
        let certificate = Some(Certificate {
            subject,
            proof: bls::Proof::Threshold([0; 48]),
        });
        self.handle.submit(vec![Finalized { block, certificate }]);
        self.executor.run_waiting().expect("it executes");
    }

    /// Asks for an account with a proof, and looks what was answered at once.
    fn ask(&mut self, identity: Identity) -> oneshot::Receiver<Result<AccountProof, ProofRefused>> {
        let answer = self.handle.prove(identity);
        self.executor.run_waiting().expect("it proves");
        answer
    }

    /// How many blocks are kept.
    fn kept(&self) -> u64 {
        let first = self.executor.store.pruned_below().expect("it is there");
        self.header.height.0 + 1 - first.0
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn blocks_are_kept_for_a_time_by_their_own_timestamps_and_some_in_any_case() {
    let mut chain = Chain::new(Some(Retention {
        blocks: 10,
        time: Some(MINUTE),
    }));
    // A busy chain: a minute is 600 blocks.
    chain.grow(1_000, 100);
    assert_eq!(chain.kept(), 601);
    // Then it idles. What was made in the busy time grows old a minute later.
    chain.grow(30, 1_000);
    assert_eq!(chain.kept(), 301 + 30);
    chain.grow(90, 1_000);
    assert_eq!(chain.kept(), 61);
    // It stands still for a day: the newest are kept however old they are.
    chain.grow(1, 24 * 3_600_000);
    assert_eq!(chain.kept(), 10);
}

#[test]
fn a_number_of_blocks_is_kept_whatever_their_age() {
    let mut chain = Chain::new(Some(Retention {
        blocks: 50,
        time: None,
    }));
    chain.grow(200, 3_600_000);
    assert_eq!(chain.kept(), 50);
    let mut all = Chain::new(None);
    all.grow(200, 3_600_000);
    assert_eq!(all.kept(), 200);
}

#[test]
fn blocks_are_kept_for_a_slow_validator_but_not_for_ever() {
    let keep = Retention {
        blocks: 10,
        time: None,
    };
    let mut chain = Chain::new(Some(keep));
    *chain.slowest.lock() = Some(Height(25));
    chain.grow(30, 1);
    assert_eq!(
        chain.executor.pruned,
        Height(21),
        "it has what it is to have"
    );
    chain.grow(10, 1);
    assert_eq!(
        chain.executor.pruned,
        Height(26),
        "the next block of the slow one"
    );
    chain.grow(20, 1);
    assert_eq!(
        chain.executor.pruned,
        Height(41),
        "twice as many, whatever it says"
    );
    *chain.slowest.lock() = None;
    chain.grow(5, 1);
    assert_eq!(chain.executor.pruned, Height(56));
}

#[test]
fn blocks_after_a_kept_snapshot_are_kept_for_its_receivers() {
    let keep = Retention {
        blocks: 50,
        time: None,
    };
    let mut chain = Chain::with_snapshots(Some(keep), 100);
    // The headers name the genesis state, so there is nothing to take.
    chain.grow(150, 1_000);
    assert_eq!(chain.kept(), 50);
    chain.names_states = true;
    chain.grow(260, 1_000);
    // The two newest are those that the blocks 300 and 400 name.
    assert_eq!(chain.kept(), 410 - 299 + 1);
}

/// An idle chain's next block may be a second away.
#[test]
fn what_the_newest_header_names_is_proven_at_once_and_a_few_times_for_each_block() {
    let mut chain = Chain::new(None);
    chain.grow(3, 1_000);
    let identity = Identity([7; 32]);
    let ask = |chain: &mut Chain| chain.ask(identity).try_recv().ok();
    let answer = ask(&mut chain).expect("at once");
    let proof = answer.expect("not too many");
    assert_eq!(proof.header, chain.header);
    assert_eq!(proof.certificate.subject.payload, chain.header.id());
    let key = state_key(&identity).0;
    assert_eq!(proof.proof.verify(&chain.header.state_root, &key), Ok(None));
    let at_once = (0..100).filter(|_| ask(&mut chain).is_some()).count();
    assert_eq!(at_once, 31);
    chain.grow(1, 1_000);
    assert!(ask(&mut chain).is_some());
}

/// A chain may rest as soon as a final header names its newest state: whoever asked before that has its answer then.
#[test]
fn what_a_payment_changed_is_proven_by_the_first_header_that_names_it() {
    let mut chain = Chain::new(None);
    chain.names_states = true;
    chain.grow(3, 1_000);
    let payer = account();
    let transfer = Transfer {
        chain_tag: chain.header.chain.tag(),
        sender: payer.identity(),
        nonce: 0,
        to: Identity([7; 32]),
        amount: 1,
        fee: 1_000,
        memo: Memo::NONE,
    };
    let transfer = transfer.sign(&chain.header.chain, &payer);
    chain.add(1_000, vec![transfer]);
    let mut answers: Vec<_> = (0..3).map(|_| chain.ask(payer.identity())).collect();
    let waits = answers.iter_mut().all(|answer| answer.try_recv().is_err());
    assert!(waits, "no final header names the state after the payment");

    chain.grow(1, 1_000);
    for mut answer in answers {
        let proof = answer.try_recv().expect("the header names it");
        let proof = proof.expect("not too many");
        assert_eq!(proof.header, chain.header);
        assert_eq!(proof.executed_height, Height(4));
        let key = state_key(&payer.identity()).0;
        let value = proof.proof.verify(&chain.header.state_root, &key);
        let value = value.expect("it proves").expect("it is there");
        let account = Account::decode(Copying(value)).expect("an account");
        assert_eq!(account.nonce, 1);
    }
}
