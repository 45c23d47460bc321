//! `quorate tx`

use super::{
    account,
    output::{print_fields, print_json},
    passphrases::Opening,
    rpc::{ForChain, Rpc, amount, block_on, owned_account},
};
use crate::{genesis::DEFAULT_FEES, keys, mempool::MAX_NONCE_GAP};
use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use quorate_http::client::shown;
use quorate_load::{
    RpcClient,
    api::{SubmitRequest, TransactionJson, TransactionResult, TransactionState},
};
use quorate_types::{Identity, Memo, Transfer};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// How long `--wait` waits.
const WAIT: Duration = Duration::from_secs(30);

/// How often it looks what has changed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often it says again what the transaction waits for.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// Make transactions and submit them
#[derive(Subcommand)]
pub(super) enum Tx {
    /// Sign a transfer and submit it
    Transfer(TransferCommand),
}

/// Sign a transfer and submit it
#[derive(Args)]
#[command(after_help = "Examples:
  quorate tx transfer --key alice/identity.key --to 5fa1… --amount 100 --wait --trust trust.json
  quorate tx transfer --key alice/identity.key --to 5fa1… --amount 100 --chain-id 9e3c… --nonce 7

It signs for the chain that you name, never for one that a server names. With --trust, the account's
nonce is proven; without it, and without --nonce, it is what the validator says.")]
pub(super) struct TransferCommand {
    /// The paying account's key file (`quorate keys generate` makes one)
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    #[command(flatten)]
    opening: Opening,
    /// The receiving account: 64 hexadecimal digits. What is no public key is refused
    #[arg(long, value_name = "HEX", value_parser = owned_account)]
    to: Identity,
    /// How much it receives, in the chain's smallest unit
    #[arg(long, value_parser = amount, allow_negative_numbers = true)]
    amount: u64,
    /// What the block's leader receives beside; 1, and 1 for each byte of the memo, unless said
    /// otherwise: what a chain asks for at least if its genesis file says nothing else
    #[arg(long, value_parser = amount, allow_negative_numbers = true)]
    fee: Option<u64>,
    /// A text for the receiver, up to 4096 bytes, which everybody can read
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    memo: String,
    #[command(flatten)]
    chain: ForChain,
    /// The account's next nonce; asked for if left out, with a proof if there is a trust file. If it is given,
    /// nobody is asked for the balance either
    #[arg(long)]
    nonce: Option<u64>,
    /// Wait until the transfer is final, 30 s at most, and say what became of it. If it is not final by
    /// then, that is an error, and the transfer may still become final
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    rpc: Rpc,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Waits for a transaction that was taken in, and tells on standard error what it waits for, as soon as
/// that is known and when it changes.
async fn watch(
    client: &RpcClient,
    mut result: TransactionResult,
) -> anyhow::Result<TransactionResult> {
    let deadline = Instant::now() + WAIT;
    let (mut told, mut told_at) = (None, Instant::now());
    while result.state == TransactionState::Pending {
        let missing = result.waits_for_nonce;
        match missing {
            Some(nonce) if told != missing || told_at.elapsed() >= TELL_AGAIN => {
                eprintln!("it waits for nonce {nonce} of its sender{}", kept(&result));
                told_at = Instant::now();
            }
            None if told.is_some() => eprintln!("it waits for a block"),
            _ => {}
        }
        told = missing;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        result = client.transaction(&result.id, left.min(LOOK_AGAIN)).await?;
    }
    Ok(result)
}

/// How long a transaction is kept that waits for a nonce.
fn kept(result: &TransactionResult) -> String {
    let expires = result.expires_in_ms.map(|ms| ms.div_ceil(1_000));
    let kept = expires.map_or(String::new(), |seconds| {
        format!("; it is kept for {seconds} s")
    });
    format!(", which must come or be paid for first{kept}")
}

impl Tx {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Self::Transfer(command) = self;
        let client = command.rpc.client()?;
        block_on(command.submit(client))
    }
}

