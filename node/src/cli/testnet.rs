//! `quorate testnet`

use super::{
    folders::{self, NO_ACCOUNT, REGISTRY_FILE, local_ports},
    genesis::{epoch_of, parse_account},
    output::{print_json, print_lines},
    passphrases::NewKeys,
};
use crate::{
    genesis::{GENESIS_FILE, NewChain, NewRegistry, TRUST_FILE, validator_directory, write_new},
    keys::{self, IDENTITY_FILE, Passphrase, Protection},
};
use anyhow::{Context as _, bail, ensure};
use clap::Args;
use quorate_crypto::{Identity, SecretKey, bls::SchemeKind};
use quorate_p2p::PeerAddress;
use quorate_types::genesis::{DEFAULT_FEES, DEFAULT_LIMITS};
use quorate_types::{
    ExternalRules, RegistryRules, Slashing,
    genesis::{ApplicationKind, Fees, GenesisAccount, Protocol},
    registry::MAX_REPORT_EPOCHS,
};
use serde_json::json;
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

/// The folder of the funded account.
const ACCOUNT_FOLDER: &str = "account";

/// What the account of each validator holds that has reports to pay for.
const REPORTING_BALANCE: u64 = 1_000_000;

/// The folder of the passphrases.
const PASSPHRASE_FOLDER: &str = "passphrases";

/// Create a new chain: a folder for each validator's machine, and a funded account
///
/// Each folder, validator-N, is complete: keys, genesis.json, trust.json, and a validator.toml that
/// names the other validators. Copy it to any machine and run it there. The folder account holds
/// the key of a funded account.
///
/// This machine generates every key, so it could run the chain alone. That is fine for a test
/// network, or if one operator runs all validators. Validators that do not trust each other
/// generate their own keys with `quorate init`.
#[derive(Args)]
#[command(after_help = "Examples:
  Four validators on this machine, at ports 26600 to 26607 and 26701 to 26707:
    quorate testnet --out mynet --plain
  On four machines, under a passphrase for each:
    quorate testnet --out mynet --passphrases \\
      --hosts v0.example.org,v1.example.org,v2.example.org,203.0.113.9")]
pub(super) struct Testnet {
    /// How many validators, 1 to 1024; by default as many as there are --hosts, else 4
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=quorate_types::limits::MAX_VALIDATORS as i64))]
    validators: Option<u32>,
    /// Directory to write to; must be missing or empty
    #[arg(long, value_name = "DIR", default_value = "testnet")]
    out: PathBuf,
    /// The chain's name, for display; 1 to 64 bytes
    #[arg(long, default_value = "testnet")]
    name: String,
    /// The validators' machines: host names or IP addresses, each with :PORT or using --base-port.
    /// By default, all run on this machine
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    hosts: Vec<String>,
    /// The port for the other validators. HTTP uses the next port, metrics the port 100 above that.
    /// On one machine, each validator's ports are 2 above those of the previous one
    #[arg(long, value_name = "PORT", default_value_t = 26_600)]
    base_port: u16,
    /// The consensus protocol: simplex, hotstuff-chained, hotstuff-basic or pbft (which to choose: docs/OPERATING.md, "Which protocol")
    #[arg(long, default_value = "simplex")]
    protocol: Protocol,
    /// What the chain does: ledger (accounts pay each other) or order-only (it orders and stores payloads that mean
    /// nothing to it; there are no accounts)
    #[arg(long, default_value = "ledger")]
    application: ApplicationKind,
    /// The vote scheme
    #[arg(long, default_value = "bls-threshold")]
    scheme: SchemeKind,
    /// The length of an epoch in blocks; 10000 by default with simplex, 1000 with the other protocols
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epoch_blocks: Option<u64>,
    /// The initial balance of the account in account/, in the chain's smallest unit; 0 for no such
    /// account
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000)]
    balance: u64,
    /// Further accounts that exist from the start, with their balances
    #[arg(long, value_name = "HEX=BALANCE", num_args = 1.., value_parser = parse_account)]
    account: Vec<GenesisAccount>,
    #[command(flatten)]
    registry: RegistryFlags,
    /// Encrypt each folder's keys under its own random passphrase, written to passphrases/.
    /// Transfer it to the machine separately from the folder
    #[arg(long, conflicts_with_all = ["plain", "passphrase_file", "passphrase_fd"])]
    passphrases: bool,
    #[command(flatten)]
    protection: NewKeys,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A staking registry, by which the set of validators changes
