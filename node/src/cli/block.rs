//! `quorate block`

use super::{
    explored,
    output::{print_fields, print_json, print_lines},
    rpc::{Rpc, block_on},
    trust::{hint, learn},
};
use anyhow::{Context as _, bail, ensure};
use clap::Args;
use quorate_api::{
    BlockJson, BlockTransactionJson, RpcClient, TransactionJson, block_of, from_hex,
};
use quorate_files::read_text;
use quorate_http::client::shown;
use quorate_machine::live::verdict::clock_time;
use quorate_types::{
    Certificate, Header, ValidatorIndex,
    genesis::{Trust, Verifier},
};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long to wait for the finalization of a very new block.
const WAIT: Duration = Duration::from_secs(5);

/// Size limit of a trust file: 1,024 validators take less than 1 MiB.
const MAX_TRUST_BYTES: u64 = 16 << 20;

/// Show a block; with --verify, verify its finality offline
///
/// With --verify, nothing that the validator or explorer says is trusted: the block's hash, its
/// transactions and the finalization certificate are checked using only the trust file.
#[derive(Args)]
#[command(after_help = "Examples:
  quorate block latest
  quorate block 1200 --verify --trust localnet/trust.json
  quorate block 1200 --explorer http://127.0.0.1:26608 --verify --trust localnet/trust.json
  curl -s http://127.0.0.1:26608/v1/blocks/1200 > block.json
  quorate block 1200 --file block.json --verify --trust localnet/trust.json")]
pub(super) struct Block {
    /// The block's height, its id (64 hexadecimal digits), or `latest`
    #[arg(value_name = "HEIGHT|ID|latest")]
    which: String,
    /// Verify the block using only the trust file
    #[arg(long, requires = "trust")]
    verify: bool,
    /// The chain's trust file
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
    #[command(flatten)]
    rpc: Rpc,
    /// Ask this explorer instead of a validator
    #[arg(long, value_name = "URL", conflicts_with = "file")]
    explorer: Option<String>,
    /// Read a validator's or explorer's response from this file, and contact no server
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Block {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let answer = if let Some(file) = &self.file {
            explored::block_from_file(file)?
        } else if let Some(url) = &self.explorer {
            block_on(explored::block(url, &self.rpc.roots()?, &self.which))?
        } else {
            let client = self.rpc.client()?;
            block_on(self.ask(&client))?
        };
        let verified = match &self.trust {
            Some(trust) => {
                let verifier = load_trust(trust)?;
                let mut checked = self.check(&answer, &verifier);
                if checked.is_err() && self.file.is_none() {
                    let client = match &self.explorer {
                        Some(url) => self.rpc.client_of(url)?,
                        None => self.rpc.client()?,
                    };
                    block_on(learn(&client, &verifier))?;
                    checked = self.check(&answer, &verifier);
                }
                Some(checked?)
            }
            None => None,
        };
        if self.json {
            return print_json(&answer);
        }
        let mut fields = vec![
            ("block", answer.id.to_string()),
            ("height", answer.height.to_string()),
            ("view", format!("{}.{}", answer.epoch, answer.view)),
            ("leader", format!("validator {}", answer.leader)),
            ("parent", answer.parent.to_string()),
            ("time", clock_time(answer.timestamp_ms)),
            (
                "state",
                format!("{} (height {})", answer.state_root, answer.executed_height),
            ),
            ("transactions", answer.transactions.len().to_string()),
        ];
        if let Some(verified) = verified {
            fields.push(("verified", verified));
            if !answer.transactions.is_empty() {
                let claimed = "in parentheses, as the server says: a block does not hold them";
                fields.push(("outcomes", claimed.to_owned()));
            }
        }
        print_fields(&fields)?;
        let lines: Vec<String> = answer
            .transactions
            .iter()
            .map(|transaction| {
                let fields = &transaction.fields;
                format!(
                    "  {} {} -> {} {} ({})",
                    &transaction.id.short(),
                    fields.sender.short(),
                    fields.to.short(),
                    fields.amount,
                    shown(&transaction.outcome)
                )
            })
            .collect();
        print_lines(&lines)
    }

