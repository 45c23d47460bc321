//! Scenario scripts: stories about one validator, with the trace that they must give.
//!
//! A script in `tests/scenarios/` is commands; below each stands, indented, what the machine says.
//! Validator 0 of 4 is the machine; the others are the script's. With `QUORATE_BLESS=1` the
//! expected traces are written anew; the diff is for reviewing.
//!
//! | command | meaning |
//! |---|---|
//! | `start` | a fresh machine |
//! | `crash` | everything that was not synced is gone (all votes that left were), and it starts again |
//! | `checkpoint` | the journal is replaced by the least that must stay |
//! | `complete` | asks whether nothing in the chain waits for a further block |
//! | `executed HEIGHT` | blocks up to here are in the database (a crash loses that again) |
//! | `propose VIEW NAME PARENT [PARENT_VIEW]` | VIEW's leader proposes block NAME on PARENT (a name or `genesis`) |
//! | `attach KIND VIEW [NAME]` | the next proposal carries this certificate beside that of its parent |
//! | `hidden VIEW NAME PARENT` | VIEW's leader proposes block NAME to others, and not to the machine |
//! | `junk VIEW HEIGHT` | VIEW's leader proposes a block of this height on a parent that nobody knows |
//! | `block NAME [WHO]` | WHO (else validator 1) answers with this block |
//! | `range WHO [NAME…]` | WHO answers with these finalised blocks, without a finalization |
//! | `vote WHO KIND VIEW [NAME]` | a valid vote |
//! | `garbage WHO KIND VIEW [NAME]` | a vote with an invalid signature |
//! | `relay BY WHO KIND VIEW [NAME]` | WHO's vote, sent by BY |
//! | `certificate WHO KIND VIEW [NAME]` | WHO sends a valid certificate |
//! | `false-certificate WHO KIND VIEW [NAME]` | the same for the view after it, whose signatures it has not |
//! | `check` | the work that was asked for is done |
//! | `quick` | only its quick part: the one check of each quorum, and certificates |
//! | `search` | then the rest: who spoiled a check, and votes one by one |
//! | `checking WAY` | machines started from now on check votes so: `together`, `unblocked`, `eager` |
//! | `valid NAME` | the application finds the block valid |
//! | `build NAME` | the application builds the block that was asked for |
//! | `time MS` | so many milliseconds go by |
//! | `protocol NAME` | machines started from now on run this protocol (else simplex) |
//! | `epochs N` | from now on started machines have epochs of N blocks (else 1,000) |
//! | `registry` | machines started from now on are of a chain whose validators can change |
//! | `replace` | machines started from now on are of epoch 1, in which validators 1 and 2 have each other's places |
//! | `fix stays`, `fix changes` | the application has executed the block that fixes the next validators |
//! | `close stays`, `close changes` | the application has executed the epoch's last block (and that one) |
//! | `silent EPOCH` | machines started from now on have lost their journal, and vote from EPOCH on |
//! | `again VIEW NAME NOTARIZED` | VIEW's leader proposes NAME again, with its notarization in NOTARIZED |
//! | `status WHO VIEW HEIGHT` | WHO says that it is in VIEW, with HEIGHT final |
//! | `evidence BY WHO KIND VIEW NAME / KIND VIEW NAME` | BY sends two votes of WHO as evidence |
//! | `false-evidence …` | the same, but the second vote's signature is invalid |
//! | `link WHO up`, `link WHO down` | the link to WHO has come up or ended |
//! | `idle MS` | machines started from now on let leaders wait so long for something to put into a block |
//! | `pending yes`, `pending no` | something that needs a block is known, or nothing is |
//! | `asks` | machines started from now on ask the others at their start what their key has voted |
//! | `goes-on` | machines started from now on go on from another one of the same process, which voted |
//! | `anew` | another machine of the same process, with the journal as it is and what this one has seen |
//! | `inquiry WHO` | WHO asks what its key has voted |
//! | `followed` | whether another machine may go on from this one without asking |
//! | `observes` | machines started from now on have no vote |
//! | `standing WHO [KIND VIEW [NAME]]` | WHO answers that its journal is whole and, if named, that it has seen this vote of the machine |
//! | `lost` | machines started from now on have lost their journal, and ask what they may have voted |
//! | `answers WHO KIND VIEW [NAME]` | WHO answers that its journal is whole, and this certificate its newest one |
//! | `late-answer WHO KIND VIEW [NAME]` | the same to an inquiry of an earlier start |
//! | `order block WHO`, `order pardon WHO` | the operator's word |
//!
//! A VIEW of a later epoch is written `EPOCH.VIEW`.

