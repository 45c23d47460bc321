//! Which part a node takes in the chain: with a vote or without, and whom it is linked with.
//!
//! On a chain without a registry, the genesis file and the configuration say so for good. On one with a
//! registry, the state says who validates in an epoch, and the node's parts are assembled for that epoch.
//! A validator without a seat follows the chain until it has one.

use super::{Node, durable::KeptStore, schemes::Schemes};
use crate::{
    config::{NodeConfig, ValidatorConfig},
    known,
    owner::{self, Owner},
    resharing::Resharing,
};
use anyhow::Context as _;
use parking_lot::Mutex;
use quorate_machine::{
    clock::now_ms,
    live::{LiveStatus, following::Part},
    registry,
    roles::{self, Alone, OLD_MS, Seat},
};
use quorate_p2p::{Links, PeerAddress};
use quorate_storage::store::Store;
use quorate_types::{
    BondAddress, Committees, Epoch, Height, Identity, Roster, ValidatorIndex, ValidatorSet, VoteKey,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tracing::{info, warn};

/// Most nodes beside the validators that a validator is linked with.
const MAX_OTHERS: usize = 128;

/// How often it is looked at whether the epoch's validators are heard.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A node with all that it takes part with.
pub(super) enum Role {
    /// With a vote, at this place.
    Validator(Box<ValidatorConfig>, ValidatorIndex),
    /// Without one, and why.
    Follower(Box<NodeConfig>, Part),
}

impl Role {
    pub(super) fn config(&self) -> &NodeConfig {
        match self {
            Self::Validator(config, _) => &config.node,
            Self::Follower(config, _) => config,
        }
    }

    pub(super) fn place(&self) -> Option<ValidatorIndex> {
        match self {
            Self::Validator(_, place) => Some(*place),
            Self::Follower(..) => None,
        }
    }
}

/// The part that a node takes in the epoch of its next block. With `follows`, it takes no part with a
/// vote, nor if it `starts` with a newest block that is old: the others may be epochs ahead.
///
/// # Errors
///
/// If the database cannot be read, or belongs to another node.
pub(super) fn assign(
    node: Node<'_>,
    (kept, resharing, schemes): (&KeptStore, &Resharing, &Schemes),
    follows: bool,
    starts: bool,
) -> anyhow::Result<Role> {
    let config = node.config();
    if config.genesis.registry.is_none() {
        return Ok(match node {
            Node::Validator(config) => {
                let place = config
                    .place
                    .context("not a validator of the genesis file")?;
                Role::Validator(Box::new(config.clone()), place)
            }
            Node::Follower(config) => Role::Follower(Box::new(config.clone()), Part::Follows),
        });
    }
    let Registered {
        committees,
        roster,
        remembered,
        newest_ms,
    } = read_registry(config, kept)?;
    let age_ms = newest_ms.map(|newest| now_ms().saturating_sub(newest));
    let follows = follows || (starts && age_ms.is_some_and(|age| age > OLD_MS));
    let epoch = committees.known().epoch();
    let set = committees
        .set(epoch)
        .context("the epoch's validators are not known")?;
    let mut composed = NodeConfig {
        scheme: schemes.of(&set).context("the validators' vote keys")?,
        committees: committees.clone(),
        ..config.clone()
    };
    let own = config.identity.identity();
    let Node::Validator(config) = node else {
        return Ok(Role::Follower(Box::new(composed), Part::Follows));
    };
    let bonded = roster.contains_key(&own);
    let links = Addresses::of(config, &set, roster, remembered);
    let secret = resharing.secret_in(&set, &own);
    let secret = secret.unwrap_or_else(|| config.vote_secret.clone());
    let seat = seat(&set, &own, &VoteKey(secret.public_key()));
    if let (Seat::At(place), false) = (seat, follows) {
        composed.p2p.peers = links.to(set.members().iter().map(|member| member.identity));
        composed.p2p.followers = links.others(&composed.p2p.peers, &committees, epoch);
        info!(%epoch, place = place.0, validators = set.members().len(), "has a seat in this epoch");
        if links.roster.get(&own).is_some_and(BondAddress::is_empty) {
            warn!(
                "the registry does not say where this validator is: who gets a seat later cannot link with it, and \
                 the chain stops if too many lack the link. Put its address there: `quorate registry describe \
                 --address HOST:PORT`"
            );
        }
        let composed = ValidatorConfig {
            node: composed,
            place: Some(place),
            vote_secret: secret,
            ..config.clone()
        };
        return Ok(Role::Validator(Box::new(composed), place));
    }
    let part = match seat {
        Seat::At(_) => Part::LooksForNewer,
        Seat::OtherKey if set.group_key().is_some() => Part::NoShare,
        Seat::OtherKey => Part::OtherKey,
        Seat::None => Part::WithoutSeat { bonded },
    };
    if seat == Seat::None {
        info!(%epoch, validators = set.members().len(), "has no seat in this epoch, and follows");
    }
    let members = set.members().iter().map(|member| member.identity);
    let configured = config.node.p2p.peers.iter().map(|(peer, _)| *peer);
    // All that validated when it was here last may follow by now, or be off: whoever has a bond may act.
    let bonded = links.bonded().take(MAX_OTHERS);
    composed.p2p.peers = links.to(members.chain(configured).chain(bonded));
    let peers = &composed.p2p.peers;
    (composed.p2p.followers).retain(|(one, _)| !peers.iter().any(|(peer, _)| peer == one));
    Ok(Role::Follower(Box::new(composed), part))
}

/// The place of this identity with this key.
fn seat(set: &ValidatorSet, own: &Identity, key: &VoteKey) -> Seat {
    let seat = roles::seat(set, own, key);
    match seat {
        Seat::OtherKey if set.group_key().is_some() => warn!(
            epoch = %set.epoch,
            "this validator's share of the group key for this epoch is not here: it does not vote in it"
        ),
        Seat::OtherKey => warn!(
            epoch = %set.epoch,
            "the registry has another vote key for this validator than its `vote_key` file: it does not vote in this \
             epoch"
        ),
        Seat::At(_) | Seat::None => {}
    }
    seat
}

/// Resolves once so few validators of the epoch were heard for a while that no block of it can become
/// final ([`Alone`]). Never resolves if the validators cannot change.
pub(super) async fn is_outdated(live: Arc<LiveStatus>, links: Links) {
    let Some(mut alone) = Alone::new(live) else {
        return std::future::pending().await;
    };
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        ticks.tick().await;
        if alone.look(&links.peers()) {
            return;
        }
    }
}

