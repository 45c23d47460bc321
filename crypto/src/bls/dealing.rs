//! Sharing a group key without a dealer whom all must trust, and passing it on to other validators.
//!
//! Some *dealers* each choose a polynomial and give every *player* its value there. The sum of the polynomials
//! shares a fresh key that nobody knows (joint Feldman; Gennaro, Jarecki, Krawczyk, Rabin: *Secure Distributed Key
//! Generation for Discrete-Log Based Cryptosystems*). If the dealers' polynomials begin with their shares of an older
//! polynomial, the weighted sum of a quorum of them shares the same key by a new polynomial (Desmedt, Jajodia:
//! *Redistributing Secret Shares to New Access Structures*), and the older shares are worth nothing beside the new
//! ones.
//!
//! A [`Dealing`] is public: the polynomial as points of G2, and each player's value sealed with a key that the player
//! has made for this [`Round`]. So everybody checks the same bytes, a player that was away opens its shares later, and
//! after a crash there is nothing to restore but the [`OpeningSecret`].
//!
//! What is sealed is seen only by its player. If it is not the value that the points demand, the player says so with a
//! [`Complaint`], which everybody can check. A complaint shows the dealing's point times the player's secret, and would
//! open any other seal that was made with a multiple of this point. So a dealing proves that its dealer knows the
//! logarithm of its point, for this very dealing (Schnorr): then the dealer could compute what a complaint shows from the
//! player's key, and learns nothing by it. Without the proof a dealer took an honest dealer's point times a number
//! for its own, sealed nonsense, and read all of the honest one's seals out of the complaints. No complaint holds
//! against an honest dealer.
//!
//! Who knows a player's opening secret later can open its shares from public bytes. So it must be destroyed once its
//! shares no longer count, and the shares with it.
//!
//! *What is proven where.* A dealing that passes [`Dealing::check`] has the round's degree exactly, since no point of
//! it is the identity. Its author knows the polynomial if a quorum of players have opened their shares
//! without a complaint: so a dealer that has seen the others' points cannot choose its own to cancel theirs. A last
//! dealer can still choose among several keys by leaving itself out, which does no harm to signatures.

use super::{
    KeyError, MAX_VALIDATORS, ThresholdKeys, VoteSecret,
    keys::{SecretError, quorum},
};
use crate::{Digest, sha256};
use bytes::BufMut;
use commonware_codec::{
    Buf, Copying, DecodeExt as _, EncodeFixed as _, EncodeSize, Error, FixedSize, Read,
    ReadExt as _, Write,
};
use commonware_cryptography::bls12381::primitives::group::{G1, G2, Scalar, ScalarReadCfg};
use commonware_math::algebra::{
    Additive as _, CryptoGroup as _, Field as _, Random as _, Ring as _, Space as _,
};
use commonware_parallel::Sequential;
use rand::{CryptoRng, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use zeroize::Zeroizing;

/// Domain of the hash that a proof's challenge is.
const CHALLENGE_DST: &[u8] = b"QUORATE-V1-DEALING-CHALLENGE";

/// Domain of the hash that the challenge of a dealing's own proof is.
const KNOWLEDGE_DST: &[u8] = b"QUORATE-V1-DEALING-KNOWLEDGE";

/// What a player opens its shares of one round with. It has no `Debug` and no `Clone`, and its memory is wiped
/// when it is dropped.
pub struct OpeningSecret(Scalar);

/// What shares for a player are sealed with: a compressed point of G1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpeningKey(pub [u8; 48]);

/// Who takes part in a round, and what makes it different from any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Names the round: chain, epoch, dealers and players must be part of what is hashed here.
    pub context: Digest,
    /// The players' keys, by their places.
    pub players: Vec<OpeningKey>,
}