#![allow(missing_docs, clippy::unwrap_used)]

use quorate_consensus::{
    BuildRequest, Config, Engine, Input, Job, Missing, Moment, Order, Outbound, Output, Own,
    Search, Target, Timing, Tip, VoteChecking, Worker,
};
use quorate_crypto::{
    SecretKey,
    bls::{AggregateMember, HashedMessage, Scheme, SchemeKind, VoteSecret, deal},
    sha256,
};
use quorate_types::{
    Block, Certificate, ChainId, Committee, Committees, Digest, Epoch, EpochLength, Evidence,
    Header, Height, JournalState, Member, Message, Nonce, Proposal, Record, Roster, Silence,
    Standing, Status, Subject, ValidatorIndex, ValidatorSet, View, Vote, VoteKey, VoteKind,
    genesis::{BlockLimits, Protocol, Turns},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    fs,
    path::Path,
    sync::Arc,
    time::Duration,
};

/// The committee as a set of validators, the first of them at an address.
fn set(committee: &Committee, epoch: Epoch, first: &str) -> ValidatorSet {
    let members = committee.identities().iter().zip(0..);
    let members = members.map(|(identity, place)| Member {
        identity: *identity,
        vote_key: VoteKey([place; 96]),
        address: if place == 0 { first } else { "there:1" }.parse().unwrap(),
        name: "".parse().unwrap(),
    });
    ValidatorSet::of_members(epoch, members.collect())
}

struct Story {
    chain: ChainId,
    committee: Committee,
    /// Those of the machine.
    committees: Committees,
    epoch_length: EpochLength,
    silent_before: Epoch,
    nonce: Option<Nonce>,
    /// The machine's newest question.
    asked: Nonce,
    idle_interval: Duration,
    secrets: Vec<Arc<VoteSecret>>,
    worker: Worker,
    scheme: Scheme,
    engine: Option<Engine>,
    now: Moment,
    journal: Vec<Record>,
    jobs: Vec<Job>,
    searches: Vec<Search>,
    goes_on: bool,
    /// What the machine before has seen of the others' votes.
    seen: Vec<Vote>,
    observes: bool,
    checking: VoteChecking,
    protocol: Protocol,
    tip: Tip,
    build: Option<BuildRequest>,
    attached: Vec<Certificate>,
    blocks: BTreeMap<String, Arc<Block>>,
    names: HashMap<Digest, String>,
    trace: String,
}

impl Story {
    fn new(kind: SchemeKind) -> Self {
        let (scheme, secrets) = scheme(kind);
        let chain = ChainId(sha256(&[b"story"]));
        let identities = (1..=4)
            .map(|i| SecretKey::from_bytes(&[i; 32]).identity())
            .collect();
        let committee = Committee::new(Epoch(0), identities).unwrap();
        Self {
            chain,
            committees: Committees::fixed(committee.clone()),
            committee,
            epoch_length: EpochLength::new(1_000).unwrap(),
            silent_before: Epoch(0),
            nonce: None,
            asked: Nonce([0; 16]),
            idle_interval: Duration::ZERO,
            secrets: secrets.into_iter().map(Arc::new).collect(),
            worker: Worker::new(chain, scheme.clone()),
            scheme,
            engine: None,
            now: Moment(0),
            journal: Vec::new(),
            jobs: Vec::new(),
            searches: Vec::new(),
            checking: VoteChecking::default(),
            protocol: Protocol::Simplex,
            tip: Tip::genesis(),
            goes_on: false,
            seen: Vec::new(),
            observes: false,
            build: None,
            attached: Vec::new(),
            blocks: BTreeMap::new(),
            names: HashMap::from([(Digest::ZERO, "-".to_owned())]),
            trace: String::new(),
        }
    }

