//! `quorate init`

use super::{
    folders::{parse_peer, write_newcomer},
    keys::new_vote_key,
    output::{print_json, print_lines},
    passphrases::{NewKeys, protection_of},
};
use crate::{
    config::{CONFIG_FILE, load_genesis},
    genesis::{GENESIS_FILE, TRUST_FILE},
    keys::{self, IDENTITY_FILE, KeyKind, VOTE_FILE},
};
use anyhow::{Context as _, ensure};
use clap::Args;
use quorate_crypto::{Identity, bls::VoteSecret};
use quorate_p2p::PeerAddress;
use quorate_types::genesis::Genesis;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Create one validator's keys on its own machine: for a new chain, or to join one with a registry
///
/// Writes identity.key and vote.key (secret, mode 0600, encrypted under one passphrase). No key leaves this
/// machine.
///
/// For a new chain (--chain) it also writes registration.json, which contains no secrets: send it to the person
/// who runs `quorate genesis create --scheme bls-aggregate --registration …`. There is no dealer. Put the files
/// that you get back (genesis.json, trust.json and validator.toml) into the same directory.
///
/// To join a chain with a registry (--genesis) it writes a complete folder: genesis.json, trust.json and
/// validator.toml as well.
#[derive(Args)]
#[command(after_help = "Examples:
  For a new chain:
    quorate init --chain mychain --out validator
  To join a chain with a registry, whose validators 0 and 1 are asked where all are:
    quorate init --genesis genesis.json --address v7.example.org:26600 --out validator \\
      --peer 0@v0.example.org:26600 --peer 1@v1.example.org:26600")]
