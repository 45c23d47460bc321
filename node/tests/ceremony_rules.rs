//! A whole ceremony without a network, and what must not pass in it.

#![allow(missing_docs, clippy::unwrap_used)]

use quorate_crypto::{
    Digest, SecretKey,
    bls::{CheckedDealing, Dealing, OpeningKey, OpeningSecret, Round, Sum, VoteSecret},
};
use quorate_node::{
    ceremony::{
        board::{Board, Fault, Offence, Outcome, Received, Verdict},
        exchange::Shared,
        folder::Folder,
        message::{Body, Message, Step, acceptance, max_message_bytes},
        plan::{MAX_PARTICIPANTS, Participant, Plan, PlanError},
        session::{Progress, Session, is_over},
        transcript::{Transcript, TranscriptError},
    },
    genesis::GENESIS_FILE,
    keys::{KeyAccess, Protection, SEED_FILE, VOTE_FILE, load_vote_secret},
};
use quorate_types::{
    ChainId, EpochLength, RegistryRules,
    genesis::{DEFAULT_FEES, DEFAULT_LIMITS, Genesis, GenesisAccount, Protocol},
};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use std::{fs, sync::Arc};

fn identity(place: u32) -> SecretKey {
    SecretKey::from_bytes(&[place as u8 + 1; 32])
}

fn plan(size: u32) -> Plan {
    let participants = (0..size).map(|place| Participant {
        identity: identity(place).identity(),
        address: format!("127.0.0.1:{}", 31_100 + 2 * place),
        stake: 0,
    });
    Plan {
        name: "ours".into(),
        timestamp_ms: 1_800_000_000_000,
        protocol: Protocol::Simplex,
        epoch_blocks: EpochLength::DEFAULT,
        limits: DEFAULT_LIMITS,
        fees: DEFAULT_FEES,
        registry: None,
        participants: participants.collect(),
        accounts: vec![GenesisAccount {
            identity: identity(200).identity(),
            balance: 1_000,
        }],
    }
}

/// Participants without files.
struct Cast {
    plan: Plan,
    digest: Digest,
}

impl Cast {
    fn new(size: u32) -> Self {
        let plan = plan(size);
        let digest = plan.digest();
        Self { plan, digest }
    }

    fn all(&self) -> std::ops::Range<u32> {
        0..self.plan.size()
    }

    fn sign(&self, place: u32, body: Body) -> Message {
        Message::sign(&self.digest, place, body, &identity(place))
    }

    fn secret(place: u32) -> OpeningSecret {
        OpeningSecret::random(ChaCha20Rng::from_seed([100 + place as u8; 32]))
    }

    fn announcement(&self, place: u32) -> Message {
        self.sign(place, Body::Announcement(Self::secret(place).key()))
    }

    fn dealing_of(round: &Round, place: u32) -> Dealing {
        let dealing = round.deal_fresh(place, [place as u8; 32]);
        dealing.expect("a round")
    }

    fn dealing(&self, round: &Round, place: u32) -> Message {
        self.sign_dealing(round, place, Self::dealing_of(round, place))
    }

    fn sign_dealing(&self, round: &Round, place: u32, dealing: Dealing) -> Message {
        let context = round.context;
        self.sign(place, Body::Dealing { context, dealing })
    }

    fn share(round: &Round, dealings: &[CheckedDealing], place: u32) -> VoteSecret {
        let open = |one: &CheckedDealing| {
            let value = one.open(round, place, &Self::secret(place));
            (one.dealer(), value.expect("an honest dealing"))
        };
        let values: Vec<_> = dealings.iter().map(open).collect();
        Sum::Fresh.share(&values).expect("not zero")
    }

    fn acceptance(&self, board: &Board, place: u32) -> Message {
        let round = board.round().expect("announced");
        let dealings = board.dealings().expect("dealt");
        let share = Self::share(round, dealings, place);
        let chain = board.outcome().expect("computed").chain;
        let share = share.sign(&acceptance(&self.digest, &chain, place));
        self.sign(place, Body::Acceptance { chain, share })
    }

