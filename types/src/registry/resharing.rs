//! One vote key for ever, whoever validates: the shares of `bls-threshold` are passed on at each border.
//!
//! In the first half of each epoch the acting validators pass the group key on to those of the next epoch (to
//! themselves, too), by transactions. So every node checks the same bytes, the bytes need no other way
//! through the network, and who was down reads them later. The first half is four parts of equal length
//! ([`Phase`]):
//!
//! 1. *Announce*. Who is there and wants a share says so, with an [`OpeningKey`] that it has made for this epoch.
//!    The last block of the part fixes the *players*: the set that the rules of [`super::next`] choose of those who have
//!    announced themselves. **Acknowledge or be out**: who has not is not dealt a share (G6), and if the rules keep
//!    somebody who has not, nothing is dealt in this epoch.
//! 2. *Deal*. Each acting validator publishes a [`Dealing`] of its share. What everybody can check of it is checked at
//!    once; a dealing that fails is refused.
//! 3. *Object*. A player that finds another value in its seal than the dealing demands shows it. The dealing no longer
//!    counts, and its dealer is not chosen for some epochs. The last block of the part adds up the dealings of
//!    the first quorum of dealers, by place, whose dealings count: these are the next set's share keys.
//! 4. *Prove*. Each player signs with its new share. The last block of the part, the middle of the epoch, fixes the
//!    next set.
//!
//! - *G1*: the next set gets the new shares only if **all** players have proven theirs. So whoever is
//!   honest in the next set has its share before anybody needs it, whatever was lost or delayed: the old shares are
//!   destroyed at the border, and a set of which too few have shares would have halted for ever.
//! - *G2*: otherwise the old validators stay, with the shares that they have. A player that has announced
//!   itself and proven nothing cannot announce itself for some epochs, so that a change can do without it, as far as G6
//!   allows.
//!   Nobody is barred if fewer than a quorum of the players have proven theirs: then it is not for those who are missing.
//! - *G3*: no share of an honest player is ever shown. A complaint shows one seal, whose content is no value of the
//!   dealer's polynomial, or the complaint is refused; and it opens no other seal, since a dealing proves that
//!   its dealer has made the point of its seals (`quorate_crypto::bls::Dealing`).
//! - *G4*: a quorum of the acting validators passes the key on, so at least one honest one does, and nobody
//!   else knows what it added: who held an older share, or a quorum of older ones and none of the honest dealers'
//!   secrets, learns nothing about the new ones.
//! - *G5*: the opening key is of one epoch and its secret is destroyed after the border, so that who breaks into a
//!   validator later cannot read its former shares out of the chain. A quorum of *former* shares of one
//!   epoch still signs for the group key: whoever keeps them must be believed never to use them together.
//!
//! - *G6*: silence neither lowers the number of faults that the validators tolerate nor gives anybody else a seat: the
//!   players are some of those whose stake suffices whether others announce themselves or not, and tolerate as many
//!   faults as those acting validators whose stake suffices. Who cuts honest validators off could otherwise be left with
//!   a set in which the hostile ones are too many: of ten, three hostile and three cut off leave seven, which tolerate
//!   two. The price: where no other validator makes up for it, one that is silent and has stake holds up all changes.
//!
//! - *G7*: after a round that failed with newcomers among its players, the next one is among the validators only. So
//!   newcomers that prove nothing keep the validators as they are in every second epoch at most; the stake of each is held
//!   for 64 epochs from the last time on, and within that it can do so again once its bar is over.
//!
//! Transactions of other people do not keep these operations out of blocks: leaders take them first (`machine::mempool`).
//!
//! Where it is kept: in accounts that nobody has the key of, as reports are (see [`super::external`]). A value of the
//! state has 255 bytes at most, so a dealing lies in pieces.

use super::{
    Bond, NextSet, RegistryContext, RegistryNote, RegistryRules, VoteKey, next_set, ranked,
};
use crate::{
    Account, ChainId, Epoch, EpochLength, Failure, Height, ValidatorSet,
    codec::{fixed_codec, read_option, write_option},
    registry::Member,
};
use bytes::BufMut;
use commonware_codec::{
    Buf, Copying, Encode as _, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt,
};
use quorate_crypto::{
    Digest, Identity,
    bls::{
        CheckedDealing, Complaint, Dealing, HashedMessage, PartialSignature, Round, Scheme, Sum,
        ThresholdKeys,
    },
    sha256,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most validators that share a key: a dealing has a point for two thirds of them and a value for each.
pub const MAX_SHARING_VALIDATORS: usize = 100;

/// Shortest epochs of a chain whose validators share a key: each phase must suffice for some transactions.
pub const MIN_SHARING_EPOCH_BLOCKS: u64 = 64;

/// Bytes of a dealing in one operation.
pub const DEALING_PART_BYTES: usize = 16 * PIECE_BYTES;

/// Bytes of a dealing in one account.
const PIECE_BYTES: usize = 224;

/// For how many epochs a newcomer that has not proven its share cannot announce itself, for the first time, the second,
/// and each one after. A slow machine is soon back; who does it on purpose is soon away for long.
const ABSENT_EPOCHS: [u64; 3] = [4, 16, 64];

/// For how many epochs a newcomer that has not proven its share cannot withdraw its stake. Without this, the same stake
/// under a new identity could hold up each change.
const HELD_EPOCHS: u64 = 64;

/// For how many epochs a dealer that has dealt something wrong is not chosen: there is no mistake that leads to it.
const CONVICTED_EPOCHS: u64 = 64;

/// What a share's owner signs.
const PROOF_DOMAIN: &[u8] = b"quorate/share-proof/1";

/// What shares are sealed with: a compressed point of G1, of one epoch. In JSON: 96 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OpeningKey(pub [u8; 48]);

/// The part of an epoch that a block is in, on a chain whose validators share a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Announce,
    Deal,
    Object,
    Prove,
    /// The next set is fixed.
    Over,
}

