use super::*;
use quorate_types::View;

const SECOND: Duration = Duration::from_secs(1);

fn other(place: u32) -> Other {
    Other {
        validator: ValidatorIndex(place),
        name: format!("0000000{place}"),
        linked: true,
        has_address: true,
        refuses: false,
        doubled: false,
        voter: Voter::Votes,
        relayed: false,
        asks: false,
        clock_ahead_ms: Some(0),
        claimed: Some(Height(8_101)),
    }
}

fn away(place: u32) -> Other {
    Other {
        linked: false,
        voter: Voter::Unreachable,
        ..other(place)
    }
}

fn silent(place: u32) -> Other {
    Other {
        voter: Voter::Silent,
        ..other(place)
    }
}

/// Validator 0 of four, all well.
fn facts() -> Facts {
    Facts {
        growth: Growth {
            since_final: SECOND / 10,
            final_since_start: true,
            start_height: Height(0),
            views_without_block: 0,
            blocks_per_second: 50.0,
            slow: None,
            usual: 2 * SECOND,
            configured: 2 * SECOND,
        },
        quorum: 3,
        faults: 1,
        protocol: Protocol::Simplex,
        height: Height(8_101),
        network_height: Height(8_101),
        heard: true,
        closing_per_second: Some(0.0),
        others: vec![other(1), other(2), other(3)],
        voting: Voting::Votes,
        asks: false,
        gone: None,
        unexecuted: 0,
        now_ms: 1_800_000_000_000,
        block_ms: 1_799_999_999_900,
        clock_ahead_ms: Some(3),
        clocks_refused: false,
        low_disk: None,
    }
}

fn stands(facts: Facts, seconds: u32) -> Facts {
    Facts {
        growth: Growth {
            since_final: seconds * SECOND,
            ..facts.growth
        },
        ..facts
    }
}

#[test]
fn all_well_has_no_remedy_and_no_note() {
    let verdict = decide(&facts());
    assert_eq!(verdict.state, Health::Healthy);
    assert_eq!(verdict.summary, "healthy: newest block 0.1 s old");
    assert_eq!((verdict.remedy, verdict.notes), (None, Vec::new()));
    assert_eq!(verdict.voters, 4);
}

#[test]
fn one_failure_before_the_halt_is_told_whether_the_one_is_away_or_silent() {
    for one in [away(3), silent(3)] {
        let verdict = decide(&Facts {
            others: vec![other(1), other(2), one],
            ..facts()
        });
        assert_eq!(verdict.state, Health::Healthy);
        let notes = verdict.notes.join("\n");
        assert!(notes.contains("validator 3 (00000003)"), "{notes}");
        assert!(
            notes.contains("one more failure halts the chain: 3 of 4 validators vote, 3 must"),
            "{notes}"
        );
    }
}

#[test]
fn a_missing_link_to_a_validator_that_runs_is_told() {
    let relayed = Other {
        linked: false,
        relayed: true,
        ..other(2)
    };
    let verdict = decide(&Facts {
        others: vec![other(1), relayed, other(3)],
        ..facts()
    });
    assert_eq!(verdict.state, Health::Healthy);
    let note = "no link to validator 2 (00000002), whose votes came";
    let is_told = verdict.notes.iter().any(|told| told.starts_with(note));
    assert!(is_told, "{:?}", verdict.notes);
    assert!(
        !verdict.notes.concat().contains("  "),
        "{:?}",
        verdict.notes
    );
}

