//! A chain in memory, signed by deterministic keys.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod explorer;
pub mod fake;
pub mod registry;

use commonware_codec::Encode;
use quorate_crypto::{
    SecretKey,
    bls::{HashedMessage, Scheme, SchemeKind, VoteSecret, deal},
    sha256,
};
use quorate_storage::tree::{MemoryStore, Proof, Tree};
use quorate_types::{
    Account, Block, BondAddress, Certificate, ChainId, Digest, Epoch, EpochLength, Header, Height,
    Identity, Memo, Outcome, Subject, Transaction, Transfer, ValidatorIndex, View, Vote, VoteKind,
    execution::{self, Rules},
    genesis::{
        ApplicationKind, BlockLimits, Fees, Genesis, GenesisAccount, GenesisValidator, Protocol,
        Trust,
    },
    state_key,
};
use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};
use std::collections::BTreeMap;

/// A final block as a validator serves it.
#[derive(Clone)]
pub struct TestBlock {
    pub block: Block,
    pub certificate: Option<Certificate>,
    pub outcomes: Vec<Outcome>,
}

pub struct TestChain {
    pub trust: Trust,
    pub blocks: Vec<TestBlock>,
    pub nullified: Vec<Certificate>,
    scheme: Scheme,
    secrets: Vec<VoteSecret>,
    tree: Tree<MemoryStore>,
    /// The newest state that a header may contain.
    state: (Height, Digest),
    /// Set for a chain whose blocks are executed.
    pub genesis: Option<Genesis>,
    accounts: BTreeMap<Identity, Account>,
    /// Set for a chain with a registry.
    registry: Option<registry::Parts>,
}

/// The secret key of an account or a validator.
pub fn secret(seed: u8) -> SecretKey {
    SecretKey::from_bytes(&[seed; 32])
}

fn rng(seed: u8) -> ChaCha20Rng {
    ChaCha20Rng::from_seed([seed; 32])
}

impl TestChain {
    /// A chain of `count` validators whose keys depend on the seed.
    pub fn new(kind: SchemeKind, count: u32, seed: u8) -> Self {
        let name = "test".to_owned();
        let identities: Vec<Identity> = (0..count)
            .map(|place| secret(seed + 100 + place as u8).identity())
            .collect();
        let (group_key, secrets, keys) = match kind {
            SchemeKind::BlsThreshold => {
                let (keys, secrets) = deal(count, rng(seed));
                (Some(hex::encode(keys.group_key)), secrets, keys.share_keys)
            }
            SchemeKind::BlsAggregate => {
                let mut rng = rng(seed);
                let secrets: Vec<_> = (0..count).map(|_| VoteSecret::random(&mut rng)).collect();
                let keys = secrets.iter().map(VoteSecret::public_key).collect();
                (None, secrets, keys)
            }
        };
        let possession = |place: usize| {
            (kind == SchemeKind::BlsAggregate)
                .then(|| secrets[place].prove_possession(&name, &identities[place].0))
                .map(hex::encode)
        };
        let validators = (0..identities.len())
            .map(|place| GenesisValidator {
                identity: identities[place],
                vote_key: hex::encode(keys[place]),
                proof_of_possession: possession(place),
                stake: 0,
                address: BondAddress::default(),
            })
            .collect();
        let trust = Trust {
            protocol: Default::default(),
            chain_id: ChainId(sha256(&[b"test chain", &[seed]])),
            name,
            scheme: kind.name().to_owned(),
            group_key,
            epoch_blocks: None,
            epoch: Epoch(0),
            validators,
        };
        let mut chain = Self {
            scheme: trust.scheme().unwrap(),
            trust,
            blocks: Vec::new(),
            nullified: Vec::new(),
            secrets,
            tree: Tree::open(MemoryStore::default()).unwrap(),
            state: (Height(0), Digest::ZERO),
            genesis: None,
            accounts: BTreeMap::new(),
            registry: None,
        };
        chain.set_accounts((1..40).map(|seed| (seed, 1_000 * u64::from(seed))), 0);
        chain
    }