/// What the state says about the passing on of shares in an epoch: a part of the [`RegistryNote`].
///
/// Encoded as its fields, each list of places as a count of bytes and a bit for each place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundNote {
    /// Names the round: what is sealed is bound to it.
    pub context: Digest,
    /// How many players there are.
    pub players: u16,
    /// The dealers, by place, whose dealings are complete.
    pub dealt: Places,
    /// Those of them whose dealings do not count, since somebody was given something else.
    pub convicted: Places,
    /// The players, by place, that have proven their new shares.
    pub proven: Places,
    /// Whether the new share keys are fixed.
    pub has_keys: bool,
}

/// Some of a committee's places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Places(BTreeSet<u16>);

/// What is kept in an account that nobody has the key of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    /// That somebody wants a share of the next epoch. Tag 0.
    Announced {
        identity: Identity,
        key: OpeningKey,
        epoch: Epoch,
        /// How often it has done so and proven nothing, since it last acted.
        missed: u8,
    },
    /// A player. Tag 1.
    Player {
        identity: Identity,
        key: OpeningKey,
        epoch: Epoch,
        /// The key of its new share, once that is fixed.
        share_key: Option<VoteKey>,
    },
    /// That somebody has announced itself and proven nothing, and cannot announce itself again before an epoch. In the
    /// place of its announcement. Tag 3.
    Absent {
        identity: Identity,
        until: Epoch,
        missed: u8,
    },
    /// A piece of a dealing. Tag 2.
    Piece {
        epoch: Epoch,
        #[serde(with = "super::set::hexadecimal")]
        bytes: Vec<u8>,
    },
}

impl Phase {
    /// A short name for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Announce => "announce",
            Self::Deal => "deal",
            Self::Object => "object",
            Self::Prove => "prove",
            Self::Over => "over",
        }
    }
}

impl EpochLength {
    /// The part of its epoch that the block of a height is in, and whether it is the part's last block.
    pub fn phase(self, height: Height) -> (Phase, bool) {
        let epoch = self.epoch_of(height);
        let before = epoch.0.saturating_mul(self.blocks());
        let offset = height.0.saturating_sub(before);
        let part = self.blocks() / 8;
        let middle = self.fixing_height(epoch).0.saturating_sub(before);
        let ends = [
            (Phase::Announce, part),
            (Phase::Deal, 2 * part),
            (Phase::Object, 3 * part),
            (Phase::Prove, middle),
        ];
        let phase = ends.into_iter().find(|(_, end)| offset <= *end);
        phase.map_or((Phase::Over, false), |(phase, end)| (phase, offset == end))
    }
}

/// The account in which somebody's announcement is kept.
pub fn announcement_slot(identity: &Identity) -> Identity {
    slot(
        b'a',
        &sha256(&[b"quorate/announcement/1", &identity.0]).0[..14],
    )
}

/// The account that says who the player at a place is.
pub fn player_slot(place: u16) -> Identity {
    slot(b'p', &place.to_be_bytes())
}

/// The accounts with the dealing of the dealer at a place for so many players, in order.
pub fn dealing_slots(dealer: u16, players: u16) -> impl Iterator<Item = Identity> {
    let pieces = Dealing::size(players.into()).div_ceil(PIECE_BYTES);
    let pieces = u16::try_from(pieces).unwrap_or(u16::MAX);
    (0..pieces).map(move |piece| {
        let [a, b] = dealer.to_be_bytes();
        let [c, d] = piece.to_be_bytes();
        slot(b'd', &[a, b, c, d])
    })
}

fn slot(kind: u8, name: &[u8]) -> Identity {
    let mut identity = [0; 32];
    let prefix = super::external::RESERVED;
    identity[..prefix.len()].copy_from_slice(prefix);
    identity[prefix.len()] = kind;
    identity[prefix.len() + 1..][..name.len()].copy_from_slice(name);
    Identity(identity)
}

