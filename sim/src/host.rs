//! One simulated validator: the real machine, and what the node around it would do.

use quorate_consensus::{
    Config, Engine, Finalized, Moment, Outbound, Output, Penalty, Sentence, Tip,
};
use quorate_crypto::sha256;
use quorate_types::{Block, Certificate, Digest, Evidence, Height, Record, ValidatorIndex};
use std::{collections::BTreeMap, sync::Arc};

/// How a validator behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// By the protocol.
    Honest,
    /// By the protocol, but every vote's signature is garbage.
    Garbage,
    /// Two machines with one key, each talking to one half of the others: it equivocates whenever
    /// the halves see different things.
    Twins,
    /// It never says a word.
    Silent,
    /// By the protocol, but with each notarize vote goes a second one, for another block.
    Equivocator,
    /// By the protocol, but in this span of time all its signatures are garbage: a fault that
    /// heals.
    Glitch {
        /// When it begins, in milliseconds.
        from_ms: u64,
        /// When it has healed, in milliseconds.
        until_ms: u64,
    },
}

/// What survives a crash.
#[derive(Default)]
pub(crate) struct Disk {
    /// Journal records that were synced.
    pub(crate) journal: Vec<Record>,
    /// Executed blocks with their own finalizations.
    pub(crate) blocks: BTreeMap<Height, (Arc<Block>, Option<Certificate>)>,
    /// The application's state root after each block.
    pub(crate) roots: BTreeMap<Height, Digest>,
    /// The newest sentence about each validator.
    pub(crate) sentences: BTreeMap<ValidatorIndex, Sentence>,
    /// Verified evidence.
    pub(crate) evidence: Vec<Evidence>,
}

impl Disk {
    pub(crate) fn new() -> Self {
        Self {
            roots: BTreeMap::from([(Height(0), Digest::ZERO)]),
            ..Self::default()
        }
    }

    pub(crate) fn height(&self) -> Height {
        self.blocks.last_key_value().map_or(Height(0), |(h, _)| *h)
    }

    pub(crate) fn tip(&self) -> Tip {
        match self.blocks.last_key_value() {
            None => Tip::genesis(),
            Some((height, (block, certificate))) => Tip {
                view: block.header().view,
                height: *height,
                id: block.id(),
                block: Some(block.clone()),
                certificate: certificate.clone(),
            },
        }
    }

    /// Executes a block: the state is a hash chain over the blocks.
    pub(crate) fn execute(&mut self, finalized: Finalized) {
        let Finalized { block, certificate } = finalized;
        let height = block.height();
        assert_eq!(height, self.height().next(), "blocks come in order");
        let before = self.roots[&Height(height.0 - 1)];
        self.roots
            .insert(height, sha256(&[&before.0, &block.id().0]));
        self.blocks.insert(height, (block, certificate));
    }

    /// Forgets the blocks and roots below this height.
    pub(crate) fn prune(&mut self, below: Height) {
        self.blocks = self.blocks.split_off(&below.min(self.height()));
        self.roots = self.roots.split_off(&below.min(self.height()));
    }
}

/// One machine with its disk. Twins have two of these.
pub(crate) struct Host {
    pub(crate) config: Config,
    pub(crate) disk: Disk,
    pub(crate) engine: Option<Engine>,
    /// Records that are appended and not synced.
    pub(crate) unsynced: Vec<Record>,
    /// Votes that wait for the sync.
    pub(crate) held: Vec<Outbound>,
    pub(crate) sync_planned: bool,
    /// When the next tick is planned.
    pub(crate) tick_at: Moment,
    /// Counts lives, so that what was meant for a former one is dropped.
    pub(crate) life: u64,
    /// Blocks whose named state this validator has not reached yet.
    pub(crate) waiting: Vec<(quorate_types::View, Arc<Block>)>,
}

impl Host {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            disk: Disk::new(),
            engine: None,
            unsynced: Vec::new(),
            held: Vec::new(),
            sync_planned: false,
            tick_at: Moment(0),
            life: 0,
            waiting: Vec::new(),
        }
    }

    /// Starts from what is on disk.
    pub(crate) fn start(&mut self, now: Moment) -> Result<Output, String> {
        let config = Config {
            sentences: self.disk.sentences.values().cloned().collect(),
            evidence: self.disk.evidence.clone(),
            ..self.config.clone()
        };
        let (engine, output) =
            Engine::recover(config, self.disk.tip(), self.disk.journal.clone(), now)
                .map_err(|error| error.to_string())?;
        let blocked = self.disk.sentences.values();
        for sentence in blocked.filter(|sentence| sentence.penalty == Penalty::Blocked) {
            let validator = sentence.validator;
            if !engine.blocked().iter().any(|(held, _)| *held == validator) {
                return Err(format!("a restart forgot that {validator:?} is blocked"));
            }
        }
        self.engine = Some(engine);
        self.life += 1;
        self.tick_at = Moment(0);
        Ok(output)
    }

    /// Loses everything that is not on disk; of the unsynced records, `kept` reached it.
    pub(crate) fn crash(&mut self, kept: usize) {
        self.engine = None;
        self.held.clear();
        self.waiting.clear();
        self.sync_planned = false;
        let unsynced = std::mem::take(&mut self.unsynced);
        self.disk.journal.extend(unsynced.into_iter().take(kept));
    }

    /// Puts the journal on disk, and now and then replaces it by a checkpoint.
    pub(crate) fn sync(&mut self) -> Vec<Outbound> {
        self.sync_planned = false;
        self.disk.journal.append(&mut self.unsynced);
        if self.disk.journal.len() > 200
            && let Some(engine) = &self.engine
        {
            self.disk.journal = engine.checkpoint();
        }
        std::mem::take(&mut self.held)
    }
}
