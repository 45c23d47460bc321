//! `quorate registry`

use super::{
    output::{print_fields, print_json, print_lines},
    passphrases::Opening,
    rpc::{Rpc, amount, block_on},
    trust::learn,
    tx::Sending,
};
use crate::{config::load_genesis, keys};
use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use commonware_codec::Encode as _;
use quorate_api::{ExternalJson, RegistryJson, ResharingJson, RpcClient, verdict::counted};
use quorate_http::client::shown;
use quorate_machine::{
    clock::now_ms,
    evidence::{pair_of, read_file},
};
use quorate_p2p::PeerAddress;
use quorate_types::{
    Account, Bond, BondAddress, BondName, Epoch, ExternalEntry, Identity, Member, Memo, Operation,
    Phase, Possession, REGISTRY, RegistryRules, Slashing, ValidatorSet, VoteKey,
    registry::{NextSet, RegistryContext, resharing},
};
use std::{collections::BTreeMap, path::PathBuf};

/// Show the staking registry; become a validator, change what it says, and cease to be one
///
/// On a chain with a registry, the validators of an epoch are those with the most at stake. The state in
/// the middle of an epoch fixes the validators of the next one. Each change is a transaction of the
/// validator's own account: the account of its identity key, which must hold the stake and the fee.
#[derive(Subcommand)]
pub(super) enum Registry {
    /// Show the validators of this epoch and the next one, and everybody with a bond
    List(List),
    /// Show one bond
    Show(Show),
    /// Put stake up for a new validator, with its vote key and address
    Bond(BondCommand),
    /// Add stake to a bond
    AddStake(StakeCommand),
    /// Take stake out of a bond; it is held for some epochs, and can then be withdrawn
    Unbond(StakeCommand),
    /// Move unbonded stake that is no longer held back to the account's balance
    Withdraw(PlainCommand),
    /// Replace the vote key, from the next set of validators on
    RotateKey(RotateCommand),
    /// Replace the address and the name
    Describe(DescribeCommand),
    /// Accuse a validator of two votes that contradict each other: it is slashed, and not chosen for some epochs
    Accuse(AccuseCommand),
    /// Print a validator's entry for a registry outside the chain
    Entry(EntryCommand),
}

/// Print a validator's entry for a registry outside the chain
///
/// It holds the vote key with a proof that its secret is known, for this chain's name and the validator's
/// identity. Nothing is sent.
#[derive(Args)]
#[command(after_help = "Example:
  quorate registry entry --genesis validator/genesis.json --key validator/identity.key \\
    --vote-key validator/vote.key --stake 1000000 --address v7.example.org:26600 --name seven >> registry.toml")]
pub(super) struct EntryCommand {
    /// The chain's genesis file
    #[arg(long, value_name = "FILE")]
    genesis: PathBuf,
    /// The file of the validator's identity key
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The file of its vote key
    #[arg(long, value_name = "FILE")]
    vote_key: PathBuf,
    /// Its stake, in whatever unit the registry counts
    #[arg(
        long,
        value_name = "N",
        value_parser = amount,
        allow_negative_numbers = true,
        required_unless_present = "calldata"
    )]
    stake: Option<u64>,
    #[command(flatten)]
    described: Described,
    #[command(flatten)]
    opening: Opening,
    /// Print the data of a transaction that bonds for it in a staking contract (deploy/staking), in hexadecimal; the
    /// stake is the ether that the transaction brings
    #[arg(long, conflicts_with = "json")]
    calldata: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Show the validators of this epoch and the next one, and everybody with a bond