    /// A board with all messages before a step.
    fn board_before(&self, step: Step) -> Board {
        let mut board = Board::new(self.plan.clone());
        for before in Step::ALL.into_iter().filter(|before| *before < step) {
            for message in self.messages(&board, before) {
                assert_eq!(board.receive(message), Received::New);
            }
            settle(&mut board);
        }
        board
    }

    /// All messages of a step that has begun.
    fn messages(&self, board: &Board, step: Step) -> Vec<Message> {
        let message = |place| match step {
            Step::Announcement => self.announcement(place),
            Step::Dealing => self.dealing(board.round().expect("announced"), place),
            Step::Acceptance => self.acceptance(board, place),
            Step::Done => {
                let chain = board.outcome().expect("computed").chain;
                self.sign(place, Body::Done(chain))
            }
        };
        self.all().map(message).collect()
    }
}

fn settle(board: &mut Board) {
    if let (None, Some(round), Some(dealings)) = (board.outcome(), board.round(), board.dealings())
    {
        let outcome = Outcome::compute(board.plan(), round, dealings).expect("a chain");
        board.settle(outcome);
    }
}

/// What an offence must lead to: the fault, passed on as bytes, names the same one on another board.
fn expect_conviction(cast: &Cast, board: &Board, step: Step, expected: Verdict) {
    let (fault, verdict) = board.fault().expect("a fault");
    assert_eq!(*verdict, expected);
    let size = cast.plan.participants.len();
    let bytes = fault.encode();
    assert!(bytes.len() <= Fault::max_bytes(size));
    let passed_on = Fault::decode(&bytes, size).expect("a fault");
    assert_eq!(passed_on, *fault);
    let mut other = cast.board_before(step);
    assert!(other.receive_fault(passed_on));
    assert_eq!(other.fault().expect("a fault").1, expected);
    // No bit of it can be changed, and nothing be added.
    for index in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[index] ^= 1 << (index % 8);
        let changed = Fault::decode(&changed, size);
        let proves = changed.and_then(|fault| other.verdict(&fault));
        assert_eq!(proves, None, "byte {index}");
    }
    assert_eq!(Fault::decode(&[&*bytes, &[0]].concat(), size), None);
    assert_eq!(Fault::decode(&bytes[..bytes.len() - 1], size), None);
}

#[test]
fn all_boards_lead_to_one_chain_for_which_all_shares_sign() {
    for size in [1, 2, 4, 7] {
        let cast = Cast::new(size);
        let mut board = cast.board_before(Step::Done);
        for message in cast.messages(&board, Step::Done) {
            assert_eq!(board.receive(message), Received::New);
        }
        assert!(board.fault().is_none());
        let outcome = board.outcome().expect("computed");
        let committee = outcome.genesis.committee().expect("a committee");
        let identities: Vec<_> = cast.all().map(|place| identity(place).identity()).collect();
        assert_eq!(committee.identities(), identities);
        // In another order, the same.
        let mut other = Board::new(cast.plan.clone());
        for step in [Step::Announcement, Step::Dealing] {
            for message in cast.messages(&other, step).into_iter().rev() {
                assert_eq!(other.receive(message), Received::New);
            }
        }
        settle(&mut other);
        assert_eq!(other.outcome().expect("computed").chain, outcome.chain);
    }
}

#[test]
fn a_message_is_exactly_its_bytes_and_no_bit_of_it_can_change() {
    let cast = Cast::new(4);
    for step in Step::ALL {
        let board = cast.board_before(step);
        let message = cast.messages(&board, step).swap_remove(1);
        let bytes = message.encode();
        assert!(bytes.len() <= max_message_bytes(4));
        assert_eq!(Message::decode(&bytes, 4), Some(message));
        for length in 0..bytes.len() {
            assert_eq!(Message::decode(&bytes[..length], 4), None);
        }
        assert_eq!(Message::decode(&[&*bytes, &[0]].concat(), 4), None);
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 1 << (index % 8);
            if let Some(changed) = Message::decode(&changed, 4) {
                assert!(
                    !changed.is_signed(&cast.plan, &cast.digest),
                    "{step}: byte {index}"
                );
            }
        }
    }
}

