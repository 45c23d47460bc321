//! A chain in memory whose validators change.

use super::{TestBlock, TestChain, rng, secret};
use commonware_codec::Encode;
use quorate_crypto::{
    SecretKey,
    bls::{HashedMessage, SchemeKind, VoteSecret},
};
use quorate_storage::{
    execution::{self, Executed},
    store::tree_updates,
    tree::{MemoryStore, Tree},
};
use quorate_types::{
    Bond, Certificate, ChainId, Committees, Epoch, EpochLength, Evidence, Handover, Height,
    Identity, Memo, Operation, Possession, REGISTRY, RegistryRules, Roster, Subject, Transaction,
    Transfer, ValidatorIndex, ValidatorSet, Vote, VoteKey, execution::Rules,
    genesis::GenesisAccount, registry::Slashing,
};
use std::collections::BTreeMap;

/// Blocks of an epoch.
pub const EPOCH_BLOCKS: u64 = 16;

/// The stake of each validator of the genesis file.
pub const FIRST_STAKE: u64 = 20_000;

pub struct Parts {
    committees: Committees,
    secrets: BTreeMap<VoteKey, VoteSecret>,
    handovers: Vec<Handover>,
}

impl Parts {
    pub fn certify(&self, chain: &ChainId, subject: Subject) -> Certificate {
        let set = self.committees.set(subject.epoch).unwrap();
        let scheme = set.scheme().unwrap();
        let message = HashedMessage::new(&subject.signed_bytes(chain));
        let members = (0..).zip(set.members());
        let parts: Vec<_> = members
            .take(scheme.quorum() as usize)
            .map(|(place, member)| (place, self.secrets[&member.vote_key].sign(&message)))
            .collect();
        let proof = scheme.certify(&message, &parts, [7; 32]).unwrap();
        Certificate { subject, proof }
    }
}

impl TestChain {
    /// A chain with a registry and four validators, whose keys are those of the seeds 101 to 104.
    pub fn registered() -> Self {
        let mut chain = Self::executed(SchemeKind::BlsAggregate, 4, 1);
        let mut genesis = chain.genesis.take().unwrap();
        genesis.epoch_blocks = EpochLength::new(EPOCH_BLOCKS).unwrap();
        genesis.registry = Some(RegistryRules {
            min_stake: 1_000,
            max_validators: 5,
            unbond_epochs: 2,
            slashing: Some(Slashing {
                percent: 10,
                jail_epochs: 3,
            }),
            external: None,
            resharing: false,
        });
        for validator in &mut genesis.validators {
            validator.stake = FIRST_STAKE;
            genesis.accounts.push(GenesisAccount {
                identity: validator.identity,
                balance: 500,
            });
        }
        chain.trust = genesis.trust();
        chain.accounts = genesis.initial_accounts().unwrap();
        chain.tree = Tree::open(MemoryStore::default()).unwrap();
        let changes = chain.tree.prepare(&tree_updates(&chain.accounts)).unwrap();
        chain.tree.store_mut().apply(&changes);
        chain.tree.commit(changes);
        chain.state = (Height(0), chain.tree.root());
        let set = ValidatorSet::of_genesis(&genesis).unwrap();
        let keys = set.members().iter().map(|member| member.vote_key);
        chain.registry = Some(Parts {
            secrets: keys.zip(std::mem::take(&mut chain.secrets)).collect(),
            committees: Committees::changing(vec![set], Epoch(0), Epoch(0), Roster::new()).unwrap(),
            handovers: Vec::new(),
        });
        chain.genesis = Some(genesis);
        chain
    }

    pub fn handovers(&self) -> &[Handover] {
        let registry = self.registry.as_ref();
        registry.map_or(&[], |registry| &registry.handovers)
    }

    pub(super) fn epoch_of(&self, height: Height) -> Epoch {
        let registered = self.registry.is_some();
        let genesis = self.genesis.as_ref().filter(|_| registered);
        genesis.map_or(Epoch(0), |genesis| genesis.epoch_blocks.epoch_of(height))
    }

    /// The identities of an epoch's validators.
    pub fn validators_of(&self, epoch: u64) -> Vec<Identity> {
        let committees = &self.registry.as_ref().unwrap().committees;
        committees.of(Epoch(epoch)).identities().to_vec()
    }

    /// The bonds after the newest block.
    pub fn bonds(&self) -> BTreeMap<Identity, Bond> {
        let accounts = self.accounts.iter();
        accounts
            .filter_map(|(one, account)| Some((*one, Bond::clone(account.bond.as_ref()?))))
            .collect()
    }

    /// A vote key for a bond of an account, with the proof that its secret is known.
    pub fn vote_key(&mut self, from: u8, number: u8) -> (VoteKey, Possession) {
        let vote = VoteSecret::random(rng(number));
        let key = VoteKey(vote.public_key());
        let possession = vote.prove_possession(&self.trust.name, &secret(from).identity().0);
        self.registry.as_mut().unwrap().secrets.insert(key, vote);
        (key, Possession(possession))
    }

    /// An operation of an account.
    pub fn operation(&self, from: u8, nonce: u64, amount: u64, what: &Operation) -> Transaction {
        let transfer = Transfer {
            chain_tag: self.trust.chain_id.tag(),
            sender: secret(from).identity(),
            nonce,
            to: REGISTRY,
            amount,
            fee: 1,
            memo: Memo::new(what.encode()).unwrap(),
        };
        let key: SecretKey = secret(from);
        transfer.sign(&self.trust.chain_id, &key)
    }

    /// Two contradicting votes of the validator at a place in an epoch.
    pub fn guilt(&self, epoch: u64, place: u32, [first, second]: [Subject; 2]) -> Evidence {
        let registry = self.registry.as_ref().unwrap();
        let set = registry.committees.set(Epoch(epoch)).unwrap();
        let secret = &registry.secrets[&set.members()[place as usize].vote_key];
        let vote = |subject: Subject| Vote {
            subject,
            signer: ValidatorIndex(place),
            signature: secret.sign(&HashedMessage::new(
                &subject.signed_bytes(&self.trust.chain_id),
            )),
        };
        Evidence {
            first: vote(first),
            second: vote(second),
        }
    }

    pub(super) fn execute_registered(&mut self) {
        let TestBlock {
            block, certificate, ..
        } = self.blocks.last().unwrap().clone();
        let header = *block.header();
        let genesis = self.genesis.as_ref().unwrap();
        let committees = self.registry.as_ref().unwrap().committees.clone();
        let rules = Rules::of(genesis).knowing(&committees);
        let proof = self.prove(&REGISTRY);
        let bonds = || Ok(self.bonds());
        let done = execution::execute(&self.tree, &block, &committees, &rules, bonds);
        let Executed {
            execution,
            decision,
            changes,
            ..
        } = done.unwrap();
        self.tree.store_mut().apply(&changes);
        self.tree.commit(changes);
        self.accounts.extend(execution.accounts);
        self.blocks.last_mut().unwrap().outcomes = execution.outcomes;
        self.state = (header.height, self.tree.root());
        if let Some(decision) = decision {
            committees.decide(decision.set);
        }
        let next = header.epoch.next();
        if rules.ends_epoch(&header)
            && let Some((first, set)) = committees.acting(next)
            && first == next
        {
            let handover = Handover {
                header,
                finalization: certificate.unwrap(),
                proof: proof.encode(),
                set: ValidatorSet::clone(&set),
            };
            self.registry.as_mut().unwrap().handovers.push(handover);
        }
    }
}