/// How many operations a dealing for so many players takes.
pub fn dealing_parts(players: u16) -> usize {
    Dealing::size(players.into()).div_ceil(DEALING_PART_BYTES)
}

/// What the owner of a new share signs to prove it.
pub fn proof_message(
    chain: &ChainId,
    epoch: Epoch,
    round: &RoundNote,
    place: u16,
) -> HashedMessage {
    let mut message = PROOF_DOMAIN.to_vec();
    chain.write(&mut message);
    epoch.write(&mut message);
    round.context.write(&mut message);
    place.write(&mut message);
    HashedMessage::new(&message)
}

/// The accounts that an operation on a round may touch, beside its sender's.
pub(crate) fn touched(
    operation: &super::Operation,
    sender: &Identity,
    acting: &ValidatorSet,
) -> Vec<Identity> {
    use super::Operation;
    // How many players there are is not known here; accounts beyond their pieces are just not there.
    let pieces = |dealer| dealing_slots(dealer, MAX_SHARING_VALIDATORS as u16);
    match operation {
        Operation::Announce { .. } => vec![announcement_slot(sender)],
        Operation::Deal { .. } => match acting.place(sender) {
            Some(dealer) => pieces(dealer).collect(),
            None => Vec::new(),
        },
        Operation::Object { dealer, player, .. }
            if usize::from(*dealer) < acting.members().len() =>
        {
            pieces(*dealer).chain([player_slot(*player)]).collect()
        }
        Operation::Prove { player, .. } => vec![player_slot(*player)],
        _ => Vec::new(),
    }
}

