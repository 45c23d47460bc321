//! Changes of a local network's validators, by the commands that an operator types.
//!
//! Each change is a `quorate registry …` or `quorate tx transfer …` process, so it is what a user's own would be.
//! What it brings about is then looked for in the registry, and the command is repeated if it is not there: a
//! validator that is asked may just be killed.

use super::{
    chronicle::Watcher,
    processes::Network,
    setup::{STAKE, identity_of, payer_key},
};
use crate::{
    genesis::validator_directory,
    keys::{IDENTITY_FILE, VOTE_FILE},
};
use anyhow::{Context as _, bail, ensure};
use quorate_api::RegistryJson;
use quorate_types::{Bond, ChainId, Epoch, Identity};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

/// How often it is looked whether something has happened.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long a command's effect may be missing in the registry before the command is repeated.
const EFFECT_LIMIT: Duration = Duration::from_secs(10);

/// How often a command is tried.
const ATTEMPTS: usize = 5;

/// How long a set of validators, or an epoch, may be waited for.
const CHANGE_LIMIT: Duration = Duration::from_secs(180);

/// How long no machine may have a new block.
const STANDSTILL_LIMIT: Duration = Duration::from_secs(60);

/// How long machines may take at the end until all have every block.
const SYNC_LIMIT: Duration = Duration::from_secs(90);

/// What an account gets for fees at a time.
const FOR_FEES: u64 = 1_000_000;

/// What it must hold for the fees of an operation.
const LEAST_FOR_FEES: u64 = 10_000;

/// Prints a line about what is done.
pub type Say = Box<dyn Fn(&str) + Send>;

/// A network whose validators are changed.
pub struct Changes {
    pub network: Network,
    watcher: Watcher,
    binary: PathBuf,
    directory: PathBuf,
    chain: ChainId,
    identities: Vec<Identity>,
    say: Say,
    /// Validators that were killed, and when to restart them.
    pub(super) down: BTreeMap<usize, Instant>,
    /// Registry operations that were applied.
    pub operations: u64,
    /// Processes that were killed.
    pub kills: u64,
}

/// What a machine is called.
pub fn name_of(place: usize) -> String {
    format!("v{place}")
}

/// Lists names of machines.
pub fn names_of<'a>(places: impl IntoIterator<Item = &'a usize>) -> String {
    let names: Vec<String> = places.into_iter().map(|place| name_of(*place)).collect();
    names.join(" ")
}

impl Changes {
    /// # Errors
    ///
    /// If a key file cannot be read.
    pub fn new(
        network: Network,
        watcher: Watcher,
        binary: &Path,
        directory: &Path,
        chain: ChainId,
        say: Say,
    ) -> anyhow::Result<Self> {
        let identities: Result<_, _> = (0..network.size())
            .map(|place| identity_of(directory, place))
            .collect();
        Ok(Self {
            identities: identities?,
            network,
            watcher,
            binary: binary.to_owned(),
            directory: directory.to_owned(),
            chain,
            say,
            down: BTreeMap::new(),
            operations: 0,
            kills: 0,
        })
    }

    pub fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    pub(super) fn say(&self, text: &str) {
        (self.say)(text);
    }

    /// Waits a moment, restarts killed machines whose time has come, and looks whether the network is as it should
    /// be.
    ///
    /// # Errors
    ///
    /// If a process ended by itself, or the chain stands still.
    pub(super) async fn tick(&mut self) -> anyhow::Result<()> {
        tokio::time::sleep(LOOK_AGAIN).await;
        self.restart_due()?;
        if let Some((place, status)) = self.network.newly_dead().into_iter().next() {
            bail!(
                "{} ended ({status}):\n{}",
                name_of(place),
                self.network.log_tail(place)
            );
        }
        let tip = self.watcher.chronicle().tip();
        if let Some((height, since)) = tip
            && since.elapsed() > STANDSTILL_LIMIT
        {
            bail!(
                "the chain stands still: no block after {height} for {} s\n{}",
                since.elapsed().as_secs(),
                self.logs()
            );
        }
        Ok(())
    }

