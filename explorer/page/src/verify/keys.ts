// The keys of the pinned trust and of the validators that handovers lead to, read once and kept ready.

import { DecodeError, unhex } from "./bytes.ts";
import type { Member, Proof, ValidatorSet } from "./codec.ts";
import type { PreparedKey, Signatures } from "./scheme.ts";
import { type Trust, possessionStatement, quorum } from "./trust.ts";

/** Sums of signer sets that are remembered; the same quorum often signs again. */
const CACHED_SUMS = 16;

/** The validators from one epoch on. */
export class Committee {
  /** The first epoch of these validators. */
  readonly epoch: bigint;
  readonly members: readonly Member[];
  readonly quorum: number;
  readonly #keys: Keys;
  readonly #sums = new Map<string, Promise<PreparedKey>>();

  constructor(epoch: bigint, members: readonly Member[], keys: Keys) {
    this.epoch = epoch;
    this.members = members;
    this.quorum = quorum(members.length);
    this.#keys = keys;
  }

  /** Whether it is the one of the trust file. */
  get isPinned(): boolean {
    return this.epoch === this.#keys.trust.epoch;
  }

  /** What a proof claims to be signed by; throws if that is not a quorum of this committee. */
  describeQuorum(proof: Proof): string {
    const { scheme } = this.#keys.trust;
    const size = this.members.length;
    const known = this.isPinned ? "pinned" : `from epoch ${this.epoch} on there`;
    if (proof.scheme !== scheme) throw new DecodeError(`a ${proof.scheme} certificate, pinned is ${scheme}`);
    if (proof.signers === undefined) {
      return `one signature that takes ${this.quorum} of ${size} shares to make`;
    }
    if (proof.committee !== size) {
      throw new DecodeError(`a committee of ${proof.committee}, ${known} are ${size}`);
    }
    if (proof.signers.length < this.quorum) {
      throw new DecodeError(`${proof.signers.length} signers, a quorum is ${this.quorum}`);
    }
    return `${proof.signers.length} of ${size} validators signed, a quorum is ${this.quorum}`;
  }

  /** One validator's own key. */
  validator(place: number): Promise<PreparedKey> {
    const member = this.members[place];
    if (!member) return Promise.reject(new DecodeError(`there is no validator ${place}`));
    return this.#keys.read(member.voteKey);
  }

  /** The key that a proof must hold under; its quorum is known to be one. */
  of(proof: Proof): Promise<PreparedKey> {
    if (proof.signers === undefined) return this.#keys.group();
    const name = proof.signers.join();
    const known = this.#sums.get(name);
    if (known) return known;
    const sum = Promise.all(proof.signers.map((place) => this.validator(place))).then((keys) => this.#keys.signatures.sum(keys));
    const oldest = this.#sums.keys().next();
    if (this.#sums.size >= CACHED_SUMS && !oldest.done) this.#sums.delete(oldest.value);
    this.#sums.set(name, sum);
    return sum;
  }
}

export class Keys {
  readonly trust: Trust;
  readonly signatures: Signatures;
  /** The chain's id. */
  readonly chain: Uint8Array;
  /** By their first epochs, ascending. The first is the trust file's. */
  readonly #committees: Committee[];
  readonly #read = new Map<string, Promise<PreparedKey>>();
  #group: Promise<PreparedKey> | undefined;

  constructor(trust: Trust, signatures: Signatures) {
    this.trust = trust;
    this.signatures = signatures;
    this.chain = unhex(trust.chainId, 32);
    this.#committees = [new Committee(trust.epoch, trust.validators, this)];
  }

  /** The newest validators that are known. */
  get newest(): Committee {
    return this.#committees.at(-1)!;
  }

  /** The validators of an epoch; of one that no handover leads to, the newest that are known. Throws before the trust's. */
  at(epoch: bigint): Committee {
    const found = this.#committees.findLast((committee) => committee.epoch <= epoch);
    if (!found) throw new DecodeError(`it is of epoch ${epoch}, and the pinned validators are known from epoch ${this.trust.epoch} on: a trust file of before is needed`);
    return found;
  }

  /** What a certificate of this epoch that does not hold may be due to. */
  hint(epoch: bigint): string {
    if (this.trust.epochBlocks === undefined || epoch <= this.newest.epoch) return "";
    return `; the newest validators that are known are those from epoch ${this.newest.epoch} on, and the server has proven no later ones`;
  }

  /** Adds validators that a handover has proven. */
  adopt(set: ValidatorSet): void {
    if (set.epoch <= this.newest.epoch) throw new Error("not later than the newest");
    this.#committees.push(new Committee(set.epoch, set.members, this));
  }

  /** A vote key, read and checked once: most validators stay. */
  read(voteKey: string): Promise<PreparedKey> {
    const known = this.#read.get(voteKey);
    if (known) return known;
    const key = this.signatures.key(unhex(voteKey, 96));
    this.#read.set(voteKey, key);
    key.catch(() => this.#read.delete(voteKey));
    return key;
  }

  /** The group's key, with `bls-threshold`. */
  group(): Promise<PreparedKey> {
    return (this.#group ??= this.signatures.key(unhex(this.trust.groupKey, 96)));
  }

  /**
   * Reads every key, and with `bls-aggregate` checks that each one's secret is known to its
   * validator: without that, one could cancel out the others' keys. Throws if something is wrong.
   * The keys of a later epoch's trust file were proven to the chain.
   */
  async check(): Promise<void> {
    const { scheme, validators, epoch } = this.trust;
    if (scheme === "bls-threshold") {
      await this.group();
      return;
    }
    const keys = await Promise.all(validators.map(({ voteKey }) => this.read(voteKey)));
    if (epoch > 0n) return;
    const claims = validators.map((validator, place) => ({
      key: keys[place]!,
      statement: possessionStatement(this.trust, validator),
      proof: unhex(validator.possession, 48),
    }));
    const bad = await this.signatures.badPossessions(claims);
    if (bad.length > 0) throw new DecodeError(`no proof of possession for the keys of validators ${bad.join(", ")}`);
  }
}
