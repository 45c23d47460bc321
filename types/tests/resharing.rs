//! Passing shares of a group key on, rule by rule: an epoch by hand, in which one thing is wrong.

#![allow(missing_docs)]

use commonware_codec::{Copying, DecodeExt as _, Encode as _};
use quorate_crypto::{
    Digest,
    bls::{Complaint, Dealing, OpeningSecret, PartialSignature, Sum, VoteSecret, deal},
};
use quorate_types::{
    Account, Bond, BondAddress, BondName, ChainId, Committees, Epoch, EpochLength, Failure, Height,
    Identity, Member, OpeningKey, Phase, REGISTRY, RegistryNote, RegistryRules, ValidatorSet,
    VoteKey,
    registry::{
        RegistryContext, Slot,
        resharing::{
            self, announcement_slot, chosen_dealers, close, dealing_parts, needed_to_close,
            proof_message, read_dealing, read_player, round_of,
        },
    },
};
use rand::{SeedableRng as _, rngs::StdRng};
use std::collections::BTreeMap;

const RULES: RegistryRules = RegistryRules {
    min_stake: 10,
    max_validators: 7,
    unbond_epochs: 1,
    slashing: None,
    external: None,
    resharing: true,
};
const CHAIN: ChainId = ChainId(Digest([3; 32]));

fn id(number: u8) -> Identity {
    Identity([number + 1; 32])
}

fn opening(number: u8) -> OpeningSecret {
    OpeningSecret::random(StdRng::seed_from_u64(number.into()))
}

/// The state, and what validators 0 to 3 and newcomer 4 know.
struct Round {
    accounts: BTreeMap<Identity, Account>,
    acting: ValidatorSet,
    committees: Committees,
    secrets: Vec<VoteSecret>,
    note: RegistryNote,
    phase: Phase,
}

impl Round {
    fn new() -> Self {
        let (keys, secrets) = deal(4, StdRng::seed_from_u64(1));
        let members = (0..).zip(&keys.share_keys).map(|(number, key)| Member {
            identity: id(number),
            vote_key: VoteKey(*key),
            address: BondAddress::default(),
            name: BondName::default(),
        });
        let acting = ValidatorSet::of_members(Epoch(0), members.collect())
            .sharing(Some(VoteKey(keys.group_key)));
        let committees =
            Committees::changing(vec![acting.clone()], Epoch(0), Epoch(0), BTreeMap::new());
        let bonded = |number: u8| {
            let bond = Bond {
                identity: id(number),
                stake: 100 - u64::from(number),
                leaving: 0,
                leaves_at: Epoch(0),
                since: Epoch(0),
                vote_key: VoteKey::NONE,
                address: BondAddress::default(),
                name: BondName::default(),
            };
            let account = Account {
                bond: Some(Box::new(bond)),
                ..Account::plain(0, 100)
            };
            (id(number), account)
        };
        Self {
            accounts: (0..5).map(bonded).collect(),
            acting,
            committees: committees.expect("a committee"),
            secrets,
            note: RegistryNote::default(),
            phase: Phase::Announce,
        }
    }