    /// The ends of all running machines' logs.
    fn logs(&self) -> String {
        let mut text = String::new();
        for place in self.network.running() {
            let tail = self.network.log_tail(place);
            let _ = writeln!(text, "{}:\n{tail}", name_of(place));
        }
        text
    }

    /// Validators that act and whose processes run. Commands are sent to them.
    fn reachable(&self) -> Vec<usize> {
        let acting = self.watcher.chronicle().acting();
        let runs = |place: &usize| self.network.process(*place).is_some();
        acting.into_iter().filter(runs).collect()
    }

    /// The registry, as the newest of the acting validators tells it.
    pub(super) async fn registry(&self) -> Option<RegistryJson> {
        let mut newest: Option<RegistryJson> = None;
        for place in self.reachable() {
            let Ok(registry) = self.network.client(place).registry().await else {
                continue;
            };
            if newest
                .as_ref()
                .is_none_or(|known| known.executed_height < registry.executed_height)
            {
                newest = Some(registry);
            }
        }
        newest
    }

    /// A machine's bond.
    pub(super) fn bond_of(&self, registry: &RegistryJson, place: usize) -> Option<Bond> {
        let identity = self.identities[place];
        let mut bonds = registry.bonds.iter();
        bonds.find(|bond| bond.identity == identity).cloned()
    }

    /// Runs a command, once. What else is due happens meanwhile.
    async fn quorate(&mut self, by: usize, arguments: &[String]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .args(["--chain-id", &self.chain.to_string(), "--wait"])
            .args(["--rpc", self.network.client(by).url()]);
        let running = tokio::task::spawn_blocking(move || command.output());
        while !running.is_finished() {
            self.tick().await?;
        }
        running
            .await?
            .with_context(|| format!("cannot start {}", self.binary.display()))
    }

    /// Runs a command until its effect is there.
    async fn bring_about(
        &mut self,
        what: &str,
        arguments: &[String],
        is_there: impl AsyncFn(&Self) -> bool,
    ) -> anyhow::Result<()> {
        let mut complaint = String::new();
        for attempt in 0..ATTEMPTS {
            let reachable = self.reachable();
            if !reachable.is_empty() {
                let by = reachable[attempt % reachable.len()];
                let output = self.quorate(by, arguments).await?;
                complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            }
            let deadline = Instant::now() + EFFECT_LIMIT;
            while Instant::now() < deadline {
                if is_there(self).await {
                    return Ok(());
                }
                self.tick().await?;
            }
        }
        bail!("{what} is not there after {ATTEMPTS} attempts: {complaint}")
    }

    fn key_arguments(&self, place: usize) -> [String; 2] {
        let key = validator_directory(&self.directory, place).join(IDENTITY_FILE);
        ["--key".to_owned(), key.display().to_string()]
    }

    /// Sends a registry operation of a machine's account until the registry shows it.
    pub(super) async fn operate(
        &mut self,
        place: usize,
        operation: &[&str],
        is_there: impl Fn(Option<Bond>) -> bool,
    ) -> anyhow::Result<()> {
        let mut arguments = vec!["registry".to_owned()];
        arguments.extend(operation.iter().map(|&word| word.to_owned()));
        arguments.extend(self.key_arguments(place));
        let what = format!("{} of {}", operation[0], name_of(place));
        self.bring_about(&what, &arguments, async |changes| {
            let registry = changes.registry().await;
            registry.is_some_and(|registry| is_there(changes.bond_of(&registry, place)))
        })
        .await?;
        self.operations += 1;
        Ok(())
    }

    async fn balance(&self, place: usize) -> u64 {
        for by in self.reachable() {
            let account = self
                .network
                .client(by)
                .account(&self.identities[place], false);
            if let Ok(account) = account.await {
                return account.balance;
            }
        }
        0
    }

    /// Has a machine's account paid if it does not hold this much beside the fees of an operation.
    pub(super) async fn fund(&mut self, place: usize, amount: u64) -> anyhow::Result<()> {
        let wanted = amount + LEAST_FOR_FEES;
        let held = self.balance(place).await;
        if held >= wanted {
            return Ok(());
        }
        let missing = amount + FOR_FEES - held;
        let arguments = [
            "tx".to_owned(),
            "transfer".to_owned(),
            "--key".to_owned(),
            payer_key(&self.directory).display().to_string(),
            "--to".to_owned(),
            self.identities[place].to_string(),
            "--amount".to_owned(),
            missing.to_string(),
        ];
        let what = format!("the payment to {}", name_of(place));
        self.bring_about(&what, &arguments, async |changes| {
            changes.balance(place).await >= wanted
        })
        .await
    }

