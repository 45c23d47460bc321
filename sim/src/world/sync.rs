//! Validators that fetch the state: whether they show how far they are, and how soon they are back.
//!
//! A node prints a line about its progress every few seconds. What such a line is made from must change,
//! or name what is waited for, at least every [`SILENT_AT_MOST`]. The rate and the time left are not
//! counted: they change while nothing comes.

use super::*;
use quorate_machine::sync::{Progress, Stage};

/// How many looks in a row, a second apart, find a validator lacking more blocks than it is to keep before it
/// fetches the state. As in the node.
const FAR_LOOKS: u32 = 2;

/// How long a line about the progress may stay the same without a reason.
const SILENT_AT_MOST: Duration = Duration::from_secs(5);

/// One state sync of an honest validator, from a start of its process on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSyncTimes {
    /// Which host.
    pub host: usize,
    /// When it began to ask for snapshots.
    pub began: Moment,
    /// The highest final block then.
    pub head: Height,
    /// How often it had asked a peer for snapshots when it chose its first target, at most.
    pub rounds: u32,
    /// When it chose its first target.
    pub chosen: Option<Moment>,
    /// The block whose state it has fetched, or was fetching last.
    pub target: Option<Height>,
    /// How many parts were verified.
    pub parts: u64,
    /// When the last of them was.
    pub last_part: Option<Moment>,
    /// When the state was whole.
    pub whole: Option<Moment>,
    /// When it cast its next vote.
    pub voted: Option<Moment>,
    /// Whether it was stopped before that, or had no journal to vote from.
    pub disturbed: bool,
    /// The longest time without anything new in its progress.
    pub silence: Duration,
    /// What its progress was at the end of that time.
    pub silent: &'static str,
}

impl StateSyncTimes {
    /// From the last verified part to the next vote.
    pub fn to_vote(&self) -> Option<Duration> {
        Some(self.voted?.since(self.last_part?))
    }
}

/// What a line about the progress is made from.
#[derive(PartialEq)]
struct Line {
    stage: Stage,
    target: Option<Height>,
    bytes: u64,
    parts: u64,
    peers: usize,
    blamed: u64,
    waits_for: Option<String>,
}

impl Line {
    fn of(progress: &Progress) -> Self {
        Self {
            stage: progress.stage,
            target: progress.target,
            bytes: progress.bytes,
            parts: progress.parts,
            peers: progress.peers,
            blamed: progress.blamed,
            waits_for: progress.waits_for.clone(),
        }
    }
}

/// A host's last state sync, as it is watched.
pub(super) struct Watched {
    times: StateSyncTimes,
    /// The host's life.
    life: u64,
    line: Option<Line>,
    /// When the line was new, or gave a reason.
    told: Moment,
    /// How often it has asked each validator for snapshots.
    asked: BTreeMap<usize, u32>,
}

impl Watched {
    fn new((host, life): (usize, u64), now: Moment, head: Height) -> Self {
        Self {
            times: StateSyncTimes {
                host,
                began: now,
                head,
                rounds: 0,
                chosen: None,
                target: None,
                parts: 0,
                last_part: None,
                whole: None,
                voted: None,
                disturbed: false,
                silence: Duration::ZERO,
                silent: Stage::Searching.name(),
            },
            life,
            line: None,
            told: now,
            asked: BTreeMap::new(),
        }
    }

    /// Looks at the progress.
    fn look(&mut self, progress: &Progress, now: Moment) -> Result<(), String> {
        let times = &mut self.times;
        let silence = now.since(self.told);
        if silence > times.silence {
            (times.silence, times.silent) = (silence, progress.stage.name());
        }
        if silence > SILENT_AT_MOST {
            return Err(format!("shows no progress for {silence:?}: {progress:?}"));
        }
        if times.chosen.is_none() && progress.target.is_some() {
            times.chosen = Some(now);
            times.rounds = self.asked.values().max().copied().unwrap_or(0);
        }
        times.target = progress.target;
        if progress.parts > times.parts {
            (times.parts, times.last_part) = (progress.parts, Some(now));
        }
        let line = Line::of(progress);
        if self.line.as_ref() != Some(&line) || line.waits_for.is_some() {
            self.told = now;
            self.line = Some(line);
        }
        Ok(())
    }
}