    fn context(&self) -> RegistryContext<'_> {
        RegistryContext {
            rules: Some(&RULES),
            chain_name: "test",
            chain: CHAIN,
            epoch: Epoch(0),
            phase: self.phase,
            committees: Some(&self.committees),
        }
    }

    fn operate(
        &mut self,
        act: impl FnOnce(&RegistryContext<'_>, &mut BTreeMap<Identity, Account>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut accounts = std::mem::take(&mut self.accounts);
        accounts.insert(REGISTRY, Account::of_registry(self.note.clone()));
        let before = accounts.clone();
        let done = act(&self.context(), &mut accounts);
        if done.is_err() {
            accounts.retain(|identity, account| {
                before.contains_key(identity) || *account != Account::default()
            });
            assert_eq!(accounts, before, "a refused operation changes nothing");
        }
        let registry = accounts.remove(&REGISTRY).expect("it is there");
        self.note = *registry.note.expect("a note");
        self.accounts = accounts;
        done
    }

    fn announce(&mut self, number: u8) -> Result<(), Failure> {
        let key = OpeningKey(opening(number).key().0);
        self.operate(|context, accounts| context.announce(&id(number), (Epoch(0), &key), accounts))
    }

    fn dealing(&self, number: u8) -> Vec<u8> {
        self.dealing_but(number, |_| {})
    }

    fn dealing_but(&self, number: u8, change: impl FnOnce(&mut Dealing)) -> Vec<u8> {
        self.dealing_of(number, &self.secrets[usize::from(number)], change)
    }

    /// A sound dealing of any secret.
    fn dealing_of(
        &self,
        number: u8,
        secret: &VoteSecret,
        change: impl FnOnce(&mut Dealing),
    ) -> Vec<u8> {
        let round = self.note.round.as_ref().expect("a round");
        let parties = round_of(round, &self.accounts, Epoch(0)).expect("players");
        let dealing = parties.deal_share_but(number.into(), secret, change);
        let dealing = dealing.expect("keys");
        dealing.encode().to_vec()
    }

    fn deal(&mut self, number: u8, bytes: &[u8]) -> Result<(), Failure> {
        self.operate(|context, accounts| context.deal(&id(number), 0, bytes, accounts))
    }

    /// What a player got from a dealer.
    fn open(&self, player: u8, dealer: u16) -> Result<VoteSecret, Complaint> {
        let round = self.note.round.as_ref().expect("a round");
        let parties = round_of(round, &self.accounts, Epoch(0)).expect("players");
        let dealing = read_dealing(&self.accounts, dealer, round.players, Epoch(0));
        let key = self.acting.members()[usize::from(dealer)].vote_key;
        let checked = dealing
            .expect("dealt")
            .check(&parties, dealer.into(), Some(&key.0));
        checked
            .expect("it was checked")
            .open(&parties, player.into(), &opening(player))
    }

    fn share(&self, player: u8) -> VoteSecret {
        let round = self.note.round.as_ref().expect("a round");
        let chosen = chosen_dealers(round, &self.acting).expect("a quorum");
        let values = chosen.into_iter().map(|dealer| {
            let value = self.open(player, dealer);
            (
                u32::from(dealer),
                value.unwrap_or_else(|_| panic!("opened")),
            )
        });
        Sum::Shares
            .share(&values.collect::<Vec<_>>())
            .expect("a share")
    }

    fn prove(&mut self, player: u8, share: &VoteSecret) -> Result<(), Failure> {
        let round = self.note.round.clone().expect("a round");
        let message = proof_message(&CHAIN, Epoch(0), &round, player.into());
        let signature = share.sign(&message);
        self.operate(|context, accounts| {
            context.prove(&id(player), player.into(), &signature, accounts)
        })
    }

    /// Ends the phase, and begins the next one.
    fn end(&mut self) -> Option<ValidatorSet> {
        let bonds: BTreeMap<Identity, Bond> = self
            .accounts
            .iter()
            .filter_map(|(identity, account)| {
                Some((*identity, Bond::clone(account.bond.as_ref()?)))
            })
            .collect();
        // Nothing but what is asked for is needed.
        let needed = needed_to_close(&self.acting, &self.note, self.phase, &bonds);
        let mut accounts: BTreeMap<Identity, Account> = needed
            .into_iter()
            .map(|one| (one, self.accounts.get(&one).cloned().unwrap_or_default()))
            .collect();
        let set = close(
            self.phase,
            &CHAIN,
            &self.acting,
            &mut self.note,
            &bonds,
            &RULES,
            &mut accounts,
        );
        self.accounts.extend(accounts);
        self.phase = match self.phase {
            Phase::Announce => Phase::Deal,
            Phase::Deal => Phase::Object,
            Phase::Object => Phase::Prove,
            Phase::Prove | Phase::Over => Phase::Over,
        };
        set
    }

    /// All announce themselves.
    fn announced() -> Self {
        let mut round = Self::new();
        for number in 0..5 {
            round.announce(number).expect("it has a bond");
        }
        assert!(round.end().is_none());
        assert_eq!(round.note.round.as_ref().map(|one| one.players), Some(5));
        round
    }

    /// These deal.
    fn dealt(dealers: &[u8]) -> Self {
        let mut round = Self::announced();
        for dealer in dealers {
            let bytes = round.dealing(*dealer);
            round.deal(*dealer, &bytes).expect("its own share");
        }
        round.end();
        round
    }

    fn since(&self, number: u8) -> Epoch {
        let bond = self.accounts[&id(number)].bond.as_ref();
        bond.expect("bonded").since
    }
}