    /// Puts a validator's address and name into the registry.
    pub(super) async fn describe(&mut self, place: usize) -> anyhow::Result<()> {
        self.fund(place, 0).await?;
        let address = self.network.settings().p2p_address(place).to_string();
        let name = name_of(place);
        let operation = ["describe", "--address", &address, "--name", &name];
        self.operate(place, &operation, |bond| {
            // The address may be there from the genesis file.
            bond.is_some_and(|bond| bond.address.as_str() == address && bond.name.as_str() == name)
        })
        .await
    }

    /// Puts a machine's stake up, and starts its process if it is not running. Returns the first epoch in which
    /// it can be chosen.
    pub(super) async fn enter(&mut self, place: usize) -> anyhow::Result<Epoch> {
        let registry = self.registry().await.context("nobody tells the registry")?;
        let before = self.bond_of(&registry, place);
        if let Some(bond) = &before
            && bond.leaving > 0
            && bond.leaves_at <= registry.epoch
        {
            self.withdraw(place).await?;
        }
        self.fund(place, STAKE).await?;
        let registry = self.registry().await.context("nobody tells the registry")?;
        let stake = STAKE.to_string();
        if self.bond_of(&registry, place).is_some() {
            self.raise(place, STAKE).await?;
        } else {
            let vote_key = validator_directory(&self.directory, place).join(VOTE_FILE);
            let vote_key = vote_key.display().to_string();
            let address = self.network.settings().p2p_address(place).to_string();
            let name = name_of(place);
            let operation = [
                "bond",
                "--vote-key",
                &vote_key,
                "--stake",
                &stake,
                "--address",
                &address,
                "--name",
                &name,
            ];
            let is_there = |bond: Option<Bond>| bond.is_some_and(|bond| bond.stake >= STAKE);
            self.operate(place, &operation, is_there).await?;
        }
        if self.network.process(place).is_none() && !self.down.contains_key(&place) {
            self.network.spawn(place, &[])?;
        }
        let registry = self.registry().await.context("nobody tells the registry")?;
        let bond = self.bond_of(&registry, place);
        Ok(bond.map_or(registry.epoch, |bond| bond.since))
    }

    /// Adds to a machine's stake until it is at least this.
    pub(super) async fn raise(&mut self, place: usize, stake: u64) -> anyhow::Result<()> {
        let registry = self.registry().await.context("nobody tells the registry")?;
        let held = self.bond_of(&registry, place).map_or(0, |bond| bond.stake);
        let missing = stake.saturating_sub(held).to_string();
        self.operate(place, &["add-stake", "--stake", &missing], |bond| {
            bond.is_some_and(|bond| bond.stake >= stake)
        })
        .await
    }

    /// Takes all of a validator's stake out.
    pub(super) async fn leave(&mut self, place: usize) -> anyhow::Result<()> {
        self.fund(place, 0).await?;
        let registry = self.registry().await.context("nobody tells the registry")?;
        let stake = self.bond_of(&registry, place).map_or(0, |bond| bond.stake);
        ensure!(stake > 0, "{} has nothing at stake", name_of(place));
        let stake = stake.to_string();
        self.operate(place, &["unbond", "--stake", &stake], |bond| {
            bond.is_none_or(|bond| bond.stake == 0)
        })
        .await
    }

    /// Moves stake that is no longer held back to the balance.
    pub(super) async fn withdraw(&mut self, place: usize) -> anyhow::Result<()> {
        self.operate(place, &["withdraw"], |bond| {
            bond.is_none_or(|bond| bond.leaving == 0)
        })
        .await
    }

