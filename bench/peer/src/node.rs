//! Assembles a validator: network, broadcast buffer, marshal and consensus, wired and configured as
//! in alto, commonware's own chain (except where a comment says otherwise).
//!
//! # What is durable
//!
//! * The voter journals its own votes, the certificates it saw and what it certified, and syncs the
//!   journal before it sends a vote or certificate that depends on it.
//! * Marshal's cache holds each verified block, written while votes are in flight, as soon as the
//!   block has arrived (or, at the leader, been sent). A validator does not vote to finalize a
//!   block before that write is synced.
//! * Marshal's cache holds each notarization and each finalization, synced too.
//! * Two archives hold the final blocks and their finalizations by height: the chain. A block is
//!   handed to the application after both are synced; the height that the application has
//!   acknowledged is synced in turn.

use crate::{
    app::{App, Executor, Observer, Watch},
    block::{Block, Payloads},
    keys::Keys,
};
use commonware_broadcast::buffered;
use commonware_consensus::{
    Handoff,
    marshal::{
        self,
        core::Actor as Marshal,
        resolver,
        standard::{Deferred, Standard},
    },
    simplex::{self, ForwardPolicy, SkipBudget, SkipPolicy, elector},
    types::{Epoch, FixedEpocher, ViewDelta},
};
use commonware_cryptography::{
    ChaCha20Poly1305, Digestible as _,
    certificate::{ConstantProvider, Verifier},
    ed25519::{PrivateKey, PublicKey},
    sha256::Digest,
};
use commonware_p2p::{
    Address, AddressableManager as _, Blocker, Provider, Receiver, Sender,
    authenticated::lookup::{self, Network, Oracle},
    max_message_size,
};
use commonware_parallel::Strategy;
use commonware_runtime::{
    Clock, Handle, Metrics, Quota, Spawner, Storage, Supervisor as _,
    buffer::paged::{CacheRef, page_size},
    tokio::Context,
};
use commonware_storage::{archive::prunable, translator::FourCap};
use commonware_stream::{
    SakeCups,
    cups::{self, Cups},
    sake::{self, Sake},
};
use commonware_utils::{NZDuration, NZU32, NZU64, NZUsize, ordered::Map};
use rand::CryptoRng;
use std::{
    marker::PhantomData,
    net::{Ipv4Addr, SocketAddr},
    num::{NonZeroU16, NonZeroU64, NonZeroUsize},
    time::Duration,
};

/// Domain separator of all signatures.
pub(crate) const NAMESPACE: &[u8] = b"quorate-bench-peer";

pub(crate) const VOTES: u64 = 0;
pub(crate) const CERTIFICATES: u64 = 1;
pub(crate) const CHANNELS: [u64; 5] = [VOTES, CERTIFICATES, RESOLVER, BLOCKS, BACKFILL];
const RESOLVER: u64 = 2;
const BLOCKS: u64 = 3;
const BACKFILL: u64 = 4;

/// Rate limit of a channel, in messages per second and peer, far above what a view needs (alto:
/// 1,500 and 3,000). The burst sizes queues that are allocated at the start, so it is kept
/// moderate.
const QUOTA: Quota = Quota::per_second(NZU32!(10_000)).allow_burst(NZU32!(512));

/// Capacity of the actors' mailboxes.
const MAILBOX: NonZeroUsize = NZUsize!(1_024);
/// Cached blocks per sender that are not final yet.
const CACHED_BLOCKS: usize = 256;

const LEADER_TIMEOUT: Duration = Duration::from_secs(1);
const CERTIFICATION_TIMEOUT: Duration = Duration::from_secs(2);
/// Alto retries after 10 s and skips dead leaders after 11 s; this is for a local network, as in
/// the library's own `reshare` example.
const NULLIFY_RETRY: Duration = Duration::from_millis(500);
const SKIP_TIMEOUT: Duration = Duration::from_secs(5);
const VIEW_RETENTION: u64 = 256;
/// Marshal keeps its cache for more views than consensus keeps votes.
const CACHE_RETENTION: u64 = 10 * VIEW_RETENTION;

const ITEMS_PER_SECTION: NonZeroU64 = NZU64!(4_096);
const REPLAY_BUFFER: NonZeroUsize = NZUsize!(8 * 1024 * 1024);
const WRITE_BUFFER: NonZeroUsize = NZUsize!(1024 * 1024);
const PAGE_SIZE: NonZeroU16 = page_size(4_096);
pub(crate) const CACHED_PAGES: NonZeroUsize = NZUsize!(8_192);
const MAX_REPAIR: NonZeroUsize = NZUsize!(20);
const MAX_PENDING_ACKS: NonZeroUsize = NZUsize!(16);

/// The bounds of a certificate scheme.
pub(crate) trait Scheme:
    simplex::scheme::Scheme<Digest> + Verifier<PublicKey = PublicKey>
{
}

impl<S> Scheme for S where S: simplex::scheme::Scheme<Digest> + Verifier<PublicKey = PublicKey> {}