impl RegistryContext<'_> {
    /// The set that passes its shares on in the block's epoch.
    pub(crate) fn dealers(&self) -> Option<std::sync::Arc<ValidatorSet>> {
        self.rules.filter(|rules| rules.resharing)?;
        let (_, set) = self.committees?.acting(self.epoch)?;
        Some(set)
    }

    fn check_phase(&self, phase: Phase) -> Result<(), Failure> {
        let rules = self.rules.ok_or(Failure::NoRegistry)?;
        match (rules.resharing, self.phase == phase) {
            (false, _) => Err(Failure::WrongRegistry),
            (true, false) => Err(Failure::WrongPhase),
            (true, true) => Ok(()),
        }
    }

    /// The round of the block's epoch.
    fn round<'a>(
        &self,
        accounts: &'a mut BTreeMap<Identity, Account>,
    ) -> Result<&'a mut RoundNote, Failure> {
        let registry = accounts.get_mut(&super::REGISTRY);
        let note = registry.and_then(|account| account.note.as_deref_mut());
        let note = note.filter(|note| note.epoch == self.epoch);
        note.and_then(|note| note.round.as_mut())
            .ok_or(Failure::WrongPhase)
    }

    /// Notes that the sender wants a share of the next epoch.
    ///
    /// # Errors
    ///
    /// Why it is refused. The accounts are then as they were, here and below.
    pub fn announce(
        &self,
        sender: &Identity,
        (epoch, key): (Epoch, &OpeningKey),
        accounts: &mut BTreeMap<Identity, Account>,
    ) -> Result<(), Failure> {
        self.check_phase(Phase::Announce)?;
        // Who was behind when it made this holds another epoch's secret.
        if epoch != self.epoch {
            return Err(Failure::WrongPhase);
        }
        let acting = self.dealers().ok_or(Failure::NotActing)?;
        let has_bond = accounts
            .get(sender)
            .is_some_and(|account| account.bond.is_some());
        if !has_bond && acting.place(sender).is_none() {
            return Err(Failure::NotBonded);
        }
        if !quorate_crypto::bls::OpeningKey(key.0).is_valid() {
            return Err(Failure::BadOperation);
        }
        let before = accounts.get(&announcement_slot(sender));
        if is_absent(before, sender, self.epoch) {
            return Err(Failure::WrongPhase);
        }
        // Who acts has proven a share.
        let missed = match acting.place(sender) {
            Some(_) => 0,
            None => times_missed(before, sender),
        };
        put(
            accounts,
            announcement_slot(sender),
            Slot::Announced {
                identity: *sender,
                key: *key,
                epoch: self.epoch,
                missed,
            },
        );
        Ok(())
    }

    /// Takes a part of the sender's dealing. With the last one the dealing is checked.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub fn deal(
        &self,
        sender: &Identity,
        part: u8,
        bytes: &[u8],
        accounts: &mut BTreeMap<Identity, Account>,
    ) -> Result<(), Failure> {
        self.check_phase(Phase::Deal)?;
        let acting = self.dealers().ok_or(Failure::NotActing)?;
        let dealer = acting.place(sender).ok_or(Failure::NotActing)?;
        let round = self.round(accounts)?;
        let (players, context) = (round.players, round.context);
        if round.dealt.holds(dealer) {
            return Err(Failure::WrongPhase);
        }
        let size = Dealing::size(players.into());
        let from = usize::from(part) * DEALING_PART_BYTES;
        let length = size.saturating_sub(from).min(DEALING_PART_BYTES);
        if length == 0 || bytes.len() != length {
            return Err(Failure::BadDealing);
        }
        let slots = dealing_slots(dealer, players).skip(from / PIECE_BYTES);
        let slots: Vec<Identity> = slots.take(length.div_ceil(PIECE_BYTES)).collect();
        let before: Vec<_> = slots
            .iter()
            .map(|slot| accounts.get(slot).cloned())
            .collect();
        for (slot, piece) in slots.iter().zip(bytes.chunks(PIECE_BYTES)) {
            put(
                accounts,
                *slot,
                Slot::Piece {
                    epoch: self.epoch,
                    bytes: piece.to_vec(),
                },
            );
        }
        let Some(dealing) = read_dealing(accounts, dealer, players, self.epoch) else {
            return Ok(());
        };
        let member = &acting.members()[usize::from(dealer)];
        let round = crypto_round(context, players);
        let checked = dealing.check(&round, dealer.into(), Some(&member.vote_key.0));
        if checked.is_err() {
            for (slot, account) in slots.into_iter().zip(before) {
                accounts.insert(slot, account.unwrap_or_default());
            }
            return Err(Failure::BadDealing);
        }
        self.round(accounts)?.dealt.add(dealer);
        Ok(())
    }

    /// Takes a player's word that it was given something else than a dealing demands.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub fn object(
        &self,
        sender: &Identity,
        (player, dealer): (u16, u16),
        complaint: &Complaint,
        accounts: &mut BTreeMap<Identity, Account>,
    ) -> Result<(), Failure> {
        self.check_phase(Phase::Object)?;
        let round = self.round(accounts)?.clone();
        let is_open = round.dealt.holds(dealer) && !round.convicted.holds(dealer);
        let key = match self.player(sender, player, &round, accounts) {
            Some((key, _)) if is_open => key,
            _ => return Err(Failure::BadComplaint),
        };
        let dealing = read_dealing(accounts, dealer, round.players, self.epoch);
        let mut parties = crypto_round(round.context, round.players);
        parties.players[usize::from(player)] = quorate_crypto::bls::OpeningKey(key.0);
        // Its points were checked when it was dealt.
        let checked = dealing.and_then(|one| one.check(&parties, dealer.into(), None).ok());
        let convicts =
            checked.is_some_and(|one| one.is_convicted_by(&parties, player.into(), complaint));
        if !convicts {
            return Err(Failure::BadComplaint);
        }
        self.round(accounts)?.convicted.add(dealer);
        Ok(())
    }

    /// Takes the proof that a player has its new share.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub fn prove(
        &self,
        sender: &Identity,
        player: u16,
        signature: &PartialSignature,
        accounts: &mut BTreeMap<Identity, Account>,
    ) -> Result<(), Failure> {
        self.check_phase(Phase::Prove)?;
        let round = self.round(accounts)?.clone();
        let found = self.player(sender, player, &round, accounts);
        let Some((_, Some(share_key))) = found.filter(|_| round.has_keys) else {
            return Err(Failure::WrongPhase);
        };
        let message = proof_message(&self.chain, self.epoch, &round, player);
        let key = Scheme::aggregate_of_proven(&[share_key.0]);
        if !key.is_ok_and(|key| key.verify_partial(&message, 0, signature)) {
            return Err(Failure::BadShare);
        }
        self.round(accounts)?.proven.add(player);
        Ok(())
    }

    /// The keys of the player at a place, if it is the sender.
    fn player(
        &self,
        sender: &Identity,
        player: u16,
        round: &RoundNote,
        accounts: &BTreeMap<Identity, Account>,
    ) -> Option<(OpeningKey, Option<VoteKey>)> {
        let player =
            read_player(accounts, player, self.epoch).filter(|_| player < round.players)?;
        (player.identity == *sender).then_some((player.key, player.share_key))
    }
}

/// Before which epoch somebody may not announce itself, given the account of its announcement and the present epoch.
pub fn barred_until(account: Option<&Account>, identity: &Identity, now: Epoch) -> Option<Epoch> {
    match account.and_then(|account| account.slot.as_deref()) {
        Some(Slot::Absent {
            identity: of,
            until,
            ..
        }) if of == identity && now < *until => Some(*until),
        _ => None,
    }
}

/// Whether somebody may not announce itself in an epoch, given the account of its announcement.
pub fn is_absent(account: Option<&Account>, identity: &Identity, epoch: Epoch) -> bool {
    barred_until(account, identity, epoch).is_some()
}

/// How often somebody has announced itself and proven nothing, given the account of its announcement.
fn times_missed(account: Option<&Account>, identity: &Identity) -> u8 {
    match account.and_then(|account| account.slot.as_deref()) {
        Some(
            Slot::Announced {
                identity: of,
                missed,
                ..
            }
            | Slot::Absent {
                identity: of,
                missed,
                ..
            },
        ) if of == identity => *missed,
        _ => 0,
    }
}