#[derive(Args)]
pub(super) struct RegistryFlags {
    /// Give the chain a staking registry, so that its validators can change (see docs/REGISTRY.md):
    /// what each of them has at stake from the start. Each has some money, too, to pay for accusing others and,
    /// with bls-threshold, for passing on the shares of the common key
    #[arg(long, value_name = "N")]
    stake: Option<u64>,
    /// The least stake of a validator; by default, --stake
    #[arg(long, value_name = "N", requires = "stake")]
    min_stake: Option<u64>,
    /// The most validators of an epoch: those with the most at stake
    #[arg(long, value_name = "N", default_value_t = 64, requires = "stake")]
    max_validators: u32,
    /// For how many epochs stake is held after it was unbonded
    #[arg(long, value_name = "N", default_value_t = 3, requires = "stake")]
    unbond_epochs: u64,
    /// How much of its stake a validator loses that casts contradictory votes, in percent; 0 for no punishment
    #[arg(long, value_name = "N", default_value_t = 5, requires = "stake", value_parser = clap::value_parser!(u8).range(..=100))]
    slash_percent: u8,
    /// Keep the registry outside the chain: validators read it from a file, registry.toml, and what a quorum of
    /// them reports takes effect. --stake is then what the file says of each. Nobody is slashed, and each
    /// validator's account holds 1000000 to pay for its reports
    #[arg(long, requires = "stake")]
    external_registry: bool,
    /// For how many epochs a report counts: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 4, requires = "external_registry",
          value_parser = clap::value_parser!(u64).range(1..=MAX_REPORT_EPOCHS))]
    report_epochs: u64,
    /// For how many epochs it is not chosen then
    #[arg(long, value_name = "N", default_value_t = 10, requires = "stake", value_parser = clap::value_parser!(u64).range(1..))]
    jail_epochs: u64,
}

impl RegistryFlags {
    fn of_new_chain(
        &self,
        scheme: SchemeKind,
        addresses: &[PeerAddress],
    ) -> anyhow::Result<Option<NewRegistry>> {
        let Some(stake) = self.stake else {
            return Ok(None);
        };
        let resharing = scheme == SchemeKind::BlsThreshold;
        ensure!(
            !(resharing && self.external_registry),
            "--external-registry needs --scheme bls-aggregate: with bls-threshold, validators get their vote keys \
             from each other"
        );
        let rules = RegistryRules {
            min_stake: self.min_stake.unwrap_or(stake),
            max_validators: self.max_validators,
            unbond_epochs: self.unbond_epochs,
            slashing: (self.slash_percent > 0 && !self.external_registry).then_some(Slashing {
                percent: self.slash_percent,
                jail_epochs: self.jail_epochs,
            }),
            external: self.external_registry.then_some(ExternalRules {
                report_epochs: self.report_epochs,
            }),
            resharing,
        };
        Ok(Some(NewRegistry {
            rules,
            stake,
            addresses: addresses.to_vec(),
        }))
    }
}

/// How the keys of each folder are protected.
enum Passphrases {
    None,
    One(Passphrase),
    Each,
}

/// A folder with generated keys.
struct Made {
    directory: PathBuf,
    passphrase: Option<PathBuf>,
}