/// What a dealer publishes. Encoded as its parts, whose lengths follow from the round's players.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dealing {
    /// The polynomial's coefficients times G2's generator, from the constant up: compressed points.
    pub coefficients: Vec<[u8; 96]>,
    /// What the seals are made with: a compressed point of G1.
    pub point: [u8; 48],
    /// Each player's value, by place.
    pub sealed: Vec<[u8; 32]>,
    /// That the dealer knows the logarithm of `point`: the challenge and the response.
    pub proof: [[u8; 32]; 2],
}

/// A dealing whose points have passed every check, with its dealer's place.
#[derive(Clone)]
pub struct CheckedDealing {
    dealer: u32,
    /// The coefficients, from the constant up; never empty.
    polynomial: Vec<G2>,
    point: G1,
    sealed: Vec<[u8; 32]>,
}

/// Why a dealing is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DealingError {
    /// A round has 1 to [`MAX_VALIDATORS`] players, and a dealing a value for each and as many points as a quorum.
    #[error("the dealing is not for this number of players")]
    Size,
    /// A point is none of its group, or the identity.
    #[error("the dealing has a point that is none of the group, or the identity")]
    Point,
    /// The dealer has not made the seals' point itself, for this dealing.
    #[error("the dealing does not prove that its dealer has made it")]
    Proof,
    /// The polynomial does not begin with the dealer's own share.
    #[error("the dealing does not pass on the dealer's own share")]
    OtherShare,
}

/// Shows what a player finds in one seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The dealing's point times the player's secret: a compressed point of G1.
    pub opened: [u8; 48],
    /// That it is: the challenge and the response of a proof of equal logarithms (Chaum and Pedersen).
    pub challenge: [u8; 32],
    pub response: [u8; 32],
}

/// How dealings are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// All of them make a fresh key.
    Fresh,
    /// They pass on shares of one key: exactly a quorum of those who share it.
    Shares,
}

impl OpeningSecret {
    pub fn random(rng: impl CryptoRng) -> Self {
        Self(Scalar::random(rng))
    }

    /// # Errors
    ///
    /// If the number is zero or not below the order of the group.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, SecretError> {
        read_scalar(bytes).map(Self).ok_or(SecretError)
    }

    /// Thirty-two bytes, for writing them to a file.
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.encode_fixed())
    }

    pub fn key(&self) -> OpeningKey {
        OpeningKey((G1::generator() * &self.0).encode_fixed())
    }
}

impl OpeningKey {
    /// Whether shares can be sealed with it.
    pub fn is_valid(&self) -> bool {
        self.read().is_some()
    }

    fn read(&self) -> Option<G1> {
        G1::decode(Copying(&self.0)).ok()
    }
}

impl Round {
    /// How many of the players can sign together.
    pub fn quorum(&self) -> u32 {
        quorum(self.size())
    }

    fn size(&self) -> u32 {
        u32::try_from(self.players.len()).unwrap_or(u32::MAX)
    }

    /// Deals a secret that only the seed determines. It must be random, known to nobody else, and of this round
    /// only.
    ///
    /// # Errors
    ///
    /// If there are no players or too many, or a key is none.
    pub fn deal_fresh(&self, dealer: u32, seed: [u8; 32]) -> Result<Dealing, DealingError> {
        self.deal_fresh_but(dealer, seed, |_| {})
    }

    /// What a dishonest dealer can publish instead: it changes the dealing before it proves it. For tests and simulations.
    ///
    /// # Errors
    ///
    /// As [`Self::deal_fresh`].
    pub fn deal_fresh_but(
        &self,
        dealer: u32,
        seed: [u8; 32],
        change: impl FnOnce(&mut Dealing),
    ) -> Result<Dealing, DealingError> {
        let mut rng = ChaCha20Rng::from_seed(seed);
        let constant = Scalar::random(&mut rng);
        self.deal(dealer, constant, rng, change)
    }

    /// Passes on a share. The same share in the same round makes the same dealing, so a dealer that has crashed deals
    /// again and contradicts nothing.
    ///
    /// # Errors
    ///
    /// If there are no players or too many, or a key is none.
    pub fn deal_share(&self, dealer: u32, share: &VoteSecret) -> Result<Dealing, DealingError> {
        self.deal_share_but(dealer, share, |_| {})
    }

