//! Looking at the validators, and at what must have become of them.

use super::*;

impl Simulation {
    /// After a replica has run: what it has become, and whether it keeps its bounds.
    pub(super) fn look_at(&mut self, host: usize) -> Result<(), String> {
        let Some(running) = &self.hosts[host].running else {
            return Ok(());
        };
        let engine = running.machine.replica.engine();
        let at = (engine.epoch(), engine.view());
        if self.view_groups.is_some() {
            self.view_began.entry(at.1).or_insert(self.now);
        }
        let bisected = engine.counters().bisected;
        let fresh = bisected - running.bisected.min(bisected);
        let blamed: Vec<usize> = engine
            .blocked()
            .into_iter()
            .chain(engine.on_probation())
            .map(|(validator, _)| validator.as_usize())
            .collect();
        let condemned = engine.blocked().into_iter();
        let condemned: Vec<usize> = condemned
            .filter(|(_, offence)| *offence == Offence::Equivocation)
            .map(|(validator, _)| validator.as_usize())
            .collect();
        let cut = running.machine.conduct.cut();
        let convicted = engine.evidence().count();
        let holdings = engine.holdings();
        let entered = running.epoch;
        let waiting = running.machine.events.len();
        let voting = engine.voting();
        if let Some(running) = &mut self.hosts[host].running {
            running.bisected = bisected;
            running.epoch = at.0;
        }
        if at > self.highest {
            let (epoch, view) = self.highest;
            let more = if at.0 == epoch {
                at.1.0 - view.0
            } else {
                at.1.0
            };
            self.coverage.views += more;
            self.coverage.epochs += at.0.0 - epoch.0;
            self.highest = at;
        }
        if at.0 > entered {
            self.perhaps_crash(host);
        }
        self.trace.line(self.now, host, What::Entered, || {
            format!("view {}.{}", at.0, at.1)
        });
        if self.is_far_behind(host) {
            return self.fetch_state(host);
        }
        if !self.keeps_protocol(host) {
            return Ok(());
        }
        self.condemned[host].extend(condemned);
        // Old votes and lies that it receives must not keep a validator from voting.
        if !self.hosts[host].lost_journal {
            if let Voting::KeyElsewhere { .. } = voting {
                return Err(format!("host {host} believes that another has its key"));
            }
            if let Voting::Recovering { .. } = voting {
                return Err(format!("host {host} takes its own journal for an old copy"));
            }
        }
        self.coverage.bisections += fresh;
        self.coverage.evidence = self.coverage.evidence.max(convicted as u64);
        let blames = self.scenario.checking != VoteChecking::TogetherUnblocked;
        if blames && fresh > 0 && blamed.is_empty() {
            return Err(format!("host {host} found invalid votes and blames nobody"));
        }
        for validator in cut {
            if self.scenario.is_honest(validator.as_usize()) {
                return Err(format!("host {host} cuts honest validator {validator}"));
            }
        }
        for validator in blamed {
            if self.scenario.is_honest(validator) {
                return Err(format!("host {host} blames honest validator {validator}"));
            }
            if self.sentenced.insert(validator) {
                self.trace.line(self.now, host, What::Blamed, || {
                    format!("host {host} blames {validator}")
                });
            }
        }
        if self.healed.is_some() {
            self.perhaps_meet(at);
        }
        let size = self.scenario.validators;
        // Where the rest of a turn can be skipped, the views of several turns are within reach.
        let reach = |steps: u64| match self.chain.committee.turn() {
            1 => steps as usize,
            _ => (steps * (steps + 1) / 2 + steps) as usize,
        };
        let bounds = [
            (
                "views ahead",
                holdings.rounds_ahead,
                reach(LOOKAHEAD_VIEWS) + 1,
            ),
            (
                "proposals ahead",
                holdings.proposals_ahead,
                reach(PROPOSAL_LOOKAHEAD_VIEWS),
            ),
            ("early messages", holdings.early, MAX_EARLY_MESSAGES * size),
            ("requests", holdings.wants, MAX_WANTS),
            (
                "blocks on their leaders' word",
                holdings.proposed,
                MAX_PROPOSED_PER_LEADER * size,
            ),
            ("staged blocks", holdings.staged, 1_024),
            ("checks", holdings.jobs, 12 * size + 100),
            (
                "evidence",
                holdings.evidence,
                MAX_EVIDENCE_PER_VALIDATOR * size,
            ),
            ("waiting events", waiting, 2_100 * size),
        ];
        for (what, held, limit) in bounds {
            if held > limit {
                return Err(format!(
                    "host {host} holds {held} {what}, more than {limit}"
                ));
            }
        }
        Ok(())
    }

