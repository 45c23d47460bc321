//! `quorate genesis ceremony`

use super::{
    folders,
    genesis::{epoch_of, parse_account},
    output::{print_fields, print_json, print_lines},
    passphrases::{NewKeys, protection_of},
    registry::describe_rules,
};
use crate::{
    ceremony::{
        Board, Plan, Transcript,
        exchange::Shared,
        folder::Folder,
        plan::{MAX_PLAN_BYTES, PLAN_FILE, Participant},
        run::{Ended, run},
        session::{Session, is_over},
        transcript::{MAX_TRANSCRIPT_BYTES, TRANSCRIPT_FILE},
    },
    config::{CONFIG_FILE, load_genesis},
    genesis::{GENESIS_FILE, TRUST_FILE, write_new},
    keys::{self, KeyAccess, PassphraseSource, VOTE_FILE},
};
use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use quorate_files::read_text;
use quorate_http::client::shown_lines;
use quorate_p2p::PeerAddress;
use quorate_storage::disk::{SystemDisk, write_atomically};
use quorate_types::{
    Identity,
    genesis::{DEFAULT_FEES, DEFAULT_LIMITS, Genesis, GenesisAccount, Protocol},
};
use serde_json::json;
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Make a bls-threshold chain together, without a dealer whom all must trust
///
/// Each operator runs one process. Together they make a group key that nobody knows: each gets its own share, and
/// every process verifies everything. At the end all have the same genesis.json.
///
/// 1. Each operator makes an identity (`quorate keys generate`), and tells one of them the identity and an address.
/// 2. That one makes a plan (`quorate genesis ceremony plan`) and sends it to all.
/// 3. Each checks the plan (`quorate genesis ceremony check`). All compare its digest over a channel that they trust.
/// 4. Each runs `quorate genesis ceremony run`, at about the same time. It waits until all are there.
#[derive(Subcommand)]
pub(super) enum Ceremony {
    /// Make a plan from the participants' identities and addresses
    Plan(MakePlan),
    /// Check a plan, and show its digest
    Check(Check),
    /// Take part in a ceremony
    Run(Box<Run>),
    /// Check a ceremony's transcript, and that the genesis file is what it leads to
    Verify(Verify),
}

/// Make a plan from the participants' identities and addresses
///
/// The plan is a TOML file, which can be edited before it is sent to all: block limits, fees, a stake for each participant
/// and the rules of a registry have no flags here. All participants need the same file.
#[derive(Args)]
#[command(after_help = "Example:
  quorate genesis ceremony plan --name mychain --out plan.toml \\
    --participant 3b6a…@v0.example.org:26600 9c1f…@v1.example.org:26600 \\
                  77d0…@v2.example.org:26600 e2b4…@v3.example.org:26600 \\
    --account 5fa1…=1000000")]
pub(super) struct MakePlan {
    /// The chain's name, for display; 1 to 64 bytes
    #[arg(long)]
    name: String,
    /// The participants, who will be the validators in this order: each one's identity and the address where the
    /// others reach it, an IP address or a host name, and a port. The process of the ceremony listens on that port, and
    /// later the validator
    #[arg(long, value_name = "IDENTITY@HOST:PORT", num_args = 1.., required = true)]
    participant: Vec<String>,
    /// Accounts that exist from the start, with their balances
    #[arg(long, value_name = "HEX=BALANCE", num_args = 1.., value_parser = parse_account)]
    account: Vec<GenesisAccount>,
    /// The consensus protocol: simplex, hotstuff-chained, hotstuff-basic or pbft (which to choose: docs/OPERATING.md, "Which protocol")
    #[arg(long, default_value = "simplex")]
    protocol: Protocol,
    /// The length of an epoch in blocks; 10000 by default with simplex, 1000 with the other protocols
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epoch_blocks: Option<u64>,
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = PLAN_FILE)]
    out: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Check a plan, and show its digest
///
/// The digest stands for the whole content. If all participants see the same, all have the same plan.
#[derive(Args)]
#[command(after_help = "Example:
  quorate genesis ceremony check plan.toml")]
