// The signature arithmetic that verification needs, and no more. The one filling today is
// JavaScript (`noble.ts`); a WebAssembly build could stand in its place.

export const VOTE_DST = "QUORATE-V1-BLS12381G1_XMD:SHA-256_SSWU_RO_VOTE";
export const POSSESSION_DST = "QUORATE-V1-BLS12381G1_XMD:SHA-256_SSWU_RO_POP";

/** A public key that has been read, checked and prepared. Opaque to the callers. */
export interface PreparedKey {
  readonly prepared: unique symbol;
}

/** A claim that the secret of a key is known. */
export interface Possession {
  key: PreparedKey;
  statement: Uint8Array;
  proof: Uint8Array;
}

/** BLS signatures over BLS12-381, signatures in G1 and keys in G2. */
export interface Signatures {
  /** Reads a compressed key; throws unless it is a point of the subgroup, not the identity. */
  key(bytes: Uint8Array): Promise<PreparedKey>;
  /** The sum of keys; throws if it is the identity. */
  sum(keys: PreparedKey[]): Promise<PreparedKey>;
  /** Whether a signature holds: 48 bytes compressed, or 96 uncompressed. Never throws. */
  verify(key: PreparedKey, message: Uint8Array, signature: Uint8Array): Promise<boolean>;
  /** The places of proofs of possession that do not hold. */
  badPossessions(claims: Possession[]): Promise<number[]>;
  /** Whether an ed25519 signature holds (with the rules of ZIP 215, as the nodes have it). */
  verifyIdentity(key: Uint8Array, message: Uint8Array, signature: Uint8Array): Promise<boolean>;
}