    /// What a dishonest dealer can publish instead: it changes the dealing before it proves it. For tests and simulations.
    ///
    /// # Errors
    ///
    /// As [`Self::deal_share`].
    pub fn deal_share_but(
        &self,
        dealer: u32,
        share: &VoteSecret,
        change: impl FnOnce(&mut Dealing),
    ) -> Result<Dealing, DealingError> {
        let bytes = share.to_bytes();
        let mut players = Vec::new();
        for player in &self.players {
            players.extend_from_slice(&player.0);
        }
        // Another round, or other players, another polynomial: two dealings of one polynomial to different
        // players would show more of it than either.
        let seed = Zeroizing::new(
            sha256(&[
                b"quorate/dealing-seed/1",
                &*bytes,
                &self.context.0,
                &dealer.to_be_bytes(),
                &players,
            ])
            .0,
        );
        let constant = read_scalar(&bytes).expect("a vote secret is a scalar above zero");
        self.deal(dealer, constant, ChaCha20Rng::from_seed(*seed), change)
    }

    fn deal(
        &self,
        dealer: u32,
        constant: Scalar,
        mut rng: ChaCha20Rng,
        change: impl FnOnce(&mut Dealing),
    ) -> Result<Dealing, DealingError> {
        let size = self.size();
        if !(1..=MAX_VALIDATORS).contains(&size) {
            return Err(DealingError::Size);
        }
        let higher = (1..self.quorum()).map(|_| Scalar::random(&mut rng));
        let polynomial: Vec<Scalar> = std::iter::once(constant).chain(higher).collect();
        let secret = Scalar::random(&mut rng);
        let mut sealed = Vec::with_capacity(self.players.len());
        for (player, key) in (0..).zip(&self.players) {
            let shared = key.read().ok_or(DealingError::Point)? * &secret;
            let at = place(player);
            let horner = |sum: Scalar, coefficient| sum * &at + coefficient;
            let value = polynomial.iter().rev().fold(Scalar::zero(), horner);
            let bytes: Zeroizing<[u8; 32]> = Zeroizing::new(value.encode_fixed());
            sealed.push(self.seal(dealer, player, &shared, &bytes));
        }
        let coefficients = polynomial.iter();
        let coefficients = coefficients.map(|one| (G2::generator() * one).encode_fixed());
        let mut dealing = Dealing {
            coefficients: coefficients.collect(),
            point: (G1::generator() * &secret).encode_fixed(),
            sealed,
            proof: [[0; 32]; 2],
        };
        change(&mut dealing);
        let nonce = Scalar::random(&mut rng);
        let challenge = dealing.challenge(self, dealer, &(G1::generator() * &nonce));
        let response = nonce + &(challenge.clone() * &secret);
        dealing.proof = [challenge.encode_fixed(), response.encode_fixed()];
        Ok(dealing)
    }

    /// Seals and opens: the same operation.
    fn seal(&self, dealer: u32, player: u32, shared: &G1, bytes: &[u8; 32]) -> [u8; 32] {
        let shared: Zeroizing<[u8; 48]> = Zeroizing::new(shared.encode_fixed());
        let pad = Zeroizing::new(
            sha256(&[
                b"quorate/dealing-seal/1",
                &self.context.0,
                &dealer.to_be_bytes(),
                &player.to_be_bytes(),
                &*shared,
            ])
            .0,
        );
        std::array::from_fn(|at| bytes[at] ^ pad[at])
    }
}

impl Dealing {
    /// How many bytes it has in a round of this many players.
    pub fn size(players: usize) -> usize {
        let points = quorum(u32::try_from(players).unwrap_or(u32::MAX)) as usize;
        points * 96 + 48 + players * 32 + 64
    }

