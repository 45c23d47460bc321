// The keys of the pinned trust, read once and kept ready.

import { DecodeError, unhex } from "./bytes.ts";
import type { Proof } from "./codec.ts";
import type { PreparedKey, Signatures } from "./scheme.ts";
import { type Trust, possessionStatement, quorum } from "./trust.ts";

/** Sums of signer sets that are remembered; the same quorum often signs again. */
const CACHED_SUMS = 16;

export class Keys {
  readonly trust: Trust;
  readonly signatures: Signatures;
  /** The chain's id. */
  readonly chain: Uint8Array;
  readonly quorum: number;
  readonly #validators = new Map<number, Promise<PreparedKey>>();
  readonly #sums = new Map<string, Promise<PreparedKey>>();
  #group: Promise<PreparedKey> | undefined;

  constructor(trust: Trust, signatures: Signatures) {
    this.trust = trust;
    this.signatures = signatures;
    this.chain = unhex(trust.chainId, 32);
    this.quorum = quorum(trust.validators.length);
  }

  /** What a proof claims to be signed by; throws if that is not a quorum of this committee. */
  describeQuorum(proof: Proof): string {
    const { scheme, validators } = this.trust;
    if (proof.scheme !== scheme) throw new DecodeError(`a ${proof.scheme} certificate, pinned is ${scheme}`);
    if (proof.signers === undefined) {
      return `one signature that takes ${this.quorum} of ${validators.length} shares to make`;
    }
    if (proof.committee !== validators.length) {
      throw new DecodeError(`a committee of ${proof.committee}, pinned are ${validators.length}`);
    }
    if (proof.signers.length < this.quorum) {
      throw new DecodeError(`${proof.signers.length} signers, a quorum is ${this.quorum}`);
    }
    return `${proof.signers.length} of ${validators.length} validators signed, a quorum is ${this.quorum}`;
  }

  /** One validator's own key. */
  validator(place: number): Promise<PreparedKey> {
    const validator = this.trust.validators[place];
    if (!validator) return Promise.reject(new DecodeError(`there is no validator ${place}`));
    const known = this.#validators.get(place);
    if (known) return known;
    const key = this.signatures.key(unhex(validator.voteKey, 96));
    this.#validators.set(place, key);
    return key;
  }

  /** The key that a proof must hold under; its quorum is known to be one. */
  of(proof: Proof): Promise<PreparedKey> {
    if (proof.signers === undefined) {
      return (this.#group ??= this.signatures.key(unhex(this.trust.groupKey, 96)));
    }
    const name = proof.signers.join();
    const known = this.#sums.get(name);
    if (known) return known;
    const sum = Promise.all(proof.signers.map((place) => this.validator(place))).then((keys) => this.signatures.sum(keys));
    const oldest = this.#sums.keys().next();
    if (this.#sums.size >= CACHED_SUMS && !oldest.done) this.#sums.delete(oldest.value);
    this.#sums.set(name, sum);
    return sum;
  }

  /**
   * Reads every key, and with `bls-aggregate` checks that each one's secret is known to its
   * validator: without that, one could cancel out the others' keys. Throws if something is wrong.
   */
  async check(): Promise<void> {
    const { scheme, validators, groupKey } = this.trust;
    if (scheme === "bls-threshold") {
      await this.signatures.key(unhex(groupKey, 96));
      return;
    }
    const claims = await Promise.all(
      validators.map(async (validator, place) => ({
        key: await this.validator(place),
        statement: possessionStatement(this.trust, validator),
        proof: unhex(validator.possession, 48),
      })),
    );
    const bad = await this.signatures.badPossessions(claims);
    if (bad.length > 0) throw new DecodeError(`no proof of possession for the keys of validators ${bad.join(", ")}`);
  }
}
