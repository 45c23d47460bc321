//! Keys without a trusted dealer: fresh ones, and shares that are passed on.

use super::{rng, votes};
use crate::{
    Digest,
    bls::{
        CheckedDealing, Complaint, Dealing, DealingError, HashedMessage, KeyError, OpeningKey,
        OpeningSecret, PartialSignature, Round, Scheme, Sum, ThresholdKeys, VoteSecret, deal,
    },
};
use commonware_codec::{Copying, DecodeExt as _, Encode as _, EncodeFixed as _};
use commonware_cryptography::bls12381::primitives::group::{G1, Scalar};
use proptest::prelude::*;

/// A round with its players' secrets.
struct Players {
    round: Round,
    secrets: Vec<OpeningSecret>,
}

impl Players {
    fn new(count: u8, name: u8) -> Self {
        let secrets: Vec<_> = (0..count)
            .map(|player| OpeningSecret::random(rng(100 + player)))
            .collect();
        let round = Round {
            context: Digest([name; 32]),
            players: secrets.iter().map(OpeningSecret::key).collect(),
        };
        Self { round, secrets }
    }

    fn checked(&self, dealer: u32, dealing: &Dealing) -> CheckedDealing {
        let checked = dealing.check(&self.round, dealer, None);
        checked.expect("an honest dealing")
    }

    fn open(&self, dealings: &[CheckedDealing], player: u32) -> Result<VoteSecret, Complaint> {
        let values = dealings.iter().map(|one| {
            let secret = &self.secrets[player as usize];
            Ok((one.dealer(), one.open(&self.round, player, secret)?))
        });
        let values: Vec<_> = values.collect::<Result<_, Complaint>>()?;
        Ok(values).map(|values| {
            let sum = if self.round.context == Digest([0; 32]) {
                Sum::Fresh
            } else {
                Sum::Shares
            };
            sum.share(&values).expect("not zero")
        })
    }

    fn shares(&self, dealings: &[CheckedDealing]) -> Vec<VoteSecret> {
        let shares = (0..self.secrets.len() as u32).map(|player| self.open(dealings, player));
        shares
            .collect::<Result<_, _>>()
            .expect("honest dealings open")
    }
}

/// A fresh key of some players who all deal.
fn fresh(count: u8) -> (ThresholdKeys, Vec<VoteSecret>) {
    let players = Players::new(count, 0);
    let dealings: Vec<_> = (0..u32::from(count))
        .map(|dealer| {
            let dealing = players.round.deal_fresh(dealer, [dealer as u8; 32]);
            players.checked(dealer, &dealing.expect("a round"))
        })
        .collect();
    let keys = Sum::Fresh.keys(&players.round, &dealings).expect("a key");
    (keys, players.shares(&dealings))
}

/// Passes a key on to others, by these dealers.
fn pass_on(
    keys: &ThresholdKeys,
    shares: &[VoteSecret],
    dealers: &[u32],
    players: &Players,
) -> (Result<ThresholdKeys, KeyError>, Vec<VoteSecret>) {
    let dealings: Vec<_> = dealers
        .iter()
        .map(|dealer| {
            let share = &shares[*dealer as usize];
            let dealing = players.round.deal_share(*dealer, share).expect("a round");
            let key = keys.share_keys[*dealer as usize];
            let checked = dealing.check(&players.round, *dealer, Some(&key));
            checked.expect("the dealer's share")
        })
        .collect();
    let keys = Sum::Shares.keys(&players.round, &dealings);
    (keys, players.shares(&dealings))
}

fn certifies(keys: &ThresholdKeys, parts: &[(u32, PartialSignature)]) -> bool {
    let scheme = Scheme::threshold(keys).expect("keys");
    let message = HashedMessage::new(b"message");
    scheme.certify(&message, parts, [7; 32]).is_ok()
}

#[test]
fn all_together_make_a_key_that_nobody_knows() {
    for count in [1, 2, 4, 7] {
        let (keys, shares) = fresh(count);
        for (key, share) in keys.share_keys.iter().zip(&shares) {
            assert_eq!(*key, share.public_key());
        }
        let votes = votes(&shares, &HashedMessage::new(b"message"));
        let quorum = keys.quorum as usize;
        assert!(certifies(&keys, &votes[votes.len() - quorum..]));
        assert!(quorum == 1 || !certifies(&keys, &votes[1..quorum]));
    }
}

#[test]
fn a_key_is_passed_on_to_any_players_by_any_quorum_and_never_changes() {
    let (mut keys, mut shares) = fresh(4);
    let group_key = keys.group_key;
    let steps: [(u8, &[u32]); 5] = [
        (7, &[0, 1, 3]),
        (5, &[6, 2, 5, 1, 0]),
        (4, &[4, 3, 2, 1]),
        (10, &[1, 2, 3]),
        (4, &[0, 1, 2, 3, 4, 5, 9]),
    ];
    for (name, (count, dealers)) in (1..).zip(steps) {
        let players = Players::new(count, name);
        let (passed, next) = pass_on(&keys, &shares, dealers, &players);
        let passed = passed.expect("a quorum deals");
        assert_eq!(passed.group_key, group_key);
        for (key, share) in passed.share_keys.iter().zip(&next) {
            assert_eq!(*key, share.public_key());
        }
        let after = votes(&next, &HashedMessage::new(b"message"));
        assert!(certifies(&passed, &after[..passed.quorum as usize]));
        // Shares of before and after do not add up, even if only one is an older one.
        let mut mixed = after[..passed.quorum as usize].to_vec();
        let before = votes(&shares, &HashedMessage::new(b"message"));
        mixed[0].1 = before[0].1;
        assert!(!certifies(&passed, &mixed));
        (keys, shares) = (passed, next);
    }
}

