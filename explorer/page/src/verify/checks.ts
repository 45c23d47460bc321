// What makes a server's answer believable, step by step. Nothing that the server says about its
// own answer is used: everything is computed from the encodings, the pinned trust, and what was
// asked for.

import { DecodeError, hex, normal, unhex } from "./bytes.ts";
import {
  type Account,
  type Certificate,
  HEADER_BYTES,
  type Header,
  type Subject,
  type Transaction,
  VOTE_BYTES,
  conflict,
  decodeAccount,
  decodeBlock,
  decodeCertificate,
  decodeHeader,
  decodeTransaction,
  decodeVote,
  sha256,
  signedBytes,
  transactionMessage,
} from "./codec.ts";
import { accountIn, decodeTreeProof, rootOf, stateKey } from "./tree.ts";
import type { Keys } from "./keys.ts";

/** The steps of a verification, in the order in which they are taken. */
export type CheckName =
  | "encoding"
  | "asked"
  | "chain"
  | "hash"
  | "body"
  | "included"
  | "sender"
  | "state"
  | "links"
  | "certificate"
  | "quorum"
  | "signature"
  | "keys"
  | "conflict"
  | "votes";

export interface Check {
  name: CheckName;
  /** `skipped`: an earlier step failed, so there was nothing to check. */
  state: "passed" | "failed" | "skipped";
  /** What was compared, for people. */
  detail: string;
}

export interface Report {
  ok: boolean;
  checks: Check[];
  /** How long it took. */
  ms: number;
}

export type Asked = { height: bigint } | { id: string } | "latest";

/** What makes a block final: headers after it, and a certificate of the last of them. */
export interface Finality {
  headers: string[];
  certificate: string;
}

/** Thrown by a step that fails; the rest is skipped. */
class Failed extends Error {}

export function require(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new Failed(otherwise);
}

/** Takes steps in order until one fails. */
export class Steps {
  readonly checks: Check[] = [];
  readonly #started = performance.now();
  #failed = false;

  /** A step's action says what it found, or throws. */
  async take(name: CheckName, action: () => string | Promise<string>): Promise<void> {
    if (this.#failed) {
      this.checks.push({ name, state: "skipped", detail: "" });
      return;
    }
    try {
      this.checks.push({ name, state: "passed", detail: await action() });
    } catch (error) {
      const known = error instanceof Failed || error instanceof DecodeError;
      const detail = known ? error.message : `unexpected: ${String(error)}`;
      this.checks.push({ name, state: "failed", detail });
      this.#failed = true;
    }
  }

