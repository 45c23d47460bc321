// The chain's formats, as the `types` crate defines them: header, block, certificate, vote,
// transaction, account. Every number is big-endian, and every value has exactly one encoding.

import { sha256 as digest } from "@noble/hashes/sha2.js";
import { DecodeError, Reader, concat, equal, hex, u64, utf8 } from "./bytes.ts";

export const HEADER_BYTES = 177;
/** A transaction without a memo. */
export const TRANSACTION_BYTES = 161;
const TRANSFER_BYTES = 97;
const SIGNATURE_BYTES = 64;
export const MAX_MEMO_BYTES = 4_096;
export const VOTE_BYTES = 150;
const MAX_BLOCK_TRANSACTIONS = 8_192;
const MAX_VALIDATORS = 1_024;
/** What a validator says of a registry outside the chain, in an account of its own: docs/FORMATS.md. */
const REPORT_BYTES = 104;
const MAX_ADDRESS_BYTES = 48;
const MAX_NAME_BYTES = 24;
const MAX_ACCOUNT_PROOF_BYTES = 8_448;
/** The account that operations of the staking registry are sent to: a text, so nobody has its key. */
export const REGISTRY = hex(utf8("quorate/registry/operations/0001"));
export const ZERO = "0x" + "00".repeat(32);

/** SHA-256 of the parts, one after the other. */
export function sha256(...parts: Uint8Array[]): Uint8Array {
  return digest(parts.length === 1 ? parts[0]! : concat(...parts));
}

/** What a block says of itself; the SHA-256 of its encoding is the block's id. */
export interface Header {
  id: string;
  chain: string;
  epoch: bigint;
  view: bigint;
  height: bigint;
  parent: string;
  parentView: bigint;
  timestampMs: bigint;
  executedHeight: bigint;
  stateRoot: string;
  bodyRoot: string;
}

export interface Transaction {
  id: string;
  chainTag: string;
  sender: string;
  nonce: bigint;
  to: string;
  amount: bigint;
  fee: bigint;
  /** Bytes for the two accounts; usually none. */
  memo: Uint8Array;
  signature: string;
  /** The encoding. */
  bytes: Uint8Array;
}

export interface Block {
  header: Header;
  transactions: Transaction[];
  /** The first 177 bytes: what is hashed. */
  headerBytes: Uint8Array;
  /** Whether the header commits to these transactions. */
  bodyMatches: boolean;
}

export type VoteKind = "notarize" | "nullify" | "finalize";
const KINDS: Record<number, VoteKind> = { 1: "notarize", 2: "nullify", 3: "finalize" };

/** What a vote or a certificate is about. */
export interface Subject {
  epoch: bigint;
  view: bigint;
  kind: VoteKind;
  /** The block's id; zero for a nullify. */
  payload: string;
  /** The 49 bytes that are signed, after the domain and the chain's id. */
  bytes: Uint8Array;
}

export interface Proof {
  scheme: "bls-threshold" | "bls-aggregate";
  /** A compressed point of G1. */
  signature: Uint8Array;
  /** With `bls-aggregate`: the committee's size and who signed, ascending. */
  committee?: number;
  signers?: number[];
}

export interface Certificate {
  subject: Subject;
  proof: Proof;
}

export interface Vote {
  subject: Subject;
  signer: number;
  /** An uncompressed point of G1. */
  signature: Uint8Array;
}

export interface Account {
  nonce: bigint;
  balance: bigint;
  /** What it has at stake. */
  bond?: Bond;
  /** In the registry's own account only. */
  note?: RegistryNote;
}

export interface Bond {
  identity: string;
  stake: bigint;
  /** What was unbonded and is still held, and the first epoch in which it may be withdrawn. */
  leaving: bigint;
  leavesAt: bigint;
  since: bigint;
  voteKey: string;
  address: string;
  name: string;
}

/** What the state says about the validators of an epoch and of the next one. */
export interface RegistryNote {
  epoch: bigint;
  /** The digest of the next epoch's validator set, once it is fixed. */
  next?: string;
}

/** A validator of an epoch. */
export interface Member {
  identity: string;
  /** A compressed point of G2. */
  voteKey: string;
}

/** The validators of an epoch, in the committee's order. */
export interface ValidatorSet {
  epoch: bigint;
  members: Member[];
  /** What the state of the chain names it by. */
  digest: string;
}

