//! Endpoints that are wrong, slow or contradictory: nothing of it becomes a reading, and each says why.

use crate::{
    MIN_STAKE, TIMEOUT,
    contract::Entry,
    count,
    endpoint::{Endpoint, Way, list},
    entry, entry_of, identity, reader,
};
use alloy_primitives::Address;
use quorate_crypto::Identity;
use quorate_registry::{MAX_ENTRIES, Reader, View};
use quorate_types::{ExternalEntry, Possession};
use serde_json::json;
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// How soon an operator sees what is wrong.
const SEEN_WITHIN: Duration = Duration::from_secs(2);

fn entries(count: u8) -> Vec<(Identity, ExternalEntry)> {
    (0..count).map(|number| entry(number, MIN_STAKE)).collect()
}

fn four() -> Vec<Entry> {
    list(&entries(4))
}

async fn several<const N: usize>() -> [Endpoint; N] {
    let mut all = Vec::new();
    for _ in 0..N {
        all.push(Endpoint::start(four()).await);
    }
    all.try_into().ok().unwrap()
}

fn read_by(endpoints: &[&Endpoint], agree: usize) -> Reader {
    let urls = endpoints.iter().map(|endpoint| endpoint.url.clone());
    reader(urls.collect(), agree, Address::repeat_byte(7))
}

/// Reads twice, so that what is said counts.
async fn twice(reader: &mut Reader) -> View {
    reader.read(1).await;
    reader.read(2).await.clone()
}

#[tokio::test]
async fn an_endpoint_that_misbehaves_changes_nothing_and_is_told_in_time() {
    let [endpoint, other] = several().await;
    other.lists(list(&entries(9)));
    let mut reader = read_by(&[&endpoint], 1);
    assert_eq!(count(&twice(&mut reader).await), Some(4));
    let nested = |field: &str, depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        Way::Says(format!("{{\"id\":1,\"{field}\":{open}{close}}}"))
    };
    let says = |text: &str| Way::Says(text.to_owned());
    let block = |number: &str, hash: &str| {
        Way::Answers(
            "eth_getBlockByNumber",
            json!({ "number": number, "hash": hash }),
        )
    };
    let answer = "no answer to a JSON-RPC request";
    let ways = [
        (Way::Stalls, "500 ms"),
        (Way::Closes, ""),
        (Way::Status(500), "HTTP 500"),
        (Way::Status(429), "HTTP 429"),
        (Way::Redirects(other.url.clone()), "HTTP 307"),
        (Way::Huge, "more than the 1048576 bytes"),
        (says(""), answer),
        (says("<html>"), answer),
        (says("null"), answer),
        (says("[]"), answer),
        (says("{}"), answer),
        (says("{\"id\":1}"), answer),
        (says("{\"id\":1,\"result\":\"0x7a69\"} x"), answer),
        (says("{\"id\":2,\"result\":\"0x7a69\"}"), answer),
        (
            says("{\"id\":1,\"result\":\"0x7a69\",\"result\":\"0x1\"}"),
            answer,
        ),
        (
            says("{\"id\":1,\"error\":{\"code\":-32000,\"message\":\"SECRET\"}}"),
            "error -32000",
        ),
        (
            says("{\"id\":null,\"error\":{\"code\":3,\"data\":{}}}"),
            "error 3",
        ),
        // Deeper than a parser's stack may be, and as wide as an answer may be.
        (nested("result", 100_000), answer),
        (nested("whatever", 100_000), answer),
        (
            says(&format!(
                "{{\"id\":1,\"result\":[{}0]}}",
                "0,".repeat(500_000)
            )),
            answer,
        ),
        (Way::Answers("eth_chainId", json!("0x1")), "serves chain 1"),
        (
            Way::Answers("eth_chainId", json!("0x10000000000000000")),
            answer,
        ),
        (
            Way::Answers("eth_getBlockByNumber", json!(null)),
            "no final block",
        ),
        (block("0x64", "0x00"), answer),
        (
            block("0x10000000000000000", &format!("0x{}", "00".repeat(32))),
            answer,
        ),
        (
            block("0x63", &format!("0x{}", "00".repeat(32))),
            "goes back",
        ),
    ];
    for (way, words) in ways {
        endpoint.now(way.clone());
        for _ in 0..2 {
            let started = Instant::now();
            let view = reader.read(3).await.clone();
            assert!(started.elapsed() < SEEN_WITHIN, "{words}");
            let trouble = view.trouble.clone().unwrap();
            assert!(trouble.contains(words), "{words}: {trouble}");
            assert!(!trouble.contains("SECRET"), "{trouble}");
            assert_eq!(view.sources[0].trouble.as_ref(), Some(&trouble));
            assert_eq!(
                (count(&view), view.read_at_ms),
                (Some(4), Some(2)),
                "{trouble}"
            );
        }
    }
    assert!(
        endpoint.sent.load(Ordering::Relaxed) < 32 << 20,
        "it was read on and on"
    );
    endpoint.now(Way::Honest);
    let view = reader.read(5).await;
    assert_eq!((view.trouble.clone(), view.read_at_ms), (None, Some(5)));
}