    /// Notes it if a quorum is where an honest validator is now, and an honest one leads. A Byzantine one may count: with its votes
    /// the slowest honest one need not catch up.
    fn perhaps_meet(&mut self, at: (Epoch, View)) {
        let is_here = |host: &Host| {
            let running = host.running.as_ref();
            running.is_some_and(|running| {
                let engine = running.machine.replica.engine();
                (engine.epoch(), engine.view()) == at
            })
        };
        let here = self.hosts.iter().filter(|host| is_here(host));
        let here: BTreeSet<usize> = here.map(|host| host.validator).collect();
        let quorum = here.len() >= self.chain.committee.quorum();
        let leader = self.checker.leads(at.0, at.1);
        // With PBFT a leader stays as long as blocks come.
        let good = self.scenario.is_honest(leader) || self.scenario.protocol == Protocol::Pbft;
        if let Some(pacemaker) = &mut self.checker.pacemaker
            && quorum
            && good
        {
            pacemaker.met(at.0, at.1);
        }
    }

    /// A validator blocked for a proven equivocation still is after a restart.
    pub(super) fn still_condemned(&self, host: usize) -> Result<(), String> {
        let Some(running) = &self.hosts[host].running else {
            return Ok(());
        };
        let blocked = running.machine.replica.engine().blocked();
        for validator in &self.condemned[host] {
            if !blocked
                .iter()
                .any(|(held, _)| held.as_usize() == *validator)
            {
                return Err(format!(
                    "host {host} has forgotten that it blocks equivocator {validator}"
                ));
            }
        }
        Ok(())
    }

    /// Checks what a host has newly executed.
    pub(super) fn executed(&mut self, host: usize) -> Result<(), String> {
        if !self.keeps_protocol(host) {
            return Ok(());
        }
        let Some(running) = &self.hosts[host].running else {
            return Ok(());
        };
        let store = running.store.clone();
        let kept = store.pruned_below().map_err(|error| error.to_string())?;
        if self.checker.told(host).next() < kept {
            self.checker.passed(host, Height(kept.0 - 1))?;
        }
        let (from, to) = (self.checker.told(host).next(), store.tip().height);
        for height in (from.0..=to.0).map(Height) {
            let stored = store.block(height).map_err(|error| error.to_string())?;
            let root = store.root(height).map_err(|error| error.to_string())?;
            let (Some(stored), Some(root)) = (stored, root) else {
                return Err(format!("host {host} has executed {height:?} and lacks it"));
            };
            if let Some(certificate) = &stored.certificate {
                self.checker.certificate(host, certificate)?;
            }
            self.checker.executed(host, &stored.block, root)?;
            self.tells_of(host, &stored.block)?;
            if let Some(recorder) = &mut self.recorder {
                let hosts = self.hosts.iter().enumerate();
                let running = hosts.filter(|(_, host)| host.running.is_some());
                let running = running.map(|(host, _)| host);
                recorder.executed(host, &stored.block, self.now, running);
            }
            self.trace.line(self.now, host, What::Executed, || {
                format!("executes {} {}", height, stored.block.id().short())
            });
        }
        if to >= from {
            self.progressed();
            self.done |= self.goal_is_reached();
        }
        Ok(())
    }

    pub(super) fn goal_is_reached(&self) -> bool {
        let Some(goal) = self.scenario.goal else {
            return false;
        };
        let honest = self.honest_hosts();
        honest
            .iter()
            .all(|host| self.checker.told(*host) >= Height(goal))
    }

    pub(super) fn progressed(&mut self) {
        let height = self.checker.height();
        if let Some(healed) = &mut self.healed
            && healed.first_progress.is_none()
            && height > healed.height
        {
            healed.first_progress = Some(self.now.since(healed.at));
        }
    }