    fn run(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |place: usize| -> u64 { words[place].parse().unwrap() };
        match words[0] {
            "start" | "crash" => self.start(),
            // The database holds this block as its newest, without a finalization.
            "stored" => {
                let block = self.blocks[words[1]].clone();
                self.tip = Tip {
                    view: block.header().view,
                    height: block.height(),
                    id: block.id(),
                    block: Some(block),
                    certificate: None,
                };
            }
            "attach" => {
                let certificate = self.certificate(&words[1..]);
                self.attached.push(certificate);
            }
            "complete" => {
                let engine = self.engine.as_ref().unwrap();
                let text = match engine.is_complete(|_| Some(Digest::ZERO)) {
                    true => "complete",
                    false => "waits for a block",
                };
                self.say(text);
            }
            "checkpoint" => self.journal = self.engine.as_ref().unwrap().checkpoint(),
            "executed" => {
                let height = Height(number(1));
                self.step(Input::Executed { height });
            }
            "registry" => {
                let sets = vec![set(&self.committee, Epoch(0), "here:1")];
                let committees = Committees::changing(sets, Epoch(0), Epoch(0), Roster::new());
                self.committees = committees.unwrap();
            }
            "replace" => {
                let mut identities = self.committee.identities().to_vec();
                identities.swap(1, 2);
                let swapped = Committee::new(Epoch(1), identities).unwrap();
                let sets = vec![
                    set(&self.committee, Epoch(0), "here:1"),
                    set(&swapped, Epoch(1), "here:1"),
                ];
                let committees = Committees::changing(sets, Epoch(1), Epoch(1), Roster::new());
                self.committees = committees.unwrap();
            }
            "fix" => self.fix(words[1]),
            "close" => {
                self.fix(words[1]);
                self.committees.close(Epoch(0), &BTreeMap::new());
            }
            "protocol" => {
                self.protocol = words[1].parse().unwrap();
                self.committee = self.committee.with_turns(Turns::of(self.protocol));
                self.committees = Committees::fixed(self.committee.clone());
            }
            "epochs" => self.epoch_length = EpochLength::new(number(1)).unwrap(),
            "hidden" => {
                let (epoch, view) = view(words[1]);
                drop(self.block(words[2], words[3], (epoch, view), view.0 - 1));
            }
            "propose" => {
                let (epoch, view) = view(words[1]);
                let parent_view = words.get(4).map_or(view.0 - 1, |v| v.parse().unwrap());
                let block = self.block(words[2], words[3], (epoch, view), parent_view);
                self.propose((epoch, view), block, None);
            }
            "idle" => self.idle_interval = Duration::from_millis(number(1)),
            "pending" => self.step(Input::Pending(words[1] == "yes")),
            "asks" => self.nonce = Some(Nonce([5; 16])),
            "goes-on" => self.goes_on = true,
            "anew" => {
                self.seen = self.engine.as_ref().unwrap().seen();
                self.start();
            }
            "inquiry" => self.hear(number(1) as u32, Message::Inquiry(Nonce([6; 16]))),
            "followed" => {
                let engine = self.engine.as_ref().unwrap();
                self.say(match engine.can_be_followed() {
                    true => "the next one asks nobody",
                    false => "the next one asks",
                });
            }
            "observes" => self.observes = true,
            "standing" => {
                let vote = words.get(2).map(|_| self.vote(0, &words[2..]));
                let standing = Standing {
                    nonce: self.asked,
                    journal: JournalState::Whole,
                    newest: None,
                    vote,
                };
                self.hear(number(1) as u32, Message::Standing(Box::new(standing)));
            }
            "lost" => self.journal = vec![Record::Silence(Silence::Unknown)],
            "answers" | "late-answer" => {
                let standing = Standing {
                    nonce: match words[0] {
                        "answers" => self.asked,
                        _ => Nonce([0; 16]),
                    },
                    journal: JournalState::Whole,
                    newest: Some(self.certificate(&words[2..])),
                    vote: None,
                };
                self.hear(number(1) as u32, Message::Standing(Box::new(standing)));
            }
            "silent" => self.silent_before = Epoch(number(1)),
            "again" => {
                let block = self.blocks[words[2]].clone();
                let certificate = self.certificate(&["notarize", words[3], words[2]]);
                self.propose(view(words[1]), block, Some(certificate));
            }
            "status" => {
                let (epoch, view) = view(words[2]);
                let status = Status {
                    epoch,
                    view,
                    finalized_height: Height(number(3)),
                    executed_height: Height(number(3)),
                    convicted: Digest::ZERO,
                };
                self.hear(number(1) as u32, Message::Status(status));
            }
            "evidence" | "false-evidence" => {
                let pair: Vec<&[&str]> = words[3..].split(|word| *word == "/").collect();
                let mut evidence = Evidence {
                    first: self.vote(number(2), pair[0]),
                    second: self.vote(number(2), pair[1]),
                };
                if words[0] == "false-evidence" {
                    let other = HashedMessage::new(b"something else");
                    evidence.second.signature = self.secrets[number(2) as usize].sign(&other);
                }
                self.hear(number(1) as u32, Message::Evidence(Box::new(evidence)));
            }
            "link" => {
                let peer = ValidatorIndex(number(1) as u32);
                let up = words[2] == "up";
                self.step(Input::Linked { peer, up });
            }
            "order" => {
                let order = match words[1] {
                    "block" => Order::Block,
                    "pardon" => Order::Pardon,
                    other => panic!("unknown order {other}"),
                };
                let validator = ValidatorIndex(number(2) as u32);
                self.step(Input::Ordered { validator, order });
            }
            "block" => {
                let block = self.blocks[words[1]].clone();
                let who = words.get(2).map_or(1, |who| who.parse().unwrap());
                self.hear(who, Message::BlockReply(block));
            }
            "range" => {
                let blocks = words[2..].iter().map(|name| self.blocks[*name].clone());
                let reply = Message::RangeReply {
                    blocks: blocks.collect(),
                    finalization: None,
                };
                self.hear(number(1) as u32, reply);
            }
            "junk" => {
                let (epoch, view) = view(words[1]);
                let name = format!("junk{}", words[2]);
                let honest = self.block(&name, "genesis", (epoch, view), view.0 - 1);
                let header = Header {
                    height: Height(number(2)),
                    parent: sha256(&[b"no such block"]),
                    ..*honest.header()
                };
                let block = Arc::new(Block::new(header, Vec::new()).unwrap());
                self.names.insert(block.id(), name);
                self.propose((epoch, view), block, None);
            }
            "vote" => {
                let vote = self.vote(number(1), &words[2..]);
                self.hear(vote.signer.0, Message::Vote(vote));
            }
            "garbage" => {
                let mut vote = self.vote(number(1), &words[2..]);
                let other = HashedMessage::new(b"something else");
                vote.signature = self.secrets[vote.signer.as_usize()].sign(&other);
                self.hear(vote.signer.0, Message::Vote(vote));
            }
            "relay" => {
                let vote = self.vote(number(2), &words[3..]);
                self.hear(number(1) as u32, Message::Vote(vote));
            }
            "certificate" => {
                let certificate = self.certificate(&words[2..]);
                self.hear(number(1) as u32, Message::Certificate(certificate));
            }
            "false-certificate" => {
                // The signatures are of the view before.
                let mut certificate = self.certificate(&words[2..]);
                certificate.subject.view = certificate.subject.view.next();
                self.hear(number(1) as u32, Message::Certificate(certificate));
            }
            "check" => {
                for job in std::mem::take(&mut self.jobs) {
                    for (job, verdict) in self.worker.run(vec![job], [7; 32]) {
                        self.step(Input::Checked { job, verdict });
                    }
                }
            }
            "quick" => {
                for job in std::mem::take(&mut self.jobs) {
                    let (verdicts, searches) = self.worker.check(vec![job], [7; 32]);
                    self.searches.extend(searches);
                    for (job, verdict) in verdicts {
                        self.step(Input::Checked { job, verdict });
                    }
                }
            }
            "search" => {
                for search in std::mem::take(&mut self.searches) {
                    let (job, verdict) = self.worker.search(search, [7; 32]);
                    self.step(Input::Checked { job, verdict });
                }
            }
            "checking" => {
                self.checking = match words[1] {
                    "together" => VoteChecking::Together,
                    "unblocked" => VoteChecking::TogetherUnblocked,
                    "eager" => VoteChecking::Eager,
                    other => panic!("unknown way {other}"),
                }
            }
            "valid" => {
                let block = self.blocks[words[1]].clone();
                self.step(Input::Validated {
                    view: block.header().view,
                    block: block.id(),
                    valid: true,
                });
            }
            "build" => {
                let request = self.build.take().expect("a block was asked for");
                let parent = request.parent.as_ref().map_or(Digest::ZERO, |b| b.id());
                let parent = self.names[&parent].clone();
                let parent = if parent == "-" { "genesis" } else { &parent };
                let (view, above) = (request.view, request.parent_view);
                let block = self.block(words[1], parent, (request.epoch, view), above.0);
                self.step(Input::Built { view, block });
            }
            "time" => {
                self.now = self.now.after(Duration::from_millis(number(1)));
                self.step(Input::Tick);
            }
            other => panic!("unknown command {other}"),
        }
    }