/// Of a block that has not been read yet, since known ones are not asked for again.
#[tokio::test]
async fn a_list_that_is_none_changes_nothing() {
    let [endpoint] = several().await;
    let mut reader = read_by(&[&endpoint], 1);
    assert_eq!(count(&twice(&mut reader).await), Some(4));
    let word = |number: u64| format!("{number:064x}");
    let data = |words: &[String]| json!(format!("0x{}", words.concat()));
    let huge = format!("0x{}", "f".repeat(64));
    // As many entries as are asked for, all of which point to the same place, which is no entry.
    let mut same = vec![word(32), word(4)];
    same.extend((0..4).map(|_| word(128)));
    // One text of half a megabyte, as the keys and texts of each entry.
    let mut fat = vec![word(32), word(4)];
    fat.extend((0..4).map(|_| word(128)));
    fat.extend([word(1), word(100), word(1)]);
    fat.extend((0..4).map(|_| word(224)));
    fat.push(word(400_000));
    fat.push("00".repeat(400_000));
    // A count that is none, or too large; then pages where the count is right.
    let none = "no list of a staking contract";
    let call = |result| Way::Answers("eth_call", result);
    let ways = [
        (call(json!("0x")), none),
        (call(json!("0x00")), none),
        (call(json!("0xzz")), "no answer to"),
        (call(json!(7)), "no answer to"),
        (call(json!(null)), "no answer to"),
        (call(json!(huge)), "at most 1024"),
        (call(data(&[word(MAX_ENTRIES as u64 + 1)])), "at most 1024"),
        (call(data(&[word(4), word(4)])), none),
        (Way::Page(json!("0x")), none),
        (Way::Page(data(&[word(4)])), none),
        (Way::Page(data(&[word(32), word(0)])), none),
        (Way::Page(data(&[word(32), word(u64::MAX)])), none),
        (Way::Page(data(&[word(u64::MAX), word(4)])), none),
        (Way::Page(data(&same)), none),
        (Way::Page(data(&fat)), none),
    ];
    for (way, words) in ways {
        endpoint.next(four());
        endpoint.now(way.clone());
        for _ in 0..2 {
            let started = Instant::now();
            let view = reader.read(3).await.clone();
            assert!(started.elapsed() < SEEN_WITHIN, "{words}");
            let trouble = view.trouble.clone().unwrap();
            assert!(trouble.contains(words), "{words}: {trouble}");
            assert_eq!((count(&view), view.block), (Some(4), Some(100)));
        }
    }
    endpoint.now(Way::Honest);
    // Keys of other lengths than 96 and 48 bytes, texts that are too long, an identity twice.
    let spoilt: [fn(&mut Vec<Entry>); 5] = [
        |list| list[1].voteKey = vec![0; 95].into(),
        |list| list[1].possession = vec![0; 49].into(),
        |list| list[1].validatorAddress = "h".repeat(47) + ":1",
        |list| list[1].name = "n".repeat(25),
        |list| list[1].identity = list[2].identity,
    ];
    for spoil in spoilt {
        let mut list = four();
        spoil(&mut list);
        endpoint.next(list);
        for _ in 0..2 {
            let view = reader.read(4).await.clone();
            assert!(view.trouble.is_some());
            assert_eq!((count(&view), view.block), (Some(4), Some(100)));
        }
    }
    endpoint.next(four());
    assert_eq!(twice(&mut reader).await.trouble, None);
}

