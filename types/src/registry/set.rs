//! The validators of an epoch on a chain with a registry: who they are, with which keys, and where.

use super::{
    Bond, BondAddress, BondName, NextSet, RegistryRules, RoundNote, VoteKey, next_set, ranked,
};
use crate::{
    Committee, CommitteeError, Epoch, ValidatorIndex,
    codec::{list_size, read_list, write_list},
    genesis::{Genesis, GenesisError, GenesisValidator},
    limits::MAX_VALIDATORS,
};
use bytes::BufMut;
use commonware_codec::{
    Buf, Encode, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt,
};
use quorate_crypto::{
    Digest, Identity,
    bls::{KeyError, Scheme, ThresholdKeys},
    sha256,
};
use std::collections::{BTreeMap, BTreeSet};

/// Version byte of an encoded [`ValidatorSet`] whose validators have keys of their own.
const SET_VERSION: u8 = 1;

/// Version byte of an encoded [`ValidatorSet`] whose validators share a key.
const SHARING_VERSION: u8 = 2;

/// A validator of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Member {
    pub identity: Identity,
    /// The key of its votes in this epoch.
    pub vote_key: VoteKey,
    /// Where it can be reached; empty for the addresses of the configuration.
    pub address: BondAddress,
    pub name: BondName,
}

/// The validators of an epoch, in the committee's order.
///
/// Encoded as version 1, the epoch and the list of members; or, if they share a key, as version 2, the
/// epoch, the key and the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidatorSet {
    pub epoch: Epoch,
    /// The key that they share, of which each member's vote key is a share's. It is the same in all epochs.
    group_key: Option<VoteKey>,
    members: Vec<Member>,
}

/// What the state says about an epoch's validators: kept in the account [`super::REGISTRY`], so that it is
/// proven as any balance is.
///
/// Encoded as the epoch, a `u16` count of bytes and as many bytes of `heard`, and a byte whose lowest bit says that the
/// digest follows, and whose second that a round does.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RegistryNote {
    pub epoch: Epoch,
    /// Who has led a final block of the epoch, up to its middle: a bit for each place, the lowest bit of
    /// the first byte for place 0.
    #[serde(with = "hexadecimal")]
    heard: Vec<u8>,
    /// The digest of the next epoch's [`ValidatorSet`], once the middle of this one has fixed it.
    pub next: Option<Digest>,
    /// How far passing on the shares of the group key is, on a chain whose validators share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<RoundNote>,
}

impl RegistryNote {
    /// Notes that the validator at a place has led a final block of an epoch. Returns whether that is news.
    pub fn hear(&mut self, epoch: Epoch, place: ValidatorIndex) -> bool {
        if self.epoch != epoch {
            *self = Self {
                epoch,
                ..Self::default()
            };
        }
        let (byte, bit) = (place.as_usize() / 8, 1 << (place.as_usize() % 8));
        if self.heard.len() <= byte {
            self.heard.resize(byte + 1, 0);
        }
        let is_news = self.heard[byte] & bit == 0;
        self.heard[byte] |= bit;
        is_news
    }

    /// Those of an epoch's validators that were heard in it.
    pub fn heard(&self, acting: &Committee) -> BTreeSet<Identity> {
        if self.epoch != acting.epoch() {
            return BTreeSet::new();
        }
        let places = acting.identities().iter().enumerate();
        places
            .filter(|(place, _)| {
                (self.heard.get(place / 8)).is_some_and(|byte| byte >> (place % 8) & 1 == 1)
            })
            .map(|(_, identity)| *identity)
            .collect()
    }
}

impl EncodeSize for RegistryNote {
    fn encode_size(&self) -> usize {
        let round = self.round.as_ref().map_or(0, EncodeSize::encode_size);
        Epoch::SIZE + 2 + self.heard.len() + 1 + self.next.map_or(0, |_| Digest::SIZE) + round
    }
}

