//! Converts an explorer's responses to the types of a validator's API, so that both are shown and
//! verified the same way.

use anyhow::Context as _;
use quorate_api::{
    AccountJson, AccountProofJson, BlockJson, BlockTransactionJson, TransactionJson, from_hex,
};
use quorate_explorer::{
    client::ExplorerClient,
    shapes::{BlockDetail, BlockTransaction, Hex},
};
use quorate_files::read_text;
use quorate_http::client::Roots;
use quorate_types::{Block, Height, Identity};
use std::path::Path;

/// Size limit of a response read from a file.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Fetches a block by height, id, or `latest`.
pub(super) async fn block(url: &str, roots: &Roots, which: &str) -> anyhow::Result<BlockJson> {
    let client = ExplorerClient::with_roots(url, roots)?;
    let detail = client.block(which).await?;
    // `latest` may already be a newer block, so the transactions are requested by height.
    let height = detail.summary.height.to_string();
    let mut transactions = Vec::new();
    loop {
        let last = transactions.last();
        let after = last.map(|transaction: &BlockTransaction| transaction.index);
        let page = client.transactions(&height, after).await?;
        transactions.extend(page.data);
        if page.next.is_none() {
            break;
        }
    }
    let outcomes = transactions
        .into_iter()
        .map(|transaction| transaction.outcome);
    convert(&detail, outcomes.collect())
}

/// Reads a block from a file with a validator's or explorer's response.
pub(super) fn block_from_file(path: &Path) -> anyhow::Result<BlockJson> {
    let file = path.display();
    let text = read_text(path, MAX_FILE_BYTES)?;
    if let Ok(detail) = serde_json::from_str::<BlockDetail>(&text) {
        return convert(&detail, Vec::new());
    }
    serde_json::from_str(&text).with_context(|| {
        format!("{file} holds no answer to GET /v1/blocks/… of a validator or an explorer")
    })
}

/// Takes the transactions from the encoded block, and the outcomes from `outcomes`; a missing
/// outcome is "-".
fn convert(detail: &BlockDetail, outcomes: Vec<String>) -> anyhow::Result<BlockJson> {
    let bytes = plain(&detail.block);
    let block: Block = from_hex("block", &bytes)?;
    let header = block.header();
    let id = detail.summary.id.digest().context("the id is none")?;
    let mut outcomes = outcomes.into_iter();
    let transactions = block.transactions().iter().map(|transaction| {
        let outcome = outcomes.next().unwrap_or_else(|| "-".to_owned());
        BlockTransactionJson {
            id: transaction.id(),
            fields: TransactionJson::from_transaction(transaction),
            outcome,
        }
    });
    Ok(BlockJson {
        id,
        height: Height(detail.summary.height.0),
        epoch: header.epoch.0,
        view: header.view,
        leader: quorate_types::ValidatorIndex(detail.summary.leader),
        parent: header.parent,
        timestamp_ms: header.timestamp_ms,
        executed_height: header.executed_height,
        state_root: detail
            .state_root
            .digest()
            .context("the state root is none")?,
        transactions: transactions.collect(),
        block: bytes,
        descendants: detail.finality.headers.iter().map(plain).collect(),
        certificate: Some(plain(&detail.finality.certificate)),
    })
}

/// Fetches an account with its proof.
pub(super) async fn account(
    url: &str,
    roots: &Roots,
    identity: &Identity,
) -> anyhow::Result<AccountJson> {
    let detail = ExplorerClient::with_roots(url, roots)?
        .account(identity)
        .await?;
    let proof = &detail.proof;
    Ok(AccountJson {
        executed_height: Some(Height(proof.executed_height.0)),
        identity: detail.identity.identity().context("the identity is none")?,
        nonce: detail.nonce.0,
        balance: detail.balance.0,
        free_nonce: None,
        bond: None,
        proof: Some(AccountProofJson {
            executed_height: Height(proof.executed_height.0),
            state_root: proof.root.digest().context("the root is none")?,
            proof: plain(&proof.encoded),
            header: plain(&proof.anchor.header),
            certificate: plain(&proof.anchor.certificate),
        }),
    })
}

/// Returns hexadecimal digits without `0x`.
fn plain(hex: &Hex) -> String {
    hex::encode(&hex.0)
}
