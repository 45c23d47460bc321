//! Links over real sockets: delivery, refusal, reconnection, blocking, failure.

#![allow(clippy::unwrap_used)]

mod common;

use bytes::Bytes;
use common::{
    Node, PATIENCE, StoppablePeer, config, inbox, key, mesh, run, run_with, socket, until,
};
use commonware_runtime::{
    Spawner as _, Supervisor as _,
    tokio::{Config as RuntimeConfig, Context},
};
use prometheus::Registry;
use quorate_crypto::Identity;
use quorate_p2p::{Config, DEFAULT_FRAME_BYTES, Error, Lane, Timing, To, start, start_on};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::net::TcpListener;

#[test]
fn full_mesh_of_four_delivers_on_each_lane() {
    run(|context| async move {
        let nodes = mesh(&context, 4).await;
        for sender in &nodes {
            for lane in Lane::ALL {
                sender.links.send(lane, &To::All, lane.name().into());
            }
        }
        for receiver in &nodes {
            for sender in &nodes {
                for lane in Lane::ALL {
                    let own = sender.identity() == receiver.identity();
                    let frame = lane.name().as_bytes();
                    if own {
                        assert!(!receiver.has(sender.identity(), lane, frame));
                    } else {
                        let arrived = || receiver.has(sender.identity(), lane, frame);
                        until("each frame", arrived).await;
                    }
                }
            }
        }
    });
}

#[test]
fn largest_proposal_arrives_whole_and_from_a_plain_thread() {
    run(|context| async move {
        let nodes = mesh(&context, 4).await;
        let frame: Bytes = (0..DEFAULT_FRAME_BYTES)
            .map(|index| (index % 251) as u8)
            .collect();
        let (links, sent) = (nodes[0].links.clone(), frame.clone());
        std::thread::spawn(move || links.send(Lane::Votes, &To::All, sent))
            .join()
            .unwrap();
        for receiver in &nodes[1..] {
            let arrived = || receiver.has(nodes[0].identity(), Lane::Votes, &frame);
            until("4 MiB", arrived).await;
        }
        assert_eq!(nodes[0].unsent(Lane::Votes, "queue_full"), 0);
    });
}

#[test]
fn some_reaches_only_those_named() {
    run(|context| async move {
        let nodes = mesh(&context, 4).await;
        let sender = nodes[0].identity();
        let named = vec![nodes[1].identity(), nodes[3].identity()];
        nodes[0]
            .links
            .send(Lane::Fetch, &To::Some(named), "to some".into());
        // Frames of a lane keep their order, so when the second one is there, the first was not
        // sent to this node.
        nodes[0].links.send(Lane::Fetch, &To::All, "to all".into());
        for (place, receiver) in nodes.iter().enumerate().skip(1) {
            until("the second", || {
                receiver.has(sender, Lane::Fetch, b"to all")
            })
            .await;
            assert_eq!(receiver.has(sender, Lane::Fetch, b"to some"), place != 2);
        }
        let stranger = To::One(key(99).identity());
        nodes[0].links.send(Lane::Fetch, &stranger, "x".into());
        assert_eq!(nodes[0].unsent(Lane::Fetch, "unknown_peer"), 1);
    });
}

#[test]
fn frame_of_another_chain_is_refused_and_counted() {
    run(|context| async move {
        let (one_socket, one) = socket().await;
        let (other_socket, other) = socket().await;
        let peers = [(key(1).identity(), one), (key(2).identity(), other)];
        let receiver = Node::start_on(&context, one_socket, config(1, one, &peers)).await;
        let mut foreign = config(2, other, &peers);
        foreign.frame_tag = *b"another!";
        let sender = Node::start_on(&context, other_socket, foreign).await;
        until("a refused frame", || {
            sender.links.send(Lane::Votes, &To::All, "vote".into());
            receiver.refused(Lane::Votes, "tag") > 0
        })
        .await;
        assert!(receiver.inbox.lock().unwrap().is_empty());
        assert_eq!(receiver.links.connected(), 0, "pings carry the tag, too");
    });
}

