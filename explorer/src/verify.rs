//! Verification of everything that the explorer shows.
//!
//! A range of blocks is accepted if the blocks follow each other and the newest one's finalization
//! is that of a quorum: one pairing check, however long the range is. All other finalizations in it
//! are then checked together, with one more pairing check and random weights.

use crate::upstream::{Chain, ChainBlock, Upstream, UpstreamError, from_hex};
use commonware_codec::{Copying, DecodeExt};
use parking_lot::RwLock;
use quorate_crypto::bls::Proof;
use quorate_storage::{store::adopt_handovers, tree};
use quorate_types::{
    Account, Block, Certificate, Digest, Epoch, Evidence, Handover, Header, Height, Identity,
    Outcome, Subject, ValidatorIndex, View,
    genesis::{GenesisError, Trust, Verifier},
    limits::MAX_BLOCK_BYTES,
    state_key,
};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};
use tracing::info;

/// Maximum size of an encoded certificate.
const MAX_CERTIFICATE_BYTES: usize = 64 + Proof::MAX_BYTES;

/// Maximum size of an encoded change of validators: of 1,024 of them, each with 230 bytes.
const MAX_HANDOVER_BYTES: usize = 256 << 10;

/// Maximum size of an encoded proof in the state tree.
const MAX_PROOF_BYTES: usize = 8_448;

/// A block that is verified to be final.
#[derive(Clone, Debug)]
pub struct FinalBlock {
    pub block: Block,
    /// The outcomes of its transactions, as reported by the validator.
    pub outcomes: Vec<Outcome>,
    /// Its own finalization, verified.
    pub certificate: Option<Certificate>,
    /// The height of the block whose own finalization makes it final.
    pub finalized_by: Height,
}

/// An account's state, proven by a final header.
#[derive(Clone, Debug)]
pub struct ProvenAccount {
    /// The state, or `None` if there is no such account.
    pub account: Option<Account>,
    pub proof: tree::Proof,
    pub header: Header,
    /// The header's finalization.
    pub certificate: Certificate,
}

/// Verifies everything that a chain's trust file allows to verify. On a chain whose validators can change, it
/// follows them by handovers, which upstreams deliver and which it keeps.
pub struct Guard {
    trust: Trust,
    verifier: Verifier,
    handovers: RwLock<BTreeMap<Epoch, String>>,
    /// The epoch up to which an upstream was asked for changes of the validators.
    asked: AtomicU64,
}

impl Guard {
    /// A guard for this trust file.
    ///
    /// # Errors
    ///
    /// If the trust file's keys are invalid.
    pub fn new(trust: Trust) -> Result<Self, GenesisError> {
        let verifier = trust.verifier()?;
        Ok(Self {
            trust,
            verifier,
            handovers: RwLock::default(),
            asked: AtomicU64::new(0),
        })
    }

    /// Whether the validators can change.
    pub fn can_change(&self) -> bool {
        self.verifier.epoch_blocks().is_some()
    }

    /// Asks an upstream for changes of the validators since the newest ones that are known, and adds those
    /// that verify. Returns whether there was one.
    pub async fn learn(&self, upstream: &Upstream) -> bool {
        let newest = || self.verifier.committees().newest();
        let first = newest();
        // What came before an error counts.
        let _ = self.ask(upstream).await;
        newest() > first
    }

