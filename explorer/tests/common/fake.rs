//! A fake validator's HTTP interface over a chain in memory, honest or not.

use super::{TestBlock, TestChain};
use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use commonware_codec::Encode;
use quorate_types::{Certificate, Identity};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::net::TcpListener;

fn hex(value: &impl Encode) -> String {
    hex::encode(value.encode())
}

/// Modifies the range of blocks that an upstream returns.
pub type Lie = Box<dyn Fn(&mut Vec<TestBlock>) + Send + Sync>;

pub struct Fake {
    pub chain: Arc<Mutex<TestChain>>,
    /// The newest height that it shows.
    pub shows: AtomicUsize,
    /// The oldest height that it keeps.
    pub keeps: AtomicUsize,
    /// If set, returned instead of blocks.
    pub garbage: Mutex<Option<Vec<u8>>>,
    pub lie: Mutex<Option<Lie>>,
    pub asked: AtomicUsize,
    /// Accepts requests for blocks and accounts, but never answers.
    pub hangs: AtomicBool,
    /// Number of requests waiting for an answer that never comes.
    pub hanging: Arc<AtomicUsize>,
    /// The height that it claims to have executed.
    pub claims: AtomicU64,
    /// Number of blocks that it prunes each time it reports its oldest one.
    pub prunes: AtomicUsize,
    certificates: Mutex<Vec<(Certificate, Option<&'static str>)>>,
    pub evidence: Mutex<Vec<String>>,
    pub submitted: Mutex<Vec<String>>,
    /// What it reports about transactions, by id.
    pub transactions: Mutex<HashMap<String, Value>>,
}

impl Fake {
    /// An honest upstream with all blocks of a chain.
    pub fn new(chain: &Arc<Mutex<TestChain>>) -> Arc<Self> {
        Arc::new(Self {
            chain: chain.clone(),
            shows: AtomicUsize::new(usize::MAX),
            keeps: AtomicUsize::new(1),
            garbage: Mutex::default(),
            lie: Mutex::default(),
            asked: AtomicUsize::new(0),
            hangs: AtomicBool::new(false),
            hanging: Arc::default(),
            claims: AtomicU64::new(0),
            prunes: AtomicUsize::new(0),
            certificates: Mutex::default(),
            evidence: Mutex::default(),
            submitted: Mutex::default(),
            transactions: Mutex::default(),
        })
    }

    /// An upstream that modifies its answers.
    pub fn liar(chain: &Arc<Mutex<TestChain>>, lie: Lie) -> Arc<Self> {
        let fake = Self::new(chain);
        *fake.lie.lock().unwrap() = Some(lie);
        fake
    }

    /// Adds a certificate that it reports.
    pub fn hear(&self, certificate: Certificate, reason: Option<&'static str>) {
        self.certificates
            .lock()
            .unwrap()
            .push((certificate, reason));
    }

    /// Serves until the test ends. Returns the URL.
    pub async fn serve(self: &Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/v1/chain", get(chain))
            .route("/v1/status", get(status))
            .route("/v1/certificates", get(certificates))
            .route("/v1/evidence", get(evidence))
            .route("/v1/handovers", get(handovers))
            .route("/v1/peers", get(peers))
            .route("/v1/accounts/{identity}", get(account))
            .route("/v1/transactions/{id}", get(transaction))
            .route("/v1/transactions", post(submit))
            .with_state(self.clone());
        tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        url
    }