#[test]
fn oversize_and_empty_frames_are_refused_by_the_sender() {
    run(|context| async move {
        let nodes = mesh(&context, 2).await;
        let links = &nodes[0].links;
        let to = To::One(nodes[1].identity());
        for (lane, limit) in [
            (Lane::Votes, DEFAULT_FRAME_BYTES),
            (Lane::Fetch, DEFAULT_FRAME_BYTES),
            (Lane::Transactions, 1 << 20),
            (Lane::Control, 64 << 10),
        ] {
            links.send(lane, &to, Bytes::from(vec![7; limit + 1]));
            links.send(lane, &to, Bytes::new());
            assert_eq!(nodes[0].unsent(lane, "oversize"), 1);
            assert_eq!(nodes[0].unsent(lane, "empty"), 1);
            let largest = vec![7; limit];
            links.send(lane, &to, Bytes::from(largest.clone()));
            let arrived = || nodes[1].has(nodes[0].identity(), lane, &largest);
            until("the largest frame", arrived).await;
        }
        assert_eq!(nodes[1].inbox.lock().unwrap().len(), Lane::ALL.len());
    });
}

#[test]
fn restarted_peer_is_reconnected_and_receives() {
    run(|context| async move {
        let mut nodes = mesh(&context, 4).await;
        let mut last = nodes.pop().unwrap();
        let identity = last.identity();
        last.stop().await;
        let noticed = until("the loss", || {
            nodes.iter().all(|n| n.links.connected() == 2)
        })
        .await;
        nodes[0]
            .links
            .send(Lane::Votes, &To::One(identity), "lost".into());
        assert_eq!(nodes[0].unsent(Lane::Votes, "offline"), 1);

        let last = Node::start_again(last.config, &context).await.unwrap();
        let back = until("the return", || {
            last.links.connected() == 3 && nodes.iter().all(|n| n.links.connected() == 3)
        })
        .await;
        println!("loss noticed in {noticed:?}, reconnected in {back:?}");
        nodes[0].links.send(Lane::Votes, &To::All, "after".into());
        let arrived = || last.has(nodes[0].identity(), Lane::Votes, b"after");
        until("a frame after the restart", arrived).await;
        assert!(!last.has(nodes[0].identity(), Lane::Votes, b"lost"));
    });
}

type Seat = (u8, TcpListener, SocketAddr);

/// Two validators, the lower identity first, and the list of peers.
async fn lower_and_higher() -> ([Seat; 2], [(Identity, SocketAddr); 2]) {
    let mut seeds = [1, 2];
    seeds.sort_by_key(|seed| key(*seed).identity());
    let [lower, higher] = seeds;
    let ((low_socket, low), (high_socket, high)) = (socket().await, socket().await);
    let peers = [(key(lower).identity(), low), (key(higher).identity(), high)];
    let seats = [(lower, low_socket, low), (higher, high_socket, high)];
    (seats, peers)
}

async fn start_wide(context: &Context, seat: Seat, peers: &[(Identity, SocketAddr)]) -> Node {
    let (seed, listener, address) = seat;
    let config = Config {
        timing: Timing::Wide,
        ..config(seed, address, peers)
    };
    Node::start_on(context, listener, config).await
}

fn linked(one: &Node, other: &Node) -> bool {
    one.links.connected() == 1 && other.links.connected() == 1
}

#[test]
fn across_regions_the_higher_identity_waits_to_be_dialled_and_then_dials() {
    run(|context| async move {
        let ([(_, silent, _), higher], peers) = lower_and_higher().await;
        let start = Instant::now();
        let _higher = start_wide(&context, higher, &peers).await;
        let dialled = tokio::time::timeout(PATIENCE, silent.accept()).await;
        dialled.expect("it dials in the end").unwrap();
        assert!(start.elapsed() >= Duration::from_secs(3), "it did not wait");
    });
}

