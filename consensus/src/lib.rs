//! The consensus engine: one of several protocols, epoch after epoch, as a pure function of its
//! inputs.
//!
//! [`Engine::step`] takes the time and one [`Input`] and returns an [`Output`] that says what to
//! journal, send, check, build and hand over. Nothing in this crate reads a clock, a file, a
//! socket or a source of randomness, and nothing here blocks. The same inputs give the same
//! outputs, byte for byte.
//!
//! This head is the specification of simplex, and of all that the protocols share. The others are at the heads of their
//! modules (`protocol`), and say which of the rules here they replace. Rules are numbered; the code that carries a rule out names it
//! (`R4`), and so do the scenario scripts and the simulator's tests that show it. A test
//! (`tests/rules.rs`) holds that each rule is named in both places.
//!
//! # Symbols
//!
//! | symbol | meaning |
//! |---|---|
//! | n | validators of the epoch |
//! | f = ⌊(n − 1) / 3⌋ | validators that may be Byzantine |
//! | q = n − f | a quorum; two quorums share at least f + 1 validators, one of them honest |
//! | e, v, u, w | an epoch; views, which each epoch counts from 1 |
//! | leader(v) | validator t + e mod n, where t is the number of v's turn: how many views in a row a validator leads is the protocol's; with simplex, one |
//! | (B, v) | block B as proposed in view v |
//! | notarization, nullification, finalization of v | a certificate: q votes notarize(B, v), nullify(v) or finalize(B, v), combined |
//! | parent view | the view that notarized the parent; 0 for an epoch's first block |
//! | tip | the newest final block whose whole chain is here, and the view that finalized it |
//! | current view | the view after the newest certificate of the epoch |
//! | window | [`TAIL_VIEWS`] views below the current one to [`LOOKAHEAD_VIEWS`] steps above; a step leads to the next view or to the next turn |
//! | Δ | the longest time that a message takes, once the network is synchronous |
//!
//! # The protocol
//!
//! It follows Simplex (Chan and Pass, 2023) in the form of its authors' successors that vote
//! `notarize`, `nullify` and `finalize` with threshold signatures. In one view all goes well like this:
//! the leader proposes a block on the newest notarized one (R19); the others check it and cast notarize
//! (R3); q of these votes are a notarization (R6), with which everybody enters the next view (R8) and casts
//! finalize (R5); q of those make the block and all its ancestors final (R10). If no block comes in time, q
//! nullify votes (R4) end the view.
//!
//! ## Votes
//!
//! **R1. One word per view.** In one view a validator casts at most one notarize, one nullify and one
//! finalize. It casts finalize only for the block of its notarize, if it cast one, and never
//! both finalize and nullify.
//!   *Why:* on this rests that certificates do not contradict each other (*Safety*).
//!
//! **R2. Journal first.** A vote leaves after it is journaled and synced. The block that it is for is journaled
//! before it; before a finalize, the notarization too. A vote that contradicts one that the engine holds is
//! not cast, whatever its caller concluded: the validator halts and names both (the *last gate*).
//!   *Why:* a restarted validator keeps R1 by its journal (R26). A finalization stands for q − f ≥ f + 1
//!   honest journals that hold the block, so a power cut of all validators loses nothing that is final.
//!   *The gate:* the rules below are checked before a vote by the code that decides it. The gate costs
//!   three comparisons and catches a defect there before it becomes equivocation.
//!
//! **R3. Notarize.** For the first proposal (B, v) of the current view v, from leader(v), if neither notarize nor
//! nullify was cast in v, once
//! - B's parent is the tip, or the parent view is known to be notarized with it;
//! - every view between the parent view and v is known to be nullified;
//! - the parent is here, and so are its ancestors down to what is executed;
//! - B's header follows its parent's (height, timestamp, executed height), and the application finds B valid.
//!
//! What is missing is fetched (R23), from the leader first. A block that fails the last point, or whose parent
//! view notarized another block or lies below the tip, gets no vote; its view then ends by the view timer.
//!   *Why:* with the first two, no notarized chain leaves out a final block (*Safety*).
//!
//! **R4. Nullify.** In the current view only, unless nullify or finalize was cast in it, when
//! - the leader timer fires and there is no proposal (R20, R21); or the view timer fires; or
//! - nullify votes are here of f + 1 validators whose notarize is not: an honest one among them has given the
//!   view up and will not notarize, so waiting only keeps the votes split.
//!
//! Nullify after notarize is allowed.
//!
//! **R5. Finalize.** In any view above the tip and above the newest known finalization, when its notarization
//! and the block are here, neither nullify nor a notarize for another block was cast in it, and finalize
//! was not.
//!   *Why not below:* the vote is of no use there, and the journal may no longer hold what was cast.
//!
//! ## Certificates
//!
//! **R6. Buffer, then check once.** A vote lies undecoded in its slot (R14) until q votes for one subject are
//! there. Then one combined check makes the certificate. A combined signature that verifies
//! under the group key, or under the sum of the signers' keys, is a certificate whatever its parts are: a
//! successful check marks no single vote as verified. If it fails, a bisection finds the
//! invalid votes, their signers are penalized (R16), the valid ones are marked, and the next check
//! starts when q votes remain or more come.
//!
//! **R7. Only what is verified counts.** A certificate from a peer is verified before anything follows from it:
//! of the current epoch, above the tip, of a subject that is not certified here. While the votes for the same
//! subject are under check it waits for that result. Two verified certificates that contradict each other
//! (two blocks in one view; a nullification and a finalization of one) halt the validator: more
//! than f are faulty, and whatever it did next could make matters worse.
//!
//! **R8. Moving on.** Upon a certificate of view v at or above the current view: enter v + 1. Views never go back.
//!
//! **R9. Certificates are not broadcast.** Votes go to all, so each validator makes them itself. Who lacks one
//! gets it from a proposal (R19), by asking (R23), or as help (R22). A nullification goes to the leader of the turn after it, from the f + 1
//! validators after that one and from who has not said nullify.
//!   *Why:* that leader waits for nothing else. Faulty validators may say nullify to some only: those need not say it themselves any
//!   more, and the leader would lack a vote until something is repeated.
//!
//! ## The chain
//!
//! **R10. Finality.** Upon a finalization of B: once all blocks between B and the tip are here, they are final,
//! oldest first, and B is the tip. Until then they are fetched. If the chain below B does not
//! meet the tip, the validator halts: more than f are faulty, or the database is another chain's.
//!
//! **R11. The last block of an epoch.** Its height is a multiple of the epoch's length. Nothing is built on it: a
//! leader whose parent it would be proposes that very block again, with the certificate of the view u that
//! notarized it. R3 applies with u as the parent view; the block itself is not validated
//! again, since a quorum has. A child of it is invalid.
//!
//! **R12. The border.** When the last block is final the epoch is over, whatever its view. The next epoch
//! starts on it in view 1, with no votes of the old one. Messages of the next epoch that came early, within
//! limits, are taken now. Who is stuck in the epoch before is sent the finalization that ended it.
//!
//! **R13. Epochs behind.** That others are epochs ahead is believed when f + 1 of them say so, since one of these is
//! honest. One is enough if the journal tells of a later epoch, or that this one is over (R26): its certificates were
//! verified, and until then nothing is cast. Then finalized blocks are fetched in order.
//!
//! ## Peers
//!
//! **R14. A slot for each peer.** A vote is taken only from its signer's own link, only within the window, and
//! only the first of a kind in a view; all this is tested before any cryptography. No peer can fill
//! another's slot, and the slots' memory is bounded. Only a vote that is known to be invalid gives way, and only to one that was verified.
//!
//! **R15. A proposal is judged before anything of it is kept.** What no honest leader sends, whatever it knows, is
//! an offence ([`Flaw`]): not its sender's turn, another chain, a block beyond the limits, of a height
//! that cannot follow the final ones, not after its parent where that is here, or with certificates of
//! something else. Then there is no use in waiting: the leader timer fires. A block that the application refuses
//! (R3) is no such offence, since that can depend on clocks and on what has come so far.
//!
//! **R16. Penalties.** Who signs an invalid vote, or passes on an invalid certificate or evidence (honest validators
//! verify first), or sends a flawed proposal, is blocked: nothing that it sends is looked at. At most f are blocked at a
//! time, since n − f are a quorum. Beyond that they are on probation: their votes are verified one by one
//! before they are buffered; after an invalid one they are not heard for a second, then two, up to a minute.
//! Proven guilt (R17) takes the place of a suspicion.
//!
//! **R17. Equivocation.** Two votes of one signer in one view that R1 excludes, found in slots or sent as
//! evidence, are verified; if both hold they are kept, sent to all once, and their signer stays blocked.
//!
//! **R18. Second chances.** When the view timer fires, and upon more than f views in a row without a block, all who are blocked
//! on this validator's own observation alone go on probation: so many leaders in a row cannot all be
//! faulty, and the fault may have healed. Again with every fourth repetition (R22) in a view whose timer has fired, since it should
//! have ended long ago: two honest validators that block each other may both be needed. Equivocators, and whom the operator has blocked, stay blocked.
//! Penalties concern liveness only: no rule about votes asks whether a signer is blocked.
//!
//! ## Leading
//!
//! **R19. Propose.** Upon entering a view that it leads, a validator builds on the newest notarized view u such that
//! every view between is nullified. The proposal carries u's certificate and the nullifications. It
//! leaves before anything is journaled, since it carries no vote; the leader's own notarize follows R2. After a crash
//! it repeats the block that it voted for, if it did. While no block is needed it may wait (R25).
//!
//! ## Time and liveness
//!
//! **R20. Time-outs.** A view has a *leader* timer, until the proposal, and a *view* timer, until the certificate.
//! The leader timer is twice what the slowest leader but f took lately, from its vote in the view before on if that came later, those
//! proposals included that came after their view was given up; at least 50 ms, and as configured while fewer than
//! n − 1 − f leaders are known. "Lately" is the longest time, of which a shorter one takes off an
//! eighth of the difference. A leader that is known to take longer is given twice its own time, and owes
//! (R21) for a proposal that took four times what leaders are given. The votes have twice what
//! they took lately with the slowest leader but f, and never more than configured; a leader with which they take longer has twice its own
//! time, up to four times the usual one. Who leads waits for the votes from its own proposal on, by what they took with its own lately. Both double with each view in a row without a block, up to a maximum.
//!   *Why from its own proposal on:* a leader does not time its own proposals. When it gave its view the longest time that any
//!   leader is given, and f were silent, one late vote of an honest validator made the others wait for the leader's nullify for a second.
//!   *Why from its vote on:* a faulty leader that shows its block to the next one last has that one begin late. Both would look slow,
//!   and 2f slow leaders stretch all time-outs where f are left out: with one of four, simplex made 163 blocks in 40 s of virtual
//!   time, where it makes 9,190 with that one dead. A leader that holds its vote back looks quicker than it is, and gains nothing:
//!   it is judged by the whole time (R21).
//!   *Why f are left out:* slow on purpose are f at most, so they cannot stretch the time-outs of the others. A leader can do
//!   so with votes, too: it proposes to a quorum less one, and withholds its own vote.
//!
//! **R21. Skipping.** The leader timer fires at once if the leader is blocked, silent, without a link, or
//! in debt. That means saying nullify early, which is always allowed: no rule of safety asks
//! why. Each validator goes by what it has seen itself.
//! - *Silence.* A leader that let its view pass is skipped until it votes in a current view or proposes.
//!   A status, a request or an old vote is no sign that it can lead.
//! - *Links.* The end of a process ends its links, and all skip it at once. If only one validator lacks
//!   the link, it says nullify alone; the others are still a quorum with the leader, and neither join it
//!   (that takes f + 1) nor wait for it. So no grace is needed: a wrong word costs one vote. If something
//!   comes from the leader by way of others, it is waited for again, until it lets a view pass.
//! - *Debt.* A turn in which a leader was waited for and which brought nothing, or a proposal far later
//!   than usual (R20), costs it 32 turns for each time-out's length. A proposal that comes, after more than six times what the slowest
//!   leader but f takes and 20 ms, and votes that take more than four times theirs cost as much for what is beyond that, up
//!   to 32 turns. These limits double with the time-outs (R20) only after more than f views in a row without a block: f leaders that are
//!   down are no reason to be slow behind them. While fewer than n − 1 − f leaders are known, a proposal may take a sixth of the configured
//!   time; what it costs beyond is taken back from a leader that turns out to be as quick as the others. Each turn pays one back. Who
//!   owes more than 64 is skipped. So a leader that votes and never proposes, or proposes every k-th time, to some, invalid
//!   blocks, or at the last moment, costs one validator a time-out in 32 of its turns, whatever the
//!   order. What one pays the chain may pay less than twice: a turn stalls only while fewer than f + 1
//!   honest validators skip it, so n − 2f pay for it; all n − f together pay n − f times in 32 turns,
//!   which is enough for (n − f) / (n − 2f) < 2 stalls. That is one in 16. A good turn pays nothing
//!   beyond, or a leader would propose and fail by turns.
//! - *Who comes back* is waited for at its first turn after its first vote, if its failures were one or
//!   two lately; else within 32 turns for each time-out that it has cost beyond that, and from then on
//!   for as long as it does not fail.
//! - *Who begins later* owes nothing for the time before its first vote here. At a start, and at a border where the
//!   validators change, each begins when it is ready, and the first turn of a leader that nobody knows yet may take as
//!   long as configured: 16 time-outs, or 512 turns. A validator that never leads is not counted among those who
//!   stay (`types::registry`, N3), so thousands of blocks without it kept newcomers out.
//! - *Who is slow* beyond what is usual gets twice the time after each failure, up to the configured
//!   time-out or 16 times the usual one, and owes for what it takes. So it leads now and then.
//! - *No livelock.* If more than f views in a row bring no block, so many leaders cannot all be faulty: all
//!   debts are forgiven, and each validator ends its silence for the others by the nullify votes that it
//!   casts. From the next view on everybody waits, with time-outs that double, and this is the published
//!   protocol. Until then skipped views cost a message's delay each. f + 1 validators that wrongly skip an
//!   honest leader can take its turns from it until its debt is paid, but not the others' turns; and once
//!   the network is well they have no reason to, since its views bring blocks.
//!
//! **R22. Repeat and help.** Links drop messages. While the view does not move, a validator repeats at
//! a constant interval its votes and its proposal in that view, the certificate by which it entered,
//! and the newest finalization. A peer that sends nullify(u) for a view u below the current one, or a
//! status from there, is sent what ended u: once in half an interval, and seven times more while its views rise.
//! Who has said nullify in the current view, or in an earlier one of its turn, is sent the certificate of a block that ends it, at once.
//!   *Why:* the leader may have left it out, and it may lead next. The others would wait for it, and it for them, until something is
//!   repeated: with one such leader of four, simplex made 64 blocks where it makes 4,358.
//!
//! **R23. Fetch.** Missing blocks, ranges of finalized blocks and certificates are requested from one
//! peer at a time, but what the current view waits for from f + 1: certificates at once, a block from the next one after twice what the
//! answers of the slowest peer but f took lately, 50 ms at least. Who has voted for the current view's proposal is asked first: it
//! has what that depends on, and the leader may be slow on purpose. An answer counts only from the peer that was asked. A peer that gives no answer or a
//! bad one is asked last from then on. A peer that says it has pruned a range (which nothing proves) is
//! asked again after all others; another is asked at once. A range joins the chain when the
//! finalization of its last block verifies.
//!
//! **R24. Missing links.** A validator without a link to leader(v) lacks the leader's votes too. If a
//! peer sends finalize(v) while nothing comes from leader(v), it asks that peer for what notarized v.
//! (Frames that go around a missing link are relayed by the node.) What f + 1 validators have voted for in the current view, and its
//! leader has not sent here, is fetched from them once that has been so for twice what proposals came later than f + 1 votes for them
//! with the slowest leader but f lately and 5 ms (50 ms while that is not known), half of the usual time at most, and is treated as if
//! the leader had sent it.
//!   *Why:* a faulty leader that leaves one validator out makes a quorum with the others, who enter the next view while that
//!   one lacks a vote, and perhaps leads it.
//!
//! **R25. Idling.** A block is *needed* while a transaction waits that can go into one, and while the newest
//! notarized block does not name the state after all transactions up to itself ([`Engine::is_complete`]): until
//! then what is final cannot be proven. With chained HotStuff the newest block that is final for all who
//! know the newest one must name it: the third one below, if no view between them failed. The next leader alone may know a later one
//! as final. So two or three empty blocks follow a transaction at once (with chained HotStuff
//! five or six), as on a busy chain. With chained HotStuff a block is also needed while more than f + 4 blocks wait to
//! become final: what keeps them from it may be time-outs that are too short, which are doubled after some views (H10).
//! Otherwise a leader may wait for `idle_interval`, from entering a view after one that brought a block; it
//! proposes as soon as a block is needed. When nothing is needed as far as is known here, a leader is waited
//! for from the interval's end on, as long as any (R20). When something comes up meanwhile, it is
//! waited for from that moment on. So a dead or censoring leader delays a transaction by a time-out, not by
//! the interval: it is forwarded to f + 1 leaders, who wait for it as well as who has forwarded it, and
//! these are as many as make all others give the view up. A leader that is dead for all to see is skipped at
//! once, idle or not. After a view without a block nobody idles: what follows is the published protocol.
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
//! ## Restart
//!
//! **R26. The journal.** It holds every vote of this validator's own, every block that it voted for, every verified
//! certificate of an open view. [`Engine::checkpoint`] gives the least that must stay; [`Engine::recover`]
//! starts from it, epoch by epoch. While the journal tells of a later epoch than the engine has reached, or of the finalization of
//! the current one's last block, it casts nothing: what it said in the current one may have been dropped. So that the journal tells of the
//! end of an epoch, the last block stays in it until something is said in the next one. It is not replaced while the tip's
//! finalization is not here (after state sync), since nothing would say that the votes up to the tip are settled. Penalties and evidence are the
//! node's to keep; it gives them back at the start ([`Config`]).
//!
//! What a journal that is gone or old means is in R27 to R30 [below](#a-journal-that-is-lost-or-old).
//!
//! # Safety
//!
//! *Two blocks of one view are never both notarized.* Two quorums share an honest validator, which casts
//! notarize once per view (R1), over crashes too (R2, R26).
//!
//! *A view is never both finalized and nullified.* An honest validator casts one of the two at most (R1); two
//! quorums share an honest validator.
//!
//! *So no block conflicts with a final one.* Let B be final in view v. A block of a later view w
//! that does not descend from B has an ancestry that jumps over v or starts at another block of
//! v. The latter needs a second notarization in v. The former needs a parent below v with every
//! view between nullified, v among them. A quorum notarized each block on the way, so an honest
//! validator checked it (R3).
//!
//! *The last block of an epoch is one.* Let B be final in view v as the last block. A proposal of a
//! later view w is either B again, or builds on something else than B (R11). The rule on parents is the
//! same for both kinds of proposals, so the argument above holds: nothing else is notarized. And
//! nobody starts the next epoch on anything but a final last block (R12).
//!
//! *Neither penalties nor time-outs nor skipping touch this:* no step above asks for them.
//!
//! # Liveness
//!
//! Let the network be synchronous from some moment on, with messages within Δ, all honest validators up, and at most f
//! faulty. Retries count as part of Δ (R22).
//!
//! - *Honest validators meet in a view.* Take the highest view v that an honest one is in. Whoever is below repeats
//!   its nullify or its status, and is sent what ended its view and what the sender entered v with (R22), so
//!   within 2Δ all honest validators are in v or above.
//! - *A view with a faulty leader ends.* All honest validators that cast no finalize cast nullify at the view
//!   timer at the latest (R4). An honest finalize takes a notarization, which ends the view for whoever
//!   gets it, and it is repeated (R22). So the view ends for all, by one or the other.
//! - *A view with an honest leader brings a block* once the timers are longer than the leader needs. It knows the newest notarization
//!   and the nullifications above it when it enters (R8), or fetches them (R23), and its proposal brings them
//!   to the others (R19). They fetch what blocks they lack (R23) and cast notarize (R3); q of them are honest.
//!   Timers double with each view without a block (R20), so they become long enough; skipping ends by then
//!   (R21, *No livelock*), and whoever was blocked by mistake is heard again (R18).
//! - *It becomes final.* With the notarization all honest validators that did not say nullify cast finalize (R5). If all
//!   entered within the leader timer, nobody had said nullify; so in a view with an honest leader and
//!   timers long enough q finalize votes come together (R6).
//!
//! # Departures from the published protocol
//!
//! Each is safe because the safety argument does not use what it changes.
//!
//! - *Certificates are not broadcast when made* (R9). Liveness only: repetition and help take their place (R22).
//! - *Finalize waits for the block itself* (R5), not only for the notarization. Fewer votes at worst.
//! - *Finalize is cast for earlier views too* when their block comes late (R5). R1 holds there as well, and
//!   nullify is cast in the current view only.
//! - *Votes are combined unverified* (R6).
//! - *Views are skipped* (R21), *leaders may idle* (R25), and *time-outs follow what proposals take* (R20). They say when nullify is cast, and
//!   nothing about what may be cast.
//! - *f + 1 nullify votes are joined* (R4), after a notarize too.
//! - *Epochs* (R11, R12), which the published protocol has not.
//!
//! # A journal that is lost or old
//!
//! A key must not vote where it may have voted before, unless its journal tells what it said. The
//! journal may be lost: then the new one says so in its first record (`Silence::Unknown`). Or it may be
//! an old copy, and nothing on this machine shows that.
//!
//! At its start, before its first vote, a validator sends an inquiry to all others. It carries a nonce
//! from outside the engine, so that no earlier answer counts. Each peer answers with its newest
//! certificate, with the newest vote of the asking key that it has seen, and with the state of its own
//! journal: *whole* (it may vote itself, and its certificate is of the view before its own), *lost*, or
//! *unsure*. An answer counts once per peer, and only when the certificate or the vote in it verifies.
//!
//! **R27. Lost.** Once q others with a whole journal have answered, let (e, u) be the newest of their
//! certificates, (0, 0) if there is none. Journal it. From then on vote in epoch e above view u + 2, in
//! epoch e + 1 above view 2, or everywhere if the last block of e was proposed above view u, and in later epochs
//! everywhere; nowhere else.
//!
//! - *Why it is safe.* Let the key have voted in view v of epoch d. Its validator then held a
//!   certificate C of epoch d and view v − 1 or later; or, if v = 1, the finalization of the last block
//!   of d − 1. At least q − 1 others signed C. Of the q with a whole journal at least 2q − n = n − 2f ≥
//!   f + 1 signed it, so an honest one did, before it got the inquiry. It voted in C's view w only with
//!   a certificate of its own, of view w − 1 of the same epoch, or of the border before if w = 1 (of
//!   view w itself, if its vote was finalize). It knows all its votes, so its answer names that
//!   certificate or a newer one. If C is of epoch d, (e, u) is at least (d, v − 2), and for v = 2 at
//!   least the border before d. So v ≤ u + 2 if d = e; and if d = e + 1, a v above 2 would mean a
//!   certificate of d, newer than (e, u). If C is the border, it is a finalization, so (e, u) is at
//!   least C's view in d − 1, and v = 1. An epoch d > e + 1 would mean a finalization in e + 1, and so
//!   a certificate there.
//! - *Why at once in e + 1.* A vote that was lost there would mean a finalization of the last block of e, in that
//!   block's view or later. An honest one that answered signed it, upon a notarization of that view (or, for v above 1,
//!   was in e + 1 and held such a finalization), so u is no lower. Were all silent in views 1 and 2 that lost their journals at any
//!   time in e, one after the other, more than f of them would halt the chain at the border for good.
//! - *No lock is lost with the journal.* The rules on parents ask for certificates, not for what was
//!   voted. The rules on votes ask for votes of the same view only.
//! - *Why q answers.* 2f answers would do if a validator that lost its journal counted as one of the f
//!   faulty. With q it does not: any number may lose their journals, one after the other or at once,
//!   beside f that lie. With fewer than q others that vote, no view ends without this validator anyway.
//!   If more than f journals are lost, nobody gets q answers.
//! - *A lying peer* can only name a certificate that is too old, since a newer one than a quorum signed
//!   does not verify. It counts among the f. A peer that is itself recovering, silent, or not allowed
//!   to vote is not whole.
//! - *A crash* in between: nothing is cast before the position is journaled, and a validator that finds
//!   `Silence::Unknown` begins again. Checkpoints keep the record.
//!
//! **R28. Old.** A validator with a journal waits for q − 1 answers: without as many peers there is no
//! quorum anyway. It waits at most 3 s for peers that take part and do not answer (earlier versions).
//! So up to f silent peers do not delay it, and when all start at once they answer each other. If an
//! answer holds a verified vote of its own key that is above what is settled here and not in its
//! journal, the journal counts as lost from then on. Votes that the journal holds are repeated
//! meanwhile. Votes of epochs before the newest one in the journal are settled, and those of an epoch whose last block is final in
//! the journal: nothing is cast there any more, and a checkpoint has dropped them. Otherwise a peer that kept such a vote could make a
//! validator that lost its database take its journal for an old copy, and withhold the answer that it
//! needs then. The price: a copy that holds such a finalization does not notice later votes of its key in that epoch. It casts none there
//! either.
//!
//! *Ahead.* An answer with a vote or a certificate of a later epoch, whose validators or keys are not known here,
//! does not count, not even after 3 s. When the next epoch begins, its sender is asked again.
//!   *Why:* nothing in it can be verified. If a forged vote and a true one were both taken for "knows of none", an old
//! copy would vote in the epoch of the copy, and go on from there into the epoch in which its votes are lost.
//! *Why nobody waits for ever:* if an honest peer is in a later epoch, at least f + 1 hold what ends this one, so this
//! validator comes to that epoch without its own votes. A peer that lies has the means of one that is silent.
//!
//! *Kept.* What a process has seen of the others' votes is passed on from engine to engine. A chain that has halted
//! may have nobody who has not begun anew meanwhile: validators that hear too few others look for newer blocks, and
//! come back with another engine. It is told to who cast it, whatever place that one has in the set of today.
//!   *Why:* at the beginning of an epoch with another set nobody has a certificate of it yet, so no answer is *ahead*. When votes of the
//!   set before were kept back then, an old copy came to its last epoch, and voted there again (`sim/tests/borders.rs`, seed 18).
//!
//! *Gone on.* Where the validators change, an engine ends with its epoch, and another one goes on in the same process,
//! with the same journal. If the first one voted, and nobody who was *ahead* answered its inquiry, no inquiry is needed:
//! where the validators stay, one engine crosses the border without, and no more was lost here. It would cost a round
//! trip at each border.
//!   *Why nobody who was ahead:* a quorum that is still in the epoch of an old copy knows of no vote in the next one, and
//! who is there does not count. The next epoch's engine must ask it.
//!
//! *Restored.* Keys can come from a backup without a journal and without anything that says that they
//! were used. If an answer to the first inquiry shows a certificate at least 500 blocks or views after
//! the beginning of the first epoch in which the key has a seat, such a journal counts as lost. Before
//! that, a validator that starts for the first time joins at once: at the beginning a peer that never
//! answers could keep it silent for ever.
//!   *Why from its first seat:* a vote needs a seat (R14), so nothing that came before tells of a lost
//!   vote. A newcomer that is there for its first epoch is whole from its first view on, however old
//!   the chain. Otherwise as many newcomers as may join at one border would count as lost together,
//!   and one lost journal among the others would halt the chain.
//!   *Why not for ever:* who starts later than that cannot be told from a key that has voted
//!   elsewhere, and R27 rests on journals that hold all votes. That no certificate names the key proves
//!   nothing, since a vote need not end up in one. Nor does a journal that is as old as the machine: its
//!   database may have begun long after the key's first vote, and read the chain from its beginning.
//!
//! *Apart.* A validator without links to a quorum cannot see whether another process votes with its
//! key. So when a link comes up again, it sends one more inquiry, as with a journal, before it votes.
//!
//! **R29. Elsewhere.** When a recovered validator reaches the first view in which it may vote, it sends
//! one more inquiry and waits as with a journal: a vote of its own key in such a view comes from
//! another process that uses the key now. The same follows, at any time, from new evidence against it,
//! and from a certificate that names it among the signers of something that it has not signed. Then it
//! stops voting, journals `Silence::Unknown`, and tells its operator. Only the operator can stop the
//! other process, and says so by a restart.
//!
//! **R30. More than f at once.** The validators with a journal are no quorum, so whatever was lost is
//! in views that they have seen begin. By the operator's word all processes were stopped after the
//! loss, and those with a journal are in view u + 1. If all others answer, more than f and fewer than q
//! journals are lost, and the newest certificate of the others is (e, u), then the validators without a
//! journal vote nullify, and nothing else, in the views u + 1 and u + 2. It is safe: each certificate
//! that may exist unknown has a signer with a journal; that signer cast finalize only where it holds a
//! notarization, at or below u, so nothing was finalized above u. The votes in memory are gone with the
//! processes, and the validators with a journal are no quorum, so nothing is notarized in the views
//! that the others nullify. All this holds only if none of them lies.
//!
//! **R31. Other validators.** On a chain with a registry, the state in the middle of an epoch fixes the
//! validators of the next one; they stay if the epoch's last block names an older state. An engine serves one set
//! of validators. At the end of an epoch it waits until the last block is executed. If the validators, their
//! keys and addresses stay, it goes on by R12. Otherwise it is done: another engine starts on the same tip,
//! for the next set, with the same journal. Until then it casts no vote, keeps nothing of the next epoch
//! unless places and keys are known to stay, and sends the last finalization to whoever lacks it. A vote,
//! certificate or evidence of an epoch with another set says nothing about the present places: it is
//! dropped, and its sender is not blamed. In the journal, a vote has the place of its epoch.
//!   *Why:* a place and a key mean another validator in another set. A border is crossed on a final block
//!   whose state every validator has executed, so all have the same next set; and as a quorum of the old set
//!   has signed a header that names that state, it can be proven to whoever knows the old set.
//! # Bounds
//!
//! For n validators, in bytes: slots 25 views × 3 kinds × 136 × n ≈ 10,200 n (1.0 MB at n = 100);
//! proposals at most 5 blocks ahead (10 MB at the largest block size); blocks on their leader's word 4
//! per leader (where a validator leads several views in a row, the window has up to 61 views and 15 proposals), and none of a nullified or settled view; certificates about 300 per
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
//! | `engine` | the engine: its parts, and which of them each input goes to |
//! | `views`, `chain`, `staging` | the views; the blocks above what is executed; finalized blocks being fetched |
//! | `slots`, `votes`, `checks` | vote slots, buffering votes, the one check, the checks under way |
//! | `certificates` | having certificates verified; helping peers that are behind |
//! | `catchup`, `fetch` | what is final; fetching missing blocks; requests |
//! | `epochs`, `border` | from one epoch to the next |
//! | `evidence`, `convictions` | conflicting votes: verifying, keeping and passing them on |
//! | `penalties`, `peers` | who is blocked or on probation; what peers claim |
//! | `recover`, `inquiry`, `elsewhere` | starting from the journal; what this key may have voted without it |
//! | `dropped` | why a message was dropped, and what a view waits for |
//! | `work` | the cryptography, for a thread of its own |
//! | `rounds` | one view of any protocol: |
//! | `rounds::voting`, `rounds::accept` | casting votes; acting on certificates |
//! | `rounds::proposals`, `rounds::flaw` | proposing, checking proposals |
//! | `rounds::round` | one view's proposal, votes and certificates |
//! | `rounds::pacemaker`, `rounds::leaders`, `rounds::idle` | timers; which leaders are waited for; when no block is needed |
//! | `protocol` | what a protocol decides, and how to add one |
//! | `protocol::simplex`, `protocol::hotstuff`, `protocol::basic`, `protocol::pbft` | the protocols |