    /// Asks for changes of the validators up to an epoch, of which verified blocks have come, unless it has. Certificates
    /// under one group key verify whoever the validators are.
    ///
    /// # Errors
    ///
    /// If the upstream does not answer.
    pub async fn keep_up(&self, epoch: Epoch, upstream: &Upstream) -> Result<(), UpstreamError> {
        if epoch.0 > self.asked.load(Ordering::Relaxed) {
            self.ask(upstream).await?;
            self.asked.fetch_max(epoch.0, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn ask(&self, upstream: &Upstream) -> Result<(), UpstreamError> {
        let newest = || self.verifier.committees().newest();
        while self.can_change() {
            let before = newest();
            self.adopt(&upstream.handovers(before).await?);
            if newest() == before {
                break;
            }
        }
        Ok(())
    }

    fn adopt(&self, texts: &[String]) {
        let Some(length) = self.verifier.epoch_blocks() else {
            return;
        };
        for text in texts {
            let Ok(handover) = from_hex::<Handover>("a handover", text, MAX_HANDOVER_BYTES) else {
                return;
            };
            let committees = self.verifier.committees();
            let verify = |certificate: &_| self.verifier.verify(certificate);
            let of = (&self.verifier.chain(), length);
            let (adopted, flaw) = adopt_handovers(&[handover], committees, of, &verify);
            for handover in adopted {
                info!(epoch = %handover.set.epoch, validators = handover.set.members().len(), "the validators have changed");
                self.handovers
                    .write()
                    .insert(handover.set.epoch, text.clone());
            }
            if flaw.is_some() {
                return;
            }
        }
    }

    /// The changes of the validators after an epoch, the oldest first, until they have so many characters.
    pub fn handovers(&self, after: Epoch, most: usize) -> Vec<(Epoch, String)> {
        let mut length = 0;
        let held = self.handovers.read();
        let later = held.range(after.next()..);
        later
            .take_while(|(_, text)| {
                let before = length;
                length += text.len();
                before < most
            })
            .map(|(epoch, text)| (*epoch, text.clone()))
            .collect()
    }

    /// The validator at a place in an epoch: its identity and its vote key.
    pub fn member(&self, epoch: Epoch, place: ValidatorIndex) -> Option<(Identity, String)> {
        if let Some(set) = self.verifier.committees().set(epoch) {
            let member = set.members().get(place.as_usize())?;
            return Some((member.identity, member.vote_key.to_string()));
        }
        let validator = self.trust.validators.get(place.as_usize())?;
        Some((validator.identity, validator.vote_key.clone()))
    }

    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The first block that the trust file's validators, or later ones, have made final. Those before cannot be
    /// verified.
    pub fn first_height(&self) -> Height {
        match (self.trust.epoch_blocks, self.trust.epoch.previous()) {
            (Some(length), Some(before)) => length.last_height(before).next(),
            _ => Height(1),
        }
    }

    /// The verifier with the trust file's keys.
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// The view in which the block is proposed that a view is a phase of.
    pub fn proposed_in(&self, epoch: Epoch, view: View) -> View {
        match self.trust.protocol.has_phases() {
            true => self.verifier.committees().of(epoch).turn_of(view),
            false => view,
        }
    }

    /// The leader of a view.
    pub fn leader(&self, epoch: Epoch, view: View) -> ValidatorIndex {
        self.verifier.committees().leader(epoch, view)
    }

    /// Verifies the blocks of a validator's answer, from a height on. `parent` is the block below,
    /// or `None` if it is unknown. `seed` must be unpredictable.
    ///
    /// # Errors
    ///
    /// [`UpstreamError::Invalid`] if any part of the answer fails verification.
    pub fn blocks(
        &self,
        answer: &Chain,
        from: Height,
        parent: Option<&Header>,
        seed: [u8; 32],
    ) -> Result<Vec<FinalBlock>, UpstreamError> {
        let mut blocks = Vec::with_capacity(answer.blocks.len());
        let mut expected = from;
        let mut parent = parent.copied();
        for item in &answer.blocks {
            let block = decode_block(item)?;
            self.follows(&block.block, expected, parent.as_ref())?;
            parent = Some(*block.block.header());
            expected = expected.next();
            blocks.push(block);
        }
        let Some((newest, older)) = blocks.split_last() else {
            return Ok(blocks);
        };
        let Some(certificate) = &newest.certificate else {
            return Err(lied("the newest block comes without a finalization"));
        };
        if !self.verifier.verify(certificate) {
            return Err(lied(&format!(
                "no quorum stands behind the finalization of block {}",
                newest.block.height()
            )));
        }
        let others: Vec<&Certificate> = older
            .iter()
            .filter_map(|block| block.certificate.as_ref())
            .collect();
        if !self.verifier.verify_many(&others, seed) {
            return Err(lied("a finalization in the middle does not hold"));
        }
        name_finalizers(&mut blocks);
        Ok(blocks)
    }

    fn follows(
        &self,
        block: &Block,
        expected: Height,
        parent: Option<&Header>,
    ) -> Result<(), UpstreamError> {
        let header = block.header();
        if !self.verifier.is_of_chain(header) {
            return Err(lied("a block of another chain, or of another epoch"));
        }
        if header.height != expected {
            let height = header.height;
            return Err(lied(&format!("block {height} in the place of {expected}")));
        }
        let ancestor = match parent {
            Some(parent) => Some(parent.id()),
            None => (expected == Height(1)).then_some(Digest::ZERO),
        };
        if ancestor.is_some_and(|id| header.parent != id) {
            return Err(lied(&format!(
                "block {expected} does not follow the one before"
            )));
        }
        Ok(())
    }

    /// The subject of a certificate, unverified.
    ///
    /// # Errors
    ///
    /// [`UpstreamError::Invalid`] if it cannot be decoded.
    pub fn subject(&self, text: &str) -> Result<Subject, UpstreamError> {
        from_hex::<Certificate>("a certificate", text, MAX_CERTIFICATE_BYTES)
            .map(|certificate| certificate.subject)
    }

    /// Decodes and verifies a certificate.
    ///
    /// # Errors
    ///
    /// [`UpstreamError::Invalid`] if it is malformed or not signed by a quorum.
    pub fn certificate(&self, text: &str) -> Result<Certificate, UpstreamError> {
        let certificate = from_hex("a certificate", text, MAX_CERTIFICATE_BYTES)?;
        if self.verifier.verify(&certificate) {
            Ok(certificate)
        } else {
            Err(lied("no quorum stands behind a certificate"))
        }
    }

    /// Verifies an account's state against a final header.
    ///
    /// # Errors
    ///
    /// [`UpstreamError::Invalid`] if any part fails verification.
    pub fn account(
        &self,
        identity: &Identity,
        answer: &crate::upstream::Proof,
    ) -> Result<ProvenAccount, UpstreamError> {
        let header: Header = from_hex("a header", &answer.header, 256)?;
        let certificate = self.certificate(&answer.certificate)?;
        if !self.verifier.is_of_chain(&header) || !certificate.finalizes(&header) {
            return Err(lied("the certificate does not finalise the proof's header"));
        }
        let proof: tree::Proof = from_hex("a proof", &answer.proof, MAX_PROOF_BYTES)?;
        let value = proof
            .verify(&header.state_root, &state_key(identity).0)
            .map_err(|error| lied(&error.to_string()))?;
        let account = value
            .map(|bytes| Account::decode(Copying(bytes)))
            .transpose()
            .map_err(|error| lied(&format!("an account: {error}")))?;
        Ok(ProvenAccount {
            account,
            proof,
            header,
            certificate,
        })
    }

    /// Verifies a conflicting pair of votes, both signed by the same validator.
    ///
    /// # Errors
    ///
    /// [`UpstreamError::Invalid`] if it proves nothing.
    pub fn evidence(&self, text: &str) -> Result<Evidence, UpstreamError> {
        let pair: Evidence = from_hex("evidence", text, 300)?;
        let holds = pair.conflict().is_some()
            && self.verifier.verify_vote(&pair.first)
            && self.verifier.verify_vote(&pair.second);
        if holds {
            Ok(pair.canonical())
        } else {
            Err(lied("evidence that convicts nobody"))
        }
    }
}

/// Decodes a block with its finalization and outcomes. Decoding a block checks that its
/// transactions are those that its header commits to.
fn decode_block(item: &ChainBlock) -> Result<FinalBlock, UpstreamError> {
    let block: Block = from_hex("a block", &item.block, MAX_BLOCK_BYTES)?;
    let certificate = item
        .certificate
        .as_ref()
        .map(|text| from_hex::<Certificate>("a certificate", text, MAX_CERTIFICATE_BYTES))
        .transpose()?;
    if certificate
        .as_ref()
        .is_some_and(|certificate| !certificate.finalizes(block.header()))
    {
        return Err(lied(&format!(
            "block {} comes with a certificate that does not finalise it",
            block.height()
        )));
    }
    if item.outcomes.len() != block.transactions().len() {
        return Err(lied("not one outcome for each transaction"));
    }
    let outcomes = item.outcomes.iter();
    let outcomes = outcomes.map(|name| Outcome::from_name(name).ok_or_else(|| lied("an outcome")));
    Ok(FinalBlock {
        outcomes: outcomes.collect::<Result<_, _>>()?,
        finalized_by: block.height(),
        block,
        certificate,
    })
}

/// Sets `finalized_by` of each block without its own finalization to the next block that has one.
fn name_finalizers(blocks: &mut [FinalBlock]) {
    let mut finalizer = Height(0);
    for block in blocks.iter_mut().rev() {
        if block.certificate.is_some() {
            finalizer = block.block.height();
        }
        block.finalized_by = finalizer;
    }
}

fn lied(what: &str) -> UpstreamError {
    UpstreamError::Invalid(what.to_owned())
}
