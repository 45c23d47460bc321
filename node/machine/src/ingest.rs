//! Transactions between validators: accepting those that peers forward, and forwarding those that
//! clients submitted here to the next leaders.

use crate::{
    accounts::Accounts,
    clock::Clock,
    conduct::{Conduct, Fault, Listening},
    directory::{Directory, PeerIndex},
    live::LiveStatus,
    mempool::{MAX_NONCE_GAP, Mempool, Refusal},
    metrics::NodeMetrics,
    outlet::Wire,
    turns::TurnReceiver,
    validate::verify_signatures,
};
use anyhow::Context;
use commonware_codec::Encode;
use quorate_lanes::{FairLimits, Lane, To};
use quorate_types::{
    Account, ChainId, Committee, Committees, Epoch, Frame, Identity, Message, Transaction,
    Transfer, ValidatorIndex, View,
    genesis::{ApplicationKind, Fees},
    limits::FORWARDED_BYTES,
};
use std::{sync::Arc, time::Duration};

/// Transactions verified in one batch.
const BATCH: usize = 1_024;

/// Most forwarded batches that wait for verification. Further ones of the same peer are dropped;
/// the peer still has them.
pub(crate) const FORWARDED: FairLimits = FairLimits {
    peer_items: 64,
    peer_bytes: 4 << 20,
    total_bytes: 16 << 20,
};

/// Shortest time between two forwarded batches, and a follower's usual one.
pub(crate) const FORWARD_INTERVAL: Duration = Duration::from_millis(5);

/// Longest time that a validator collects new transactions.
pub(crate) const FORWARD_AT_LATEST: Duration = Duration::from_millis(50);

/// How often transactions are looked for that must be forwarded again.
const FORWARD_LOOK: Duration = Duration::from_millis(250);

/// Most transactions in one forwarded batch.
const MAX_FORWARDED: usize = 1_000;

/// Adds forwarded transactions to the mempool. Peers are not trusted: each signature is verified
/// here. Forgeries count against the forwarding peer, which verifies too if it is honest; after a
/// few of them its forwarded transactions are ignored for a while.
///
/// What a follower forwards counts as submitted here: it is forwarded to the leaders. The follower
/// has it on disk and repeats it until it is final.
pub struct Ingest {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chain: ChainId,
    pub(crate) peers: Directory,
    pub(crate) application: ApplicationKind,
    pub(crate) fees: Fees,
    pub(crate) accounts: Accounts,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) metrics: Arc<NodeMetrics>,
    pub(crate) conduct: Arc<Conduct>,
    pub(crate) forwarded: TurnReceiver<Vec<Transaction>>,
}