#[test]
fn fewer_dealers_than_a_quorum_pass_nothing_on() {
    let (keys, shares) = fresh(7);
    let players = Players::new(4, 1);
    let (few, _) = pass_on(&keys, &shares, &[0, 1, 2, 3], &players);
    assert_ne!(few.expect("some key").group_key, keys.group_key);
}

#[test]
fn a_dealer_that_crashed_deals_the_same_again_and_other_players_another_polynomial() {
    let (_, shares) = deal(4, rng(1));
    let players = Players::new(4, 1);
    let first = players.round.deal_share(2, &shares[2]).expect("a round");
    let again = players.round.deal_share(2, &shares[2]).expect("a round");
    assert_eq!(first, again);
    for other in [
        Players::new(4, 2).round,
        Players::new(5, 1).round,
        Round {
            players: players.round.players.iter().rev().copied().collect(),
            ..players.round.clone()
        },
    ] {
        let other = other.deal_share(2, &shares[2]).expect("a round");
        assert_eq!(first.coefficients[0], other.coefficients[0]);
        assert_ne!(first.coefficients[1], other.coefficients[1]);
        assert_ne!(first.point, other.point);
    }
}

#[test]
fn who_is_given_something_else_convicts_the_dealer() {
    let players = Players::new(4, 0);
    let honest = players.round.deal_fresh(1, [9; 32]).expect("a round");
    for victim in 0..4_u32 {
        let wrong = |dealing: &mut Dealing| dealing.sealed[victim as usize][31] ^= 1;
        let dealing = players.round.deal_fresh_but(1, [9; 32], wrong);
        let dealing = dealing.expect("a round");
        let checked = players.checked(1, &dealing);
        for player in 0..4 {
            let opened = checked.open(&players.round, player, &players.secrets[player as usize]);
            let Err(complaint) = opened else {
                assert_ne!(player, victim);
                continue;
            };
            assert_eq!(player, victim);
            let decoded = Complaint::decode(Copying(&complaint.encode())).expect("the same");
            assert!(checked.is_convicted_by(&players.round, player, &decoded));
            // Of another player, dealer, round or dealing it says nothing.
            assert!(!checked.is_convicted_by(&players.round, (player + 1) % 4, &complaint));
            assert!(!checked.is_convicted_by(&players.round, 4, &complaint));
            let other = Players::new(4, 3);
            assert!(!checked.is_convicted_by(&other.round, player, &complaint));
            let right = players.checked(1, &honest);
            assert!(!right.is_convicted_by(&players.round, player, &complaint));
            let others = players.round.deal_fresh_but(2, [9; 32], wrong);
            let others = players.checked(2, &others.expect("a round"));
            assert!(!others.is_convicted_by(&players.round, player, &complaint));
            for byte in 0..112 {
                let mut bytes = complaint.encode().to_vec();
                bytes[byte] ^= 1;
                let changed = Complaint::decode(Copying(&bytes)).expect("the same size");
                assert!(!checked.is_convicted_by(&players.round, player, &changed));
            }
        }
    }
}

#[test]
fn nobody_convicts_an_honest_dealer() {
    let players = Players::new(4, 0);
    let dealing = players.round.deal_fresh(0, [9; 32]).expect("a round");
    let checked = players.checked(0, &dealing);
    // With another secret than that of its key.
    let wrong = OpeningSecret::random(rng(1));
    let Err(complaint) = checked.open(&players.round, 2, &wrong) else {
        panic!("opened with a wrong secret");
    };
    assert!(!checked.is_convicted_by(&players.round, 2, &complaint));
    // With the right secret it can only show that all is well.
    let opened = checked.complaint_of(&players.round, 2, &players.secrets[2]);
    assert!(!checked.is_convicted_by(&players.round, 2, &opened));
}

