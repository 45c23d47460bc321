//! What goes wrong, and starting again.

use super::*;

impl Simulation {
    pub(super) fn apply_fault(&mut self, fault: Fault) -> Result<(), String> {
        self.trace
            .note(self.now, &[format!("{fault:?}").as_bytes()]);
        let words = format!("{fault:?}");
        let host = match &fault {
            Fault::Crash(hosts) | Fault::Restart(hosts) => hosts.first().copied(),
            Fault::Disk { validator, .. }
            | Fault::Full(validator)
            | Fault::Room(validator)
            | Fault::LoseDatabase(validator)
            | Fault::LoseJournal(validator)
            | Fault::CopyJournal(validator)
            | Fault::RestoreJournal(validator)
            | Fault::Forget(validator) => Some(*validator),
            _ => None,
        };
        self.trace
            .line(self.now, host.unwrap_or(0), What::Fault, || words);
        self.coverage.fault(&fault);
        match fault {
            Fault::Crash(validators) => {
                for host in self.hosts_of(&validators) {
                    if self.hosts[host].is_up() {
                        self.last_words(host);
                        // A process that is killed leaves what it has written to the system; a
                        // power cut does not.
                        if self.rng.random_bool(0.5) {
                            self.hosts[host].crash();
                        } else {
                            self.hosts[host].stop();
                        }
                        self.coverage.crashes += 1;
                    }
                }
                Ok(())
            }
            Fault::Restart(validators) => {
                for host in self.hosts_of(&validators) {
                    let refuses = self.hosts[host].disk.has_lied() && self.hosts[host].halted;
                    if !self.hosts[host].is_up() && !refuses {
                        self.start(host)?;
                    }
                }
                Ok(())
            }
            Fault::Disk {
                validator,
                after,
                mishap,
                away,
            } => {
                self.away = away;
                self.hosts[validator].disk.plan(after, mishap);
                Ok(())
            }
            Fault::Full(validator) => {
                self.hosts[validator].disk.set_full(true);
                Ok(())
            }
            Fault::Room(validator) => {
                self.hosts[validator].disk.set_full(false);
                if !self.hosts[validator].is_up() {
                    return self.start(validator);
                }
                Ok(())
            }
            Fault::LoseDatabase(validator) => {
                for host in self.hosts_of(&[validator]) {
                    self.hosts[host].stop();
                    self.hosts[host].disk.lose_rows();
                    self.checker.lost(host);
                }
                Ok(())
            }
            Fault::LoseJournal(validator) | Fault::RestoreJournal(validator) => {
                for host in self.hosts_of(&[validator]) {
                    self.last_words(host);
                    match fault {
                        Fault::LoseJournal(_) => self.hosts[host].lose_journal(),
                        _ => self.hosts[host].restore_journal(),
                    }
                }
                Ok(())
            }
            Fault::CopyJournal(validator) => {
                for host in self.hosts_of(&[validator]) {
                    self.hosts[host].copy_journal();
                }
                Ok(())
            }
            Fault::Forget(validator) => {
                for host in self.hosts_of(&[validator]) {
                    self.last_words(host);
                    self.hosts[host].forget_offenders();
                }
                Ok(())
            }
            Fault::Partition(groups) => {
                let groups = groups.into_iter().map(|group| group.into_iter().collect());
                self.network.groups = Some(groups.collect());
                Ok(())
            }
            Fault::Cut(from, to) => {
                self.network.cut.insert((from, to));
                Ok(())
            }
            Fault::Unlink(one, other) => {
                self.network
                    .unlinked
                    .insert((one.min(other), one.max(other)));
                Ok(())
            }
            Fault::Link(one, other) => {
                let pair = (one.min(other), one.max(other));
                self.network.unlinked.remove(&pair);
                Ok(())
            }
            Fault::Join => {
                self.network.join();
                Ok(())
            }
            Fault::Heal => self.heal(),
        }
    }