/// A validator's configuration.
pub(crate) struct Setup<S, L, T> {
    pub(crate) me: PublicKey,
    /// The leader named by the block of height zero.
    pub(crate) first: PublicKey,
    pub(crate) scheme: S,
    pub(crate) elector: L,
    pub(crate) strategy: T,
    pub(crate) payload_bytes: usize,
    pub(crate) handoff: Handoff<()>,
    pub(crate) pace: Duration,
    pub(crate) cached_pages: NonZeroUsize,
}

/// A validator's network: senders and receivers in the order of [`CHANNELS`].
pub(crate) struct Links<P, B, N, R> {
    pub(crate) provider: P,
    pub(crate) blocker: B,
    pub(crate) channels: [(N, R); 5],
}

type TcpLinks = Links<
    Oracle<PublicKey>,
    Oracle<PublicKey>,
    lookup::Sender<PublicKey, Context>,
    lookup::Receiver<PublicKey>,
>;

/// The size of the largest message.
pub(crate) fn largest_message<S: Scheme>(validators: usize, payload_bytes: usize) -> u32 {
    max_message_size(&[
        simplex::max_payload_size::<S, Digest>(validators as u32),
        marshal::max_payload_size::<Standard<Block>, S>(validators as u32, &payload_bytes),
    ])
}

/// Starts listening and dialling over TCP; the handle is the network's.
pub(crate) fn link<S: Scheme>(
    context: &Context,
    keys: &Keys,
    base_port: u16,
    payload_bytes: usize,
) -> (Handle<()>, TcpLinks) {
    let validators = keys.by_index.len();
    let socket = |index: usize| {
        let port = base_port + index as u16;
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    };
    let own = keys.by_index.iter().position(|key| *key == keys.public);
    let listen = socket(own.unwrap_or_default());
    let largest = largest_message::<S>(validators, payload_bytes);
    let config = network_config(keys.private.clone(), listen, validators, largest);
    let (mut network, mut oracle) = Network::new(context.child("network"), config);
    // The buffer keeps blocks of tracked peers only, and this validator's own blocks are among
    // them.
    let addresses = keys.by_index.iter().enumerate();
    let addresses = addresses.map(|(index, key)| (key.clone(), Address::from(socket(index))));
    let _ = oracle.track(0, Map::from_iter_dedup(addresses));
    let channels = CHANNELS.map(|channel| network.register(channel, QUOTA));
    let links = Links {
        provider: oracle.clone(),
        blocker: oracle,
        channels,
    };
    (network.start(), links)
}

fn network_config(
    signer: PrivateKey,
    listen: SocketAddr,
    validators: usize,
    max_message_size: u32,
) -> lookup::Config<SakeCups<PrivateKey, ChaCha20Poly1305>> {
    let sake = Sake {
        signer,
        synchrony_bound: Duration::from_secs(5),
        max_handshake_age: Duration::from_secs(10),
        version: sake::Version::V1,
    };
    let validators = NonZeroUsize::new(validators).unwrap_or(NonZeroUsize::MIN);
    lookup::Config {
        allow_dns: false,
        tracked_peer_sets: NZUsize!(1),
        // All dial each other simultaneously from one address: attempts collide and are repeated.
        handshake_timeout: Duration::from_secs(2),
        dial_timeout: Duration::from_secs(3),
        dial_frequency: Duration::from_millis(50),
        peer_connection_cooldown: Duration::from_millis(200),
        allowed_handshake_rate_per_ip: Quota::per_second(NZU32!(1_000)),
        allowed_handshake_rate_per_subnet: Quota::per_second(NZU32!(1_000)),
        ..lookup::Config::local(
            Cups::new(sake, cups::Version::V1),
            NAMESPACE,
            listen,
            validators,
            max_message_size,
            MAILBOX,
        )
    }
}