#[tokio::test]
async fn of_three_one_lies_and_one_stalls_and_the_last_good_set_stays() {
    let [a, b, c] = several().await;
    let mut reader = read_by(&[&a, &b, &c], 2);
    let view = twice(&mut reader).await;
    assert_eq!(
        (count(&view), view.block, view.trouble),
        (Some(4), Some(100), None)
    );
    assert!(
        view.sources
            .iter()
            .all(|one| one.block == Some(100) && one.trouble.is_none())
    );
    // The chain goes on; one lies about the new block, and one stalls.
    for endpoint in [&a, &b, &c] {
        endpoint.next(list(&entries(5)));
    }
    b.lists(list(&entries(9)));
    c.now(Way::Stalls);
    for _ in 0..3 {
        let started = Instant::now();
        let view = reader.read(3).await.clone();
        assert!(started.elapsed() < SEEN_WITHIN);
        assert_eq!((count(&view), view.block), (Some(4), Some(100)));
        let trouble = view.trouble.unwrap();
        assert!(
            trouble.contains("2 of 3 sources must say the same; 2 can be read"),
            "{trouble}"
        );
        assert!(view.sources[2].trouble.as_ref().unwrap().contains("500 ms"));
        assert_eq!(view.sources[1].block, Some(101));
    }
    // It stalls later: it has named its block.
    c.now(Way::StallsAt("eth_call"));
    let started = Instant::now();
    let view = reader.read(3).await.clone();
    assert!(started.elapsed() < SEEN_WITHIN);
    assert_eq!(count(&view), Some(4));
    assert_eq!(view.sources[2].block, Some(101));
    // It is back: two agree, and the liar is named.
    c.now(Way::Honest);
    let view = twice(&mut reader).await;
    assert_eq!(
        (count(&view), view.block, view.trouble),
        (Some(5), Some(101), None)
    );
    let told = view.sources[1].trouble.clone().unwrap();
    assert!(told.contains("it lists 9 validators, they 5"), "{told}");
    // With the liar alone nothing changes either, and it is still seen that it can be read.
    a.now(Way::Closes);
    c.now(Way::Status(503));
    let view = twice(&mut reader).await;
    assert_eq!((count(&view), view.block), (Some(5), Some(101)));
    assert!(view.trouble.unwrap().contains("1 can be read"));
}

#[tokio::test]
async fn endpoints_at_different_final_blocks_are_compared_at_one() {
    let [a, b, c] = several().await;
    let mut reader = read_by(&[&a, &b, &c], 2);
    twice(&mut reader).await;
    let five = list(&entries(5));
    // One knows two final blocks more than the others, and one of those one more.
    for endpoint in [&a, &b, &c] {
        let mut state = endpoint.state.lock().unwrap();
        state.lists.insert(101, five.clone());
        state.lists.insert(102, list(&entries(6)));
    }
    a.state.lock().unwrap().finalized = 102;
    b.state.lock().unwrap().finalized = 101;
    let view = twice(&mut reader).await;
    assert_eq!(
        (count(&view), view.block, view.trouble),
        (Some(5), Some(101), None)
    );
    // The third one is on its way there, which is no trouble; far behind it is one.
    assert_eq!(
        (view.sources[2].block, &view.sources[2].trouble),
        (Some(100), &None)
    );
    for endpoint in [&a, &b] {
        endpoint.state.lock().unwrap().finalized = 165;
    }
    let view = twice(&mut reader).await;
    assert_eq!(
        (count(&view), view.block, view.trouble),
        (Some(6), Some(165), None)
    );
    let told = view.sources[2].trouble.clone().unwrap();
    assert!(told.contains("is behind: block 100"), "{told}");
    // One that names a block that nobody else has decides nothing, and the block that is read does not go back to what
    // only those behind have.
    a.state.lock().unwrap().finalized = u64::MAX;
    let view = twice(&mut reader).await;
    assert_eq!((view.block, view.trouble), (Some(165), None));
    b.now(Way::Stalls);
    let view = reader.read(3).await.clone();
    assert_eq!(view.block, Some(165));
    assert!(view.trouble.unwrap().contains("2 of 3 sources"));
}

/// Whoever claims a block that nobody has must not raise the block that is read above what the honest ones have reached.
#[tokio::test]
async fn a_liar_that_claims_newer_blocks_does_not_keep_the_others_from_agreeing() {
    for way in [Way::Honest, Way::StallsAt("eth_call"), Way::Closes] {
        let [liar, a, b] = several().await;
        let mut reader = read_by(&[&liar, &a, &b], 2);
        twice(&mut reader).await;
        {
            let mut state = liar.state.lock().unwrap();
            state.finalized = u64::MAX;
            state.lists = [(0, list(&entries(9)))].into();
        }
        // The honest ones are never at the same block.
        for round in 0..3_u8 {
            let now = 101 + 2 * u64::from(round);
            for (endpoint, ahead) in [(&a, 0), (&b, 1)] {
                let mut state = endpoint.state.lock().unwrap();
                state.finalized = now + ahead;
                state.lists.insert(now, list(&entries(5 + round)));
                state.lists.insert(now + 1, list(&entries(20)));
            }
            liar.now(way.clone());
            let started = Instant::now();
            let view = twice(&mut reader).await;
            assert!(started.elapsed() < 2 * SEEN_WITHIN);
            assert_eq!(
                (view.trouble.clone(), view.block),
                (None, Some(now)),
                "{way:?}"
            );
            assert_eq!(count(&view), Some(5 + usize::from(round)));
            assert!(view.sources[0].trouble.is_some());
        }
    }
}