#[test]
fn a_set_that_has_proven_its_shares_follows_with_the_same_group_key() {
    let mut round = Round::dealt(&[0, 1, 2, 3]);
    round.end();
    for player in 0..5 {
        let share = round.share(player);
        assert_eq!(round.prove(player, &share), Ok(()));
    }
    let set = round.end().expect("the next set");
    assert_eq!((set.epoch, set.members().len()), (Epoch(1), 5));
    assert_eq!(set.group_key(), round.acting.group_key());
    assert!(set.scheme().is_ok());
    for (player, member) in (0..).zip(set.members()) {
        assert_eq!(member.identity, id(player));
        assert_eq!(member.vote_key.0, round.share(player).public_key());
        assert_ne!(
            Some(member.vote_key),
            round
                .acting
                .members()
                .get(usize::from(player))
                .map(|one| one.vote_key)
        );
    }
}

#[test]
fn one_player_without_a_proof_keeps_the_old_set_and_is_left_out_next_time() {
    for silent in [4, 2] {
        let mut round = Round::dealt(&[0, 1, 2, 3]);
        round.end();
        for player in (0..5).filter(|player| *player != silent) {
            let share = round.share(player);
            round.prove(player, &share).expect("its share");
        }
        let set = round.end().expect("the next set");
        assert!(set.votes_as(&round.acting));
        // A newcomer stays out for four epochs, a validator for as many as there are validators.
        let until = 5;
        let absent = |who: u8, epoch| {
            let account = round.accounts.get(&announcement_slot(&id(who)));
            resharing::is_absent(account, &id(who), Epoch(epoch))
        };
        assert!(absent(silent, until - 1) && !absent(silent, until));
        assert!(!absent(1, 1));
        round.phase = Phase::Announce;
        assert_eq!(round.announce(silent), Err(Failure::WrongPhase));
        assert_eq!(round.announce(1), Ok(()));
    }
}

/// That the newcomer has announced itself in vain, so often.
fn missed_before(round: &mut Round, who: u8, times: u8) {
    let account = round
        .accounts
        .entry(announcement_slot(&id(who)))
        .or_default();
    match account.slot.as_deref_mut() {
        Some(Slot::Announced { missed, .. }) => *missed = times,
        _ => {
            account.slot = Some(Box::new(Slot::Absent {
                identity: id(who),
                until: Epoch(0),
                missed: times,
            }));
        }
    }
}

#[test]
fn a_newcomer_that_is_silent_again_stays_out_for_longer() {
    for (before, until) in [(0, 5), (1, 17), (2, 65), (3, 65), (u8::MAX, 65)] {
        let mut round = Round::dealt(&[0, 1, 2, 3]);
        missed_before(&mut round, 4, before);
        round.end();
        for player in 0..4 {
            let share = round.share(player);
            round.prove(player, &share).expect("its share");
        }
        round.end().expect("the next set");
        let kept = round.accounts[&announcement_slot(&id(4))].slot.clone();
        let absent = Slot::Absent {
            identity: id(4),
            until: Epoch(until),
            missed: before.saturating_add(1),
        };
        assert_eq!(kept.as_deref(), Some(&absent));
    }
    // It is remembered until it acts.
    let mut round = Round::new();
    for who in [1, 4] {
        missed_before(&mut round, who, 2);
        round.announce(who).expect("it is over");
        let kept = round.accounts[&announcement_slot(&id(who))].slot.clone();
        let times = if who == 4 { 2 } else { 0 };
        assert!(
            matches!(kept.as_deref(), Some(Slot::Announced { missed, .. }) if *missed == times),
            "{kept:?}"
        );
    }
}

