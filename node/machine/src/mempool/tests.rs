//! What the mempool takes, orders, replaces, drops and tells.

use super::*;
use commonware_codec::Encode as _;
use quorate_crypto::{SecretKey, sha256};
use quorate_types::genesis::DEFAULT_FEES;
use quorate_types::{ChainId, Memo, Transfer};

const LIMITS: MempoolLimits = MempoolLimits {
    max_transactions: 6,
    max_bytes: 1 << 20,
    max_per_sender: 4,
    stranded_lasts: Duration::from_secs(60),
};

/// What a block holds in these tests.
const BLOCK_BYTES: usize = 10_000;

const NOW: Moment = Moment(0);

fn secret(seed: u8) -> SecretKey {
    SecretKey::from_bytes(&[seed; 32])
}

fn owner(seed: u8) -> Identity {
    secret(seed).identity()
}

/// A transfer of 1 for a fee of 1.
fn transfer(seed: u8, nonce: u64) -> Transaction {
    paying(seed, nonce, 1, 1, 0)
}

fn with_memo(seed: u8, nonce: u64, memo_bytes: usize) -> Transaction {
    paying(seed, nonce, 1, 1, memo_bytes)
}

fn paying(seed: u8, nonce: u64, amount: u64, fee: u64, memo_bytes: usize) -> Transaction {
    let chain = ChainId(sha256(&[b"test"]));
    let secret = secret(seed);
    let transfer = Transfer {
        chain_tag: chain.tag(),
        sender: secret.identity(),
        nonce,
        to: Identity([9; 32]),
        amount,
        fee,
        memo: Memo::new(vec![7; memo_bytes]).expect("not too long"),
    };
    transfer.sign(&chain, &secret)
}

fn at(height: u64, nonce: u64, balance: u64) -> AccountAt {
    AccountAt {
        height: Height(height),
        account: Account::plain(nonce, balance),
    }
}

fn mempool() -> Mempool {
    Mempool::new(LIMITS, BLOCK_BYTES, DEFAULT_FEES)
}

/// Submits a transaction of an account that stands at this nonce and can pay for much.
fn submit(mempool: &Mempool, transaction: Transaction, nonce: u64) -> Result<(), Refusal> {
    mempool.submit(NOW, transaction, at(0, nonce, 1_000))
}

fn take(mempool: &Mempool, count: usize, bytes: usize) -> Vec<Transaction> {
    mempool.take(count, bytes, &Outlook::default())
}

fn nonces(transactions: &[Transaction]) -> Vec<u64> {
    transactions.iter().map(|t| t.transfer().nonce).collect()
}

/// A block is executed that leaves accounts so, and these transactions used their nonces in it.
fn execute(mempool: &Mempool, height: u64, accounts: &[(u8, u64, u64)], used: &[&Transaction]) {
    let accounts = accounts.iter().map(|(seed, nonce, balance)| {
        let account = Account::plain(*nonce, *balance);
        (owner(*seed), account)
    });
    let used = used.iter().map(|transaction| transaction.id()).collect();
    mempool.executed(NOW, Height(height), &Arc::new(accounts.collect()), &used);
}

#[test]
fn only_an_unbroken_run_of_nonces_is_proposed() {
    let mempool = mempool();
    for nonce in [7, 5, 9] {
        submit(&mempool, transfer(1, nonce), 5).expect("room");
    }
    assert_eq!(nonces(&take(&mempool, 10, 10_000)), [5]);
    submit(&mempool, transfer(1, 6), 5).expect("room");
    assert_eq!(nonces(&take(&mempool, 10, 10_000)), [5, 6, 7]);
    assert_eq!(nonces(&take(&mempool, 2, 10_000)), [5, 6]);
    assert_eq!(nonces(&take(&mempool, 10, 2 * 161)), [5, 6]);
}

#[test]
fn a_block_has_room_for_bytes_and_what_does_not_fit_waits_with_its_successors() {
    let mempool = mempool();
    let large = paying(1, 0, 1, 900, 400);
    let all = [
        large.clone(),
        transfer(1, 1),
        transfer(2, 0),
        transfer(2, 1),
    ];
    for transaction in all {
        submit(&mempool, transaction, 0).expect("room");
    }
    let taken = take(&mempool, 10, 500);
    assert_eq!(taken, [transfer(2, 0), transfer(2, 1)]);
    // It has the highest price, so an empty block begins with it.
    assert_eq!(take(&mempool, 10, 163 + 400), [large]);
}