/** The proof of who validates in the next epoch. Nothing is checked by decoding it. */
export interface Handover {
  /** The last block of the validators before. */
  header: Header;
  finalization: Certificate;
  /** The proof of the registry's account in the state that the header names. */
  proof: Uint8Array;
  set: ValidatorSet;
}

export function decodeHeader(bytes: Uint8Array): Header {
  const reader = new Reader(bytes, "header");
  reader.version(1);
  const header: Header = {
    id: hex(sha256(bytes)),
    chain: hex(reader.take(32)),
    epoch: reader.u64(),
    view: reader.u64(),
    height: reader.u64(),
    parent: hex(reader.take(32)),
    parentView: reader.u64(),
    timestampMs: reader.u64(),
    executedHeight: reader.u64(),
    stateRoot: hex(reader.take(32)),
    bodyRoot: hex(reader.take(32)),
  };
  reader.end();
  return header;
}

/** A header, its transactions, and whether it commits to them. */
export function decodeBlock(bytes: Uint8Array): Block {
  const reader = new Reader(bytes, "block");
  const headerBytes = reader.take(HEADER_BYTES);
  const header = decodeHeader(headerBytes);
  const count = reader.u32();
  if (count > MAX_BLOCK_TRANSACTIONS) throw new DecodeError(`block: ${count} transactions`);
  const transactions: Transaction[] = [];
  for (let i = 0; i < count; i++) transactions.push(readTransaction(reader));
  reader.end();
  const leaves = transactions.map((transaction) => sha256(transaction.bytes));
  return { header, transactions, headerBytes, bodyMatches: hex(merkleRoot(leaves)) === header.bodyRoot };
}

export function decodeTransaction(bytes: Uint8Array): Transaction {
  const reader = new Reader(bytes, "transaction");
  const transaction = readTransaction(reader);
  reader.end();
  return transaction;
}

/** Version 1 has no memo; version 2 has one, after its length. */
function readTransaction(from: Reader): Transaction {
  const plain = from.take(TRANSFER_BYTES);
  const version = plain[0]!;
  if (version !== 1 && version !== 2) throw new DecodeError(`transaction: version ${version}, not 1 or 2`);
  const length = version === 2 ? from.take(2) : new Uint8Array();
  const memoBytes = version === 2 ? length[0]! * 256 + length[1]! : 0;
  if (version === 2 && (memoBytes === 0 || memoBytes > MAX_MEMO_BYTES)) throw new DecodeError(`transaction: a memo of ${memoBytes} bytes`);
  const memo = from.take(memoBytes);
  const signature = from.take(SIGNATURE_BYTES);
  const transfer = concat(plain, length, memo);
  const reader = new Reader(plain.subarray(1), "transaction");
  return {
    id: hex(sha256(transfer)),
    chainTag: hex(reader.take(8)),
    sender: hex(reader.take(32)),
    nonce: reader.u64(),
    to: hex(reader.take(32)),
    amount: reader.u64(),
    fee: reader.u64(),
    memo,
    signature: hex(signature),
    bytes: concat(transfer, signature),
  };
}

/** What a transaction's sender signs: the namespace after its length, the chain's id, the transfer. */
export function transactionMessage(chain: Uint8Array, transaction: Transaction): Uint8Array {
  const namespace = utf8("quorate/transaction/1");
  const length = Uint8Array.of(namespace.length);
  return concat(length, namespace, chain, transaction.bytes.subarray(0, -SIGNATURE_BYTES));
}

/** The root of RFC 6962, section 2.1, with digests as the leaves' data; zero for no leaf. */
export function merkleRoot(leaves: Uint8Array[]): Uint8Array {
  if (leaves.length === 0) return new Uint8Array(32);
  if (leaves.length === 1) return sha256(Uint8Array.of(0), leaves[0]!);
  let split = 1;
  while (2 * split < leaves.length) split *= 2;
  const left = merkleRoot(leaves.slice(0, split));
  return sha256(Uint8Array.of(1), left, merkleRoot(leaves.slice(split)));
}

