//! `quorate tx`

use super::{
    account,
    output::{print_fields, print_json},
    passphrases::Opening,
    rpc::{ForChain, Rpc, amount, block_on, only_orders, owned_account},
    trust::learn,
};
use crate::keys;
use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use quorate_api::{
    RpcClient, SubmitRequest, TransactionJson, TransactionResult, TransactionState, verdict::Health,
};
use quorate_http::client::shown;
use quorate_machine::mempool::MAX_NONCE_GAP;
use quorate_types::genesis::DEFAULT_FEES;
use quorate_types::{Digest, Identity, Memo, Transfer};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// How long `--wait` waits.
const WAIT: Duration = Duration::from_secs(30);

/// How often `--wait` asks for the transaction's state.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often `--wait` repeats what the transaction waits for.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// Create and submit transactions
#[derive(Subcommand)]
pub(super) enum Tx {
    /// Sign a transfer and submit it
    Transfer(TransferCommand),
    /// Show what became of a transaction
    Show(ShowCommand),
}

/// Show what became of a transaction
///
/// The validator's answer is not verified. `quorate block --trust` verifies the block that it names.
#[derive(Args)]
#[command(after_help = "Example:
  quorate tx show 9c41… --wait")]
pub(super) struct ShowCommand {
    /// The transaction's id (64 hexadecimal digits)
    id: Digest,
    /// Wait until it is final, at most 30 s
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    rpc: Rpc,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl ShowCommand {
    async fn show(self, client: RpcClient) -> anyhow::Result<()> {
        let mut result = client.transaction(&self.id, Duration::ZERO).await?;
        if self.wait {
            result = watch(&client, result).await?;
        }
        print_result(&result, self.json)
    }
}

/// Sign a transfer and submit it
#[derive(Args)]
#[command(after_help = "Examples:
  quorate tx transfer --key alice/identity.key --to 5fa1… --amount 100 --wait --trust trust.json
  quorate tx transfer --key alice/identity.key --to 5fa1… --amount 100 --chain-id 9e3c… --nonce 7

It signs for the chain that you name, never for one that a server names. With --trust, the account's
nonce is proven; without it, and without --nonce, it is what the validator says.")]
pub(super) struct TransferCommand {
    #[command(flatten)]
    sending: Sending,
    /// The recipient's account: 64 hexadecimal digits of a valid public key
    #[arg(long, value_name = "HEX", value_parser = owned_account)]
    to: Identity,
    /// The amount to transfer, in the chain's smallest unit
    #[arg(long, value_parser = amount, allow_negative_numbers = true)]
    amount: u64,
    /// A text for the recipient, up to 4096 bytes, which everybody can read
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    memo: String,
}

/// What every transaction needs.
#[derive(Args)]
pub(super) struct Sending {
    /// The sender's key file (`quorate keys generate` creates one)
    #[arg(long, value_name = "FILE")]
    pub(super) key: PathBuf,
    #[command(flatten)]
    pub(super) opening: Opening,
    /// The fee for the block's leader, in addition to the amount; by default 1, plus 1 for each
    /// byte of the memo, which is the minimum unless the chain's genesis file sets another
    #[arg(long, value_parser = amount, allow_negative_numbers = true)]
    fee: Option<u64>,
    #[command(flatten)]
    pub(super) chain: ForChain,
    /// The sender's next nonce; by default the server is asked for it, with a proof if there is a
    /// trust file. If the nonce is given, the balance is not checked either
    #[arg(long)]
    nonce: Option<u64>,
    /// Wait until the transfer is final, at most 30 s, and print its outcome. A timeout is an
    /// error, but the transfer may still become final
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    pub(super) rpc: Rpc,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Waits for a pending transaction. Reports on standard error what it waits for, as soon as that is
/// known and whenever it changes.
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

/// Says how long a transaction that waits for an earlier nonce is kept.
fn kept(result: &TransactionResult) -> String {
    let expires = result.expires_in_ms.map(|ms| ms.div_ceil(1_000));
    let kept = expires.map_or(String::new(), |seconds| {
        format!("; it is kept for {seconds} s")
    });
    format!(", which must come or be paid for first{kept}")
}

impl Tx {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Transfer(command) => {
                let memo = Memo::new(&command.memo).context("--memo is too long")?;
                let client = command.sending.rpc.client()?;
                let (to, amount) = (command.to, command.amount);
                block_on(command.sending.submit(client, to, amount, memo))
            }
            Self::Show(command) => {
                let client = command.rpc.client()?;
                block_on(command.show(client))
            }
        }
    }
}