#[test]
fn a_message_of_another_plan_or_of_another_participant_is_not_taken() {
    let cast = Cast::new(4);
    let mut other = Cast::new(4);
    other.plan.timestamp_ms += 1;
    other.digest = other.plan.digest();
    let mut board = Board::new(cast.plan.clone());
    assert_eq!(board.receive(other.announcement(2)), Received::Unsigned);
    let mut message = cast.announcement(2);
    message.participant = 1;
    assert_eq!(board.receive(message), Received::Unsigned);
    assert_eq!(board.receive(cast.announcement(2)), Received::New);
    assert_eq!(board.receive(cast.announcement(2)), Received::Known);
}

#[test]
fn a_step_begins_when_all_messages_of_the_one_before_are_there() {
    let cast = Cast::new(4);
    for step in [Step::Dealing, Step::Acceptance, Step::Done] {
        let complete = cast.board_before(step);
        let message = cast.messages(&complete, step).swap_remove(0);
        let mut board = Board::new(cast.plan.clone());
        let mut before = complete.messages();
        before.pop();
        for message in before {
            board.receive(message.clone());
            settle(&mut board);
        }
        assert!(!board.has_begun(step));
        assert_eq!(board.receive(message), Received::Early, "{step}");
        assert!(board.fault().is_none());
    }
}

#[test]
fn two_messages_of_one_step_convict_their_author() {
    let cast = Cast::new(4);
    for step in [Step::Announcement, Step::Dealing] {
        let mut board = cast.board_before(step);
        let mut messages = cast.messages(&board, step);
        let second = match board.round() {
            None => {
                let key = OpeningSecret::random(ChaCha20Rng::from_seed([9; 32])).key();
                cast.sign(2, Body::Announcement(key))
            }
            Some(round) => {
                let dealing = round.deal_fresh(2, [9; 32]).expect("a round");
                cast.sign_dealing(round, 2, dealing)
            }
        };
        board.receive(messages.swap_remove(2));
        assert_eq!(board.receive(second), Received::Fault);
        let expected = Verdict {
            guilty: 2,
            offence: Offence::Twice(step),
        };
        // Whoever has seen nothing yet can check it too.
        expect_conviction(&cast, &board, Step::Announcement, expected);
        // Nothing more is taken.
        assert_eq!(board.receive(messages.swap_remove(0)), Received::Fault);
    }
    let same = Box::new(cast.announcement(1));
    let board = Board::new(cast.plan.clone());
    assert_eq!(board.verdict(&Fault::Twice(same.clone(), same)), None);
    let (one, other) = (cast.announcement(1), cast.announcement(2));
    assert_eq!(
        board.verdict(&Fault::Twice(Box::new(one), Box::new(other))),
        None
    );
}

#[test]
fn a_message_that_no_honest_participant_signs_convicts_its_author() {
    let cast = Cast::new(4);
    let announced = cast.board_before(Step::Dealing);
    let round = announced.round().expect("announced").clone();
    let dealt = cast.board_before(Step::Acceptance);
    let chain = dealt.outcome().expect("computed").chain;
    let dealings = dealt.dealings().expect("dealt");
    let but = |change: &dyn Fn(&mut Dealing)| {
        let dealing = round.deal_fresh_but(3, [3; 32], change);
        dealing.expect("a round")
    };
    let crooked = but(&|dealing| dealing.coefficients[1] = [0; 96]);
    // Complaints about it would open what participant 0 has sealed.
    let others = Cast::dealing_of(&round, 0).point;
    let stolen = but(&|dealing| dealing.point = others);
    let other_round = Round {
        context: Digest([7; 32]),
        ..round.clone()
    };
    let other_chain = ChainId(Digest([7; 32]));
    let accept = |chain, share: VoteSecret| Body::Acceptance {
        chain,
        share: share.sign(&acceptance(&cast.digest, &chain, 3)),
    };
    let own = || Cast::share(&round, dealings, 3);
    let foreign = Cast::share(&round, dealings, 2);
    for (step, body, expected) in [
        (
            Step::Announcement,
            Body::Announcement(OpeningKey([0; 48])),
            Offence::OpeningKey,
        ),
        (
            Step::Dealing,
            cast.sign_dealing(&round, 3, crooked).body,
            Offence::Dealing(quorate_crypto::bls::DealingError::Point),
        ),
        (
            Step::Dealing,
            cast.sign_dealing(&round, 3, stolen).body,
            Offence::Dealing(quorate_crypto::bls::DealingError::Proof),
        ),
        (
            Step::Dealing,
            cast.dealing(&other_round, 3).body,
            Offence::Context,
        ),
        (
            Step::Acceptance,
            accept(other_chain, own()),
            Offence::Chain(other_chain),
        ),
        (Step::Acceptance, accept(chain, foreign), Offence::Share),
    ] {
        let mut board = cast.board_before(step);
        assert_eq!(board.receive(cast.sign(3, body)), Received::Fault);
        let expected = Verdict {
            guilty: 3,
            offence: expected,
        };
        expect_conviction(&cast, &board, step, expected);
    }
    // What an honest participant signs convicts nobody.
    let good = accept(chain, own());
    let good = Fault::Wrong(Box::new(cast.sign(3, good)));
    assert_eq!(dealt.verdict(&good), None);
}

