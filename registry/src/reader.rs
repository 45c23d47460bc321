//! Reading all sources of a validator, and what is kept of it.

use crate::{
    evm::{Evm, List},
    reading::{Reading, Terms},
    source::{Source, SourceConfig, SourceError},
};
use futures_util::future::join_all;
use quorate_crypto::Digest;
use std::{collections::BTreeMap, sync::Arc};

/// After so many new readings in a row, a source is said to flap.
const FLAPS: u32 = 3;

/// What is known of a registry outside the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The last reading that was good, and that enough sources agreed on.
    pub reading: Option<Arc<Reading>>,
    /// When it was last confirmed, in milliseconds since 1970.
    pub read_at_ms: Option<u64>,
    /// The block of the contract's chain at which it was confirmed.
    pub block: Option<u64>,
    /// Why the newest attempt did not confirm it or bring another.
    pub trouble: Option<String>,
    pub sources: Vec<SourceView>,
}

/// What is known of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceView {
    /// Its path or URL; of an endpoint of JSON-RPC without the path, which is often a key.
    pub name: String,
    /// The newest final block of an endpoint.
    pub block: Option<u64>,
    /// When it was last good, in milliseconds since 1970.
    pub last_good_ms: Option<u64>,
    /// How many entries it had then.
    pub entries: Option<usize>,
    /// Why its newest words are not good.
    pub trouble: Option<String>,
}

/// Reads the sources of a validator.
pub struct Reader {
    terms: Terms,
    agree: usize,
    sources: Sources,
    /// What was agreed on once, and counts if it is again.
    candidate: Option<Digest>,
    /// New readings in a row.
    changes: u32,
    view: View,
}

enum Sources {
    /// Each is read on its own.
    Apart(Vec<Source>),
    /// All are read at one block.
    Evm(Box<Evm>),
}

/// What a source says. It becomes a reading if enough others say the same.
#[derive(Clone)]
enum Said {
    Reading(Arc<Reading>),
    List(Arc<List>),
}

impl Said {
    fn digest(&self) -> Digest {
        match self {
            Self::Reading(reading) => reading.digest,
            Self::List(list) => list.digest,
        }
    }

    fn entries(&self) -> usize {
        match self {
            Self::Reading(reading) => reading.entries.len(),
            Self::List(list) => list.listed.len(),
        }
    }
}

impl Sources {
    fn names(&self) -> Vec<String> {
        match self {
            Self::Apart(sources) => sources.iter().map(|source| source.name.clone()).collect(),
            Self::Evm(evm) => evm.names().collect(),
        }
    }

    /// What each of them says, if it has to say something, with its newest block.
    async fn read(
        &mut self,
        terms: &Terms,
    ) -> Vec<(Option<u64>, Result<Option<Said>, SourceError>)> {
        match self {
            Self::Apart(sources) => {
                let readings = sources.iter_mut().map(|source| source.read(terms));
                let readings = join_all(readings).await.into_iter();
                let said = |reading: Arc<Reading>| Some(Said::Reading(reading));
                readings.map(|reading| (None, reading.map(said))).collect()
            }
            Self::Evm(evm) => {
                let answers = evm.read().await.into_iter();
                let said = |list: Option<Arc<List>>| list.map(Said::List);
                answers
                    .map(|answer| (answer.block, answer.said.map(said)))
                    .collect()
            }
        }
    }

    /// The reading that enough of them say.
    async fn agreed(&mut self, said: &Said, terms: &Terms) -> Result<Arc<Reading>, SourceError> {
        match (self, said) {
            (Self::Evm(evm), Said::List(list)) => {
                evm.agreed();
                evm.judge(list, terms).await
            }
            (_, Said::Reading(reading)) => Ok(reading.clone()),
            (Self::Apart(_), Said::List(_)) => unreachable!("only contracts have lists"),
        }
    }

    fn block(&self) -> Option<u64> {
        match self {
            Self::Apart(_) => None,
            Self::Evm(evm) => evm.block(),
        }
    }

    /// Whether what was read is to be read once more.
    fn hold(&mut self, holds: bool) {
        if let Self::Evm(evm) = self {
            evm.hold(holds);
        }
    }
}