#[test]
fn what_no_block_can_hold_is_refused_and_memos_count() {
    let limits = MempoolLimits {
        max_bytes: 3 * TRANSACTION_BYTES + 2_000,
        ..LIMITS
    };
    let mempool = Mempool::new(limits, 3_000, DEFAULT_FEES);
    let (bytes, limit) = (3_163, 3_000);
    let refused = submit(&mempool, with_memo(1, 0, 3_000), 0);
    assert_eq!(refused, Err(Refusal::TooLarge { bytes, limit }));
    submit(&mempool, with_memo(1, 0, 2_000), 0).expect("room");
    submit(&mempool, transfer(2, 0), 0).expect("room");
    submit(&mempool, transfer(3, 5), 0).expect("room");
    assert_eq!(mempool.size(), (3, limits.max_bytes));
    // The stranded one makes way, which is not enough for a memo.
    let refused = submit(&mempool, with_memo(4, 0, 1), 0);
    assert_eq!(refused, Err(Refusal::Full));
    submit(&mempool, transfer(4, 0), 0).expect("room");
    execute(&mempool, 1, &[(1, 1, 900)], &[&with_memo(1, 0, 2_000)]);
    assert_eq!(mempool.size(), (2, 2 * TRANSACTION_BYTES));
}

#[test]
fn what_ancestors_change_is_taken_into_account() {
    let mempool = mempool();
    for nonce in 0..3 {
        submit(&mempool, transfer(1, nonce), 0).expect("room");
    }
    submit(&mempool, transfer(2, 0), 0).expect("room");
    let account = Account::plain;
    let changes = BTreeMap::from([(owner(1), account(2, 1_000)), (owner(2), account(0, 0))]);
    let outlook = Outlook::of(changes);
    // One's first two are in an ancestor; two has spent its money there.
    assert_eq!(mempool.take(10, 10_000, &outlook), [transfer(1, 2)]);
    assert_eq!(take(&mempool, 10, 10_000).len(), 4);
}

#[test]
fn blocks_are_filled_by_price_then_by_arrival_and_nonces_stay_in_order() {
    let mempool = mempool();
    let came = [
        paying(1, 1, 1, 50, 0),
        paying(2, 0, 1, 2, 0),
        paying(1, 0, 1, 2, 0),
        // More money, and less of what it should cost.
        paying(3, 0, 1, 5, 500),
        paying(2, 1, 1, 3, 0),
    ];
    for transaction in &came {
        submit(&mempool, transaction.clone(), 0).expect("room");
    }
    let order = [1, 4, 2, 0, 3].map(|place: usize| came[place].clone());
    assert_eq!(take(&mempool, 10, 10_000), order);
}

#[test]
fn the_least_fee_buys_memos_no_place_before_others_and_each_sender_has_its_turn() {
    let mempool = mempool();
    // Each pays the least: 101 for 100 bytes of memo.
    let many = [0, 1, 2].map(|nonce| paying(1, nonce, 1, 101, 100));
    let late = paying(2, 0, 1, 1, 0);
    let dearer = paying(3, 0, 1, 2, 0);
    for transaction in many.iter().chain([&late, &dearer]) {
        submit(&mempool, transaction.clone(), 0).expect("room");
    }
    let [first, second, third] = many;
    let order = [dearer, first, late, second, third];
    assert_eq!(take(&mempool, 10, 10_000), order);
}

#[test]
fn what_has_replaced_another_one_is_not_replaced_at_once() {
    let mempool = mempool();
    for (second, fee, taken) in [(0, 10, true), (0, 11, true), (0, 13, false), (1, 13, true)] {
        let now = NOW.after(Duration::from_secs(second));
        let transaction = paying(1, 5, 1, fee, 0);
        let account = at(0, 0, 1_000);
        let refused = mempool.refuses(now, &transaction, account.clone());
        let result = mempool.submit(now, transaction, account);
        let expected = if taken {
            Ok(())
        } else {
            Err(Refusal::ReplacedLately { nonce: 5 })
        };
        assert_eq!(result, expected, "{fee}");
        assert_eq!(
            refused,
            expected.err(),
            "known before the signature is looked at"
        );
    }
}