impl Simulation {
    /// The state syncs of honest validators so far, in the order of their ends.
    pub(super) fn state_syncs(&self) -> Vec<StateSyncTimes> {
        let last = self.syncs.values().map(|watched| &watched.times);
        self.ended_syncs.iter().chain(last).cloned().collect()
    }

    /// Looks at the progress of a host that fetches the state.
    fn watch_sync(&mut self, host: usize) -> Result<(), String> {
        let (Some(sync), Some(watched)) = (&self.hosts[host].syncing, self.syncs.get_mut(&host))
        else {
            return Ok(());
        };
        let looked = watched.look(sync.progress(), self.now);
        looked.map_err(|what| format!("host {host} {what}"))
    }

    /// A host sends a frame: perhaps it asks for snapshots.
    pub(super) fn sync_sends(&mut self, host: usize, to: &To, bytes: &Bytes) {
        if self.hosts[host].syncing.is_none() || !self.syncs.contains_key(&host) {
            return;
        }
        let Ok(Frame(messages)) = Frame::decode(Copying(bytes.as_ref())) else {
            return;
        };
        if !messages.contains(&Message::SnapshotRequest) {
            return;
        }
        for receiver in self.receivers(host, to) {
            if let Some(watched) = self.syncs.get_mut(&host) {
                *watched.asked.entry(receiver).or_default() += 1;
            }
        }
    }

    /// Whether a host has not voted since it fetched the state, and could.
    pub(super) fn is_to_vote(&self, host: usize) -> bool {
        let Some(Watched { times, .. }) = self.syncs.get(&host) else {
            return false;
        };
        times.whole.is_some() && times.voted.is_none() && !self.hosts[host].lost_journal
    }

    /// A host casts a vote that it has not cast before.
    pub(super) fn votes_again(&mut self, host: usize, at: Moment) {
        let (life, lost) = (self.hosts[host].life, self.hosts[host].lost_journal);
        let Some(watched) = self.syncs.get_mut(&host) else {
            return;
        };
        let times = &mut watched.times;
        if times.whole.is_some() && times.voted.is_none() {
            times.voted = Some(at);
            // State sync ended one life.
            times.disturbed = lost || life != watched.life + 1;
        }
    }

    /// Whether more validators than can lie no longer keep the blocks that a host lacks.
    pub(super) fn is_far_behind(&self, host: usize) -> bool {
        let Some(running) = &self.hosts[host].running else {
            return false;
        };
        let faults = self.chain.committee.faults();
        let engine = running.machine.replica.engine();
        let Some((wanted, lacking)) = engine.pruned_elsewhere() else {
            return false;
        };
        let others = self.chain.committee.places();
        let others = others.filter(|place| place.as_usize() != host);
        let no_further = others.filter(|place| {
            let status = running.machine.live.peer(*place);
            status.is_some_and(|status| status.finalized_height < wanted)
                && lacking.iter().all(|(who, _)| who != place)
        });
        self.scenario.snapshot_interval > 0 && lacking.len() + no_further.count() > faults
    }

    /// Once a second: whether a host has lacked more blocks than it is to keep for some time. It need not
    /// know that they are gone: a peer that is asked for a single block does not say so.
    pub(super) fn look_how_far(&mut self, host: usize) -> Result<(), String> {
        let Some(retention) = self.scenario.retention else {
            return Ok(());
        };
        let Some(running) = &self.hosts[host].running else {
            return Ok(());
        };
        let live = &running.machine.live;
        let lacks = live
            .network_height()
            .0
            .saturating_sub(live.finalized_height().0);
        let looks = &mut self.hosts[host].far_looks;
        *looks = if lacks > retention { *looks + 1 } else { 0 };
        if self.scenario.snapshot_interval > 0 && *looks >= FAR_LOOKS {
            return self.fetch_state(host);
        }
        Ok(())
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
        if self.keeps_protocol(host) {
            let watched = Watched::new((host, life), self.now, self.checker.height());
            let ended = self.syncs.insert(host, watched);
            self.ended_syncs.extend(ended.map(|watched| watched.times));
        }
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
        self.watch_sync(host)?;
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
        if let Some(watched) = self.syncs.get_mut(&host) {
            watched.times.whole = Some(self.now);
        }
        self.trace.line(self.now, host, What::Fault, || {
            format!("host {host} has the state")
        });
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