    /// Looks whether the validators have recovered, and whether it has taken too long.
    pub(super) fn watch(&mut self) -> Result<(), String> {
        // Whoever broke and healed may still be blocked, which is as it should be; those who never
        // broke must go on all the same.
        let mut honest = self.honest_hosts();
        honest.retain(|host| self.scenario.is_honest(self.hosts[*host].validator));
        let Some(Healed { at, height, .. }) = self.healed else {
            return Ok(());
        };
        let goal = Height(height.0 + RECOVERY_BLOCKS);
        let since = self.now.since(at);
        let all_there = honest.iter().all(|host| self.is_back(*host, goal));
        let healed = self.healed.as_mut().expect("just seen");
        if all_there && healed.recovery.is_none() {
            healed.recovery = Some(since);
        }
        if all_there && healed.calm.is_none() {
            // What waits for its turn cannot come to an end while everybody crashes again and again.
            healed.calm = Some(self.now);
        }
        let (healed_at, calm) = (healed.at, healed.calm);
        for host in &honest {
            self.ask_again(*host)?;
        }
        // Nobody may listen any more to who has broken, so what it has accepted may wait for longer.
        let mut waiting = self.checker.open_since(healed_at);
        waiting.retain(|(host, _)| self.scenario.is_honest(self.hosts[*host].validator));
        let mut lacking = None;
        if let Some(payloads) = &mut self.checker.payloads {
            payloads.read()?;
            let open = payloads.open_since(healed_at).into_iter();
            waiting.extend(
                open.filter(|(host, _)| self.scenario.is_honest(self.hosts[*host].validator)),
            );
            // Who has fetched a state does not fetch the bundles before it.
            if self.scenario.snapshot_interval == 0 {
                let lacks = |host: &usize| Some((*host, payloads.lacks(*host)?));
                lacking = honest.iter().find_map(lacks);
            }
        }
        let is_settled = waiting.is_empty() && lacking.is_none();
        let meetings = self.checker.pacemaker.as_ref().map(Pacemaker::meetings);
        let have_met = meetings.is_none_or(|meetings| meetings >= MEETINGS);
        if all_there && is_settled && have_met && self.evidence_is_known() {
            self.done = true;
            return Ok(());
        }
        let patience = self.scenario.patience();
        // A transaction that waits for a missing nonce takes its time to expire.
        let expires = self.scenario.stranded_lasts * 2 + Duration::from_secs(2);
        let over = match calm {
            Some(calm) => self.now.since(calm) > patience + expires,
            None => since > patience,
        };
        if over {
            let told: Vec<u64> = honest.iter().map(|h| self.checker.told(*h).0).collect();
            let what = if all_there && !waiting.is_empty() {
                "transactions that were accepted before are neither final nor dropped"
            } else if let Some((host, digest)) = lacking.filter(|_| all_there) {
                return Err(format!(
                    "host {host} still lacks bundle {digest}, {since:?} after healing"
                ));
            } else if all_there && !have_met {
                "a quorum has met in too few views that an honest one leads"
            } else if all_there {
                "evidence that one honest validator holds is not known, or not acted upon, at all"
            } else {
                "no progress"
            };
            return Err(format!(
                "{what} {since:?} after healing at height {}: honest validators are at {told:?}, \
                 {} transactions wait: {:?}",
                goal.0 - RECOVERY_BLOCKS,
                waiting.len(),
                self.waits_for(&waiting)
            ));
        }
        self.plan(WATCH, Event::Watch);
        Ok(())
    }

    /// Whether a host takes part and has executed up to a height.
    fn is_back(&self, host: usize, goal: Height) -> bool {
        let runs = self.hosts[host].running.is_some();
        runs && self.checker.told(host) >= goal && !self.is_to_vote(host)
    }

    /// Whether all honest validators hold evidence against, and block, whomever one of them holds
    /// evidence against.
    pub(super) fn evidence_is_known(&self) -> bool {
        let mut convicted: BTreeSet<ValidatorIndex> = BTreeSet::new();
        let running: Vec<_> = self
            .honest_hosts()
            .into_iter()
            .filter(|host| self.scenario.is_honest(self.hosts[*host].validator))
            .filter_map(|host| self.hosts[host].running.as_ref())
            .map(|running| running.machine.replica.engine())
            .collect();
        for engine in &running {
            convicted.extend(engine.evidence().map(|pair| pair.first.signer));
        }
        running.iter().all(|engine| {
            let held: BTreeSet<_> = engine.evidence().map(|pair| pair.first.signer).collect();
            let blocked: BTreeSet<_> = engine.blocked().into_iter().map(|(v, _)| v).collect();
            held == convicted && blocked.is_superset(&convicted)
        })
    }

    /// The checks at the end of a run.
    pub(super) fn at_the_end(&mut self) -> Result<(), String> {
        let abandoned = self.checker.abandoned();
        if self.scenario.abandons_nothing() && abandoned > 0 {
            return Err(format!(
                "{abandoned} blocks of honest leaders were certified and abandoned"
            ));
        }
        if self.scenario.goal.is_some() && !self.goal_is_reached() {
            let honest = self.honest_hosts();
            let told: Vec<u64> = honest.iter().map(|h| self.checker.told(*h).0).collect();
            return Err(format!("honest validators are only at {told:?} at the end"));
        }
        for equivocator in self.checker.equivocators() {
            let proven = self.honest_hosts().into_iter().any(|host| {
                let running = self.hosts[host].running.as_ref();
                running.is_some_and(|running| {
                    let mut evidence = running.machine.replica.engine().evidence();
                    evidence.any(|pair| pair.first.signer.as_usize() == equivocator)
                })
            });
            if !proven {
                return Err(format!(
                    "validator {equivocator} has contradicted itself before honest ones, and \
                     nobody holds evidence"
                ));
            }
        }
        for host in self.honest_hosts() {
            let Some(running) = &self.hosts[host].running else {
                continue;
            };
            if running.store.tip().height != self.checker.height() {
                continue;
            }
            for (identity, expected) in self.checker.accounts() {
                let held = running.store.account(identity);
                let held = held.map_err(|error| error.to_string())?.unwrap_or_default();
                if held != *expected {
                    return Err(format!(
                        "host {host} holds {held:?} for {identity}, the blocks make {expected:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