    /// Waits until this holds of the registry.
    async fn wait_for(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + CHANGE_LIMIT;
        while !holds(self) {
            ensure!(
                Instant::now() < deadline,
                "{what}: not after {} s; the validators are {}\n{}",
                CHANGE_LIMIT.as_secs(),
                names_of(&self.watcher.chronicle().acting()),
                self.logs()
            );
            self.tick().await?;
        }
        Ok(())
    }

    /// Waits until a machine has nearly all blocks.
    pub(super) async fn wait_until_in_sync(&mut self, place: usize) -> anyhow::Result<()> {
        self.wait_for(&format!("{} in sync", name_of(place)), |changes| {
            changes.watcher.chronicle().is_in_sync(place)
        })
        .await
    }

    /// Waits until these are the validators.
    pub(super) async fn wait_for_set(&mut self, wanted: &BTreeSet<usize>) -> anyhow::Result<()> {
        let what = format!("validators {}", names_of(wanted));
        self.wait_for(&what, |changes| {
            changes.watcher.chronicle().acting() == *wanted
        })
        .await
    }

    /// Waits until these are among the validators.
    pub(super) async fn wait_for_validators(
        &mut self,
        wanted: &BTreeSet<usize>,
    ) -> anyhow::Result<()> {
        let what = format!("{} among the validators", names_of(wanted));
        self.wait_for(&what, |changes| {
            changes.watcher.chronicle().acting().is_superset(wanted)
        })
        .await
    }

    /// Waits until an epoch has begun.
    pub(super) async fn wait_for_epoch(&mut self, epoch: Epoch) -> anyhow::Result<()> {
        self.wait_for(&format!("epoch {epoch}"), |changes| {
            let chronicle = changes.watcher.chronicle();
            chronicle
                .registry()
                .is_some_and(|registry| registry.epoch >= epoch)
        })
        .await
    }

    /// Waits until the next epoch's validators are fixed.
    pub(super) async fn wait_for_second_half(&mut self) -> anyhow::Result<()> {
        self.wait_for("the second half of an epoch", |changes| {
            changes.watcher.chronicle().is_in_second_half()
        })
        .await
    }

    /// The epoch of the next block.
    pub(super) fn epoch(&self) -> Epoch {
        let chronicle = self.watcher.chronicle();
        chronicle
            .registry()
            .map_or(Epoch(0), |registry| registry.epoch)
    }

    /// Kills a machine's process, to be restarted after some time.
    pub(super) fn kill(&mut self, place: usize, away: Duration) -> anyhow::Result<()> {
        self.network.kill(place)?;
        self.kills += 1;
        self.down.insert(place, Instant::now() + away);
        Ok(())
    }

    /// Restarts the killed machines whose time has come.
    fn restart_due(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let due = self.down.iter().filter(|(_, at)| **at <= now);
        let due: Vec<usize> = due.map(|(place, _)| *place).collect();
        for place in due {
            self.down.remove(&place);
            self.network.spawn(place, &[])?;
            self.say(&format!("{} is started again", name_of(place)));
        }
        Ok(())
    }

    /// Restarts who is down, and waits until all running machines with a bond have every block that any of them has
    /// now. Without a bond a machine has no links.
    ///
    /// # Errors
    ///
    /// If that takes too long.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        let down: Vec<usize> = std::mem::take(&mut self.down).into_keys().collect();
        for place in down {
            self.network.spawn(place, &[])?;
        }
        let tip = self
            .watcher
            .chronicle()
            .tip()
            .map_or(0, |(height, _)| height);
        let deadline = Instant::now() + SYNC_LIMIT;
        loop {
            let registry = self.registry().await;
            let is_bonded = |place: &usize| {
                let registry = registry.as_ref();
                registry.is_none_or(|registry| self.bond_of(registry, *place).is_some())
            };
            let behind: Vec<usize> = {
                let chronicle = self.watcher.chronicle();
                let running = self.network.running().into_iter().filter(is_bonded);
                running
                    .filter(|place| chronicle.read(*place) < tip)
                    .collect()
            };
            if behind.is_empty() {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{} lack blocks up to {tip}, {} s after the end\n{}",
                names_of(&behind),
                SYNC_LIMIT.as_secs(),
                self.logs()
            );
            self.tick().await?;
        }
    }
}