pub(super) struct Init {
    /// The name of a new chain
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "genesis",
        conflicts_with = "genesis"
    )]
    chain: Option<String>,
    /// The genesis file of the chain to join, which must have a registry; it is copied
    #[arg(long, value_name = "FILE", requires_all = ["peers", "address"])]
    genesis: Option<PathBuf>,
    /// A validator to ask until the registry tells where all are: its identity (`quorate registry list`) or its
    /// number in the genesis file, and its address for peers. Name some; as long as the validators of the genesis
    /// file have no addresses in the registry, name them all
    #[arg(long = "peer", value_name = "IDENTITY@HOST:PORT", requires = "genesis", num_args = 1..)]
    peers: Vec<String>,
    /// Where the others reach this validator: a host name or IP address, and a port. It listens on this port; HTTP
    /// uses the next one, metrics the port 100 above that
    #[arg(long, value_name = "HOST:PORT", requires = "genesis")]
    address: Option<PeerAddress>,
    /// Directory to write to; created if missing
    #[arg(long, value_name = "DIR", default_value = "validator")]
    out: PathBuf,
    #[command(flatten)]
    protection: NewKeys,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Init {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let path = self.out.join(IDENTITY_FILE);
        ensure!(
            !path.exists(),
            "{} exists and is not written over; choose another --out, or, to register the same \
             identity on another chain, use `quorate keys vote`",
            path.display()
        );
        match (&self.chain, &self.genesis, &self.address) {
            (Some(chain), ..) => self.register(chain, &path),
            (None, Some(genesis), Some(address)) => self.join(genesis, address, &path),
            _ => unreachable!("the command line requires --chain, or --genesis and --address"),
        }
    }

    /// Makes the keys, and the registration for a new chain's genesis file.
    fn register(&self, chain: &str, path: &Path) -> anyhow::Result<()> {
        let passphrase = self.protection.choose()?;
        let protection = protection_of(passphrase.as_ref());
        let secret = keys::generate_identity();
        let identity = secret.identity();
        let (registration, file) = new_vote_key(chain, identity, &self.out, protection)?;
        keys::save_secret(path, &secret.to_bytes(), protection)?;
        if self.json {
            return print_json(&json!({
                "identity": identity, "registration": registration, "file": file,
            }));
        }
        print_lines(&[
            format!("identity      {identity}"),
            format!("registration  {}", file.display()),
            String::new(),
            format!(
                "Send {} to whoever makes the genesis file. Put the genesis.json, trust.json and \
                 validator.toml that come back into {}, and look at what you are part of:",
                file.display(),
                self.out.display()
            ),
            format!("  quorate genesis show {}/genesis.json", self.out.display()),
            format!(
                "  quorate config check {}/validator.toml",
                self.out.display()
            ),
        ])
    }

    /// Makes the folder of a validator that joins a chain.
    fn join(&self, file: &Path, address: &PeerAddress, path: &Path) -> anyhow::Result<()> {
        let genesis = load_genesis(file)
            .context("--genesis: get the chain's genesis file from one of its validators")?;
        ensure!(
            genesis.registry.is_some(),
            "--genesis {}: the chain {:?} has no registry, so its validators are those of this file and nobody can \
             join; for a follower, use `quorate follow init`",
            file.display(),
            genesis.name
        );
        let committee = genesis.committee()?;
        let mut peers: Vec<(Identity, PeerAddress)> = Vec::new();
        for text in &self.peers {
            let peer = parse_peer(text, &committee).with_context(|| format!("--peer {text}"))?;
            ensure!(
                peers.iter().all(|(identity, _)| *identity != peer.0),
                "--peer {text}: this validator is named twice; name each once"
            );
            ensure!(
                peer.1 != *address,
                "--peer {text}: this is the --address of the new validator itself; name another validator's"
            );
            peers.push(peer);
        }
        for name in [CONFIG_FILE, GENESIS_FILE, TRUST_FILE, VOTE_FILE] {
            let there = self.out.join(name);
            ensure!(
                !there.exists(),
                "{} exists and is not written over; choose another --out",
                there.display()
            );
        }
        let passphrase = self.protection.choose()?;
        let protection = protection_of(passphrase.as_ref());
        let secret = keys::generate_identity();
        let own = secret.identity();
        write_newcomer(&self.out, &genesis, own, address, &peers)?;
        let vote = VoteSecret::random(keys::system_rng());
        let vote_file = self.out.join(VOTE_FILE);
        keys::save_key(&vote_file, KeyKind::Vote, &vote.to_bytes(), protection)?;
        keys::save_secret(path, &secret.to_bytes(), protection)?;
        self.tell_newcomer(&genesis, own, address)
    }

    fn tell_newcomer(
        &self,
        genesis: &Genesis,
        own: Identity,
        address: &PeerAddress,
    ) -> anyhow::Result<()> {
        let out = self.out.display();
        let chain = genesis.chain_id();
        let stake = genesis.registry.map_or(0, |rules| rules.min_stake);
        if self.json {
            return print_json(&json!({
                "identity": own, "address": address.to_string(), "chain_id": chain,
                "config": self.out.join(CONFIG_FILE), "min_stake": stake,
            }));
        }
        let plain = match self.protection.is_plain() {
            true => " --allow-plain-keys",
            false => "",
        };
        if genesis
            .registry
            .is_some_and(|rules| rules.external.is_some())
        {
            return print_lines(&[
                format!("identity  {own}"),
                format!("chain     {chain} ({})", genesis.name),
                format!("folder    {out}"),
                String::new(),
                format!(
                    "Have the account {own} paid some fees, and this entry put into the registry that the validators \
                     read:"
                ),
                format!(
                    "  quorate registry entry --genesis {out}/{GENESIS_FILE} --key {out}/{IDENTITY_FILE} \\"
                ),
                format!(
                    "    --vote-key {out}/{VOTE_FILE} --stake {stake} --address {address} --name NAME"
                ),
                format!(
                    "Let `file` under [registry] in {out}/{CONFIG_FILE} name that registry. Then:"
                ),
                format!("  quorate run --config {out}/{CONFIG_FILE}{plain}"),
            ]);
        }
        // Validators that share a key get their shares from each other.
        let vote_key = match genesis.registry.is_some_and(|rules| rules.resharing) {
            true => String::new(),
            false => format!(" --vote-key {out}/{VOTE_FILE}"),
        };
        print_lines(&[
            format!("identity  {own}"),
            format!("chain     {chain} ({})", genesis.name),
            format!("folder    {out}"),
            String::new(),
            format!(
                "Have the account {own} paid the stake, {stake} at least, and some fees. Then:"
            ),
            format!("  quorate registry bond --key {out}/{IDENTITY_FILE}{vote_key} \\"),
            format!(
                "    --stake {stake} --address {address} --name NAME --chain-id {chain} --rpc URL --wait"
            ),
            format!("  quorate run --config {out}/{CONFIG_FILE}{plain}"),
            String::new(),
            format!(
                "If the chain's validators have other intervals under [consensus] than the defaults, set the same in \
                 {out}/{CONFIG_FILE}."
            ),
        ])
    }
}