  report(): Report {
    const ms = performance.now() - this.#started;
    return { ok: !this.#failed, checks: this.checks, ms };
  }
}

const short = (text: string) => `${text.replace(/^0x/, "").slice(0, 8)}…`;

function checkAsked(asked: Asked, header: Header): string {
  if (asked === "latest") {
    return `the newest block was asked for and #${header.height} came; nothing proves that there is none newer`;
  }
  if ("height" in asked) {
    require(header.height === asked.height, `asked for height ${asked.height}, the header says ${header.height}`);
    return `height ${asked.height} was asked for, and the header has it`;
  }
  const wanted = normal(asked.id, 32);
  require(header.id === wanted, `asked for ${short(wanted)}, this is ${short(header.id)}`);
  return `${short(wanted)} was asked for, and the header hashes to it`;
}

function checkChain(keys: Keys, headers: Header[]): string {
  const length = keys.trust.epochBlocks;
  for (const { chain, height, epoch } of headers) {
    require(chain === keys.trust.chainId, `header #${height} is of chain ${short(chain)}, pinned is ${short(keys.trust.chainId)}`);
    // Otherwise former validators could sign blocks of any height, as ones of their own epoch.
    if (length !== undefined) require((height - 1n) / length === epoch, `header #${height} is of epoch ${epoch}, its height of epoch ${(height - 1n) / length}`);
  }
  return `chain id ${short(keys.trust.chainId)}, as pinned`;
}

function checkLinks(headers: Header[]): string {
  for (let i = 1; i < headers.length; i++) {
    const [parent, child] = [headers[i - 1]!, headers[i]!];
    require(child.parent === parent.id, `header #${child.height} names another parent than #${parent.height}`);
    require(child.height === parent.height + 1n, `header #${child.height} does not come after #${parent.height}`);
  }
  const steps = headers.length - 1;
  return steps === 0 ? "finalised directly" : `${steps} header${steps === 1 ? "" : "s"} lead to the finalised one by their hashes`;
}

export function checkSubject(subject: Subject, last: Header): string {
  require(subject.kind === "finalize", `it is a certificate to ${subject.kind}, not to finalize`);
  require(subject.payload === last.id, `it finalises ${short(subject.payload)}, not ${short(last.id)}: a certificate of another block`);
  require(subject.epoch === last.epoch, `it is of epoch ${subject.epoch}, the block of epoch ${last.epoch}`);
  return `finalises ${short(last.id)} in view ${subject.epoch}.${subject.view}`;
}

/** The steps from headers to the quorum's signature. The last header is the finalised one. */
async function takeFinality(steps: Steps, keys: Keys, headers: () => Header[], text: () => string): Promise<void> {
  let certificate!: Certificate;
  await steps.take("links", () => checkLinks(headers()));
  await steps.take("certificate", () => {
    certificate = decodeCertificate(unhex(text()));
    return checkSubject(certificate.subject, headers().at(-1)!);
  });
  await takeSignature(steps, keys, () => certificate);
}

/** A quorum of the validators of the certificate's epoch has signed it. */
export async function takeSignature(steps: Steps, keys: Keys, certificate: () => Certificate): Promise<void> {
  await steps.take("quorum", () => {
    const { subject, proof } = certificate();
    const committee = keys.at(subject.epoch);
    try {
      return committee.describeQuorum(proof);
    } catch (error) {
      throw error instanceof DecodeError ? new DecodeError(error.message + keys.hint(subject.epoch)) : error;
    }
  });
  await steps.take("signature", async () => {
    const { subject, proof } = certificate();
    const message = signedBytes(keys.chain, subject);
    const committee = keys.at(subject.epoch);
    const key = await committee.of(proof);
    const holds = await keys.signatures.verify(key, message, proof.signature);
    require(holds, `the signature is not the quorum's over this subject${keys.hint(subject.epoch)}`);
    if (proof.scheme === "bls-threshold") return "holds under the pinned group key";
    return `holds under the sum of the signers' ${committee.isPinned ? "pinned keys" : `keys, proven for the validators from epoch ${committee.epoch} on`}`;
  });
}

const decodeHeaders = (texts: string[]) => texts.map((text) => decodeHeader(unhex(text, HEADER_BYTES)));

export interface BlockClaim {
  asked: Asked;
  /** The id that the answer gives itself. */
  id: string;
  header: string;
  /** The whole block's encoding; without it the body is not checked. */
  block?: string | undefined;
  finality: Finality;
}

export interface VerifiedBlock {
  report: Report;
  /** As decoded from the bytes; there only if the encoding is right. */
  header?: Header;
  transactions?: Transaction[];
  certificate?: Certificate;
}

/** Whether a block is what was asked for and final. */
export async function verifyBlock(keys: Keys, claim: BlockClaim): Promise<VerifiedBlock> {
  const steps = new Steps();
  const found: Omit<VerifiedBlock, "report"> = {};
  let headers: Header[] = [];
  let bodyMatches = false;
  await steps.take("encoding", () => {
    found.header = decodeHeader(unhex(claim.header, HEADER_BYTES));
    found.certificate = decodeCertificate(unhex(claim.finality.certificate));
    headers = [found.header, ...decodeHeaders(claim.finality.headers)];
    if (claim.block !== undefined) {
      const block = decodeBlock(unhex(claim.block));
      require(hex(block.headerBytes) === normal(claim.header), "the block begins with another header");
      found.transactions = block.transactions;
      bodyMatches = block.bodyMatches;
    }
    return `header of ${HEADER_BYTES} bytes, version 1`;
  });
  await steps.take("asked", () => checkAsked(claim.asked, headers[0]!));
  await steps.take("chain", () => checkChain(keys, headers));
  await steps.take("hash", () => {
    const id = headers[0]!.id;
    require(id === normal(claim.id, 32), `the header hashes to ${short(id)}, the answer says ${short(claim.id)}`);
    return `SHA-256 of the header is ${short(id)}`;
  });
  if (claim.block !== undefined) {
    await steps.take("body", () => {
      const count = found.transactions!.length;
      require(bodyMatches, "the transactions are not those that the header commits to");
      return `${count} transaction${count === 1 ? "" : "s"}, as the header's body root commits to`;
    });
  }
  await takeFinality(steps, keys, () => headers, () => claim.finality.certificate);
  return { ...found, report: steps.report() };
}

export interface ChainClaim {
  /** Consecutive headers, ascending; the last is finalised by the certificate. */
  headers: string[];
  certificate: string;
  /** The height that each must have: the first one's. */
  from: bigint;
  /** The verified block below the first, if one is known. */
  below?: string | undefined;
}

/** A backlog with one signature check: the newest one's certificate, the others by their hashes. */
export async function verifyChain(keys: Keys, claim: ChainClaim): Promise<{ report: Report; ids: string[] }> {
  const steps = new Steps();
  let headers: Header[] = [];
  await steps.take("encoding", () => {
    headers = decodeHeaders(claim.headers);
    require(headers.length > 0, "no header");
    return `${headers.length} headers`;
  });
  await steps.take("asked", () => {
    headers.forEach((header, i) => {
      const wanted = claim.from + BigInt(i);
      require(header.height === wanted, `asked for height ${wanted}, the header says ${header.height}`);
    });
    const first = headers[0]!;
    if (claim.below !== undefined) {
      require(first.parent === claim.below, `block #${first.height} does not follow the verified block below it`);
    }
    return `heights ${claim.from} to ${headers.at(-1)!.height}`;
  });
  await steps.take("chain", () => checkChain(keys, headers));
  await takeFinality(steps, keys, () => headers, () => claim.certificate);
  return { report: steps.report(), ids: headers.map((header) => header.id) };
}

export interface ViewClaim {
  epoch: bigint;
  view: bigint;
  /** The block that a notarization or finalization is for; a nullification has none. */
  id?: string | undefined;
  kind: "notarize" | "nullify" | "finalize";
  certificate: string;
}

/** Whether a certificate is a quorum's word on this view. */
export async function verifyView(keys: Keys, claim: ViewClaim): Promise<{ report: Report; certificate?: Certificate }> {
  const steps = new Steps();
  let certificate!: Certificate;
  await steps.take("encoding", () => {
    certificate = decodeCertificate(unhex(claim.certificate));
    return `${unhex(claim.certificate).length} bytes, version 1`;
  });
  await steps.take("asked", () => {
    const { epoch, view } = certificate.subject;
    require(epoch === claim.epoch && view === claim.view, `asked for view ${claim.epoch}.${claim.view}, the certificate is of ${epoch}.${view}`);
    return `view ${epoch}.${view} was asked for, and the certificate names it`;
  });
  await steps.take("certificate", () => {
    const { kind, payload } = certificate.subject;
    require(kind === claim.kind, `a certificate to ${kind}, not to ${claim.kind}`);
    require(claim.id === undefined || payload === normal(claim.id, 32), "a certificate of another block");
    return kind === "nullify" ? "says that the view brings nothing" : `names ${short(payload)}`;
  });
  await takeSignature(steps, keys, () => certificate);
  const report = steps.report();
  return report.checks[0]!.state === "passed" ? { report, certificate } : { report };
}

export interface TransactionClaim {
  id: string;
  transaction: string;
  index: number;
  count: number;
  siblings: string[];
  header: string;
  finality: Finality;
}

/** The root of an audit path (RFC 9162, section 2.1.3.2), or nothing if it has the wrong length. */
export function pathRoot(leaf: Uint8Array, index: number, count: number, siblings: Uint8Array[]): string | undefined {
  if (!Number.isSafeInteger(index) || index < 0 || index >= count) return undefined;
  let [at, last] = [index, count - 1];
  let node = sha256(Uint8Array.of(0), leaf);
  for (const sibling of siblings) {
    if (last === 0) return undefined;
    if (at % 2 === 1 || at === last) {
      node = sha256(Uint8Array.of(1), sibling, node);
      while (at % 2 === 0 && at !== 0) [at, last] = [at >> 1, last >> 1];
    } else {
      node = sha256(Uint8Array.of(1), node, sibling);
    }
    [at, last] = [at >> 1, last >> 1];
  }
  return last === 0 ? hex(node) : undefined;
}

/** Whether a transaction is in a final block, at this place. */
export async function verifyTransaction(
  keys: Keys,
  claim: TransactionClaim,
): Promise<{ report: Report; header?: Header; transaction?: Transaction }> {
  const steps = new Steps();
  let header: Header | undefined;
  let transaction: Transaction | undefined;
  let headers: Header[] = [];
  await steps.take("encoding", () => {
    transaction = decodeTransaction(unhex(claim.transaction));
    header = decodeHeader(unhex(claim.header, HEADER_BYTES));
    headers = [header, ...decodeHeaders(claim.finality.headers)];
    return `transaction of ${transaction.bytes.length} bytes, header of ${HEADER_BYTES}`;
  });
  await steps.take("asked", () => {
    const wanted = normal(claim.id, 32);
    require(transaction!.id === wanted, `asked for ${short(wanted)}, this is ${short(transaction!.id)}`);
    return `${short(wanted)} was asked for, and the transfer hashes to it`;
  });
  await steps.take("sender", async () => {
    require(hex(keys.chain.subarray(0, 8)) === transaction!.chainTag, "made for another chain");
    const message = transactionMessage(keys.chain, transaction!);
    const { sender, signature } = transaction!;
    require(await keys.signatures.verifyIdentity(unhex(sender), message, unhex(signature)), "not signed by its sender");
    return `signed by ${short(sender)} for this chain`;
  });
  await steps.take("included", () => {
    const siblings = claim.siblings.map((sibling) => unhex(sibling, 32));
    const leaf = sha256(unhex(claim.transaction));
    const root = pathRoot(leaf, claim.index, claim.count, siblings);
    require(root === header!.bodyRoot, "the path does not lead to the header's body root");
    return `index ${claim.index} of ${claim.count}, by ${siblings.length} ${siblings.length === 1 ? "hash" : "hashes"} up to the body root`;
  });
  await steps.take("chain", () => checkChain(keys, headers));
  await takeFinality(steps, keys, () => headers, () => claim.finality.certificate);
  return { report: steps.report(), ...(header && { header }), ...(transaction && { transaction }) };
}

export interface AccountClaim {
  identity: string;
  balance: string;
  nonce: string;
  exists: boolean;
  /** The tree's own encoding of the proof. */
  proof: string;
  /** A final header that names the state. */
  header: string;
  certificate: string;
}

/** Whether an account has this balance and nonce, or does not exist, in a certified state. */
export async function verifyAccount(
  keys: Keys,
  claim: AccountClaim,
): Promise<{ report: Report; header?: Header; account?: Account | undefined }> {
  const steps = new Steps();
  let header: Header | undefined;
  let account: Account | undefined;
  await steps.take("encoding", () => {
    header = decodeHeader(unhex(claim.header, HEADER_BYTES));
    const { entries, siblings } = decodeTreeProof(unhex(claim.proof));
    for (const { value } of entries) decodeAccount(value);
    return `a proof of ${siblings.length} hashes`;
  });
  await steps.take("asked", () => {
    const key = stateKey(unhex(claim.identity, 32));
    const proof = decodeTreeProof(unhex(claim.proof));
    require(rootOf(proof, key) !== undefined, "the proof is of another part of the tree than this account's");
    account = accountIn(proof, key);
    require((account !== undefined) === claim.exists, account ? "the answer hides the account" : "the proof is of absence, the answer is not");
    const { balance, nonce } = account ?? { balance: 0n, nonce: 0n };
    require(claim.balance === balance.toString() && claim.nonce === nonce.toString(), "the answer says another balance or nonce than the proof");
    return account ? `balance ${balance} and nonce ${nonce} are under this account's key` : "nothing is under this account's key";
  });
  await steps.take("state", () => {
    const root = rootOf(decodeTreeProof(unhex(claim.proof)), stateKey(unhex(claim.identity, 32)));
    require(root === header!.stateRoot, "the proof does not lead to the state root of the header");
    return `leads to the state root ${short(root)} after block ${header!.executedHeight}`;
  });
  await steps.take("chain", () => checkChain(keys, [header!]));
  await takeFinality(steps, keys, () => [header!], () => claim.certificate);
  return { report: steps.report(), ...(header && { header }), account };
}

export interface EvidenceClaim {
  validator: number;
  hex: string;
}

/** Whether one validator cast two votes that no honest one casts together. */
export async function verifyEvidence(keys: Keys, claim: EvidenceClaim): Promise<{ report: Report; conflict?: string }> {
  const steps = new Steps();
  let votes: ReturnType<typeof decodeVote>[] = [];
  let kind: string | undefined;
  await steps.take("encoding", () => {
    const bytes = unhex(claim.hex, 2 * VOTE_BYTES);
    votes = [decodeVote(bytes.slice(0, VOTE_BYTES)), decodeVote(bytes.slice(VOTE_BYTES))];
    return `two votes of ${VOTE_BYTES} bytes`;
  });
  await steps.take("asked", () => {
    require(votes.every((vote) => vote.signer === claim.validator), `not votes of validator ${claim.validator}`);
    return `both name validator ${claim.validator}`;
  });
  await steps.take("conflict", () => {
    kind = conflict(votes[0]!, votes[1]!);
    require(kind !== undefined, "an honest validator may cast both");
    return kind.replaceAll("_", " ");
  });
  await steps.take("votes", async () => {
    const committee = keys.at(votes[0]!.subject.epoch);
    const key = await committee.validator(claim.validator);
    for (const vote of votes) {
      const message = signedBytes(keys.chain, vote.subject);
      require(await keys.signatures.verify(key, message, vote.signature), `the ${vote.subject.kind} vote is not signed by this validator`);
    }
    return `both are signed with the validator's ${committee.isPinned ? "pinned" : "proven"} key`;
  });
  return { report: steps.report(), ...(kind !== undefined && { conflict: kind }) };
}
