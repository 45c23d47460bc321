//! `quorate genesis`

use super::{
    ceremony, folders,
    output::{print_fields, print_json, print_lines},
    passphrases::{NewKeys, protection_of},
    registry::describe_rules,
    rpc::owned_account,
};
use crate::{
    config::{CONFIG_FILE, load_genesis},
    genesis::{DealtChain, GENESIS_FILE, NewChain, TRUST_FILE, is_proven, validator_directory},
    keys::{self, IDENTITY_FILE, VOTE_FILE},
};
use anyhow::{Context as _, bail};
use clap::{ArgGroup, Args, Subcommand};
use quorate_crypto::{Identity, bls::SchemeKind};
use quorate_files::read_text;
use quorate_machine::live::verdict::clock_time;
use quorate_p2p::PeerAddress;
use quorate_types::genesis::{DEFAULT_FEES, DEFAULT_LIMITS};
use quorate_types::{
    EpochLength,
    genesis::{
        self as types, ApplicationKind, BlockLimits, Fees, GenesisAccount, GenesisValidator,
        Protocol,
    },
};
use serde_json::json;
use std::path::PathBuf;

/// Size limit of a registration file.
const MAX_REGISTRATION_BYTES: u64 = 64 << 10;

/// Create and show genesis files
#[derive(Subcommand)]
pub(super) enum Genesis {
    /// Create a new chain: genesis.json, trust.json and, unless validators made their own, the vote
    /// keys
    Create(Box<Create>),
    /// Check a genesis file and show its content
    Show(Show),
    /// Make a bls-threshold chain together, without a dealer whom all must trust
    #[command(subcommand)]
    Ceremony(ceremony::Ceremony),
}

/// Create a new chain: genesis.json, trust.json and, unless validators made their own, the vote
/// keys
///
/// With --scheme bls-threshold, a trusted dealer generates the chain's group key and gives each
/// validator a share of it. WHOEVER RUNS THIS COMMAND SEES EVERY SHARE and could keep them and
/// forge the chain: all validators must trust the dealer, who gives each validator its own vote.key
/// and deletes the rest. `quorate genesis ceremony` makes such a chain without a dealer.
/// With --scheme bls-aggregate there is no dealer and no group key: each
/// validator generates its vote key with `quorate init` (or `quorate keys vote`) and sends its
/// registration. Without registrations, the vote keys are generated here.
///
/// Writes to the directory: genesis.json (the same for all validators), trust.json (to verify the
/// chain), and validator-N/vote.key (secret, mode 0600) for each validator without a registration.
/// With --validators it also writes validator-N/identity.key; with --address also
/// validator-N/validator.toml, genesis.json and trust.json, so that the folder is complete.
#[derive(Args)]
#[command(
    group(ArgGroup::new("committee").required(true).args(["identity", "validators", "registration"])),
    after_help = "Examples:
  Validators who made their own identity keys (in this order):
    quorate genesis create --name mychain --identity 3b6a… 9c1f… 77d0… e2b4… --out mychain
  Everything in one place, with configuration files to run on four machines:
    quorate genesis create --name mychain --validators 4 --out mychain \\
      --address 10.0.0.1:26600 10.0.0.2:26600 10.0.0.3:26600 10.0.0.4:26600
  Validators who made their own vote keys (no dealer):
    quorate genesis create --name mychain --scheme bls-aggregate --out mychain \\
      --registration a/registration.json b/registration.json c/registration.json d/registration.json
  An account with money from the start:
    quorate genesis create … --account 5fa1…=1000000"
)]
pub(super) struct Create {
    /// The chain's name, for display; 1 to 64 bytes
    #[arg(long)]
    name: String,
    /// The validators' identities (64 hexadecimal digits each), in committee order
    #[arg(long, value_name = "HEX", num_args = 1..)]
    identity: Vec<Identity>,
    /// Generate this many new identities instead, 1 to 1024, and write their identity.key files too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=quorate_types::limits::MAX_VALIDATORS as i64))]
    validators: Option<u32>,
    /// Registration files made by the validators with `quorate init` or `quorate keys vote`, in
    /// committee order; requires --scheme bls-aggregate. No vote key ever leaves its validator's
    /// machine
    #[arg(long, value_name = "FILE", num_args = 1..)]
    registration: Vec<PathBuf>,
    /// Directory to write to; created if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Accounts that exist from the start, with their balances
    #[arg(long, value_name = "HEX=BALANCE", num_args = 1.., value_parser = parse_account)]
    account: Vec<GenesisAccount>,
    /// The validators' addresses for each other, IP addresses or host names, in committee order;
    /// with them, each validator.toml is written too. A validator listens on the port of its
    /// address, on all interfaces, and serves HTTP on the next port, on 127.0.0.1
    #[arg(long, value_name = "HOST:PORT", num_args = 1..)]
    address: Vec<PeerAddress>,
    /// The consensus protocol: simplex, hotstuff-chained, hotstuff-basic or pbft (which to choose: docs/OPERATING.md, "Which protocol")
    #[arg(long, default_value = "simplex")]
    protocol: Protocol,
    /// What the chain does: ledger (accounts pay each other) or order-only (it orders and stores payloads that mean
    /// nothing to it; without accounts and fees)
    #[arg(long, default_value = "ledger")]
    application: ApplicationKind,
    /// The vote scheme
    #[arg(long, default_value = "bls-threshold")]
    scheme: SchemeKind,
    /// Most transactions in a block, 1 to 8192
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMITS.max_transactions)]
    max_transactions: usize,
    /// Most bytes of a block, 1024 to 2097152
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMITS.max_bytes)]
    max_block_bytes: usize,
    /// The minimum fee of a transfer, in the chain's smallest unit
    #[arg(long, value_name = "N", default_value_t = DEFAULT_FEES.per_transfer)]
    fee_per_transfer: u64,
    /// The additional minimum fee for each byte of a transfer's memo
    #[arg(long, value_name = "N", default_value_t = DEFAULT_FEES.per_memo_byte)]
    fee_per_memo_byte: u64,
    /// The length of an epoch in blocks; 10000 by default with simplex, 1000 with the other protocols
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epoch_blocks: Option<u64>,
    #[command(flatten)]
    protection: NewKeys,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Check a genesis file and show its content