#[test]
fn a_wrong_value_in_a_seal_convicts_the_dealer_and_a_false_complaint_its_author() {
    let cast = Cast::new(4);
    let announced = cast.board_before(Step::Dealing);
    let round = announced.round().expect("announced").clone();
    let change = |dealing: &mut Dealing| dealing.sealed[2][5] ^= 1;
    let wrong = round.deal_fresh_but(1, [1; 32], change).expect("a round");
    let dealt = cast.sign_dealing(&round, 1, wrong.clone());
    let checked = wrong.check(&round, 1, None).expect("its points are right");
    assert!(checked.open(&round, 0, &Cast::secret(0)).is_ok());
    let opened = checked.open(&round, 2, &Cast::secret(2));
    let complaint = opened.err().expect("a complaint");
    let complain = |complaint| Body::Complaint {
        context: round.context,
        dealer: 1,
        complaint,
    };
    let mut board = cast.board_before(Step::Dealing);
    let complained = cast.sign(2, complain(complaint.clone()));
    let fault = Fault::Complaint(Box::new(dealt.clone()), Box::new(complained));
    assert!(board.receive_fault(fault));
    let expected = Verdict {
        guilty: 1,
        offence: Offence::Sealed { player: 2 },
    };
    expect_conviction(&cast, &board, Step::Dealing, expected);
    // The same about an honest dealing.
    let honest = cast.dealing(&round, 1);
    let complained = cast.sign(2, complain(complaint));
    let mut board = cast.board_before(Step::Dealing);
    assert!(board.receive_fault(Fault::Complaint(Box::new(honest), Box::new(complained))));
    let expected = Verdict {
        guilty: 2,
        offence: Offence::Complaint { dealer: 1 },
    };
    expect_conviction(&cast, &board, Step::Dealing, expected);
}

#[test]
fn nothing_undoes_a_chain_that_all_have_accepted() {
    let cast = Cast::new(4);
    let mut board = cast.board_before(Step::Done);
    let key = OpeningSecret::random(ChaCha20Rng::from_seed([9; 32])).key();
    let second = cast.sign(2, Body::Announcement(key));
    assert_eq!(board.receive(second.clone()), Received::Late);
    let first = Box::new(cast.announcement(2));
    assert!(!board.receive_fault(Fault::Twice(first, Box::new(second))));
    let elsewhere = cast.sign(2, Body::Done(ChainId(Digest([7; 32]))));
    assert_eq!(board.receive(elsewhere), Received::Early);
    assert!(board.fault().is_none());
}