///
/// The answer is the node's statement; an account's bond is proven by `quorate account --trust`.
#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    rpc: Rpc,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Show one bond
#[derive(Args)]
pub(super) struct Show {
    /// The validator's identity (64 hexadecimal digits)
    identity: Identity,
    #[command(flatten)]
    rpc: Rpc,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How to send an operation
#[derive(Args)]
struct How {
    #[command(flatten)]
    sending: Sending,
    /// Send nothing: show whether it would be accepted now, and which validators the next set would have
    #[arg(long)]
    dry_run: bool,
}

/// Where a validator is, and what people call it
#[derive(Args)]
struct Described {
    /// Where other validators reach it: host:port, at most 48 characters
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    address: BondAddress,
    /// What people call it: at most 24 characters, without spaces
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    name: BondName,
}

/// Put stake up for a new validator, with its vote key and address
///
/// `--key` is the validator's identity key, whose account pays. `quorate init` makes both keys.
#[derive(Args)]
#[command(after_help = "Example:
  quorate registry bond --key validator/identity.key --vote-key validator/vote.key --stake 1000000 \\
    --address v7.example.org:26600 --name seven --chain-id 9e3c… --wait")]
pub(super) struct BondCommand {
    #[command(flatten)]
    how: How,
    /// The vote key's file; not needed where validators share a key (bls-threshold)
    #[arg(long, value_name = "FILE")]
    vote_key: Option<PathBuf>,
    /// The stake, in the chain's smallest unit
    #[arg(long, value_name = "N", value_parser = amount, allow_negative_numbers = true)]
    stake: u64,
    #[command(flatten)]
    described: Described,
}

/// Change the stake of a bond
#[derive(Args)]
pub(super) struct StakeCommand {
    #[command(flatten)]
    how: How,
    /// How much, in the chain's smallest unit
    #[arg(long, value_name = "N", value_parser = amount, allow_negative_numbers = true)]
    stake: u64,
}

/// Move unbonded stake that is no longer held back to the account's balance
#[derive(Args)]
pub(super) struct PlainCommand {
    #[command(flatten)]
    how: How,
}

/// Replace the vote key, from the next set of validators on
///
/// Keep the old key in the validator's `vote_key` file until the epoch in which the new one counts
/// (`quorate registry list`), then put the new one there and restart. A validator whose file has another
/// key than the registry follows, and does not vote.
#[derive(Args)]
pub(super) struct RotateCommand {
    #[command(flatten)]
    how: How,
    /// The file of the new vote key
    #[arg(long, value_name = "FILE")]
    vote_key: PathBuf,
}

/// Replace the address and the name
#[derive(Args)]
pub(super) struct DescribeCommand {
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    described: Described,
}

/// Accuse a validator of two votes that contradict each other: it is slashed, and not chosen for some epochs
///
/// Anybody may, and nobody gains by it. A chain punishes if its genesis file has `registry.slashing`.
#[derive(Args)]
#[command(after_help = "Example:
  quorate evidence show 4f2a > pair.json
  quorate registry accuse --evidence pair.json --key identity.key --trust trust.json --wait")]
pub(super) struct AccuseCommand {
    #[command(flatten)]
    how: How,
    /// The evidence, as `quorate evidence show` prints it
    #[arg(long, value_name = "FILE")]
    evidence: PathBuf,
}

fn address(text: &str) -> Result<BondAddress, String> {
    let _: PeerAddress = text.parse().map_err(|error| format!("{error}"))?;
    text.parse().map_err(|error| format!("{error}"))
}

impl Registry {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Bond(command) => {
                let BondCommand {
                    how,
                    vote_key,
                    stake,
                    described,
                } = command;
                let make = |key: &VoteKey, possession: &Possession| Operation::Bond {
                    vote_key: *key,
                    possession: *possession,
                    address: described.address.clone(),
                    name: described.name.clone(),
                };
                how.run(stake, vote_key.as_ref(), make)
            }
            Self::AddStake(command) => {
                let stake = command.stake;
                command.how.run(stake, None, |_, _| Operation::AddStake)
            }
            Self::Unbond(command) => {
                let stake = command.stake;
                command.how.run(0, None, |_, _| Operation::Unbond { stake })
            }
            Self::Withdraw(command) => command.how.run(0, None, |_, _| Operation::Withdraw),
            Self::RotateKey(command) => {
                let make = |key: &VoteKey, possession: &Possession| Operation::RotateKey {
                    vote_key: *key,
                    possession: *possession,
                };
                command.how.run(0, Some(&command.vote_key), make)
            }
            Self::Describe(command) => {
                let Described { address, name } = command.described;
                let make = |_: &VoteKey, _: &Possession| Operation::Describe {
                    address: address.clone(),
                    name: name.clone(),
                };
                command.how.run(0, None, make)
            }
            Self::Accuse(command) => command.run(),
            Self::Entry(command) => command.run(),
        }
    }
}

