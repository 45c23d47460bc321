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
  reader.version(1);
  const subject = readSubject(reader);
  const proof = readProof(reader);
  reader.end();
  return { subject, proof };
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
  reader.version(1);
  const account = { nonce: reader.u64(), balance: reader.u64() };
  reader.end();
  return account;
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
