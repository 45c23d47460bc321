//! A client that writes down what it was promised.

use quorate_api::{RpcClient, SubmitRequest, TransactionState, to_hex};
use quorate_crypto::SecretKey;
use quorate_types::{ChainId, Digest, Height, Memo, Transaction, Transfer};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinHandle};

/// How long a validator may take to answer; some are dead.
const ANSWER: Duration = Duration::from_secs(2);

/// One transfer after the other from each of these accounts, to any validator, again until somebody
/// answers. Ends when told so; gives back what was accepted.
pub struct Promises {
    stop: watch::Sender<bool>,
    clients: Vec<JoinHandle<Vec<Digest>>>,
}

impl Promises {
    pub fn start(urls: &[String], chain: ChainId, accounts: Vec<SecretKey>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let clients = (0..).zip(accounts).map(|(seed, secret)| {
            let urls = urls.to_vec();
            tokio::spawn(drive(seed, urls, chain, secret, stopped.clone()))
        });
        Self {
            clients: clients.collect(),
            stop,
        }
    }

    /// The ids of all transfers that were accepted.
    pub async fn stop(self) -> Vec<Digest> {
        self.stop.send(true).unwrap();
        let mut accepted = Vec::new();
        for client in self.clients {
            accepted.extend(client.await.unwrap());
        }
        accepted
    }
}

async fn drive(
    seed: u64,
    urls: Vec<String>,
    chain: ChainId,
    secret: SecretKey,
    stopped: watch::Receiver<bool>,
) -> Vec<Digest> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let clients: Vec<RpcClient> = urls
        .iter()
        .map(|url| RpcClient::new(url).unwrap())
        .collect();
    let mut accepted = Vec::new();
    let mut nonce = 0;
    while !*stopped.borrow() {
        let transaction = transfer(&chain, &secret, nonce, 1, 1);
        let request = SubmitRequest {
            hex: vec![to_hex(&transaction)],
            ..SubmitRequest::default()
        };
        let client = &clients[rng.random_range(0..clients.len())];
        let answer = tokio::time::timeout(ANSWER, client.submit(&request)).await;
        let Ok(Ok(answer)) = answer else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let result = &answer.results[0];
        let code = result.error.as_ref().map(|error| error.code.as_str());
        match (result.state, code) {
            (TransactionState::Pending | TransactionState::Finalized, _) => {
                accepted.push(transaction.id());
                nonce += 1;
            }
            // Somebody took it in and did not say so any more.
            (_, Some("stale_nonce")) => nonce += 1,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    accepted
}

pub fn transfer(
    chain: &ChainId,
    secret: &SecretKey,
    nonce: u64,
    amount: u64,
    fee: u64,
) -> Transaction {
    let transfer = Transfer {
        chain_tag: chain.tag(),
        sender: secret.identity(),
        nonce,
        to: secret.identity(),
        amount,
        fee,
        memo: Memo::NONE,
    };
    transfer.sign(chain, secret)
}

/// Waits until every validator says of each of these that it is final and applied, all in the same
/// place.
pub async fn all_are_applied(urls: &[String], ids: &[Digest], patience: Duration) {
    let deadline = Instant::now() + patience;
    let ids: Arc<[Digest]> = ids.into();
    let validators = urls.iter().map(|url| {
        let (client, ids) = (RpcClient::new(url).unwrap(), ids.clone());
        tokio::spawn(async move {
            let mut places = Vec::with_capacity(ids.len());
            for id in ids.iter() {
                places.push(applied_at(&client, id, deadline).await);
            }
            places
        })
    });
    let validators: Vec<_> = validators.collect();
    let mut places = Vec::new();
    for validator in validators {
        places.push(validator.await.unwrap());
    }
    places.dedup();
    assert_eq!(places.len(), 1, "validators say different places");
}

/// Where a transfer was applied, as soon as a validator says so.
async fn applied_at(
    client: &RpcClient,
    id: &Digest,
    deadline: Instant,
) -> (Option<Height>, Option<u32>) {
    loop {
        let answer = client.transaction(id, Duration::from_secs(2)).await;
        let url = client.url();
        match answer {
            Ok(result) if result.state == TransactionState::Finalized => {
                assert_eq!(result.outcome.as_deref(), Some("applied"), "{url}: {id}");
                return (result.height, result.index);
            }
            other => assert!(Instant::now() < deadline, "{url} says {other:?} of {id}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