impl Ingest {
    /// Processes batches until the links are gone.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn run(self) -> anyhow::Result<()> {
        while self.forwarded.wait(None) {
            self.take_waiting()?;
        }
        Ok(())
    }

    /// Whether anything waits.
    pub fn has_work(&self) -> bool {
        !self.forwarded.is_empty()
    }

    /// Processes all waiting batches, in turn for each peer.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn take_waiting(&self) -> anyhow::Result<()> {
        while self.has_work() {
            let (mut items, mut batches) = (Vec::new(), Vec::new());
            while items.len() < BATCH
                && let Some((from, transactions)) = self.forwarded.take(|_| true)
            {
                let before = items.len();
                for transaction in transactions {
                    items.extend(self.prepare(transaction)?);
                }
                batches.push((from, items.len() - before));
            }
            self.take(items, &batches)?;
        }
        Ok(())
    }

    /// A transaction whose signature is worth verifying, and the bytes that are signed.
    fn prepare(&self, transaction: Transaction) -> anyhow::Result<Option<(Transaction, Vec<u8>)>> {
        let transfer = transaction.transfer();
        // There, transactions come with the bundles that they order. Without, a leader would propose what nobody votes for.
        if self.application == ApplicationKind::OrderOnly {
            self.metrics.dropped("refused_transaction");
            return Ok(None);
        }
        if transaction.check(&self.chain, &self.fees).is_err()
            || self.mempool.contains(&transaction.id())
        {
            return Ok(None);
        }
        let account = self.accounts.read(&transfer.sender);
        let account = account.context("cannot read an account")?;
        let refused = hopeless(&account.account, transfer).or_else(|| {
            self.mempool
                .refuses(self.clock.now(), &transaction, account)
        });
        if refused.is_some() {
            self.metrics.dropped("refused_transaction");
            return Ok(None);
        }
        let message = transfer.signed_bytes(&self.chain);
        Ok(Some((transaction, message)))
    }

    /// Processes batches, each with its sender and size.
    fn take(
        &self,
        items: Vec<(Transaction, Vec<u8>)>,
        batches: &[(PeerIndex, usize)],
    ) -> anyhow::Result<()> {
        let together = verify_signatures(&items);
        let mut items = items.into_iter();
        for (from, count) in batches {
            let batch: Vec<_> = items.by_ref().take(*count).collect();
            let all_hold = together || verify_signatures(&batch);
            for item in batch {
                if all_hold || self.holds(*from, &item) {
                    self.submit(*from, item.0)?;
                }
            }
        }
        Ok(())
    }

    fn submit(&self, from: PeerIndex, transaction: Transaction) -> anyhow::Result<()> {
        let account = self.accounts.read(&transaction.transfer().sender);
        let account = account.context("cannot read an account")?;
        let now = self.clock.now();
        // A refusal concerns the client of the forwarding peer, which counts it too.
        let taken = match self.peers.validator(from) {
            Some(_) => self.mempool.submit_forwarded(now, transaction, account),
            None => self.mempool.submit(now, transaction, account),
        };
        if taken.is_err() {
            self.metrics.dropped("refused_transaction");
        }
        Ok(())
    }

    /// Verifies a batch with forgeries one by one, and stops after a few of them.
    fn holds(&self, from: PeerIndex, item: &(Transaction, Vec<u8>)) -> bool {
        let follower = self.peers.identity(from);
        let is_heard = match (self.peers.validator(from), follower) {
            (Some(place), _) => self.conduct.listening(place) == Listening::Fully,
            (None, Some(follower)) => self.conduct.hears_follower(&follower),
            (None, None) => false,
        };
        if !is_heard {
            self.metrics.dropped("muted");
            return false;
        }
        let holds = verify_signatures(std::slice::from_ref(item));
        if !holds {
            self.metrics.dropped("invalid_transaction");
            match (self.peers.validator(from), follower) {
                (Some(place), _) => self.conduct.note(place, Fault::Forged, 1),
                (None, Some(follower)) => self.conduct.note_follower(follower, Fault::Forged, 1),
                (None, None) => {}
            }
        }
        holds
    }
}

/// Why the mempool would refuse a transfer, whoever signed it, given its sender's present account.
pub fn hopeless(account: &Account, transfer: &Transfer) -> Option<Refusal> {
    let (nonce, expected) = (transfer.nonce, account.nonce);
    let (left, fee) = (account.balance, transfer.fee);
    if nonce < expected {
        Some(Refusal::StaleNonce { nonce, expected })
    } else if nonce - expected > MAX_NONCE_GAP {
        Some(Refusal::NonceTooFar { nonce, expected })
    } else if left < fee {
        Some(Refusal::CannotPayFee { left, fee })
    } else {
        None
    }
}

/// Forwards transactions that clients submitted here: a validator's to the leaders of the next views,
/// a follower's to those that it follows.
///
/// A validator collects them for a quarter of the time that a view takes, so that long views have no
/// more batches than short ones, and not beyond its vote for the current view's proposal: the next
/// leader builds its block soon after it. The first one after a pause is forwarded at once.
pub struct Forwarder {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) committees: Committees,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) live: Arc<LiveStatus>,
    pub(crate) wire: Wire,
    /// Longest time that new transactions are collected.
    pub(crate) at_latest: Duration,
}

/// What [`Forwarder::forward`] has forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    Nothing,
    All,
    /// A full batch: more may be due.
    Part,
}

impl Forwarder {
    /// Forwards in batches. Runs on the runtime until it is dropped.
    pub async fn run(self) {
        let mut proposed = self.live.proposed();
        let mut forwarded = Forwarded::Nothing;
        loop {
            // Timeouts here are no errors.
            if forwarded != Forwarded::Part {
                let _ = tokio::time::timeout(FORWARD_LOOK, self.mempool.forwardable()).await;
            }
            let before = *proposed.borrow();
            forwarded = self.forward();
            if forwarded == Forwarded::Nothing {
                continue;
            }
            tokio::time::sleep(FORWARD_INTERVAL).await;
            if forwarded == Forwarded::All && self.live.own().is_some() {
                let collected = (before.lasted / 4).min(self.at_latest);
                let vote = proposed.wait_for(|newest| newest.view != before.view);
                let left = collected.saturating_sub(FORWARD_INTERVAL);
                let _ = tokio::time::timeout(left, vote).await;
            }
        }
    }