/// What the state says of the validators.
struct Registered {
    committees: Committees,
    /// Who has a bond.
    roster: Roster,
    /// Who had one in a newer state, which was lost.
    remembered: Roster,
    /// When the newest block was made.
    newest_ms: Option<u64>,
}

fn read_registry(config: &NodeConfig, kept: &KeptStore) -> anyhow::Result<Registered> {
    let known = known::read(&config.data_dir, config.chain);
    let remembered_at = |height| match known.height > height {
        true => known.roster.clone(),
        false => Roster::new(),
    };
    let path = config.data_dir.join("db");
    if Store::is_absent(&path) {
        let set = ValidatorSet::of_genesis(&config.genesis)?;
        let accounts = config.genesis.initial_accounts()?;
        let roster: Roster = accounts
            .into_iter()
            .filter_map(|(identity, account)| Some((identity, account.bond?.address)))
            .collect();
        let committees = Committees::changing(vec![set], Epoch(0), Epoch(0), roster.clone())?;
        let committees = committees.with_turns(config.genesis.turns());
        return Ok(Registered {
            committees,
            roster,
            remembered: remembered_at(Height(0)),
            newest_ms: None,
        });
    }
    let own = Owner {
        chain_id: config.chain,
        identity: config.identity.identity(),
    };
    owner::check(&config.data_dir, &own).with_context(|| config.path.display().to_string())?;
    let (store, tree) = kept.open(&path, &config.genesis)?;
    drop(tree);
    let tip = store.tip();
    let newest_ms = tip.block.map(|block| block.header().timestamp_ms);
    let read = registry::committees(&config.genesis, &store).and_then(|committees| {
        let roster = quorate_types::roster(&store.bonds()?);
        known::note(&config.data_dir, config.chain, tip.height, &roster);
        Ok(Registered {
            committees,
            roster,
            remembered: remembered_at(tip.height),
            newest_ms,
        })
    });
    kept.keep(store);
    read
}

