//! A participant's process from its start to its end.

use super::{
    board::Verdict,
    exchange::{self, Peer, PollError, Shared},
    message::Step,
    session::{Progress, Session},
};
use anyhow::{Context as _, bail};
use quorate_machine::live::verdict::clock_time;
use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet, time::Instant};

/// How often the terminal says what is waited for.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// How soon it says so again if something else is the case.
const TELL_CHANGE: Duration = Duration::from_secs(1);

/// How long the others are asked, before the first message, whether they have seen messages of this participant.
const FIRST_ROUND: Duration = Duration::from_secs(5);

/// How long the proof of a fault is shown to those who may not have seen it.
const SHOW_FAULT: Duration = Duration::from_secs(30);

/// How long the last message is shown to those who may not have seen it.
const SHOW_END: Duration = Duration::from_secs(10);

/// How long both are shown if all who may not have seen them cannot be reached.
const SHOW_GONE: Duration = Duration::from_secs(4);

/// How often it is looked whether time is up.
const TICK: Duration = Duration::from_millis(250);

/// Most participants that one line names.
const MAX_NAMED: usize = 8;

/// How a ceremony has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All participants have the result.
    Over,
    /// This one has it; it is not known of these.
    Alone { missing: Vec<u32> },
}

/// Takes part in a ceremony until all are done, or until `patience` has passed since this participant was. `say` shows
/// a line to the operator.
///
/// # Errors
///
/// If a participant is faulty, the file system fails, or the operator interrupts before this participant is done.
pub async fn run(
    session: &mut Session<'_>,
    shared: &Arc<Shared>,
    listener: TcpListener,
    hosts: Vec<String>,
    patience: Duration,
    say: &mut dyn FnMut(String),
) -> anyhow::Result<Ended> {
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(exchange::serve(shared.clone(), listener, hosts, async {
        let _ = stopped.await;
    }));
    let mut polls = JoinSet::new();
    let others = (0..).zip(shared.board().plan().participants.clone());
    for (place, participant) in others.filter(|(place, _)| *place != shared.own()) {
        polls.spawn(exchange::poll(
            shared.clone(),
            place,
            participant.address()?,
        ));
    }
    let taking_part = TakingPart {
        session,
        shared,
        patience,
        say,
        since: Instant::now(),
        told: None,
        told_states: String::new(),
        step: None,
        ending_since: None,
        is_over: false,
    };
    let ended = tokio::select! {
        ended = taking_part.until_the_end() => ended,
        Some(failed) = polls.join_next() => match failed {
            Ok(Err(error)) => Err(error),
            _ => bail!("a task that asks another participant has ended"),
        },
    };
    drop(stop);
    served.await.context("the server has failed")?;
    ended
}

struct TakingPart<'a, 'b> {
    session: &'a mut Session<'b>,
    shared: &'a Arc<Shared>,
    patience: Duration,
    say: &'a mut dyn FnMut(String),
    /// When the step began.
    since: Instant,
    told: Option<Instant>,
    /// What was said of each that is waited for.
    told_states: String,
    step: Option<Step>,
    /// Since when only others are waited for.
    ending_since: Option<Instant>,
    is_over: bool,
}

impl TakingPart<'_, '_> {
    async fn until_the_end(mut self) -> anyhow::Result<Ended> {
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        if self.session.is_new() {
            let asked = async {
                while !self.shared.do_all(|peer| peer.last.is_some()) {
                    self.shared.changed().await;
                }
            };
            tokio::select! {
                _ = tokio::time::timeout(FIRST_ROUND, asked) => {}
                _ = &mut interrupted => bail!("interrupted before anything was signed"),
            }
        }
        loop {
            let progress = tokio::task::block_in_place(|| self.session.advance())?;
            match progress {
                Progress::Faulty(verdict) => {
                    if self.is_enough(SHOW_FAULT, |peer| peer.has_failed) {
                        return Err(self.failure(&verdict));
                    }
                }
                Progress::Over => {
                    if !self.is_over {
                        self.is_over = true;
                        self.ending_since = None;
                        self.session.folder().close()?;
                    }
                    if self.is_enough(SHOW_END, |peer| peer.is_over) {
                        return Ok(Ended::Over);
                    }
                }
                Progress::Waiting(step) => {
                    self.begin(step);
                    if step == Step::Done && self.is_time_up(self.patience) {
                        return Ok(self.alone());
                    }
                }
            }
            self.tell(&progress);
            tokio::select! {
                () = self.shared.changed() => {}
                () = tokio::time::sleep(TICK) => {}
                _ = &mut interrupted => return match progress {
                    Progress::Faulty(verdict) => Err(self.failure(&verdict)),
                    Progress::Over => Ok(Ended::Over),
                    Progress::Waiting(Step::Done) => Ok(self.alone()),
                    Progress::Waiting(_) => bail!(
                        "interrupted; the same command goes on with this ceremony"
                    ),
                },
            }
        }
    }