#[test]
fn a_transcript_is_checked_in_all_its_parts() {
    let cast = Cast::new(4);
    let board = cast.board_before(Step::Done);
    let transcript = Transcript::of(&board, Step::Acceptance);
    let text = transcript.to_json();
    let read = Transcript::from_json(&text).expect("a transcript");
    assert_eq!(read, transcript);
    let genesis = read.verify().expect("complete");
    assert_eq!(genesis, board.outcome().expect("computed").genesis);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let messages = value["messages"].as_array().expect("a list").len();
    assert_eq!(messages, 12);
    let change = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = value.clone();
        change(&mut value);
        Transcript::from_json(&value.to_string()).and_then(|changed| changed.verify())
    };
    for index in 0..messages {
        let without = change(&|value| {
            value["messages"]
                .as_array_mut()
                .expect("a list")
                .remove(index);
        });
        let is_missed = match index {
            0..8 => matches!(without, Err(TranscriptError::Early { .. })),
            _ => matches!(without, Err(TranscriptError::Incomplete { .. })),
        };
        assert!(is_missed, "{index}: {without:?}");
        let changed = change(&|value| {
            let message = value["messages"][index].as_str().expect("text");
            let digit = if message.ends_with('0') { "1" } else { "0" };
            let changed = format!("{}{digit}", &message[..message.len() - 1]);
            value["messages"][index] = changed.into();
        });
        let is_refused = matches!(changed, Err(TranscriptError::Unsigned { .. }));
        assert!(is_refused, "{index}: {changed:?}");
    }
    let renamed = change(&|value| value["plan"]["name"] = "theirs".into());
    assert!(matches!(
        renamed,
        Err(TranscriptError::Unsigned { number: 0 })
    ));
    let nonsense = change(&|value| value["messages"][3] = "zz".into());
    assert!(matches!(
        nonsense,
        Err(TranscriptError::Message { number: 3 })
    ));
    let accused = change(&|value| value["fault"] = "00".into());
    assert!(matches!(accused, Err(TranscriptError::Fault)));
}

#[test]
fn a_plan_survives_its_text_and_its_digest_covers_all_of_it() {
    let plan = plan(4);
    let text = plan.to_toml().expect("small numbers");
    assert_eq!(Plan::from_toml(&text).expect("a plan"), plan);
    let least = format!(
        "name = 'ours'\ntimestamp_ms = 1\n[[participants]]\nidentity = '{}'\naddress = 'a.example:1'\n",
        identity(0).identity()
    );
    let least = Plan::from_toml(&least).expect("the rest has defaults");
    assert_eq!((least.limits, least.fees), (DEFAULT_LIMITS, DEFAULT_FEES));
    type Change = fn(&mut Plan);
    let changes: [Change; 10] = [
        |plan| plan.name.push('x'),
        |plan| plan.timestamp_ms += 1,
        |plan| plan.protocol = Protocol::Pbft,
        |plan| plan.epoch_blocks = EpochLength::new(7).expect("not zero"),
        |plan| plan.limits.max_bytes -= 1,
        |plan| plan.fees.per_transfer += 1,
        |plan| plan.participants.swap(0, 1),
        |plan| plan.participants[1].address = "127.0.0.1:1".into(),
        |plan| plan.participants[1].stake = 5,
        |plan| plan.accounts[0].balance += 1,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut other = plan.clone();
        change(&mut other);
        assert_ne!(other.digest(), plan.digest(), "{index}");
    }
}

#[test]
fn participants_that_could_not_pay_for_passing_shares_on_are_named() {
    let mut plan = plan(4);
    assert!(plan.without_money().is_empty(), "nothing is passed on");
    plan.registry = Some(RegistryRules {
        min_stake: 1,
        max_validators: 4,
        unbond_epochs: 1,
        slashing: None,
        external: None,
        resharing: true,
    });
    for (place, balance) in [(0, 5), (1, 0)] {
        plan.accounts.push(GenesisAccount {
            identity: identity(place).identity(),
            balance,
        });
    }
    let poor: Vec<_> = plan.without_money().into_iter().cloned().collect();
    assert_eq!(poor, plan.participants[1..]);
}

