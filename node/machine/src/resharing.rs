//! What a validator does to pass its share of the group key on, and to get one.
//!
//! A function of the state and of what the validator keeps ([`Shares`]): see `quorate_types::registry::resharing` for
//! the rules. It can be asked again at any time, after a crash, too, and asks for the same operations until the state
//! has them. What it keeps is durable before anything that depends on it is sent:
//!
//! - the opening secret of an epoch before its key is announced: or shares that were dealt could not be opened;
//! - a new share before it is proven: the others count on everybody who has proven it.

use anyhow::Context as _;
use commonware_codec::Encode as _;
use quorate_crypto::bls::{OpeningSecret, Round, Sum, VoteSecret};
use quorate_types::{
    Account, Bond, ChainId, Epoch, Identity, OpeningKey, Operation, Phase, REGISTRY, RoundNote,
    ValidatorSet, VoteKey,
    registry::{
        Slot,
        resharing::{
            DEALING_PART_BYTES, announcement_slot, chosen_dealers, dealing_slots, is_absent,
            player_slot, proof_message, read_dealing, read_player, round_in, round_of,
        },
    },
};
use std::collections::{BTreeMap, BTreeSet};
use zeroize::Zeroizing;

/// Version byte of encoded [`Shares`].
const SHARES_VERSION: u8 = 1;

/// Most bytes of encoded [`Shares`].
pub const MAX_SHARES_BYTES: usize = 2 + 2 * MOST_KEPT * 40;

/// Most secrets of a kind that are kept. More than two are not needed.
const MOST_KEPT: usize = 16;

/// Where secrets are kept.
pub trait Keep: Send {
    /// Keeps this in the place of what was kept, and returns when it is durable.
    ///
    /// # Errors
    ///
    /// If it cannot be written. What was kept before is still there.
    fn keep(&mut self, content: &[u8]) -> anyhow::Result<()>;
}

/// A validator's shares of the group key, and what it opens new ones with.
pub struct Shares {
    openings: BTreeMap<Epoch, OpeningSecret>,
    /// With the epochs for which they were dealt.
    shares: Vec<(Epoch, VoteSecret)>,
    place: Box<dyn Keep>,
    make: MakeOpening,
    /// Who has been found to have dealt what it should, in a round, and what this player got.
    opened: BTreeMap<(Epoch, u16), Opened>,
}

/// Makes secrets that nobody can predict.
pub type MakeOpening = Box<dyn FnMut() -> OpeningSecret + Send>;

enum Opened {
    Value(VoteSecret),
    Complaint(Box<quorate_crypto::bls::Complaint>),
}

/// Bytes that are no shares as [`Shares`] writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is damaged: it holds no shares as a validator writes them")]
pub struct Damaged;

/// What the state says, as far as it matters here.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub own: &'a Identity,
    pub chain: &'a ChainId,
    pub epoch: Epoch,
    /// The phase of the next block.
    pub phase: Phase,
    pub acting: &'a ValidatorSet,
    /// The own bond.
    pub bond: Option<&'a Bond>,
    /// The share that the validator was given at the genesis, or none.
    pub first_share: Option<&'a VoteSecret>,
}

impl Shares {
    /// Takes up what was kept; nothing if that is empty.
    ///
    /// # Errors
    ///
    /// If it is damaged.
    pub fn open(content: &[u8], place: Box<dyn Keep>, make: MakeOpening) -> Result<Self, Damaged> {
        let mut shares = Self {
            openings: BTreeMap::new(),
            shares: Vec::new(),
            place,
            make,
            opened: BTreeMap::new(),
        };
        let mut rest = content;
        if content.is_empty() {
            return Ok(shares);
        }
        if take::<1>(&mut rest)? != [SHARES_VERSION] {
            return Err(Damaged);
        }
        for is_share in [false, true] {
            let [count] = take(&mut rest)?;
            for _ in 0..count {
                let epoch = Epoch(u64::from_be_bytes(take(&mut rest)?));
                let bytes = Zeroizing::new(take::<32>(&mut rest)?);
                if is_share {
                    let share = VoteSecret::from_bytes(&bytes).map_err(|_| Damaged)?;
                    shares.shares.push((epoch, share));
                } else {
                    let opening = OpeningSecret::from_bytes(&bytes).map_err(|_| Damaged)?;
                    shares.openings.insert(epoch, opening);
                }
            }
        }
        match rest.is_empty() {
            true => Ok(shares),
            false => Err(Damaged),
        }
    }