impl Write for RegistryNote {
    fn write(&self, buffer: &mut impl BufMut) {
        self.epoch.write(buffer);
        buffer.put_u16(u16::try_from(self.heard.len()).expect("at most 128 bytes"));
        buffer.put_slice(&self.heard);
        let follows = u8::from(self.next.is_some()) | u8::from(self.round.is_some()) << 1;
        follows.write(buffer);
        if let Some(next) = &self.next {
            next.write(buffer);
        }
        if let Some(round) = &self.round {
            round.write(buffer);
        }
    }
}

impl Read for RegistryNote {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let epoch = Epoch::read(buffer)?;
        let length = usize::from(u16::read(buffer)?);
        if length > MAX_VALIDATORS.div_ceil(8) {
            return Err(Error::InvalidLength(length));
        }
        if buffer.remaining() < length {
            return Err(Error::EndOfBuffer);
        }
        let mut heard = vec![0; length];
        buffer.copy_to_slice(&mut heard);
        let follows = u8::read(buffer)?;
        if follows > 3 {
            return Err(Error::InvalidEnum(follows));
        }
        Ok(Self {
            epoch,
            heard,
            next: match follows & 1 {
                0 => None,
                _ => Some(Digest::read(buffer)?),
            },
            round: match follows & 2 {
                0 => None,
                _ => Some(RoundNote::read(buffer)?),
            },
        })
    }
}

impl ValidatorSet {
    /// The validators of the genesis file, which serve in epoch 0.
    ///
    /// # Errors
    ///
    /// If a vote key is not hexadecimal of its length.
    pub fn of_genesis(genesis: &Genesis) -> Result<Self, GenesisError> {
        let members = genesis.validators.iter().map(GenesisValidator::member);
        Ok(Self {
            epoch: Epoch(0),
            group_key: genesis.shared_key()?,
            members: members.collect::<Result<_, GenesisError>>()?,
        })
    }

    /// A set of these validators. Whether they make a committee is not checked.
    pub fn of_members(epoch: Epoch, members: Vec<Member>) -> Self {
        Self {
            epoch,
            group_key: None,
            members,
        }
    }

    /// The same validators, who share this key.
    pub fn sharing(self, group_key: Option<VoteKey>) -> Self {
        Self { group_key, ..self }
    }

    /// Those who get the shares of this set's key for the next epoch.
    pub fn passed_on(&self, members: Vec<Member>) -> Self {
        Self {
            epoch: self.epoch.next(),
            group_key: self.group_key,
            members,
        }
    }

    /// The key that the validators share, if they do.
    pub fn group_key(&self) -> Option<VoteKey> {
        self.group_key
    }

    /// The place of a validator.
    pub fn place(&self, identity: &Identity) -> Option<u16> {
        let mut members = self.members.iter();
        let place = members.position(|member| member.identity == *identity)?;
        u16::try_from(place).ok()
    }

    /// How many of them make a certificate: n − f.
    pub fn quorum(&self) -> usize {
        let size = self.members.len();
        size - size.saturating_sub(1) / 3
    }

    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The same validators in another epoch.
    pub fn of_epoch(self, epoch: Epoch) -> Self {
        Self { epoch, ..self }
    }

    /// What the state of the chain names it by.
    pub fn digest(&self) -> Digest {
        sha256(&[b"quorate/validator-set/1", &self.encode()])
    }

    /// # Errors
    ///
    /// If it names a validator twice, or none.
    pub fn committee(&self) -> Result<Committee, CommitteeError> {
        let identities = self.members.iter().map(|member| member.identity);
        Committee::new(self.epoch, identities.collect())
    }

    /// The scheme of their votes. Possession of the keys was proven when they were bonded, or the shares of the
    /// group key when they were dealt.
    ///
    /// # Errors
    ///
    /// If a key is none, or there twice: the set is not one that was proven.
    pub fn scheme(&self) -> Result<Scheme, KeyError> {
        let keys: Vec<[u8; 96]> = self.members.iter().map(|one| one.vote_key.0).collect();
        let Some(group_key) = self.group_key else {
            return Scheme::aggregate_of_proven(&keys);
        };
        Scheme::threshold(&ThresholdKeys {
            quorum: u32::try_from(self.quorum()).unwrap_or(u32::MAX),
            group_key: group_key.0,
            share_keys: keys,
        })
    }

