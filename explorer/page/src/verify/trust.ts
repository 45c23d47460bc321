// The trust file: what a chain's certificates are checked against.

import { DecodeError, concat, hex, normal, unhex, utf8 } from "./bytes.ts";
import { sha256 } from "./codec.ts";
import { PROTOCOLS, type Protocol } from "./protocol.ts";

export interface TrustValidator {
  identity: string;
  /** A compressed point of G2. */
  voteKey: string;
  /** With `bls-aggregate`, in a file from epoch 0: a compressed point of G1. */
  possession?: string;
}

export interface Trust {
  name: string;
  chainId: string;
  scheme: "bls-threshold" | "bls-aggregate";
  groupKey?: string;
  /** How many blocks an epoch has; there if the validators can change. */
  epochBlocks?: bigint;
  /** The first epoch of these validators. */
  epoch: bigint;
  /** It tells who leads a view; nothing is verified with it. */
  protocol: Protocol;
  validators: TrustValidator[];
}

const MAX_VALIDATORS = 1_024;
const KEYS = ["name", "chain_id", "scheme", "group_key", "epoch_blocks", "epoch", "protocol", "validators"];
const VALIDATOR_KEYS = ["identity", "vote_key", "proof_of_possession", "stake"];

/** n − f, with f the largest number for which n ≥ 3f + 1. */
export const quorum = (validators: number): number => validators - Math.floor((validators - 1) / 3);

function fields(value: unknown, known: string[], what: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new DecodeError(`${what}: an object expected`);
  }
  for (const key of Object.keys(value)) {
    if (!known.includes(key)) throw new DecodeError(`${what}: unknown field “${key}”`);
  }
  return value as Record<string, unknown>;
}

/** A number that may be left out. */
function optionalNumber(value: unknown, least: number, what: string): bigint | undefined {
  if (value === undefined) return undefined;
  if (!Number.isSafeInteger(value) || (value as number) < least) throw new DecodeError(`trust file: ${what} is not a number from ${least} on`);
  return BigInt(value as number);
}

/** The protocol's name may be left out. */
function protocolOf(value: unknown): Protocol {
  if (value === undefined) return "simplex";
  if (!PROTOCOLS.includes(value as Protocol)) throw new DecodeError(`trust file: unknown protocol; known are ${PROTOCOLS.join(", ")}`);
  return value as Protocol;
}

/** Reads a trust file's text, or the parsed value. */
export function parseTrust(source: unknown): Trust {
  let value = source;
  if (typeof source === "string") {
    try {
      value = JSON.parse(source);
    } catch {
      throw new DecodeError("trust file: not JSON");
    }
  }
  const file = fields(value, KEYS, "trust file");
  const { name, scheme, validators } = file;
  if (typeof name !== "string" || name === "") throw new DecodeError("trust file: no name");
  if (scheme !== "bls-threshold" && scheme !== "bls-aggregate") {
    throw new DecodeError("trust file: unknown scheme");
  }
  const protocol = protocolOf(file["protocol"]);
  const epochBlocks = optionalNumber(file["epoch_blocks"], 1, "epoch_blocks");
  const epoch = optionalNumber(file["epoch"], 0, "epoch") ?? 0n;
  if (epochBlocks !== undefined && scheme !== "bls-aggregate") {
    throw new DecodeError("trust file: validators that can change, but not with bls-aggregate");
  }
  if (epoch > 0n && epochBlocks === undefined) throw new DecodeError("trust file: an epoch, but no epoch_blocks");
  const count = Array.isArray(validators) ? validators.length : 0;
  if (!Array.isArray(validators) || count < 1 || count > MAX_VALIDATORS) {
    throw new DecodeError(`trust file: ${count} validators`);
  }
  const read = validators.map((entry: unknown): TrustValidator => {
    const validator = fields(entry, VALIDATOR_KEYS, "trust file: validator");
    const identity = normal(validator["identity"], 32);
    const voteKey = normal(validator["vote_key"], 96);
    // A later set's keys were proven to the chain when they were bonded.
    if (scheme === "bls-threshold" || epoch > 0n) return { identity, voteKey };
    return { identity, voteKey, possession: normal(validator["proof_of_possession"], 48) };
  });
  for (const field of ["identity", "voteKey"] as const) {
    if (new Set(read.map((v) => v[field])).size !== read.length) {
      throw new DecodeError(`trust file: two validators with the same ${field}`);
    }
  }
  const trust: Trust = { name, chainId: normal(file["chain_id"], 32), scheme, epoch, protocol, validators: read };
  if (epochBlocks !== undefined) trust.epochBlocks = epochBlocks;
  if (scheme === "bls-threshold") trust.groupKey = normal(file["group_key"], 96);
  return trust;
}

/** The trust file's text again, as other programs take it. */
export function trustJson(trust: Trust): string {
  const bare = (text: string) => text.slice(2);
  const file = {
    name: trust.name,
    chain_id: bare(trust.chainId),
    scheme: trust.scheme,
    ...(trust.groupKey === undefined ? {} : { group_key: bare(trust.groupKey) }),
    ...(trust.epochBlocks === undefined ? {} : { epoch_blocks: Number(trust.epochBlocks) }),
    ...(trust.epoch === 0n ? {} : { epoch: Number(trust.epoch) }),
    ...(trust.protocol === "simplex" ? {} : { protocol: trust.protocol }),
    validators: trust.validators.map((v) => ({
      identity: bare(v.identity),
      vote_key: bare(v.voteKey),
      ...(v.possession === undefined ? {} : { proof_of_possession: bare(v.possession) }),
    })),
  };
  return JSON.stringify(file, null, 2) + "\n";
}

/**
 * Names everything that is taken from the file, to be compared by eye or over another channel: SHA-256
 * over the trust file as compact JSON with its fields in their fixed order, without stakes.
 */
export function fingerprint(trust: Trust): string {
  return hex(sha256(concat(utf8("quorate/trust/1"), utf8(JSON.stringify(JSON.parse(trustJson(trust)))))));
}

/** Whether these are the same validators with the same keys in the same order. */
export function sameValidators(a: readonly { identity: string; voteKey: string }[], b: typeof a): boolean {
  return a.length === b.length && a.every(({ identity, voteKey }, i) => identity === b[i]!.identity && voteKey === b[i]!.voteKey);
}

/** What a proof of possession signs: domain, chain name after its length, identity, key. */
export function possessionStatement(trust: Trust, validator: TrustValidator): Uint8Array {
  const name = utf8(trust.name);
  const length = Uint8Array.of(name.length >> 8, name.length & 255);
  const [identity, key] = [unhex(validator.identity), unhex(validator.voteKey)];
  return concat(utf8("quorate/possession/1"), length, name, identity, key);
}