#[test]
fn a_link_is_made_though_only_the_higher_identity_can_reach_the_other() {
    run(|context| async move {
        let ([lower, higher], [low, high]) = lower_and_higher().await;
        let (nobody, unreachable) = socket().await;
        drop(nobody);
        let lower = start_wide(&context, lower, &[(high.0, unreachable)]).await;
        let higher = start_wide(&context, higher, &[low]).await;
        until("a link", || linked(&lower, &higher)).await;
    });
}

#[test]
fn across_regions_a_restarted_peer_is_back_though_it_waits_to_be_dialled() {
    run(|context| async move {
        let ([lower, higher], peers) = lower_and_higher().await;
        let lower = start_wide(&context, lower, &peers).await;
        let mut higher = start_wide(&context, higher, &peers).await;
        until("a link", || linked(&lower, &higher)).await;
        higher.stop().await;
        until("the loss", || lower.links.connected() == 0).await;
        let higher = Node::start_again(higher.config, &context).await.unwrap();
        until("the return", || linked(&lower, &higher)).await;
    });
}

/// The name first does not resolve, then resolves to an address where no one listens, then to the
/// peer.
#[test]
fn a_peer_is_found_by_a_name_that_is_looked_up_until_there_is_a_link() {
    run(|context| async move {
        let ([lower, higher], [low, high]) = lower_and_higher().await;
        let name = format!("peer.test:{}", high.1.port());
        let lookups = Arc::new(AtomicUsize::new(0));
        let counted = lookups.clone();
        let (seed, listener, address) = lower;
        let mut config = config(seed, address, &[]);
        config.timing = Timing::Wide;
        config.peers = vec![(high.0, name.parse().unwrap())];
        config.lookup = Arc::new(move |host| {
            assert_eq!(host, "peer.test");
            match counted.fetch_add(1, Ordering::Relaxed) {
                0 => Err(std::io::Error::other("no such host")),
                1 => Ok(vec![[127, 0, 0, 77].into()]),
                _ => Ok(vec![[127, 0, 0, 1].into()]),
            }
        });
        let lower = Node::start_on(&context, listener, config).await;
        let known = lower.links.address(&high.0).unwrap();
        assert_eq!((known.0.to_string(), known.1), (name, None));
        let higher = start_wide(&context, higher, &[low]).await;
        until("a link", || linked(&lower, &higher)).await;
        assert!(lookups.load(Ordering::Relaxed) >= 3);
        assert_eq!(lower.links.address(&high.0).unwrap().1, Some(high.1));
    });
}

#[test]
fn a_peer_that_has_moved_is_linked_again_at_the_address_that_is_named_for_it() {
    run(|context| async move {
        let ([lower, higher], [low, high]) = lower_and_higher().await;
        let (nobody, gone) = socket().await;
        drop(nobody);
        // No side dials: the higher one would, but from an address that the other does not expect.
        let elsewhere = "127.0.0.99:1".parse().unwrap();
        let lower = start_wide(&context, lower, &[(high.0, elsewhere)]).await;
        let higher = start_wide(&context, higher, &[(low.0, gone)]).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!linked(&lower, &higher));
        lower.links.set_addresses(&[(high.0, high.1.into())]);
        until("a link", || linked(&lower, &higher)).await;
        lower.links.set_addresses(&[(high.0, gone.into())]);
        until("the new address", || {
            lower.links.address(&high.0).unwrap().1 == Some(gone)
        })
        .await;
        // The IP address is the same. Had the link ended, neither could dial the other again.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(linked(&lower, &higher), "the link stays");
        lower.links.set_addresses(&[(high.0, elsewhere.into())]);
        until("the end of the link", || lower.links.connected() == 0).await;
    });
}

/// All look for the third one where the first is, and it is the first's own calls that tell it so.
#[test]
fn a_peer_with_the_address_of_another_one_makes_nobody_look_doubled() {
    run(|context| async move {
        let ([lower, higher], peers) = lower_and_higher().await;
        let known = [peers[0], peers[1], (key(9).identity(), peers[0].1)];
        let first = start_wide(&context, lower, &known).await;
        let second = start_wide(&context, higher, &known).await;
        until("a link", || linked(&first, &second)).await;
        let doubled = || {
            let peer = first.links.peer(&second.identity()).unwrap();
            peer.doubled_for.unwrap_or_default()
        };
        // Without its own calls it would count from the second's first call on.
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_millis(250)).await;
            assert!(doubled() < Duration::from_secs(9));
        }
        assert_eq!(doubled(), Duration::ZERO);
        let refused = [("outcome", "refused")];
        assert!(first.count("quorate_p2p_handshakes_total", &refused) > 2);
    });
}