impl EntryCommand {
    fn run(self) -> anyhow::Result<()> {
        let access = self.opening.access();
        let genesis = load_genesis(&self.genesis)?;
        let identity = keys::load_identity(&self.key, &access)?.identity();
        let secret = keys::load_vote_secret(&self.vote_key, &access)?;
        let entry = ExternalEntry {
            stake: self.stake.unwrap_or(0),
            vote_key: VoteKey(secret.public_key()),
            possession: Possession(secret.prove_possession(&genesis.name, &identity.0)),
            address: self.described.address,
            name: self.described.name,
        };
        if self.calldata {
            let call = quorate_registry::bond_call(&identity, &entry);
            return print_lines(&[format!("0x{}", hex::encode(call))]);
        }
        let entries = BTreeMap::from([(identity, entry)]);
        let text = quorate_registry::to_toml(&entries).context("--stake is too large for TOML")?;
        if self.json {
            let table: toml::Value = toml::from_str(&text)?;
            return print_json(&table["validators"][0]);
        }
        print_lines(&[text.trim_end()])
    }
}

impl AccuseCommand {
    fn run(self) -> anyhow::Result<()> {
        let file = self.evidence.display().to_string();
        let told = read_file(&self.evidence)?;
        let evidence = pair_of(&told).context(file.clone())?;
        ensure!(
            evidence.conflict().is_some(),
            "{file}: an honest validator may cast both votes, so they prove nothing"
        );
        let client = self.how.sending.rpc.client()?;
        let verifier = self.how.sending.chain.verifier()?;
        let epoch = evidence.first.subject.epoch;
        let validator = block_on(async {
            if let Some(verifier) = &verifier {
                learn(&client, verifier).await?;
                let known = verifier.committees().set(epoch);
                let known = known
                    .context("the trust file begins with later validators than these votes")?;
                for vote in [&evidence.first, &evidence.second] {
                    ensure!(
                        verifier.verify_vote(vote),
                        "{file}: a signature does not verify: it convicts nobody"
                    );
                }
                let member = known.members().get(evidence.first.signer.as_usize());
                return Ok(member.map(|member| member.identity));
            }
            // The place is known to the node only if the epoch is its own.
            let registry = client.registry().await?;
            let member = registry.acting.get(evidence.first.signer.as_usize());
            Ok(member
                .filter(|_| registry.epoch == epoch)
                .map(|member| member.identity))
        })?;
        let validator = validator.with_context(|| {
            format!(
                "who validator {} of epoch {epoch} is, is not known: give the chain's trust file with --trust",
                evidence.first.signer
            )
        })?;
        let make = |_: &VoteKey, _: &Possession| Operation::Accuse {
            validator,
            evidence: Box::new(evidence),
        };
        self.how.run(0, None, make)
    }
}

impl How {
    /// Makes the operation, with a proof of possession of a vote key if it needs one, and sends it.
    fn run(
        self,
        amount: u64,
        vote_key: Option<&PathBuf>,
        make: impl FnOnce(&VoteKey, &Possession) -> Operation,
    ) -> anyhow::Result<()> {
        let access = self.sending.opening.access();
        let identity = keys::load_identity(&self.sending.key, &access)?.identity();
        let vote_secret = vote_key
            .map(|path| keys::load_vote_secret(path, &access))
            .transpose()?;
        let client = self.sending.rpc.client()?;
        block_on(async move {
            let status = client.status().await?;
            let registry = client.registry().await?;
            let shares = registry.rules.resharing;
            let (key, possession) = match &vote_secret {
                Some(secret) if !shares => (
                    VoteKey(secret.public_key()),
                    Possession(secret.prove_possession(&status.name, &identity.0)),
                ),
                _ => (VoteKey::NONE, Possession::NONE),
            };
            let operation = make(&key, &possession);
            match &operation {
                Operation::Bond { .. } if vote_secret.is_none() && !shares => {
                    bail!(
                        "--vote-key is missing: on this chain each validator has a vote key of its own"
                    )
                }
                Operation::RotateKey { .. } if shares => bail!(
                    "this chain's validators share one vote key, and get new shares of it at each border: there is \
                     nothing to rotate"
                ),
                _ => {}
            }
            if let (true, Operation::Accuse { validator, .. }) = (self.dry_run, &operation) {
                return print_lines(&[format!("it would accuse {validator}. Nothing is sent")]);
            }
            if self.dry_run {
                return foresee(
                    &client,
                    &registry,
                    &status.name,
                    (identity, amount),
                    &operation,
                )
                .await;
            }
            let memo = Memo::new(operation.encode()).context("the operation is too long")?;
            self.sending.submit(client, REGISTRY, amount, memo).await
        })
    }
}

