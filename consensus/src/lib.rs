//! The consensus machine: simplex with rotating leaders, epoch after epoch, as a pure function of
//! its inputs.
//!
//! [`Engine::step`] takes the time and one [`Input`] and returns an [`Output`] that says what to
//! journal, send, check, build and hand over. Nothing in this crate reads a clock, a file, a
//! socket or a source of randomness, and nothing here blocks. The same inputs give the same
//! outputs, byte for byte.
//!
//! # The protocol
//!
//! It follows Simplex (Chan and Pass, 2023) in the form of its authors' successors that vote
//! `notarize`, `nullify` and `finalize` with threshold signatures. There are n validators, at most
//! f = ⌊(n − 1) / 3⌋ faulty; a quorum is q = n − f. Validator v + epoch mod n leads view v.
//!
//! Upon entering view v (timers: *leader*, *view*; they follow what proposals and votes took lately, and
//! double with each view in a row that brought nothing, up to a maximum: `pacemaker`):
//! - as its leader: propose a block on the newest notarized view u < v such that every view
//!   between u and v is nullified. The proposal carries u's certificate and the nullifications;
//!   it leaves before anything is journaled, the leader's own notarize after.
//!   While no block is needed it may wait for a while (*Idling*).
//! - if the leader is blocked, has no link to here, let its last view pass and has taken no part since,
//!   or owes turns for time-outs (*Who is waited for*): the leader timer fires at once. It does so too
//!   when the link to the leader ends.
//!
//! Upon a proposal: judge it before anything of it is kept (`judge`). What no honest leader makes,
//! whatever it knows, is an offence: a block beyond the chain's limits, of a height that cannot follow
//! the final ones, or not after its parent where that is here, and certificates of something else.
//!
//! Upon the first proposal (B, v) from v's leader, in view v, without a nullify cast in v: once
//! the parent's view is known to be notarized with B's parent, all views between are known to be
//! nullified, the parent block is here, and the application finds B valid: journal B, cast
//! notarize(B, v). What is missing is fetched, from the leader first.
//!
//! Upon the leader timer without a proposal, the view timer, or nullify votes of f + 1 validators
//! that have not said notarize in v: cast nullify(v). As long as the view does not move, repeat
//! from time to time all votes cast in v, one's proposal, the certificate by which v was entered,
//! and the newest finalization.
//!
//! Upon q votes of one kind for one payload of one view: one combined check makes the
//! certificate. Upon a certificate of view v, made or received and verified:
//! - notarization(B, v): if B is here (else fetch it) and neither nullify(v) nor notarize(v) for
//!   another block was cast: journal B and the notarization, cast finalize(B, v). Enter v + 1.
//! - nullification(v): enter v + 1.
//! - finalization(B, v): B and its ancestors are final. Enter v + 1.
//!
//! *The last block of an epoch* (its height is a multiple of the epoch's length). On it nothing is
//! built: a leader whose parent it would be proposes that very block again, with the certificate
//! of the view u that notarized it. A voter casts notarize(B, v) for it under the same rule on u
//! and the views between; what is in it is not checked again, since a quorum has. Upon its
//! finalization: the epoch is over, whatever view it is in; the next epoch starts on it in view 1.
//! What came early for it is taken now (`epochs`).
//!
//! Upon two different votes of one signer in one view, found in a slot or sent as evidence: verify
//! both; if they conflict, keep the pair, send it to all once, block the signer (`evidence`).
//!
//! Upon a nullify(u) from a peer for u below the current view: answer with what ended u. Upon a
//! finalization whose chain has gaps here: fetch blocks singly, or by range if many. Upon a finalize(v)
//! of a peer while nothing comes from v's leader: ask that peer what notarized v, since the leader's
//! own vote does not come here. An answer to a request counts only from whom it was asked; who gives
//! none or a bad one is asked last from then on. So is who says that it has pruned a range, which is its
//! claim alone: another is asked at once, and it again after all others.
//!
//! # Who is waited for
//!
//! Skipping a view is liveness only: it means saying nullify early, which is always allowed, and no rule
//! of safety asks why. Each validator goes by what it has seen itself (`leaders`).
//!
//! - *Silence.* A leader that let its view pass is skipped until it votes in a current view or proposes.
//!   A status, a request or an old vote is no sign that it can lead.
//! - *Links.* The end of a process ends its links, and all skip it at once. If only one validator lacks
//!   the link, it says nullify alone; the others are still a quorum with the leader, and neither join it
//!   (that takes f + 1) nor wait for it. So no grace is needed: a wrong word costs one vote. If something
//!   comes from the leader by way of others, it is waited for again, until it lets a view pass.
//! - *Debt.* A turn in which a leader was waited for and which brought nothing, or a proposal far later
//!   than usual (*Time-outs*), costs it 32 turns for each time-out's length. Each turn pays one back. Who
//!   owes more than 64 is skipped. So a leader that votes and never proposes, or proposes every k-th time, to some, invalid
//!   blocks, or at the last moment, costs one validator a time-out in 32 of its turns, whatever the
//!   order. What one pays the chain may pay less than twice: a turn stalls only while fewer than f + 1
//!   honest validators skip it, so n − 2f pay for it; all n − f together pay n − f times in 32 turns,
//!   which is enough for (n − f) / (n − 2f) < 2 stalls. That is one in 16. A good turn pays nothing
//!   beyond, or a leader would propose and fail by turns.
//! - *Who comes back* is waited for at its first turn after its first vote, if its failures were one or
//!   two lately; else within 32 turns for each time-out that it has cost beyond that, and from then on
//!   for as long as it does not fail.
//! - *Who is slow* beyond what is usual gets twice the time after each failure, up to the configured
//!   time-out or 16 times the usual one, and owes for what it takes. So it leads now and then.
//!
//! *No livelock.* If more than f views in a row bring nothing, so many leaders cannot all be faulty: all
//! debts are forgiven, and each validator ends its silence for the others by the nullify votes that it
//! casts. From the next view on everybody waits, with time-outs that double, and this is the published
//! protocol. Until then skipped views cost a message's delay each. f + 1 validators that wrongly skip an
//! honest leader can take its turns from it until its debt is paid, but not the others' turns; and once
//! the network is well they have no reason to, since its views bring blocks.
//!
//! *Time-outs.* The leader's is twice what the slowest leader but f took lately, those proposals
//! included that came after their view was given up; at least 50 ms, and as configured while fewer than
//! n − 1 − f leaders are known. "Lately" is the longest time, of which a shorter one takes off an
//! eighth of the difference. A leader that is known to take longer is given twice its own time, and owes
//! for a proposal that came only if it took four times what leaders are given. The votes have twice what
//! they took lately, and never more than configured.
//!
//! # Idling
//!
//! A block is *needed* while a transaction waits that can go into one, and while the newest notarized block
//! does not name the state after all transactions up to itself ([`Engine::is_complete`]): until then what is
//! final cannot be proven. So two or three empty blocks follow a transaction at once, as on a busy chain.
//! Otherwise a leader may wait for `idle_interval`, from entering a view after one that brought a block; it
//! proposes as soon as a block is needed.
//!
//! When nothing is needed as far as is known here, a leader is waited for from the interval's end on, and
//! from then on as long as any (*Time-outs*). When something comes up meanwhile, it is waited for from
//! that moment on. So a dead or censoring leader delays a transaction by a time-out, not by the interval: it is
//! forwarded to f + 1 leaders, who wait for it as well as who has forwarded it, and these are as many as make
//! all others give the view up. A leader that is dead for all to see is skipped at once, idle or not. After
//! a view that brought nothing nobody idles: what follows is the published protocol.
//!
//! - *Who idles owes nothing.* What comes before it is waited for is not timed, in either direction; what
//!   comes after the interval's end is timed from there. A view that others gave up for something that was
//!   not known here costs its leader nothing here.
//! - *Nobody is made to look idle.* One could show a transaction to all but the leader, whose turn they would
//!   give up. So whoever waits for it sends it what waits, at half of the time-out.
//! - *A proposal that is lost* on the way here is missed when f + 1 have said notarize: one of them is honest.
//!
//! The interval is each validator's own, as the time-outs are: it is liveness only, no rule of safety asks
//! for it, and operators change it without a new chain. They agree on it all the same. A leader with a
//! longer one than the others' lets its idle turns pass and comes to owe for them, so the chain goes at the
//! others' pace; one with a shorter one makes blocks earlier in its turns, which nobody minds.
//!
//! # Why it is safe
//!
//! *Two blocks of one view are never both notarized.* Two quorums share an honest validator, and
//! an honest validator casts notarize once per view, over crashes too: a vote is journaled and
//! synced before it is sent, and a restarted machine starts from the journal.
//!
//! *A view is never both finalised and nullified.* An honest validator that cast nullify(v) never
//! casts finalize(v), and the other way round; two quorums share an honest validator.
//!
//! *So no block conflicts with a final one.* Let B be final in view v. A block of a later view w
//! that does not descend from B has an ancestry that jumps over v or starts at another block of
//! v. The latter needs a second notarization in v. The former needs a parent below v with every
//! view between nullified, v among them. A quorum notarized each block on the way, so an honest
//! validator checked it.
//!
//! *The last block of an epoch is one.* Let B be final in view v as the last block. A proposal of a
//! later view w is either B again, or builds on something else than B. The rule on parents is the
//! same for both kinds of proposals, so the argument above holds: nothing else is notarized. And
//! nobody starts the next epoch on anything but a final last block.
//!
//! *A penalty concerns liveness only.* No rule above asks whether a signer is blocked.
//!
//! *A power cut of all validators loses nothing final.* Finalize is cast with the block and the
//! notarization in the journal; a finalization stands for q − f ≥ f + 1 honest journals.
//!
//! # Departures from the published protocol, and why they are safe
//!
//! - *Certificates are not broadcast when made.* Votes go to all, so each validator makes them
//!   itself; proposals carry the parent's certificate; who is stuck repeats nullify and is
//!   answered. This concerns liveness only: no rule above asks who else holds a certificate.
//! - *Finalize waits for the block itself*, not only for the notarization. Fewer votes at worst.
//! - *Finalize is cast for earlier views too* when their block comes late. The rule about nullify
//!   and notarize is the same, and nullify is cast in the current view only.
//! - *Votes are combined unverified.* A combined signature that verifies under the group key is
//!   the group's, whatever its parts were. It says nothing about the parts, so none is marked
//!   verified by it.
//! - *Views are skipped* (above).
//!
//! # What is persisted
//!
//! Every vote of this validator's own (before it is sent), every block it voted for (before the
//! vote), every verified certificate of an open view. [`Engine::checkpoint`] gives the least that
//! must stay; [`Engine::recover`] starts from it, epoch by epoch. While the journal tells of a later
//! epoch than the machine has reached, it does not vote; and it never casts finalize below a known
//! finalization: in both cases what it once said may no longer be in the journal. Penalties
//! and evidence are the node's to keep; it gives them back at the start ([`Config`]).
//!
//! # A journal that is lost or old
//!
//! A key must not vote where it may have voted before, unless its journal tells what it said. The journal may be
//! gone, of which it says so itself from its first record on (`Silence::Unknown`); or it may be an old copy, which nobody
//! tells.
//!
//! Upon its start, before its first vote, a validator asks all others (`inquiry`). The question has a nonce, from
//! outside, so that no earlier answer counts. Each other answers with its newest certificate, with the asker's newest
//! vote that it has seen, and the state of its journal: *whole* (it may vote itself, and its certificate is of the view before
//! its own), *lost*, or not sure.
//! Each is counted once, and only when the certificate or the vote in its answer verifies.
//!
//! *Lost.* Once the journals of q others are whole, let (e, u) be the newest of their certificates, (0, 0) without any. Journal it. From then on
//! vote in epoch e above view u + 2, in epoch e + 1 above view 2, in later epochs everywhere; nowhere else.
//!
//! - *Why it is safe.* Let the key have voted in view v of epoch d. Its validator held a certificate C of d, of view v − 1 or
//!   later; or, if v = 1, the finalization of the last block of d − 1. At least q − 1 others signed C. Of q with a whole
//!   journal at least 2q − n = n − 2f ≥ f + 1 did, so an honest one did, and did so before the question. It voted in C's view w only with a
//!   certificate of its own, of view w − 1 of the same epoch, or of the border before if w = 1 (of view w itself, if
//!   its vote was finalize); and it knows all its votes, so its answer tells of that certificate or a newer one. If C is of epoch d:
//!   (e, u) is at least (d, v − 2), and for v = 2 at least the border before d. So v ≤ u + 2 if d = e, and if d = e + 1, a v above 2 would
//!   mean a certificate of d, newer than (e, u). If C is the border: it is a finalization, so (e, u) is at least C's view in d − 1, and v = 1. An
//!   epoch d > e + 1 would mean a finalization in e + 1, and so a certificate there.
//! - *No lock is lost with the journal.* The rules on parents ask for certificates, not for what was voted; the rules on votes
//!   ask for votes of the same view only.
//! - *Why so many.* 2f answers would do if who lost its journal counted as one of the f faulty. With q it does not: any number may lose
//!   theirs, one after the other or at once, beside f that lie. And with fewer than q others that vote no
//!   view ends without this one. With more than f lost nobody gets q answers.
//! - *Who lies* can only name too low a certificate: a newer one than a quorum signed does not verify. That is counted
//!   among the f. Who asks itself, is silent, or may not vote is not whole.
//! - *A crash* on the way: nothing is cast before the position is journaled, and a machine that finds
//!   `Silence::Unknown` begins again. Checkpoints keep the record.
//!
//! *Old.* With its journal a validator waits for q − 1 answers, without which no quorum is there either, and for nobody
//! longer than 3 s who takes part and does not answer (earlier versions). So up to f that are silent do not delay it, and when
//! all start at once they answer each other. If a verified vote of its own is above what is settled here and not in its journal, the journal
//! is lost from then on. Votes that the journal holds are repeated meanwhile.
//!
//! *Restored.* Keys can come from a back-up, without a journal and anything that says that they were used. If an answer to the first question shows
//! a certificate at least 500 blocks or views after the chain's beginning, such a journal counts as lost. Before that, a validator that starts for the first
//! time joins at once: at the beginning one that never answers could keep it silent for ever.
//!
//! *Apart.* A validator without links to a quorum cannot see whether somebody else votes with its key. So upon the next link it asks once more, as with
//! a journal, before it votes.
//!
//! *Elsewhere.* When a validator that has recovered reaches the first view in which it may vote, it asks once more, and waits as with a
//! journal: a vote of its own in such a view is of somebody who votes with its key now. So is, at any time, new evidence
//! against it, and a certificate that names it among the signers of what it has not said. Then it votes no more,
//! journals `Silence::Unknown`, and tells its operator: only the operator can end the other process, and a restart is how it says so.
//!
//! *More than f at once.* The rest are no quorum, so all that can be lost is in views that they have seen begin. By the operator's word all
//! processes were stopped after the loss, and those with a journal are in view u + 1. If all others answer, more than f and fewer
//! than q are lost, and the newest certificate of the others is (e, u), the lost vote nullify, and nothing else, in the views u + 1 and u + 2. It is
//! safe: each certificate that may exist unknown has a signer with a journal; one of these cast finalize only where
//! it holds a notarization, at or below u, so nothing was finalised above u. The votes in memory are gone with the processes, and those with a
//! journal are no quorum, so nothing is notarized in the views that the lost ones nullify. All this holds only if none of them lies.
//!
//! # Bounds
//!
//! For n validators, in bytes: slots 25 views × 3 kinds × 136 × n ≈ 10,200 n (1.0 MB at n = 100);
//! proposals at most 5 blocks ahead (10 MB at the largest block size); blocks on their leader's word 4
//! per leader, and none of a nullified or settled view; certificates about 300 per
//! view above the finalised tip; checks under way 8 per peer and 3 per view; requests 64; staged
//! ranges 1,024 blocks; finalised blocks that wait for execution 1,024 and one range before
//! fetching pauses; early messages of the next epoch 48 per peer and 4 blocks; evidence 16 pairs of
//! 300 bytes per validator; penalties one per validator. Views outside the window are dropped before any cryptography; far-future
//! certificates are verified and then *move* the window, since a quorum stands behind them.
//!
//! # Code map
//!
//! | module | what is in it |
//! |---|---|
//! | `engine` | the state, and which part each input goes to |
//! | `voting` | casting votes, buffering them, making certificates, time-outs |
//! | `certificates` | checking and accepting certificates, helping who is behind |
//! | `proposals` | choosing a parent, proposing, checking proposals |
//! | `chain` | what is final; fetching missing blocks |
//! | `recover` | starting from the journal |
//! | `slots`, `round` | one view's votes and certificates |
//! | `epochs` | from one epoch to the next |
//! | `evidence` | conflicting votes: kept, passed on, taken from others |
//! | `judge` | whether a proposal can be an honest leader's |
//! | `leaders`, `pacemaker` | who is waited for and how long; timers |
//! | `inquiry` | what the key may have voted without the journal's knowledge |
//! | `elsewhere` | votes of the key that this machine has not cast |
//! | `idle` | when no block is needed |
//! | `fetch`, `blame` | requests, penalties |
//! | `work` | the cryptography, for a thread of its own |

