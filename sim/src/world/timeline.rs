//! When blocks were proposed and where they were final, what was sent and computed for it: what
//! experiments measure in virtual time.

use super::*;

/// One final block's times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockTimes {
    /// Its height.
    pub height: Height,
    /// Its view.
    pub view: View,
    /// When its proposal left the leader.
    pub proposed: Moment,
    /// When each validator knew that it is final, by their places; `None` for those that did not.
    pub known: Vec<Option<Moment>>,
}

/// One transfer's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferTimes {
    /// When its client handed it in.
    pub submitted: Moment,
    /// When the first validator had executed it, in a final block.
    pub executed: Option<Moment>,
    /// When all validators that run had a final block that names the state after it, so that each can prove it.
    pub provable: Option<Moment>,
}

/// What a validator's crypto pool did at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// When it began.
    pub at: Moment,
    /// Which host.
    pub host: usize,
    /// How long it took.
    pub takes: Duration,
    /// How many combined checks failed.
    pub failed: u32,
}

/// Everything measured in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The final blocks, ascending.
    pub blocks: Vec<BlockTimes>,
    /// Frames and bytes that each host has sent; a frame to all counts once for each receiver.
    pub sent: Vec<(u64, u64)>,
    /// The frames of all hosts by what they carry, such as "proposal, vote".
    pub kinds: BTreeMap<String, u64>,
    /// What the crypto pools did.
    pub checks: Vec<Checked>,
    /// When each view was first entered by any validator.
    pub entered: Vec<(View, Moment)>,
    /// The transfers that validators took from clients, in that order.
    pub transfers: Vec<TransferTimes>,
}

/// A timeline in the making.
#[derive(Default)]
pub(crate) struct Recorder {
    proposals: BTreeMap<Height, Vec<(Digest, View, Moment)>>,
    known: BTreeMap<Height, (Digest, Vec<Option<Moment>>)>,
    tips: BTreeMap<usize, Height>,
    /// The transfers, by their ids, as places in the timeline.
    transfers: BTreeMap<Digest, usize>,
    /// Those that are executed and not provable, by their blocks' heights.
    unproven: BTreeMap<Height, Vec<usize>>,
    /// Up to which height each validator can prove what was executed.
    named: BTreeMap<usize, Height>,
    highest: Height,
    timeline: Timeline,
}

impl Recorder {
    /// Upon a frame that leaves a host.
    pub(super) fn sent(&mut self, host: usize, at: Moment, bytes: &[u8], receivers: usize) {
        let sent = &mut self.timeline.sent;
        sent.resize(sent.len().max(host + 1), (0, 0));
        sent[host].0 += receivers as u64;
        sent[host].1 += (receivers * bytes.len()) as u64;
        let Ok(Frame(messages)) = Frame::decode(Copying(bytes)) else {
            return;
        };
        let names: BTreeSet<&str> = messages.iter().map(Message::name).collect();
        let names: Vec<&str> = names.into_iter().collect();
        *self.timeline.kinds.entry(names.join(", ")).or_default() += receivers as u64;
        for message in messages {
            if let Message::Proposal(proposal) = message {
                let header = proposal.block.header();
                let id = proposal.block.id();
                let known = self.proposals.entry(header.height).or_default();
                if !known.iter().any(|(held, ..)| *held == id) {
                    known.push((id, header.view, at));
                }
            }
        }
    }

    /// Upon a host's having looked at what came.
    pub(super) fn looked(&mut self, host: usize, hosts: usize, running: &Running, now: Moment) {
        let engine = running.machine.replica.engine();
        let tip = engine.tip();
        let before = self.tips.insert(host, tip.height).unwrap_or_default();
        for height in (before.0 + 1..=tip.height.0).map(Height) {
            let proposals = self.proposals.get(&height);
            let last = proposals.and_then(|proposals| proposals.last());
            let id = match height == tip.height {
                true => tip.id,
                false => last.map_or(Digest::ZERO, |(id, ..)| *id),
            };
            let (_, known) = self
                .known
                .entry(height)
                .or_insert_with(|| (id, vec![None; hosts]));
            known[host] = Some(now);
        }
        let view = engine.view();
        let entered = &mut self.timeline.entered;
        if entered.last().is_none_or(|(last, _)| *last < view) {
            entered.push((view, now));
        }
    }

    /// Upon a transfer that a validator takes from a client.
    pub(super) fn submitted(&mut self, id: Digest, at: Moment) {
        let transfers = &mut self.timeline.transfers;
        self.transfers.insert(id, transfers.len());
        transfers.push(TransferTimes {
            submitted: at,
            executed: None,
            provable: None,
        });
    }

    /// Upon a block that a validator has executed. `running` are all validators that run.
    pub(super) fn executed(
        &mut self,
        host: usize,
        block: &Block,
        at: Moment,
        running: impl Iterator<Item = usize>,
    ) {
        let transfers = &mut self.timeline.transfers;
        if block.height() > self.highest {
            self.highest = block.height();
            for transaction in block.transactions() {
                if let Some(place) = self.transfers.get(&transaction.id()) {
                    transfers[*place].executed = Some(at);
                    let unproven = self.unproven.entry(block.height()).or_default();
                    unproven.push(*place);
                }
            }
        }
        self.named.insert(host, block.header().executed_height);
        let named = running.map(|host| self.named.get(&host).copied().unwrap_or_default());
        let everywhere = named.min().unwrap_or_default();
        let later = self.unproven.split_off(&everywhere.next());
        for place in std::mem::replace(&mut self.unproven, later)
            .into_values()
            .flatten()
        {
            transfers[place].provable = Some(at);
        }
    }

    /// Upon a crypto pool's beginning.
    pub(super) fn checked(&mut self, host: usize, at: Moment, takes: Duration, failed: u32) {
        self.timeline.checks.push(Checked {
            at,
            host,
            takes,
            failed,
        });
    }

    fn finish(mut self) -> Timeline {
        for (height, (id, known)) in self.known {
            let proposals = self.proposals.get(&height).map_or(&[][..], |p| p);
            let Some((_, view, proposed)) = proposals.iter().find(|(held, ..)| *held == id) else {
                continue;
            };
            self.timeline.blocks.push(BlockTimes {
                height,
                view: *view,
                proposed: *proposed,
                known,
            });
        }
        self.timeline
    }
}

impl Simulation {
    /// Runs the scenario to its end, and tells when what happened.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn measure(mut self) -> Result<(Report, Timeline), Violation> {
        self.recorder = Some(Recorder::default());
        let report = self.run_watched(|_, _, _| {})?;
        let recorder = self.recorder.take().unwrap_or_default();
        Ok((report, recorder.finish()))
    }
}
