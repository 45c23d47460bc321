//! Proofs of accounts that verify offline.
//!
//! The tree holds the newest state only, and a state is certified by a *later* header that names
//! it. So each request is proven at the newest state and every one that comes along, and answered when a final header
//! names one of them. Some are never named: leaders name the newest state that they
//! have executed, and may skip some. Empty blocks change no state: a header that names the state after one of them will do.
//! An idle chain goes on until a final header names the newest state, and then rests.
//!
//! Once the newest final header names the newest state, requests are
//! answered at once, a few per block.

use quorate_consensus::Finalized;
use quorate_storage::tree::{Proof, TableRows, Tree};
use quorate_types::{Certificate, Digest, Header, Height, Identity, state_key};
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// Most requests that wait.
const MAX_REQUESTS: usize = 256;

/// Most proofs between two blocks, so that they never delay execution for long.
const MAX_PROOFS_PER_BLOCK: usize = 32;

/// Most states at which a request is proven.
const MAX_STATES_PER_REQUEST: usize = 8;

/// An account's proof, with the final header that names its state.
#[derive(Clone, Debug)]
pub struct AccountProof {
    /// The proof that the account is, or is not, in the state.
    pub proof: Proof,
    pub executed_height: Height,
    pub state_root: Digest,
    /// A final header that names this height and root.
    pub header: Header,
    /// The header's finalization.
    pub certificate: Certificate,
}

/// Why there is no proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofRefused {
    /// 256 requests wait already.
    #[error("too many requests for proofs; try again later")]
    Busy,
}

struct Request {
    identity: Identity,
    answer: oneshot::Sender<Result<AccountProof, ProofRefused>>,
    /// The roots of states, and what each holds for the account.
    proven: VecDeque<(Digest, Proof)>,
}

/// The waiting requests.
#[derive(Default)]
pub(super) struct Proofs {
    requests: VecDeque<Request>,
    /// A final header that names the newest state.
    named: Option<(Header, Certificate)>,
    /// Proofs since the newest block.
    made: usize,
}

impl Proofs {
    /// Answers a request, or keeps it until a final header names the newest state or a later one.
    pub(super) fn ask(
        &mut self,
        tree: &Tree<TableRows>,
        identity: Identity,
        answer: oneshot::Sender<Result<AccountProof, ProofRefused>>,
    ) -> anyhow::Result<()> {
        if self.made < MAX_PROOFS_PER_BLOCK
            && let Some((header, certificate)) = &self.named
        {
            self.made += 1;
            // The client may have gone.
            let _ = answer.send(Ok(AccountProof {
                proof: tree.prove(&state_key(&identity).0)?,
                executed_height: header.executed_height,
                state_root: header.state_root,
                header: *header,
                certificate: certificate.clone(),
            }));
            return Ok(());
        }
        // Requests whose clients have stopped waiting make room.
        self.requests.retain(|request| !request.answer.is_closed());
        if self.requests.len() >= MAX_REQUESTS {
            let _ = answer.send(Err(ProofRefused::Busy));
            return Ok(());
        }
        self.requests.push_back(Request {
            identity,
            answer,
            proven: VecDeque::new(),
        });
        self.prove(tree)
    }

    /// Notes final blocks, and the accounts' root after the last of them.
    pub(super) fn executed<'a>(
        &mut self,
        blocks: impl Iterator<Item = &'a Finalized>,
        root: Digest,
    ) {
        self.made = 0;
        self.named.take_if(|(header, _)| header.state_root != root);
        for Finalized { block, certificate } in blocks {
            if let Some(certificate) = certificate
                && block.header().state_root == root
            {
                self.named = Some((*block.header(), certificate.clone()));
            }
        }
    }

    /// Proves waiting requests at the newest state.
    pub(super) fn prove(&mut self, tree: &Tree<TableRows>) -> anyhow::Result<()> {
        let root = tree.root();
        let is_missing = |request: &&mut Request| {
            let newest = request.proven.back();
            newest.is_none_or(|(proven, _)| *proven != root)
        };
        for request in self.requests.iter_mut().filter(is_missing) {
            if self.made >= MAX_PROOFS_PER_BLOCK {
                break;
            }
            self.made += 1;
            let proof = tree.prove(&state_key(&request.identity).0)?;
            request.proven.push_back((root, proof));
            if request.proven.len() > MAX_STATES_PER_REQUEST {
                request.proven.pop_front();
            }
        }
        Ok(())
    }

    /// Answers the requests that are proven at the state that this final block's header names.
    pub(super) fn settle(&mut self, finalized: &Finalized) {
        let Some(certificate) = &finalized.certificate else {
            return;
        };
        let header = *finalized.block.header();
        for mut request in std::mem::take(&mut self.requests) {
            let mut proven = request.proven.iter();
            let named = proven.position(|(root, _)| *root == header.state_root);
            let Some((_, proof)) = named.and_then(|i| request.proven.remove(i)) else {
                self.requests.push_back(request);
                continue;
            };
            // The client may have gone; then nobody needs the answer.
            let _ = request.answer.send(Ok(AccountProof {
                proof,
                executed_height: header.executed_height,
                state_root: header.state_root,
                header,
                certificate: certificate.clone(),
            }));
        }
    }
}