    pub(super) fn heal(&mut self) -> Result<(), String> {
        self.network.heal();
        for host in 0..self.hosts.len() {
            self.hosts[host].disk.cancel();
            self.hosts[host].disk.set_full(false);
            if !self.hosts[host].is_up() {
                self.start(host)?;
            }
        }
        self.mark();
        if self.scenario.must_recover {
            self.plan(WATCH, Event::Watch);
        }
        Ok(())
    }

    /// From now on the time to the next final block is measured.
    pub(super) fn mark(&mut self) {
        self.healed = Some(Healed {
            at: self.now,
            height: self.checker.height(),
            first_progress: None,
            recovery: None,
            calm: None,
        });
    }

    pub(super) fn start(&mut self, host: usize) -> Result<(), String> {
        let (now, scenario) = (self.now, &self.scenario);
        let started = self.hosts[host].start(scenario, &self.chain, now);
        self.trace.note(now, &[b"start", &host.to_be_bytes()]);
        self.links[host] = links::Told::default();
        if self.hosts[host].disk.has_crashed() {
            // The power went while it started.
            self.hosts[host].crash();
            self.coverage.crashes += 1;
            self.plan_return(host);
            return Ok(());
        }
        match started {
            Ok(()) => {
                self.coverage.starts += 1;
                let words = || format!("host {host} starts");
                self.trace.line(now, host, What::Fault, words);
                let running = self.hosts[host].running.as_ref();
                if let (Some(running), Some(checker)) = (running, &mut self.checker.payloads)
                    && let Some(keeper) = &running.machine.payloads
                {
                    checker.started(host, keeper.payloads())?;
                }
                if self.keeps_protocol(host) {
                    for (path, offset, bytes) in self.hosts[host].disk.whole() {
                        self.checker.durable(host, &path, offset, &bytes);
                    }
                }
                self.drain(host)?;
                if self.hosts[host].syncing.is_some() {
                    return self.begin_sync(host);
                }
                if self.keeps_protocol(host) {
                    self.perhaps_synced(host)?;
                    let height = self.hosts[host].height();
                    self.checker.restarted(host, height)?;
                    self.still_condemned(host)?;
                    self.executed(host)?;
                }
                self.plan_parts(host);
                Ok(())
            }
            Err(reason) if self.hosts[host].disk.may_fail() => {
                self.halt(host, &reason);
                Ok(())
            }
            Err(reason) => Err(format!("host {host} does not start: {reason}")),
        }
    }

    /// A validator has stopped because its disk failed. Its operator starts it again.
    pub(super) fn halt(&mut self, host: usize, reason: &str) {
        let reason = reason.to_owned();
        self.trace.line(self.now, host, What::Fault, || {
            format!("host {host} halts: {reason}")
        });
        self.coverage.halts += 1;
        self.last_words(host);
        self.hosts[host].stop();
        self.hosts[host].halted = true;
        self.plan_return(host);
    }

    pub(super) fn plan_return(&mut self, host: usize) {
        let life = self.hosts[host].life;
        self.plan(self.away, Event::Return { host, life });
    }

    /// Upon a host's entering an epoch: perhaps it, or all of them, crash about now.
    pub(super) fn perhaps_crash(&mut self, host: usize) {
        let percent = self.scenario.border_crashes_percent;
        // Fetching a state takes longer than many crashes would leave, and each ends its snapshots.
        let fetches = self.scenario.snapshot_interval > 0;
        let calm = self
            .healed
            .as_ref()
            .is_some_and(|healed| healed.calm.is_some() || fetches);
        if calm || percent == 0 || self.rng.random_range(0..100) >= percent {
            return;
        }
        let victims: Vec<usize> = if self.rng.random_range(0..5) == 0 {
            self.scenario.all()
        } else {
            vec![self.hosts[host].validator]
        };
        let soon = Duration::from_micros(self.rng.random_range(0..10_000));
        let later = soon + Duration::from_micros(self.rng.random_range(100..60_000));
        self.plan(soon, Event::Fault(Fault::Crash(victims.clone())));
        self.plan(later, Event::Fault(Fault::Restart(victims)));
    }
}