    /// Reads a dealing for so many players.
    ///
    /// # Errors
    ///
    /// If there are fewer bytes, or no players or too many.
    pub fn read_for(players: usize, buffer: &mut impl Buf) -> Result<Self, Error> {
        if !(1..=MAX_VALIDATORS as usize).contains(&players) {
            return Err(Error::InvalidLength(players));
        }
        if buffer.remaining() < Self::size(players) {
            return Err(Error::EndOfBuffer);
        }
        let points = quorum(players as u32);
        let coefficients = (0..points).map(|_| <[u8; 96]>::read(buffer));
        Ok(Self {
            coefficients: coefficients.collect::<Result<_, _>>()?,
            point: <[u8; 48]>::read(buffer)?,
            sealed: (0..players)
                .map(|_| <[u8; 32]>::read(buffer))
                .collect::<Result<_, _>>()?,
            proof: [<[u8; 32]>::read(buffer)?, <[u8; 32]>::read(buffer)?],
        })
    }

    /// All of the dealing is hashed, so that nobody else can use its point or its seals.
    fn challenge(&self, round: &Round, dealer: u32, commitment: &G1) -> Scalar {
        let mut content = Vec::with_capacity(self.encode_size() + 84);
        content.put_slice(&round.context.0);
        content.put_u32(dealer);
        self.write_parts(&mut content);
        commitment.write(&mut content);
        Scalar::map(KNOWLEDGE_DST, &content)
    }

    fn is_its_dealers(&self, round: &Round, dealer: u32, point: &G1) -> bool {
        let [challenge, response] = &self.proof;
        let (Some(challenge), Some(response)) = (read_scalar(challenge), read_scalar(response))
        else {
            return false;
        };
        let commitment = G1::generator() * &response - &(*point * &challenge);
        self.challenge(round, dealer, &commitment) == challenge
    }

    fn write_parts(&self, buffer: &mut impl BufMut) {
        for point in &self.coefficients {
            buffer.put_slice(point);
        }
        buffer.put_slice(&self.point);
        for sealed in &self.sealed {
            buffer.put_slice(sealed);
        }
    }

    /// Checks everything that is public. Of the round's players only their number matters. `share_key` is the dealer's, if shares are passed on.
    ///
    /// # Errors
    ///
    /// Why it is refused, see [`DealingError`].
    pub fn check(
        &self,
        round: &Round,
        dealer: u32,
        share_key: Option<&[u8; 96]>,
    ) -> Result<CheckedDealing, DealingError> {
        let size = round.players.len();
        let fits = (1..=MAX_VALIDATORS as usize).contains(&size)
            && self.sealed.len() == size
            && self.coefficients.len() == round.quorum() as usize;
        if !fits {
            return Err(DealingError::Size);
        }
        if share_key.is_some_and(|key| self.coefficients[0] != *key) {
            return Err(DealingError::OtherShare);
        }
        let point = G1::decode(Copying(&self.point)).map_err(|_| DealingError::Point)?;
        if !self.is_its_dealers(round, dealer, &point) {
            return Err(DealingError::Proof);
        }
        let mut points = Vec::with_capacity(self.coefficients.len());
        for point in &self.coefficients {
            points.push(G2::decode(Copying(point)).map_err(|_| DealingError::Point)?);
        }
        Ok(CheckedDealing {
            dealer,
            polynomial: points,
            point,
            sealed: self.sealed.clone(),
        })
    }
}

impl EncodeSize for Dealing {
    fn encode_size(&self) -> usize {
        self.coefficients.len() * 96 + 48 + self.sealed.len() * 32 + 64
    }
}

impl Write for Dealing {
    fn write(&self, buffer: &mut impl BufMut) {
        self.write_parts(buffer);
        for part in &self.proof {
            buffer.put_slice(part);
        }
    }
}

impl CheckedDealing {
    /// The dealer's place.
    pub fn dealer(&self) -> u32 {
        self.dealer
    }

