// Proofs of the state tree (`storage/src/tree.rs`): that an account has a value under a root, or
// has none.

import { DecodeError, Reader, concat, hex } from "./bytes.ts";
import { type Account, decodeAccount, sha256 } from "./codec.ts";

const LEAF_LIMIT = 2;

export interface Entry {
  key: Uint8Array;
  value: Uint8Array;
}

export interface TreeProof {
  /** Hashes beside the way from the root down. */
  siblings: Uint8Array[];
  /** What is in the leaf where the way ends. */
  entries: Entry[];
}

/** Bit `at` of a key, the most significant bit of the first byte being the first. */
const bit = (key: Uint8Array, at: number) => ((key[at >> 3]! >> (7 - (at & 7))) & 1) === 1;

function shareBits(a: Uint8Array, b: Uint8Array, bits: number): boolean {
  for (let at = 0; at < bits; at++) if (bit(a, at) !== bit(b, at)) return false;
  return true;
}

export function decodeTreeProof(bytes: Uint8Array): TreeProof {
  const reader = new Reader(bytes, "proof");
  reader.version(1);
  const depth = reader.u8();
  const siblings: Uint8Array[] = [];
  for (let i = 0; i < depth; i++) siblings.push(reader.take(32));
  const count = reader.u8();
  if (count > LEAF_LIMIT) throw new DecodeError(`proof: ${count} entries in a leaf`);
  const entries: Entry[] = [];
  for (let i = 0; i < count; i++) {
    const key = reader.take(32);
    entries.push({ key, value: reader.take(reader.u8()) });
  }
  reader.end();
  const [first, last] = entries;
  if (first && last) {
    if (hex(first.key) >= hex(last.key)) throw new DecodeError("proof: keys do not ascend");
    if (!shareBits(first.key, last.key, depth)) {
      throw new DecodeError("proof: keys of a leaf differ above it");
    }
  }
  return { siblings, entries };
}

function leafHash(depth: number, entries: Entry[]): Uint8Array {
  if (entries.length === 0) return new Uint8Array(32);
  const parts: Uint8Array[] = [Uint8Array.of(0, depth, entries.length)];
  for (const { key, value } of entries) parts.push(key, Uint8Array.of(value.length), value);
  return sha256(concat(...parts));
}

/** The root that a proof leads to for this key, or nothing if it is about another part of the tree. */
export function rootOf(proof: TreeProof, key: Uint8Array): string | undefined {
  const depth = proof.siblings.length;
  if (proof.entries.some((entry) => !shareBits(entry.key, key, depth))) return undefined;
  let node: Uint8Array = leafHash(depth, proof.entries);
  for (let at = depth - 1; at >= 0; at--) {
    const sibling = proof.siblings[at]!;
    const [left, right] = bit(key, at) ? [sibling, node] : [node, sibling];
    node = sha256(Uint8Array.of(1), left, right);
  }
  return hex(node);
}

/** What the leaf holds under a key: the account, or nothing, which the proof then proves too. */
export function accountIn(proof: TreeProof, key: Uint8Array): Account | undefined {
  const wanted = hex(key);
  const entry = proof.entries.find((candidate) => hex(candidate.key) === wanted);
  return entry && decodeAccount(entry.value);
}

/** Where an account stands in the tree: SHA-256 of its identity. */
export const stateKey = (identity: Uint8Array): Uint8Array => sha256(identity);