impl Reader {
    /// # Errors
    ///
    /// If no HTTP client can be made.
    pub fn new(config: &SourceConfig, terms: Terms) -> Result<Self, SourceError> {
        let (sources, agree) = match config {
            SourceConfig::File { path, .. } => {
                (Sources::Apart(vec![Source::file(path.clone())]), 1)
            }
            SourceConfig::Http {
                urls,
                agree,
                timeout,
                ..
            } => {
                let sources = urls.iter().map(|url| Source::http(url, *timeout));
                (Sources::Apart(sources.collect::<Result<_, _>>()?), *agree)
            }
            SourceConfig::Evm {
                urls,
                contract,
                chain_id,
                agree,
                timeout,
                ..
            } => {
                let evm = Evm::new(urls, *contract, *chain_id, *agree, *timeout)?;
                (Sources::Evm(Box::new(evm)), *agree)
            }
        };
        let views = sources.names().into_iter().map(|name| SourceView {
            name,
            ..SourceView::default()
        });
        let view = View {
            trouble: Some("nothing was read yet".to_owned()),
            sources: views.collect(),
            ..View::default()
        };
        Ok(Self {
            terms,
            agree,
            sources,
            candidate: None,
            changes: 0,
            view,
        })
    }

    pub fn view(&self) -> &View {
        &self.view
    }

    /// Reads all sources once, at a time in milliseconds since 1970.
    pub async fn read(&mut self, now_ms: u64) -> &View {
        let answers = self.sources.read(&self.terms).await;
        let mut said: BTreeMap<Digest, (usize, Said)> = BTreeMap::new();
        for (view, (block, answer)) in self.view.sources.iter_mut().zip(&answers) {
            view.block = *block;
            view.trouble = None;
            match answer {
                Ok(Some(words)) => {
                    view.last_good_ms = Some(now_ms);
                    view.entries = Some(words.entries());
                    let (count, _) = said
                        .entry(words.digest())
                        .or_insert_with(|| (0, words.clone()));
                    *count += 1;
                }
                Ok(None) => {}
                Err(error) => view.trouble = Some(error.to_string()),
            }
        }
        // More than half must agree, so there is one such reading at most.
        let agreed = said.values().find(|(count, _)| *count >= self.agree);
        self.view.trouble = match agreed {
            Some((count, words)) => {
                for (view, (_, other)) in self.view.sources.iter_mut().zip(&answers) {
                    if let Ok(Some(other)) = other
                        && other.digest() != words.digest()
                    {
                        view.trouble = Some(format!(
                            "it differs from what {count} others say: it lists {} validators, they {}",
                            other.entries(),
                            words.entries()
                        ));
                    }
                }
                match self.sources.agreed(words, &self.terms).await {
                    Ok(reading) => self.take(reading, now_ms),
                    Err(error) => {
                        self.candidate = None;
                        Some(error.to_string())
                    }
                }
            }
            None => {
                self.candidate = None;
                Some(self.disagreement(&said))
            }
        };
        self.sources.hold(self.candidate.is_some());
        &self.view
    }

    /// Takes a reading over if it is known, or if it comes a second time. Returns why it is not.
    fn take(&mut self, reading: Arc<Reading>, now_ms: u64) -> Option<String> {
        let is_known = (self.view.reading.as_ref()).is_some_and(|one| one.digest == reading.digest);
        if is_known || self.candidate == Some(reading.digest) {
            let flapped = is_known && self.candidate.is_some_and(|one| one != reading.digest);
            self.candidate = None;
            self.view.read_at_ms = Some(now_ms);
            self.view.block = self.sources.block();
            self.view.reading = Some(reading);
            // Back and forth is flapping as well; only what is said twice in a row ends it.
            self.changes = if flapped {
                self.changes.saturating_add(1)
            } else {
                0
            };
            return self.flapping();
        }
        self.candidate = Some(reading.digest);
        self.changes = self.changes.saturating_add(1);
        self.flapping()
    }

    fn flapping(&self) -> Option<String> {
        (self.changes >= FLAPS).then(|| {
            format!(
                "it says something else at each of the last {} readings; what was read before stays",
                self.changes
            )
        })
    }

    fn disagreement(&self, said: &BTreeMap<Digest, (usize, Said)>) -> String {
        if let [only] = self.view.sources.as_slice() {
            return only.trouble.clone().unwrap_or_default();
        }
        let good: usize = said.values().map(|(count, _)| count).sum();
        format!(
            "{} of {} sources must say the same; {good} can be read, and at most {} of them agree",
            self.agree,
            self.view.sources.len(),
            said.values().map(|(count, _)| *count).max().unwrap_or(0)
        )
    }
}