#[test]
fn of_several_on_disk_the_last_accepted_is_restored() {
    let versions = [10, 11, 13].map(|fee| paying(1, 0, 1, fee, 0));
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let mempool = mempool();
        for place in order {
            let version: &Transaction = &versions[place];
            let _ = mempool.restore(NOW, version.clone(), at(0, 0, 1_000));
        }
        assert_eq!(take(&mempool, 10, 10_000), [versions[2].clone()]);
    }
}

#[test]
fn a_sender_is_trusted_with_as_much_as_it_can_pay_for_one_after_the_other() {
    let mempool = mempool();
    let account = at(0, 0, 10);
    // 4 + 2 leave 4; then 1 + 9 cannot be moved, but the fee of 1 can be paid.
    let affordable = [paying(1, 0, 4, 2, 0), paying(1, 1, 9, 1, 0)];
    for transaction in &affordable {
        mempool
            .submit(NOW, transaction.clone(), account.clone())
            .expect("can pay");
    }
    let (left, fee) = (3, 4);
    let refused = mempool.submit(NOW, paying(1, 2, 1, fee, 0), account.clone());
    assert_eq!(refused, Err(Refusal::CannotPayFee { left, fee }));
    // Nor behind a gap, where it would only wait.
    let refused = mempool.submit(NOW, paying(1, 3, 1, fee, 0), account);
    assert_eq!(refused, Err(Refusal::CannotPayFee { left, fee }));
    assert_eq!(take(&mempool, 10, 10_000), affordable);
    // Money has gone elsewhere: what cannot be paid any more waits, and what is due and cannot leaves.
    execute(&mempool, 1, &[(1, 0, 2)], &[]);
    assert_eq!(take(&mempool, 10, 10_000), [affordable[0].clone()]);
    let waits = mempool.waits_for(&affordable[1].id()).expect("here");
    assert_eq!(waits.nonce, Some(1));
    execute(&mempool, 2, &[(1, 0, 1)], &[]);
    let (balance, fee) = (1, 2);
    assert_eq!(
        mempool.dropped(&affordable[0].id()),
        Some(Dropped::CannotPayFee { balance, fee })
    );
    // It could, in time.
    assert!(mempool.contains(&affordable[1].id()));
}

#[test]
fn what_pays_a_tenth_more_replaces_and_what_pays_less_does_not() {
    let mempool = mempool();
    let held = paying(1, 0, 1, 100, 0);
    submit(&mempool, held.clone(), 0).expect("room");
    submit(&mempool, transfer(1, 1), 0).expect("room");
    let refused = submit(&mempool, paying(1, 0, 2, 109, 0), 0);
    let (nonce, minimum) = (0, 110);
    assert_eq!(refused, Err(Refusal::NonceTaken { nonce, minimum }));
    let better = paying(1, 0, 2, 110, 0);
    submit(&mempool, better.clone(), 0).expect("pays enough");
    assert_eq!(take(&mempool, 10, 10_000), [better.clone(), transfer(1, 1)]);
    let by = better.id();
    assert_eq!(mempool.dropped(&held.id()), Some(Dropped::Replaced { by }));
    assert_eq!(mempool.take_gone(), [held.id()]);
    assert_eq!(mempool.size(), (2, 2 * TRANSACTION_BYTES));
    // Of a fee of nothing, one more than nothing.
    let free = paying(2, 0, 1, 0, 0);
    submit(&mempool, free.clone(), 0).expect("room");
    let (nonce, minimum) = (0, 1);
    let refused = submit(&mempool, paying(2, 0, 2, 0, 0), 0);
    assert_eq!(refused, Err(Refusal::NonceTaken { nonce, minimum }));
}

