//! Passing shares of the group key on: keeps a validator's shares in a file, and sends what
//! [`quorate_machine::resharing`] says, paid from the validator's own account.
//!
//! The file, `vote.key.shares.age` beside `vote.key`, is encrypted under a key that is derived from the vote key's file, so
//! it is protected as that one is, and needs no passphrase of its own. It is replaced as a whole, and old
//! secrets are not in the new one; what a disk keeps of replaced files is not in our hands.

use crate::{
    config::{NodeConfig, ValidatorConfig},
    own_account::{Fate, NotSent, OwnAccount},
};
use anyhow::Context as _;
use parking_lot::Mutex;
use quorate_crypto::{
    bls::{OpeningSecret, VoteSecret},
    sha256,
};
use quorate_files::read_bounded;
use quorate_machine::{
    live::LiveStatus,
    metrics::NodeMetrics,
    resharing::{Keep, Known, MAX_SHARES_BYTES, Shares, duties},
};
use quorate_storage::disk::{SystemDisk, write_atomically};
use quorate_types::registry::resharing::{RoundNote, announcement_slot, barred_until, round_in};
use quorate_types::{
    Digest, Epoch, Height, Identity, Operation, Outcome, Phase, REGISTRY, ValidatorSet,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::{debug, info, warn};
use zeroize::Zeroizing;

/// How often it is looked at whether there is a new block: a part of an epoch may have a few only.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// How often everything is looked at without one.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);

/// How many blocks this validator may lack of what others have.
const MOST_BEHIND: u64 = 8;

/// scrypt's work factor: the passphrase is a 256-bit key, which needs no slowing down.
const WORK_FACTOR: u8 = 2;

/// This part of an epoch passes before anything is sent in it: a quarter of the time for announcements.
const BEGINS_AFTER: u64 = 32;

/// Most bytes of the file: the shares, encrypted, with age's header.
const MAX_FILE_BYTES: u64 = MAX_SHARES_BYTES as u64 + (4 << 10);

/// A validator's shares, over all parts that it takes in the chain. Cheap to clone; empty for followers and on
/// chains whose validators share no key.
#[derive(Clone, Default)]
pub(crate) struct Resharing(Option<Arc<Kept>>);

struct Kept {
    shares: Mutex<Shares>,
    /// The share of the genesis file, or a newcomer's key, which is none.
    first: Arc<VoteSecret>,
    /// The last epoch of which it was told whether shares were passed on.
    judged: Mutex<Option<Epoch>>,
}

/// What the task works with.
pub(crate) struct ResharingParts {
    pub(crate) account: OwnAccount,
    pub(crate) live: Arc<LiveStatus>,
    pub(crate) metrics: Arc<NodeMetrics>,
}

struct SharesFile {
    path: PathBuf,
    /// Making one times scrypt for some milliseconds, which would be at each border, when all are busiest.
    recipient: age::scrypt::Recipient,
}

impl Keep for SharesFile {
    fn keep(&mut self, content: &[u8]) -> anyhow::Result<()> {
        let sealed = age::encrypt(&self.recipient, content).context("cannot encrypt the shares")?;
        write_atomically(&SystemDisk, &self.path, &sealed)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The file with a validator's shares.
pub(crate) fn shares_file(vote_file: &Path) -> PathBuf {
    let mut name = vote_file.as_os_str().to_owned();
    // Replacing a file goes by a new one with another extension: not the same as for the key's mark.
    name.push(".shares.age");
    name.into()
}

impl Resharing {
    /// Opens the validator's shares, on a chain whose validators share a key.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or opened.
    pub(crate) fn of(config: &ValidatorConfig) -> anyhow::Result<Self> {
        let rules = config.node.genesis.registry;
        if !rules.is_some_and(|rules| rules.resharing) {
            return Ok(Self::default());
        }
        let path = shares_file(&config.vote_file);
        let secret = config.vote_secret.to_bytes();
        let key = Zeroizing::new(sha256(&[b"quorate/shares-file/1", &*secret]).0);
        let passphrase = age::secrecy::SecretString::from(hex::encode(*key));
        let content = read_shares(&path, &passphrase)?;
        let mut recipient = age::scrypt::Recipient::new(passphrase);
        recipient.set_work_factor(WORK_FACTOR);
        let file = SharesFile {
            path: path.clone(),
            recipient,
        };
        let make = || OpeningSecret::random(crate::keys::system_rng());
        let shares = Shares::open(&content, Box::new(file), Box::new(make))
            .with_context(|| path.display().to_string())?;
        Ok(Self(Some(Arc::new(Kept {
            shares: Mutex::new(shares),
            first: config.vote_secret.clone(),
            judged: Mutex::default(),
        }))))
    }

    /// The secret that the validator votes with in an epoch: its share there, if it has it.
    pub(crate) fn secret_in(&self, set: &ValidatorSet, own: &Identity) -> Option<Arc<VoteSecret>> {
        let kept = self.0.as_ref()?;
        let place = set.place(own)?;
        let key = set.members().get(usize::from(place))?.vote_key;
        if kept.first.public_key() == key.0 {
            return Some(kept.first.clone());
        }
        let shares = kept.shares.lock();
        let bytes = shares.share(&key)?.to_bytes();
        VoteSecret::from_bytes(&bytes).ok().map(Arc::new)
    }

    /// Sends what is to be sent, until it is dropped. Ends at once where nothing ever is.
    pub(crate) async fn run(self, config: NodeConfig, parts: ResharingParts) {
        let Some(kept) = self.0 else { return };
        let mut sender = Sender {
            kept,
            parts: Arc::new(parts),
            config: Arc::new(config),
            pending: Vec::new(),
            refused: None,
            looked: None,
            settled: None,
            trouble: None,
        };
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = sender.look().await {
                sender.tell(Some(format!("{error:#}")));
            }
        }
    }
}

/// Reads and decrypts the shares; nothing if there is no file.
fn read_shares(
    path: &Path,
    passphrase: &age::secrecy::SecretString,
) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    if !path.exists() {
        return Ok(Zeroizing::default());
    }
    let sealed = read_bounded(path, MAX_FILE_BYTES)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let mut identity = age::scrypt::Identity::new(passphrase.clone());
    identity.set_max_work_factor(WORK_FACTOR);
    let opened = age::decrypt(&identity, &sealed).map_err(|error| {
        anyhow::anyhow!(
            "{} cannot be opened ({error}): it belongs to another vote key, or is damaged. Put the right one \
             there, or move it away: then this validator gets a new share at the next border, and does not vote \
             before",
            path.display()
        )
    });
    opened.map(Zeroizing::new)
}

struct Sender {
    kept: Arc<Kept>,
    parts: Arc<ResharingParts>,
    config: Arc<NodeConfig>,
    /// What is in the mempool or was.
    pending: Vec<Digest>,
    /// The part of an epoch in which the chain has refused something: nothing more is sent in it, since it costs a fee.
    refused: Option<(Epoch, Phase)>,
    /// The newest block, and when, at the last look.
    looked: Option<(Height, Instant)>,
    /// Where the epoch stood when nothing was to be sent: nothing is, until it stands elsewhere.
    settled: Option<Standing>,
    /// Why nothing can be sent, as it was told last.
    trouble: Option<String>,
}

/// All that decides what a validator sends after the first part of an epoch.
#[derive(PartialEq, Eq)]
struct Standing {
    epoch: Epoch,
    phase: Phase,
    round: Option<RoundNote>,
}

impl Sender {
    async fn look(&mut self) -> anyhow::Result<()> {
        let tip = self.parts.account.store.tip().height;
        let is_fresh =
            |(height, at): (Height, Instant)| height == tip && at.elapsed() < IDLE_INTERVAL;
        if self.looked.is_some_and(is_fresh) {
            return Ok(());
        }
        self.looked = Some((tip, Instant::now()));
        self.look_at_pending()?;
        let length = self.config.genesis.epoch_blocks;
        // Of what others have behind them nothing is to be done.
        let newest = self.parts.live.network_height();
        if newest.0 > tip.0.saturating_add(MOST_BEHIND) {
            return Ok(());
        }
        self.judge();
        let now = (length.epoch_of(tip.next()), length.phase(tip.next()).0);
        if self.refused == Some(now) || !self.pending.is_empty() {
            return Ok(());
        }
        // All announce themselves at once, and each writes a file first. At the border all are busy enough.
        let first = length.blocks().saturating_mul(now.0.0);
        let begun = tip.0.saturating_sub(first) >= length.blocks() / BEGINS_AFTER;
        if now.1 == Phase::Announce && !begun {
            return Ok(());
        }
        let standing = self.standing(now)?;
        if standing.is_some() && self.settled == standing {
            return Ok(());
        }
        // Opening many dealings takes a second.
        let (kept, parts, config) = (self.kept.clone(), self.parts.clone(), self.config.clone());
        let found = tokio::task::spawn_blocking(move || find(&kept, &parts, &config)).await?;
        let (operations, barred_until) = found?;
        if let Some(epoch) = barred_until {
            self.tell(Some(format!(
                "it has announced itself and not proven its share, so it cannot announce itself before epoch {epoch}"
            )));
            return Ok(());
        }
        if operations.is_empty() {
            if now.1 == Phase::Announce {
                self.tell(None);
            }
            self.settled = standing;
            return Ok(());
        }
        for operation in operations {
            if let Some(trouble) = self.submit(&operation)? {
                self.tell(Some(trouble));
                return Ok(());
            }
        }
        self.tell(None);
        Ok(())
    }

    /// Where the epoch stands; `None` in its first part, in which bonds count as well. Blocks may come every few
    /// milliseconds, and with all players and dealings read at each, they took a tenth longer.
    fn standing(&self, (epoch, phase): (Epoch, Phase)) -> anyhow::Result<Option<Standing>> {
        if phase == Phase::Announce {
            return Ok(None);
        }
        let round = round_in(self.parts.account.store.account(&REGISTRY)?, epoch);
        Ok(Some(Standing {
            epoch,
            phase,
            round,
        }))
    }

    /// Shows for how many epochs shares were not passed on, and says once in each epoch whether its were.
    fn judge(&mut self) {
        let height = self.parts.account.store.tip().height.next();
        let epoch = self.config.genesis.epoch_blocks.epoch_of(height);
        let committees = self.parts.live.committees();
        let last_fixed = [epoch.next(), epoch];
        let fixed = last_fixed
            .into_iter()
            .find_map(|of| Some((of, committees.acting(of)?)));
        let Some((of, (first, set))) = fixed else {
            return;
        };
        let kept = of.0.saturating_sub(first.0);
        let shown = i64::try_from(kept).unwrap_or(i64::MAX);
        self.parts.metrics.registry.not_passed_on.set(shown);
        let is_news = of == epoch.next() && self.kept.judged.lock().replace(epoch) != Some(epoch);
        if !is_news {
            return;
        }
        if kept == 0 {
            info!(%epoch, validators = set.members().len(), "shares were passed on: the next epoch has new ones");
        } else {
            warn!(
                %epoch, epochs = kept,
                "shares were not passed on: the validators stay as they are. `quorate registry list` shows who has \
                 not announced itself, dealt or proven its share"
            );
        }
    }

    fn tell(&mut self, trouble: Option<String>) {
        if let Some(trouble) = trouble
            .as_ref()
            .filter(|now| self.trouble.as_ref() != Some(*now))
        {
            warn!(trouble, "this validator takes no part in passing shares on");
        }
        if self.trouble != trouble {
            let note = trouble
                .iter()
                .map(|trouble| format!("passing shares on: {trouble}"));
            self.parts.live.set_registry_troubles(note.collect());
        }
        self.trouble = trouble;
    }

    /// Learns what became of what was sent, once it is no longer in the mempool.
    fn look_at_pending(&mut self) -> anyhow::Result<()> {
        let mut still = Vec::new();
        for id in std::mem::take(&mut self.pending) {
            match self.parts.account.fate(&id)? {
                Fate::Waits => still.push(id),
                Fate::Final(height, Some(outcome @ Outcome::Failed(_))) => {
                    // Usually it came too late.
                    debug!(%id, %outcome, "an operation to pass shares on was refused");
                    let length = self.config.genesis.epoch_blocks;
                    self.refused = Some((length.epoch_of(height), length.phase(height).0));
                }
                Fate::Dropped | Fate::Final(..) => {}
            }
        }
        self.pending = still;
        Ok(())
    }

    /// Puts an operation into the mempool. Returns why it cannot.
    fn submit(&mut self, operation: &Operation) -> anyhow::Result<Option<String>> {
        let id = match self.parts.account.send(&self.config, operation)? {
            Ok(id) => id,
            Err(NotSent::CannotPay(fee)) => {
                let own = self.config.identity.identity();
                return Ok(Some(format!(
                    "this validator's account {own} cannot pay {fee} to pass shares on: pay it some (`quorate tx \
                     transfer --to {own}`); without, it gets no share of the next epoch"
                )));
            }
            Err(NotSent::Refused(refusal)) => {
                return Ok(Some(format!("the mempool refuses an operation: {refusal}")));
            }
        };
        info!(operation = operation.name(), %id, "passes shares on");
        self.pending.push(id);
        Ok(None)
    }
}

/// What is to be sent now; or until which epoch this validator cannot announce itself.
fn find(
    kept: &Kept,
    parts: &ResharingParts,
    config: &NodeConfig,
) -> anyhow::Result<(Vec<Operation>, Option<Epoch>)> {
    let length = config.genesis.epoch_blocks;
    let height = parts.account.store.tip().height.next();
    let epoch = length.epoch_of(height);
    let acting = parts.live.committees().set(epoch);
    let acting = acting.context("the epoch's validators are not known")?;
    let own = config.identity.identity();
    let account = parts.account.store.account(&own)?;
    let bond = account.and_then(|account| account.bond);
    let known = Known {
        own: &own,
        chain: &config.chain,
        epoch,
        phase: length.phase(height).0,
        acting: &acting,
        bond: bond.as_deref(),
        first_share: Some(&kept.first),
    };
    let slot = parts.account.store.account(&announcement_slot(&own))?;
    let barred_until = barred_until(slot.as_ref(), &own, epoch);
    let mut read = |identity: &Identity| Ok(parts.account.store.account(identity)?);
    let operations = duties(known, &mut kept.shares.lock(), &mut read)?;
    Ok((operations, barred_until))
}