    /// A player's value, or what convicts the dealer of having sealed something else.
    ///
    /// # Errors
    ///
    /// If the seal holds something else. (Also if the secret is not the one of the player's key: then the complaint
    /// does not hold.)
    ///
    /// # Panics
    ///
    /// If there is no such player.
    pub fn open(
        &self,
        round: &Round,
        player: u32,
        secret: &OpeningSecret,
    ) -> Result<VoteSecret, Complaint> {
        let opened = self.point * &secret.0;
        match self.value(round, player, &opened) {
            Some(value) => Ok(value),
            None => Err(self.complain(round, player, secret, &opened)),
        }
    }

    #[cfg(test)]
    pub(super) fn complaint_of(
        &self,
        round: &Round,
        player: u32,
        secret: &OpeningSecret,
    ) -> Complaint {
        let opened = self.point * &secret.0;
        self.complain(round, player, secret, &opened)
    }

    /// What is in a player's seal, if it is the value that the points demand.
    fn value(&self, round: &Round, player: u32, opened: &G1) -> Option<VoteSecret> {
        let sealed = &self.sealed[player as usize];
        let bytes = Zeroizing::new(round.seal(self.dealer, player, opened, sealed));
        let value = read_scalar(&bytes)?;
        let is_right = G2::generator() * &value == self.point_of(player);
        is_right.then(|| VoteSecret::from_bytes(&bytes).ok())?
    }

    /// The player's value times G2's generator.
    fn point_of(&self, player: u32) -> G2 {
        point_at(&self.polynomial, player)
    }

    fn complain(
        &self,
        round: &Round,
        player: u32,
        secret: &OpeningSecret,
        opened: &G1,
    ) -> Complaint {
        let opened_bytes: [u8; 48] = opened.encode_fixed();
        let bytes = secret.to_bytes();
        let seed = Zeroizing::new(
            sha256(&[
                b"quorate/complaint-seed/1",
                &*bytes,
                &round.context.0,
                &self.dealer.to_be_bytes(),
                &opened_bytes,
            ])
            .0,
        );
        let nonce = Scalar::random(ChaCha20Rng::from_seed(*seed));
        let commitments = (G1::generator() * &nonce, self.point * &nonce);
        let challenge = self.challenge(round, player, &secret.key(), &opened_bytes, &commitments);
        let response = nonce + &(challenge.clone() * &secret.0);
        Complaint {
            opened: opened_bytes,
            challenge: challenge.encode_fixed(),
            response: response.encode_fixed(),
        }
    }

    fn challenge(
        &self,
        round: &Round,
        player: u32,
        key: &OpeningKey,
        opened: &[u8; 48],
        commitments: &(G1, G1),
    ) -> Scalar {
        let mut content = Vec::new();
        content.put_slice(&round.context.0);
        content.put_u32(self.dealer);
        content.put_u32(player);
        content.put_slice(&key.0);
        self.point.write(&mut content);
        content.put_slice(opened);
        commitments.0.write(&mut content);
        commitments.1.write(&mut content);
        Scalar::map(CHALLENGE_DST, &content)
    }

    /// Whether a player's complaint shows that the dealer has sealed a wrong value for it.
    pub fn is_convicted_by(&self, round: &Round, player: u32, complaint: &Complaint) -> bool {
        let Some(key) = round.players.get(player as usize) else {
            return false;
        };
        let (Some(point), Ok(opened), Some(challenge), Some(response)) = (
            key.read(),
            G1::decode(Copying(&complaint.opened)),
            read_scalar(&complaint.challenge),
            read_scalar(&complaint.response),
        ) else {
            return false;
        };
        let commitments = (
            G1::generator() * &response - &(point * &challenge),
            self.point * &response - &(opened * &challenge),
        );
        let expected = self.challenge(round, player, key, &complaint.opened, &commitments);
        expected == challenge && self.value(round, player, &opened).is_none()
    }
}

impl Sum {
    /// What each dealing counts for.
    fn weights(self, dealers: &[u32]) -> Vec<Scalar> {
        match self {
            Self::Fresh => dealers.iter().map(|_| Scalar::one()).collect(),
            Self::Shares => dealers
                .iter()
                .map(|of| weight_at_zero(*of, dealers))
                .collect(),
        }
    }