#[test]
fn a_halted_chain_names_since_when_and_whom_it_waits_for() {
    let halted = decide(&stands(
        Facts {
            others: vec![other(1), silent(2), away(3)],
            ..facts()
        },
        11,
    ));
    assert_eq!(halted.state, Health::Halted);
    assert_eq!(
        halted.summary,
        "halted since 2027-01-15 07:59:49 UTC: needs 3 of 4 validators; not reachable: validator 3 \
         (00000003); linked, but without a vote: validator 2 (00000002); newest block 11 s old"
    );
    assert_eq!(
        halted.remedy.as_deref(),
        Some(
            "bring back one of them: validators 2 (00000002), 3 (00000003); of those that run, their own \
             `quorate status` says why they do not vote"
        )
    );
    assert!(!halted.notes.iter().any(|note| note.contains("one more")));
    // Without a quorum of links it is known why nothing comes.
    let unlinked = Facts {
        others: vec![other(1), away(2), away(3)],
        ..facts()
    };
    assert_eq!(decide(&stands(unlinked.clone(), 3)).state, Health::Halted);
    assert_eq!(decide(&stands(unlinked, 1)).state, Health::Healthy);
    // An idle chain makes its blocks as seldom as it is told to.
    let mut idle = stands(facts(), 40);
    assert_eq!(decide(&idle).state, Health::Halted);
    idle.growth.usual = 60 * SECOND;
    assert_eq!(decide(&idle).state, Health::Healthy);
}

#[test]
fn the_remedy_of_a_halt_names_the_fewest_that_end_it() {
    let remedy = |facts: Facts| {
        let halted = decide(&stands(facts, 11));
        assert_eq!(halted.state, Health::Halted);
        halted.remedy.expect("a remedy")
    };
    // Two of four run, and both ask for votes of their keys until one more comes.
    let asks = Facts {
        others: vec![away(1), away(2), silent(3)],
        voting: Voting::Checking {
            answers: 1,
            needed: 2,
        },
        ..facts()
    };
    assert_eq!(
        remedy(asks.clone()),
        "bring back one of them, or the links to them if they run: validators 1 (00000001), 2 (00000002); if that is not enough, \
         `quorate status` of those that run without a vote says why: validator 3 (00000003)"
    );
    // The other one votes.
    let others = vec![other(3), away(1), away(2)];
    assert_eq!(
        remedy(Facts { others, ..asks }),
        "bring back one of them, or the links to them if they run: validators 1 (00000001), 2 (00000002)"
    );
    // One that waits for an epoch does not count.
    let follows = Facts {
        others: vec![other(3), away(1), away(2)],
        voting: Voting::SilentUntil {
            epoch: 3,
            view: View(1),
        },
        ..facts()
    };
    assert!(remedy(follows).starts_with("bring back 2 of them"));
}

#[test]
fn who_lacks_blocks_by_the_word_of_one_says_so_and_what_it_waits_for() {
    let mut new = stands(
        Facts {
            height: Height(0),
            network_height: Height(0),
            block_ms: 0,
            others: vec![other(1), away(2), away(3)],
            ..facts()
        },
        11,
    );
    new.growth.final_since_start = false;
    new.others[0].claimed = Some(Height(23_756));
    let verdict = decide(&new);
    assert_eq!(verdict.state, Health::Halted);
    let told = "validator 1 (00000001) says that it has 23,756 blocks more than this one (height 0 of \
                23,756); this one fetches them, or the state, once 2 linked validators say so";
    assert!(
        verdict.notes.iter().any(|note| note == told),
        "{:?}",
        verdict.notes
    );
    new.others[0].claimed = Some(Height(USUAL_LAG));
    assert!(!decide(&new).notes.iter().any(|note| note.contains("says")));
}

#[test]
fn final_blocks_that_wait_for_execution_are_caught_up_with() {
    let executing = |unexecuted, age_ms| {
        let now_ms = facts().now_ms;
        decide(&Facts {
            unexecuted,
            block_ms: now_ms - age_ms,
            ..facts()
        })
    };
    let verdict = executing(406, 2_500);
    assert_eq!(verdict.state, Health::CatchingUp);
    assert_eq!(
        verdict.summary,
        "catching up: 406 final blocks to execute; newest block 0.1 s old"
    );
    assert_eq!((verdict.notes.len(), verdict.seconds_left), (0, None));
    // A busy chain has some blocks in flight, and an idle one has old blocks.
    assert_eq!(executing(30, 1_500).state, Health::Healthy);
    assert_eq!(executing(USUAL_LAG, 60_000).state, Health::Healthy);
}