mod blame;
mod certificates;
mod chain;
mod config;
mod elsewhere;
mod engine;
mod epochs;
mod evidence;
mod fetch;
mod idle;
mod inquiry;
mod io;
mod judge;
mod leaders;
mod pacemaker;
mod proposals;
mod recover;
mod round;
mod slots;
mod voting;
mod work;

pub use config::{
    Config, LOOKAHEAD_VIEWS, MAX_CERTIFICATE_CHECKS_PER_PEER, MAX_EARLY_MESSAGES,
    MAX_EVIDENCE_PER_VALIDATOR, MAX_OPEN_VIEWS, MAX_PROPOSED_PER_LEADER, MAX_UNEXECUTED_BLOCKS,
    MAX_WANTS, Own, PROPOSAL_LOOKAHEAD_VIEWS, TAIL_VIEWS, Timing, Tip, VoteChecking, VoteSigner,
};
pub use engine::{Counters, Engine, Holdings};
pub use inquiry::Voting;
pub use io::{
    Batch, BuildRequest, Exhibit, Finalized, Input, Job, JobId, Moment, Notice, Offence, Order,
    Outbound, Output, Penalty, Sentence, Target, ValidateRequest, Verdict, Work,
};
pub use judge::Flaw;
pub use recover::RecoverError;
pub use work::{Search, WorkCounts, Worker};
