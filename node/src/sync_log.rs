//! Logs the validator's health: a line when it changes, a periodic heartbeat, and a line for each
//! link that goes down or comes back.

use parking_lot::Mutex;
use quorate_api::verdict::{Health, Severity, VerdictJson};
use quorate_machine::live::LiveStatus;
use quorate_p2p::PeerStatus;
use quorate_types::Identity;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

/// How often the state is observed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A change is logged after this many equal observations in a row, so that brief changes are not
/// logged.
const LOOKS: u32 = 2;

/// If nothing was logged for this long, a line is logged although nothing has changed.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Notes are logged when they are new, and again after this long.
const NOTE_INTERVAL: Duration = Duration::from_secs(600);

/// A note that was gone for so long is new. At a border it is, until the parts that begin have heard of the others.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// A link that is missing from the start is logged after this long.
const FIRST_LINK: Duration = Duration::from_secs(10);

/// A kind of log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// The verdict has changed.
    Change,
    /// The verdict is unchanged.
    Heartbeat,
}

/// The state logged last, and the state observed last.
struct Watch {
    told: Health,
    told_at: Instant,
    seen: Health,
    looks: u32,
}

impl Watch {
    fn new(now: Instant) -> Self {
        Self {
            told: Health::Starting,
            told_at: now,
            seen: Health::Starting,
            looks: 0,
        }
    }

    /// Returns the line to log for an observed state, if one is due.
    fn tells(&mut self, now: Instant, state: Health) -> Option<Line> {
        self.looks = if state == self.seen {
            self.looks + 1
        } else {
            1
        };
        self.seen = state;
        let is_new = state != self.told && self.looks >= LOOKS;
        if !is_new && now < self.told_at + HEARTBEAT {
            return None;
        }
        self.told_at = now;
        if is_new {
            self.told = state;
            return Some(Line::Change);
        }
        Some(Line::Heartbeat)
    }
}

/// The logged notes. Notes that differ only in their numbers count as the same.
#[derive(Default)]
struct Notes(BTreeMap<String, Note>);

struct Note {
    told_at: Instant,
    looks: u32,
    seen_at: Instant,
}

impl Notes {
    /// Returns the notes that are due to be logged.
    fn tells<'a>(&mut self, now: Instant, notes: &'a [String]) -> Vec<&'a str> {
        let kind = |note: &str| -> String {
            let letters = note.split(':').next().unwrap_or(note).chars();
            letters.filter(|c| !c.is_ascii_digit()).collect()
        };
        self.0.retain(|_, held| now <= held.seen_at + GONE_AFTER);
        let mut told = Vec::new();
        for note in notes {
            let held = self.0.entry(kind(note)).or_insert(Note {
                told_at: now,
                looks: 0,
                seen_at: now,
            });
            held.seen_at = now;
            held.looks = held.looks.saturating_add(1);
            let again = held.looks > LOOKS && now >= held.told_at + NOTE_INTERVAL;
            if held.looks == LOOKS || again {
                held.told_at = now;
                told.push(note.as_str());
            }
        }
        told
    }
}

/// The logged state of the links.
#[derive(Default)]
struct LinkNews(BTreeMap<Identity, LinkTold>);

struct LinkTold {
    up: Option<bool>,
    looked_at_first: Instant,
}

/// A link that went down (`false`) or came up (`true`).
type Change = (Identity, bool);

impl LinkNews {
    /// Returns the changes since the last call. A link that has never been up is reported once as
    /// missing.
    fn changes(&mut self, now: Instant, peers: &[PeerStatus]) -> Vec<Change> {
        let told = &mut self.0;
        let there: BTreeSet<Identity> = peers.iter().map(|peer| peer.identity).collect();
        told.retain(|identity, _| there.contains(identity));
        let changes = peers.iter().filter(|peer| {
            let told = told.entry(peer.identity).or_insert(LinkTold {
                up: None,
                looked_at_first: now,
            });
            let is_new = match told.up {
                Some(before) => before != peer.connected,
                None => peer.connected || now >= told.looked_at_first + FIRST_LINK,
            };
            if is_new {
                told.up = Some(peer.connected);
            }
            is_new
        });
        changes
            .map(|peer| (peer.identity, peer.connected))
            .collect()
    }
}