#[test]
fn who_has_lost_all_others_does_not_say_that_the_chain_stands() {
    let mut alone = stands(
        Facts {
            others: vec![away(1), away(2), away(3)],
            ..facts()
        },
        3,
    );
    let verdict = decide(&alone);
    assert_eq!(verdict.state, Health::CutOff);
    assert!(verdict.summary.contains("the others may go on"));
    alone.clocks_refused = true;
    assert!(decide(&alone).remedy.is_some_and(|r| r.contains("NTP")));
    alone.clocks_refused = false;
    alone.others[0].refuses = true;
    assert_eq!(decide(&alone).state, Health::CutOff, "one may lie");
    alone.others[1].refuses = true;
    let refused = decide(&alone);
    assert_eq!(refused.state, Health::Refused);
    assert!(
        refused
            .summary
            .contains("validators 1 (00000001), 2 (00000002)")
    );
}

#[test]
fn whose_address_is_unknown_is_named_with_what_helps() {
    let mut alone = stands(
        Facts {
            others: vec![away(1), away(2), away(3)],
            ..facts()
        },
        3,
    );
    let verdict = decide(&alone);
    assert_eq!(verdict.state, Health::CutOff, "{}", verdict.summary);
    assert!(verdict.summary.contains("not reachable: validators 1"));
    assert!(!verdict.remedy.is_some_and(|r| r.contains("and restart")));
    alone.others[1].has_address = false;
    let verdict = decide(&alone);
    let summary = &verdict.summary;
    assert!(
        summary.contains("not reachable: validators 1 "),
        "{summary}"
    );
    assert!(
        summary.contains("no address is known: validator 2 "),
        "{summary}"
    );
    let remedy = verdict.remedy.expect("a remedy");
    assert!(
        remedy.starts_with("add validator 2 (00000002) to `[[p2p.peers]]`"),
        "{remedy}"
    );
}

#[test]
fn who_is_far_behind_does_not_count_its_own_votes() {
    let behind = |blocks| {
        decide(&Facts {
            height: Height(1_000),
            network_height: Height(1_000 + blocks),
            ..facts()
        })
    };
    assert_eq!(behind(VOTE_VIEWS).voters, 4);
    assert_eq!(behind(VOTE_VIEWS + 1).voters, 3);
}

#[test]
fn catching_up_tells_how_far_how_fast_and_how_long() {
    let behind = Facts {
        height: Height(1_000),
        network_height: Height(13_000),
        closing_per_second: Some(100.0),
        ..facts()
    };
    let verdict = decide(&behind);
    assert_eq!(verdict.state, Health::CatchingUp);
    assert_eq!(verdict.seconds_left, Some(120));
    assert_eq!(
        verdict.summary,
        "catching up: 12,000 blocks behind (height 1,000 of 13,000), 50.0 blocks/s, about 2 min \
         left; newest block 0.1 s old"
    );
    let slower = Facts {
        closing_per_second: Some(-1.0),
        ..behind.clone()
    };
    assert!(decide(&slower).summary.contains("does not shrink"));
    let new = Facts {
        closing_per_second: None,
        ..behind.clone()
    };
    assert!(decide(&new).summary.contains("not known yet"));
    assert_eq!(decide(&stands(behind, 11)).state, Health::Stuck);
}

#[test]
fn blocks_are_gone_when_all_but_f_linked_peers_say_so_and_none_comes() {
    let mut gone = stands(
        Facts {
            network_height: Height(9_000),
            gone: Some(Gone {
                wanted: Height(8_102),
                lacking: vec![
                    (ValidatorIndex(1), Height(8_900)),
                    (ValidatorIndex(2), Height(8_718)),
                ],
            }),
            ..facts()
        },
        3,
    );
    for other in &mut gone.others {
        other.claimed = Some(Height(9_000));
    }
    let verdict = decide(&gone);
    assert_eq!(verdict.state, Health::BlocksGone);
    assert!(
        verdict
            .summary
            .contains("no peer keeps block 8,102; the oldest is 8,718"),
        "{}",
        verdict.summary
    );
    assert_eq!(verdict.gone, Some((Height(8_102), Height(8_718))));
    // Of four validators three have lost their databases, and the fourth has pruned.
    let mut alone = gone.clone();
    alone.gone = Some(Gone {
        wanted: Height(8_102),
        lacking: vec![(ValidatorIndex(1), Height(8_900))],
    });
    assert_eq!(decide(&alone).state, Health::CatchingUp);
    alone.others[1].claimed = Some(Height(8_101));
    alone.others[2].claimed = Some(Height(0));
    assert_eq!(decide(&alone).state, Health::BlocksGone);
    assert_eq!(decide(&stands(gone.clone(), 1)).state, Health::CatchingUp);
    // Who is not linked any more may have said anything.
    gone.others[0] = away(1);
    assert_eq!(decide(&gone).state, Health::CatchingUp, "f may lie");
}

