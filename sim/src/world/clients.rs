//! Clients, and whether their answers agree with the chain.
//!
//! A client hands in a transfer and takes "accepted" for a promise: whatever crashes, the transfer becomes
//! final, unless the validator that accepted it says why it was dropped. What a validator says of a
//! transfer that is final, wherever it was handed in, is what the chain holds.

use super::*;
use quorate_machine::{
    accounts::AccountAt,
    keeper::Keep,
    lookup::{self, Found},
    payloads::StoredPayloads,
};
use quorate_types::state_key;
use tokio::sync::oneshot;

/// Most transactions that a violation names.
const SHOWN: usize = 8;

impl Simulation {
    /// A client hands a transfer, or payloads, to some validator.
    pub(super) fn client(&mut self) {
        let host = self.rng.random_range(0..self.scenario.validators);
        let validator = self.hosts[host].validator;
        self.hosts[host].clock.set(self.now);
        let Some(running) = &mut self.hosts[host].running else {
            return;
        };
        if let (Some(keeper), Some(checker)) =
            (&running.machine.payloads, &mut self.checker.payloads)
        {
            let bundle = self.stock.payloads(host);
            // A client that is told to come later does not.
            if let Ok(submitted) = keeper.payloads().submit(bundle.clone()) {
                for payload in bundle.payloads() {
                    checker.submitted(validator, payload);
                }
                running.submitted.push((bundle, submitted));
            }
            return self.plan_parts(host);
        }
        let chain = self.chain.genesis.chain_id();
        let Some(transaction) = self.stock.next(host, &chain, &running.store) else {
            return;
        };
        self.checker.submitted(&transaction);
        let sender = transaction.transfer().sender;
        let read: Result<AccountAt, _> = running.machine.accounts.read(&sender);
        // A refusal is the client's to deal with: the stock looks at the account again. So is a disk
        // that cannot be read any more.
        let taken = read.is_ok_and(|read| {
            let mempool = &running.machine.mempool;
            mempool.submit(self.now, transaction.clone(), read).is_ok()
        });
        if taken {
            if let Some(recorder) = &mut self.recorder {
                recorder.submitted(transaction.id(), self.now);
            }
            let (done, kept) = oneshot::channel();
            running.asking.push((transaction.id(), kept));
            let _ = running.machine.to_keeper.send(Keep {
                transactions: vec![transaction],
                done,
            });
        }
        self.hosts[host].clock.set(self.now);
        if let Some(running) = &self.hosts[host].running {
            running.machine.forwarder.forward();
        }
        // Forwarded transactions are no votes: nothing here can be a violation.
        let _ = self.drain(host);
        self.plan_parts(host);
    }

    /// After the keeper has run: the clients whose transfers are accepted now.
    pub(super) fn answer_clients(&mut self, host: usize) {
        let honest = self.keeps_protocol(host);
        let Some(running) = &mut self.hosts[host].running else {
            return;
        };
        for (id, mut kept) in std::mem::take(&mut running.asking) {
            match kept.try_recv() {
                Ok(()) if honest => self.checker.accepted(host, id, self.now),
                Ok(()) | Err(oneshot::error::TryRecvError::Closed) => {}
                Err(oneshot::error::TryRecvError::Empty) => running.asking.push((id, kept)),
            }
        }
    }

    /// After bundles were stored, or a block was executed: what clients are told of their payloads.
    pub(super) fn answer_payload_clients(&mut self, host: usize) -> Result<(), String> {
        let honest = self.keeps_protocol(host);
        let Some(running) = &mut self.hosts[host].running else {
            return Ok(());
        };
        let Some(checker) = &mut self.checker.payloads else {
            return Ok(());
        };
        for (bundle, mut answers) in std::mem::take(&mut running.submitted) {
            if let Ok(stored) = answers.stored.try_recv()
                && honest
            {
                for (place, payload) in (0..).zip(bundle.payloads()) {
                    let first = stored.first + place;
                    let stored = StoredPayloads { first, ..stored };
                    checker.stored(host, payload, stored, self.now)?;
                }
            }
            match answers.ordered.try_recv() {
                Ok(ordered) if honest => checker.told_ordered(host, ordered)?,
                Ok(_) | Err(oneshot::error::TryRecvError::Closed) => {}
                Err(oneshot::error::TryRecvError::Empty) => {
                    running.submitted.push((bundle, answers))
                }
            }
        }
        Ok(())
    }