#[derive(Args)]
#[command(after_help = "Examples:
  quorate genesis show mychain/genesis.json
  quorate genesis show mychain/genesis.json --json")]
pub(super) struct Show {
    /// The genesis file
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The length of a new chain's epochs: as given, or the protocol's usual one.
pub(super) fn epoch_of(blocks: Option<u64>, protocol: Protocol) -> anyhow::Result<EpochLength> {
    match blocks {
        Some(blocks) => EpochLength::new(blocks).context("--epoch-blocks is zero"),
        None => Ok(protocol.usual_epoch()),
    }
}

pub(super) fn parse_account(text: &str) -> Result<GenesisAccount, String> {
    let (identity, balance) = text
        .split_once('=')
        .ok_or("expected an identity, =, and a balance, for instance 5fa1…=1000000")?;
    Ok(GenesisAccount {
        identity: owned_account(identity)?,
        balance: balance
            .parse()
            .map_err(|_| "the balance must be a whole number below 2^64")?,
    })
}

impl Genesis {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Create(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Ceremony(command) => command.run(),
        }
    }
}

impl Create {
    fn run(self) -> anyhow::Result<()> {
        let genesis_path = self.out.join(GENESIS_FILE);
        if genesis_path.exists() {
            bail!(
                "{} exists and is not written over; choose another --out",
                genesis_path.display()
            );
        }
        let secrets: Vec<_> = (0..self.validators.unwrap_or(0))
            .map(|_| keys::generate_identity())
            .collect();
        let registrations = self.registrations()?;
        let validators: Vec<Identity> = if !registrations.is_empty() {
            registrations.iter().map(|r| r.identity).collect()
        } else if secrets.is_empty() {
            self.identity.clone()
        } else {
            secrets.iter().map(|secret| secret.identity()).collect()
        };
        if !self.address.is_empty() && self.address.len() != validators.len() {
            bail!(
                "--address: {} addresses for {} validators; give one for each, or none",
                self.address.len(),
                validators.len()
            );
        }
        let chain = NewChain {
            registry: None,
            name: self.name.clone(),
            protocol: self.protocol,
            application: self.application,
            scheme: self.scheme,
            limits: BlockLimits {
                max_transactions: self.max_transactions,
                max_bytes: self.max_block_bytes,
            },
            fees: match self.application {
                ApplicationKind::Ledger => Fees {
                    per_transfer: self.fee_per_transfer,
                    per_memo_byte: self.fee_per_memo_byte,
                },
                ApplicationKind::OrderOnly => Fees::NONE,
            },
            epoch_blocks: epoch_of(self.epoch_blocks, self.protocol)?,
            validators,
            registrations,
            accounts: self.account.clone(),
        };
        let dealt = chain.deal().context("cannot make this chain")?;
        folders::check_addresses(&self.address)?;
        // With registrations, no secrets are generated here.
        let passphrase = match self.is_dealt() {
            true => self.protection.choose()?,
            false => None,
        };
        let protection = protection_of(passphrase.as_ref());
        for (place, secret) in secrets.iter().enumerate() {
            let path = validator_directory(&self.out, place).join(IDENTITY_FILE);
            keys::save_secret(&path, &secret.to_bytes(), protection)?;
        }
        self.write_configs(&dealt)?;
        dealt.write(&self.out, protection)?;
        self.report(&dealt)
    }

