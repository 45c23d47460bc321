//! What each case starts, and what it compares.

use super::{
    report::{Figures, figures},
    rig::{Rig, copy, name_of},
    roles::{Manner, SharingName},
    shaper,
    spread::Spread,
    state::{self, ACCOUNT_BYTES},
};
use clap::ValueEnum as _;
use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

/// How long a receiver waits for the snapshots of peers that are not there.
const CHOOSING_S: f64 = 1.0;

impl Rig {
    pub(super) fn alone(&self) -> anyhow::Result<Figures> {
        let mut plain = self.start(0, "tcp-source", &[])?;
        plain.wait_until_ready()?;
        let tcp = self.start(1, "tcp-sink", &[])?.fetched()?;
        drop(plain);
        let source = self.source(0, Manner::Honest, SharingName::Need)?;
        let mut receiver = self.receiver(1)?;
        let mut round_trips = Vec::new();
        let (mut first_part, mut whole) = (None, None);
        let fetched = loop {
            let fetched = receiver.next()?;
            if fetched.is_done {
                break fetched;
            }
            if fetched.parts > 0 {
                first_part.get_or_insert(fetched.took_s);
            }
            if fetched.share >= 1.0 {
                whole.get_or_insert(fetched.took_s);
            }
            round_trips.push(fetched.round_trip_ms);
        };
        round_trips.sort_by(f64::total_cmp);
        let round_trip = round_trips.get(round_trips.len() / 2);
        drop(receiver);
        let serving = source.end()?;
        let mb = (self.args.accounts * ACCOUNT_BYTES) as f64 / 1e6;
        let bytes = fetched.bytes as f64 / tcp.bytes as f64;
        let ratio = fetched.took_s / tcp.took_s;
        Ok(figures([
            ("plain TCP, s", tcp.took_s),
            ("state sync, s", fetched.took_s),
            ("first part, s", first_part.unwrap_or(fetched.took_s)),
            ("last part, s", whole.unwrap_or(fetched.took_s)),
            ("B1: state sync / plain TCP", ratio),
            ("state sync / plain TCP of as many bytes", ratio / bytes),
            ("bytes of its parts / of plain TCP", bytes),
            (
                "B10: shaper, % of a core at 1 Gbit/s",
                shaper::cores()? * 100.0,
            ),
            ("source, cores", serving / fetched.took_s),
            (
                "round trip of small messages meanwhile, ms",
                round_trip.copied().unwrap_or_default(),
            ),
            ("receiver, cores", fetched.cpu_s / fetched.took_s),
            (
                "B11: verified and written, MB per s of a core",
                mb / fetched.thread_cpu_s,
            ),
        ]))
    }

    /// Three sources far away, each of which could fill the receiver's link.
    pub(super) fn far(&self) -> anyhow::Result<Figures> {
        let mut plain = self.start(0, "tcp-source", &[])?;
        plain.wait_until_ready()?;
        let tcp = self.start(3, "tcp-sink", &[])?.fetched()?;
        drop(plain);
        let sources = (0..3).map(|place| self.source(place, Manner::Honest, SharingName::Need));
        let sources = sources.collect::<anyhow::Result<Vec<_>>>()?;
        let mut receiver = self.receiver(3)?;
        let mut first_part = None;
        let fetched = loop {
            let fetched = receiver.next()?;
            if fetched.parts > 0 {
                first_part.get_or_insert(fetched.took_s);
            }
            if fetched.is_done {
                break fetched;
            }
        };
        drop(sources);
        Ok(figures([
            ("plain TCP, s", tcp.took_s),
            ("state sync, s", fetched.took_s),
            ("first part, s", first_part.unwrap_or(fetched.took_s)),
            ("state sync / plain TCP", fetched.took_s / tcp.took_s),
            ("bytes / plain TCP", fetched.bytes as f64 / tcp.bytes as f64),
            ("sources that were blamed", fetched.blamed as f64),
            (
                "round trip of small messages at the end, ms",
                fetched.round_trip_ms,
            ),
        ]))
    }