/// A player, as the state has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Player {
    pub identity: Identity,
    pub key: OpeningKey,
    pub share_key: Option<VoteKey>,
}

/// The player at a place in an epoch, if the state has one.
pub fn read_player(
    accounts: &BTreeMap<Identity, Account>,
    place: u16,
    epoch: Epoch,
) -> Option<Player> {
    match accounts.get(&player_slot(place))?.slot.as_deref()? {
        Slot::Player {
            identity,
            key,
            epoch: of,
            share_key,
        } if *of == epoch => Some(Player {
            identity: *identity,
            key: *key,
            share_key: *share_key,
        }),
        _ => None,
    }
}

/// The dealing of the dealer at a place in an epoch, if all of it is there.
pub fn read_dealing(
    accounts: &BTreeMap<Identity, Account>,
    dealer: u16,
    players: u16,
    epoch: Epoch,
) -> Option<Dealing> {
    let mut all = Vec::new();
    for slot in dealing_slots(dealer, players) {
        match accounts.get(&slot)?.slot.as_deref()? {
            Slot::Piece { epoch: of, bytes } if *of == epoch => all.extend_from_slice(bytes),
            _ => return None,
        }
    }
    let is_whole = all.len() == Dealing::size(players.into());
    let dealing = Dealing::read_for(players.into(), &mut Copying(&all)).ok();
    dealing.filter(|_| is_whole)
}

/// A round whose players' keys are not looked at, or only one of them.
fn crypto_round(context: Digest, players: u16) -> Round {
    let none = quorate_crypto::bls::OpeningKey([0; 48]);
    Round {
        context,
        players: vec![none; players.into()],
    }
}

/// The round of an epoch, given the registry's own account.
pub fn round_in(registry: Option<Account>, epoch: Epoch) -> Option<RoundNote> {
    let note = registry?.note?;
    note.round.filter(|_| note.epoch == epoch)
}

/// The round of an epoch, for its dealers and players.
pub fn round_of(
    round: &RoundNote,
    accounts: &BTreeMap<Identity, Account>,
    epoch: Epoch,
) -> Option<Round> {
    let players = (0..round.players).map(|place| {
        let player = read_player(accounts, place, epoch)?;
        Some(quorate_crypto::bls::OpeningKey(player.key.0))
    });
    Some(Round {
        context: round.context,
        players: players.collect::<Option<_>>()?,
    })
}

/// The dealings that are added up, by the dealers' places; `None` if they are too few.
pub fn chosen_dealers(round: &RoundNote, acting: &ValidatorSet) -> Option<Vec<u16>> {
    let quorum = acting.quorum();
    let counting = round
        .dealt
        .iter()
        .filter(|one| !round.convicted.holds(*one));
    let chosen: Vec<u16> = counting.take(quorum).collect();
    (chosen.len() == quorum).then_some(chosen)
}

/// The accounts that [`close`] needs beside those of the bonds.
pub fn needed_to_close(
    acting: &ValidatorSet,
    note: &RegistryNote,
    phase: Phase,
    bonds: &BTreeMap<Identity, Bond>,
) -> BTreeSet<Identity> {
    let members = acting.members().iter().map(|member| member.identity);
    let places = || (0..MAX_SHARING_VALIDATORS as u16).map(player_slot);
    let mut needed = BTreeSet::new();
    match phase {
        Phase::Announce => {
            needed.extend(bonds.keys().map(announcement_slot));
            needed.extend(members.map(|identity| announcement_slot(&identity)));
            needed.extend(places());
        }
        Phase::Object => {
            let players = note.round.as_ref().map_or(0, |round| round.players);
            needed.extend((0..players).map(player_slot));
            for dealer in 0..acting.members().len() as u16 {
                needed.extend(dealing_slots(dealer, players));
            }
        }
        Phase::Prove => {
            needed.extend(places());
            needed.extend(bonds.keys().copied());
            needed.extend(bonds.keys().map(announcement_slot));
            for identity in members {
                needed.extend([identity, announcement_slot(&identity)]);
            }
        }
        Phase::Deal | Phase::Over => {}
    }
    needed
}

/// What happens after the last block of a phase; `accounts` holds those that are [`needed_to_close`], `bonds` all
/// bonds after the block. After [`Phase::Prove`] this is the set of the next epoch.
pub fn close(
    phase: Phase,
    chain: &ChainId,
    acting: &ValidatorSet,
    note: &mut RegistryNote,
    bonds: &BTreeMap<Identity, Bond>,
    rules: &RegistryRules,
    accounts: &mut BTreeMap<Identity, Account>,
) -> Option<ValidatorSet> {
    match phase {
        Phase::Announce => {
            note.round = open(chain, acting, bonds, rules, accounts);
            None
        }
        Phase::Object => {
            let round = note.round.as_mut()?;
            if let Some(keys) = add_up(round, acting, accounts) {
                for (place, key) in (0..).zip(&keys.share_keys) {
                    let account = accounts.entry(player_slot(place)).or_default();
                    if let Some(Slot::Player { share_key, .. }) = account.slot.as_deref_mut() {
                        *share_key = Some(VoteKey(*key));
                    }
                }
                round.has_keys = true;
            }
            None
        }
        Phase::Prove => Some(fix(acting, note, bonds, accounts)),
        Phase::Deal | Phase::Over => None,
    }
}