#[test]
fn in_sync_is_not_enough_for_a_validator_that_does_not_vote() {
    let follows = Facts {
        voting: Voting::SilentUntil {
            epoch: 17,
            view: View(1),
        },
        ..facts()
    };
    let verdict = decide(&follows);
    assert_eq!(verdict.state, Health::NotVoting);
    assert!(verdict.summary.contains("until epoch 17"));
    assert_eq!(verdict.voters, 3);
    let halted = Facts {
        others: vec![other(1), other(2), away(3)],
        ..follows
    };
    let halted = decide(&stands(halted, 30));
    assert_eq!(halted.state, Health::Halted);
    assert!(halted.summary.contains("this one does not vote"));
    let elsewhere = Facts {
        voting: Voting::KeySeenElsewhere {
            address: Some("10.0.0.9".to_owned()),
            told_by: None,
        },
        ..facts()
    };
    let verdict = decide(&elsewhere);
    assert_eq!(verdict.state, Health::KeySeenElsewhere);
    assert!(verdict.summary.contains("at 10.0.0.9"));
}

#[test]
fn more_lost_journals_than_the_chain_can_do_without_do_not_pass_by_themselves() {
    let recovering = |lost, refused| Facts {
        voting: Voting::Recovering {
            answers: 2,
            needed: 3,
            lost,
            refused,
        },
        ..facts()
    };
    let one = decide(&recovering(1, false));
    assert_eq!(one.state, Health::NotVoting);
    assert!(one.remedy.expect("a remedy").contains("by itself"));
    let two = decide(&recovering(2, false));
    assert_eq!(two.state, Health::Halted);
    assert!(
        two.summary.contains("as those of 1 of the others"),
        "{}",
        two.summary
    );
    let remedy = two.remedy.expect("a remedy");
    assert!(remedy.contains("More than f journals"), "{remedy}");
    let refused = decide(&recovering(2, true)).remedy.expect("a remedy");
    assert!(refused.contains("does not fit"), "{refused}");
    let pbft = Facts {
        protocol: Protocol::Pbft,
        ..recovering(2, false)
    };
    let remedy = decide(&pbft).remedy.expect("a remedy");
    assert!(
        remedy.contains("with pbft nothing replaces them") && !remedy.contains("operators"),
        "{remedy}"
    );
}

#[test]
fn who_goes_through_epochs_that_the_others_have_left_is_not_healthy() {
    let past = Facts {
        heard: false,
        now_ms: facts().block_ms + 60_000,
        ..facts()
    };
    let verdict = decide(&past);
    assert_eq!(verdict.state, Health::CatchingUp, "{}", verdict.summary);
    assert!(
        verdict.summary.contains("60 s old") || verdict.summary.contains("1 min"),
        "{}",
        verdict.summary
    );
    // Old blocks are fetched, whatever the others have told.
    let heard = Facts {
        heard: true,
        ..past
    };
    assert_eq!(decide(&heard).state, Health::CatchingUp);
    let new = Facts {
        block_ms: heard.now_ms - 100,
        ..heard
    };
    assert_eq!(decide(&new).state, Health::Healthy);
}