impl Sending {
    /// Returns the account's next nonce, and the proven one if that is before it. Prints a note on standard error if
    /// none is proven.
    /// Refuses a transfer of more than the balance: on the chain it would fail and still cost the
    /// fee.
    async fn next_nonce(
        &self,
        client: &RpcClient,
        sender: &Identity,
        (amount, fee): (u64, u64),
    ) -> anyhow::Result<(u64, Option<u64>)> {
        if let Some(nonce) = self.nonce {
            return Ok((nonce, None));
        }
        let verifier = self.chain.verifier()?;
        if let Some(verifier) = &verifier {
            learn(client, verifier).await?;
        }
        let answer = client.account(sender, verifier.is_some()).await?;
        ensure!(
            answer.identity == *sender,
            "{} has answered for another account",
            client.url()
        );
        match &verifier {
            Some(verifier) => {
                account::verify(&answer, verifier)?;
            }
            None => eprintln!(
                "note: the nonce, {}, is what {} says; with --trust it is proven",
                answer.nonce,
                client.url()
            ),
        }
        let cost = u128::from(amount) + u128::from(fee);
        ensure!(
            cost <= u128::from(answer.balance),
            "the account holds {}, and this transfer takes {cost} with its fee of {fee}: nothing was signed",
            answer.balance
        );
        // Only the validator knows the waiting transactions. If it lies about them, the transfer waits, perhaps
        // unseen, until the nonces before it are used.
        let free = answer.free_nonce.unwrap_or(answer.nonce);
        let nonce = free.clamp(answer.nonce, answer.nonce.saturating_add(MAX_NONCE_GAP));
        let proven = verifier.map(|_| answer.nonce);
        Ok((nonce, proven.filter(|proven| *proven < nonce)))
    }

    /// Signs a transfer and submits it.
    ///
    /// # Errors
    ///
    /// If it is refused, dropped, or fails; with `wait`, also if it is not final in time.
    pub(super) async fn submit(
        self,
        client: RpcClient,
        to: Identity,
        amount: u64,
        memo: Memo,
    ) -> anyhow::Result<()> {
        let secret = keys::load_identity(&self.key, &self.opening.access())?;
        let sender = secret.identity();
        let chain = self.chain.required()?;
        // Ignore the fee that the server asks for: it could ask for the whole balance.
        let usual =
            DEFAULT_FEES.per_transfer + DEFAULT_FEES.per_memo_byte * memo.as_bytes().len() as u64;
        let status = client.status().await?;
        let served = status.chain_id;
        ensure!(
            served == chain,
            "{} is a validator of another chain ({served}) than the one that you named ({chain}): \
             nothing was signed",
            client.url()
        );
        ensure!(
            !only_orders(&status),
            "this chain only orders payloads (PAYLOADS.md): it has no accounts and no transfers, and nothing was \
             signed"
        );
        if let Some(verdict) = status.verdict
            && verdict.state == Health::Halted
        {
            let why = shown(&verdict.summary);
            let proves = self.nonce.is_none() && self.chain.verifier()?.is_some();
            ensure!(
                !proves,
                "the chain stands still, so the nonce cannot be proven: nothing was signed ({why})"
            );
            eprintln!(
                "warning: the chain stands still, and the transfer waits until it goes on ({why})"
            );
        }
        let fee = self.fee.unwrap_or(usual);
        let (nonce, proven) = self.next_nonce(&client, &sender, (amount, fee)).await?;
        let caution = proven.map_or(String::new(), |proven| {
            format!(
                ". It was signed with nonce {nonce}, since {} says that others wait from nonce {proven} on, which is the \
                 proven one. Should that be a lie, it can still be executed later: if you pay again, do it with --nonce \
                 {nonce}, so that only one of the two counts",
                client.url()
            )
        });
        let transfer = Transfer {
            chain_tag: chain.tag(),
            sender,
            nonce,
            to,
            amount,
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
                "transaction {id} with nonce {nonce} was accepted, and what became of it is not known: ask \
                 (`quorate tx show {id}`) before you pay again"
            )
        };
        let answer = match client.submit(&request).await {
            Err(error) if !caution.is_empty() => bail!("{error}{caution}"),
            answer => answer?,
        };
        let Some(mut result) = answer.results.into_iter().next() else {
            bail!("{} gave no result{caution}", client.url());
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
                "refused: {} ({}){caution}",
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
                        "transaction {id} was accepted, but waits for nonce {nonce} of its sender{}",
                        kept(&result)
                    ),
                    None => {
                        bail!("transaction {id} was accepted, but is not final after {seconds} s")
                    }
                }
            }
            if let Some(error) = &result.error {
                bail!(
                    "transaction {} was accepted and dropped: {} ({}){caution}",
                    result.id,
                    shown(&error.message),
                    shown(&error.code)
                );
            }
        }
        print_result(&result, self.json)?;
        if result.state == TransactionState::Pending && !self.json {
            eprintln!("what became of it: quorate tx show {}", result.id);
        }
        Ok(())
    }
}

/// Prints a transaction's state. One that failed or was dropped is an error.
fn print_result(result: &TransactionResult, json: bool) -> anyhow::Result<()> {
    if json {
        print_json(result)?;
    } else {
        let state = match (result.state, result.height, &result.outcome) {
            (TransactionState::Finalized, Some(height), Some(outcome)) => {
                format!("final in block {height}: {}", shown(outcome))
            }
            (TransactionState::Dropped, ..) => "dropped".to_owned(),
            _ => match result.waits_for_nonce {
                Some(nonce) => format!("accepted; waits for nonce {nonce} of its sender"),
                None => "accepted; not final yet".to_owned(),
            },
        };
        print_fields(&[("transaction", result.id.to_string()), ("state", state)])?;
    }
    match (&result.error, result.outcome.as_deref()) {
        (Some(error), _) => bail!("{} ({})", shown(&error.message), shown(&error.code)),
        (None, None | Some("applied")) => Ok(()),
        (None, Some(outcome)) => bail!("the transfer is final but failed: {}", shown(outcome)),
    }
}