#[test]
fn a_plan_that_leads_to_no_chain_is_refused() {
    let refuse = |change: fn(&mut Plan)| {
        let mut plan = plan(4);
        change(&mut plan);
        plan.check().expect_err("refused")
    };
    let none = refuse(|plan| plan.participants.clear());
    assert!(matches!(none, PlanError::Participants { found: 0 }));
    let same = refuse(|plan| plan.participants[1].address = plan.participants[0].address.clone());
    assert!(matches!(same, PlanError::SameAddress { .. }));
    let nowhere = refuse(|plan| plan.participants[1].address = "here".into());
    assert!(matches!(nowhere, PlanError::Address { .. }));
    let twice = refuse(|plan| plan.participants[1].identity = plan.participants[0].identity);
    assert!(matches!(twice, PlanError::Genesis(_)), "{twice}");
    let nameless = refuse(|plan| plan.name.clear());
    assert!(matches!(nameless, PlanError::Genesis(_)), "{nameless}");
    let stake = refuse(|plan| plan.participants[1].stake = 5);
    assert!(stake.to_string().contains("stake"), "{stake}");
    let crowd = refuse(|plan| {
        let one = plan.participants[0].clone();
        plan.participants = vec![one; MAX_PARTICIPANTS + 1];
    });
    assert!(matches!(crowd, PlanError::Participants { found: 257 }));
}

/// A participant with a folder, which can be restarted.
struct Actor {
    place: u32,
    folder: tempfile::TempDir,
    shared: Arc<Shared>,
}

impl Actor {
    fn new(plan: &Plan, place: u32) -> Self {
        Self {
            place,
            folder: tempfile::tempdir().expect("a folder"),
            shared: Arc::new(Shared::new(Board::new(plan.clone()), place)),
        }
    }

    /// A process starts, does all that it can, and is killed.
    fn live(&mut self, plan: &Plan) -> anyhow::Result<Progress> {
        self.shared = Arc::new(Shared::new(Board::new(plan.clone()), self.place));
        self.see_from(self.shared.clone(), &[])
    }

    /// The same, with messages that others show.
    fn see(&mut self, others: &[Message]) -> anyhow::Result<Progress> {
        let plan = self.shared.board().plan().clone();
        self.shared = Arc::new(Shared::new(Board::new(plan), self.place));
        self.see_from(self.shared.clone(), others)
    }

    fn see_from(&self, shared: Arc<Shared>, others: &[Message]) -> anyhow::Result<Progress> {
        let access = KeyAccess::plain();
        let folder = Folder::open(self.folder.path())?;
        let own = identity(self.place);
        let mut session = Session::open(shared.clone(), own, folder, &access, Protection::Plain)?;
        for message in others {
            shared.take(message.clone()).expect("signed");
        }
        session.advance()
    }

    fn messages(&self) -> Vec<Message> {
        let board = self.shared.board();
        board.messages().into_iter().cloned().collect()
    }

    fn own(&self, step: Step) -> Option<Message> {
        self.shared.board().message(self.place, step).cloned()
    }

    fn has(&self, file: &str) -> bool {
        self.folder.path().join(file).exists()
    }
}

#[test]
fn participants_that_are_killed_after_every_step_end_with_one_chain() {
    let plan = plan(4);
    let mut actors: Vec<Actor> = (0..4).map(|place| Actor::new(&plan, place)).collect();
    for actor in &mut actors {
        assert_eq!(
            actor.live(&plan).expect("begins"),
            Progress::Waiting(Step::Announcement)
        );
        assert!(actor.has(SEED_FILE));
    }
    let mut signed: Vec<Message> = Vec::new();
    for _ in 0..6 {
        let seen: Vec<Message> = actors.iter().flat_map(Actor::messages).collect();
        for actor in &mut actors {
            actor.see(&seen).expect("goes on");
            for message in Step::ALL.into_iter().filter_map(|step| actor.own(step)) {
                let earlier = signed
                    .iter()
                    .find(|one| one.participant == actor.place && one.step() == message.step());
                assert!(earlier.is_none_or(|one| *one == message));
                signed.push(message);
            }
        }
    }
    let text = |actor: &Actor, file| {
        let text = fs::read_to_string(actor.folder.path().join(file));
        text.expect("it is there")
    };
    let genesis = text(&actors[0], GENESIS_FILE);
    let parsed = Genesis::from_json(&genesis).expect("a genesis");
    for actor in &actors {
        assert_eq!(text(actor, GENESIS_FILE), genesis);
        assert!(!actor.has(SEED_FILE), "the seed is erased");
        let path = actor.folder.path().join(VOTE_FILE);
        let share = load_vote_secret(&path, &KeyAccess::plain()).expect("a share");
        let expected = &parsed.validators[actor.place as usize].vote_key;
        assert_eq!(hex::encode(share.public_key()), *expected);
        let folder = Folder::open(actor.folder.path()).expect("free");
        // The record is there until the process knows that all are done, and then has seen others know it.
        assert!(
            is_over(&folder, &plan.digest())
                .expect("readable")
                .is_none()
        );
        folder.close().expect("a record");
        assert!(
            is_over(&folder, &plan.digest())
                .expect("readable")
                .is_some()
        );
        let mut other = plan.clone();
        other.timestamp_ms += 1;
        let error = is_over(&folder, &other.digest())
            .err()
            .expect("refused")
            .to_string();
        assert!(error.contains(&other.digest().to_string()), "{error}");
        assert!(error.contains(&plan.digest().to_string()), "{error}");
    }
}