    /// Forwards what is due now, at most one batch.
    pub fn forward(&self) -> Forwarded {
        let now = self.clock.now();
        self.mempool.expire(now);
        let transactions = self
            .mempool
            .next_to_forward(now, MAX_FORWARDED, FORWARDED_BYTES);
        if transactions.is_empty() {
            return Forwarded::Nothing;
        }
        let count = transactions.len();
        let to = match self.live.own() {
            Some(own) => self.leaders(own),
            None => self.live.upstreams(self.committees.known().faults() + 1),
        };
        let frame = Frame(vec![Message::Transactions(transactions)]).encode();
        let is_full = count == MAX_FORWARDED || frame.len() >= FORWARDED_BYTES;
        (self.wire)(Lane::Transactions, &To::Some(to), frame);
        match is_full {
            true => Forwarded::Part,
            false => Forwarded::All,
        }
    }

    fn leaders(&self, own: ValidatorIndex) -> Vec<Identity> {
        let (epoch, view) = (self.live.epoch(), self.live.view());
        let first = match self.live.awaits_proposal() {
            true => view,
            false => view.next(),
        };
        coming_leaders(self.committees.known(), own, epoch, first)
    }
}

/// The leaders of the views from `first` on, without this validator: f + 1 of them, so that one is
/// honest, and at least two, since the first may have built its block already.
fn coming_leaders(
    committee: &Committee,
    own: ValidatorIndex,
    epoch: Epoch,
    first: View,
) -> Vec<Identity> {
    let count = (committee.faults() + 1).max(2);
    let mut leaders = Vec::with_capacity(count);
    let mut next = first;
    for _ in 0..committee.size() {
        let leader = committee.leader_in(epoch, next);
        if leader != own
            && let Some(identity) = committee.identity(leader)
        {
            leaders.push(identity);
        }
        if leaders.len() == count {
            break;
        }
        next = committee.turn_after(next);
    }
    leaders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::testing::Hand, mempool::MempoolLimits, testing::chain, turns::turns};
    use commonware_codec::DecodeExt as _;
    use quorate_types::{IdentitySignature, Memo, genesis::Genesis};

    fn mempool(genesis: &Genesis) -> Arc<Mempool> {
        let limits = MempoolLimits {
            max_transactions: 1_000,
            max_bytes: 1 << 20,
            max_per_sender: 200,
            stranded_lasts: Duration::from_secs(60),
        };
        let room = genesis.limits.transaction_bytes();
        Arc::new(Mempool::new(limits, room, genesis.fees))
    }

    #[test]
    fn a_forger_is_not_listened_to_after_a_few_and_others_forward_as_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let (genesis, store) = chain(directory.path());
        let (id, committee) = (genesis.chain_id(), genesis.committee().expect("four"));
        let committees = Committees::fixed(committee);
        let accounts = [crate::testing::account()];
        let registry = prometheus::Registry::new();
        let metrics = Arc::new(NodeMetrics::register(&registry).expect("empty"));
        let live = Arc::new(LiveStatus::new(committees.clone(), ValidatorIndex(0)));
        let clock = Arc::new(Hand::default());
        let cut: crate::replica::Cutter = Arc::new(|_, _| {});
        let size = committees.known().size();
        let conduct = Arc::new(Conduct::new(
            committees,
            clock.clone(),
            metrics.clone(),
            live,
            cut,
        ));
        let (sender, forwarded) = turns(size, FORWARDED);
        let ingest = Ingest {
            clock,
            chain: id,
            peers: Directory::of_validator(&genesis.committee().expect("a committee"), &[]),
            application: genesis.application,
            fees: genesis.fees,
            accounts: Accounts::new(store),
            mempool: mempool(&genesis),
            metrics: metrics.clone(),
            conduct: conduct.clone(),
            forwarded,
        };
        let transfer = |nonce| Transfer {
            chain_tag: id.tag(),
            sender: accounts[0].identity(),
            nonce,
            to: accounts[0].identity(),
            amount: 1,
            fee: 1_000,
            memo: Memo::NONE,
        };
        let forged = |nonce| Transaction::new(transfer(nonce), IdentitySignature([3; 64]));
        let (forger, honest) = (ValidatorIndex(1), ValidatorIndex(2));
        sender.send(forger.into(), 16_000, (100..200).map(forged).collect());
        let valid = transfer(0).sign(&id, &accounts[0]);
        sender.send(honest.into(), 161, vec![valid.clone()]);
        ingest.take_waiting().expect("the store is there");
        assert!(ingest.mempool.contains(&valid.id()));
        assert_eq!(metrics.dropped_so_far("invalid_transaction"), 16);
        assert_eq!(metrics.dropped_so_far("muted"), 84);
        assert_eq!(conduct.listening(forger), Listening::Cut);
        assert_eq!(conduct.listening(honest), Listening::Fully);
    }

    #[test]
    fn what_the_senders_account_rules_out_is_refused_before_its_signature_is_looked_at() {
        let account = Account::plain(7, 50);
        let refusal = |nonce, fee| {
            let transfer = Transfer {
                chain_tag: [1; 8],
                sender: Identity([1; 32]),
                nonce,
                to: Identity([2; 32]),
                amount: 1,
                fee,
                memo: Memo::NONE,
            };
            hopeless(&account, &transfer).map(|refusal| refusal.code())
        };
        assert_eq!(refusal(7, 50), None);
        assert_eq!(refusal(7 + MAX_NONCE_GAP, 1), None);
        assert_eq!(refusal(6, 1), Some("stale_nonce"));
        assert_eq!(refusal(8 + MAX_NONCE_GAP, 1), Some("nonce_too_far"));
        assert_eq!(refusal(7, 51), Some("cannot_pay_fee"));
    }

    /// One batch at once, the next one with the vote for the view's proposal.
    #[tokio::test]
    async fn new_transactions_are_collected_until_the_views_proposal_is_here() {
        let directory = tempfile::tempdir().expect("a directory");
        let (genesis, store) = chain(directory.path());
        let id = genesis.chain_id();
        let committees = Committees::fixed(genesis.committee().expect("four"));
        let live = Arc::new(LiveStatus::new(committees.clone(), ValidatorIndex(0)));
        let mempool = mempool(&genesis);
        let (sender, mut sent) = tokio::sync::mpsc::unbounded_channel();
        let wire: Wire = Arc::new(move |_, _, frame| {
            let Frame(messages) = Frame::decode(frame).expect("a frame");
            let [Message::Transactions(transactions)] = &messages[..] else {
                panic!("transactions: {messages:?}");
            };
            let nonces: Vec<u64> = transactions
                .iter()
                .map(|one| one.transfer().nonce)
                .collect();
            sender.send(nonces).expect("the test listens");
        });
        let forwarder = Forwarder {
            clock: Arc::new(Hand::default()),
            committees,
            mempool: mempool.clone(),
            live: live.clone(),
            wire,
            at_latest: Duration::from_secs(3_600),
        };
        let accounts = Accounts::new(store);
        let key = crate::testing::account();
        let submit = |nonce| {
            let transfer = Transfer {
                chain_tag: id.tag(),
                sender: key.identity(),
                nonce,
                to: key.identity(),
                amount: 1,
                fee: 1_000,
                memo: Memo::NONE,
            };
            let account = accounts.read(&key.identity()).expect("stored");
            mempool
                .submit(
                    quorate_consensus::Moment(0),
                    transfer.sign(&id, &key),
                    account,
                )
                .expect("room");
        };
        let running = tokio::spawn(forwarder.run());
        // So long that nothing but the next proposal ends the collecting.
        let day = std::time::Instant::now() + Duration::from_secs(24 * 3_600);
        live.set_proposed(View(6), day);
        submit(0);
        assert_eq!(sent.recv().await, Some(vec![0]));
        submit(1);
        submit(2);
        tokio::time::sleep(10 * FORWARD_INTERVAL).await;
        assert!(sent.try_recv().is_err(), "before the next proposal");
        live.set_proposed(View(7), day);
        assert_eq!(sent.recv().await, Some(vec![1, 2]));
        running.abort();
    }

    #[test]
    fn transactions_go_to_the_next_leaders_but_never_to_oneself() {
        let validators = (0..7).map(|i| Identity([i; 32])).collect();
        let committee = Committee::new(Epoch(0), validators).expect("distinct");
        let own = ValidatorIndex(4);
        let leaders = coming_leaders(&committee, own, Epoch(0), View(3));
        assert_eq!(leaders, [3, 5, 6].map(|i| Identity([i; 32])));
        let alone = Committee::new(Epoch(0), vec![Identity([4; 32])]).expect("one");
        assert!(coming_leaders(&alone, ValidatorIndex(0), Epoch(0), View(3)).is_empty());
    }
}