    /// Each sharing beside noise, and one receiver alone for the best.
    pub(super) fn noisy(&self) -> anyhow::Result<Figures> {
        let mut all = Figures::new();
        let source = self.source(0, Manner::Honest, SharingName::Need)?;
        let best = self.receiver(1)?.fetched()?.took_s;
        drop(source);
        all.insert("alone, s".to_owned(), best);
        let mut took = BTreeMap::new();
        for sharing in [SharingName::Static, SharingName::Uniform, SharingName::Need] {
            let _source = self.source(0, Manner::Honest, sharing)?;
            let mut noise = self.start(2, "noise", &[])?;
            noise.wait_until_ready()?;
            // Until it has had the whole once.
            let bits = (self.args.accounts * ACCOUNT_BYTES) as f64 * 8.0;
            thread::sleep(Duration::from_secs_f64(
                1.5 * bits / (self.links[2].down as f64 * 1e6),
            ));
            let fetched = self.receiver(1)?.fetched()?.took_s;
            all.insert(format!("beside noise, {}, s", name_of(sharing)), fetched);
            took.insert(name_of(sharing), fetched);
        }
        let gap = took["static"] - best;
        for sharing in ["uniform", "need"] {
            let closed = (took["static"] - took[sharing]) / gap;
            all.insert(format!("B2: gap closed, {sharing}"), closed);
        }
        Ok(all)
    }

    /// Both orders, by each sharing.
    pub(super) fn two(&self) -> anyhow::Result<Figures> {
        let mut all = Figures::new();
        let mut alone = BTreeMap::new();
        for place in [1, 2] {
            let _source = self.source(0, Manner::Honest, SharingName::Need)?;
            alone.insert(place, self.receiver(place)?.fetched()?.took_s);
        }
        all.insert("slower link alone, s".to_owned(), alone[&2]);
        for sharing in [SharingName::Static, SharingName::Uniform, SharingName::Need] {
            for (first, second, order) in [(1, 2, "fast first"), (2, 1, "slow first")] {
                let source = self.source(0, Manner::Honest, sharing)?;
                let began = Instant::now();
                let first_one = self.receiver(first)?;
                thread::sleep(Duration::from_secs_f64(alone[&2] / 5.0));
                let second_one = self.receiver(second)?;
                let second_began = began.elapsed().as_secs_f64();
                let other = thread::spawn(move || (first_one.fetched(), began.elapsed()));
                let mine = second_one.fetched()?;
                let ended = began.elapsed();
                let (theirs, theirs_ended) = other.join().expect("no panic");
                drop(source);
                let (theirs, end) = (theirs?, ended.max(theirs_ended).as_secs_f64());
                let slow = if first == 2 { &theirs } else { &mine };
                let name = name_of(sharing);
                all.insert(format!("{name}, {order}: slower, s"), slow.took_s);
                all.insert(format!("{name}, {order}: both, s"), end);
                if sharing == SharingName::Need {
                    // The link is full from the second one's beginning until both are done. How
                    // much it carries is what one receiver alone has shown.
                    let work = 2.0 * (alone[&1] - CHOOSING_S);
                    let share = self.links[first].down as f64 / self.args.link as f64;
                    let before = (second_began - CHOOSING_S) * share;
                    let bound = second_began + work - before;
                    all.insert(format!("B3, {order}: both / bound"), end / bound);
                    let ratio = slow.took_s / alone[&2];
                    all.insert(format!("B3, {order}: slower / alone"), ratio);
                }
            }
        }
        Ok(all)
    }

    /// Three sources, one of which is faulty, beside the other two alone.
    pub(super) fn beside_liar(&self, liar: usize, manner: Manner) -> anyhow::Result<Figures> {
        let honest = || (1..3).map(|place| self.source(place, Manner::Honest, SharingName::Need));
        // Without it there is a node that has nothing to send, so that the receiver need not wait for
        // its answer: that would be in the time without it only.
        let mut two = honest().collect::<anyhow::Result<Vec<_>>>()?;
        two.push(self.source(liar, Manner::Empty, SharingName::Need)?);
        let best = self.receiver(3)?.fetched()?;
        drop(two);
        let mut three = honest().collect::<anyhow::Result<Vec<_>>>()?;
        three.push(self.source(liar, manner, SharingName::Need)?);
        let fetched = self.receiver(3)?.fetched()?;
        Ok(figures([
            ("without the faulty source, s", best.took_s),
            ("with it, s", fetched.took_s),
            ("B4, B5: with it / without", fetched.took_s / best.took_s),
            ("sources that were blamed", fetched.blamed as f64),
            (
                "bytes with it / without",
                fetched.bytes as f64 / best.bytes as f64,
            ),
        ]))
    }

