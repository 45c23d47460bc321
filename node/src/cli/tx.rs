//! `quorate tx`

use super::{
    output::{print_fields, print_json},
    passphrases::Opening,
    rpc::{Rpc, block_on},
};
use crate::keys;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use quorate_load::{
    RpcClient,
    api::{SubmitRequest, TransactionJson, TransactionState},
};
use quorate_types::{Identity, Memo, Transfer};
use std::{path::PathBuf, time::Duration};

/// How long `--wait` waits.
const WAIT: Duration = Duration::from_secs(30);

/// Make transactions and submit them
#[derive(Subcommand)]
pub(super) enum Tx {
    /// Sign a transfer and submit it
    Transfer(TransferCommand),
}

/// Sign a transfer and submit it
#[derive(Args)]
#[command(after_help = "Example:
  quorate tx transfer --key alice/identity.key --to 5fa1… --amount 100 --wait")]
pub(super) struct TransferCommand {
    /// The paying account's key file (`quorate keys generate` makes one)
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    #[command(flatten)]
    opening: Opening,
    /// The receiving account: 64 hexadecimal digits
    #[arg(long, value_name = "HEX")]
    to: Identity,
    /// How much it receives, in the chain's smallest unit
    #[arg(long)]
    amount: u64,
    /// What the block's leader receives beside
    #[arg(long, default_value_t = 1)]
    fee: u64,
    /// A text for the receiver, up to 4096 bytes, which everybody can read
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    memo: String,
    /// The account's next nonce; asked for if left out
    #[arg(long)]
    nonce: Option<u64>,
    /// Wait until the transfer is final and say what became of it
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    rpc: Rpc,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Tx {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Self::Transfer(command) = self;
        let client = command.rpc.client()?;
        block_on(command.submit(client))
    }
}

impl TransferCommand {
    async fn submit(self, client: RpcClient) -> anyhow::Result<()> {
        let secret = keys::load_identity(&self.key, &self.opening.access())?;
        let sender = secret.identity();
        let chain = client.status().await?.chain_id;
        let nonce = match self.nonce {
            Some(nonce) => nonce,
            None => client.account(&sender, false).await?.nonce,
        };
        let transfer = Transfer {
            chain_tag: chain.tag(),
            sender,
            nonce,
            to: self.to,
            amount: self.amount,
            fee: self.fee,
            memo: Memo::new(self.memo).context("--memo")?,
        };
        let transaction = transfer.sign(&chain, &secret);
        let request = SubmitRequest {
            transactions: vec![TransactionJson::from_transaction(&transaction)],
            hex: Vec::new(),
        };
        let mut results = client.submit(&request).await?.results;
        let Some(mut result) = results.pop() else {
            bail!("{} gave no result", client.url());
        };
        if let Some(error) = &result.error {
            bail!("refused: {} ({})", error.message, error.code);
        }
        if self.wait && result.state == TransactionState::Pending {
            result = client.transaction(&transaction.id(), WAIT).await?;
            if result.state == TransactionState::Pending {
                bail!(
                    "transaction {} was taken in, but is not final after {} s",
                    result.id,
                    WAIT.as_secs()
                );
            }
        }
        if self.json {
            print_json(&result)?;
        } else {
            let state = match (result.state, result.height, &result.outcome) {
                (TransactionState::Finalized, Some(height), Some(outcome)) => {
                    format!("final in block {height}: {outcome}")
                }
                _ => "taken in; not final yet".to_owned(),
            };
            print_fields(&[("transaction", result.id.to_string()), ("state", state)])?;
        }
        match result.outcome.as_deref() {
            None | Some("applied") => Ok(()),
            Some(outcome) => bail!("the transfer is final but failed: {outcome}"),
        }
    }
}
