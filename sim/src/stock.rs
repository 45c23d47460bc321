//! The simulated chain's genesis, and a stock of signed transactions for its clients.

use crate::{disk::SimDisk, host::Chain, scenario::Scenario, world::GENESIS_MS};
use quorate_crypto::{SecretKey, sha256};
use quorate_storage::store::Store;
use quorate_types::genesis::{ApplicationKind, DEFAULT_FEES, DEFAULT_LIMITS, Fees};
use quorate_types::{
    Account, BondAddress, Bundle, ChainId, Committee, Epoch, EpochLength, Identity, Memo,
    Transaction, Transfer,
    genesis::{Genesis, GenesisAccount, GenesisValidator},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
    time::Duration,
};

/// Accounts that send.
const SENDERS: usize = 8;

/// What each has at first.
const BALANCE: u64 = 1_000_000;

type GenesisRows = BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>;

thread_local! {
    /// Signing takes longer than simulating a transaction: what one run has signed serves the next.
    static SIGNED: RefCell<HashMap<(ChainId, usize, u64), Transaction>> = RefCell::default();
    /// So does making the genesis state.
    static ROWS: RefCell<HashMap<ChainId, GenesisRows>> = RefCell::default();
}

/// The key of a validator's identity.
pub(crate) fn identity_key(validator: usize) -> SecretKey {
    SecretKey::from_bytes(&sha256(&[b"validator", &validator.to_be_bytes()]).0)
}

fn identity_of(validator: usize) -> Identity {
    identity_key(validator).identity()
}

fn sender(account: usize) -> SecretKey {
    SecretKey::from_bytes(&sha256(&[b"account", &account.to_be_bytes()]).0)
}

/// The genesis and the committee. The vote keys are in no file: the simulation holds them.
pub(crate) fn genesis(scenario: &Scenario) -> (Genesis, Committee) {
    let identities: Vec<Identity> = (0..scenario.validators).map(identity_of).collect();
    let committee = Committee::new(Epoch(0), identities.clone()).expect("distinct identities");
    let committee = committee.with_turns(scenario.turns());
    let validators = identities
        .into_iter()
        .map(|identity| GenesisValidator {
            identity,
            vote_key: String::new(),
            proof_of_possession: None,
            stake: 0,
            address: BondAddress::default(),
        })
        .collect();
    let senders = match scenario.application {
        ApplicationKind::Ledger => SENDERS,
        ApplicationKind::OrderOnly => 0,
    };
    let accounts = (0..senders)
        .map(|account| GenesisAccount {
            identity: sender(account).identity(),
            balance: BALANCE,
        })
        .collect();
    let genesis = Genesis {
        name: "simulation".to_owned(),
        timestamp_ms: GENESIS_MS,
        protocol: scenario.protocol,
        application: scenario.application,
        scheme: scenario.scheme.name().to_owned(),
        limits: DEFAULT_LIMITS,
        fees: match scenario.application {
            ApplicationKind::Ledger => DEFAULT_FEES,
            ApplicationKind::OrderOnly => Fees::NONE,
        },
        epoch_blocks: EpochLength::new(scenario.epoch_blocks).expect("at least one"),
        group_key: None,
        registry: None,
        validators,
        accounts,
    };
    (genesis, committee)
}

/// The genesis accounts.
pub(crate) fn accounts(genesis: &Genesis) -> BTreeMap<Identity, Account> {
    let accounts = genesis.accounts.iter().map(|account| {
        let held = Account::plain(0, account.balance);
        (account.identity, held)
    });
    accounts.collect()
}

/// The rows of a new database.
pub(crate) fn genesis_rows(chain: &Chain) -> GenesisRows {
    let id = chain.genesis.chain_id();
    ROWS.with_borrow_mut(|rows| {
        rows.entry(id)
            .or_insert_with(|| {
                let clock = Arc::new(crate::clock::SimClock::new(Default::default()));
                let disk = SimDisk::new(0, clock, Duration::ZERO);
                Store::open_on(Arc::new(disk.clone()), Path::new("genesis"), &chain.genesis)
                    .expect("nothing fails yet");
                disk.rows()
            })
            .clone()
    })
}

/// The clients' side: each account's next transfer.
pub(crate) struct Stock {
    next: Vec<u64>,
    turn: usize,
    payloads: u64,
    identities: Vec<Identity>,
}

impl Stock {
    pub(crate) fn new(genesis: &Genesis) -> Self {
        Self {
            next: vec![0; SENDERS],
            turn: 0,
            identities: match genesis.application {
                ApplicationKind::Ledger => genesis.accounts.iter().map(|a| a.identity).collect(),
                ApplicationKind::OrderOnly => {
                    genesis.validators.iter().map(|v| v.identity).collect()
                }
            },
            payloads: 0,
        }
    }

    /// One of the accounts.
    pub(crate) fn account(&self, number: usize) -> Identity {
        self.identities[number % self.identities.len()]
    }

    /// Payloads for a client of this validator to hand in. No two are alike.
    pub(crate) fn payloads(&mut self, host: usize) -> Bundle {
        let payload = |number: u64| {
            let text = format!("payload {number} of validator {host} ");
            text.repeat(1 + (number % 40) as usize)
        };
        let first = self.payloads;
        self.payloads += 1 + first % 3;
        Bundle::of((first..self.payloads).map(payload)).expect("small ones")
    }

    /// A transfer for a client of this validator to hand in. Each account belongs to the clients of
    /// one validator.
    pub(crate) fn next(
        &mut self,
        host: usize,
        chain: &ChainId,
        store: &Store,
    ) -> Option<Transaction> {
        self.turn += 1;
        let account = (host + self.turn * 4) % SENDERS;
        let held = store.account(&self.identities[account]).ok()??;
        let next = &mut self.next[account];
        // A transaction submitted long ago is lost: submitted again from the account's present
        // nonce.
        if *next < held.nonce || *next > held.nonce + 16 {
            *next = held.nonce;
        }
        let nonce = *next;
        *next += 1;
        Some(signed(chain, account, nonce))
    }
}

fn signed(chain: &ChainId, account: usize, nonce: u64) -> Transaction {
    SIGNED.with_borrow_mut(|stock| {
        let signed = stock.entry((*chain, account, nonce)).or_insert_with(|| {
            let secret = sender(account);
            let transfer = Transfer {
                chain_tag: chain.tag(),
                sender: secret.identity(),
                nonce,
                to: sender((account + 1 + nonce as usize % (SENDERS - 1)) % SENDERS).identity(),
                amount: 1 + nonce % 5,
                fee: 1,
                memo: Memo::NONE,
            };
            transfer.sign(chain, &secret)
        });
        signed.clone()
    })
}