    /// Each way to spread requests, with honest sources and with a faulty one that is near.
    pub(super) fn spread(&self) -> anyhow::Result<Figures> {
        let mut all = Figures::new();
        for (manner, what) in [(Manner::Honest, "honest"), (Manner::Garbage, "garbage")] {
            let manner = |place| if place == 0 { manner } else { Manner::Honest };
            let mut adaptive = None;
            for spread in Spread::value_variants() {
                let sources = (0..3).map(|at| self.source(at, manner(at), SharingName::Need));
                let sources = sources.collect::<anyhow::Result<Vec<_>>>()?;
                let fetched = self.receiver_by(3, *spread)?.fetched()?;
                drop(sources);
                let name = name_of(*spread);
                let of = *adaptive.get_or_insert(fetched.took_s);
                let ratio = fetched.took_s / of;
                let mb = fetched.bytes as f64 / 1e6;
                all.insert(format!("{what}, {name}, s"), fetched.took_s);
                all.insert(format!("{what}, {name}, MB"), mb);
                all.insert(format!("{what}, {name} / adaptive"), ratio);
            }
        }
        Ok(all)
    }

    pub(super) fn beside_slow(&self) -> anyhow::Result<Figures> {
        let figures_of = self.beside_liar(0, Manner::Honest)?;
        let ratio = figures_of["B4, B5: with it / without"];
        Ok(figures([
            (
                "without the slow source, s",
                figures_of["without the faulty source, s"],
            ),
            ("with it, s", figures_of["with it, s"]),
            ("B12: with it / without", ratio),
            (
                "sources that were blamed",
                figures_of["sources that were blamed"],
            ),
        ]))
    }

    pub(super) fn kill(&self) -> anyhow::Result<Figures> {
        let _source = self.source(0, Manner::Honest, SharingName::Need)?;
        let whole = self.receiver(1)?.fetched()?;
        let folder = tempfile::tempdir_in(&self.folder)?;
        let database = folder.path().join("db").to_string_lossy().into_owned();
        let mut killed = self.start(1, "receiver", &["--database", &database])?;
        let before = loop {
            let fetched = killed.next()?;
            if fetched.share >= 0.5 {
                break fetched;
            }
        };
        drop(killed);
        let after = self
            .start(1, "receiver", &["--database", &database])?
            .fetched()?;
        let again = (before.bytes + after.bytes) as f64 / whole.bytes as f64 - 1.0;
        Ok(figures([
            ("state when killed", before.share),
            ("B7: fetched again, of the whole", again),
        ]))
    }

    /// One account of a hundred has changed since the receiver's state.
    pub(super) fn delta(&self) -> anyhow::Result<Figures> {
        let genesis = state::genesis(self.links.len());
        let changed = self.folder.join("changed");
        if !changed.exists() {
            copy(&self.state, &changed)?;
            state::change(&changed, &genesis, self.args.accounts, 100)?;
        }
        let _source = self.source_of(&changed, 0, Manner::Honest, SharingName::Need)?;
        let whole = self.receiver(1)?.fetched()?;
        let folder = tempfile::tempdir_in(&self.folder)?;
        let database = folder.path().join("db");
        copy(&self.state, &database)?;
        let database = database.to_string_lossy().into_owned();
        let fetched = self
            .start(1, "receiver", &["--database", &database])?
            .fetched()?;
        Ok(figures([
            ("whole state, MB", whole.bytes as f64 / 1e6),
            ("changes, MB", fetched.bytes as f64 / 1e6),
            (
                "B8: changes / whole",
                fetched.bytes as f64 / whole.bytes as f64,
            ),
            ("whole state, s", whole.took_s),
            ("changes, s", fetched.took_s),
        ]))
    }
}