// G7
#[test]
fn after_newcomers_have_failed_a_round_is_among_the_validators_and_their_stake_is_held() {
    let mut round = Round::dealt(&[0, 1, 2, 3]);
    round.end();
    for player in 0..4 {
        let share = round.share(player);
        round.prove(player, &share).expect("its share");
    }
    // It takes its stake out before it is found to have proven nothing.
    let own = round.accounts.get_mut(&id(4)).expect("it has a bond");
    let bond = own.bond.as_mut().expect("it has a bond");
    (bond.stake, bond.leaving, bond.leaves_at) = (0, bond.stake, Epoch(1));
    round.end().expect("the next set");
    let held = |round: &Round, who: u8| {
        let bond = round.accounts[&id(who)].bond.as_ref();
        bond.expect("it has a bond").leaves_at
    };
    assert_eq!(held(&round, 4), Epoch(65));
    assert_eq!(held(&round, 0), Epoch(0));

    // Another newcomer comes with each epoch.
    let mut other = round.accounts[&id(0)].clone();
    other.bond.as_mut().expect("a bond").identity = id(5);
    round.accounts.insert(id(5), other);
    let players_of = |epoch: u64, accounts: &BTreeMap<Identity, Account>| {
        let mut accounts = accounts.clone();
        let acting = round.acting.clone().of_epoch(Epoch(epoch));
        for number in [0, 1, 2, 3, 5] {
            let slot = Slot::Announced {
                identity: id(number),
                key: OpeningKey(opening(number).key().0),
                epoch: Epoch(epoch),
                missed: 0,
            };
            let account = Account {
                slot: Some(Box::new(slot)),
                ..Account::default()
            };
            accounts.insert(announcement_slot(&id(number)), account);
        }
        let bonds: BTreeMap<Identity, Bond> = (accounts.iter())
            .filter_map(|(identity, account)| {
                Some((*identity, Bond::clone(account.bond.as_ref()?)))
            })
            .collect();
        let mut note = RegistryNote::default();
        close(
            Phase::Announce,
            &CHAIN,
            &acting,
            &mut note,
            &bonds,
            &RULES,
            &mut accounts,
        );
        (0..note.round.expect("a round").players)
            .map(|place| {
                read_player(&accounts, place, Epoch(epoch))
                    .expect("a player")
                    .identity
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(players_of(1, &round.accounts), [0, 1, 2, 3].map(id));
    assert_eq!(players_of(2, &round.accounts), [0, 1, 2, 3, 5].map(id));
}

#[test]
fn nobody_is_barred_if_most_proofs_are_missing() {
    // Of five players four are a quorum.
    for (proven, barred) in [(3, false), (4, true)] {
        let mut round = Round::dealt(&[0, 1, 2, 3]);
        round.end();
        for player in 0..proven {
            let share = round.share(player);
            round.prove(player, &share).expect("its share");
        }
        round.end().expect("the next set");
        for who in proven..5 {
            let account = round.accounts.get(&announcement_slot(&id(who)));
            let is_barred = resharing::is_absent(account, &id(who), Epoch(1));
            assert_eq!(is_barred, barred, "{who} with {proven} proofs");
        }
    }
}

#[test]
fn what_was_made_in_another_epoch_announces_nothing() {
    let mut round = Round::new();
    let key = OpeningKey(opening(0).key().0);
    for epoch in [1, 2, u64::MAX] {
        let late = round
            .operate(|context, accounts| context.announce(&id(0), (Epoch(epoch), &key), accounts));
        assert_eq!(late, Err(Failure::WrongPhase));
    }
    round.announce(0).expect("of this epoch");
}

#[test]
fn a_dealer_cannot_use_another_dealers_point() {
    let mut round = Round::announced();
    let honest = round.dealing(0);
    let note = round.note.round.clone().expect("a round");
    let honest = Dealing::read_for(note.players.into(), &mut Copying(&honest)).expect("whole");
    let parties = round_of(&note, &round.accounts, Epoch(0)).expect("players");
    let theft = |dealing: &mut Dealing| dealing.point = honest.point;
    let stolen = parties.deal_share_but(1, &round.secrets[1], theft);
    let stolen = stolen.expect("keys").encode();
    assert_eq!(round.deal(1, &stolen), Err(Failure::BadDealing));
    // Nor its own dealing of another round.
    let other = quorate_crypto::bls::Round {
        context: Digest([9; 32]),
        ..parties
    };
    let old = other
        .deal_share(1, &round.secrets[1])
        .expect("keys")
        .encode();
    assert_eq!(round.deal(1, &old), Err(Failure::BadDealing));
}

#[test]
fn who_does_not_announce_itself_gets_no_share() {
    let mut round = Round::new();
    for number in [0, 1, 2, 4] {
        round.announce(number).expect("it has a bond");
    }
    round.end();
    let players: Vec<Identity> = (0..4)
        .map(|place| {
            read_player(&round.accounts, place, Epoch(0))
                .expect("a player")
                .identity
        })
        .collect();
    assert_eq!(players, [id(0), id(1), id(2), id(4)]);
    // If the rules keep somebody who has not, nothing is dealt.
    let mut round = Round::new();
    for number in [0, 1, 2] {
        round.announce(number).expect("it has a bond");
    }
    round.end();
    assert_eq!(round.note.round, None);
    for _ in 0..2 {
        round.end();
    }
    assert!(round.end().expect("a set").votes_as(&round.acting));
}

// G6
#[test]
fn silence_lowers_no_number_of_faults_and_gives_nobody_a_seat() {
    use rand::RngExt as _;
    let mut changes = [0, 0];
    for seed in 0..4_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let acting = rng.random_range(4..=13_u8);
        let rules = RegistryRules {
            max_validators: rng.random_range(acting.into()..=16),
            ..RULES
        };
        let members = (0..acting).map(|number| Member {
            identity: id(number),
            vote_key: VoteKey([number; 96]),
            address: BondAddress::default(),
            name: BondName::default(),
        });
        let set = ValidatorSet::of_members(Epoch(5), members.collect());
        let bonds: BTreeMap<Identity, Bond> = (0..18)
            .map(|number| {
                let bond = Bond {
                    identity: id(number),
                    stake: rng.random_range(8..40),
                    leaving: 0,
                    leaves_at: Epoch(0),
                    since: Epoch(rng.random_range(0..7)),
                    vote_key: VoteKey::NONE,
                    address: BondAddress::default(),
                    name: BondName::default(),
                };
                (id(number), bond)
            })
            .collect();
        let there = rng.random_range(0.7..1.0);
        let announced: std::collections::BTreeSet<Identity> =
            (0..18).filter(|_| rng.random_bool(there)).map(id).collect();
        let everybody = (0..18).map(id).collect();
        let Some(players) = resharing::players(&set, &bonds, &rules, &announced) else {
            changes[0] += 1;
            continue;
        };
        changes[1] += 1;
        let mut eligible = bonds.clone();
        eligible.retain(|_, bond| bond.since <= Epoch(5));
        let mut wanted: Vec<Identity> = quorate_types::registry::ranked(&eligible, &rules)
            .into_iter()
            .map(|(identity, _)| *identity)
            .collect();
        wanted.truncate(rules.max_validators as usize);
        let staying = set
            .members()
            .iter()
            .filter(|one| wanted.contains(&one.identity));
        let faults = |count: usize| (count.max(1) - 1) / 3;
        assert!(
            faults(players.members.len()) >= faults(staying.count()),
            "{seed}"
        );
        for player in &players.members {
            assert!(announced.contains(player), "{seed}");
            assert!(
                wanted.contains(player) || set.place(player).is_some(),
                "{seed}"
            );
        }
        let all = resharing::players(&set, &bonds, &rules, &everybody);
        assert!(
            all.is_some(),
            "{seed}: with everybody there is always a set"
        );
    }
    assert!(changes[0] > 100 && changes[1] > 100, "{changes:?}");
}

#[test]
fn with_fewer_dealings_than_a_quorum_nothing_changes_and_nobody_is_blamed() {
    let mut round = Round::dealt(&[0, 3]);
    round.end();
    assert!(!round.note.round.as_ref().expect("a round").has_keys);
    let signature = PartialSignature([1; 96]);
    let refused = round.operate(|context, accounts| context.prove(&id(0), 0, &signature, accounts));
    assert_eq!(refused, Err(Failure::WrongPhase));
    assert!(round.end().expect("a set").votes_as(&round.acting));
    assert_eq!(round.since(0), Epoch(0));
}

#[test]
fn a_dealer_that_seals_something_else_is_convicted_and_the_others_suffice() {
    let mut round = Round::announced();
    for dealer in 0..4 {
        let wrong = |dealing: &mut Dealing| dealing.sealed[4][31] ^= u8::from(dealer == 1);
        let bytes = round.dealing_but(dealer, wrong);
        round.deal(dealer, &bytes).expect("nobody can see it");
    }
    round.end();
    let Err(complaint) = round.open(4, 1) else {
        panic!("opened");
    };
    let object = |round: &mut Round, who: u8, player: u16, dealer: u16, complaint: &Complaint| {
        round.operate(|context, accounts| {
            context.object(&id(who), (player, dealer), complaint, accounts)
        })
    };
    let refused = Err(Failure::BadComplaint);
    assert_eq!(object(&mut round, 4, 4, 0, &complaint), refused);
    assert_eq!(object(&mut round, 3, 4, 1, &complaint), refused);
    assert_eq!(object(&mut round, 3, 3, 1, &complaint), refused);
    assert_eq!(object(&mut round, 4, 4, 9, &complaint), refused);
    assert_eq!(object(&mut round, 4, 9, 1, &complaint), refused);
    assert_eq!(object(&mut round, 4, 4, 1, &complaint), Ok(()));
    assert_eq!(object(&mut round, 4, 4, 1, &complaint), refused);
    round.end();
    let note = round.note.round.clone().expect("a round");
    assert_eq!(chosen_dealers(&note, &round.acting), Some(vec![0, 2, 3]));
    for player in 0..5 {
        let share = round.share(player);
        round.prove(player, &share).expect("its share");
    }
    let set = round.end().expect("the next set");
    assert!(!set.votes_as(&round.acting) && set.scheme().is_ok());
    assert_eq!(round.since(1), Epoch(65));
}

#[test]
fn a_dealing_is_checked_when_it_comes() {
    let mut round = Round::announced();
    let own = round.dealing(0);
    let others = round.dealing(1);
    assert_eq!(round.deal(0, &others), Err(Failure::BadDealing));
    assert_eq!(round.deal(0, &own[1..]), Err(Failure::BadDealing));
    assert_eq!(round.deal(0, &[]), Err(Failure::BadDealing));
    assert_eq!(round.deal(4, &own), Err(Failure::NotActing));
    let part = round.operate(|context, accounts| context.deal(&id(0), 1, &own, accounts));
    assert_eq!(part, Err(Failure::BadDealing));
    // With another secret the group key would become another one.
    let another = round.dealing_of(0, &round.secrets[1], |_| {});
    assert_eq!(round.deal(0, &another), Err(Failure::BadDealing));
    let mut off = own.clone();
    off[100] ^= 1;
    assert_eq!(round.deal(0, &off), Err(Failure::BadDealing));
    assert_eq!(round.deal(0, &own), Ok(()));
    assert_eq!(round.deal(0, &own), Err(Failure::WrongPhase));
}

#[test]
fn only_the_own_share_proves() {
    let mut round = Round::dealt(&[0, 1, 2]);
    round.end();
    let (own, others) = (round.share(0), round.share(1));
    assert_eq!(round.prove(0, &others), Err(Failure::BadShare));
    let old = VoteSecret::from_bytes(&round.secrets[0].to_bytes()).expect("a share");
    assert_eq!(round.prove(0, &old), Err(Failure::BadShare));
    assert_eq!(round.prove(0, &own), Ok(()));
    // In the place of another.
    let message = proof_message(&CHAIN, Epoch(0), round.note.round.as_ref().expect("one"), 1);
    let signature = own.sign(&message);
    let refused = round.operate(|context, accounts| context.prove(&id(0), 1, &signature, accounts));
    assert_eq!(refused, Err(Failure::WrongPhase));
}

#[test]
fn everything_has_its_time_and_its_chain() {
    let mut round = Round::new();
    let stranger = Identity([99; 32]);
    let key = OpeningKey(opening(9).key().0);
    let refused =
        round.operate(|context, accounts| context.announce(&stranger, (Epoch(0), &key), accounts));
    assert_eq!(refused, Err(Failure::NotBonded));
    let none = OpeningKey([1; 48]);
    let refused =
        round.operate(|context, accounts| context.announce(&id(0), (Epoch(0), &none), accounts));
    assert_eq!(refused, Err(Failure::BadOperation));
    assert_eq!(round.deal(0, &[1]), Err(Failure::WrongPhase));
    let mut late = Round::announced();
    assert_eq!(late.announce(0), Err(Failure::WrongPhase));
    let without = RegistryRules {
        resharing: false,
        ..RULES
    };
    let other = RegistryContext {
        rules: Some(&without),
        ..round.context()
    };
    let mut accounts = round.accounts.clone();
    let refused = other.announce(&id(0), (Epoch(0), &key), &mut accounts);
    assert_eq!(refused, Err(Failure::WrongRegistry));
}

#[test]
fn an_epoch_has_its_phases() {
    for blocks in [64, 65, 100, 1_000] {
        let length = EpochLength::new(blocks).expect("not zero");
        for epoch in [Epoch(0), Epoch(3)] {
            let phases: Vec<(Phase, bool)> = (1..=blocks)
                .map(|offset| length.phase(Height(epoch.0 * blocks + offset)))
                .collect();
            assert!(phases.is_sorted_by_key(|(phase, _)| *phase));
            let ends = phases.iter().filter(|(_, is_last)| *is_last);
            let ends: Vec<Phase> = ends.map(|(phase, _)| *phase).collect();
            assert_eq!(
                ends,
                [Phase::Announce, Phase::Deal, Phase::Object, Phase::Prove]
            );
            let middle = length.fixing_height(epoch);
            assert_eq!(length.phase(middle), (Phase::Prove, true));
        }
    }
}

#[test]
fn what_is_kept_fits_in_a_value_of_the_state_and_survives_it() {
    let round = Round::dealt(&[0, 1, 2]);
    let mut most = round.note.clone();
    let places = most.round.as_mut().expect("a round");
    for place in 0..resharing::MAX_SHARING_VALIDATORS as u16 {
        places.dealt.add(place);
        places.convicted.add(place);
        places.proven.add(place);
    }
    for place in 0..resharing::MAX_SHARING_VALIDATORS as u32 {
        most.hear(Epoch(0), quorate_types::ValidatorIndex(place));
    }
    most.next = Some(Digest([9; 32]));
    let largest = Slot::Player {
        identity: id(1),
        key: OpeningKey([1; 48]),
        epoch: Epoch(u64::MAX),
        share_key: Some(VoteKey([2; 96])),
    };
    let of = |slot: Slot| Account {
        slot: Some(Box::new(slot)),
        ..Account::plain(u64::MAX, u64::MAX)
    };
    let absent = Slot::Absent {
        identity: id(1),
        until: Epoch(u64::MAX),
        missed: u8::MAX,
    };
    let piece = Slot::Piece {
        epoch: Epoch(u64::MAX),
        bytes: vec![7; 224],
    };
    let registry = Account {
        nonce: u64::MAX,
        balance: u64::MAX,
        ..Account::of_registry(most)
    };
    let held = round.accounts.into_values();
    for account in held.chain([registry, of(largest), of(absent), of(piece)]) {
        let bytes = account.encode();
        assert!(bytes.len() <= 255, "{account:?}");
        assert_eq!(Account::decode(Copying(&bytes)).expect("the same"), account);
        let json = serde_json::to_string(&account).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Account>(&json).expect("the same"),
            account
        );
    }
}

#[test]
fn the_accounts_of_a_round_are_apart() {
    let mut all = std::collections::BTreeSet::from([REGISTRY]);
    let places = 0..resharing::MAX_SHARING_VALIDATORS as u16;
    let mut slots: Vec<Identity> = places.clone().map(resharing::player_slot).collect();
    for dealer in places {
        slots.extend(resharing::dealing_slots(dealer, 100));
    }
    slots.extend((0..100).map(|number| announcement_slot(&id(number))));
    for slot in slots {
        assert!(all.insert(slot), "{slot}");
        assert!(quorate_types::registry::is_reserved(&slot));
    }
    assert_eq!(dealing_parts(4), 1);
    assert_eq!(dealing_parts(100), 3);
}