#[test]
fn block_stops_delivery_in_both_directions_until_it_is_lifted() {
    run(|context| async move {
        let nodes = mesh(&context, 3).await;
        let (blocker, blocked, witness) = (&nodes[0], &nodes[1], &nodes[2]);
        blocker.links.block(blocked.identity());
        let status = blocker.links.peer(&blocked.identity()).unwrap();
        assert!(status.blocked && !status.connected);

        let before = blocker.inbox.lock().unwrap().len();
        blocker.links.send(Lane::Votes, &To::All, "to two".into());
        until("the witness", || {
            witness.has(blocker.identity(), Lane::Votes, b"to two")
        })
        .await;
        assert_eq!(blocker.unsent(Lane::Votes, "blocked"), 1);
        until("the end of the link", || blocked.links.connected() == 1).await;
        blocked.links.send(Lane::Votes, &To::All, "from it".into());
        until("the witness", || {
            witness.has(blocked.identity(), Lane::Votes, b"from it")
        })
        .await;
        assert_eq!(blocker.inbox.lock().unwrap().len(), before);
        assert_eq!(blocked.inbox.lock().unwrap().len(), 0);

        // The library's own block has ended long before this one, which still holds.
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(blocked.links.connected(), 1, "it stays blocked");
        blocker.links.unblock(blocked.identity());
        assert!(!blocker.links.peer(&blocked.identity()).unwrap().blocked);
        let lifted = Instant::now();
        until("the link", || {
            blocker.links.connected() == 2 && blocked.links.connected() == 2
        })
        .await;
        assert!(
            lifted.elapsed() < Duration::from_secs(20),
            "not after a minute"
        );
    });
}

#[test]
fn address_in_use_is_an_error_that_names_it() {
    run(|context| async move {
        let (_taken, address) = socket().await;
        let registry = Registry::new();
        let (_, inbound) = inbox();
        let started = start(
            context.child("second"),
            config(1, address, &[]),
            inbound,
            &registry,
        )
        .await;
        let error = started.err().expect("the address is taken");
        assert!(matches!(error, Error::AddressInUse { listen } if listen == address));
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    });
}

#[test]
fn foreign_namespace_cannot_connect() {
    run(|context| async move {
        let (one_socket, one) = socket().await;
        let (other_socket, other) = socket().await;
        let peers = [(key(1).identity(), one), (key(2).identity(), other)];
        let node = Node::start_on(&context, one_socket, config(1, one, &peers)).await;
        let mut foreign = config(2, other, &peers);
        foreign.namespace = b"another chain".to_vec();
        let stranger = Node::start_on(&context, other_socket, foreign).await;
        let failed = |node: &Node, outcome| {
            node.count("quorate_p2p_handshakes_total", &[("outcome", outcome)])
        };
        until("failed handshakes", || {
            failed(&node, "authentication") + failed(&stranger, "authentication") > 3
        })
        .await;
        assert_eq!(failed(&node, "completed"), 0);
        assert_eq!(node.links.connected() + stranger.links.connected(), 0);
    });
}

#[test]
fn round_trips_are_measured() {
    run(|context| async move {
        let nodes = mesh(&context, 2).await;
        let status = nodes[0].links.peers()[0];
        assert_eq!(status.identity, nodes[1].identity());
        let round_trip_us = status.round_trip_us.expect("connected");
        assert!((1..1_000_000).contains(&round_trip_us), "{round_trip_us}");
        assert!(status.connected_for.is_some());
    });
}