pub(super) struct Check {
    /// The plan
    #[arg(value_name = "FILE", default_value = PLAN_FILE)]
    plan: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Take part in a ceremony
///
/// Waits for all participants and says for whom it waits. If it is interrupted or killed, the same command goes on where
/// it was. At the end the directory holds vote.key (secret, mode 0600), genesis.json, trust.json, transcript.json
/// and validator.toml; with the identity key they make a validator's folder.
///
/// Until then it also holds ceremony.key (secret, mode 0600), from which this participant's secrets follow. It is erased at the end. Do not
/// copy it: whoever has it and its passphrase can compute the share.
///
/// What is sent is signed and secret values are sealed, so it needs no TLS. The port must be reachable for the
/// other participants.
#[derive(Args)]
#[command(after_help = "Example:
  quorate genesis ceremony run --plan plan.toml --key validator/identity.key --out validator")]
pub(super) struct Run {
    /// The plan, the same for all participants
    #[arg(long, value_name = "FILE", default_value = PLAN_FILE)]
    plan: PathBuf,
    /// This participant's identity key file
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Directory to write to; created if missing. It may be that of the identity key
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The address to listen on, if it is not the port of this participant's address on all interfaces (on 127.0.0.1, if
    /// the address is one of this machine only)
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// Once this participant has its files: for how long others that are not done yet are waited for, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    patience: u64,
    #[command(flatten)]
    protection: NewKeys,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Check a ceremony's transcript, and that the genesis file is what it leads to
///
/// Works offline, for anybody: checks all signatures and dealings, and that each participant has signed with its
/// share. Shows the plan's digest, which the participants have compared. Also checks the proof that a failed ceremony leaves (ceremony.json),
/// and says who is faulty.
#[derive(Args)]
#[command(after_help = "Example:
  quorate genesis ceremony verify validator/transcript.json")]
pub(super) struct Verify {
    /// The transcript
    transcript: PathBuf,
    /// The genesis file [default: genesis.json beside the transcript]
    #[arg(long, value_name = "FILE")]
    genesis: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Ceremony {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Plan(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Run(command) => command.run(),
            Self::Verify(command) => command.run(),
        }
    }
}

fn load_plan(path: &Path) -> anyhow::Result<Plan> {
    let text = read_text(path, MAX_PLAN_BYTES)?;
    Plan::from_toml(&text).with_context(|| format!("the plan {}", path.display()))
}

impl MakePlan {
    fn run(self) -> anyhow::Result<()> {
        let participants = self.participant.iter().map(|text| {
            let parse = || {
                let (identity, address) = text.split_once('@')?;
                Some((identity.parse().ok()?, address.parse().ok()?))
            };
            let (identity, address): (Identity, PeerAddress) = parse().with_context(|| {
                format!(
                    "--participant {text}: give an identity (64 hexadecimal digits), @, and an address with a port"
                )
            })?;
            Ok(Participant {
                identity,
                address: address.to_string(),
                stake: 0,
            })
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let plan = Plan {
            name: self.name.clone(),
            timestamp_ms: now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(0)),
            protocol: self.protocol,
            epoch_blocks: epoch_of(self.epoch_blocks, self.protocol)?,
            limits: DEFAULT_LIMITS,
            fees: DEFAULT_FEES,
            registry: None,
            participants: participants.collect::<anyhow::Result<_>>()?,
            accounts: self.account.clone(),
        };
        plan.check().context("there can be no such ceremony")?;
        folders::check_addresses(&addresses(&plan)?)?;
        let text = plan.to_toml().context("a number is too large for TOML")?;
        write_new(&self.out, &text)?;
        let digest = plan.digest();
        if self.json {
            return print_json(&json!({ "plan": self.out, "digest": digest }));
        }
        print_lines(&[
            format!("plan    {}", self.out.display()),
            format!("digest  {digest}"),
            String::new(),
            "Send the file to all participants. Each checks it and compares the digest:".to_owned(),
            format!("  quorate genesis ceremony check {}", self.out.display()),
        ])
    }
}

impl Check {
    fn run(self) -> anyhow::Result<()> {
        let plan = load_plan(&self.plan)?;
        let (digest, quorum) = (plan.digest(), quorum(&plan));
        if self.json {
            return print_json(&json!({
                "name": plan.name, "digest": digest, "quorum": quorum,
                "participants": plan.participants, "accounts": plan.accounts.len(),
                "registry": plan.registry,
            }));
        }
        for one in plan.without_money() {
            eprintln!(
                "warning: {} has no money under `[[accounts]]`: with `resharing` each validator pays for three \
                 transactions in each epoch, and nothing is passed on until it can",
                one.identity
            );
        }
        let total: u64 = plan.accounts.iter().map(|account| account.balance).sum();
        print_fields(&[
            ("digest", digest.to_string()),
            ("name", plan.name.clone()),
            ("participants", format!("n = {}", plan.size())),
            ("quorum", format!("n - f = {quorum}")),
            ("protocol", plan.protocol.name().to_owned()),
            ("epoch", format!("{} blocks", plan.epoch_blocks.blocks())),
            (
                "accounts",
                format!("{}, holding {total} in all", plan.accounts.len()),
            ),
            ("registry", describe_rules(plan.registry)),
        ])?;
        let all = plan.participants.iter().enumerate();
        let mut lines: Vec<String> = all
            .map(|(place, one)| {
                let stake = match plan.registry {
                    Some(_) => format!("  stake {}", one.stake),
                    None => String::new(),
                };
                format!("  {place:>4}  {}  {}{stake}", one.identity, one.address)
            })
            .collect();
        lines.extend(folders::late_start(plan.protocol));
        print_lines(&lines)
    }
}

fn quorum(plan: &Plan) -> usize {
    let n = plan.participants.len();
    n - n.saturating_sub(1) / 3
}

fn addresses(plan: &Plan) -> anyhow::Result<Vec<PeerAddress>> {
    let all = plan.participants.iter();
    Ok(all.map(Participant::address).collect::<Result<_, _>>()?)
}

impl Run {
    fn run(self) -> anyhow::Result<()> {
        let plan = load_plan(&self.plan)?;
        let digest = plan.digest();
        let access = self.protection.access();
        let identity = keys::load_identity(&self.key, &access)?;
        let own = identity.identity();
        let place = plan.place_of(&own).with_context(|| {
            format!(
                "{}: the identity {own} is not among the participants of {}",
                self.key.display(),
                self.plan.display()
            )
        })?;
        let folder = Folder::open(&self.out)?;
        if let Some(board) = is_over(&folder, &digest)? {
            return self.report(&board, place, &Ended::Over, "the ceremony is over already");
        }
        let passphrase = self.protection.choose_as(&access)?;
        let protection = protection_of(passphrase.as_ref());
        // The seed and the share of an earlier start, without asking again.
        let access = match &passphrase {
            Some(passphrase) => KeyAccess {
                passphrase: PassphraseSource::given(passphrase.clone()),
                allow_plain: true,
            },
            None => self.protection.access(),
        };
        let address = plan.participants[place as usize].address()?;
        self.say(format!("plan digest {digest}; this is participant {place} of {}. Compare the digest with the others", plan.size()));
        let shared = Arc::new(Shared::new(Board::new(plan), place));
        let mut session = Session::open(shared.clone(), identity, folder, &access, protection)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let ended = runtime.block_on(async {
            let listen = self.listen.unwrap_or_else(|| listen_address(&address));
            let listener = quorate_http::listen(listen).map_err(|error| match error.kind() {
                ErrorKind::AddrInUse => anyhow::anyhow!(
                    "cannot listen on {listen}: the address is already in use; choose another --listen"
                ),
                _ => anyhow::anyhow!("cannot listen on {listen}: {error}; choose another --listen"),
            })?;
            let hosts = match &address {
                PeerAddress::Ip(_) => Vec::new(),
                PeerAddress::Name { host, .. } => vec![host.clone()],
            };
            let patience = Duration::from_secs(self.patience);
            let mut say = |line| self.say(line);
            run(&mut session, &shared, listener, hosts, patience, &mut say).await
        })?;
        self.report(&shared.board(), place, &ended, "the ceremony is complete")
    }

