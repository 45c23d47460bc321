//! Validators that fetch the state.

use super::*;

impl Simulation {
    /// Whether more validators than can lie no longer keep the blocks that a host lacks.
    pub(super) fn is_far_behind(&self, host: usize) -> bool {
        let Some(running) = &self.hosts[host].running else {
            return false;
        };
        let faults = self.chain.committee.faults();
        let gone = running.machine.replica.engine().pruned_elsewhere();
        self.scenario.snapshot_interval > 0
            && gone.is_some_and(|(_, lacking)| lacking.len() > faults)
    }

    /// A host stops taking part, and fetches the state.
    pub(super) fn fetch_state(&mut self, host: usize) -> Result<(), String> {
        self.trace.line(self.now, host, What::Fault, || {
            format!("host {host} fetches the state")
        });
        self.last_words(host);
        self.hosts[host].fetch_state();
        self.start(host)
    }

    /// A host has started to fetch the state.
    pub(super) fn begin_sync(&mut self, host: usize) -> Result<(), String> {
        let life = self.hosts[host].life;
        self.plan(Duration::ZERO, Event::Sync { host, life });
        Ok(())
    }

    pub(super) fn tick_sync(&mut self, host: usize, life: u64) -> Result<(), String> {
        if self.hosts[host].life != life {
            return Ok(());
        }
        self.hosts[host].clock.set(self.now);
        let Some(sync) = &mut self.hosts[host].syncing else {
            return Ok(());
        };
        let result = sync.tick();
        let due = sync.due();
        let at = self.hosts[host]
            .clock
            .world_at(due)
            .max(self.now.after(Duration::from_millis(1)));
        self.plan_at(at, Event::Sync { host, life });
        self.settle(host, result)
    }

    pub(super) fn sync_receives(
        &mut self,
        host: usize,
        sender: usize,
        lane: Lane,
        bytes: Bytes,
    ) -> Result<(), String> {
        let place = ValidatorIndex(sender as u32);
        let identity = self.chain.committee.identity(place).expect("a member");
        self.trace
            .note(self.now, &[b"sync", &host.to_be_bytes(), &bytes]);
        self.hosts[host].clock.set(self.now);
        self.coverage.frames += 1;
        let Some(sync) = &mut self.hosts[host].syncing else {
            return Ok(());
        };
        if lane != Lane::Fetch {
            return Ok(());
        }
        let result = sync.receive(identity, bytes);
        self.settle(host, result)
    }

    fn settle(&mut self, host: usize, result: anyhow::Result<()>) -> Result<(), String> {
        self.drain(host)?;
        if self.hosts[host].disk.has_crashed() {
            self.hosts[host].crash();
            self.coverage.crashes += 1;
            self.plan_return(host);
            return Ok(());
        }
        if let Err(error) = result {
            if self.hosts[host].disk.may_fail() {
                self.halt(host, &format!("{error:#}"));
                return Ok(());
            }
            return Err(format!("host {host} stops fetching: {error:#}"));
        }
        let Some(sync) = &self.hosts[host].syncing else {
            return Ok(());
        };
        for blamed in sync.blamed() {
            let place = self.chain.committee.place(&blamed);
            if place.is_some_and(|place| self.scenario.is_honest(place.as_usize())) {
                return Err(format!(
                    "host {host} blames an honest validator for its snapshot: {place:?}"
                ));
            }
        }
        if !sync.is_done() {
            return Ok(());
        }
        self.coverage.state_syncs += 1;
        self.hosts[host].stop();
        self.start(host)
    }

    /// If a host has fetched a state since it was last looked at, it must be the chain's. It may have
    /// lost its power right after that.
    pub(super) fn perhaps_synced(&mut self, host: usize) -> Result<(), String> {
        let Some(running) = &self.hosts[host].running else {
            return Ok(());
        };
        let store = &running.store;
        let base = store.base().map_err(|error| error.to_string())?;
        let Some(base) = base.filter(|base| *base > self.checker.told(host)) else {
            return Ok(());
        };
        let stored = store.block(base).map_err(|error| error.to_string())?;
        let root = store.root(base).map_err(|error| error.to_string())?;
        let (Some(stored), Some(root)) = (stored, root) else {
            return Err(format!(
                "host {host} has the state of {base:?} and lacks its block"
            ));
        };
        self.checker
            .fetched_state(host, base, (stored.block.id(), root))
    }
}