/// What was logged. It outlives a border, at which the parts of the node are put together anew.
#[derive(Clone)]
pub(crate) struct Logged(Arc<Mutex<State>>);

struct State {
    watch: Watch,
    notes: Notes,
    links: LinkNews,
}

impl Logged {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            watch: Watch::new(Instant::now()),
            notes: Notes::default(),
            links: LinkNews::default(),
        })))
    }
}

/// The sources of the log lines.
pub(crate) struct Told {
    pub(crate) live: Arc<LiveStatus>,
    pub(crate) logged: Logged,
    pub(crate) address: Box<crate::rpc::AddressOf>,
    /// The mean time from an own proposal to its finality since the last call.
    pub(crate) finality: Box<dyn FnMut() -> Option<Duration> + Send>,
}

/// Observes and logs the validator's health until dropped.
pub(crate) async fn watch(mut told: Told, peers: impl Fn() -> Vec<PeerStatus>) {
    let logged = told.logged.clone();
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    // After a suspension of the process, do not catch up on the missed observations.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        let peers = peers();
        let mut state = logged.0.lock();
        for (identity, up) in state.links.changes(now, &peers) {
            told.link(&identity, up, &peers);
        }
        let verdict = told.live.verdict(&peers);
        if let Some(line) = state.watch.tells(now, verdict.state) {
            told.verdict(line, &verdict, &peers);
        }
        for note in state.notes.tells(now, &verdict.notes) {
            warn!("{note}");
        }
    }
}

impl Told {
    fn link(&self, identity: &Identity, up: bool, peers: &[PeerStatus]) {
        let place = self
            .live
            .committees()
            .known()
            .place(identity)
            .map(|place| place.0);
        let name = identity.short();
        let address = (self.address)(identity);
        let address = address.as_deref().unwrap_or("-");
        let connected = peers.iter().filter(|peer| peer.connected).count();
        let of = peers.len();
        match (up, place) {
            (true, _) => info!(
                validator = place,
                name, address, connected, of, "link is up"
            ),
            (false, Some(place)) => warn!(
                validator = place,
                name, address, connected, of, "link is missing"
            ),
            // One without a seat may have been switched off for good.
            (false, None) => info!(name, address, connected, of, "link is missing"),
        }
    }