    fn fix(&self, how: &str) {
        let first = match how {
            "stays" => "here:1",
            "changes" => "elsewhere:1",
            other => panic!("unknown succession {other}"),
        };
        self.committees
            .decide(set(&self.committee, Epoch(1), first));
    }

    fn start(&mut self) {
        let config = Config {
            chain: self.chain,
            protocol: self.protocol,
            committees: self.committees.clone(),
            epoch_length: self.epoch_length,
            limits: BlockLimits {
                max_transactions: 100,
                max_bytes: 10_000,
            },
            sentences: Vec::new(),
            evidence: Vec::new(),
            checking: self.checking,
            pardons: Vec::new(),
            silent_before: self.silent_before,
            nonce: self.nonce,
            fresh: false,
            goes_on: self.goes_on,
            seen: self.seen.clone(),
            survivors: None,
            own: (!self.observes).then(|| Own {
                place: ValidatorIndex(0),
                secret: self.secrets[0].clone(),
            }),
            timing: Timing {
                leader_timeout: Duration::from_millis(100),
                view_timeout: Duration::from_millis(200),
                max_timeout: Duration::from_secs(10),
                resend_interval: Duration::from_millis(100),
                fetch_timeout: Duration::from_millis(50),
                idle_interval: self.idle_interval,
            },
        };
        self.jobs.clear();
        self.searches.clear();
        let journal = self.journal.clone();
        let (engine, output) =
            Engine::recover(config, self.tip.clone(), journal, self.now).unwrap();
        self.engine = Some(engine);
        self.tell(output);
    }