/// Shows what an operation would do, by what the node says.
async fn foresee(
    client: &RpcClient,
    registry: &RegistryJson,
    chain_name: &str,
    (identity, amount): (Identity, u64),
    operation: &Operation,
) -> anyhow::Result<()> {
    let chain = client.status().await?.chain_id;
    let answer = client.account(&identity, false).await?;
    let mut bonds: BTreeMap<Identity, Bond> = registry
        .bonds
        .iter()
        .map(|bond| (bond.identity, bond.clone()))
        .collect();
    let mut account = Account {
        bond: bonds.get(&identity).cloned().map(Box::new),
        ..Account::plain(answer.nonce, answer.balance)
    };
    let context = RegistryContext {
        rules: Some(&registry.rules),
        chain_name,
        chain,
        epoch: registry.epoch,
        phase: Phase::Over,
        committees: None,
    };
    if let Err(failure) = operation.apply(&context, &identity, amount, &mut account) {
        let name = quorate_types::Outcome::Failed(failure).name();
        bail!("it would fail, and cost its fee: {name}");
    }
    match account.bond {
        Some(bond) => drop(bonds.insert(identity, *bond)),
        None => drop(bonds.remove(&identity)),
    }
    let (set, next, of) = next_set(registry, &bonds)?;
    let mut lines = vec![format!(
        "it would be applied. Nothing is sent. If all acting validators are there, those of epoch {of} would be:"
    )];
    lines.extend(
        set.members()
            .iter()
            .enumerate()
            .map(|(place, member)| format!("  {place:>3}  {}  {}", member.identity, member.name)),
    );
    lines.extend(
        next.kept
            .iter()
            .map(|one| format!("  kept although its stake no longer suffices: {one}")),
    );
    lines.extend(
        next.waiting
            .iter()
            .map(|one| format!("  has to wait for a later epoch: {one}")),
    );
    if !set
        .members()
        .iter()
        .any(|member| member.identity == identity)
        && let Some(bond) = bonds
            .get(&identity)
            .filter(|bond| bond.since > set.epoch.previous().unwrap_or_default())
    {
        lines.push(format!(
            "{identity} can be chosen in epoch {} for epoch {} at the earliest",
            bond.since,
            bond.since.next()
        ));
    }
    print_lines(&lines)
}

/// The set that the bonds make: the next one, or the one after it if the next one is fixed.
fn next_set(
    registry: &RegistryJson,
    bonds: &BTreeMap<Identity, Bond>,
) -> anyhow::Result<(ValidatorSet, NextSet, Epoch)> {
    let (epoch, members) = match &registry.coming {
        Some(coming) => (registry.epoch.next(), coming),
        None => (registry.epoch, &registry.acting),
    };
    let acting = ValidatorSet::of_members(epoch, members.clone());
    // Who is silent is not in the answer.
    let everybody = members.iter().map(|member| member.identity);
    if registry.rules.resharing {
        let everybody = everybody.chain(bonds.keys().copied()).collect();
        let next = resharing::players(&acting, bonds, &registry.rules, &everybody);
        let next = next.context("nothing can be passed on to these validators")?;
        let members = next.members.iter().map(|identity| {
            let bond = bonds.get(identity);
            let own = members.iter().find(|one| one.identity == *identity);
            Member {
                identity: *identity,
                // Its share is not dealt yet.
                vote_key: VoteKey::NONE,
                address: bond
                    .map(|bond| bond.address.clone())
                    .or(own.map(|own| own.address.clone()))
                    .unwrap_or_default(),
                name: bond
                    .map(|bond| bond.name.clone())
                    .or(own.map(|own| own.name.clone()))
                    .unwrap_or_default(),
            }
        });
        let set = ValidatorSet::of_members(epoch.next(), members.collect());
        return Ok((set, next, epoch.next()));
    }
    let everybody = everybody.collect();
    let (set, next) = acting.following(bonds, &registry.rules, &everybody)?;
    Ok((set, next, epoch.next()))
}