    fn verdict(&mut self, line: Line, verdict: &VerdictJson, peers: &[PeerStatus]) {
        let sync = self.live.sync(peers);
        let height = sync.height;
        let rate = format!("{:.1}", sync.blocks_per_second);
        let connected = peers.iter().filter(|peer| peer.connected).count();
        let of = peers.len();
        let finality = (self.finality)().map_or_else(
            || "-".to_owned(),
            |mean| format!("{:.1}", mean.as_secs_f64() * 1_000.0),
        );
        let (voters, summary) = (verdict.voters, verdict.summary.as_str());
        // Log the remedy only when the state changes.
        let remedy = verdict.remedy.as_deref().filter(|_| line == Line::Change);
        let text = match remedy {
            Some(remedy) => format!("{summary}. Remedy: {remedy}"),
            None => summary.to_owned(),
        };
        match verdict.state.severity() {
            Severity::Bad => warn!(
                %height, blocks_per_second = rate, connected, of, voters, finality_ms = finality, "{text}"
            ),
            Severity::Good | Severity::Warning => info!(
                %height, blocks_per_second = rate, connected, of, voters, finality_ms = finality, "{text}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_once_they_last_and_heartbeats_between_them() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        let mut at = |second: u64, state| watch.tells(start + Duration::from_secs(second), state);
        use Health::{Halted, Healthy, Starting};
        let story = [
            (1, Starting, None),
            (2, Healthy, None),
            (3, Healthy, Some(Line::Change)),
            (4, Healthy, None),
            (5, Halted, None),
            // A brief change, not logged.
            (6, Healthy, None),
            (7, Halted, None),
            (8, Halted, Some(Line::Change)),
            (37, Halted, None),
            (38, Halted, Some(Line::Heartbeat)),
            (39, Healthy, None),
            (40, Healthy, Some(Line::Change)),
            (70, Healthy, Some(Line::Heartbeat)),
        ];
        for (second, state, expected) in story {
            assert_eq!(at(second, state), expected, "{second}");
        }
    }

    #[test]
    fn a_note_is_told_once_it_lasts_whatever_its_figures_and_anew_when_it_comes_back() {
        let start = Instant::now();
        let mut notes = Notes::default();
        let mut at = |second: u64, there: &[&str]| -> usize {
            let there: Vec<String> = there.iter().map(|note| (*note).to_owned()).collect();
            notes
                .tells(start + Duration::from_secs(second), &there)
                .len()
        };
        assert_eq!(at(1, &["clock is 2.5 s ahead: NTP"]), 0);
        assert_eq!(at(2, &["clock is 2.6 s ahead: NTP"]), 1);
        assert_eq!(at(3, &["clock is 2.7 s ahead: NTP"]), 0);
        assert_eq!(at(601, &["clock is 2.7 s ahead: NTP"]), 0);
        assert_eq!(at(602, &["clock is 2.7 s ahead: NTP"]), 1);
        assert_eq!(at(603, &[]), 0);
        assert_eq!(at(612, &["clock is 2.7 s ahead: NTP"]), 0);
        assert_eq!(at(613, &["clock is 2.7 s ahead: NTP"]), 0);
        assert_eq!(at(624, &["clock is 2.7 s ahead: NTP"]), 0);
        assert_eq!(at(625, &["clock is 2.7 s ahead: NTP", "other"]), 1);
    }

    fn peer(connected: bool) -> PeerStatus {
        PeerStatus {
            identity: Identity([7; 32]),
            connected,
            round_trip_us: None,
            connected_for: None,
            silent_for: Duration::ZERO,
            blocked: false,
            oversized: 0,
            refusals: 0,
            doubled_for: None,
            clock_refused: false,
            clock_ahead_ms: None,
        }
    }

    #[test]
    fn a_link_that_stays_or_is_missing_over_a_border_is_no_news() {
        let start = Instant::now();
        let mut news = LinkNews::default();
        let at = |news: &mut LinkNews, second, up: bool| {
            let changes = news.changes(start + Duration::from_secs(second), &[peer(up)]);
            changes.first().map(|(_, up)| *up)
        };
        assert_eq!(at(&mut news, 0, true), Some(true));
        assert_eq!(at(&mut news, 1, true), None);
        assert_eq!(at(&mut news, 2, false), Some(false));
        assert_eq!(at(&mut news, 30, false), None);
        // It leaves, and comes back.
        assert!(
            news.changes(start + Duration::from_secs(31), &[])
                .is_empty()
        );
        assert_eq!(at(&mut news, 32, false), None);
        assert_eq!(at(&mut news, 42, false), Some(false));
    }

    #[test]
    fn a_link_is_told_once_when_it_is_lost_and_once_when_it_is_back() {
        let start = Instant::now();
        let mut news = LinkNews::default();
        let mut at = |second: u64, connected: bool| {
            let peer = peer(connected);
            let changes = news.changes(start + Duration::from_secs(second), &[peer]);
            changes.first().map(|(_, up)| *up)
        };
        let story = [
            (0, false, None),
            (9, false, None),
            (10, false, Some(false)),
            (11, false, None),
            (12, true, Some(true)),
            (13, true, None),
            (14, false, Some(false)),
            (90, false, None),
            (91, true, Some(true)),
        ];
        for (second, connected, expected) in story {
            assert_eq!(at(second, connected), expected, "{second}");
        }
    }
}