#[test]
fn when_full_the_first_stranded_makes_way_for_what_can_be_proposed_and_for_nothing_else() {
    let mempool = mempool();
    for (seed, nonce) in [(1, 5), (1, 6), (2, 1), (3, 0), (3, 1), (3, 2)] {
        submit(&mempool, transfer(seed, nonce), 0).expect("room");
    }
    assert!(!mempool.is_full(), "three are stranded");
    let stranded = submit(&mempool, transfer(4, 1), 0);
    assert_eq!(stranded, Err(Refusal::Full));
    submit(&mempool, transfer(4, 0), 0).expect("way");
    let missing = 0;
    assert_eq!(
        mempool.dropped(&transfer(1, 5).id()),
        Some(Dropped::MadeWay { missing }),
        "came first"
    );
    // The gap before this one closes: what was stranded can be proposed now and stays.
    submit(&mempool, transfer(2, 0), 0).expect("way");
    assert!(!mempool.contains(&transfer(1, 6).id()));
    assert!(mempool.is_full());
    let runs = submit(&mempool, transfer(4, 1), 0);
    assert_eq!(runs, Err(Refusal::Full));
    assert_eq!(take(&mempool, 10, 10_000).len(), 6);
    assert_eq!(mempool.size().0, 6);
}

#[test]
fn what_waits_for_a_nonce_that_never_comes_is_told_so_and_expires() {
    let mempool = mempool();
    for nonce in [0, 2, 3] {
        submit(&mempool, transfer(1, nonce), 0).expect("room");
    }
    let expires = NOW.after(LIMITS.stranded_lasts);
    let waits = |nonce| mempool.waits_for(&transfer(1, nonce).id());
    let for_one = WaitingFor {
        nonce: Some(1),
        expires: Some(expires),
    };
    let for_a_block = WaitingFor {
        nonce: None,
        expires: None,
    };
    assert_eq!(waits(0), Some(for_a_block));
    assert_eq!([waits(2), waits(3)], [Some(for_one); 2]);
    mempool.expire(Moment(expires.0 - 1));
    assert_eq!(mempool.size().0, 3);
    mempool.expire(expires.after(Duration::from_secs(1)));
    assert_eq!(mempool.size().0, 1);
    let missing = 1;
    assert_eq!(
        mempool.dropped(&transfer(1, 2).id()),
        Some(Dropped::Expired { missing })
    );
    assert_eq!(mempool.take_gone().len(), 2);
    // What can go into a block never expires.
    mempool.expire(Moment(u64::MAX));
    assert_eq!(take(&mempool, 10, 10_000), [transfer(1, 0)]);
}

#[test]
fn a_gap_that_a_block_closes_strands_nothing_any_more() {
    let mempool = mempool();
    for nonce in [2, 3, 5] {
        submit(&mempool, transfer(1, nonce), 0).expect("room");
    }
    execute(&mempool, 1, &[(1, 2, 900)], &[]);
    assert_eq!(nonces(&take(&mempool, 10, 10_000)), [2, 3]);
    for nonce in 0..3 {
        submit(&mempool, transfer(2, nonce), 0).expect("room");
    }
    submit(&mempool, transfer(3, 0), 0).expect("way");
    assert!(!mempool.contains(&transfer(1, 5).id()));
    assert!(mempool.is_full());
}

#[test]
fn executed_and_stale_transactions_leave_and_make_room() {
    let mempool = mempool();
    for nonce in 0..4 {
        submit(&mempool, transfer(1, nonce), 0).expect("room");
    }
    // The third nonce was used by another transaction.
    let used = [&transfer(1, 0), &transfer(1, 1)];
    execute(&mempool, 1, &[(1, 3, 900)], &used);
    assert_eq!(mempool.size().0, 1);
    assert_eq!(mempool.dropped(&transfer(1, 1).id()), None);
    assert_eq!(
        mempool.dropped(&transfer(1, 2).id()),
        Some(Dropped::NonceUsed)
    );
}

#[test]
fn what_is_executed_while_it_is_taken_in_does_not_stay() {
    let mempool = mempool();
    // The account was looked at before the block was executed that holds the transaction.
    let read = at(7, 0, 1_000);
    execute(&mempool, 8, &[(1, 1, 900)], &[&transfer(1, 0)]);
    execute(&mempool, 9, &[], &[]);
    let (nonce, expected) = (0, 1);
    let stale = Err(Refusal::StaleNonce { nonce, expected });
    assert_eq!(
        mempool.submit_forwarded(NOW, transfer(1, 0), read.clone()),
        stale.clone()
    );
    assert_eq!(mempool.submit(NOW, transfer(1, 0), read.clone()), stale);
    assert_eq!(mempool.size().0, 0);
    // An account that was looked at too long ago tells nothing.
    for height in 10..100 {
        execute(&mempool, height, &[], &[]);
    }
    let refused = mempool.submit(NOW, transfer(1, 1), read);
    assert_eq!(refused, Err(Refusal::Outdated));
}

