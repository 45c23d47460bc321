//! Paying the accounts of a load out of one rich account, before it starts.

use crate::targets::accounts;
use quorate_api::{ClientError, RpcClient, SubmitRequest, TransactionState, to_hex};
use quorate_crypto::{SecretKey, sha256};
use quorate_types::{ChainId, Identity, Memo, Transfer};
use std::time::{Duration, Instant};

/// Transfers that are on their way at a time: fewer than a mempool takes of one sender, and than a
/// nonce may be ahead.
const AT_A_TIME: usize = 500;

/// How long nothing may go forward.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked whether transfers are final.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a transfer pays beside.
const FEE: u64 = 1;

/// Why the accounts could not be paid, and what helps.
#[derive(Debug, thiserror::Error)]
pub enum FundError {
    /// The rich account is not rich enough.
    #[error(
        "the account {rich} holds {balance}; paying {count} accounts {amount} each takes {needed}: \
         pay it, or use fewer --accounts or a smaller --fund"
    )]
    TooPoor {
        /// The account that was to pay.
        rich: Identity,
        /// What it holds.
        balance: u64,
        /// How many are to be paid.
        count: usize,
        /// How much each is to get.
        amount: u64,
        /// What that takes, fees included.
        needed: u128,
    },
    /// A validator refuses a payment.
    #[error("a payment from {rich} was refused: {message} ({code})")]
    Refused {
        /// The account that was to pay.
        rich: Identity,
        /// The refusal's code.
        code: String,
        /// The refusal's sentence.
        message: String,
    },
    /// Payments do not become final.
    #[error(
        "{paid} of {count} payments from {rich} are final, and for {} s no more: look at \
         `quorate status` of {url}, and whether something else sends from this account",
        PATIENCE.as_secs()
    )]
    Stuck {
        /// The account that was to pay.
        rich: Identity,
        /// The validator.
        url: String,
        /// Payments that are final.
        paid: usize,
        /// Payments in all.
        count: usize,
    },
    /// A request failed.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// The keys of a load's accounts, derived from one key. The same key gives the same accounts.
pub fn derive_accounts(seed: &SecretKey, count: u32) -> Vec<SecretKey> {
    (0..count)
        .map(|place| {
            let parts: [&[u8]; 3] = [
                b"quorate/load-account/1",
                &*seed.to_bytes(),
                &place.to_be_bytes(),
            ];
            SecretKey::from_bytes(&sha256(&parts).0)
        })
        .collect()
}

/// Pays `amount` to each account that holds less than half of it, and waits until all payments are
/// final. `progress` learns how many of how many are. Returns how many there were.
///
/// # Errors
///
/// See [`FundError`].
pub async fn fund(
    client: &RpcClient,
    chain: &ChainId,
    rich: &SecretKey,
    to: &[Identity],
    amount: u64,
    mut progress: impl FnMut(usize, usize),
) -> Result<usize, FundError> {
    let payer = rich.identity();
    let held = accounts(std::slice::from_ref(client), to).await?;
    let poor: Vec<Identity> = held
        .iter()
        .filter(|account| account.balance < amount.div_ceil(2))
        .map(|account| account.identity)
        .collect();
    let account = client.account(&payer, false).await?;
    let needed = poor.len() as u128 * (u128::from(amount) + u128::from(FEE));
    if u128::from(account.balance) < needed {
        return Err(FundError::TooPoor {
            rich: payer,
            balance: account.balance,
            count: poor.len(),
            amount,
            needed,
        });
    }
    let first_nonce = account.nonce;
    let payment = |place: usize| {
        let transfer = Transfer {
            chain_tag: chain.tag(),
            sender: payer,
            nonce: first_nonce + place as u64,
            to: poor[place],
            amount,
            fee: FEE,
            memo: Memo::NONE,
        };
        to_hex(&transfer.sign(chain, rich))
    };
    let mut paid = 0;
    let mut last_progress = Instant::now();
    while paid < poor.len() {
        let chunk = paid..poor.len().min(paid + AT_A_TIME);
        let request = SubmitRequest {
            hex: chunk.clone().map(payment).collect(),
            ..SubmitRequest::default()
        };
        for result in client.submit(&request).await?.results {
            check(&payer, result)?;
        }
        // What was refused for want of room is offered again with the next round.
        let wait_until = Instant::now() + Duration::from_secs(2);
        loop {
            let nonce = client.account(&payer, false).await?.nonce;
            let now_paid = usize::try_from(nonce.saturating_sub(first_nonce)).unwrap_or(usize::MAX);
            if now_paid > paid {
                paid = now_paid.min(poor.len());
                last_progress = Instant::now();
                progress(paid, poor.len());
            }
            if paid >= chunk.end || Instant::now() > wait_until {
                break;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        if last_progress.elapsed() > PATIENCE {
            return Err(FundError::Stuck {
                rich: payer,
                url: client.url().to_owned(),
                paid,
                count: poor.len(),
            });
        }
    }
    Ok(poor.len())
}

/// Only refusals that pass with time are borne.
fn check(payer: &Identity, result: quorate_api::TransactionResult) -> Result<(), FundError> {
    match result.error {
        Some(error) if result.state == TransactionState::Refused => match error.code.as_str() {
            "mempool_full" | "sender_full" | "nonce_too_far" | "stale_nonce" => Ok(()),
            _ => Err(FundError::Refused {
                rich: *payer,
                code: error.code,
                message: error.message,
            }),
        },
        _ => Ok(()),
    }
}
