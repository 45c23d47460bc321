//! A node that follows the chain without a vote, without its threads: it verifies, executes, and serves
//! clients, other followers, and those who fetch a snapshot.
//!
//! It has the parts of a validator ([`crate::machine`]) that come after consensus. In the place of the
//! replica, [`Follower`] fetches final blocks from the nodes that it follows.

use crate::{
    accounts::Accounts,
    conduct::Conduct,
    directory::Directory,
    executor::{Executor, ExecutorHandle, Observed, Retention},
    follow::{FollowParts, Follower, KnownUpstreams},
    ingest::{FORWARD_AT_LATEST, FORWARDED, Forwarder, Ingest},
    inlet::FollowerInlet,
    keeper::{self, Keep, Keeper},
    ledger::Rules,
    live::LiveStatus,
    machine::{Inherited, SeenVotes, Surroundings},
    mempool::{Mempool, MempoolLimits},
    serve::{Server, Sources, Upload, requests},
    snapshots::{SnapshotTaker, Snapshots},
    sync::{Arrivals, SyncInbox, VerifyCertificate, inbox},
    turns::turns,
};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};
use quorate_lanes::Lane;
use quorate_storage::{
    store::Store,
    tree::{TableRows, Tree},
};
use quorate_types::{Committees, Frame, Head, Identity, genesis::Genesis};
use std::{sync::Arc, time::Duration};

/// The settings of a follower.
pub struct FollowerSettings {
    pub genesis: Arc<Genesis>,
    pub committees: Committees,
    /// The nodes that it follows.
    pub upstreams: Vec<Identity>,
    /// The nodes that follow it.
    pub followers: Vec<Identity>,
    pub mempool: MempoolLimits,
    /// Which blocks to keep; `None` for all.
    pub retention: Option<Retention>,
    /// Whether the state is fetched rather than more blocks than are to be kept.
    pub prefers_state: bool,
    /// Blocks between snapshots of the state; 0 for none.
    pub snapshot_interval: u64,
    /// What those who fetch from it get.
    pub upload: Upload,
    /// What the parts before these leave behind, in the same process.
    pub inherited: Option<Inherited>,
    /// The longest that a block takes, by the configuration.
    pub usual_interval: Duration,
}

/// Receives all frames from the links.
pub struct FollowerFrames {
    upstreams: Directory,
    inbox: SyncInbox,
    downstream: FollowerInlet,
    /// Whether the nodes that it follows are served as well: where validators come and leave, they may follow it
    /// in turn.
    serves_upstreams: bool,
}

impl FollowerFrames {
    /// Receives one frame.
    pub fn receive(&self, from: Identity, lane: Lane, bytes: Bytes) {
        match self.upstreams.find(&from) {
            Some(_) if !(self.serves_upstreams && is_a_followers(lane, &bytes)) => {
                self.inbox.frame(from, bytes);
            }
            _ => self.downstream.receive(from, lane, bytes),
        }
    }
}

/// Whether a frame of a node that this one follows is one that its followers send: it may follow this one.
fn is_a_followers(lane: Lane, frame: &Bytes) -> bool {
    lane == Lane::Transactions || (lane == Lane::Fetch && asks(frame))
}

/// Whether a frame begins with a request.
fn asks(frame: &Bytes) -> bool {
    let mut asks = false;
    let first = |head: Head| {
        asks = matches!(
            head,
            Head::BlockRequest
                | Head::RangeRequest
                | Head::FollowRequest
                | Head::SnapshotRequest
                | Head::ChunkRequest
                | Head::HandoverRequest
        );
        Err::<(), ()>(())
    };
    let _ = Frame::read_judged(frame.clone(), first);
    asks
}

/// A follower in parts, each for a thread of its own.
pub struct FollowerMachine {
    pub follower: Follower,
    /// What the follower waits for.
    pub arrivals: Arrivals,
    /// Where links are reported.
    pub inbox: SyncInbox,
    pub frames: FollowerFrames,
    pub server: Server,
    pub ingest: Ingest,
    pub forwarder: Forwarder,
    pub executor: Executor,
    pub executed: ExecutorHandle,
    pub accounts: Accounts,
    pub mempool: Arc<Mempool>,
    pub keeper: Keeper,
    pub kept: Receiver<Keep>,
    pub to_keeper: Sender<Keep>,
    pub live: Arc<LiveStatus>,
    pub snapshots: Arc<Snapshots>,
    known: KnownUpstreams,
    seen: SeenVotes,
}

impl FollowerMachine {
    /// What these parts leave to the next ones.
    pub fn leaves(&self) -> Inherited {
        Inherited {
            mempool: self.mempool.clone(),
            accounts: self.accounts.clone(),
            snapshots: self.snapshots.clone(),
            upstreams: self.known.clone(),
            unanswered: self.server.unanswered(),
            seen: self.seen.clone(),
        }
    }