/// Whose address was told to be missing: once in a process.
static MISSED: Mutex<BTreeSet<Identity>> = Mutex::new(BTreeSet::new());

/// Where other nodes are.
struct Addresses {
    own: Identity,
    addresses: BTreeMap<Identity, PeerAddress>,
    followers: Vec<(Identity, PeerAddress)>,
    roster: Roster,
    remembered: Roster,
}

impl Addresses {
    /// What the registry says goes before the configuration.
    fn of(
        config: &ValidatorConfig,
        set: &ValidatorSet,
        roster: Roster,
        remembered: Roster,
    ) -> Self {
        let mut addresses: BTreeMap<Identity, PeerAddress> =
            config.node.p2p.peers.iter().cloned().collect();
        let mut take = |identity: &Identity, address: &BondAddress| {
            if let Ok(address) = address.as_str().parse() {
                addresses.insert(*identity, address);
            }
        };
        for member in set.members() {
            take(&member.identity, &member.address);
        }
        for (identity, address) in roster.iter().chain(&remembered) {
            take(identity, address);
        }
        Self {
            own: config.node.identity.identity(),
            addresses,
            followers: config.node.p2p.followers.clone(),
            roster,
            remembered,
        }
    }

    /// Who has a bond, or had one in a state that was lost, and an address.
    fn bonded(&self) -> impl Iterator<Item = Identity> {
        let bonded = self.remembered.keys().chain(self.roster.keys()).copied();
        bonded.filter(|one| self.addresses.contains_key(one))
    }

    /// The addresses of nodes, each once.
    fn to(&self, nodes: impl Iterator<Item = Identity>) -> Vec<(Identity, PeerAddress)> {
        let mut found = BTreeMap::new();
        for identity in nodes.filter(|node| *node != self.own) {
            match self.addresses.get(&identity) {
                Some(address) => drop(found.insert(identity, address.clone())),
                None if MISSED.lock().insert(identity) => warn!(
                    validator = identity.short(),
                    "has no address in the registry, and none under [[p2p.peers]]: there is no link to it"
                ),
                None => {}
            }
        }
        found.into_iter().collect()
    }

    /// The nodes that may follow this one: those that the configuration names, the validators that come
    /// and leave, and everybody else with a bond.
    fn others(
        &self,
        peers: &[(Identity, PeerAddress)],
        committees: &Committees,
        epoch: Epoch,
    ) -> Vec<(Identity, PeerAddress)> {
        let members = |epoch: Option<Epoch>| {
            let set = epoch.and_then(|epoch| committees.set(epoch));
            let members = set.map(|set| set.members().to_vec()).unwrap_or_default();
            members.into_iter().map(|member| member.identity)
        };
        let near = members(Some(epoch.next())).chain(members(epoch.previous()));
        let bonded = self.roster.keys().copied();
        let known = near.chain(bonded).filter_map(|identity| {
            let address = self.addresses.get(&identity)?;
            Some((identity, address.clone()))
        });
        let mut found: Vec<(Identity, PeerAddress)> = Vec::new();
        for (identity, address) in self.followers.iter().cloned().chain(known) {
            let is_new = identity != self.own
                && !peers
                    .iter()
                    .chain(&found)
                    .any(|(held, _)| *held == identity);
            if is_new && found.len() < MAX_OTHERS {
                found.push((identity, address));
            }
        }
        found
    }
}