function readSubject(reader: Reader): Subject {
  const epoch = reader.u64();
  const view = reader.u64();
  const code = reader.u8();
  const kind = KINDS[code];
  if (kind === undefined) throw new DecodeError(`vote: unknown kind ${code}`);
  const payload = reader.take(32);
  const isZero = payload.every((byte) => byte === 0);
  if ((kind === "nullify") !== isZero) {
    throw new DecodeError("vote: the payload does not fit the kind");
  }
  const bytes = concat(u64(epoch), u64(view), Uint8Array.of(code), payload);
  return { epoch, view, kind, payload: hex(payload), bytes };
}

/** What is signed: `"quorate/vote/1" ‖ chain id ‖ epoch ‖ view ‖ kind ‖ payload`. */
export function signedBytes(chain: Uint8Array, subject: Subject): Uint8Array {
  return concat(utf8("quorate/vote/1"), chain, subject.bytes);
}

export function decodeCertificate(bytes: Uint8Array): Certificate {
  const reader = new Reader(bytes, "certificate");
  const certificate = readCertificate(reader);
  reader.end();
  return certificate;
}

function readCertificate(reader: Reader): Certificate {
  reader.version(1);
  return { subject: readSubject(reader), proof: readProof(reader) };
}

function readProof(reader: Reader): Proof {
  const tag = reader.u8();
  if (tag === 0) return { scheme: "bls-threshold", signature: reader.take(48) };
  if (tag !== 1) throw new DecodeError(`certificate: unknown scheme ${tag}`);
  const committee = reader.u16();
  if (committee < 1 || committee > MAX_VALIDATORS) {
    throw new DecodeError(`certificate: a committee of ${committee}`);
  }
  const bits = reader.take(Math.ceil(committee / 8));
  const isSet = (place: number) => ((bits[place >> 3]! >> (place & 7)) & 1) === 1;
  for (let place = committee; place < 8 * bits.length; place++) {
    if (isSet(place)) throw new DecodeError("certificate: a bit past the committee is set");
  }
  const signers = Array.from({ length: committee }, (_, place) => place).filter(isSet);
  return { scheme: "bls-aggregate", committee, signers, signature: reader.take(48) };
}

export function decodeVote(bytes: Uint8Array): Vote {
  const reader = new Reader(bytes, "vote");
  reader.version(1);
  const vote = { subject: readSubject(reader), signer: reader.u32(), signature: reader.take(96) };
  reader.end();
  return vote;
}

export function decodeAccount(bytes: Uint8Array): Account {
  const reader = new Reader(bytes, "account");
  const version = reader.u8();
  const account: Account = { nonce: reader.u64(), balance: reader.u64() };
  if (version === 2) account.bond = readBond(reader);
  else if (version === 3) account.note = readNote(reader);
  else if (version === 4) reader.take(REPORT_BYTES);
  else if (version === 5) reader.rest();
  else if (version !== 1) throw new DecodeError(`account: version ${version}, not 1 to 5`);
  reader.end();
  return account;
}

function readBond(reader: Reader): Bond {
  return {
    identity: hex(reader.take(32)),
    stake: reader.u64(),
    leaving: reader.u64(),
    leavesAt: reader.u64(),
    since: reader.u64(),
    voteKey: hex(reader.take(96)),
    address: readLabel(reader, MAX_ADDRESS_BYTES),
    name: readLabel(reader, MAX_NAME_BYTES),
  };
}

/** Printable ASCII without spaces, after its length. */
function readLabel(reader: Reader, most: number): string {
  const length = reader.u8();
  const text = String.fromCharCode(...reader.take(length));
  if (length > most || !/^[!-~]*$/.test(text)) throw new DecodeError("label: too long, or not printable ASCII");
  return text;
}

function readNote(reader: Reader): RegistryNote {
  const epoch = reader.u64();
  const heard = reader.u16();
  if (heard > MAX_VALIDATORS / 8) throw new DecodeError(`note: ${heard} bytes of validators`);
  reader.take(heard);
  const tag = reader.u8();
  if (tag > 3) throw new DecodeError("note: neither with a digest nor without");
  const note = { epoch, ...(tag & 1 && { next: hex(reader.take(32)) }) };
  // How far passing shares on is, and below a part of it, is not looked at.
  if (tag & 2) reader.rest();
  return note;
}