/// Chooses the players; `None` if nothing is to be dealt in this epoch.
fn open(
    chain: &ChainId,
    acting: &ValidatorSet,
    bonds: &BTreeMap<Identity, Bond>,
    rules: &RegistryRules,
    accounts: &mut BTreeMap<Identity, Account>,
) -> Option<RoundNote> {
    let mut announced = announced(acting, bonds, accounts);
    // G7
    let alone: BTreeMap<Identity, Bond>;
    let bonds = match newcomers_have_failed(acting, accounts) {
        true => {
            let acts = |identity: &Identity| acting.place(identity).is_some();
            announced.retain(|identity, _| acts(identity));
            let bonds = bonds.iter().filter(|(identity, _)| acts(identity));
            alone = bonds.map(|(one, bond)| (*one, bond.clone())).collect();
            &alone
        }
        false => bonds,
    };
    let NextSet { members, .. } =
        players(acting, bonds, rules, &announced.keys().copied().collect())?;
    let players = u16::try_from(members.len()).ok()?;
    let mut content = Vec::new();
    chain.write(&mut content);
    acting.digest().write(&mut content);
    acting.epoch.write(&mut content);
    let mut slots = Vec::new();
    for identity in &members {
        let key = *announced.get(identity)?;
        identity.write(&mut content);
        key.write(&mut content);
        slots.push(Slot::Player {
            identity: *identity,
            key,
            epoch: acting.epoch,
            share_key: None,
        });
    }
    for (place, slot) in (0..).zip(slots) {
        put(accounts, player_slot(place), slot);
    }
    Some(RoundNote {
        context: sha256(&[b"quorate/resharing/1", &content]),
        players,
        dealt: Places::default(),
        convicted: Places::default(),
        proven: Places::default(),
        has_keys: false,
    })
}

/// Whether the round of the epoch before had newcomers among its players, got as far as to fix keys, and failed. Its
/// players are still there; if it had not failed, they would all act.
fn newcomers_have_failed(acting: &ValidatorSet, accounts: &BTreeMap<Identity, Account>) -> bool {
    let Some(before) = acting.epoch.previous() else {
        return false;
    };
    let players = (0..MAX_SHARING_VALIDATORS as u16)
        .filter_map(|place| read_player(accounts, place, before))
        .filter(|player| player.share_key.is_some());
    let mut players = players;
    players.any(|player| acting.place(&player.identity).is_none())
}

/// Who has announced itself, with its key.
fn announced(
    acting: &ValidatorSet,
    bonds: &BTreeMap<Identity, Bond>,
    accounts: &BTreeMap<Identity, Account>,
) -> BTreeMap<Identity, OpeningKey> {
    let members = acting.members().iter().map(|member| &member.identity);
    let mut announced = BTreeMap::new();
    for identity in members.chain(bonds.keys()) {
        let account = accounts.get(&announcement_slot(identity));
        if let Some(Slot::Announced {
            identity: of,
            key,
            epoch,
            ..
        }) = account.and_then(|account| account.slot.as_deref())
            && (of, *epoch) == (identity, acting.epoch)
        {
            announced.insert(*identity, *key);
        }
    }
    announced
}

/// The set that is to get shares, if so many have announced themselves; `None` if none can be changed to.
pub fn players(
    acting: &ValidatorSet,
    bonds: &BTreeMap<Identity, Bond>,
    rules: &RegistryRules,
    announced: &BTreeSet<Identity>,
) -> Option<NextSet> {
    let committee = acting.committee().ok()?;
    let mut eligible = bonds.clone();
    eligible.retain(|_, bond| bond.since <= acting.epoch);
    let most = rules.max_validators as usize;
    let wanted: BTreeSet<Identity> = ranked(&eligible, rules)
        .into_iter()
        .take(most)
        .map(|(identity, _)| *identity)
        .collect();
    let members = acting.members().iter();
    let staying = members.filter(|member| wanted.contains(&member.identity));
    let tolerated = faults(staying.count());
    eligible.retain(|identity, _| wanted.contains(identity) && announced.contains(identity));
    let next = next_set(&committee, &eligible, rules, announced);
    let all_there = next.members.iter().all(|one| announced.contains(one));
    let fits = next.members.len() <= MAX_SHARING_VALIDATORS;
    // G6
    (all_there && fits && faults(next.members.len()) >= tolerated).then_some(next)
}

/// How many faults so many validators tolerate.
fn faults(validators: usize) -> usize {
    validators.saturating_sub(1) / 3
}