#[test]
fn who_has_no_block_yet_is_not_healthy() {
    let mut empty = Facts {
        block_ms: 0,
        height: Height(0),
        network_height: Height(0),
        ..facts()
    };
    empty.growth.final_since_start = false;
    let verdict = decide(&empty);
    assert_eq!(verdict.state, Health::Starting, "{}", verdict.summary);
    assert_eq!(verdict.summary, "starting: no block yet");
}

#[test]
fn who_starts_after_a_halt_is_not_healthy_before_the_first_block() {
    let mut starts = Facts {
        now_ms: facts().block_ms + 69_000,
        ..facts()
    };
    starts.growth.final_since_start = false;
    let verdict = decide(&starts);
    assert_eq!(verdict.state, Health::Starting, "{}", verdict.summary);
    let told = "starting: no new block yet since its start; newest block 69 s old";
    assert!(verdict.summary.starts_with(told), "{}", verdict.summary);
    let goes_on = Facts {
        block_ms: starts.now_ms - 100,
        growth: Growth {
            final_since_start: true,
            ..starts.growth
        },
        ..starts.clone()
    };
    assert_eq!(decide(&goes_on).state, Health::Healthy);
    // A chain that pauses for longer.
    starts.growth.usual = 30 * SECOND;
    assert_eq!(decide(&starts).state, Health::Healthy);
}

/// Ten validators of which the last three never ran, and validator 6, whose journal is old.
fn three_seats_without_machines(own_is_old: bool) -> Facts {
    let asks = Other {
        asks: true,
        ..silent(6)
    };
    let mut others: Vec<Other> = (1..6).map(other).collect();
    others.push(if own_is_old { other(6) } else { asks });
    others.extend((7..10).map(away));
    Facts {
        quorum: 7,
        faults: 3,
        protocol: Protocol::Simplex,
        others,
        voting: match own_is_old {
            true => Voting::Recovering {
                answers: 6,
                needed: 7,
                lost: 1,
                refused: false,
            },
            false => Voting::Votes,
        },
        ..stands(facts(), 3)
    }
}

#[test]
fn a_journal_that_waits_for_answers_names_who_can_give_them() {
    for own_is_old in [false, true] {
        let verdict = decide(&three_seats_without_machines(own_is_old));
        assert_eq!(verdict.state, Health::Halted, "within seconds");
        let remedy = verdict.remedy.expect("a remedy");
        let told = "bring back one of them with its journal: validators 7 (00000007), 8 (00000008), 9 \
                    (00000009). One whose journal is lost as well does not count";
        assert!(remedy.contains(told), "{remedy}");
        assert!(remedy.contains("7 others with whole journals"), "{remedy}");
    }
    // Before anybody can know.
    let mut early = three_seats_without_machines(false);
    early.growth.since_final = SECOND;
    assert_eq!(decide(&early).state, Health::Healthy);
}

#[test]
fn where_a_lost_journal_binds_until_an_epoch_ends_answers_do_not_help() {
    for (own_is_old, who) in [
        (false, "validator 6 (00000006), if it is"),
        (true, "this one"),
    ] {
        let facts = Facts {
            protocol: Protocol::Pbft,
            ..three_seats_without_machines(own_is_old)
        };
        let remedy = decide(&facts).remedy.expect("a remedy");
        let told = format!(
            "bring back one of them, or the links to them if they run: validators 7 (00000007), 8 (00000008), 9 (00000009). With pbft a \
             validator whose journal is lost or old votes again only when the next epoch ends, so the \
             others have to get there without it: {who}"
        );
        assert_eq!(remedy, told);
    }
}

#[test]
fn who_is_bound_itself_counts_among_those_whose_journals_may_be_lost() {
    let asking = |place| Other {
        asks: true,
        ..silent(place)
    };
    let bound = Facts {
        protocol: Protocol::Pbft,
        others: vec![other(1), asking(2), away(3)],
        voting: Voting::SilentUntil {
            epoch: 7,
            view: View(1),
        },
        ..stands(facts(), 5)
    };
    let remedy = decide(&bound).remedy.expect("a remedy");
    assert!(
        remedy.contains("the others are no quorum: this one, validator 2 (00000002)")
            && remedy.contains("with pbft nothing replaces them"),
        "{remedy}"
    );
    let first = Facts {
        others: vec![other(1), other(2), other(3)],
        ..Facts {
            growth: facts().growth,
            ..bound
        }
    };
    let verdict = decide(&first);
    assert_eq!(verdict.state, Health::NotVoting);
    let remedy = verdict.remedy.expect("a remedy");
    assert!(
        remedy.contains("no more than 1 in all may lose their journals"),
        "{remedy}"
    );
}