impl Testnet {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let addresses = self.addresses()?;
        folders::check_addresses(&addresses)?;
        let out = self.out.display();
        let is_empty = fs::read_dir(&self.out).map_or(true, |mut entries| entries.next().is_none());
        ensure!(
            is_empty,
            "{out} is not empty, and nothing is written over; choose another --out"
        );
        let secrets: Vec<SecretKey> = addresses
            .iter()
            .map(|_| keys::generate_identity())
            .collect();
        let has_accounts = self.application == ApplicationKind::Ledger;
        let account = (self.balance > 0 && has_accounts).then(keys::generate_identity);
        let dealt = self
            .chain(&secrets, &addresses, account.as_ref())?
            .deal()
            .context(match self.registry.stake {
                Some(_) => {
                    "cannot make this chain (`registry.min_stake` is --min-stake, or else --stake; \
                     `validators[].stake` is --stake)"
                }
                None => "cannot make this chain",
            })?;
        let protection = match self.passphrases {
            true => Passphrases::Each,
            false => self
                .protection
                .choose()?
                .map_or(Passphrases::None, Passphrases::One),
        };
        let peers: Vec<(Identity, PeerAddress)> = secrets
            .iter()
            .map(SecretKey::identity)
            .zip(addresses)
            .collect();
        let mut made = Vec::new();
        for (place, secret) in secrets.iter().enumerate() {
            let directory = validator_directory(&self.out, place);
            let folder = self.protect(&directory, &protection, |protection| {
                let path = directory.join(IDENTITY_FILE);
                keys::save_secret(&path, &secret.to_bytes(), protection)?;
                Ok(dealt.write_vote_key(&directory, place, protection)?)
            })?;
            folders::write(&directory, &dealt, &peers, place, self.hosts.is_empty())?;
            made.push(folder);
        }
        if self.registry.external_registry {
            let text = folders::registry_of_genesis(dealt.genesis(), &peers)?;
            write_new(&self.out.join(REGISTRY_FILE), &text)?;
            for made in made.iter().filter(|_| !self.hosts.is_empty()) {
                write_new(&made.directory.join(REGISTRY_FILE), &text)?;
            }
        }
        let paying = account.as_ref().map(|secret| {
            let directory = self.out.join(ACCOUNT_FOLDER);
            self.protect(&directory, &protection, |protection| {
                let path = directory.join(IDENTITY_FILE);
                Ok(keys::save_secret(&path, &secret.to_bytes(), protection)?)
            })
        });
        let paying = paying.transpose()?;
        write_new(&self.out.join(TRUST_FILE), &dealt.trust().to_json())?;
        write_new(&self.out.join(GENESIS_FILE), &dealt.genesis().to_json())?;
        let account = account.map(|secret| secret.identity());
        if self.json {
            let trust = dealt.trust();
            let validators: Vec<_> = made
                .iter()
                .zip(&peers)
                .map(|(made, (identity, address))| {
                    json!({
                        "identity": identity,
                        "address": address.to_string(),
                        "directory": made.directory,
                        "passphrase_file": made.passphrase,
                    })
                })
                .collect();
            return print_json(&json!({
                "chain_id": trust.chain_id,
                "name": trust.name,
                "trust": self.out.join(TRUST_FILE),
                "validators": validators,
                "account": account.zip(paying.as_ref()).map(|(identity, made)| json!({
                    "identity": identity,
                    "key": made.directory.join(IDENTITY_FILE),
                    "balance": self.balance,
                    "passphrase_file": made.passphrase,
                })),
            }));
        }
        self.tell(&made, &peers, paying.as_ref())
    }

    fn addresses(&self) -> anyhow::Result<Vec<PeerAddress>> {
        let hosts = self.hosts.len();
        let validators = self.validators.map(|n| n as usize);
        if self.hosts.is_empty() {
            return (0..validators.unwrap_or(4))
                .map(|place| {
                    let port = usize::from(self.base_port) + 2 * place;
                    let Ok(port) = u16::try_from(port) else {
                        bail!(
                            "--base-port {} leaves no room; use a lower one",
                            self.base_port
                        );
                    };
                    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
                })
                .collect();
        }
        if validators.is_some_and(|validators| validators != hosts) {
            bail!(
                "--hosts names {hosts} machines, --validators asks for {}: leave --validators out",
                validators.unwrap_or(0)
            );
        }
        self.hosts
            .iter()
            .map(|host| {
                let port = self.base_port;
                let address = match host.parse::<PeerAddress>() {
                    Ok(address) => Ok(address),
                    Err(_) if host.parse::<std::net::Ipv6Addr>().is_ok() => {
                        format!("[{host}]:{port}").parse()
                    }
                    Err(error) if host.contains(':') => Err(error),
                    Err(_) => format!("{host}:{port}").parse(),
                };
                address.with_context(|| format!("--hosts: {host:?} cannot be reached"))
            })
            .collect()
    }

    fn chain(
        &self,
        secrets: &[SecretKey],
        addresses: &[PeerAddress],
        account: Option<&SecretKey>,
    ) -> anyhow::Result<NewChain> {
        let own = account.map(|secret| GenesisAccount {
            identity: secret.identity(),
            balance: self.balance,
        });
        // What they pay for: accusations, reports of a registry outside the chain, shares of a group key.
        let pays = self.registry.external_registry || self.registry.stake.is_some();
        let reporting = secrets.iter().filter(|_| pays);
        let reporting = reporting.map(|secret| GenesisAccount {
            identity: secret.identity(),
            balance: REPORTING_BALANCE,
        });
        Ok(NewChain {
            name: self.name.clone(),
            protocol: self.protocol,
            application: self.application,
            scheme: self.scheme,
            limits: DEFAULT_LIMITS,
            fees: match self.application {
                ApplicationKind::Ledger => DEFAULT_FEES,
                ApplicationKind::OrderOnly => Fees::NONE,
            },
            epoch_blocks: epoch_of(self.epoch_blocks, self.protocol)?,
            validators: secrets.iter().map(SecretKey::identity).collect(),
            registrations: Vec::new(),
            registry: self.registry.of_new_chain(self.scheme, addresses)?,
            accounts: own
                .into_iter()
                .chain(reporting)
                .chain(self.account.iter().cloned())
                .collect(),
        })
    }

    /// Calls `write` with the protection of the folder's keys. With [`Passphrases::Each`], creates
    /// and saves a random passphrase first.
    fn protect(
        &self,
        directory: &Path,
        passphrases: &Passphrases,
        write: impl FnOnce(Protection<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Made> {
        let mut passphrase = None;
        match passphrases {
            Passphrases::None => write(Protection::Plain)?,
            Passphrases::One(passphrase) => write(Protection::Encrypted(passphrase))?,
            Passphrases::Each => {
                let name = directory.file_name().unwrap_or_default();
                let file = self.out.join(PASSPHRASE_FOLDER).join(name);
                let random = Passphrase::random();
                random.save(&file)?;
                write(Protection::Encrypted(&random))?;
                passphrase = Some(file);
            }
        }
        Ok(Made {
            directory: directory.to_owned(),
            passphrase,
        })
    }

    fn tell(
        &self,
        made: &[Made],
        peers: &[(Identity, PeerAddress)],
        paying: Option<&Made>,
    ) -> anyhow::Result<()> {
        let out = self.out.display();
        let flags = |made: &Made| match (&made.passphrase, self.protection.is_plain()) {
            (Some(file), _) => format!(" --passphrase-file {}", file.display()),
            (None, true) => " --allow-plain-keys".to_owned(),
            (None, false) => String::new(),
        };
        let mut lines = vec![format!(
            "{} validators, {}, {}, {}",
            made.len(),
            self.protocol.name(),
            self.application.name(),
            self.scheme.name()
        )];
        for (place, (made, (_, address))) in made.iter().zip(peers).enumerate() {
            lines.push(format!(
                "validator {place}  {address}  {}",
                made.directory.display()
            ));
        }
        let faults = peers.len().saturating_sub(1) / 3;
        if faults == 0 {
            let n = peers.len();
            lines.push(format!(
                "note: with n = {n} the chain stops when any validator does; four tolerate one faulty one"
            ));
        }
        lines.extend(folders::late_start(self.protocol));
        lines.push(String::new());
        lines.push(match self.hosts.is_empty() {
            true => "Start each in a terminal of its own:".to_owned(),
            false => "Take each folder to its machine, and start it there:".to_owned(),
        });
        for made in made {
            lines.push(format!(
                "  quorate run --config {}/validator.toml{}",
                made.directory.display(),
                flags(made)
            ));
        }
        lines.push(String::new());
        match paying {
            Some(made) => {
                let [http, _] = local_ports(&peers[0].1)?;
                let flag = made.passphrase.as_ref().map_or(String::new(), |file| {
                    format!(" --passphrase-file {}", file.display())
                });
                lines.extend([
                    format!(
                        "{}/{IDENTITY_FILE} owns {}. Pay from it, on validator 0's machine or wherever its \
                         HTTP address is reached:",
                        made.directory.display(),
                        self.balance
                    ),
                    format!(
                        "  quorate tx transfer --key {}/{IDENTITY_FILE}{flag} --trust {out}/{TRUST_FILE} \\",
                        made.directory.display()
                    ),
                    format!(
                        "    --rpc http://127.0.0.1:{http} --to {} --amount 100 --wait",
                        peers[0].0
                    ),
                    "(that receiver is validator 0; `quorate keys generate` makes an account)".to_owned(),
                ]);
            }
            None if self.application == ApplicationKind::OrderOnly => {}
            None if self.account.is_empty() => {
                lines.push(format!(
                    "No account holds anything on this chain. {NO_ACCOUNT}"
                ));
            }
            None => {}
        }
        lines.extend([
            String::new(),
            match self.scheme {
                SchemeKind::BlsThreshold => format!(
                    "This machine was the trusted dealer: it has seen every key. Delete {out} here when the \
                     folders are where they belong."
                ),
                SchemeKind::BlsAggregate => format!(
                    "This machine has made every key. Delete {out} here when the folders are where they belong."
                ),
            },
            "Never run two copies of a folder: two validators with one key contradict each other."
                .to_owned(),
        ]);
        print_lines(&lines)
    }
}