/// The keys of the next set's shares.
fn add_up(
    round: &RoundNote,
    acting: &ValidatorSet,
    accounts: &BTreeMap<Identity, Account>,
) -> Option<ThresholdKeys> {
    let parties = crypto_round(round.context, round.players);
    let dealings = chosen_dealers(round, acting)?.into_iter().map(|dealer| {
        let dealing = read_dealing(accounts, dealer, round.players, acting.epoch)?;
        dealing.check(&parties, dealer.into(), None).ok()
    });
    let dealings: Vec<CheckedDealing> = dealings.collect::<Option<_>>()?;
    let keys = Sum::Shares.keys(&parties, &dealings).ok()?;
    // By the arithmetic it is the same; if it were not, the chain would have another key.
    (Some(keys.group_key) == acting.group_key().map(|key| key.0)).then_some(keys)
}

/// The next set, by G1 and G2.
fn fix(
    acting: &ValidatorSet,
    note: &RegistryNote,
    bonds: &BTreeMap<Identity, Bond>,
    accounts: &mut BTreeMap<Identity, Account>,
) -> ValidatorSet {
    let stays = || acting.clone().of_epoch(acting.epoch.next());
    let Some(round) = &note.round else {
        return stays();
    };
    let mut members = Vec::new();
    let mut is_whole = true;
    // If most proofs are missing, it is not for those that lack them.
    let players = usize::from(round.players);
    let bars = round.has_keys && round.proven.count() >= players - faults(players);
    for place in 0..round.players {
        let Some(player) = read_player(accounts, place, acting.epoch) else {
            return stays();
        };
        let own = acting.members().iter();
        let own = own
            .clone()
            .find(|member| member.identity == player.identity);
        if !round.proven.holds(place) && bars {
            // An acting validator comes back after as many epochs as there are validators: by then all
            // that hold up the change have been left out at the same time.
            let identity = player.identity;
            let missed = times_missed(accounts.get(&announcement_slot(&identity)), &identity);
            let rises = usize::from(missed).min(ABSENT_EPOCHS.len() - 1);
            let absent = own.map_or(ABSENT_EPOCHS[rises], |_| acting.members().len() as u64);
            let slot = Slot::Absent {
                identity,
                until: Epoch(acting.epoch.next().0.saturating_add(absent)),
                missed: missed.saturating_add(1),
            };
            put(accounts, announcement_slot(&identity), slot);
            if own.is_none() {
                hold(accounts, &identity, acting.epoch);
            }
        }
        match player.share_key.filter(|_| round.proven.holds(place)) {
            Some(vote_key) => {
                let bond = bonds.get(&player.identity);
                let address = bond.map(|bond| bond.address.clone());
                let name = bond.map(|bond| bond.name.clone());
                members.push(Member {
                    identity: player.identity,
                    vote_key,
                    address: address
                        .or_else(|| own.map(|own| own.address.clone()))
                        .unwrap_or_default(),
                    name: name
                        .or_else(|| own.map(|own| own.name.clone()))
                        .unwrap_or_default(),
                });
            }
            None => is_whole = false,
        }
    }
    for dealer in round.convicted.iter() {
        if let Some(member) = acting.members().get(usize::from(dealer)) {
            leave_out(accounts, &member.identity, acting.epoch, CONVICTED_EPOCHS);
        }
    }
    match is_whole {
        true => acting.passed_on(members),
        false => stays(),
    }
}

/// Holds a newcomer's stake, whenever it is unbonded.
fn hold(accounts: &mut BTreeMap<Identity, Account>, who: &Identity, epoch: Epoch) {
    let bond = accounts
        .get_mut(who)
        .and_then(|account| account.bond.as_mut());
    if let Some(bond) = bond {
        let until = Epoch(epoch.next().0.saturating_add(HELD_EPOCHS));
        bond.leaves_at = bond.leaves_at.max(until);
    }
}

/// Lets nobody choose a validator for so many epochs.
fn leave_out(
    accounts: &mut BTreeMap<Identity, Account>,
    who: &Identity,
    epoch: Epoch,
    epochs: u64,
) {
    let bond = accounts
        .get_mut(who)
        .and_then(|account| account.bond.as_mut());
    if let Some(bond) = bond {
        bond.since = bond.since.max(Epoch(epoch.next().0.saturating_add(epochs)));
    }
}

fn put(accounts: &mut BTreeMap<Identity, Account>, at: Identity, slot: Slot) {
    accounts.entry(at).or_default().slot = Some(Box::new(slot));
}

impl Places {
    pub fn holds(&self, place: u16) -> bool {
        self.0.contains(&place)
    }

    pub fn add(&mut self, place: u16) {
        self.0.insert(place);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for place in &self.0 {
            let at = usize::from(*place / 8);
            if bytes.len() <= at {
                bytes.resize(at + 1, 0);
            }
            bytes[at] |= 1 << (place % 8);
        }
        bytes
    }
}

impl EncodeSize for Places {
    fn encode_size(&self) -> usize {
        1 + self.0.last().map_or(0, |last| usize::from(last / 8) + 1)
    }
}