#[test]
fn an_older_view_of_an_account_changes_nothing() {
    let mempool = mempool();
    mempool
        .submit(NOW, transfer(1, 5), at(9, 5, 1_000))
        .expect("room");
    // Told later of an earlier block.
    execute(&mempool, 8, &[(1, 3, 0)], &[]);
    assert_eq!(nonces(&take(&mempool, 10, 10_000)), [5]);
    // The account was read long before, and the sender is known better here.
    mempool
        .submit(NOW, transfer(1, 6), at(7, 2, 0))
        .expect("room");
    assert_eq!(nonces(&take(&mempool, 10, 10_000)), [5, 6]);
}

#[test]
fn each_limit_refuses_with_its_reason() {
    let mempool = mempool();
    for nonce in 0..4 {
        submit(&mempool, transfer(1, nonce), 0).expect("room");
    }
    let full = submit(&mempool, transfer(1, 4), 0);
    assert_eq!(full, Err(Refusal::SenderFull { limit: 4 }));
    let again = mempool.submit_forwarded(NOW, transfer(1, 0), at(0, 0, 9));
    assert_eq!(again, Err(Refusal::AlreadyKnown));
    let far = submit(&mempool, transfer(2, MAX_NONCE_GAP + 1), 0);
    assert!(matches!(far, Err(Refusal::NonceTooFar { .. })));
    let poor = mempool.submit(NOW, transfer(2, 0), at(0, 0, 0));
    assert_eq!(poor, Err(Refusal::CannotPayFee { left: 0, fee: 1 }));
    for nonce in 0..2 {
        submit(&mempool, transfer(2, nonce), 0).expect("room");
    }
    assert_eq!(submit(&mempool, transfer(3, 0), 0), Err(Refusal::Full));
}

#[test]
fn a_clients_transaction_is_forwarded_once_and_again_only_later() {
    let mempool = mempool();
    submit(&mempool, transfer(1, 0), 0).expect("room");
    mempool
        .submit_forwarded(NOW, transfer(2, 0), at(0, 0, 10))
        .expect("room");
    let now = Moment(5);
    let due = mempool.next_to_forward(now, 10, 1_000);
    assert_eq!(due.len(), 1, "what was forwarded here goes no further");
    assert!(mempool.next_to_forward(now, 10, 1_000).is_empty());
    let later = now.after(FORWARD_AGAIN);
    assert_eq!(mempool.next_to_forward(later, 10, 1_000), due);
}

#[test]
fn what_waits_for_a_nonce_is_forwarded_when_the_nonce_has_come() {
    let mempool = mempool();
    for nonce in [1, 2] {
        submit(&mempool, transfer(1, nonce), 0).expect("room");
    }
    let later = |seconds| Moment(0).after(Duration::from_secs(seconds));
    for seconds in [0, 3, 6] {
        let due = mempool.next_to_forward(later(seconds), 10, 10_000);
        assert!(due.is_empty(), "others could do nothing with {due:?}");
    }
    submit(&mempool, transfer(1, 0), 0).expect("room");
    let mut due = nonces(&mempool.next_to_forward(later(6), 10, 10_000));
    due.sort_unstable();
    assert_eq!(due, [0, 1, 2]);
    // Once each, until it is time again.
    assert!(mempool.next_to_forward(later(7), 10, 10_000).is_empty());
    assert_eq!(mempool.next_to_forward(later(9), 10, 10_000).len(), 3);
}

#[test]
fn what_another_validator_forwarded_is_a_clients_once_a_client_hands_it_in() {
    let mempool = mempool();
    mempool
        .submit_forwarded(NOW, transfer(1, 0), at(0, 0, 10))
        .expect("room");
    submit(&mempool, transfer(1, 0), 0).expect("known is no error");
    execute(&mempool, 1, &[(1, 1, 8)], &[&transfer(1, 0)]);
    assert_eq!(mempool.take_gone(), [transfer(1, 0).id()]);
    assert!(mempool.take_gone().is_empty());
}

