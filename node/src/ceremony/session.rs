//! What one participant does, in its order: what must be on disk first, then the message.

use super::{
    board::{Board, Fault, Outcome, Received, Verdict},
    exchange::Shared,
    folder::Folder,
    message::{Body, Message, Step, acceptance},
    transcript::{TRANSCRIPT_FILE, Transcript},
};
use crate::{
    genesis::{GENESIS_FILE, TRUST_FILE},
    keys::{KeyAccess, Protection, SEED_FILE, SecretBytes},
};
use anyhow::{Context as _, anyhow, bail, ensure};
use quorate_crypto::{
    Digest, SecretKey,
    bls::{OpeningSecret, Sum, VoteSecret},
    sha256,
};
use std::sync::Arc;
use zeroize::Zeroizing;

/// One participant's part in a ceremony. Blocks: it computes and waits for the disk.
pub struct Session<'a> {
    shared: Arc<Shared>,
    identity: SecretKey,
    /// `None` if no secret is needed any more.
    seed: Option<SecretBytes>,
    folder: Folder,
    access: &'a KeyAccess,
    protection: Protection<'a>,
    /// Whether the proof of a fault is on disk.
    has_kept_fault: bool,
}

/// Where a ceremony is, for this participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It waits for messages of this step.
    Waiting(Step),
    /// It has failed.
    Faulty(Verdict),
    /// All participants are done.
    Over,
}

impl<'a> Session<'a> {
    /// Goes on with what a folder holds, or begins. Nothing is shown to anybody yet.
    ///
    /// # Errors
    ///
    /// If the folder holds another ceremony, or something that is not written over.
    pub fn open(
        shared: Arc<Shared>,
        identity: SecretKey,
        folder: Folder,
        access: &'a KeyAccess,
        protection: Protection<'a>,
    ) -> anyhow::Result<Self> {
        let mut seed = folder.seed(access)?;
        let own = shared.own();
        match folder.record()? {
            Some(record) => {
                let held = record.plan.digest();
                let digest = shared.digest();
                ensure!(
                    held == digest,
                    "{} is of a ceremony by another plan, whose digest is {held}; that of --plan is {digest}. \
                     Choose another --out, or go on with the other plan",
                    folder.path(super::folder::RECORD_FILE).display()
                );
                let mut board = record.replay().with_context(|| {
                    let path = folder.path(super::folder::RECORD_FILE);
                    format!("cannot go on from {}", path.display())
                })?;
                // A crash between the result and the last message: the others may be gone by now.
                if let Some(done) = folder.transcript()?
                    && done.plan.digest() == digest
                {
                    let mut complete = done.replay()?;
                    for message in board.messages() {
                        complete.receive(message.clone());
                    }
                    board = complete;
                }
                ensure!(
                    seed.is_some()
                        || board.fault().is_some()
                        || board.message(own, Step::Acceptance).is_some(),
                    "{} is gone, and what this participant has announced cannot be opened without it: the \
                     ceremony needs another plan (a new timestamp is enough)",
                    folder.path(SEED_FILE).display()
                );
                *shared.board() = board;
            }
            // A crash after the seed was written, and before the first message.
            None if seed.is_some() => folder.expect_no_chain()?,
            None => {
                folder.expect_no_chain()?;
                seed = Some(folder.make_seed(protection)?);
            }
        }
        Ok(Self {
            shared,
            identity,
            seed,
            folder,
            access,
            protection,
            has_kept_fault: false,
        })
    }