#[test]
fn a_participant_whose_folder_is_lost_signs_no_second_message() {
    let plan = plan(2);
    let mut first = Actor::new(&plan, 0);
    first.live(&plan).expect("begins");
    let announced = first.messages();
    let mut again = Actor::new(&plan, 0);
    let error = again.see(&announced).expect_err("refused").to_string();
    assert!(error.contains("has signed an announcement"), "{error}");
    assert!(again.messages().is_empty());
    // With the seed but without the record, it signs the same.
    fs::remove_file(first.folder.path().join("ceremony.json")).expect("a record");
    first.see(&announced).expect("goes on");
    assert_eq!(first.messages(), announced);
    // With the record and without the seed, it cannot go on.
    fs::remove_file(first.folder.path().join(SEED_FILE)).expect("a seed");
    let error = first.see(&announced).expect_err("refused").to_string();
    assert!(error.contains("ceremony.key is gone"), "{error}");
}

#[test]
fn a_folder_belongs_to_one_plan_and_one_process_and_no_other_chain() {
    let plan = plan(2);
    let mut actor = Actor::new(&plan, 0);
    actor.live(&plan).expect("begins");
    let mut other = plan.clone();
    other.timestamp_ms += 1;
    let error = actor.live(&other).expect_err("refused").to_string();
    assert!(error.contains(&other.digest().to_string()), "{error}");
    assert!(error.contains(&plan.digest().to_string()), "{error}");
    let held = Folder::open(actor.folder.path()).expect("free");
    assert!(Folder::open(actor.folder.path()).is_err());
    drop(held);
    let mut taken = Actor::new(&plan, 1);
    fs::write(taken.folder.path().join(VOTE_FILE), "mine").expect("own file");
    let error = taken.live(&plan).expect_err("refused").to_string();
    assert!(error.contains("not written over"), "{error}");
    assert!(!taken.has(SEED_FILE));
}

#[test]
fn a_wrong_value_ends_the_ceremony_of_its_receiver_with_a_proof_for_all() {
    let cast = Cast::new(2);
    let mut actor = Actor::new(&cast.plan, 0);
    actor.live(&cast.plan).expect("begins");
    actor.see(&[cast.announcement(1)]).expect("deals");
    let round = actor.shared.board().round().cloned().expect("announced");
    let change = |dealing: &mut Dealing| dealing.sealed[0][0] ^= 1;
    let wrong = round.deal_fresh_but(1, [1; 32], change).expect("a round");
    let wrong = cast.sign_dealing(&round, 1, wrong);
    let progress = actor
        .see(&[cast.announcement(1), wrong])
        .expect("complains");
    let expected = Verdict {
        guilty: 1,
        offence: Offence::Sealed { player: 0 },
    };
    assert_eq!(progress, Progress::Faulty(expected));
    assert!(!actor.has(SEED_FILE) && !actor.has(VOTE_FILE) && !actor.has(GENESIS_FILE));
    // Again after a restart, and for anybody who has the file.
    assert_eq!(actor.see(&[]).expect("still"), Progress::Faulty(expected));
    let text = fs::read_to_string(actor.folder.path().join("ceremony.json")).expect("a record");
    let verified = Transcript::from_json(&text).expect("a transcript").verify();
    let Err(TranscriptError::Guilty(what)) = verified else {
        panic!("{verified:?}");
    };
    assert!(
        what.contains("participant 1") && what.contains("participant 0"),
        "{what}"
    );
}