    fn propose(
        &mut self,
        (epoch, view): (Epoch, View),
        block: Arc<Block>,
        certificate: Option<Certificate>,
    ) {
        let leader = self.committee.with_epoch(epoch).leader(view);
        let proposal = Proposal {
            epoch,
            view,
            block,
            parent_certificate: certificate,
            certificates: std::mem::take(&mut self.attached),
        };
        self.hear(leader.0, Message::Proposal(Box::new(proposal)));
    }

    fn block(
        &mut self,
        name: &str,
        parent: &str,
        (epoch, view): (Epoch, View),
        parent_view: u64,
    ) -> Arc<Block> {
        if let Some(block) = self.blocks.get(name) {
            return block.clone();
        }
        let above = self.blocks.get(parent).map(|block| *block.header());
        let header = Header {
            chain: self.chain,
            epoch,
            view,
            height: above.map_or(Height(1), |header| header.height.next()),
            parent: above.map_or(Digest::ZERO, |header| header.id()),
            parent_view: View(parent_view),
            timestamp_ms: (epoch.0 * 100 + view.0) * 1_000
                + name.len() as u64
                + u64::from(name.as_bytes()[0]),
            executed_height: Height(0),
            state_root: Digest::ZERO,
            body_root: Digest::ZERO,
        };
        let block = Arc::new(Block::new(header, Vec::new()).unwrap());
        self.blocks.insert(name.to_owned(), block.clone());
        self.names.insert(block.id(), name.to_owned());
        block
    }

    fn subject(&self, words: &[&str]) -> Subject {
        let kind = VoteKind::ALL
            .into_iter()
            .find(|kind| kind.name() == words[0])
            .unwrap();
        let payload = words
            .get(2)
            .map_or(Digest::ZERO, |name| self.blocks[*name].id());
        let (epoch, view) = view(words[1]);
        Subject {
            epoch,
            view,
            kind,
            payload,
        }
    }

