//! Brings evidence before the chain, where equivocation is punished.
//!
//! One accusation is enough, and each costs its sender a fee. So the validators take turns, in an order that differs
//! from pair to pair: whose turn it is sends, and the next one looks a while later whether the accused was
//! punished. Hostile ones, and those that cannot pay, only lose their turns.

use crate::{
    config::NodeConfig,
    own_account::{Fate, NotSent, OwnAccount},
};
use quorate_api::{EvidenceJson, from_hex};
use quorate_machine::live::LiveStatus;
use quorate_types::{Digest, Evidence, Identity, Operation, Outcome};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::{info, warn};

const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a validator has for its turn.
const TURN: Duration = Duration::from_secs(3);

/// Accuses whom there is evidence against, until it is dropped. Ends at once where nothing is punished.
pub(crate) async fn run(config: NodeConfig, account: OwnAccount, live: Arc<LiveStatus>) {
    let rules = config.genesis.registry;
    if rules.is_none_or(|rules| rules.slashing.is_none()) {
        return;
    }
    let mut accuser = Accuser {
        config,
        account,
        live,
        noticed: BTreeMap::new(),
        settled: BTreeSet::new(),
        pending: None,
        trouble: None,
    };
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // The database is read on this thread: a row for each accused one, in its cache.
        match accuser.look(Instant::now()) {
            Ok(trouble) => accuser.tell(trouble),
            Err(error) => accuser.tell(Some(format!("{error:#}"))),
        }
    }
}

struct Accuser {
    config: NodeConfig,
    account: OwnAccount,
    live: Arc<LiveStatus>,
    /// When each pair was seen first.
    noticed: BTreeMap<Digest, Instant>,
    /// Pairs that nothing more comes of.
    settled: BTreeSet<Digest>,
    /// The pair whose accusation is in the mempool or was, and the transaction.
    pending: Option<(Digest, Digest)>,
    trouble: Option<String>,
}

impl Accuser {
    /// Sends an accusation if one is due. Returns why it cannot.
    fn look(&mut self, now: Instant) -> anyhow::Result<Option<String>> {
        if let Some((pair, transaction)) = self.pending {
            match self.account.fate(&transaction)? {
                Fate::Waits => return Ok(None),
                Fate::Final(_, outcome) => {
                    if let Some(outcome @ Outcome::Failed(_)) = outcome {
                        info!(evidence = %pair, %outcome, "an accusation was not needed");
                    }
                    self.settled.insert(pair);
                }
                // It is sent again.
                Fate::Dropped => {}
            }
            self.pending = None;
        }
        let all = self.live.evidence();
        self.noticed
            .retain(|id, _| all.iter().any(|held| held.id == *id));
        for held in all.iter().filter(|held| !self.settled.contains(&held.id)) {
            let noticed = *self.noticed.entry(held.id).or_insert(now);
            let Some((validator, evidence)) = self.punishable(held)? else {
                continue;
            };
            if now < noticed + self.wait(&held.id, &validator) {
                continue;
            }
            return self.accuse(held.id, validator, evidence);
        }
        Ok(None)
    }

    /// Whom a pair convicts, if it can still be punished.
    fn punishable(&self, held: &EvidenceJson) -> anyhow::Result<Option<(Identity, Evidence)>> {
        let evidence: Evidence = from_hex("hex", &held.hex)?;
        let epoch = evidence.first.subject.epoch;
        let set = self.live.committees().set(epoch);
        let signer = evidence.first.signer.as_usize();
        let member = set.and_then(|set| set.members().get(signer).cloned());
        let (Some(member), Some(rules)) = (member, self.config.genesis.registry) else {
            return Ok(None);
        };
        if member.identity == self.config.identity.identity() {
            return Ok(None);
        }
        let store = &self.account.store;
        let account = store.account(&member.identity)?;
        let bond = account.and_then(|account| account.bond);
        let height = store.tip().height.next();
        let now = self.config.genesis.epoch_blocks.epoch_of(height);
        let can_be = bond.is_some_and(|bond| rules.punishes(&bond, epoch, now).is_ok());
        Ok(can_be.then_some((member.identity, evidence)))
    }

    /// How long this validator leaves a pair to others, none of whom is the accused.
    fn wait(&self, pair: &Digest, accused: &Identity) -> Duration {
        let committee = self.config.committees.known();
        let own = self.config.identity.identity();
        let mut others = committee.identities().iter().filter(|one| *one != accused);
        let size = others.clone().count().max(1);
        let own = others.position(|one| *one == own);
        let first = usize::from(u16::from_be_bytes([pair.0[0], pair.0[1]])) % size;
        let turn = (own.unwrap_or(size) + size - first) % size;
        TURN * u32::try_from(turn).unwrap_or(u32::MAX)
    }

    fn accuse(
        &mut self,
        pair: Digest,
        validator: Identity,
        evidence: Evidence,
    ) -> anyhow::Result<Option<String>> {
        let operation = Operation::Accuse {
            validator,
            evidence: Box::new(evidence),
        };
        match self.account.send(&self.config, &operation)? {
            Ok(id) => {
                info!(%validator, evidence = %pair, %id, "accuses a validator of votes that contradict each other");
                self.pending = Some((pair, id));
                Ok(None)
            }
            Err(NotSent::CannotPay(fee)) => {
                let own = self.config.identity.identity();
                Ok(Some(format!(
                    "this validator's account {own} cannot pay {fee} to accuse {validator}: pay it some (`quorate tx \
                     transfer --to {own}`), or use `quorate registry accuse`"
                )))
            }
            Err(NotSent::Refused(refusal)) => Ok(Some(format!(
                "the mempool refuses an accusation: {refusal}"
            ))),
        }
    }

    fn tell(&mut self, trouble: Option<String>) {
        if let Some(trouble) = trouble
            .as_ref()
            .filter(|now| self.trouble.as_ref() != Some(*now))
        {
            warn!(trouble, "evidence is not brought before the chain");
        }
        self.trouble = trouble;
    }
}