#[test]
fn a_block_that_was_fetched_is_as_old_as_its_timestamp() {
    let old = Facts {
        block_ms: facts().now_ms - 12_000,
        ..facts()
    };
    let verdict = decide(&old);
    assert_eq!(verdict.state, Health::CatchingUp, "{}", verdict.summary);
    let told =
        "catching up: at height 8,101, and the blocks that come are old; newest block 12 s old";
    assert_eq!(verdict.summary, told);
    // On an idle chain blocks may be final after some others only.
    let idle = Facts {
        block_ms: facts().now_ms - 6_000,
        ..facts()
    };
    assert_eq!(decide(&idle).state, Health::Healthy);
    let halted = Facts {
        others: vec![other(1), away(2), away(3)],
        ..idle
    };
    assert_eq!(decide(&halted).state, Health::Halted);
    // By a clock that is wrong nothing is known.
    let wrong = Facts {
        clock_ahead_ms: Some(6_000),
        ..old
    };
    assert_eq!(decide(&wrong).state, Health::Healthy);
}

#[test]
fn those_that_start_too_late_to_count_as_whole_lead_to_the_operators_word() {
    let mut voter = three_seats_without_machines(false);
    for late in &mut voter.others[6..8] {
        late.linked = true;
        late.voter = Voter::Fresh;
        late.asks = true;
    }
    // Three ask, and seven are a quorum still.
    let remedy = decide(&voter).remedy.expect("a remedy");
    assert!(remedy.contains("bring back one of them with its journal: validator 9"));
    voter.others[8] = voter.others[7].clone();
    let remedy = decide(&voter).remedy.expect("a remedy");
    assert!(remedy.contains("all operators together follow OPERATING.md, \"More than f"));
    voter.protocol = Protocol::HotstuffChained;
    let remedy = decide(&voter).remedy.expect("a remedy");
    assert!(
        remedy.contains("with hotstuff-chained nothing replaces them")
            && !remedy.contains("operators"),
        "{remedy}"
    );
    voter.protocol = Protocol::Simplex;
    // One that votes has its answers, and would be one of those that ask otherwise.
    voter.asks = true;
    let remedy = decide(&voter).remedy.expect("a remedy");
    assert!(!remedy.contains("all operators together"), "{remedy}");
    let mut old = three_seats_without_machines(true);
    old.voting = Voting::Recovering {
        answers: 6,
        needed: 7,
        lost: 4,
        refused: false,
    };
    let remedy = decide(&old).remedy.expect("a remedy");
    assert!(remedy.contains("all operators together follow OPERATING.md"));
    assert!(remedy.contains("start these, too: validators 7 (00000007), 8"));
}