    /// Fetches the block. Repeats the request while the block is so new that the server has no
    /// finalization for it yet.
    async fn ask(&self, client: &RpcClient) -> anyhow::Result<BlockJson> {
        let deadline = Instant::now() + WAIT;
        let mut answer = client.block(&self.which).await?;
        while self.trust.is_some() && answer.certificate.is_none() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
            answer = client.block(&answer.height.to_string()).await?;
        }
        Ok(answer)
    }

    fn check(&self, answer: &BlockJson, verifier: &Verifier) -> anyhow::Result<String> {
        // Decoding checks that the header commits to these transactions.
        let block = block_of(answer)?;
        match self.which.parse::<u64>() {
            Ok(height) => ensure!(block.height().0 == height, "this is not block {height}"),
            Err(_) => ensure!(
                self.which == "latest" || self.which == block.id().to_string(),
                "this is not block {}",
                self.which
            ),
        }
        let descendants = answer
            .descendants
            .iter()
            .map(|text| from_hex::<Header>("header", text))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let certificate = answer
            .certificate
            .as_ref()
            .context("the answer holds no finalization")?;
        let certificate: Certificate = from_hex("certificate", certificate)?;
        let last = *descendants.last().unwrap_or(block.header());
        verify_header(verifier, block.header(), &last, &descendants, &certificate)?;
        // What is printed is read from the answer.
        let header = block.header();
        let leader = verifier.committees().leader(header.epoch, header.view);
        if let Some(field) = differing(answer, &block, leader)? {
            bail!(
                "the answer's `{field}` is not that of its block: what it says cannot be trusted"
            );
        }
        Ok(if descendants.is_empty() {
            "a quorum finalised this block".to_owned()
        } else {
            format!(
                "a quorum finalised its descendant at height {}",
                last.height
            )
        })
    }
}

/// The first field of an answer that its block contradicts. Outcomes are in no block.
fn differing(
    answer: &BlockJson,
    block: &quorate_types::Block,
    leader: ValidatorIndex,
) -> anyhow::Result<Option<String>> {
    let header = block.header();
    if answer.transactions.len() != block.transactions().len() {
        return Ok(Some("transactions".to_owned()));
    }
    let transactions = block.transactions().iter().zip(&answer.transactions);
    let right = BlockJson {
        id: block.id(),
        height: header.height,
        epoch: header.epoch.0,
        view: header.view,
        leader,
        parent: header.parent,
        timestamp_ms: header.timestamp_ms,
        executed_height: header.executed_height,
        state_root: header.state_root,
        transactions: transactions
            .map(|(transaction, claimed)| BlockTransactionJson {
                id: transaction.id(),
                fields: TransactionJson::from_transaction(transaction),
                outcome: claimed.outcome.clone(),
            })
            .collect(),
        block: answer.block.clone(),
        descendants: answer.descendants.clone(),
        certificate: answer.certificate.clone(),
    };
    let (right, claimed) = (serde_json::to_value(right)?, serde_json::to_value(answer)?);
    let fields = right.as_object().into_iter().flatten();
    let wrong = fields.filter(|(name, value)| claimed.get(name) != Some(value));
    Ok(wrong.map(|(name, _)| name.clone()).next())
}

/// Verifies that a header is final: `descendants` must lead from it to `last`, which the
/// certificate finalizes.
pub(super) fn verify_header(
    verifier: &Verifier,
    header: &Header,
    last: &Header,
    descendants: &[Header],
    certificate: &Certificate,
) -> anyhow::Result<()> {
    ensure!(
        [header, last]
            .into_iter()
            .all(|one| verifier.is_of_chain(one)),
        "the block is not of the trust file's chain {}, or of another epoch than its height says: take the trust file of \
         the chain that is asked",
        verifier.chain()
    );
    let mut parent = header.id();
    for descendant in descendants {
        ensure!(descendant.parent == parent, "the headers are not a chain");
        parent = descendant.id();
    }
    let subject = &certificate.subject;
    ensure!(
        certificate.finalizes(last),
        "the certificate does not finalise the block"
    );
    if !verifier.verify(certificate) {
        bail!(
            "NOT VERIFIED: no quorum of this chain's validators stands behind the certificate{}",
            hint(verifier, subject.epoch)
        );
    }
    Ok(())
}

/// Reads a trust file and returns a verifier for its chain.
pub(super) fn load_trust(path: &Path) -> anyhow::Result<Verifier> {
    load_trust_file(path)?
        .verifier()
        .with_context(|| format!("{}", path.display()))
}

pub(super) fn load_trust_file(path: &Path) -> anyhow::Result<Trust> {
    let text = read_text(path, MAX_TRUST_BYTES)?;
    Trust::from_json(&text).with_context(|| format!("{}", path.display()))
}