#[test]
fn silent_peer_is_disconnected_within_three_seconds_and_comes_back() {
    run(|context| async move {
        let (node, peer) = with_stoppable_peer(&context).await;
        peer.stop(&node).await;
        let noticed = until("the silence", || node.links.connected() == 0).await;
        assert!(noticed < Duration::from_secs(4), "{noticed:?}");
        peer.release();
        let back = until("the return", || node.links.connected() == 1).await;
        println!("silence noticed in {noticed:?}, back in {back:?}");
        peer.finish();
    });
}

#[test]
fn votes_overtake_blocks_and_blocks_overtake_transactions() {
    const FRAMES: usize = 24;
    run(|context| async move {
        let (node, peer) = with_stoppable_peer(&context).await;
        // The peer does not read while this is queued, so the order does not depend on speed.
        peer.stop(&node).await;
        let large = Bytes::from(vec![1; 1 << 20]);
        for lane in [Lane::Transactions, Lane::Fetch] {
            for _ in 0..FRAMES {
                node.links.send(lane, &To::All, large.clone());
            }
        }
        node.links.send(Lane::Votes, &To::All, "vote".into());
        peer.release();
        let inbox = peer.inbox.clone();
        let all = 2 * FRAMES + 2;
        until("all frames", || inbox.lock().unwrap().len() == all).await;
        let order: Vec<Lane> = inbox
            .lock()
            .unwrap()
            .iter()
            .map(|(_, lane, _)| *lane)
            .collect();
        peer.finish();
        // In the peer, each lane has its own task that may take several frames at once, so the
        // observed order is only approximate. If frames arrived in the order of sending, the vote
        // would be last, and the blocks would come 24 places after the transactions on average.
        let places = |lane| {
            let places = order
                .iter()
                .enumerate()
                .filter(move |(_, found)| **found == lane);
            places.map(|(place, _)| place).sum::<usize>()
        };
        assert!(places(Lane::Votes) < FRAMES, "{order:?}");
        let (blocks, transactions) = (places(Lane::Fetch), places(Lane::Transactions));
        assert!(blocks / FRAMES + 8 < transactions / FRAMES, "{order:?}");
    });
}

#[test]
fn peer_that_does_not_read_costs_bounded_memory_and_no_time() {
    run(|context| async move {
        let (node, peer) = with_stoppable_peer(&context).await;
        peer.stop(&node).await;
        let frame = Bytes::from(vec![1; DEFAULT_FRAME_BYTES]);
        let start = Instant::now();
        for _ in 0..100 {
            node.links.send(Lane::Fetch, &To::All, frame.clone());
        }
        for _ in 0..1_000 {
            node.links.send(Lane::Votes, &To::All, "vote".into());
        }
        assert!(start.elapsed() < Duration::from_secs(1), "send waits");
        // 32 MiB may be queued, and a little is in the connection.
        assert!(node.unsent(Lane::Fetch, "queue_full") >= 88);
        // A burst of 128, plus what the quota grants meanwhile.
        assert!(node.unsent(Lane::Votes, "quota") > 0);
        peer.release();
        until("the first block", || !peer.inbox.lock().unwrap().is_empty()).await;
        peer.finish();
        until("the end of the link", || node.links.connected() == 0).await;
    });
}

async fn with_stoppable_peer(context: &Context) -> (Node, StoppablePeer) {
    let (one_socket, one) = socket().await;
    let (other_socket, other) = socket().await;
    let peers = [(key(1).identity(), one), (key(2).identity(), other)];
    let node = Node::start_on(context, one_socket, config(1, one, &peers)).await;
    let peer = StoppablePeer::start(other_socket, config(2, other, &peers));
    until("the link", || node.links.connected() == 1).await;
    (node, peer)
}