    /// Progress: on standard error, so that the result stands alone on standard output.
    fn say(&self, line: String) {
        eprintln!("{}", shown_lines(&line));
    }

    fn report(&self, board: &Board, place: u32, ended: &Ended, what: &str) -> anyhow::Result<()> {
        let outcome = board.outcome().context("there is no chain")?;
        let config = self.write_config(board.plan(), &outcome.genesis, place)?;
        let missing = match ended {
            Ended::Over => Vec::new(),
            Ended::Alone { missing } => missing.clone(),
        };
        if self.json {
            return print_json(&json!({
                "chain_id": outcome.chain, "plan_digest": board.digest(), "participant": place,
                "genesis": self.out.join(GENESIS_FILE), "trust": self.out.join(TRUST_FILE),
                "transcript": self.out.join(TRANSCRIPT_FILE), "vote_key": self.out.join(VOTE_FILE),
                "config": config.as_ref().ok(), "not_known_to_be_done": missing,
            }));
        }
        let out = self.out.display();
        let mut lines = vec![
            format!(
                "{what}; nobody knows the chain's key, and {out}/{VOTE_FILE} holds this validator's share"
            ),
            format!("chain id    {}", outcome.chain),
            format!("genesis     {out}/{GENESIS_FILE}"),
            format!("trust       {out}/{TRUST_FILE}"),
            format!("transcript  {out}/{TRANSCRIPT_FILE}"),
        ];
        match config {
            Ok(path) => lines.push(format!("config      {}", path.display())),
            Err(problem) => lines.push(format!("no {CONFIG_FILE} is written: {problem}")),
        }
        if !missing.is_empty() {
            let names = missing.iter().map(|one| board.plan().name_of(*one));
            lines.push(format!(
                "\nIt is not known whether these have the result too: {}. If they wait, run the same command again.",
                names.collect::<Vec<_>>().join(", ")
            ));
        }
        print_lines(&lines)
    }