impl TransferCommand {
    /// The account's next nonce, and a word on standard error if it is not known for certain. A transfer of
    /// more than the account holds is refused here: on the chain it would cost the fee and fail.
    async fn next_nonce(
        &self,
        client: &RpcClient,
        sender: &Identity,
        fee: u64,
    ) -> anyhow::Result<u64> {
        if let Some(nonce) = self.nonce {
            return Ok(nonce);
        }
        let verifier = self.chain.verifier()?;
        let answer = client.account(sender, verifier.is_some()).await?;
        ensure!(
            answer.identity == *sender,
            "{} has answered for another account",
            client.url()
        );
        match verifier {
            Some(verifier) => {
                account::verify(&answer, &verifier)?;
            }
            None => eprintln!(
                "note: the nonce, {}, is what {} says; with --trust it is proven",
                answer.nonce,
                client.url()
            ),
        }
        let cost = u128::from(self.amount) + u128::from(fee);
        ensure!(
            cost <= u128::from(answer.balance),
            "the account holds {}, and this transfer takes {cost} with its fee of {fee}: nothing was signed",
            answer.balance
        );
        // What waits is told by the validator alone, but a lie about it costs no more than a gap, which
        // is told when the transfer is taken in.
        let free = answer.free_nonce.unwrap_or(answer.nonce);
        Ok(free.clamp(answer.nonce, answer.nonce.saturating_add(MAX_NONCE_GAP)))
    }

    async fn submit(self, client: RpcClient) -> anyhow::Result<()> {
        let secret = keys::load_identity(&self.key, &self.opening.access())?;
        let sender = secret.identity();
        let chain = self.chain.required()?;
        let memo = Memo::new(self.memo.clone()).context("--memo is too long")?;
        // Not what the server asks for: it could ask for all that the account holds.
        let usual =
            DEFAULT_FEES.per_transfer + DEFAULT_FEES.per_memo_byte * memo.as_bytes().len() as u64;
        let served = client.status().await?.chain_id;
        ensure!(
            served == chain,
            "{} is a validator of another chain ({served}) than the one that you named ({chain}): \
             nothing was signed",
            client.url()
        );
        let fee = self.fee.unwrap_or(usual);
        let nonce = self.next_nonce(&client, &sender, fee).await?;
        let transfer = Transfer {
            chain_tag: chain.tag(),
            sender,
            nonce,
            to: self.to,
            amount: self.amount,
            fee,
            memo,
        };
        let transaction = transfer.sign(&chain, &secret);
        let request = SubmitRequest {
            transactions: vec![TransactionJson::from_transaction(&transaction)],
            hex: Vec::new(),
        };
        let id = transaction.id();
        let unknown = || {
            format!(
                "transaction {id} with nonce {nonce} was taken in, and what became of it is not known: ask \
                 a validator for /v1/transactions/{id} before you pay again"
            )
        };
        let answer = client.submit(&request).await?;
        let Some(mut result) = answer.results.into_iter().next() else {
            bail!("{} gave no result", client.url());
        };
        if result.repeated {
            bail!(
                "this very transfer, {id} with nonce {nonce}, was there before: nothing new is paid. For \
                 another payment of the same amount wait for the first one (--wait) or name its nonce \
                 (--nonce {})",
                nonce.saturating_add(1)
            );
        }
        if let Some(error) = &result.error {
            bail!(
                "refused: {} ({})",
                shown(&error.message),
                shown(&error.code)
            );
        }
        if self.wait && result.state == TransactionState::Pending {
            result = watch(&client, result).await.with_context(unknown)?;
            if result.state == TransactionState::Pending {
                let id = result.id;
                let seconds = WAIT.as_secs();
                match result.waits_for_nonce {
                    Some(nonce) => bail!(
                        "transaction {id} was taken in, but waits for nonce {nonce} of its sender{}",
                        kept(&result)
                    ),
                    None => {
                        bail!("transaction {id} was taken in, but is not final after {seconds} s")
                    }
                }
            }
            if let Some(error) = &result.error {
                bail!(
                    "transaction {} was taken in and dropped: {} ({})",
                    result.id,
                    shown(&error.message),
                    shown(&error.code)
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
                _ => match result.waits_for_nonce {
                    Some(nonce) => format!("taken in; waits for nonce {nonce} of its sender"),
                    None => "taken in; not final yet".to_owned(),
                },
            };
            print_fields(&[("transaction", result.id.to_string()), ("state", state)])?;
        }
        match result.outcome.as_deref() {
            None | Some("applied") => Ok(()),
            Some(outcome) => bail!("the transfer is final but failed: {}", shown(outcome)),
        }
    }
}