mod border;
mod catchup;
mod certificates;
mod chain;
mod checks;
mod config;
mod convictions;
mod dropped;
mod durations;
mod elsewhere;
mod engine;
mod epochs;
mod evidence;
mod fetch;
mod inquiry;
mod io;
mod peers;
mod penalties;
mod protocol;
mod recover;
mod rounds;
mod slots;
mod staging;
mod views;
mod votes;
mod work;

pub use config::{
    Config, LOOKAHEAD_VIEWS, MAX_CERTIFICATE_CHECKS_PER_PEER, MAX_EARLY_MESSAGES,
    MAX_EVIDENCE_PER_VALIDATOR, MAX_OPEN_VIEWS, MAX_PROPOSED_PER_LEADER, MAX_UNEXECUTED_BLOCKS,
    MAX_WANTS, Own, PROPOSAL_LOOKAHEAD_VIEWS, TAIL_VIEWS, Timing, Tip, VoteChecking, VoteSigner,
};
pub use dropped::{DropReason, Dropped, Missing};
pub use engine::{Counters, Engine, Holdings};
pub use inquiry::{ESTABLISHED_BLOCKS, Voting};
pub use io::{
    Batch, BuildRequest, Exhibit, Finalized, Input, Job, JobId, Moment, Notice, Offence, Order,
    Outbound, Output, Penalty, Sentence, Target, ValidateRequest, Verdict, Work,
};
pub use recover::RecoverError;
pub use rounds::flaw::Flaw;
pub use work::{Search, WorkCounts, Worker};