    fn vote(&self, signer: u64, words: &[&str]) -> Vote {
        let subject = self.subject(words);
        let message = HashedMessage::new(&subject.signed_bytes(&self.chain));
        Vote {
            subject,
            signer: ValidatorIndex(signer as u32),
            signature: self.secrets[signer as usize].sign(&message),
        }
    }

    fn certificate(&self, words: &[&str]) -> Certificate {
        let subject = self.subject(words);
        let message = HashedMessage::new(&subject.signed_bytes(&self.chain));
        let parts: Vec<_> = (1..4)
            .map(|i| (i, self.secrets[i as usize].sign(&message)))
            .collect();
        let proof = self.scheme.certify(&message, &parts, [1; 32]).unwrap();
        Certificate { subject, proof }
    }

    fn hear(&mut self, from: u32, message: Message) {
        self.step(Input::Frame {
            from: ValidatorIndex(from),
            messages: vec![message],
        });
    }

    fn step(&mut self, input: Input) {
        let output = self.engine.as_mut().unwrap().step(self.now, input);
        self.tell(output);
    }

    fn tell(&mut self, output: Output) {
        for record in &output.persist {
            self.journal.push(record.clone());
            let text = match record {
                Record::Vote(vote) => self.describe(&vote.subject),
                Record::Block(block) => format!("block {}", self.names[&block.id()]),
                Record::Certificate(c) => self.describe_certificate(c),
                Record::Silence(silence) => format!("{silence:?}"),
            };
            self.say(&format!("journal {text}"));
        }
        for job in &output.jobs {
            let text = match &job.work {
                quorate_consensus::Work::Certify(batch) => {
                    let signers: Vec<u32> = batch.parts.iter().map(|(s, _)| *s).collect();
                    format!("{} by {signers:?}", self.describe(&batch.subject))
                }
                quorate_consensus::Work::VerifyCertificates(all) => {
                    let all: Vec<_> = all.iter().map(|c| self.describe_certificate(c)).collect();
                    all.join(", ")
                }
                quorate_consensus::Work::VerifyVotes(votes) => {
                    let all: Vec<_> = votes.iter().map(|v| self.describe(&v.subject)).collect();
                    format!("{} by {} one by one", all.join(", "), votes[0].signer)
                }
            };
            self.say(&format!("check {text}"));
        }
        self.jobs.extend(output.jobs);
        for Outbound { to, message } in output.send.iter().chain(&output.votes) {
            if let Message::Inquiry(nonce) = message {
                self.asked = *nonce;
            }
            let to = match to {
                Target::All => "all".to_owned(),
                Target::One(place) => place.to_string(),
            };
            let text = match message {
                Message::Vote(vote) => self.describe(&vote.subject),
                Message::Certificate(c) => self.describe_certificate(c),
                Message::Proposal(p) => format!("proposal {}", self.names[&p.block.id()]),
                Message::BlockRequest(id) => format!("request for block {}", self.names[id]),
                Message::CertificateRequest { first, last, .. } => {
                    format!("request for what closed views {first} to {last}")
                }
                Message::Evidence(pair) => format!("evidence against {}", pair.first.signer),
                Message::RangeRequest(from) => format!("request for blocks from height {from}"),
                Message::Standing(standing) => match &standing.vote {
                    Some(vote) => format!("it has seen {}", self.describe(&vote.subject)),
                    None => "it has seen no vote".to_owned(),
                },
                other => other.name().to_owned(),
            };
            self.say(&format!("send {to}: {text}"));
        }
        for request in &output.validate {
            self.say(&format!("validate {}", self.names[&request.block.id()]));
        }
        if let Some(request) = output.build {
            let parent = request.parent.as_ref().map_or(Digest::ZERO, |b| b.id());
            self.say(&format!(
                "build on {} for view {}",
                self.names[&parent], request.view
            ));
            self.build = Some(request);
        }
        for finalized in &output.finalized {
            self.say(&format!("final {}", self.names[&finalized.block.id()]));
        }
        if let Some(epoch) = output.ended {
            self.say(&format!("epoch {} ends, and this machine with it", epoch.0));
        }
        for epoch in &output.epochs {
            self.say(&format!("epoch {epoch} begins"));
        }
        for view in &output.entered {
            self.say(&format!("enter view {view}"));
        }
        for dropped in &output.dropped {
            self.say(&format!(
                "drops what {} sent: {}",
                dropped.from, dropped.reason
            ));
        }
        if let Some((view, missing)) = output.missing {
            let missing = match missing {
                Missing::Block(id) => format!("block {}", self.names[&id]),
                other => other.to_string(),
            };
            self.say(&format!("view {view} waits for {missing}"));
        }
        for pair in &output.evidence {
            let (first, second) = (pair.first.subject, pair.second.subject);
            let (first, second) = (self.describe(&first), self.describe(&second));
            self.say(&format!(
                "evidence against {}: {first} and {second}",
                pair.first.signer
            ));
        }
        for s in &output.sentences {
            self.say(
                &format!("{:?} {}: {}", s.penalty, s.validator, s.offence.name()).to_lowercase(),
            );
        }
        if let Some(leader) = output.remind {
            self.say(&format!("remind {leader}"));
        }
        if let Some(reason) = output.fatal {
            self.say(&format!("FATAL {reason}"));
        }
    }