    /// Like [`Self::new`], with a genesis file and blocks that are executed. The genesis accounts
    /// are those of the seeds 1 to 39.
    pub fn executed(kind: SchemeKind, count: u32, seed: u8) -> Self {
        let mut chain = Self::new(kind, count, seed);
        let accounts: Vec<_> = (1..40)
            .map(|seed| GenesisAccount {
                identity: secret(seed).identity(),
                balance: 1_000 * u64::from(seed),
            })
            .collect();
        let genesis = Genesis {
            name: chain.trust.name.clone(),
            timestamp_ms: 1_800_000_000_000,
            protocol: Protocol::Simplex,
            application: ApplicationKind::Ledger,
            scheme: chain.trust.scheme.clone(),
            limits: BlockLimits {
                max_transactions: 100,
                max_bytes: 100_000,
            },
            fees: Fees::NONE,
            epoch_blocks: EpochLength::DEFAULT,
            group_key: chain.trust.group_key.clone(),
            registry: None,
            validators: chain.trust.validators.clone(),
            accounts: accounts.clone(),
        };
        chain.trust = genesis.trust();
        chain.genesis = Some(genesis);
        let account = |one: GenesisAccount| {
            let state = Account::plain(0, one.balance);
            (one.identity, state)
        };
        chain.accounts = accounts.into_iter().map(account).collect();
        chain
    }

    /// Executes the newest block. The next header contains the resulting state root.
    fn execute(&mut self) {
        if self.registry.is_some() {
            return self.execute_registered();
        }
        let newest = self.blocks.last().unwrap().block.clone();
        let header = newest.header();
        let verifier = self.trust.verifier().unwrap();
        let committees = verifier.committees();
        let leader = committees.leader_identity(header.epoch, header.view);
        let leader = leader.unwrap();
        let rules = Rules::new(&self.trust.name, EpochLength::DEFAULT, None);
        let before = execution::touched(&newest, &leader, &rules);
        let before = before.into_iter().map(|one| {
            let account = self.accounts.get(&one).cloned().unwrap_or_default();
            (one, account)
        });
        let done = execution::execute(&newest, &leader, before.collect(), &rules);
        let updates = done
            .accounts
            .iter()
            .map(|(one, account)| (state_key(one).0, account.encode().to_vec()));
        let changes = self.tree.prepare(&updates.collect()).unwrap();
        self.tree.store_mut().apply(&changes);
        self.tree.commit(changes);
        self.accounts.extend(done.accounts);
        self.blocks.last_mut().unwrap().outcomes = done.outcomes;
        self.state = (header.height, self.tree.root());
    }

    /// Makes the following headers contain a wrong state root.
    pub fn forget_state(&mut self) {
        self.state.1 = Digest([7; 32]);
    }

    /// Sets balances in the state tree, as after the newest block.
    pub fn set_accounts(&mut self, balances: impl Iterator<Item = (u8, u64)>, nonce: u64) {
        let updates: BTreeMap<[u8; 32], Vec<u8>> = balances
            .map(|(seed, balance)| {
                let account = Account::plain(nonce, balance);
                let key = state_key(&secret(seed).identity()).0;
                (key, account.encode().to_vec())
            })
            .collect();
        let changes = self.tree.prepare(&updates).unwrap();
        self.tree.store_mut().apply(&changes);
        self.tree.commit(changes);
        self.state = (Height(self.blocks.len() as u64), self.tree.root());
    }

    /// A transfer between two test accounts.
    pub fn transfer(&self, from: u8, nonce: u64, to: u8, amount: u64) -> Transaction {
        self.transfer_with(from, nonce, to, amount, Memo::NONE)
    }

