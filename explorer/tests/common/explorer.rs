//! Runs an explorer in the test's process.

use super::{TestChain, fake::Fake};
use quorate_explorer::{Config, Explorer, client::ExplorerClient};
use quorate_http::client::Roots;
use quorate_types::genesis::{Genesis, Trust};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, task::JoinHandle};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running explorer with an index in a folder.
pub struct Running {
    pub url: String,
    pub client: ExplorerClient,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    pub async fn start(trust: &Trust, folder: &Path, upstreams: &[String]) -> Self {
        Self::start_with(trust, folder, upstreams, 1_024).await
    }

    pub async fn start_with(
        trust: &Trust,
        folder: &Path,
        upstreams: &[String],
        max_streams: usize,
    ) -> Self {
        Self::start_checking(trust, None, folder, upstreams, max_streams).await
    }

    /// One that executes a test chain's blocks.
    pub async fn checking(chain: &Arc<Mutex<TestChain>>, folder: &Path, fake: &Arc<Fake>) -> Self {
        let (trust, genesis) = {
            let chain = chain.lock().unwrap();
            (chain.trust.clone(), chain.genesis.clone())
        };
        Self::start_checking(&trust, genesis, folder, &[fake.serve().await], 64).await
    }

    pub async fn start_checking(
        trust: &Trust,
        genesis: Option<Genesis>,
        folder: &Path,
        upstreams: &[String],
        max_streams: usize,
    ) -> Self {
        let config = Config {
            trust: trust.clone(),
            genesis,
            upstreams: upstreams.to_vec(),
            listen: "127.0.0.1:0".parse().unwrap(),
            data: PathBuf::from(folder),
            max_connections: 2_048,
            max_streams,
            roots: Roots::default(),
            hosts: Vec::new(),
            cors_origins: vec!["https://scripts.example".to_owned()],
            trusted_proxies: Vec::new(),
        };
        // An explorer that has just been stopped may hold its index a little longer.
        let deadline = Instant::now() + PATIENCE;
        let explorer = loop {
            match Explorer::open(config.clone()).await {
                Ok(explorer) => break explorer,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let url = format!("http://{}", explorer.address().unwrap());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            explorer.run(stopped).await.unwrap();
        });
        Self {
            client: ExplorerClient::new(&url).unwrap(),
            url,
            stop,
            task,
        }
    }

    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap();
    }

    /// The newest height that it shows; 0 if none.
    pub async fn height(&self) -> u64 {
        let status = self.client.status().await.unwrap();
        status.tip.map_or(0, |tip| tip.height.0)
    }

    pub async fn reach(&self, height: u64) {
        self.until(&format!("height {height}"), async |this| {
            this.height().await >= height
        })
        .await;
    }

    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self).await {
            let status = self.client.status().await;
            assert!(Instant::now() < deadline, "{what}: never; {status:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn state_of(&self, url: &str) -> String {
        let status = self.client.status().await.unwrap();
        let found = status.upstreams.into_iter().find(|up| up.url == url);
        found.map_or(String::new(), |found| found.state)
    }

    pub async fn get(&self, path: &str) -> reqwest::Response {
        reqwest::get(format!("{}{path}", self.url)).await.unwrap()
    }

    pub async fn json(&self, path: &str) -> serde_json::Value {
        let response = self.get(path).await;
        let status = response.status();
        let text = response.text().await.unwrap();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {status} {text}"))
    }
}