/// A dealer could read an honest dealer's seals out of the complaints about its own, if their points were multiples of
/// each other: who complains shows its secret times the point.
#[test]
fn nobody_deals_with_anything_of_another_dealing() {
    let players = Players::new(4, 1);
    let (keys, shares) = deal(4, rng(1));
    let honest = players.round.deal_share(0, &shares[0]).expect("a round");
    let refused = |dealing: &Dealing, dealer: u32| {
        let key = &keys.share_keys[dealer as usize];
        let checked = dealing.check(&players.round, dealer, Some(key));
        checked.map(|_| ()).expect_err("it is not its dealer's")
    };
    // The point itself, and a multiple of it, with proofs that the copier can make.
    let point = G1::decode(Copying(&honest.point)).expect("a point");
    let multiple = (point * &Scalar::from_u64(7)).encode_fixed();
    for copied in [honest.point, multiple] {
        let theft = |dealing: &mut Dealing| dealing.point = copied;
        let stolen = players.round.deal_share_but(3, &shares[3], theft);
        let mut stolen = stolen.expect("a round");
        assert_eq!(refused(&stolen, 3), DealingError::Proof);
        stolen.proof = honest.proof;
        assert_eq!(refused(&stolen, 3), DealingError::Proof);
    }
    // The whole of it, under another name, in another round, or with anything changed.
    let copied = honest.check(&players.round, 3, None).map(|_| ());
    assert_eq!(copied, Err(DealingError::Proof));
    let other = Players::new(4, 2).round;
    let copied = honest.check(&other, 0, None).map(|_| ());
    assert_eq!(copied, Err(DealingError::Proof));
    let mut changed = honest.clone();
    changed.sealed[2][0] ^= 1;
    assert_eq!(refused(&changed, 0), DealingError::Proof);
    let mut changed = honest.clone();
    changed.coefficients.swap(1, 2);
    assert_eq!(refused(&changed, 0), DealingError::Proof);
    for (part, byte) in [(0, 0), (0, 31), (1, 0), (1, 31)] {
        let mut changed = honest.clone();
        changed.proof[part][byte] ^= 1;
        assert_eq!(refused(&changed, 0), DealingError::Proof);
    }
    let mut changed = honest.clone();
    changed.proof = [[0; 32]; 2];
    assert_eq!(refused(&changed, 0), DealingError::Proof);
}

#[test]
fn what_everybody_sees_is_checked() {
    let players = Players::new(4, 1);
    let (keys, shares) = deal(4, rng(1));
    let dealing = players.round.deal_share(0, &shares[0]).expect("a round");
    let check = |dealing: &Dealing| {
        let checked = dealing.check(&players.round, 0, Some(&keys.share_keys[0]));
        checked.map(|_| ()).expect_err("it is refused")
    };
    let but = |change: &dyn Fn(&mut Dealing)| {
        let changed = players.round.deal_share_but(0, &shares[0], change);
        changed.expect("a round")
    };
    let other = players.round.deal_share(0, &shares[1]).expect("a round");
    assert_eq!(check(&other), DealingError::OtherShare);
    let mut infinity = [0; 96];
    infinity[0] = 0xc0;
    for point in [infinity, [0; 96], [0xff; 96]] {
        // A highest coefficient that is the identity would let fewer than a quorum sign.
        let changed = but(&|dealing| *dealing.coefficients.last_mut().expect("some") = point);
        assert_eq!(check(&changed), DealingError::Point);
    }
    let changed = but(&|dealing| dealing.point = [0xff; 48]);
    assert_eq!(check(&changed), DealingError::Point);
    let mut changed = dealing.clone();
    changed.coefficients.pop();
    assert_eq!(check(&changed), DealingError::Size);
    let mut changed = dealing.clone();
    changed.coefficients.push(changed.coefficients[1]);
    assert_eq!(check(&changed), DealingError::Size);
    let mut changed = dealing.clone();
    changed.sealed.pop();
    assert_eq!(check(&changed), DealingError::Size);
    let round = Round {
        players: vec![OpeningKey([0xff; 48]); 4],
        ..players.round.clone()
    };
    assert_eq!(round.deal_share(0, &shares[0]), Err(DealingError::Point));
    let nobody = Round {
        players: Vec::new(),
        ..players.round.clone()
    };
    assert_eq!(nobody.deal_share(0, &shares[0]), Err(DealingError::Size));
}

#[test]
fn a_dealing_survives_the_wire() {
    for count in [1, 4, 7] {
        let players = Players::new(count, 1);
        let dealing = players.round.deal_fresh(0, [1; 32]).expect("a round");
        let bytes = dealing.encode();
        assert_eq!(bytes.len(), Dealing::size(count.into()));
        let read = Dealing::read_for(count.into(), &mut Copying(&bytes)).expect("the same");
        assert_eq!(read, dealing);
        let short = Dealing::read_for(count.into(), &mut Copying(&bytes[1..]));
        assert!(short.is_err());
    }
    assert!(Dealing::read_for(0, &mut Copying(&[])).is_err());
    assert!(Dealing::read_for(usize::MAX, &mut Copying(&[])).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_anything_panic(bytes in prop::collection::vec(any::<u8>(), Dealing::size(4)), player in 0..6_u32) {
        let players = Players::new(4, 1);
        let dealing = Dealing::read_for(4, &mut Copying(&bytes)).expect("long enough");
        let _ = dealing.check(&players.round, 0, None);
        let honest = players.round.deal_fresh(0, [1; 32]).expect("a round");
        let complaint = Complaint::decode(Copying(&bytes[..112])).expect("long enough");
        let convicted = players.checked(0, &honest).is_convicted_by(&players.round, player, &complaint);
        prop_assert!(!convicted);
    }
}