#[tokio::test]
async fn an_endpoint_that_goes_back_does_not_count_until_it_is_there_again() {
    let [a, b, c] = several().await;
    let mut reader = read_by(&[&a, &b, &c], 2);
    twice(&mut reader).await;
    a.state.lock().unwrap().finalized = 60;
    for _ in 0..3 {
        let view = reader.read(3).await.clone();
        assert_eq!((count(&view), view.trouble), (Some(4), None));
        let told = view.sources[0].trouble.clone().unwrap();
        assert!(
            told.contains("goes back: block 60") && told.contains("was 100"),
            "{told}"
        );
        assert_eq!(view.sources[0].block, Some(60));
    }
    // All of them: whoever feeds this validator an old state gets nowhere.
    for endpoint in [&b, &c] {
        endpoint.state.lock().unwrap().finalized = 60;
        endpoint.lists(list(&entries(9)));
    }
    for _ in 0..3 {
        let view = reader.read(3).await.clone();
        assert_eq!((count(&view), view.block), (Some(4), Some(100)));
        assert!(view.trouble.is_some());
    }
    for endpoint in [&a, &b, &c] {
        endpoint.state.lock().unwrap().finalized = 101;
        endpoint.lists(four());
    }
    let view = twice(&mut reader).await;
    assert_eq!((view.block, view.trouble), (Some(101), None));
    assert!(view.sources.iter().all(|one| one.trouble.is_none()));
}

#[tokio::test]
async fn an_endpoint_that_contradicts_itself_is_named_and_a_known_block_is_not_asked_again() {
    let [a, b] = several().await;
    let mut reader = read_by(&[&a, &b], 2);
    twice(&mut reader).await;
    let asked = a.calls("eth_call");
    assert_eq!(asked, 4, "twice, its size and one page");
    reader.read(3).await;
    assert_eq!(a.calls("eth_call"), asked);
    // Something else about the same block, at the second reading of it.
    for endpoint in [&a, &b] {
        endpoint.next(list(&entries(5)));
    }
    reader.read(4).await;
    b.lists(list(&entries(6)));
    let view = reader.read(5).await.clone();
    assert_eq!((count(&view), view.block), (Some(4), Some(100)));
    let told = view.sources[1].trouble.clone().unwrap();
    assert!(told.contains("something else about block 101"), "{told}");
    assert!(view.trouble.unwrap().contains("2 of 2"));
    // Another block of the same number is another chain.
    b.lists(list(&entries(5)));
    b.state.lock().unwrap().fork = 1;
    let view = twice(&mut reader).await;
    assert_eq!((count(&view), view.block), (Some(4), Some(100)));
    assert!(view.trouble.is_some());
    b.state.lock().unwrap().fork = 0;
    for _ in 0..2 {
        reader.read(6).await;
    }
    let view = reader.read(7).await.clone();
    assert_eq!(
        (count(&view), view.block, view.trouble),
        (Some(5), Some(101), None)
    );
}

/// Its every block has another list; each is read twice.
#[tokio::test]
async fn a_contract_that_changes_more_often_than_it_is_read_is_followed() {
    let [endpoint] = several().await;
    let mut reader = read_by(&[&endpoint], 1);
    twice(&mut reader).await;
    for round in 0..4_u8 {
        endpoint.next(list(&entries(5 + round)));
        assert_ne!(count(reader.read(3).await), Some(5 + usize::from(round)));
        // What is confirmed is the block of before, although there is a newer one.
        endpoint.next(list(&entries(20)));
        let view = reader.read(4).await.clone();
        assert_eq!(
            (count(&view), view.trouble),
            (Some(5 + usize::from(round)), None)
        );
        assert_eq!(view.block, Some(101 + 2 * u64::from(round)));
    }
}