    /// Assembles a follower that continues from its database.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn assemble(
        settings: FollowerSettings,
        (store, tree): (Store, Tree<TableRows>),
        around: Surroundings,
        verify: VerifyCertificate,
    ) -> anyhow::Result<Self> {
        let genesis = settings.genesis;
        let (clock, metrics) = (around.clock, around.metrics);
        let chain = genesis.chain_id();
        let serves_upstreams = settings.committees.can_change();
        let also = settings.upstreams.iter().filter(|_| serves_upstreams);
        let downstream = settings.followers.iter().chain(also).copied();
        let downstream = Directory::of(downstream.collect());
        let upstreams = Directory::of(settings.upstreams);
        let taken_up = Inherited::taken_up(settings.inherited, &store, &clock);
        let (accounts, snapshots) = (taken_up.accounts, taken_up.snapshots);
        let mempool = keeper::mempool(
            clock.now(),
            (settings.mempool, taken_up.mempool),
            &genesis,
            settings.committees.known().identities(),
            (&store, &accounts),
        )?;
        let live = Arc::new(LiveStatus::of_follower(settings.committees.clone()));
        let tip = store.tip();
        live.begin_at(tip.height, settings.usual_interval);
        live.set_progress(
            genesis.epoch_blocks.epoch_of(tip.height),
            tip.view,
            tip.height,
        );
        let timestamp_ms = tip.block.map_or(0, |block| block.header().timestamp_ms);
        live.set_executed(tip.height, timestamp_ms);
        let conduct = Arc::new(Conduct::new(
            settings.committees.clone(),
            clock.clone(),
            metrics.clone(),
            live.clone(),
            around.cut.clone(),
        ));
        let (to_server, waiting) = requests(&downstream, taken_up.unanswered);
        let (to_ingest, forwarded) = turns(downstream.size(), FORWARDED);
        let (to_keeper, kept) = unbounded();
        let observed = Observed {
            clock: clock.clone(),
            mempool: mempool.clone(),
            live: live.clone(),
            metrics: metrics.clone(),
            requests: to_server.clone(),
            payloads: None,
        };
        let (executor, executed) = Executor::new(
            accounts.clone(),
            (store.clone(), tree),
            SnapshotTaker::new(
                snapshots.clone(),
                settings.snapshot_interval,
                settings.committees.can_change(),
            ),
            (
                settings.committees.clone(),
                Rules::of(&genesis).knowing(&settings.committees),
            ),
            settings.retention,
            (
                Box::new(move |block| observed.executed(block)),
                Box::new(|| None),
            ),
            metrics.clone(),
        )?;
        let follower = Follower::new(FollowParts {
            chain,
            epoch_length: genesis.epoch_blocks,
            upstreams: upstreams.clone(),
            committees: settings.committees.clone(),
            known: taken_up.upstreams.clone(),
            faults: settings.committees.known().faults(),
            most_missing: settings
                .retention
                .map(|retention| retention.blocks)
                .filter(|_| settings.prefers_state),
            store: store.clone(),
            clock: clock.clone(),
            wire: around.wire.clone(),
            cut: around.cut,
            verify,
            executor: executed.clone(),
            live: live.clone(),
            metrics: metrics.clone(),
        });
        let (inbox, arrivals) = inbox(upstreams.clone());
        Ok(Self {
            follower,
            arrivals,
            frames: FollowerFrames {
                upstreams,
                inbox: inbox.clone(),
                downstream: FollowerInlet::new(
                    downstream.clone(),
                    clock.clone(),
                    conduct.clone(),
                    (to_server, to_ingest),
                    metrics.clone(),
                    settings.committees.can_change(),
                ),
                serves_upstreams,
            },
            inbox,
            server: Server::new(
                Sources {
                    store: store.clone(),
                    snapshots: snapshots.clone(),
                    epoch_length: genesis.epoch_blocks,
                    peers: downstream.clone(),
                    live: live.clone(),
                },
                settings.upload,
                clock.clone(),
                (around.wire.clone(), around.in_flight),
                waiting,
                metrics.clone(),
            ),
            ingest: Ingest {
                clock: clock.clone(),
                chain,
                peers: downstream,
                application: genesis.application,
                fees: genesis.fees,
                accounts: accounts.clone(),
                mempool: mempool.clone(),
                metrics: metrics.clone(),
                conduct,
                forwarded,
            },
            forwarder: Forwarder {
                clock,
                committees: settings.committees,
                mempool: mempool.clone(),
                live: live.clone(),
                wire: around.wire,
                at_latest: FORWARD_AT_LATEST,
            },
            executor,
            executed,
            accounts,
            keeper: Keeper {
                store,
                mempool: mempool.clone(),
                metrics,
            },
            mempool,
            kept,
            to_keeper,
            live,
            snapshots,
            known: taken_up.upstreams,
            seen: taken_up.seen,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonware_codec::Encode as _;
    use quorate_types::{Height, Message};

    #[test]
    fn requests_of_those_that_it_follows_are_told_from_their_answers() {
        let frame = |message| Frame(vec![message]).encode();
        assert!(asks(&frame(Message::FollowRequest(Height(7)))));
        assert!(asks(&frame(Message::RangeRequest(Height(7)))));
        let reply = Message::RangeReply {
            blocks: Vec::new(),
            finalization: None,
        };
        assert!(!asks(&frame(reply)));
        assert!(!asks(&Bytes::new()) && !asks(&Bytes::from_static(b"garbage")));
        // Its clients' transactions are passed on.
        assert!(is_a_followers(Lane::Transactions, &Bytes::new()));
        let request = frame(Message::FollowRequest(Height(7)));
        assert!(is_a_followers(Lane::Fetch, &request));
        assert!(!is_a_followers(Lane::Votes, &request));
    }
}