    /// Whether this command generates secrets.
    fn is_dealt(&self) -> bool {
        self.registration.is_empty()
    }

    /// Reads the registrations. Checks each one separately so that an error names its file.
    fn registrations(&self) -> anyhow::Result<Vec<GenesisValidator>> {
        if !self.registration.is_empty() && self.scheme != SchemeKind::BlsAggregate {
            bail!(
                "--registration is for --scheme bls-aggregate: with {} a dealer makes all vote keys",
                self.scheme
            );
        }
        let read = |path: &PathBuf| {
            let file = path.display();
            let text = read_text(path, MAX_REGISTRATION_BYTES)?;
            let registration: GenesisValidator = serde_json::from_str(&text)
                .with_context(|| format!("{file} is not what `quorate keys vote` writes"))?;
            if !is_proven(&registration, &self.name) {
                bail!(
                    "{file}: the proof of possession does not hold for the chain name {:?}; it must \
                     be made with `quorate keys vote --chain {}`",
                    self.name,
                    self.name
                );
            }
            Ok(registration)
        };
        self.registration.iter().map(read).collect()
    }

    fn write_configs(&self, dealt: &DealtChain) -> anyhow::Result<()> {
        let validators = &dealt.genesis().validators;
        let peers: Vec<_> = validators
            .iter()
            .map(|validator| validator.identity)
            .zip(self.address.iter().cloned())
            .collect();
        for place in 0..peers.len() {
            let directory = validator_directory(&self.out, place);
            folders::write(&directory, dealt, &peers, place, false)?;
        }
        Ok(())
    }

    fn report(&self, dealt: &DealtChain) -> anyhow::Result<()> {
        let trust = dealt.trust();
        let validators = &dealt.genesis().validators;
        let is_written = self.is_dealt() || !self.address.is_empty();
        let directory = |place| is_written.then(|| validator_directory(&self.out, place));
        if self.json {
            let validators: Vec<_> = validators
                .iter()
                .enumerate()
                .map(|(place, validator)| {
                    json!({
                        "place": place,
                        "identity": validator.identity,
                        "directory": directory(place),
                    })
                })
                .collect();
            return print_json(&json!({
                "chain_id": trust.chain_id,
                "name": trust.name,
                "genesis": self.out.join(GENESIS_FILE),
                "accounts": self.account.len(),
                "trust": self.out.join(TRUST_FILE),
                "validators": validators,
            }));
        }
        let mut lines = vec![
            format!("chain id   {}", trust.chain_id),
            format!("genesis    {}", self.out.join(GENESIS_FILE).display()),
            format!("trust      {}", self.out.join(TRUST_FILE).display()),
        ];
        lines.extend(validators.iter().enumerate().map(|(place, validator)| {
            let file = match self.is_dealt() {
                true => VOTE_FILE,
                false => CONFIG_FILE,
            };
            let file = directory(place).map(|directory| directory.join(file));
            let file = file.map_or(String::new(), |file| format!("  {}", file.display()));
            format!("validator {place}: {}{file}", validator.identity)
        }));
        let farewell = match (self.is_dealt(), self.scheme) {
            (false, _) => {
                "Each validator has made its vote key itself, and nobody else has seen it. Give all of \
                 them genesis.json, and trust.json to whoever verifies the chain."
            }
            (true, SchemeKind::BlsThreshold) => {
                "This machine was the trusted dealer: it has seen every validator's share of the group \
                 key. Give each validator its own vote.key over a private channel, then delete it here."
            }
            (true, SchemeKind::BlsAggregate) => {
                "This machine has made every validator's vote key. Give each validator its own vote.key \
                 over a private channel, then delete it here. With --registration, nobody but the \
                 validators would have seen them."
            }
        };
        lines.extend(folders::late_start(self.protocol));
        lines.extend([String::new(), farewell.to_owned()]);
        if self.account.is_empty() && self.application == ApplicationKind::Ledger {
            lines.push(format!(
                "\nNo account holds anything on this chain. {}",
                folders::NO_ACCOUNT
            ));
        }
        print_lines(&lines)
    }
}