#[tokio::test]
async fn nonsense_that_somebody_bonds_is_left_out_and_spoils_nothing() {
    let [endpoint] = several().await;
    let mut reader = read_by(&[&endpoint], 1);
    twice(&mut reader).await;
    let (thief, forger) = (identity(20), identity(21));
    let mut bonds = entries(4);
    // The first validator's key with its proof, which is for another identity, before the validator's own bond.
    let (_, first) = bonds[0].clone();
    bonds.insert(0, (thief, first));
    let proofless = ExternalEntry {
        possession: Possession([0xc0; 48]),
        ..entry_of(&forger, 21, MIN_STAKE)
    };
    bonds.push((forger, proofless));
    // A key that its owner has bonded for two identities: the first of them has it, whichever is listed first.
    let again = identity(22);
    bonds.push((again, entry_of(&again, 3, 9 * MIN_STAKE)));
    // Identities that nobody is.
    for nobody in [Identity([0; 32]), quorate_types::REGISTRY] {
        bonds.push((nobody, entry_of(&nobody, 23, MIN_STAKE)));
    }
    let mut bonded = list(&bonds);
    for (number, address, name) in [(24, "nowhere", ""), (25, "host:1", "\u{1b}[2J")] {
        let mut one = list(&[entry(number, MIN_STAKE)]).remove(0);
        (one.validatorAddress, one.name) = (address.to_owned(), name.to_owned());
        one.keySerial = u64::from(number);
        bonded.push(one);
    }
    // Nor does one with little stake, whatever it says.
    bonded.extend(list(&[entry(26, MIN_STAKE - 1)]));
    bonded.reverse();
    endpoint.next(bonded.clone());
    let view = twice(&mut reader).await;
    assert_eq!((view.trouble.clone(), view.block), (None, Some(101)));
    let reading = view.reading.unwrap();
    assert_eq!(reading.entries, entries(4).into_iter().collect());
    assert_eq!(view.sources[0].entries, Some(12));
    let left_out = |identity: &Identity| reading.left_out[identity].to_string();
    assert!(left_out(&thief).contains("proof of possession"));
    assert!(left_out(&forger).contains("proof of possession"));
    assert!(left_out(&again).contains("same vote key"));
    assert!(left_out(&Identity([0; 32])).contains("no validator's identity"));
    assert!(left_out(&quorate_types::REGISTRY).contains("no validator's identity"));
    assert!(left_out(&identity(24)).contains("host:port"));
    assert!(left_out(&identity(25)).contains("printable ASCII"));
    assert_eq!(reading.left_out.len(), 7);
    // The older bond goes, and the key is free.
    let without = |entry: &Entry| entry.identity.0 != identity(3).0;
    endpoint.next(bonded.into_iter().filter(without).collect());
    let reading = twice(&mut reader).await.reading.unwrap();
    assert!(reading.entries.contains_key(&again) && !reading.entries.contains_key(&identity(3)));
    // Nonsense alone does not remove everybody.
    endpoint.next(list(&[(thief, entry(1, MIN_STAKE).1)]));
    let view = twice(&mut reader).await;
    assert_eq!(count(&view), Some(4));
    assert!(view.trouble.unwrap().contains("fewer than 4"));
}

/// As many bad proofs as fit into the contract: they are checked once, not at each reading.
#[tokio::test]
async fn a_list_full_of_bad_proofs_costs_its_checks_once() {
    let [endpoint] = several().await;
    let mut all = four();
    let (_, template) = entry(9, MIN_STAKE);
    for number in 4..MAX_ENTRIES as u64 {
        let mut identity = [7; 32];
        identity[..8].copy_from_slice(&number.to_be_bytes());
        let mut one = list(&[(Identity(identity), template.clone())]).remove(0);
        one.keySerial = 1_000 + number;
        all.push(one);
    }
    endpoint.lists(all.clone());
    let mut reader = read_by(&[&endpoint], 1);
    let started = Instant::now();
    let view = twice(&mut reader).await;
    let first = started.elapsed();
    assert_eq!((count(&view), view.trouble), (Some(4), None));
    assert_eq!(view.reading.unwrap().left_out.len(), MAX_ENTRIES - 4);
    // Another list with the same proofs.
    all[0].stake += 1;
    endpoint.next(all);
    let started = Instant::now();
    let view = twice(&mut reader).await;
    let later = started.elapsed();
    assert_eq!(view.block, Some(101));
    println!("1,020 bad proofs: {first:?}, then {later:?}");
    assert!(
        later < first / 2 && later < 2 * TIMEOUT,
        "{first:?}, then {later:?}"
    );
}