    /// Whether the same validators with the same keys are in the same places, so that nothing changes
    /// for votes and certificates.
    pub fn votes_as(&self, other: &Self) -> bool {
        let mut pairs = self.members.iter().zip(&other.members);
        self.members.len() == other.members.len()
            && pairs.all(|(a, b)| (a.identity, a.vote_key) == (b.identity, b.vote_key))
    }

    /// Whether it votes as another set, and each validator is where it is there. What people call it does not
    /// matter.
    pub fn is_reached_as(&self, other: &Self) -> bool {
        let mut pairs = self.members.iter().zip(&other.members);
        self.votes_as(other) && pairs.all(|(a, b)| a.address == b.address)
    }

    /// The set of the next epoch, given all bonds and who has led a final block of this one so far; see
    /// [`super::next`].
    ///
    /// No vote key is there twice: who bonds with a key that another one has does not join, and who
    /// rotates to such a key keeps its own. (One operator may hold both secrets, so a proof of
    /// possession does not exclude it.)
    ///
    /// # Errors
    ///
    /// If this set names a validator twice.
    pub fn following(
        &self,
        bonds: &BTreeMap<Identity, Bond>,
        rules: &RegistryRules,
        heard: &BTreeSet<Identity>,
    ) -> Result<(Self, NextSet), CommitteeError> {
        let acting = self.committee()?;
        let mut taken: BTreeSet<VoteKey> = BTreeSet::new();
        for member in &self.members {
            taken.insert(member.vote_key);
            taken.extend(bonds.get(&member.identity).map(|bond| bond.vote_key));
        }
        let mut eligible = bonds.clone();
        eligible.retain(|_, bond| bond.since <= self.epoch);
        let joining: Vec<Identity> = ranked(&eligible, rules)
            .into_iter()
            .filter(|(identity, _)| acting.place(identity).is_none())
            .filter(|(_, bond)| !taken.insert(bond.vote_key))
            .map(|(identity, _)| *identity)
            .collect();
        for doubled in joining {
            eligible.remove(&doubled);
        }
        let next = next_set(&acting, &eligible, rules, heard);
        let mut keys: BTreeMap<VoteKey, Identity> = self
            .members
            .iter()
            .map(|member| (member.vote_key, member.identity))
            .collect();
        let members = next.members.iter().filter_map(|identity| {
            let own = acting
                .place(identity)
                .and_then(|place| self.members.get(place.as_usize()));
            let Some(bond) = bonds.get(identity) else {
                return own.cloned();
            };
            let mut member = Member {
                identity: *identity,
                vote_key: bond.vote_key,
                address: bond.address.clone(),
                name: bond.name.clone(),
            };
            let holder = *keys.entry(member.vote_key).or_insert(*identity);
            if let (true, Some(own)) = (holder != *identity, own) {
                member.vote_key = own.vote_key;
            }
            Some(member)
        });
        Ok((self.passed_on(members.collect()), next))
    }
}

impl EncodeSize for Member {
    fn encode_size(&self) -> usize {
        Identity::SIZE + VoteKey::SIZE + self.address.encode_size() + self.name.encode_size()
    }
}

impl Write for Member {
    fn write(&self, buffer: &mut impl BufMut) {
        self.identity.write(buffer);
        self.vote_key.write(buffer);
        self.address.write(buffer);
        self.name.write(buffer);
    }
}

impl Read for Member {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self {
            identity: Identity::read(buffer)?,
            vote_key: VoteKey::read(buffer)?,
            address: BondAddress::read(buffer)?,
            name: BondName::read(buffer)?,
        })
    }
}