    /// Whether it has signed nothing yet. Then others should be asked first whether they have seen messages of this
    /// participant: its folder may be lost.
    pub fn is_new(&self) -> bool {
        !self.has(Step::Announcement)
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Does everything that can be done with the messages that are here.
    ///
    /// # Errors
    ///
    /// If the file system fails; if others have seen another message of this participant than it would sign.
    pub fn advance(&mut self) -> anyhow::Result<Progress> {
        if self.has_failed() {
            return self.fail();
        }
        if !self.has(Step::Announcement) {
            let key = self.opening()?.key();
            self.publish(Body::Announcement(key))?;
        }
        if self.has_begun(Step::Dealing) && !self.has(Step::Dealing) {
            self.deal()?;
        }
        if self.has_all_dealings() && !self.has(Step::Acceptance) && !self.has_failed() {
            self.accept()?;
        }
        if self.has_begun(Step::Done) && !self.has(Step::Done) {
            self.finish()?;
        }
        if self.has_failed() {
            return self.fail();
        }
        let board = self.shared.board();
        let open = |step: &Step| !board.missing(*step).is_empty();
        Ok(match Step::ALL.into_iter().find(open) {
            Some(step) => Progress::Waiting(step),
            None => Progress::Over,
        })
    }

    fn has(&self, step: Step) -> bool {
        let own = self.shared.own();
        self.shared.board().message(own, step).is_some()
    }

    fn has_begun(&self, step: Step) -> bool {
        self.shared.board().has_begun(step)
    }

    fn has_all_dealings(&self) -> bool {
        self.shared.board().dealings().is_some()
    }

    fn has_failed(&self) -> bool {
        self.shared.board().fault().is_some()
    }

    /// Keeps the proof. The secrets are worth nothing any more.
    fn fail(&mut self) -> anyhow::Result<Progress> {
        let (record, verdict) = {
            let board = self.shared.board();
            let fault = board.fault();
            let (_, verdict) = fault.context("there is no fault")?;
            (Transcript::of(&board, Step::Done), *verdict)
        };
        if !self.has_kept_fault {
            self.folder.keep(&record)?;
            self.folder.erase_seed()?;
            self.seed = None;
            self.has_kept_fault = true;
        }
        Ok(Progress::Faulty(verdict))
    }

    fn deal(&self) -> anyhow::Result<()> {
        let round = self.shared.board().round().cloned();
        let round = round.context("there is no round yet")?;
        let seed = self.derive(b"quorate/ceremony-dealing-seed/1", &round.context, 0)?;
        let dealing = round.deal_fresh(self.shared.own(), *seed)?;
        self.publish(Body::Dealing {
            context: round.context,
            dealing,
        })
    }

    /// Opens the own values; complains of one that is wrong, or accepts the chain.
    fn accept(&self) -> anyhow::Result<()> {
        let own = self.shared.own();
        let (plan, digest, round, dealings) = {
            let board = self.shared.board();
            let round = board.round().cloned();
            let dealings = board.dealings().map(<[_]>::to_vec);
            let both = round.zip(dealings).context("there is no round yet")?;
            (board.plan().clone(), *board.digest(), both.0, both.1)
        };
        let secret = self.opening()?;
        let mut values: Vec<(u32, VoteSecret)> = Vec::with_capacity(dealings.len());
        for dealing in &dealings {
            let dealer = dealing.dealer();
            match dealing.open(&round, own, &secret) {
                Ok(value) => values.push((dealer, value)),
                Err(complaint) => {
                    let context = round.context;
                    let body = Body::Complaint {
                        context,
                        dealer,
                        complaint,
                    };
                    return self.complain(dealer, body);
                }
            }
        }
        let outcome = Outcome::compute(&plan, &round, &dealings)?;
        let share = Sum::Fresh.share(&values)?;
        let keys = &outcome.genesis.validators;
        let key = keys.get(own as usize).map(|validator| &validator.vote_key);
        ensure!(
            key.is_some_and(|key| *key == hex::encode(share.public_key())),
            "the share does not fit the chain's key"
        );
        self.folder
            .install_share(&share, self.access, self.protection)?;
        let chain = outcome.chain;
        let signature = share.sign(&acceptance(&digest, &chain, own));
        self.shared.board().settle(outcome);
        self.publish(Body::Acceptance {
            chain,
            share: signature,
        })
    }

    fn complain(&self, dealer: u32, body: Body) -> anyhow::Result<()> {
        let mut board = self.shared.board();
        let digest = *board.digest();
        let dealt = board.message(dealer, Step::Dealing).cloned();
        let dealt = dealt.context("the dealing is gone")?;
        let complaint = Message::sign(&digest, self.shared.own(), body, &self.identity);
        let fault = Fault::Complaint(Box::new(dealt), Box::new(complaint));
        ensure!(board.receive_fault(fault), "the complaint does not hold");
        Ok(())
    }

    /// Writes the result; then the seed has served.
    fn finish(&mut self) -> anyhow::Result<()> {
        let (genesis, transcript) = {
            let board = self.shared.board();
            let outcome = board.outcome().context("there is no chain yet")?;
            let transcript = Transcript::of(&board, Step::Acceptance);
            (outcome.genesis.clone(), transcript)
        };
        let trust = genesis.trust().to_json();
        self.folder
            .install(TRANSCRIPT_FILE, &transcript.to_json())?;
        self.folder.install(TRUST_FILE, &trust)?;
        self.folder.install(GENESIS_FILE, &genesis.to_json())?;
        self.folder.erase_seed()?;
        self.seed = None;
        self.publish(Body::Done(genesis.chain_id()))
    }

    /// Signs a message; keeps it on disk with all that it depends on; only then puts it where others see it.
    fn publish(&self, body: Body) -> anyhow::Result<()> {
        let own = self.shared.own();
        let digest = self.shared.digest();
        let message = Message::sign(&digest, own, body, &self.identity);
        let step = message.step().context("a complaint is no step")?;
        if let Some(other) = self.shared.elsewhere(step)
            && other.id(&digest) != message.id(&digest)
        {
            bail!(
                "this identity has signed {} that is not the one of this folder, and others have it. Is another \
                 process running with this key? If the folder of an earlier start is lost, the ceremony needs another \
                 plan (a new timestamp is enough)",
                step.what()
            );
        }
        let mut record = Transcript::of(&self.shared.board(), Step::Done);
        record.push(&message);
        self.folder.keep(&record)?;
        let mut board = self.shared.board();
        match board.receive(message) {
            // Another's fault may have come in between; that is said next.
            Received::New | Received::Known | Received::Fault => Ok(()),
            other => Err(anyhow!("the own message is refused: {other:?}")),
        }
    }

    fn opening(&self) -> anyhow::Result<OpeningSecret> {
        let digest = self.shared.digest();
        // About every second hash is below the order of the group.
        for attempt in 0..=u8::MAX {
            let bytes = self.derive(b"quorate/ceremony-opening/1", &digest, attempt)?;
            if let Ok(secret) = OpeningSecret::from_bytes(&bytes) {
                return Ok(secret);
            }
        }
        bail!("no secret comes out of the seed")
    }

    fn derive(
        &self,
        domain: &[u8],
        bound: &Digest,
        attempt: u8,
    ) -> anyhow::Result<Zeroizing<[u8; 32]>> {
        let seed = self.seed.as_ref().context("the seed is erased")?;
        let plan = self.shared.digest();
        let parts: [&[u8]; 5] = [domain, &**seed, &plan.0, &bound.0, &[attempt]];
        Ok(Zeroizing::new(sha256(&parts).0))
    }
}

/// Whether a folder holds the result of a ceremony that is over, by this plan.
///
/// # Errors
///
/// If it holds that of another plan, or cannot be read.
pub fn is_over(folder: &Folder, digest: &Digest) -> anyhow::Result<Option<Board>> {
    if folder.record()?.is_some() {
        return Ok(None);
    }
    let Some(transcript) = folder.transcript()? else {
        return Ok(None);
    };
    let path = folder.path(TRANSCRIPT_FILE);
    let held = transcript.plan.digest();
    ensure!(
        held == *digest,
        "{} is of a ceremony by another plan, whose digest is {held}; that of --plan is {digest}. Choose another \
         --out",
        path.display()
    );
    let board = transcript.replay();
    Ok(Some(board.with_context(|| {
        format!("{} is damaged", path.display())
    })?))
}