/// Opens the storage and starts consensus. The handles resolve only after a failure.
pub(crate) async fn start<E, S, L, T, P, B, N, R, W>(
    context: &E,
    links: Links<P, B, N, R>,
    setup: Setup<S, L, T>,
    watch: W,
) -> Vec<Handle<()>>
where
    E: Clock + CryptoRng + Spawner + Storage + Metrics,
    S: Scheme,
    L: elector::Config<S>,
    T: Strategy,
    P: Provider<PublicKey = PublicKey>,
    B: Blocker<PublicKey = PublicKey>,
    N: Sender<PublicKey = PublicKey>,
    R: Receiver<PublicKey = PublicKey>,
    W: Watch,
{
    let Links {
        provider,
        blocker,
        channels: [votes, certificates, resolver, blocks, backfill],
    } = links;
    let payload_bytes = setup.payload_bytes;

    // Leaders broadcast blocks separately; votes refer to them by digest.
    let (buffer, buffered_blocks) = buffered::Engine::new(
        context.child("buffer"),
        buffered::Config {
            public_key: setup.me.clone(),
            mailbox_size: MAILBOX,
            deque_size: CACHED_BLOCKS,
            priority: true,
            codec_config: payload_bytes,
            peer_provider: provider.clone(),
            strategy: setup.strategy.clone(),
        },
    );
    let backfill = resolver::p2p::init(
        context.child("backfill"),
        resolver::p2p::Config {
            public_key: setup.me.clone(),
            peer_provider: provider,
            blocker: blocker.clone(),
            mailbox_size: MAILBOX,
            fetch_timeout: NZDuration!(Duration::from_secs(2)),
            fetch_retry_delay: Duration::from_millis(100),
            priority_requests: false,
            priority_responses: false,
        },
        backfill,
    );

    let pages = CacheRef::new(PAGE_SIZE, setup.cached_pages);
    let finalizations = prunable::Archive::init(
        context.child("finalizations"),
        archive_config(
            "finalizations",
            &pages,
            S::certificate_codec_config_unbounded(),
        ),
    );
    let finalizations = finalizations.await.expect("finalizations open");
    let final_blocks = prunable::Archive::init(
        context.child("blocks"),
        archive_config("blocks", &pages, payload_bytes),
    );
    let final_blocks = final_blocks.await.expect("blocks open");

    // A single endless epoch: no reconfiguration.
    let epocher = FixedEpocher::new(NonZeroU64::MAX);
    let genesis = Block::genesis(setup.first);
    let floor = simplex::Floor::Genesis(genesis.digest());
    let (marshal, marshal_mailbox, _) = Marshal::init(
        context.child("marshal"),
        finalizations,
        final_blocks,
        marshal::Config {
            provider: ConstantProvider::<S, Epoch>::new(setup.scheme.clone()),
            epocher: epocher.clone(),
            start: marshal::Start::Genesis(genesis),
            partition_prefix: "marshal".into(),
            mailbox_size: MAILBOX,
            view_retention: ViewDelta::new(CACHE_RETENTION),
            prunable_items_per_section: ITEMS_PER_SECTION,
            page_cache: pages.clone(),
            replay_buffer: REPLAY_BUFFER,
            key_write_buffer: WRITE_BUFFER,
            value_write_buffer: WRITE_BUFFER,
            block_codec_config: payload_bytes,
            max_repair: MAX_REPAIR,
            max_pending_acks: MAX_PENDING_ACKS,
            strategy: setup.strategy.clone(),
        },
    )
    .await;

    let app = App {
        payloads: Payloads::new(payload_bytes),
        watch: watch.clone(),
        handoff: setup.handoff,
        pace: setup.pace,
        scheme: PhantomData,
    };
    // Votes to notarize once the block is here and its header fits. Verifies the content while
    // votes are in flight, before it votes to finalize.
    let deferred = Deferred::new(context.child("app"), app, marshal_mailbox, epocher);
    let consensus = simplex::Engine::new(
        context.child("consensus"),
        simplex::Config {
            scheme: setup.scheme,
            elector: setup.elector,
            blocker,
            automaton: deferred.clone(),
            relay: deferred.clone(),
            reporter: Observer {
                watch: watch.clone(),
                next: deferred,
            },
            track_historical_votes: false,
            strategy: setup.strategy,
            partition: "consensus".into(),
            mailbox_size: MAILBOX,
            epoch: Epoch::zero(),
            floor,
            replay_buffer: REPLAY_BUFFER,
            write_buffer: WRITE_BUFFER,
            page_cache: pages,
            leader_timeout: LEADER_TIMEOUT,
            certification_timeout: CERTIFICATION_TIMEOUT,
            timeout_retry: NULLIFY_RETRY,
            view_retention: ViewDelta::new(VIEW_RETENTION),
            skip: SkipPolicy::Enabled {
                timeout: SKIP_TIMEOUT,
                budget: SkipBudget::Participants,
            },
            fetch_timeout: NZDuration!(Duration::from_secs(2)),
            fetch_retry_delay: Duration::from_millis(100),
            forward: ForwardPolicy::Disabled,
        },
    );
    vec![
        buffer.start(blocks),
        marshal.start(Executor(watch), buffered_blocks, backfill),
        consensus.start(votes, certificates, resolver),
    ]
}

/// Alto's newest validators use this archive and never prune it. It compresses (zstd level 3);
/// random payloads would only cost time there, so nothing is compressed here.
fn archive_config<C>(
    name: &str,
    pages: &CacheRef,
    codec_config: C,
) -> prunable::Config<FourCap, C> {
    prunable::Config {
        translator: FourCap,
        metadata_partition: format!("{name}-metadata"),
        key_partition: format!("{name}-key"),
        key_page_cache: pages.clone(),
        value_partition: format!("{name}-value"),
        compression: None,
        codec_config,
        items_per_section: ITEMS_PER_SECTION,
        key_write_buffer: WRITE_BUFFER,
        value_write_buffer: WRITE_BUFFER,
        replay_buffer: REPLAY_BUFFER,
    }
}