#[test]
fn end_of_a_task_ends_the_network_with_an_error() {
    run_with(
        RuntimeConfig::new().with_catch_panics(true),
        |context| async move {
            let (one_socket, one) = socket().await;
            let (other_socket, other) = socket().await;
            let peers = [(key(1).identity(), one), (key(2).identity(), other)];
            let registry = Registry::new();
            let (links, running) = start_on(
                context.child("failing"),
                one_socket,
                config(1, one, &peers),
                Arc::new(|_, _, _| panic!("a bug in the node")),
                &registry,
            )
            .await
            .unwrap();
            let sender = Node::start_on(&context, other_socket, config(2, other, &peers)).await;
            until("the link", || sender.links.connected() == 1).await;
            sender.links.send(Lane::Control, &To::All, "status".into());
            let error = tokio::time::timeout(PATIENCE, running).await.unwrap();
            assert!(matches!(error, Error::TaskEnded { task: "urgent" }));
            // The network is not left half alive: the links are gone too, and the other side
            // notices.
            until("the end of all links", || sender.links.connected() == 0).await;
            assert_eq!(links.connected(), 0);
        },
    );
}

#[test]
fn shutdown_of_the_runtime_ends_the_network() {
    run(|context| async move {
        let mut nodes = mesh(&context, 2).await;
        let running = nodes[0].running.take().unwrap();
        context.child("stopper").stop(0, None).await.unwrap();
        let error = tokio::time::timeout(PATIENCE, running).await.unwrap();
        assert!(matches!(error, Error::Stopped));
    });
}