    /// The public side of the key that dealings share.
    ///
    /// # Errors
    ///
    /// If the result is no key that a quorum of players shares, which happens by chance with a probability of
    /// about 2⁻²⁵⁰.
    pub fn keys(
        self,
        round: &Round,
        dealings: &[CheckedDealing],
    ) -> Result<ThresholdKeys, KeyError> {
        let dealers: Vec<u32> = dealings.iter().map(CheckedDealing::dealer).collect();
        let weights = self.weights(&dealers);
        let combined = (0..round.quorum() as usize).map(|at| {
            let points: Vec<G2> = dealings
                .iter()
                .filter_map(|one| one.polynomial.get(at).cloned())
                .collect();
            G2::msm(&points, &weights, &Sequential)
        });
        let polynomial: Vec<G2> = combined.collect();
        let group_key = polynomial
            .first()
            .ok_or(KeyError::Validators { found: 0 })?;
        let share_keys = (0..round.size()).map(|player| point_at(&polynomial, player));
        let keys = ThresholdKeys {
            quorum: round.quorum(),
            group_key: group_key.encode_fixed(),
            share_keys: share_keys.map(|key| key.encode_fixed()).collect(),
        };
        keys.check()?;
        Ok(keys)
    }

    /// A player's share of the same key, from its values of the same dealings in the same order.
    ///
    /// # Errors
    ///
    /// If it is zero, which happens by chance with a probability of about 2⁻²⁵⁵.
    pub fn share(self, values: &[(u32, VoteSecret)]) -> Result<VoteSecret, SecretError> {
        let dealers: Vec<u32> = values.iter().map(|(dealer, _)| *dealer).collect();
        let weights = self.weights(&dealers);
        let mut sum = Scalar::zero();
        for ((_, value), weight) in values.iter().zip(&weights) {
            let value = read_scalar(&value.to_bytes()).ok_or(SecretError)?;
            sum += &(value * weight);
        }
        VoteSecret::from_bytes(&Zeroizing::new(sum.encode_fixed()))
    }
}

/// Where a place's value of a polynomial is: the place + 1, as in [`super::deal`].
fn place(place: u32) -> Scalar {
    Scalar::from_u64(u64::from(place) + 1)
}

/// The value at a place of the polynomial with these coefficients.
fn point_at(polynomial: &[G2], player: u32) -> G2 {
    let at = place(player);
    let next = |power: &Scalar| Some(power.clone() * &at);
    let powers = std::iter::successors(Some(Scalar::one()), next);
    let powers: Vec<Scalar> = powers.take(polynomial.len()).collect();
    G2::msm(polynomial, &powers, &Sequential)
}

/// Π x/(x − xᵢ) over all other dealers x: what the value at a dealer's place counts for the value at zero.
fn weight_at_zero(of: u32, dealers: &[u32]) -> Scalar {
    let own = place(of);
    let mut over = Scalar::one();
    let mut under = Scalar::one();
    for other in dealers.iter().filter(|other| **other != of) {
        let other = place(*other);
        over *= &other;
        under *= &(other - &own);
    }
    over * &under.inv()
}

fn read_scalar(bytes: &[u8; 32]) -> Option<Scalar> {
    Scalar::read_cfg(&mut Copying(bytes), &ScalarReadCfg::RejectZero).ok()
}

impl FixedSize for OpeningKey {
    const SIZE: usize = 48;
}

impl Write for OpeningKey {
    fn write(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.0);
    }
}

impl Read for OpeningKey {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self(<[u8; 48]>::read(buffer)?))
    }
}

impl FixedSize for Complaint {
    const SIZE: usize = 112;
}

impl Write for Complaint {
    fn write(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.opened);
        buffer.put_slice(&self.challenge);
        buffer.put_slice(&self.response);
    }
}

impl Read for Complaint {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self {
            opened: <[u8; 48]>::read(buffer)?,
            challenge: <[u8; 32]>::read(buffer)?,
            response: <[u8; 32]>::read(buffer)?,
        })
    }
}