impl Show {
    fn run(self) -> anyhow::Result<()> {
        let genesis = load_genesis(&self.file)?;
        let path = self.file.display();
        genesis
            .scheme()
            .with_context(|| format!("the genesis file {path}"))?;
        let committee = genesis
            .committee()
            .with_context(|| format!("the genesis file {path}"))?;
        let total: u64 = genesis.accounts.iter().map(|account| account.balance).sum();
        if self.json {
            return print_json(&json!({
                "name": genesis.name,
                "chain_id": genesis.chain_id(),
                "timestamp_ms": genesis.timestamp_ms,
                "protocol": genesis.protocol,
                "application": genesis.application,
                "scheme": genesis.scheme,
                "group_key": genesis.group_key,
                "validators": committee.identities(),
                "faults": committee.faults(),
                "quorum": committee.quorum(),
                "accounts": genesis.accounts.len(),
                "total_balance": total,
                "epoch_blocks": genesis.epoch_blocks,
                "limits": genesis.limits,
                "fees": genesis.fees,
                "registry": genesis.registry,
            }));
        }
        self.print(&genesis, committee.faults(), committee.quorum(), total)
    }

    fn print(
        &self,
        genesis: &types::Genesis,
        faults: usize,
        quorum: usize,
        total: u64,
    ) -> anyhow::Result<()> {
        let limits = genesis.limits;
        print_fields(&[
            ("name", genesis.name.clone()),
            ("chain id", genesis.chain_id().to_string()),
            ("made", clock_time(genesis.timestamp_ms)),
            ("protocol", genesis.protocol.name().into()),
            ("application", genesis.application.name().into()),
            ("scheme", format!("{}, keys checked", genesis.scheme)),
            (
                "group key",
                genesis
                    .group_key
                    .clone()
                    .unwrap_or_else(|| "none; each validator has its own".into()),
            ),
            ("validators", format!("n = {}", genesis.validators.len())),
            ("may be faulty", format!("f = {faults}")),
            ("quorum", format!("n - f = {quorum}")),
            (
                "accounts",
                format!("{}, holding {total} in all", genesis.accounts.len()),
            ),
            (
                "block limits",
                format!(
                    "{} transactions, {} bytes",
                    limits.max_transactions, limits.max_bytes
                ),
            ),
            (
                "least fees",
                format!(
                    "{} for a transfer, {} for each byte of its memo",
                    genesis.fees.per_transfer, genesis.fees.per_memo_byte
                ),
            ),
            ("epoch", format!("{} blocks", genesis.epoch_blocks.blocks())),
            ("registry", describe_rules(genesis.registry)),
        ])?;
        let validators: Vec<_> = genesis
            .validators
            .iter()
            .enumerate()
            .map(|(place, validator)| {
                let address = match (genesis.registry, validator.address.as_str()) {
                    (None, _) => String::new(),
                    (Some(_), "") => "  no address: others need it under [[p2p.peers]]".to_owned(),
                    (Some(_), address) => format!("  {address}"),
                };
                format!("  {place:>4}  {}{address}", validator.identity)
            })
            .collect();
        print_lines(&validators)
    }
}