#[test]
fn a_flood_of_one_peer_costs_another_none_of_its_frames() {
    const FRAMES: u32 = 60;
    run(|context| async move {
        let mut seats = Vec::new();
        for seed in 1..=3 {
            let (listener, address) = socket().await;
            seats.push((seed, listener, address));
        }
        let peers: Vec<_> = seats
            .iter()
            .map(|(seed, _, address)| (key(*seed).identity(), *address))
            .collect();
        let mut seats = seats.into_iter();
        let (seed, listener, address) = seats.next().unwrap();
        // The receiver is slower than one peer sends, so that peer's frames queue up.
        let honest = key(3).identity();
        let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = heard.clone();
        let slow = move |sender: Identity, _, frame: Bytes| {
            if sender == honest {
                noted.lock().unwrap().push(frame);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let registry = Registry::new();
        let receiver = start_on(
            context.child("slow"),
            listener,
            config(seed, address, &peers),
            Arc::new(slow),
            &registry,
        );
        let (links, _running) = receiver.await.unwrap();
        let mut senders = Vec::new();
        for (seed, listener, address) in seats {
            senders.push(Node::start_on(&context, listener, config(seed, address, &peers)).await);
        }
        until("both links", || links.connected() == 2).await;
        let to = To::One(key(1).identity());
        let flooding = std::thread::spawn({
            let (links, to) = (senders[0].links.clone(), to.clone());
            move || {
                let end = Instant::now() + Duration::from_secs(3);
                while Instant::now() < end {
                    links.send(Lane::Votes, &to, Bytes::from(vec![1; 1_000]));
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        });
        for number in 0..FRAMES {
            tokio::time::sleep(Duration::from_millis(40)).await;
            let frame = Bytes::copy_from_slice(&number.to_be_bytes());
            senders[1].links.send(Lane::Votes, &to, frame);
        }
        flooding.join().unwrap();
        until("each frame of the other", || {
            heard.lock().unwrap().len() == FRAMES as usize
        })
        .await;
        let refused = registry.gather().into_iter().any(|family| {
            family.name() == "quorate_p2p_frames_refused_total"
                && family.get_metric().iter().any(|metric| {
                    let full = |pair: &&prometheus::proto::LabelPair| pair.value() == "queue_full";
                    metric.get_label().iter().any(|pair| full(&pair))
                        && metric.get_counter().get_value() > 0.0
                })
        });
        assert!(refused, "the flood was no flood");
    });
}

#[test]
fn a_link_is_read_no_faster_than_its_peer_may_send_and_nothing_is_lost() {
    // Far more than the burst and one second's budget.
    const MOST_FRAMES: usize = 500;
    run(|context| async move {
        let nodes = mesh(&context, 2).await;
        let (sender, receiver) = (&nodes[0], &nodes[1]);
        let frame = Bytes::from(vec![1; 2 << 20]);
        let delayed = || receiver.count("quorate_p2p_reads_delayed_total", &[]) > 0;
        let mut sent = 0;
        while !delayed() && sent < MOST_FRAMES {
            sent += 1;
            sender.links.send(Lane::Fetch, &To::All, frame.clone());
            until("the frame", || receiver.inbox.lock().unwrap().len() == sent).await;
        }
        assert!(delayed());
        sender.links.send(Lane::Votes, &To::All, "vote".into());
        until("what follows", || {
            receiver.has(sender.identity(), Lane::Votes, b"vote")
        })
        .await;
        assert_eq!(receiver.refused(Lane::Fetch, "queue_full"), 0);
    });
}

#[test]
fn links_to_peers_that_stay_are_kept_when_the_peers_change() {
    run(|context| async move {
        let mut sockets = Vec::new();
        for _ in 1..=4 {
            sockets.push(socket().await);
        }
        let all: Vec<_> = (1..)
            .zip(&sockets)
            .map(|(seed, (_, address))| (key(seed).identity(), *address))
            .collect();
        let mut nodes = Vec::new();
        for (seed, (listener, address)) in (1..).zip(sockets) {
            // The first knows two of the others and has room for one more. They all know it.
            let known = if seed == 1 { &all[..3] } else { &all };
            let config = Config {
                room: 1,
                ..config(seed, address, known)
            };
            nodes.push(Node::start_on(&context, listener, config).await);
        }
        let node = &nodes[0];
        until("two links", || node.links.connected() == 2).await;
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = told.clone();
        (node.links).watch(Box::new(move |peer, up| {
            noted.lock().unwrap().push((peer, up))
        }));
        let named = |seeds: &[usize]| -> Vec<_> {
            let peer = |seed: &usize| (all[seed - 1].0, all[seed - 1].1.into());
            seeds.iter().map(peer).collect()
        };
        let is_linked = |seed: u8| {
            let peer = node.links.peer(&key(seed).identity());
            peer.is_some_and(|peer| peer.connected)
        };

        // One leaves and one comes; the third stays, and follows from now on.
        assert!(
            node.links
                .set_peers(&named(&[4]), &named(&[2]), false)
                .unwrap()
        );
        until("the newcomer's link", || is_linked(4)).await;
        assert!(is_linked(2) && !is_linked(3));
        node.links.send(Lane::Votes, &To::All, "vote".into());
        until("the vote", || {
            nodes[3].has(node.identity(), Lane::Votes, b"vote")
        })
        .await;
        let gone = To::One(key(3).identity());
        node.links.send(Lane::Votes, &gone, "late".into());
        assert_eq!(node.unsent(Lane::Votes, "unknown_peer"), 1);
        nodes[2].links.send(Lane::Control, &To::All, "gone".into());
        until("the end of the link", || {
            let peer = nodes[2].links.peer(&node.identity()).unwrap();
            !peer.connected
        })
        .await;

        // No place is left for another one, and nothing changes.
        let stranger = vec![(key(9).identity(), all[1].1.into())];
        assert!(!node.links.set_peers(&stranger, &[], false).unwrap());
        assert!(is_linked(2) && is_linked(4));

        let is_down = |seed: u8| {
            let down = (key(seed).identity(), false);
            told.lock().unwrap().contains(&down)
        };
        assert!(!is_down(2), "who stays has lost its link");

        // Who was a peer before has its place still.
        told.lock().unwrap().clear();
        assert!(
            node.links
                .set_peers(&named(&[2, 3, 4]), &[], false)
                .unwrap()
        );
        until("three links", || node.links.connected() == 3).await;
        assert!(!is_down(2) && !is_down(4), "who stays has lost its link");
        node.links.send(Lane::Votes, &To::All, "again".into());
        for other in &nodes[1..] {
            until("a vote for all", || {
                other.has(node.identity(), Lane::Votes, b"again")
            })
            .await;
        }
        assert!(!node.has(key(3).identity(), Lane::Control, b"gone"));
        assert!(!nodes[1].has(node.identity(), Lane::Votes, b"vote"));
    });
}
