//! Puts a validator together: network, broadcast buffer, marshal and consensus, wired and set up
//! as alto, commonware's own chain, does it (except where a comment says otherwise).
//!
//! # What is durable
//!
//! * The voter journals its own votes, the certificates it saw and what it certified, and syncs the
//!   journal before it sends a vote or certificate that depends on it.
//! * Marshal's cache holds each verified block, written as soon as it has arrived (or, at the
//!   leader, been sent) while votes are under way. A validator does not vote to finalize a block
//!   before that write is synced.
//! * Marshal's cache holds each notarization and each finalization, synced too.
//! * Two archives hold the final blocks and their finalizations by height: the chain. A block is
//!   handed to the application after both are synced; the height that the application has
//!   acknowledged is synced in turn.

use crate::{
    app::{App, Executor, Observer},
    block::{Block, Payloads},
    keys::Keys,
    recorder::Recorder,
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
    Address, AddressableManager as _,
    authenticated::lookup::{self, Network, Oracle},
    max_message_size,
};
use commonware_parallel::Strategy;
use commonware_runtime::{
    Handle, Quota, Supervisor as _,
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
use std::{
    marker::PhantomData,
    net::{Ipv4Addr, SocketAddr},
    num::{NonZeroU16, NonZeroU64, NonZeroUsize},
    time::Duration,
};

/// Domain of all signatures.
pub(crate) const NAMESPACE: &[u8] = b"quorate-bench-peer";

const VOTES: u64 = 0;
const CERTIFICATES: u64 = 1;
const RESOLVER: u64 = 2;
const BLOCKS: u64 = 3;
const BACKFILL: u64 = 4;

/// Messages per second and peer that a channel takes, far above what a view needs (alto: 1,500 and
/// 3,000). The burst sizes queues that are allocated at the start, so it is kept moderate.
const QUOTA: Quota = Quota::per_second(NZU32!(10_000)).allow_burst(NZU32!(512));

/// Slots of actors' mailboxes.
const MAILBOX: NonZeroUsize = NZUsize!(1_024);
/// Blocks cached per sender that are not final yet.
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
const CACHED_PAGES: NonZeroUsize = NZUsize!(8_192);
const MAX_REPAIR: NonZeroUsize = NZUsize!(20);
const MAX_PENDING_ACKS: NonZeroUsize = NZUsize!(16);

/// What a certificate scheme must be to run here.
pub(crate) trait Scheme:
    simplex::scheme::Scheme<Digest> + Verifier<PublicKey = PublicKey>
{
}

impl<S> Scheme for S where S: simplex::scheme::Scheme<Digest> + Verifier<PublicKey = PublicKey> {}

/// How a validator is set up, beside its keys.
pub(crate) struct Setup<S, L, T> {
    pub(crate) scheme: S,
    pub(crate) elector: L,
    pub(crate) strategy: T,
    pub(crate) base_port: u16,
    pub(crate) payload_bytes: usize,
    pub(crate) handoff: Handoff<()>,
    pub(crate) pace: Duration,
}

/// A validator that is linked to its peers and takes no part in consensus before [`Self::start`].
pub(crate) struct Linked<S, L, T> {
    network: Handle<()>,
    oracle: Oracle<PublicKey>,
    channels: [Channel; 5],
    setup: Setup<S, L, T>,
}

type Channel = (
    lookup::Sender<PublicKey, Context>,
    lookup::Receiver<PublicKey>,
);

/// Starts listening and dialling.
pub(crate) fn link<S: Scheme, L, T>(
    context: &Context,
    keys: &Keys,
    setup: Setup<S, L, T>,
) -> Linked<S, L, T> {
    let validators = keys.by_index.len();
    let socket = |index: usize| {
        let port = setup.base_port + index as u16;
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    };
    let own = keys.by_index.iter().position(|key| *key == keys.public);
    let listen = socket(own.unwrap_or_default());
    let largest = max_message_size(&[
        simplex::max_payload_size::<S, Digest>(validators as u32),
        marshal::max_payload_size::<Standard<Block>, S>(validators as u32, &setup.payload_bytes),
    ]);
    let config = network_config(keys.private.clone(), listen, validators, largest);
    let (mut network, mut oracle) = Network::new(context.child("network"), config);
    // The buffer keeps blocks of tracked peers only, and its own are among them.
    let addresses = keys.by_index.iter().enumerate();
    let addresses = addresses.map(|(index, key)| (key.clone(), Address::from(socket(index))));
    let _ = oracle.track(0, Map::from_iter_dedup(addresses));
    let channels = [VOTES, CERTIFICATES, RESOLVER, BLOCKS, BACKFILL]
        .map(|channel| network.register(channel, QUOTA));
    Linked {
        network: network.start(),
        oracle,
        channels,
        setup,
    }
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
        // Everyone dials everyone at once from one address: attempts collide and are repeated.
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

impl<S, L, T> Linked<S, L, T>
where
    S: Scheme,
    L: elector::Config<S>,
    T: Strategy,
{
    /// Opens the storage and begins to vote. The handles resolve only when something has broken.
    pub(crate) async fn start(
        self,
        context: &Context,
        keys: &Keys,
        recorder: &Recorder,
    ) -> Vec<Handle<()>> {
        let Self {
            network,
            oracle,
            channels: [votes, certificates, resolver, blocks, backfill],
            setup,
        } = self;
        let payload_bytes = setup.payload_bytes;

        // Blocks travel on their own, from their leader to everyone; votes name them by digest.
        let (buffer, buffered_blocks) = buffered::Engine::new(
            context.child("buffer"),
            buffered::Config {
                public_key: keys.public.clone(),
                mailbox_size: MAILBOX,
                deque_size: CACHED_BLOCKS,
                priority: true,
                codec_config: payload_bytes,
                peer_provider: oracle.clone(),
                strategy: setup.strategy.clone(),
            },
        );
        let backfill = resolver::p2p::init(
            context.child("backfill"),
            resolver::p2p::Config {
                public_key: keys.public.clone(),
                peer_provider: oracle.clone(),
                blocker: oracle.clone(),
                mailbox_size: MAILBOX,
                fetch_timeout: NZDuration!(Duration::from_secs(2)),
                fetch_retry_delay: Duration::from_millis(100),
                priority_requests: false,
                priority_responses: false,
            },
            backfill,
        );

        let pages = CacheRef::new(PAGE_SIZE, CACHED_PAGES);
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

        // One epoch for ever: no reconfiguration.
        let epocher = FixedEpocher::new(NonZeroU64::MAX);
        let genesis = Block::genesis(keys.by_index[0].clone());
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
            recorder: recorder.clone(),
            handoff: setup.handoff,
            pace: setup.pace,
            scheme: PhantomData,
        };
        // Votes to notarize once the block is here and its header fits, and verifies the content
        // while votes travel, before it votes to finalize.
        let deferred = Deferred::new(context.child("app"), app, marshal_mailbox, epocher);
        let consensus = simplex::Engine::new(
            context.child("consensus"),
            simplex::Config {
                scheme: setup.scheme,
                elector: setup.elector,
                blocker: oracle,
                automaton: deferred.clone(),
                relay: deferred.clone(),
                reporter: Observer {
                    recorder: recorder.clone(),
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
            network,
            buffer.start(blocks),
            marshal.start(Executor(recorder.clone()), buffered_blocks, backfill),
            consensus.start(votes, certificates, resolver),
        ]
    }
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