impl EncodeSize for ValidatorSet {
    fn encode_size(&self) -> usize {
        let group_key = self.group_key.map_or(0, |_| VoteKey::SIZE);
        1 + Epoch::SIZE + group_key + list_size(&self.members)
    }
}

impl Write for ValidatorSet {
    fn write(&self, buffer: &mut impl BufMut) {
        match &self.group_key {
            None => {
                SET_VERSION.write(buffer);
                self.epoch.write(buffer);
            }
            Some(group_key) => {
                SHARING_VERSION.write(buffer);
                self.epoch.write(buffer);
                group_key.write(buffer);
            }
        }
        write_list(&self.members, buffer);
    }
}

impl Read for ValidatorSet {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let version = u8::read(buffer)?;
        if ![SET_VERSION, SHARING_VERSION].contains(&version) {
            return Err(Error::Invalid("validator set", "unknown version"));
        }
        let set = Self {
            epoch: Epoch::read(buffer)?,
            group_key: match version == SHARING_VERSION {
                true => Some(VoteKey::read(buffer)?),
                false => None,
            },
            members: read_list(buffer, MAX_VALIDATORS)?,
        };
        match set.committee() {
            Ok(_) => Ok(set),
            Err(_) => Err(Error::Invalid("validator set", "is no committee")),
        }
    }
}