    /// Whether so much time has passed since this was asked first.
    fn is_time_up(&mut self, limit: Duration) -> bool {
        let since = self.ending_since.get_or_insert_with(Instant::now);
        since.elapsed() >= limit
    }

    /// Whether all others know what this process knows, or the time is up for those who do not. Who has ended is
    /// given less time: it may have known.
    fn is_enough(&mut self, limit: Duration, knows: fn(&Peer) -> bool) -> bool {
        let is_gone = |peer: &Peer| matches!(peer.last, Some(Err(PollError::NoConnection)));
        self.is_time_up(limit)
            || self.shared.do_all(knows)
            || (self.is_time_up(SHOW_GONE)
                && self.shared.do_all(|peer| knows(peer) || is_gone(peer)))
    }

    fn begin(&mut self, step: Step) {
        if self.step == Some(step) {
            return;
        }
        self.step = Some(step);
        self.since = Instant::now();
        self.told = None;
    }

    fn alone(&self) -> Ended {
        let missing = self.shared.board().missing(Step::Done);
        Ended::Alone { missing }
    }

    fn failure(&self, verdict: &Verdict) -> anyhow::Error {
        let board = self.shared.board();
        let what = verdict.describe(board.plan());
        let proof = self.session.folder().path(super::folder::RECORD_FILE);
        let proof = proof.display();
        let remedy = match verdict.guilty == self.shared.own() {
            true => {
                "This is THIS participant: is another process running with its key, or was its folder lost?"
            }
            false => "Make another plan without this participant.",
        };
        anyhow::anyhow!(
            "the ceremony has failed: {what}. {remedy} The proof is in {proof}; anybody can check it with `quorate genesis \
             ceremony verify {proof}`"
        )
    }

    fn tell(&mut self, progress: &Progress) {
        let passed = self.told.map(|told| told.elapsed());
        if passed.is_some_and(|passed| passed < TELL_CHANGE) {
            return;
        }
        let (line, states) = match progress {
            Progress::Over => return,
            Progress::Faulty(verdict) => {
                let what = verdict.describe(self.shared.board().plan());
                let line = format!("FAILED: {what}. Showing the proof to the others for a moment");
                (line, String::new())
            }
            Progress::Waiting(step) => {
                let states = self.states(*step);
                (format!("{}{states}", self.since(*step)), states)
            }
        };
        if passed.is_some_and(|passed| passed < TELL_EVERY) && states == self.told_states {
            return;
        }
        self.told = Some(Instant::now());
        self.told_states = states;
        (self.say)(line);
    }

    /// What is here, and since when more is waited for.
    fn since(&self, step: Step) -> String {
        let board = self.shared.board();
        let size = board.plan().participants.len();
        let here = size - board.missing(step).len();
        let seconds = self.since.elapsed().as_secs();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let began = now.unwrap_or_default().saturating_sub(self.since.elapsed());
        let began = clock_time(u64::try_from(began.as_millis()).unwrap_or(0));
        format!("{step}: {here} of {size}; waiting since {began} ({seconds} s) for ")
    }

    /// For whom it is waited, and how each of them is.
    fn states(&self, step: Step) -> String {
        let board = self.shared.board();
        let missing = board.missing(step);
        let mut line = String::new();
        for (index, place) in missing.iter().take(MAX_NAMED).enumerate() {
            let separator = if index > 0 { "; " } else { "" };
            let state = self.state_of(*place);
            let _ = write!(line, "{separator}{}: {state}", board.plan().name_of(*place));
        }
        if missing.len() > MAX_NAMED {
            let _ = write!(line, "; and {} more", missing.len() - MAX_NAMED);
        }
        line
    }

    fn state_of(&self, place: u32) -> String {
        match self.shared.peer(place).last {
            _ if place == self.shared.own() => "that is this one".into(),
            None => "it is being asked".into(),
            Some(Ok(())) => "its process answers, and has not sent it yet".into(),
            Some(Err(error @ PollError::OtherPlan { .. })) => {
                format!("{error}. Compare the files; all need the same")
            }
            Some(Err(error)) => error.to_string(),
        }
    }
}