    /// Writes the validator's configuration, unless there is one. The inner error says why there can be none.
    fn write_config(
        &self,
        plan: &Plan,
        genesis: &Genesis,
        place: u32,
    ) -> anyhow::Result<Result<PathBuf, String>> {
        let path = self.out.join(CONFIG_FILE);
        let addresses = addresses(plan)?;
        if let Err(problem) = folders::check_addresses(&addresses) {
            return Ok(Err(problem.to_string()));
        }
        if !path.exists() {
            let is_here = addresses[place as usize]
                .ip()
                .is_some_and(|at| at.ip().is_loopback());
            let identities = plan.participants.iter().map(|one| one.identity);
            let peers: Vec<_> = identities.zip(addresses).collect();
            let text = folders::config_text(genesis, &peers, place as usize, is_here)?;
            write_atomically(&SystemDisk, &path, text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Ok(path))
    }
}

/// Where to listen, if nothing else is said.
fn listen_address(address: &PeerAddress) -> SocketAddr {
    let any = match address {
        PeerAddress::Ip(at) if at.ip().is_loopback() => return *at,
        PeerAddress::Name { host, .. } if host == "localhost" => Ipv4Addr::LOCALHOST,
        _ => Ipv4Addr::UNSPECIFIED,
    };
    SocketAddr::from((any, address.port()))
}

impl Verify {
    fn run(self) -> anyhow::Result<()> {
        let file = self.transcript.display();
        let text = read_text(&self.transcript, MAX_TRANSCRIPT_BYTES)?;
        let transcript = Transcript::from_json(&text);
        let transcript = transcript.with_context(|| format!("{file} shows nothing"))?;
        let expected = transcript.verify();
        let expected = expected.with_context(|| format!("{file} leads to no chain"))?;
        let beside = self.transcript.with_file_name(GENESIS_FILE);
        let path = self.genesis.unwrap_or(beside);
        let genesis = load_genesis(&path)?;
        let (made, held) = (expected.chain_id(), genesis.chain_id());
        ensure!(
            genesis == expected,
            "{} is another chain than the transcript leads to: its chain id is {held}, and the transcript's is {made}",
            path.display()
        );
        let digest = transcript.plan.digest();
        if self.json {
            return print_json(&json!({
                "chain_id": made, "plan_digest": digest,
                "participants": transcript.plan.participants.len(),
            }));
        }
        print_lines(&[
            format!("chain id     {made}"),
            format!("plan digest  {digest}"),
            format!(
                "All {} participants have dealt, and each has signed for this chain with its identity and with its \
                 share. {} is what they have made.",
                transcript.plan.participants.len(),
                path.display()
            ),
        ])
    }
}