#[test]
fn what_is_forwarded_at_a_time_is_bounded_by_bytes() {
    let mempool = mempool();
    for nonce in 0..3 {
        let large = with_memo(1, nonce, 4_000);
        submit(&mempool, large, 0).expect("room");
    }
    let now = Moment(5);
    let batches = [(); 3].map(|()| mempool.next_to_forward(now, 10, 5_000).len());
    assert_eq!(batches, [2, 1, 0]);
}

#[test]
fn another_signature_under_the_same_id_is_not_held() {
    let mempool = mempool();
    let transaction = transfer(1, 0);
    submit(&mempool, transaction.clone(), 0).expect("room");
    let forged = Transaction::new(
        transaction.transfer().clone(),
        quorate_types::IdentitySignature([1; 64]),
    );
    assert_eq!(forged.id(), transaction.id());
    assert!(mempool.holds(&transaction) && !mempool.holds(&forged));
}

/// An announcement that pays the least fee, by its content.
fn duty(seed: u8, nonce: u64) -> Transaction {
    let chain = ChainId(sha256(&[b"test"]));
    let secret = secret(seed);
    let key = quorate_types::OpeningKey([7; 48]);
    let epoch = Default::default();
    let announces = quorate_types::Operation::Announce { epoch, key };
    let mut transfer = Transfer {
        chain_tag: chain.tag(),
        sender: secret.identity(),
        nonce,
        to: quorate_types::REGISTRY,
        amount: 0,
        fee: 0,
        memo: Memo::new(announces.encode()).expect("short"),
    };
    transfer.fee = DEFAULT_FEES.minimum(&transfer);
    transfer.sign(&chain, &secret)
}

#[test]
fn the_first_duty_of_each_validator_goes_before_what_pays_more_and_into_a_full_mempool() {
    let mempool = mempool();
    mempool.serve(&[owner(5), owner(6)]);
    let rich: Vec<Transaction> = (0..4).map(|nonce| paying(1, nonce, 1, 200, 0)).collect();
    for transaction in rich.iter().chain(&[transfer(2, 0), transfer(3, 0)]) {
        submit(&mempool, transaction.clone(), 0).expect("room");
    }
    assert!(mempool.is_full());
    // Nobody else's, and nothing else of a validator.
    assert_eq!(submit(&mempool, duty(8, 0), 0), Err(Refusal::Full));
    assert_eq!(submit(&mempool, transfer(6, 0), 0), Err(Refusal::Full));
    for nonce in 0..3 {
        submit(&mempool, duty(5, nonce), 0).expect("room for duties");
    }
    let bond = quorate_types::Bond {
        identity: owner(7),
        stake: 10,
        leaving: 0,
        leaves_at: Default::default(),
        since: Default::default(),
        vote_key: quorate_types::VoteKey([0; 96]),
        address: Default::default(),
        name: Default::default(),
    };
    let bonded = AccountAt {
        height: Height(0),
        account: Account {
            bond: Some(Box::new(bond)),
            ..Account::plain(0, 1_000)
        },
    };
    let submitted = mempool.submit(NOW, duty(7, 0), bonded);
    submitted.expect("room for duties");
    submit(&mempool, duty(6, 0), 0).expect("room for duties");

    let taken = take(&mempool, 10, 10_000);
    assert_eq!(taken[..3], [duty(5, 0), duty(6, 0), duty(7, 0)]);
    // A validator's further ones wait like everybody's.
    assert_eq!(taken[3..7], rich);
    // They are forwarded first, too.
    let forwarded = mempool.next_to_forward(NOW, 5, 10_000);
    assert!(forwarded.iter().all(Transaction::is_duty), "{forwarded:?}");
}

#[test]
fn operations_fill_a_part_of_the_mempool_only() {
    let mempool = mempool();
    submit(&mempool, duty(8, 0), 0).expect("room for one operation");
    assert_eq!(submit(&mempool, duty(9, 0), 0), Err(Refusal::Full));
    let told = mempool.refuses(NOW, &duty(9, 0), at(0, 0, 1_000));
    assert_eq!(told, Some(Refusal::Full));
    submit(&mempool, transfer(1, 0), 0).expect("room for others");
    // The next one finds room when the first is gone.
    execute(&mempool, 1, &[(8, 1, 500)], &[&duty(8, 0)]);
    submit(&mempool, duty(9, 0), 0).expect("room again");
}