    /// The share with this public key.
    pub fn share(&self, key: &VoteKey) -> Option<&VoteSecret> {
        let mut shares = self.shares.iter().map(|(_, share)| share);
        shares.find(|share| share.public_key() == key.0)
    }

    /// The key that shares of the next epoch are sealed with; its secret is durable.
    fn opening_key(&mut self, epoch: Epoch) -> anyhow::Result<OpeningKey> {
        if let Some(opening) = self.openings.get(&epoch) {
            return Ok(OpeningKey(opening.key().0));
        }
        let opening = (self.make)();
        let key = OpeningKey(opening.key().0);
        self.openings.insert(epoch, opening);
        let written = self.write();
        if written.is_err() {
            self.openings.remove(&epoch);
        }
        written.map(|()| key)
    }

    /// Keeps a share that was dealt for an epoch.
    fn keep(&mut self, epoch: Epoch, share: VoteSecret) -> anyhow::Result<()> {
        self.shares.push((epoch, share));
        let written = self.write();
        if written.is_err() {
            self.shares.pop();
        }
        written
    }

    /// Destroys what no longer counts: everything of earlier epochs but the share with this key, which the
    /// validator votes with.
    fn forget(&mut self, epoch: Epoch, held: Option<&VoteKey>) -> anyhow::Result<()> {
        let count = self.openings.len() + self.shares.len();
        self.openings.retain(|of, _| *of >= epoch);
        self.opened.retain(|(of, _), _| *of >= epoch);
        let is_held = |share: &VoteSecret| held.is_some_and(|key| share.public_key() == key.0);
        self.shares
            .retain(|(of, share)| *of > epoch || is_held(share));
        if self.openings.len() + self.shares.len() < count {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> anyhow::Result<()> {
        let mut content = Zeroizing::new(vec![SHARES_VERSION]);
        let mut put = |secrets: Vec<(Epoch, Zeroizing<[u8; 32]>)>| {
            // The newest count.
            let from = secrets.len().saturating_sub(MOST_KEPT);
            let newest = &secrets[from..];
            content.push(u8::try_from(newest.len()).expect("at most 16"));
            for (epoch, bytes) in newest {
                content.extend_from_slice(&epoch.0.to_be_bytes());
                content.extend_from_slice(&**bytes);
            }
        };
        let openings = self.openings.iter();
        put(openings
            .map(|(epoch, one)| (*epoch, one.to_bytes()))
            .collect());
        let shares = self.shares.iter();
        put(shares
            .map(|(epoch, one)| (*epoch, one.to_bytes()))
            .collect());
        self.place.keep(&content)
    }

    /// What the player at a place got from a dealer, opened once.
    fn open_value(
        &mut self,
        (epoch, dealer): (Epoch, u16),
        (round, player): (&Round, u16),
        accounts: &BTreeMap<Identity, Account>,
        key: &VoteKey,
    ) -> Option<&Opened> {
        if !self.opened.contains_key(&(epoch, dealer)) {
            let secret = self.openings.get(&epoch)?;
            let players = u16::try_from(round.players.len()).ok()?;
            let dealing = read_dealing(accounts, dealer, players, epoch)?;
            let checked = dealing.check(round, dealer.into(), Some(&key.0)).ok()?;
            let opened = match checked.open(round, player.into(), secret) {
                Ok(value) => Opened::Value(value),
                Err(complaint) => Opened::Complaint(Box::new(complaint)),
            };
            self.opened.insert((epoch, dealer), opened);
        }
        self.opened.get(&(epoch, dealer))
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], Damaged> {
    let (taken, rest) = from.split_first_chunk().ok_or(Damaged)?;
    *from = rest;
    Ok(*taken)
}

/// The operations that a validator should send now. `read` reads accounts of the newest state.
///
/// # Errors
///
/// If the state cannot be read, or a secret cannot be kept.
pub fn duties(
    known: Known<'_>,
    shares: &mut Shares,
    read: &mut dyn FnMut(&Identity) -> anyhow::Result<Option<Account>>,
) -> anyhow::Result<Vec<Operation>> {
    let dealer = known.acting.place(known.own);
    let vote_key = dealer.map(|place| known.acting.members()[usize::from(place)].vote_key);
    shares.forget(known.epoch, vote_key.as_ref())?;
    if known.phase == Phase::Announce {
        return announce(known, shares, read);
    }
    let Some(round) = round_in(read(&REGISTRY)?, known.epoch) else {
        return Ok(Vec::new());
    };
    let mut accounts = BTreeMap::new();
    let mut load = |identities: &mut dyn Iterator<Item = Identity>| -> anyhow::Result<()> {
        for identity in identities {
            if let Some(account) = read(&identity)? {
                accounts.insert(identity, account);
            }
        }
        Ok(())
    };
    load(&mut (0..round.players).map(player_slot))?;
    if known.phase != Phase::Deal {
        for dealer in round.dealt.iter() {
            load(&mut dealing_slots(dealer, round.players))?;
        }
    } else if let Some(dealer) = dealer {
        load(&mut dealing_slots(dealer, round.players))?;
    }
    let player = (0..round.players).find(|place| {
        read_player(&accounts, *place, known.epoch).is_some_and(|one| one.identity == *known.own)
    });
    match (known.phase, dealer, player) {
        (Phase::Deal, Some(dealer), _) if !round.dealt.holds(dealer) => {
            deal(known, dealer, &round, &accounts, shares)
        }
        (Phase::Object, _, Some(player)) => object(known, player, &round, &accounts, shares),
        (Phase::Prove, _, Some(player)) if round.has_keys && !round.proven.holds(player) => {
            prove(known, player, &round, &accounts, shares)
        }
        _ => Ok(Vec::new()),
    }
}

fn announce(
    known: Known<'_>,
    shares: &mut Shares,
    read: &mut dyn FnMut(&Identity) -> anyhow::Result<Option<Account>>,
) -> anyhow::Result<Vec<Operation>> {
    // Whoever has a seat may be kept in it by the limits on each change, so it announces itself whether it wants to
    // stay or not.
    let is_acting = known.acting.place(known.own).is_some();
    let can_join = known
        .bond
        .is_some_and(|bond| bond.stake > 0 && bond.since <= known.epoch);
    if !is_acting && !can_join {
        return Ok(Vec::new());
    }
    let account = read(&announcement_slot(known.own))?;
    if is_absent(account.as_ref(), known.own, known.epoch) {
        return Ok(Vec::new());
    }
    let key = shares.opening_key(known.epoch)?;
    let is_there = matches!(
        account.and_then(|account| account.slot).as_deref(),
        Some(Slot::Announced { identity, key: of, epoch, .. })
            if (identity, of, *epoch) == (known.own, &key, known.epoch)
    );
    Ok(match is_there {
        true => Vec::new(),
        false => vec![Operation::Announce {
            epoch: known.epoch,
            key,
        }],
    })
}

fn deal(
    known: Known<'_>,
    dealer: u16,
    round: &RoundNote,
    accounts: &BTreeMap<Identity, Account>,
    shares: &Shares,
) -> anyhow::Result<Vec<Operation>> {
    let key = known.acting.members()[usize::from(dealer)].vote_key;
    let first = known
        .first_share
        .filter(|share| share.public_key() == key.0);
    let Some(share) = shares.share(&key).or(first) else {
        // It was lost, and the next one replaces it.
        return Ok(Vec::new());
    };
    let parties =
        round_of(round, accounts, known.epoch).context("the players are not all there")?;
    let dealing = parties
        .deal_share(dealer.into(), share)
        .context("the players' keys")?
        .encode();
    let pieces: BTreeSet<Identity> = dealing_slots(dealer, round.players)
        .filter(|slot| is_piece_of(accounts.get(slot), known.epoch))
        .collect();
    let slots: Vec<Identity> = dealing_slots(dealer, round.players).collect();
    let per_part = slots.len().min(DEALING_PART_BYTES / 224);
    let parts = dealing
        .chunks(DEALING_PART_BYTES)
        .zip(slots.chunks(per_part.max(1)));
    let missing = (0_u8..)
        .zip(parts)
        .filter(|(_, (_, slots))| !slots.iter().all(|slot| pieces.contains(slot)));
    Ok(missing
        .map(|(part, (bytes, _))| Operation::Deal {
            part,
            bytes: bytes.to_vec(),
        })
        .collect())
}

fn is_piece_of(account: Option<&Account>, epoch: Epoch) -> bool {
    let slot = account.and_then(|account| account.slot.as_deref());
    matches!(slot, Some(Slot::Piece { epoch: of, .. }) if *of == epoch)
}

fn object(
    known: Known<'_>,
    player: u16,
    round: &RoundNote,
    accounts: &BTreeMap<Identity, Account>,
    shares: &mut Shares,
) -> anyhow::Result<Vec<Operation>> {
    let parties =
        round_of(round, accounts, known.epoch).context("the players are not all there")?;
    let mut complaints = Vec::new();
    for dealer in round
        .dealt
        .iter()
        .filter(|one| !round.convicted.holds(*one))
    {
        let key = known.acting.members()[usize::from(dealer)].vote_key;
        let at = (known.epoch, dealer);
        if let Some(Opened::Complaint(complaint)) =
            shares.open_value(at, (&parties, player), accounts, &key)
        {
            complaints.push(Operation::Object {
                player,
                dealer,
                complaint: complaint.clone(),
            });
        }
    }
    Ok(complaints)
}

fn prove(
    known: Known<'_>,
    player: u16,
    round: &RoundNote,
    accounts: &BTreeMap<Identity, Account>,
    shares: &mut Shares,
) -> anyhow::Result<Vec<Operation>> {
    let found = read_player(accounts, player, known.epoch);
    let Some(key) = found.and_then(|player| player.share_key) else {
        return Ok(Vec::new());
    };
    if shares.share(&key).is_none() {
        let parties =
            round_of(round, accounts, known.epoch).context("the players are not all there")?;
        let chosen = chosen_dealers(round, known.acting).context("too few dealings count")?;
        let mut values = Vec::new();
        for dealer in chosen {
            let dealer_key = known.acting.members()[usize::from(dealer)].vote_key;
            let at = (known.epoch, dealer);
            let Some(Opened::Value(value)) =
                shares.open_value(at, (&parties, player), accounts, &dealer_key)
            else {
                // Without the opening secret, or with something wrong in a seal that nobody was told of in time,
                // there is nothing to prove: the old validators stay.
                return Ok(Vec::new());
            };
            let bytes = value.to_bytes();
            values.push((dealer.into(), VoteSecret::from_bytes(&bytes)?));
        }
        let share = Sum::Shares.share(&values)?;
        if share.public_key() != key.0 {
            return Ok(Vec::new());
        }
        shares.keep(known.epoch.next(), share)?;
    }
    let share = shares.share(&key).context("it was just kept")?;
    let message = proof_message(known.chain, known.epoch, round, player);
    Ok(vec![Operation::Prove {
        player,
        signature: share.sign(&message),
    }])
}