    /// Asks a validator what has become of the transfers that it accepted. It must know of each; once it
    /// has said why it dropped one, its client knows.
    pub(super) fn ask_again(&mut self, host: usize) -> Result<(), String> {
        let Some(running) = &self.hosts[host].running else {
            return Ok(());
        };
        for id in self.checker.open(host) {
            let found = lookup::find(&running.store, &running.machine.mempool, &id);
            match found.map_err(|error| error.to_string())? {
                Some(Found::Waiting(_)) => {}
                Some(Found::Dropped(_)) => self.checker.told_dropped(host, &id),
                Some(Found::Final { place, outcome }) => {
                    self.checker.told_final(host, &id, place, outcome)?;
                }
                None => {
                    return Err(format!(
                        "host {host} has accepted transaction {id} and does not know it any more"
                    ));
                }
            }
        }
        Ok(())
    }

    /// What accepted transactions wait for, by the validators that accepted them.
    pub(super) fn waits_for(&self, accepted: &[(usize, Digest)]) -> Vec<String> {
        let waits = accepted.iter().take(SHOWN).map(|(host, id)| {
            let running = self.hosts[*host].running.as_ref();
            let waits = running.map(|running| running.machine.mempool.waits_for(id));
            format!("{} at {host}: {waits:?}", id.short())
        });
        waits.collect()
    }

    /// A validator is about to stop: what it has dropped and would have said, if it had been asked.
    pub(super) fn last_words(&mut self, host: usize) {
        let Some(running) = &self.hosts[host].running else {
            return;
        };
        for id in self.checker.open(host) {
            if running.machine.mempool.dropped(&id).is_some() {
                self.checker.told_dropped(host, &id);
            }
        }
    }

    /// Whether what a validator says of a final block's transactions is what the chain holds.
    pub(super) fn tells_of(&mut self, host: usize, block: &Block) -> Result<(), String> {
        let Some(running) = &self.hosts[host].running else {
            return Ok(());
        };
        for transaction in block.transactions() {
            let id = transaction.id();
            let found = lookup::find(&running.store, &running.machine.mempool, &id);
            match found.map_err(|error| error.to_string())? {
                Some(Found::Final { place, outcome }) => {
                    self.checker.told_final(host, &id, place, outcome)?;
                }
                other => {
                    return Err(format!(
                        "host {host} says {other:?} of transaction {id}, which it has executed"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A client asks for an account with a proof, and looks at the one that it asked for before.
    pub(super) fn ask_for_proof(&mut self) -> Result<(), String> {
        let host = self.rng.random_range(0..self.scenario.validators);
        let honest = self.keeps_protocol(host);
        let identity = self.stock.account(self.rng.random_range(0..1_000));
        let Some(running) = &mut self.hosts[host].running else {
            return Ok(());
        };
        let asked = running.machine.executed.prove(identity);
        let Some((identity, mut before)) = running.proof.replace((identity, asked)) else {
            return Ok(());
        };
        let Ok(Ok(proof)) = before.try_recv() else {
            return Ok(());
        };
        let key = state_key(&identity).0;
        let proves = proof.proof.verify(&proof.state_root, &key).is_ok();
        let root = self.checker.root(proof.executed_height);
        if honest && !(proves && root.is_none_or(|root| root == proof.state_root)) {
            return Err(format!(
                "host {host} gives a proof of {:?} that is not of the chain's state",
                proof.executed_height
            ));
        }
        Ok(())
    }
}