    /// Like [`Self::transfer`], with a memo.
    pub fn transfer_with(
        &self,
        from: u8,
        nonce: u64,
        to: u8,
        amount: u64,
        memo: Memo,
    ) -> Transaction {
        let transfer = Transfer {
            chain_tag: self.trust.chain_id.tag(),
            sender: secret(from).identity(),
            nonce,
            to: secret(to).identity(),
            amount,
            fee: 1,
            memo,
        };
        transfer.sign(&self.trust.chain_id, &secret(from))
    }

    /// Extends the newest block; `skipped` views before the new block were nullified.
    pub fn extend(&mut self, transactions: Vec<Transaction>, skipped: u64, certified: bool) {
        let parent = self.blocks.last().map(|last| *last.block.header());
        let height = Height(self.blocks.len() as u64 + 1);
        let epoch = self.epoch_of(height);
        // Each epoch begins with view 1.
        let parent_view = parent.filter(|parent| parent.epoch == epoch);
        let parent_view = parent_view.map_or(View(0), |parent| parent.view);
        for view in parent_view.0 + 1..=parent_view.0 + skipped {
            let certificate = self.certify(Subject::nullify(epoch, View(view)));
            self.nullified.push(certificate);
        }
        let header = Header {
            chain: self.trust.chain_id,
            epoch,
            view: View(parent_view.0 + skipped + 1),
            height,
            parent: parent.map_or(Digest::ZERO, |parent| parent.id()),
            parent_view,
            timestamp_ms: 1_800_000_000_000 + height.0 * 100,
            executed_height: self.state.0,
            state_root: self.state.1,
            body_root: Header::body_root_of(&transactions),
        };
        let outcomes = vec![Outcome::Applied; transactions.len()];
        let block = Block::new(header, transactions).unwrap();
        let certificate = certified.then(|| self.finalize(&block));
        self.blocks.push(TestBlock {
            block,
            certificate,
            outcomes,
        });
        if self.genesis.is_some() {
            self.execute();
        }
    }

    /// Adds `count` blocks with a transfer each. Every third one has no finalization of its own,
    /// except the last.
    pub fn grow(&mut self, count: usize) {
        for step in 1..=count {
            let nonce = self.blocks.len() as u64;
            let transfer = self.transfer((nonce % 30) as u8 + 1, nonce, 31, 5);
            let skipped = u64::from(nonce % 7 == 6);
            self.extend(vec![transfer], skipped, nonce % 3 != 2 || step == count);
        }
    }

    /// A certificate of a quorum for a subject.
    pub fn certify(&self, subject: Subject) -> Certificate {
        if let Some(registry) = &self.registry {
            return registry.certify(&self.trust.chain_id, subject);
        }
        let message = HashedMessage::new(&subject.signed_bytes(&self.trust.chain_id));
        let quorum = self.scheme.quorum();
        let parts: Vec<_> = (0..quorum)
            .map(|place| (place, self.secrets[place as usize].sign(&message)))
            .collect();
        let proof = self.scheme.certify(&message, &parts, [7; 32]).unwrap();
        Certificate { subject, proof }
    }

    /// A quorum's finalization of a block.
    pub fn finalize(&self, block: &Block) -> Certificate {
        self.certify(subject(VoteKind::Finalize, block))
    }

    /// A validator's vote.
    pub fn vote(&self, signer: u32, subject: Subject) -> Vote {
        let message = HashedMessage::new(&subject.signed_bytes(&self.trust.chain_id));
        Vote {
            subject,
            signer: ValidatorIndex(signer),
            signature: self.secrets[signer as usize].sign(&message),
        }
    }

    /// The proof of an account in the newest state.
    pub fn prove(&self, identity: &Identity) -> Proof {
        self.tree.prove(&state_key(identity).0).unwrap()
    }
}

/// The subject of a vote of this kind for a block.
pub fn subject(kind: VoteKind, block: &Block) -> Subject {
    Subject {
        epoch: block.header().epoch,
        view: block.header().view,
        kind,
        payload: block.id(),
    }
}
