//! The consensus machine: whatever a peer sends, in whatever order, and however its questions are
//! answered, it does not panic, keeps its bounds, and never contradicts itself.
#![no_main]

use arbitrary::Arbitrary;
use commonware_codec::{Copying, DecodeExt};
use libfuzzer_sys::fuzz_target;
use quorate_consensus::{Config, Engine, Input, Moment, Order, Own, Timing, Tip, Verdict, Work};
use quorate_crypto::bls::{HashedMessage, PartialSignature, Proof};
use quorate_types::{
    Block, ChainId, Committee, Committees, Digest, Epoch, EpochLength, Frame, Header, Height,
    Identity, Message, Proposal, Subject, ValidatorIndex, View, Vote, VoteKind,
    genesis::{BlockLimits, Protocol},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

struct Free;

impl quorate_consensus::VoteSigner for Free {
    fn sign_vote(&self, _: &[u8]) -> (PartialSignature, Option<Arc<HashedMessage>>) {
        (PartialSignature([7; 96]), None)
    }
}

#[derive(Arbitrary, Debug)]
enum Step {
    Vote {
        from: u8,
        signer: u8,
        view: u8,
        epoch: u8,
        kind: u8,
        block: u8,
    },
    Propose {
        from: u8,
        view: u8,
        parent_view: u8,
        parent: u8,
        height: u8,
    },
    Bytes {
        from: u8,
        bytes: Vec<u8>,
    },
    Answer {
        good: bool,
    },
    Valid {
        good: bool,
    },
    Build,
    Executed {
        height: u8,
    },
    Order {
        validator: u8,
        block: bool,
    },
    Time {
        millis: u16,
    },
}

const CHAIN: ChainId = ChainId(Digest([1; 32]));

fn block(view: u64, parent_view: u64, parent: Digest, height: u64) -> Arc<Block> {
    let header = Header {
        chain: CHAIN,
        epoch: Epoch(0),
        view: View(view),
        height: Height(height),
        parent,
        parent_view: View(parent_view),
        timestamp_ms: height * 10 + view,
        executed_height: Height(0),
        state_root: Digest::ZERO,
        body_root: Header::body_root_of(&[]),
    };
    Arc::new(Block::new(header, Vec::new()).expect("an empty block"))
}

fuzz_target!(|steps: Vec<Step>| {
    let identities = (0..4).map(|i| Identity([i; 32])).collect();
    let config = Config {
        chain: CHAIN,
        protocol: Protocol::Simplex,
        committees: Committees::fixed(Committee::new(Epoch(0), identities).expect("distinct")),
        own: Some(Own {
            place: ValidatorIndex(0),
            secret: Arc::new(Free),
        }),
        epoch_length: EpochLength::new(5).expect("at least one"),
        limits: BlockLimits {
            max_transactions: 100,
            max_bytes: 10_000,
        },
        timing: Timing::default(),
        sentences: Vec::new(),
        evidence: Vec::new(),
        checking: quorate_consensus::VoteChecking::default(),
        pardons: Vec::new(),
        silent_before: Epoch(0),
        nonce: None,
        fresh: false,
        goes_on: false,
        seen: Vec::new(),
        survivors: None,
    };
    let mut now = Moment(0);
    let (mut engine, first) =
        Engine::recover(config, Tip::genesis(), Vec::new(), now).expect("an empty journal");
    let mut jobs = Vec::new();
    let mut asked = Vec::new();
    let mut builds = Vec::new();
    let mut ids = vec![Digest::ZERO];
    let mut said: BTreeMap<(Epoch, View), Vec<(VoteKind, Digest)>> = BTreeMap::new();
    let mut outputs = vec![first];
    let mut steps = steps.into_iter().take(400);
    loop {
        for output in outputs.drain(..) {
            if output.fatal.is_some() {
                return;
            }
            jobs.extend(output.jobs);
            asked.extend(output.validate);
            builds.extend(output.build);
            for outbound in output.votes {
                let Message::Vote(Vote { subject, .. }) = outbound.message else {
                    panic!("what is no vote is sent as one");
                };
                let list = said.entry((subject.epoch, subject.view)).or_default();
                for (kind, payload) in list.iter() {
                    let pair = (*kind, subject.kind);
                    assert!(
                        pair != (VoteKind::Finalize, VoteKind::Nullify)
                            && pair != (VoteKind::Nullify, VoteKind::Finalize)
                    );
                    assert!(*kind != subject.kind || *payload == subject.payload);
                }
                list.push((subject.kind, subject.payload));
            }
        }
        let holdings = engine.holdings();
        assert!(holdings.rounds_ahead <= 9 && holdings.wants <= 64 && holdings.early <= 192);
        let Some(step) = steps.next() else { return };
        let input = match step {
            Step::Vote {
                from,
                signer,
                view,
                epoch,
                kind,
                block,
            } => {
                let kind = VoteKind::ALL[usize::from(kind) % 3];
                let payload = match kind {
                    VoteKind::Nullify => Digest::ZERO,
                    _ => ids[usize::from(block) % ids.len()],
                };
                let subject = Subject {
                    epoch: Epoch(u64::from(epoch % 3)),
                    view: View(u64::from(view)),
                    kind,
                    payload,
                };
                let vote = Vote {
                    subject,
                    signer: ValidatorIndex(u32::from(signer % 5)),
                    signature: PartialSignature([block; 96]),
                };
                Input::Frame {
                    from: ValidatorIndex(u32::from(from % 5)),
                    messages: vec![Message::Vote(vote)],
                }
            }
            Step::Propose {
                from,
                view,
                parent_view,
                parent,
                height,
            } => {
                let parent = ids[usize::from(parent) % ids.len()];
                let (view, height) = (u64::from(view), u64::from(height));
                let block = block(view, u64::from(parent_view), parent, height);
                ids.push(block.id());
                Input::Frame {
                    from: ValidatorIndex(u32::from(from % 5)),
                    messages: vec![Message::Proposal(Box::new(Proposal {
                        epoch: Epoch(0),
                        view: View(view),
                        block,
                        parent_certificate: None,
                        certificates: Vec::new(),
                    }))],
                }
            }
            Step::Bytes { from, bytes } => {
                let Ok(Frame(messages)) = Frame::decode(Copying(&bytes)) else {
                    continue;
                };
                Input::Frame {
                    from: ValidatorIndex(u32::from(from % 5)),
                    messages,
                }
            }
            Step::Answer { good } => {
                let Some(job) = jobs.pop() else { continue };
                let job: quorate_consensus::Job = job;
                let verdict = match &job.work {
                    Work::Certify(_) if good => Verdict::Certified(Ok(Proof::Threshold([1; 48]))),
                    Work::Certify(batch) => Verdict::Certified(Err(batch
                        .parts
                        .iter()
                        .map(|part| part.0)
                        .take(1)
                        .collect())),
                    Work::VerifyCertificates(list) => Verdict::Verified(vec![good; list.len()]),
                    Work::VerifyVotes(list) => Verdict::Verified(vec![good; list.len()]),
                };
                Input::Checked {
                    job: job.id,
                    verdict,
                }
            }
            Step::Valid { good } => {
                let Some(request) = asked.pop() else { continue };
                let request: quorate_consensus::ValidateRequest = request;
                Input::Validated {
                    view: request.view,
                    block: request.block.id(),
                    valid: good,
                }
            }
            Step::Build => {
                let Some(request) = builds.pop() else {
                    continue;
                };
                let request: quorate_consensus::BuildRequest = request;
                if request.epoch != Epoch(0) {
                    continue;
                }
                let (parent, height) = match &request.parent {
                    Some(parent) => (parent.id(), parent.height().0 + 1),
                    None => (Digest::ZERO, 1),
                };
                let block = block(request.view.0, request.parent_view.0, parent, height);
                ids.push(block.id());
                Input::Built {
                    view: request.view,
                    block,
                }
            }
            Step::Executed { height } => {
                let height = Height(u64::from(height)).min(engine.tip().height);
                Input::Executed { height }
            }
            Step::Order { validator, block } => Input::Ordered {
                validator: ValidatorIndex(u32::from(validator % 4)),
                order: if block { Order::Block } else { Order::Pardon },
            },
            Step::Time { millis } => {
                now = now.after(Duration::from_millis(u64::from(millis)));
                Input::Tick
            }
        };
        outputs.push(engine.step(now, input));
    }
});
