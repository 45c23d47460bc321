// `Signatures` in JavaScript, on noble's curves.

import { bls12_381 } from "@noble/curves/bls12-381.js";
import { ed25519 } from "@noble/curves/ed25519.js";
import { DecodeError, equal, utf8 } from "./bytes.ts";
import { POSSESSION_DST, type Possession, type PreparedKey, type Signatures, VOTE_DST } from "./scheme.ts";

const { G1, G2, fields, millerLoopBatch, utils } = bls12_381;
type G1Point = InstanceType<typeof G1.Point>;
type G2Point = InstanceType<typeof G2.Point>;
type Lines = ReturnType<typeof utils.calcPairingPrecomputes>;

interface Key {
  point: G2Point;
  /** The key's part of the Miller loop, made on first use. */
  lines?: Lines;
}

const open = (key: PreparedKey) => key as unknown as Key;
const seal = (point: G2Point) => ({ point }) as Key as unknown as PreparedKey;
const linesOf = (key: Key): Lines => (key.lines ??= utils.calcPairingPrecomputes(key.point));
const generator: Key = { point: G2.Point.BASE };

/** A point of G1 in the subgroup, not the identity, from its one compressed or uncompressed form. */
function readSignature(bytes: Uint8Array): G1Point {
  const compressed = bytes.length === 48;
  if (!compressed && bytes.length !== 96) throw new DecodeError("signature: 48 or 96 bytes");
  const point = G1.Point.fromBytes(bytes);
  if (point.is0() || !equal(point.toBytes(compressed), bytes)) {
    throw new DecodeError("signature: not the one encoding of a point");
  }
  point.assertValidity();
  if (!point.isTorsionFree()) throw new DecodeError("signature: outside the subgroup");
  return point;
}

function readKey(bytes: Uint8Array): G2Point {
  const point = G2.Point.fromBytes(bytes);
  if (bytes.length !== 96 || point.is0() || !equal(point.toBytes(true), bytes)) {
    throw new DecodeError("key: not the one encoding of a point of G2");
  }
  point.assertValidity();
  if (!point.isTorsionFree()) throw new DecodeError("key: outside the subgroup");
  return point;
}

/** Whether the product of these pairings is one. No point is the identity. */
function productIsOne(pairs: [G1Point, Key][]): boolean {
  const terms = pairs.map(([point, key]): [Lines, bigint, bigint] => {
    const { x, y } = point.toAffine();
    return [linesOf(key), x, y];
  });
  const product = fields.Fp12.finalExponentiate(millerLoopBatch(terms));
  return fields.Fp12.eql(product, fields.Fp12.ONE);
}

const hash = (message: Uint8Array, domain: string): G1Point =>
  G1.hashToCurve(message, { DST: utf8(domain) }) as G1Point;

/** e(S, g₂) = e(H, key). */
function holds(key: Key, hashed: G1Point, signature: G1Point): boolean {
  return productIsOne([
    [signature, generator],
    [hashed.negate(), key],
  ]);
}

function randomWeight(): bigint {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n) | 1n;
}

export class Noble implements Signatures {
  async key(bytes: Uint8Array): Promise<PreparedKey> {
    return seal(readKey(bytes));
  }

  async sum(keys: PreparedKey[]): Promise<PreparedKey> {
    const sum = keys.reduce((total, key) => total.add(open(key).point), G2.Point.ZERO);
    if (sum.is0()) throw new DecodeError("the keys cancel out");
    return seal(sum);
  }

  async verify(key: PreparedKey, message: Uint8Array, signature: Uint8Array): Promise<boolean> {
    try {
      return holds(open(key), hash(message, VOTE_DST), readSignature(signature));
    } catch {
      return false;
    }
  }

  /**
   * All at once, e(Σ rᵢ·πᵢ, g₂) = Π e(rᵢ·Hᵢ, keyᵢ) with random weights; only if that fails, one by
   * one.
   */
  async badPossessions(claims: Possession[]): Promise<number[]> {
    const bad: number[] = [];
    const read: { place: number; key: Key; hashed: G1Point; proof: G1Point }[] = [];
    claims.forEach((claim, place) => {
      try {
        const hashed = hash(claim.statement, POSSESSION_DST);
        read.push({ place, key: open(claim.key), hashed, proof: readSignature(claim.proof) });
      } catch {
        bad.push(place);
      }
    });
    if (read.length > 0) {
      let sum = G1.Point.ZERO as G1Point;
      const pairs: [G1Point, Key][] = [];
      for (const { key, hashed, proof } of read) {
        const weight = randomWeight();
        sum = sum.add(proof.multiplyUnsafe(weight));
        pairs.push([hashed.multiplyUnsafe(weight).negate(), key]);
      }
      if (sum.is0() || !productIsOne([[sum, generator], ...pairs])) {
        for (const { place, key, hashed, proof } of read) {
          if (!holds(key, hashed, proof)) bad.push(place);
        }
      }
    }
    return bad.sort((a, b) => a - b);
  }

  async verifyIdentity(key: Uint8Array, message: Uint8Array, signature: Uint8Array): Promise<boolean> {
    try {
      return ed25519.verify(signature, message, key, { zip215: true });
    } catch {
      return false;
    }
  }
}