/** What a transfer to the registry does. The stake of a bond is the transfer's amount. */
export interface Operation {
  kind: string;
  stake?: bigint;
  voteKey?: string;
  address?: string;
  name?: string;
  /** Who is accused, and of what: two votes. Or whom a report is about; without a stake, that there is none. */
  validator?: string;
  votes?: Vote[];
}

const OPERATIONS = ["bond", "add_stake", "unbond", "withdraw", "rotate_key", "describe", "accuse", "report", "announce", "deal", "object", "prove"];

/** The operation in a memo. A proof of possession is not looked at. */
export function decodeOperation(memo: Uint8Array): Operation {
  const reader = new Reader(memo, "operation");
  reader.version(1);
  const tag = reader.u8();
  const kind = OPERATIONS[tag];
  if (kind === undefined) throw new DecodeError(`operation: unknown tag ${tag}`);
  const operation: Operation = { kind };
  // What passes shares on is not looked at.
  if (tag > 7) return operation;
  if (tag > 5) operation.validator = hex(reader.take(32));
  const entry = tag === 7 ? reader.u8() : 0;
  if (entry > 1) throw new DecodeError("operation: neither with an entry nor without");
  if (tag === 2 || entry) operation.stake = reader.u64();
  if (tag === 0 || tag === 4 || entry) {
    operation.voteKey = hex(reader.take(96));
    reader.take(48);
  }
  if (tag === 0 || tag === 5 || entry) {
    operation.address = readLabel(reader, MAX_ADDRESS_BYTES);
    operation.name = readLabel(reader, MAX_NAME_BYTES);
  }
  if (tag === 6) {
    operation.votes = [decodeVote(reader.take(VOTE_BYTES)), decodeVote(reader.take(VOTE_BYTES))];
  }
  reader.end();
  return operation;
}

/** The operation of a transfer to the registry; nothing if its memo is none. */
export function operationOf({ to, memo }: { to: string; memo: Uint8Array }): Operation | undefined {
  try {
    return to === REGISTRY ? decodeOperation(memo) : undefined;
  } catch {
    return undefined;
  }
}

export function decodeValidatorSet(bytes: Uint8Array): ValidatorSet {
  const reader = new Reader(bytes, "validator set");
  // With a key that they share, or without.
  const shares = bytes[0] === 2;
  reader.version(shares ? 2 : 1);
  const epoch = reader.u64();
  if (shares) reader.take(96);
  const count = reader.u32();
  if (count < 1 || count > MAX_VALIDATORS) throw new DecodeError(`validator set: ${count} members`);
  const members: Member[] = [];
  for (let i = 0; i < count; i++) {
    members.push({ identity: hex(reader.take(32)), voteKey: hex(reader.take(96)) });
    readLabel(reader, MAX_ADDRESS_BYTES);
    readLabel(reader, MAX_NAME_BYTES);
  }
  reader.end();
  if (new Set(members.map(({ identity }) => identity)).size !== count) throw new DecodeError("validator set: a member is there twice");
  return { epoch, members, digest: hex(sha256(utf8("quorate/validator-set/1"), bytes)) };
}

export function decodeHandover(bytes: Uint8Array): Handover {
  const reader = new Reader(bytes, "handover");
  reader.version(1);
  const header = decodeHeader(reader.take(HEADER_BYTES));
  const finalization = readCertificate(reader);
  const length = reader.u32();
  if (length > MAX_ACCOUNT_PROOF_BYTES) throw new DecodeError(`handover: a proof of ${length} bytes`);
  return { header, finalization, proof: reader.take(length), set: decodeValidatorSet(reader.rest()) };
}

/** In which way two votes conflict, or nothing if an honest validator may cast both. */
export function conflict(first: Vote, second: Vote): string | undefined {
  const [a, b] = [first.subject, second.subject];
  if (first.signer !== second.signer || a.epoch !== b.epoch || a.view !== b.view) return undefined;
  const kinds = [a.kind, b.kind].sort().join("+");
  if (kinds === "finalize+nullify") return "finalize_and_nullify";
  if (equal(a.bytes, b.bytes) || a.payload === b.payload) return undefined;
  if (kinds === "notarize+notarize") return "two_notarize";
  if (kinds === "finalize+finalize") return "two_finalize";
  if (kinds === "finalize+notarize") return "notarize_and_finalize";
  return undefined;
}