    fn describe(&self, subject: &Subject) -> String {
        format!(
            "{} {} {}",
            subject.kind,
            numbered(subject),
            self.names[&subject.payload]
        )
    }

    fn describe_certificate(&self, certificate: &Certificate) -> String {
        let subject = &certificate.subject;
        let name = subject.kind.certificate_name();
        format!(
            "{name} {} {}",
            numbered(subject),
            self.names[&subject.payload]
        )
    }

    fn say(&mut self, text: &str) {
        writeln!(self.trace, "    {}", text.trim_end_matches(" -")).unwrap();
    }
}

/// Vote keys of four validators and the scheme with them, always the same.
fn scheme(kind: SchemeKind) -> (Scheme, Vec<VoteSecret>) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    match kind {
        SchemeKind::BlsThreshold => {
            let (keys, secrets) = deal(4, rng);
            (Scheme::threshold(&keys).unwrap(), secrets)
        }
        SchemeKind::BlsAggregate => {
            let secrets: Vec<_> = (0..4).map(|_| VoteSecret::random(&mut rng)).collect();
            let members: Vec<_> = secrets
                .iter()
                .map(|secret| AggregateMember {
                    identity: [0; 32],
                    key: secret.public_key(),
                    possession: secret.prove_possession("story", &[0; 32]),
                })
                .collect();
            (Scheme::aggregate("story", &members).unwrap(), secrets)
        }
    }
}

/// A view as scripts write it.
fn view(word: &str) -> (Epoch, View) {
    let (epoch, view) = word.split_once('.').unwrap_or(("0", word));
    (Epoch(epoch.parse().unwrap()), View(view.parse().unwrap()))
}

fn numbered(subject: &Subject) -> String {
    match subject.epoch {
        Epoch(0) => subject.view.to_string(),
        epoch => format!("{epoch}.{}", subject.view),
    }
}

/// Plays a script and returns it with the trace that it gives.
fn play(script: &str, kind: SchemeKind) -> String {
    let mut story = Story::new(kind);
    for line in script.lines() {
        if line.starts_with("    ") {
            continue;
        }
        writeln!(story.trace, "{line}").unwrap();
        if !line.is_empty() && !line.starts_with('#') {
            story.run(line);
        }
    }
    story.trace
}

#[test]
fn every_story_gives_its_trace() {
    let folder = Path::new("tests/scenarios");
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 10, "the stories are gone");
    let mut wrong = 0;
    for path in paths {
        let expected = fs::read_to_string(&path).unwrap();
        let [given, other] = SchemeKind::ALL.map(|kind| play(&expected, kind));
        assert_eq!(given, other, "{}: the schemes differ", path.display());
        if std::env::var_os("QUORATE_BLESS").is_some() {
            fs::write(&path, &given).unwrap();
        } else if given != expected {
            wrong += 1;
            let same = given.lines().zip(expected.lines());
            let same = same.take_while(|(one, other)| one == other).count();
            let [given, expected] = [&given, &expected].map(|text| text.lines().nth(same));
            eprintln!(
                "{}, line {}: {given:?} instead of {expected:?}",
                path.display(),
                same + 1
            );
        }
    }
    assert_eq!(wrong, 0, "so many stories have another trace");
}