impl List {
    fn run(self) -> anyhow::Result<()> {
        let client = self.rpc.client()?;
        let registry = block_on(async { Ok(client.registry().await?) })?;
        if self.json {
            return print_json(&registry);
        }
        let names: BTreeMap<Identity, &Bond> = registry
            .bonds
            .iter()
            .map(|bond| (bond.identity, bond))
            .collect();
        let line = |(place, member): (usize, &Member)| {
            let stake = names.get(&member.identity).map_or(0, |bond| bond.stake);
            format!(
                "  {place:>3}  {}  stake {stake}  {} {}",
                member.identity, member.address, member.name
            )
        };
        let mut lines = vec![format!(
            "epoch {}, after block {}: {} validators",
            registry.epoch,
            registry.executed_height,
            registry.acting.len()
        )];
        lines.extend(registry.acting.iter().enumerate().map(line));
        match &registry.coming {
            Some(coming) => {
                lines.push(format!(
                    "epoch {}, from block {}: {} validators",
                    registry.epoch.next(),
                    registry.last_height.next(),
                    coming.len()
                ));
                lines.extend(coming.iter().enumerate().map(line));
            }
            None => lines.push(format!(
                "epoch {}: fixed by the state after block {}",
                registry.epoch.next(),
                registry.fixing_height
            )),
        }
        lines.push(format!(
            "bonds: {} ({})",
            registry.bonds.len(),
            bounds(&registry.rules)
        ));
        lines.extend(registry.bonds.iter().map(|bond| {
            let leaving = match bond.leaving {
                0 => String::new(),
                leaving => format!("  leaving {leaving} from epoch {}", bond.leaves_at),
            };
            let later = match bond.since > registry.epoch {
                true => format!("  can be chosen from epoch {}", bond.since),
                false => String::new(),
            };
            format!(
                "  {}  stake {}{leaving}{later}  {} {}",
                bond.identity, bond.stake, bond.address, bond.name
            )
        }));
        let external = registry.external.iter();
        lines.extend(external.flat_map(|one| external_lines(one, registry.rules.min_stake)));
        let resharing = registry.resharing.iter();
        lines.extend(resharing.flat_map(|state| resharing_lines(state, &registry)));
        print_lines(&lines)
    }
}

/// How far passing on the shares of the common vote key is.
fn resharing_lines(state: &ResharingJson, registry: &RegistryJson) -> Vec<String> {
    let mut lines = vec![match state.kept_epochs {
        0 => format!(
            "shares of the common vote key: phase {}",
            shown(&state.phase)
        ),
        kept => format!(
            "shares of the common vote key: phase {}; the validators have kept theirs for {}",
            shown(&state.phase),
            counted(kept, "epoch")
        ),
    }];
    let acting: Vec<Identity> = registry.acting.iter().map(|one| one.identity).collect();
    let mut line = |what: &str, of: &[Identity], all: &[Identity]| {
        let missing: Vec<String> = (all.iter())
            .filter(|one| !of.contains(one))
            .map(Identity::short)
            .collect();
        let rest = match missing.is_empty() {
            true => String::new(),
            false => format!("; not: {}", missing.join(", ")),
        };
        lines.push(format!("  {what}: {} of {}{rest}", of.len(), all.len()));
    };
    let announced: Vec<Identity> = (state.announced.iter().copied())
        .filter(|one| acting.contains(one))
        .collect();
    line(
        "validators that have announced themselves",
        &announced,
        &acting,
    );
    let newcomers = state.announced.len() - announced.len();
    if !state.players.is_empty() {
        line("validators that have dealt", &state.dealt, &acting);
        line(
            "players that have proven their new shares",
            &state.proven,
            &state.players,
        );
    }
    lines.push(format!(
        "  newcomers that have announced themselves: {newcomers}"
    ));
    for barred in &state.barred {
        lines.push(format!(
            "  cannot announce itself before epoch {}, since it has proven no share: {}",
            barred.until, barred.identity
        ));
    }
    for convicted in &state.convicted {
        lines.push(format!("  has dealt something wrong: {convicted}"));
    }
    lines
}