pub(super) mod hexadecimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &[u8],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(bytes))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        reader: D,
    ) -> Result<Vec<u8>, D::Error> {
        hex::decode(String::deserialize(reader)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonware_codec::{Copying, DecodeExt};

    const RULES: RegistryRules = RegistryRules {
        min_stake: 10,
        max_validators: 7,
        unbond_epochs: 2,
        slashing: None,
        external: None,
        resharing: false,
    };

    fn id(number: u8) -> Identity {
        Identity([number; 32])
    }

    fn bond(number: u8, key: u8, since: u64) -> (Identity, Bond) {
        let bond = Bond {
            identity: id(number),
            stake: 100,
            leaving: 0,
            leaves_at: Epoch(0),
            since: Epoch(since),
            vote_key: VoteKey([key; 96]),
            address: format!("host-{number}:1").parse().expect("short"),
            name: BondName::default(),
        };
        (bond.identity, bond)
    }

    fn set(epoch: u64, members: &[(u8, u8)]) -> ValidatorSet {
        let members = members.iter().map(|(number, key)| Member {
            identity: id(*number),
            vote_key: VoteKey([*key; 96]),
            address: BondAddress::default(),
            name: BondName::default(),
        });
        ValidatorSet::of_members(Epoch(epoch), members.collect())
    }

    /// Everybody is heard.
    fn all() -> BTreeSet<Identity> {
        (0..20).map(id).collect()
    }

    /// The members' numbers and keys.
    fn following(set: &ValidatorSet, bonds: &[(Identity, Bond)]) -> Vec<(u8, u8)> {
        let bonds = bonds.iter().cloned().collect();
        let (next, _) = set.following(&bonds, &RULES, &all()).expect("a committee");
        assert_eq!(next.epoch, set.epoch.next());
        let members = next.members().iter();
        members
            .map(|one| (one.identity.0[0], one.vote_key.0[0]))
            .collect()
    }

    #[test]
    fn a_set_takes_keys_and_addresses_from_the_bonds() {
        let acting = set(3, &[(1, 1), (2, 2), (3, 3), (4, 4)]);
        let mut bonds = [
            bond(1, 1, 0),
            bond(2, 20, 0),
            bond(3, 3, 0),
            bond(4, 4, 0),
            bond(5, 5, 3),
        ];
        let expected = [(1, 1), (2, 20), (3, 3), (4, 4), (5, 5)];
        assert_eq!(following(&acting, &bonds), expected);
        // One whose links are not made yet has to wait.
        bonds[4] = bond(5, 5, 4);
        assert_eq!(following(&acting, &bonds), expected[..4]);
        let bonds = bonds.into_iter().collect();
        let (next, _) = acting
            .following(&bonds, &RULES, &all())
            .expect("a committee");
        assert_eq!(next.members()[1].address.as_str(), "host-2:1");
        assert!(!next.votes_as(&acting));
        assert!(next.votes_as(&next.clone().of_epoch(Epoch(9))));
    }

    #[test]
    fn no_key_is_in_a_set_twice() {
        let acting = set(3, &[(1, 1), (2, 2), (3, 3), (4, 4)]);
        let mut bonds = vec![bond(1, 1, 0), bond(2, 2, 0), bond(3, 3, 0), bond(4, 4, 0)];
        // A newcomer with a key that somebody has, or will have, or that another newcomer has.
        let joins = |bonds: &[(Identity, Bond)], more: &[(Identity, Bond)]| {
            let all: Vec<_> = bonds.iter().chain(more).cloned().collect();
            following(&acting, &all)[4..].to_vec()
        };
        assert_eq!(joins(&bonds, &[bond(5, 1, 0)]), []);
        assert_eq!(joins(&bonds, &[bond(5, 9, 0), bond(6, 9, 0)]), [(5, 9)]);
        // Two rotate to one key, or one to the other's: the second keeps its own.
        bonds[0] = bond(1, 7, 0);
        bonds[2] = bond(3, 7, 0);
        bonds[3] = bond(4, 2, 0);
        assert_eq!(following(&acting, &bonds), [(1, 7), (2, 2), (3, 3), (4, 4)]);
        assert_eq!(joins(&bonds, &[bond(5, 7, 0)]), []);
    }

    #[test]
    fn who_has_withdrawn_and_must_stay_keeps_its_key() {
        let acting = set(3, &[(1, 1), (2, 2), (3, 3), (4, 4)]);
        // N1: three are too few, so nobody leaves.
        let bonds = [bond(1, 1, 0), bond(2, 2, 0), bond(3, 3, 0)];
        assert_eq!(following(&acting, &bonds)[3], (4, 4));
    }

    #[test]
    fn a_note_says_who_was_heard_in_its_epoch() {
        let mut note = RegistryNote::default();
        assert!(note.hear(Epoch(3), ValidatorIndex(3)));
        assert!(note.hear(Epoch(3), ValidatorIndex(9)));
        assert!(!note.hear(Epoch(3), ValidatorIndex(3)));
        note.next = Some(Digest([7; 32]));
        let bytes = note.encode();
        assert_eq!(bytes.len(), note.encode_size());
        assert_eq!(
            RegistryNote::decode(bytes.clone()).expect("its own encoding"),
            note
        );
        for cut in 0..bytes.len() {
            assert!(RegistryNote::decode(Copying(&bytes[..cut])).is_err());
        }
        let committee = |epoch| {
            let identities = (0..12).map(id).collect();
            Committee::new(Epoch(epoch), identities).expect("distinct")
        };
        assert_eq!(note.heard(&committee(3)), [id(3), id(9)].into());
        assert!(note.heard(&committee(4)).is_empty());
        // Another epoch begins with nobody, and with no next set.
        assert!(note.hear(Epoch(4), ValidatorIndex(0)));
        assert_eq!(note.heard(&committee(4)), [id(0)].into());
        assert_eq!(note.next, None);
    }

    #[test]
    fn a_set_has_one_encoding_and_the_epoch_is_part_of_its_digest() {
        let acting = set(3, &[(1, 1), (2, 2), (3, 3), (4, 4)]);
        let bytes = acting.encode();
        assert_eq!(
            ValidatorSet::decode(bytes.clone()).expect("its own encoding"),
            acting
        );
        assert_ne!(acting.digest(), acting.clone().of_epoch(Epoch(4)).digest());
        for cut in 0..bytes.len() {
            assert!(ValidatorSet::decode(Copying(&bytes[..cut])).is_err());
        }
        let twice = set(3, &[(1, 1), (1, 2)]);
        assert!(ValidatorSet::decode(twice.encode()).is_err());
    }
}