impl Write for Places {
    fn write(&self, buffer: &mut impl BufMut) {
        let bytes = self.bytes();
        buffer.put_u8(u8::try_from(bytes.len()).expect("at most 100 places"));
        buffer.put_slice(&bytes);
    }
}

impl Read for Places {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let length = usize::from(u8::read(buffer)?);
        if length > MAX_SHARING_VALIDATORS.div_ceil(8) {
            return Err(Error::InvalidLength(length));
        }
        if buffer.remaining() < length {
            return Err(Error::EndOfBuffer);
        }
        let mut places = Self::default();
        let mut last = 0;
        for at in 0..length as u16 {
            last = u8::read(buffer)?;
            let set = (0..8).filter(|bit| last >> bit & 1 == 1);
            places.0.extend(set.map(|bit| at * 8 + bit));
        }
        match length > 0 && last == 0 {
            true => Err(Error::Invalid("places", "not in the shortest form")),
            false => Ok(places),
        }
    }
}

impl EncodeSize for RoundNote {
    fn encode_size(&self) -> usize {
        let places = self.dealt.encode_size() + self.convicted.encode_size();
        Digest::SIZE + u16::SIZE + places + self.proven.encode_size() + 1
    }
}

impl Write for RoundNote {
    fn write(&self, buffer: &mut impl BufMut) {
        self.context.write(buffer);
        self.players.write(buffer);
        self.dealt.write(buffer);
        self.convicted.write(buffer);
        self.proven.write(buffer);
        self.has_keys.write(buffer);
    }
}

impl Read for RoundNote {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self {
            context: Digest::read(buffer)?,
            players: u16::read(buffer)?,
            dealt: Places::read(buffer)?,
            convicted: Places::read(buffer)?,
            proven: Places::read(buffer)?,
            has_keys: bool::read(buffer)?,
        })
    }
}

struct Announcement {
    identity: Identity,
    key: OpeningKey,
    epoch: Epoch,
}

fixed_codec!(Announcement {
    identity: Identity,
    key: OpeningKey,
    epoch: Epoch,
});

impl EncodeSize for Slot {
    fn encode_size(&self) -> usize {
        1 + match self {
            Self::Announced { .. } => Announcement::SIZE + 1,
            Self::Player { share_key, .. } => {
                Announcement::SIZE + 1 + share_key.map_or(0, |_| VoteKey::SIZE)
            }
            Self::Absent { .. } => Identity::SIZE + Epoch::SIZE + 1,
            Self::Piece { bytes, .. } => Epoch::SIZE + 1 + bytes.len(),
        }
    }
}

impl Write for Slot {
    fn write(&self, buffer: &mut impl BufMut) {
        match self {
            Self::Announced {
                identity,
                key,
                epoch,
                missed,
            } => {
                0_u8.write(buffer);
                buffer.put_slice(&identity.encode());
                key.write(buffer);
                epoch.write(buffer);
                missed.write(buffer);
            }
            Self::Player {
                identity,
                key,
                epoch,
                share_key,
            } => {
                1_u8.write(buffer);
                buffer.put_slice(&identity.encode());
                key.write(buffer);
                epoch.write(buffer);
                write_option(share_key.as_ref(), buffer);
            }
            Self::Absent {
                identity,
                until,
                missed,
            } => {
                3_u8.write(buffer);
                buffer.put_slice(&identity.encode());
                until.write(buffer);
                missed.write(buffer);
            }
            Self::Piece { epoch, bytes } => {
                2_u8.write(buffer);
                epoch.write(buffer);
                buffer.put_u8(u8::try_from(bytes.len()).expect("a piece has 224 bytes at most"));
                buffer.put_slice(bytes);
            }
        }
    }
}

impl Read for Slot {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let tag = u8::read(buffer)?;
        if tag == 2 {
            let epoch = Epoch::read(buffer)?;
            let length = usize::from(u8::read(buffer)?);
            if length > PIECE_BYTES {
                return Err(Error::InvalidLength(length));
            }
            if buffer.remaining() < length {
                return Err(Error::EndOfBuffer);
            }
            let mut bytes = vec![0; length];
            buffer.copy_to_slice(&mut bytes);
            return Ok(Self::Piece { epoch, bytes });
        }
        if tag == 3 {
            return Ok(Self::Absent {
                identity: Identity::read(buffer)?,
                until: Epoch::read(buffer)?,
                missed: u8::read(buffer)?,
            });
        }
        let Announcement {
            identity,
            key,
            epoch,
        } = Announcement::read(buffer)?;
        match tag {
            0 => Ok(Self::Announced {
                identity,
                key,
                epoch,
                missed: u8::read(buffer)?,
            }),
            1 => Ok(Self::Player {
                identity,
                key,
                epoch,
                share_key: read_option(buffer)?,
            }),
            _ => Err(Error::InvalidEnum(tag)),
        }
    }
}