/// What the node says of the registry outside the chain.
fn external_lines(external: &ExternalJson, min_stake: u64) -> Vec<String> {
    let ago = |at_ms: Option<u64>| match at_ms {
        Some(at) => {
            let ms = now_ms().saturating_sub(at);
            format!("read {} s ago", ms / 1_000)
        }
        None => "never read".to_owned(),
    };
    let at = |block: Option<u64>| block.map_or(String::new(), |block| format!(", block {block}"));
    let mut lines = vec![format!(
        "external registry: {} validators, {}{}",
        external.entries.unwrap_or(0),
        ago(external.read_at_ms),
        at(external.block)
    )];
    let trouble = |what: &str, trouble: &Option<String>| {
        trouble
            .as_ref()
            .map(|trouble| format!("  {what}: {}", shown(trouble)))
    };
    lines.extend(trouble("not in order", &external.trouble));
    lines.extend(trouble("cannot report", &external.report_trouble));
    lines.extend(external.sources.iter().map(|source| {
        let state = match &source.trouble {
            Some(trouble) => shown(trouble),
            None => "good".to_owned(),
        };
        let when = ago(source.last_good_ms);
        let block = at(source.block);
        format!("  source {}: {when}{block}; {state}", shown(&source.name))
    }));
    lines.extend((external.left_out.iter()).map(|one| format!("  left out: {}", shown(&one.why))));
    lines.extend(external.too_small.iter().map(|one| {
        format!(
            "  listed, and does not count: {}  stake {}, at least {min_stake} is needed",
            one.validator, one.stake
        )
    }));
    lines.extend(external.differences.iter().map(|one| {
        format!(
            "  differs from the chain: {}  {}, reported by {} validators",
            one.validator,
            shown(&one.kind),
            one.reporters
        )
    }));
    lines
}

impl Show {
    fn run(self) -> anyhow::Result<()> {
        let client = self.rpc.client()?;
        let registry = block_on(async { Ok(client.registry().await?) })?;
        let differs = registry.external.as_ref().and_then(|external| {
            let mut differences = external.differences.iter();
            differences.find(|one| one.validator == self.identity)
        });
        let bond = registry
            .bonds
            .iter()
            .find(|bond| bond.identity == self.identity);
        let too_small = registry.external.as_ref().and_then(|external| {
            let mut listed = external.too_small.iter();
            listed.find(|one| one.validator == self.identity)
        });
        let bond = bond.with_context(|| match differs {
            _ if too_small.is_some() => format!(
                "{} has no bond: the external registry lists it with less than the least stake, {}",
                self.identity, registry.rules.min_stake
            ),
            Some(one) => format!(
                "{} has no bond yet: the external registry lists it, which {} validators report",
                self.identity, one.reporters
            ),
            None => format!("{} has no bond", self.identity),
        })?;
        if self.json {
            return print_json(bond);
        }
        let place = |members: &[Member]| {
            let place = members
                .iter()
                .position(|member| member.identity == self.identity);
            place.map_or("no seat".to_owned(), |place| format!("validator {place}"))
        };
        let coming = registry.coming.as_deref().map(place);
        ensure!(
            bond.identity == self.identity,
            "the answer is about another validator"
        );
        let mut fields = vec![
            ("identity", bond.identity.to_string()),
            ("name", bond.name.to_string()),
            ("address", bond.address.to_string()),
            ("stake", bond.stake.to_string()),
            ("leaving", bond.leaving.to_string()),
            ("leaves in", format!("epoch {}", bond.leaves_at)),
            ("can be chosen", format!("from epoch {}", bond.since)),
            (
                "vote key",
                match bond.vote_key == VoteKey::NONE {
                    true => "none: shares of the group key are passed on".to_owned(),
                    false => bond.vote_key.to_string(),
                },
            ),
            ("this epoch", place(&registry.acting)),
            ("next epoch", coming.unwrap_or("not fixed yet".to_owned())),
        ];
        if registry.external.is_some() {
            let differs = differs.map_or("as here".to_owned(), |one| {
                let kind = shown(&one.kind);
                format!("{kind}, which {} validators report", one.reporters)
            });
            fields.push(("external", differs));
        }
        print_fields(&fields)
    }
}

/// The bounds that a registry's rules set, for people.
fn bounds(rules: &RegistryRules) -> String {
    let slashing = match rules.slashing {
        Some(Slashing {
            percent,
            jail_epochs,
        }) => format!("equivocation costs {percent} % and {jail_epochs} epochs"),
        None => "equivocation is not punished".to_owned(),
    };
    format!(
        "at least {} at stake; at most {} validators; unbonded stake is held for {} epochs; {slashing}",
        rules.min_stake, rules.max_validators, rules.unbond_epochs
    )
}

/// The rules of a registry that is to be, for people.
pub(super) fn describe_rules(rules: Option<RegistryRules>) -> String {
    let Some(rules) = rules else {
        return "none".to_owned();
    };
    let source = match (rules.external.is_some(), rules.resharing) {
        (true, _) => "read from outside the chain",
        (_, true) => "shares of the group key are passed on",
        _ => "by bonds",
    };
    format!("{source}; {}", bounds(&rules))
}
