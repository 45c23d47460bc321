//! Reading all sources of a validator, and what is kept of it.

use crate::{
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
    /// Why the newest attempt did not confirm it or bring another.
    pub trouble: Option<String>,
    pub sources: Vec<SourceView>,
}

/// What is known of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceView {
    /// Its path or URL.
    pub name: String,
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
    sources: Vec<Source>,
    /// What was agreed on once, and counts if it is again.
    candidate: Option<Digest>,
    /// New readings in a row.
    changes: u32,
    view: View,
}

impl Reader {
    /// # Errors
    ///
    /// If no HTTP client can be made.
    pub fn new(config: &SourceConfig, terms: Terms) -> Result<Self, SourceError> {
        let (sources, agree) = match config {
            SourceConfig::File { path, .. } => (vec![Source::file(path.clone())], 1),
            SourceConfig::Http {
                urls,
                agree,
                timeout,
                ..
            } => {
                let sources = urls.iter().map(|url| Source::http(url, *timeout));
                (sources.collect::<Result<_, _>>()?, *agree)
            }
        };
        let views = sources.iter().map(|source: &Source| SourceView {
            name: source.name.clone(),
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
        let terms = &self.terms;
        let readings = self.sources.iter_mut().map(|source| source.read(terms));
        let readings = join_all(readings).await;
        let mut said: BTreeMap<Digest, (usize, Arc<Reading>)> = BTreeMap::new();
        for (view, reading) in self.view.sources.iter_mut().zip(&readings) {
            match reading {
                Ok(reading) => {
                    view.last_good_ms = Some(now_ms);
                    view.entries = Some(reading.entries.len());
                    view.trouble = None;
                    let (count, _) = said
                        .entry(reading.digest)
                        .or_insert_with(|| (0, reading.clone()));
                    *count += 1;
                }
                Err(error) => view.trouble = Some(error.to_string()),
            }
        }
        // More than half must agree, so there is one such reading at most.
        let agreed = said.values().find(|(count, _)| *count >= self.agree);
        self.view.trouble = match agreed {
            Some((count, reading)) => {
                let reading = reading.clone();
                for (view, other) in self.view.sources.iter_mut().zip(&readings) {
                    if let Ok(other) = other
                        && other.digest != reading.digest
                    {
                        view.trouble = Some(format!(
                            "it differs from what {count} others say: it lists {} validators, they {}",
                            other.entries.len(),
                            reading.entries.len()
                        ));
                    }
                }
                self.take(reading, now_ms)
            }
            None => {
                self.candidate = None;
                Some(self.disagreement(&said))
            }
        };
        &self.view
    }

    /// Takes a reading over if it is known, or if it comes a second time. Returns why it is not.
    fn take(&mut self, reading: Arc<Reading>, now_ms: u64) -> Option<String> {
        let is_known = (self.view.reading.as_ref()).is_some_and(|one| one.digest == reading.digest);
        if is_known || self.candidate == Some(reading.digest) {
            let flapped = is_known && self.candidate.is_some_and(|one| one != reading.digest);
            self.candidate = None;
            self.view.read_at_ms = Some(now_ms);
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

    fn disagreement(&self, said: &BTreeMap<Digest, (usize, Arc<Reading>)>) -> String {
        if let [only] = self.view.sources.as_slice() {
            return only.trouble.clone().unwrap_or_default();
        }
        let good: usize = said.values().map(|(count, _)| count).sum();
        format!(
            "{} of {} sources must say the same; {good} can be read, and at most {} of them agree",
            self.agree,
            self.sources.len(),
            said.values().map(|(count, _)| *count).max().unwrap_or(0)
        )
    }
}