    /// Never returns if this upstream hangs.
    async fn hang(&self) {
        struct Hanging(Arc<AtomicUsize>);
        impl Drop for Hanging {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        if self.hangs.load(Ordering::SeqCst) {
            self.hanging.fetch_add(1, Ordering::SeqCst);
            let _hanging = Hanging(self.hanging.clone());
            std::future::pending::<()>().await;
        }
    }

    fn claimed(&self) -> u64 {
        match self.claims.load(Ordering::SeqCst) {
            0 => self.newest() as u64,
            claimed => claimed,
        }
    }

    fn newest(&self) -> usize {
        let all = self.chain.lock().unwrap().blocks.len();
        all.min(self.shows.load(Ordering::Relaxed))
    }

    fn range(&self, from: usize, limit: usize) -> Vec<TestBlock> {
        let newest = self.newest();
        let chain = self.chain.lock().unwrap();
        let first = from.max(1) - 1;
        let last = newest.min(first + limit);
        let mut range = chain.blocks.get(first..last).unwrap_or_default().to_vec();
        while range
            .last()
            .is_some_and(|block| block.certificate.is_none())
        {
            range.pop();
        }
        range
    }
}

type Params = Query<HashMap<String, u64>>;

async fn chain(State(fake): State<Arc<Fake>>, Query(query): Params) -> Response {
    fake.asked.fetch_add(1, Ordering::Relaxed);
    fake.hang().await;
    if let Some(garbage) = fake.garbage.lock().unwrap().clone() {
        return garbage.into_response();
    }
    let from = query["from"] as usize;
    if from < fake.keeps.load(Ordering::Relaxed) {
        let error = json!({"error": {"code": "pruned", "message": "no longer kept"}});
        return (StatusCode::GONE, Json(error)).into_response();
    }
    let wait = Duration::from_millis(query["wait_ms"].min(200));
    let mut range = fake.range(from, 100);
    if range.is_empty() {
        tokio::time::sleep(wait).await;
        range = fake.range(from, 100);
    }
    if let Some(lie) = &*fake.lie.lock().unwrap() {
        lie(&mut range);
    }
    let blocks: Vec<Value> = range
        .iter()
        .map(|item| {
            let outcomes: Vec<_> = item.outcomes.iter().map(|o| o.name()).collect();
            json!({"block": hex(&item.block), "outcomes": outcomes,
                   "certificate": item.certificate.as_ref().map(hex)})
        })
        .collect();
    Json(json!({"executed_height": fake.claimed(), "first_height": 1, "blocks": blocks}))
        .into_response()
}

async fn status(State(fake): State<Arc<Fake>>) -> Json<Value> {
    let prunes = fake.prunes.load(Ordering::SeqCst);
    Json(
        json!({"first_height": fake.keeps.fetch_add(prunes, Ordering::Relaxed),
                "executed_height": fake.claimed(),
                "blocked": [{"validator": 3, "identity": "", "reason": "equivocation"}]}),
    )
}

async fn certificates(State(fake): State<Arc<Fake>>, Query(query): Params) -> Json<Value> {
    let all = fake.certificates.lock().unwrap().clone();
    let after = query
        .get("after")
        .map_or(usize::MAX, |after| *after as usize);
    if after >= all.len() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let items: Vec<Value> = (1..)
        .zip(&all)
        .skip(after)
        .map(|(number, (certificate, reason))| {
            json!({"number": number, "certificate": hex(certificate), "reason": reason})
        })
        .collect();
    Json(json!({"session": 1, "newest": all.len(), "certificates": items}))
}

async fn evidence(State(fake): State<Arc<Fake>>) -> Json<Value> {
    let held = fake.evidence.lock().unwrap().clone();
    let held: Vec<Value> = held.iter().map(|hex| json!({"hex": hex})).collect();
    Json(json!({"evidence": held}))
}

async fn handovers(State(fake): State<Arc<Fake>>, Query(query): Params) -> Json<Value> {
    let after = query.get("after").copied().unwrap_or(0);
    let chain = fake.chain.lock().unwrap();
    let later = chain.handovers().iter();
    let later = later.filter(|one| one.set.epoch.0 > after);
    let items: Vec<Value> = later
        .map(|one| json!({"epoch": one.set.epoch, "handover": hex(one)}))
        .collect();
    Json(json!({"epoch": 0, "handovers": items}))
}

async fn peers() -> Json<Value> {
    Json(json!({"peers": [{"validator": 1, "last_vote": [0, 9]}, {"validator": 99}]}))
}

async fn account(State(fake): State<Arc<Fake>>, Path(identity): Path<Identity>) -> Json<Value> {
    fake.hang().await;
    let chain = fake.chain.lock().unwrap();
    let anchor = chain.blocks.iter().rev();
    let anchor = anchor
        .clone()
        .find(|block| block.certificate.is_some())
        .unwrap();
    let proof = json!({
        "proof": hex(&chain.prove(&identity)),
        "header": hex(anchor.block.header()),
        "certificate": anchor.certificate.as_ref().map(hex),
    });
    Json(json!({"proof": proof}))
}

async fn submit(State(fake): State<Arc<Fake>>, Json(body): Json<Value>) -> Json<Value> {
    let hex: Vec<String> = serde_json::from_value(body["hex"].clone()).unwrap();
    let results: Vec<Value> = hex
        .iter()
        .map(|_| json!({"id": "", "state": "pending"}))
        .collect();
    fake.submitted.lock().unwrap().extend(hex);
    Json(json!({"results": results}))
}

async fn transaction(State(fake): State<Arc<Fake>>, Path(id): Path<String>) -> Response {
    if let Some(told) = fake.transactions.lock().unwrap().get(&id) {
        return Json(told.clone()).into_response();
    }
    let error = json!({"error": {"code": "unknown_transaction", "message": "no"}});
    (StatusCode::NOT_FOUND, Json(error)).into_response()
}