#[test]
fn a_halt_shows_once_a_block_is_late_and_too_few_vote() {
    let two_of_four = |others: Vec<Other>| Facts { others, ..facts() };
    let state = |facts: &Facts, ms: u64| {
        let mut facts = facts.clone();
        facts.growth.since_final = Duration::from_millis(ms);
        decide(&facts).state
    };
    // Links end at once.
    let away = two_of_four(vec![other(1), away(2), away(3)]);
    assert_eq!(state(&away, 1_400), Health::Healthy);
    assert_eq!(state(&away, 1_600), Health::Halted);
    // Their last votes are a moment old, and no reason to look elsewhere.
    let mut lately = stands(away.clone(), 2);
    for gone in &mut lately.others[1..] {
        gone.voter = Voter::Votes;
    }
    let remedy = decide(&lately).remedy.expect("a remedy");
    assert_eq!(
        remedy,
        "bring back one of them, or the links to them if they run: validators 2 (00000002), 3 (00000003)"
    );
    let silent = two_of_four(vec![other(1), silent(2), silent(3)]);
    assert_eq!(state(&silent, 1_600), Health::Healthy);
    assert_eq!(state(&silent, 2_100), Health::Halted);
    // This one would be the third, and asks for its votes first.
    let mut asks = two_of_four(vec![other(1), other(2), silent.others[2].clone()]);
    assert_eq!(state(&asks, 2_100), Health::Healthy);
    asks.asks = true;
    assert_eq!(state(&asks, 2_100), Health::Halted);
    // Who has just come may be about to vote.
    let mut fresh = silent;
    fresh.others[1].voter = Voter::Fresh;
    let remedy = decide(&stands(fresh, 3)).remedy.expect("a remedy");
    assert!(remedy.starts_with("look again in some seconds"), "{remedy}");
}

#[test]
fn a_wrong_clock_is_told_whatever_else_is_wrong() {
    let wrong = Facts {
        clock_ahead_ms: Some(-3_000),
        ..stands(facts(), 30)
    };
    let notes = decide(&wrong).notes.join("\n");
    assert!(
        notes.contains("this machine's clock is 3.0 s behind"),
        "{notes}"
    );
    // With one other alone it is not known whose it is.
    let mut differ = Facts {
        clock_ahead_ms: None,
        others: vec![away(1), away(2), other(3)],
        ..stands(facts(), 30)
    };
    differ.others[2].clock_ahead_ms = Some(-3_000);
    let notes = decide(&differ).notes.join("\n");
    assert!(
        notes.contains("of this machine and of validator 3 (00000003) differ"),
        "{notes}"
    );
}

#[test]
fn the_one_whose_clock_is_wrong_is_named_by_the_others() {
    let mut one = facts();
    one.others[1].clock_ahead_ms = Some(-30_000);
    assert_eq!(
        decide(&one).notes,
        [
            "the clock of validator 2 (00000002) is 30 s ahead of the others': tell its operator (NTP); \
             from 5 s on its blocks or its votes are lost"
        ]
    );
    // It says so itself, and not that all others are wrong.
    let mut own = facts();
    own.clock_ahead_ms = Some(-30_000);
    for other in &mut own.others {
        other.clock_ahead_ms = Some(-30_000);
    }
    let verdict = decide(&own);
    assert_eq!(verdict.state, Health::NotVoting);
    assert!(
        verdict
            .summary
            .contains("its clock is 30 s behind the others'"),
        "{}",
        verdict.summary
    );
    assert_eq!(
        verdict.remedy.as_deref(),
        Some("synchronise this machine's clock (NTP)")
    );
    assert_eq!(verdict.voters, 3);
    let named = verdict
        .notes
        .iter()
        .filter(|note| note.contains("the clock of"));
    assert_eq!(named.count(), 0, "{:?}", verdict.notes);
}

#[test]
fn who_takes_blocks_for_invalid_because_of_its_clock_does_not_count() {
    let mut one = facts();
    one.others[1].clock_ahead_ms = Some(30_000);
    one.others[1].voter = Voter::ClockBehind;
    let verdict = decide(&one);
    assert_eq!((verdict.state, verdict.voters), (Health::Healthy, 3));
    let notes = verdict.notes.join("\n");
    assert!(
        notes.contains("one more failure halts the chain"),
        "{notes}"
    );
    assert!(
        notes.contains("the clock of validator 2 (00000002) is 30 s behind"),
        "{notes}"
    );
}

#[test]
fn blocks_that_come_slowly_are_told_although_the_chain_goes_on() {
    let slow = Facts {
        growth: Growth {
            slow: Some(6 * SECOND),
            ..facts().growth
        },
        ..facts()
    };
    let verdict = decide(&slow);
    assert_eq!(verdict.state, Health::Healthy);
    assert_eq!(
        verdict.notes,
        ["blocks are slow: one in 6.0 s on average, 2.0 s at most is usual"]
    );
}
