//! Which validators get the load, and whether they are ready for it.

use crate::senders::COST;
use quorate_api::{AccountJson, ClientError, RpcClient};
use quorate_types::{ChainId, Height, Identity};
use std::{
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// The retry interval for a validator that does not answer.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The number of round trips measured; the shortest counts.
const ROUND_TRIPS: usize = 5;

/// The number of concurrent account queries.
const ACCOUNTS_AT_A_TIME: usize = 16;

/// Which validators get the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum To {
    /// All; the accounts are assigned to them in turn.
    #[default]
    All,
    /// All of them get every transfer.
    Each,
    /// The first.
    One,
    /// This many of those that answer fastest.
    Nearest(usize),
}

/// Why a load cannot start, and how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// A validator does not answer, or is not in sync.
    #[error(
        "validator {url} is not ready after {} s ({reason}); start it, give other addresses with \
         --rpc, or wait longer with --wait", .waited.as_secs()
    )]
    Validator {
        url: String,
        /// The validator's message, or the error.
        reason: String,
        waited: Duration,
    },
    /// A validator belongs to another chain.
    #[error(
        "validator {url} runs chain {theirs}, not {ours}; give the addresses of one chain's \
         validators with --rpc, and the folder of the same chain with --dir"
    )]
    OtherChain {
        url: String,
        theirs: ChainId,
        /// The expected chain.
        ours: ChainId,
    },
    /// Some accounts hold too little.
    #[error(
        "{poor} of {all} accounts hold less than a transfer takes, {COST} (the first: {first}); \
         have them funded with --fund-from KEY, a key file of an account that has money, or take \
         a local network's own accounts with --dir"
    )]
    NoMoney {
        /// The number of accounts that hold too little.
        poor: usize,
        /// The number of all accounts.
        all: usize,
        /// The first that holds too little.
        first: Identity,
    },
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let nearest = |count: &str| count.parse().ok().filter(|count| *count > 0);
        match text.split_once(':') {
            None if text == "all" => Ok(Self::All),
            None if text == "each" => Ok(Self::Each),
            None if text == "one" => Ok(Self::One),
            None if text == "nearest" => Ok(Self::Nearest(1)),
            Some(("nearest", count)) => nearest(count)
                .map(Self::Nearest)
                .ok_or_else(|| format!("{count:?} is no number of validators, which is 1 or more")),
            _ => Err("expected all, each, one, nearest, or nearest:N".to_owned()),
        }
    }
}

/// Waits until all these validators are in sync, and returns their chain.
///
/// # Errors
///
/// If a validator is not in sync in time, or its chain is not `expected` or not the first
/// validator's.
pub async fn wait_until_ready(
    clients: &[RpcClient],
    expected: Option<ChainId>,
    patience: Duration,
) -> Result<Option<ChainId>, NotReady> {
    let start = Instant::now();
    let mut chain = expected;
    for client in clients {
        let status = loop {
            // A validator of another chain is detected before waiting for it.
            let reason = match client.status().await {
                Ok(status) => {
                    let ours = *chain.get_or_insert(status.chain_id);
                    if status.chain_id != ours {
                        return Err(NotReady::OtherChain {
                            url: client.url().to_owned(),
                            theirs: status.chain_id,
                            ours,
                        });
                    }
                    client.ready().await.err()
                }
                Err(error) => Some(error),
            };
            match reason {
                None => break Ok(()),
                Some(error) if start.elapsed() > patience => break Err(error),
                Some(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        };
        status.map_err(|error| NotReady::Validator {
            url: client.url().to_owned(),
            reason: reason(&error),
            waited: patience,
        })?;
    }
    Ok(chain)
}

/// Waits until all these validators have executed the block at a height.
///
/// # Errors
///
/// If a validator has not in time, or does not answer.
pub async fn wait_for_height(
    clients: &[RpcClient],
    height: Height,
    patience: Duration,
) -> Result<(), NotReady> {
    let start = Instant::now();
    for client in clients {
        loop {
            let executed = client.status().await?.executed_height;
            if executed >= height {
                break;
            }
            if start.elapsed() > patience {
                return Err(NotReady::Validator {
                    url: client.url().to_owned(),
                    reason: format!("it has executed block {executed}, and {height} is final"),
                    waited: patience,
                });
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
    Ok(())
}

/// The error without the address.
fn reason(error: &ClientError) -> String {
    match error {
        ClientError::Unreachable { reason, .. } | ClientError::Transport { reason, .. } => {
            reason.clone()
        }
        ClientError::Refused { message, .. } => message.clone(),
    }
}

/// Selects the validators that get the load, each with its shortest round trip.
///
/// # Errors
///
/// If a validator does not answer.
pub async fn choose(
    clients: &[RpcClient],
    to: To,
) -> Result<Vec<(RpcClient, Duration)>, ClientError> {
    let mut measured = Vec::new();
    for client in clients {
        let mut best = Duration::MAX;
        for _ in 0..ROUND_TRIPS {
            let start = Instant::now();
            client.alive().await?;
            best = best.min(start.elapsed());
        }
        measured.push((client.clone(), best));
    }
    match to {
        To::All | To::Each => {}
        To::One => measured.truncate(1),
        To::Nearest(count) => {
            measured.sort_by_key(|(_, round_trip)| *round_trip);
            measured.truncate(count);
        }
    }
    Ok(measured)
}

/// Queries all these accounts, in order, each at one of the validators.
///
/// # Errors
///
/// If a validator does not answer.
pub async fn accounts(
    clients: &[RpcClient],
    identities: &[Identity],
) -> Result<Vec<AccountJson>, ClientError> {
    let identities: Arc<[Identity]> = identities.into();
    let mut workers = JoinSet::new();
    for worker in 0..ACCOUNTS_AT_A_TIME.min(identities.len()) {
        let client = clients[worker % clients.len()].clone();
        let identities = identities.clone();
        workers.spawn(async move {
            let mut found = Vec::new();
            for place in (worker..identities.len()).step_by(ACCOUNTS_AT_A_TIME) {
                found.push((place, client.account(&identities[place], false).await?));
            }
            Ok::<_, ClientError>(found)
        });
    }
    let mut found = Vec::new();
    while let Some(worker) = workers.join_next().await {
        found.extend(worker.expect("workers do not panic")?);
    }
    found.sort_unstable_by_key(|(place, _)| *place);
    Ok(found.into_iter().map(|(_, account)| account).collect())
}

/// Checks that every account can pay for at least one transfer.
///
/// # Errors
///
/// If some cannot, or a validator does not answer.
pub async fn check_money(clients: &[RpcClient], identities: &[Identity]) -> Result<(), NotReady> {
    let accounts = accounts(clients, identities).await?;
    let poor: Vec<_> = accounts.iter().filter(|a| a.balance < COST).collect();
    match poor.first() {
        None => Ok(()),
        Some(first) => Err(NotReady::NoMoney {
            poor: poor.len(),
            all: accounts.len(),
            first: first.identity,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_for_where_a_load_goes_are_read() {
        assert_eq!("all".parse(), Ok(To::All));
        assert_eq!("each".parse(), Ok(To::Each));
        assert_eq!("one".parse(), Ok(To::One));
        assert_eq!("nearest".parse(), Ok(To::Nearest(1)));
        assert_eq!("nearest:3".parse(), Ok(To::Nearest(3)));
        for wrong in ["", "nearest:0", "nearest:x", "both", "one:2"] {
            assert!(wrong.parse::<To>().is_err(), "{wrong}");
        }
    }
}
