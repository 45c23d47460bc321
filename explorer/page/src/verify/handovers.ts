// Who validates next, for whoever knows who validates now (docs/FORMATS.md, “Following the validators”).

import { hex, unhex } from "./bytes.ts";
import { type Report, Steps, checkSubject, require, takeSignature } from "./checks.ts";
import { type Handover, type Member, REGISTRY, decodeHandover } from "./codec.ts";
import { Keys } from "./keys.ts";
import { accountIn, decodeTreeProof, rootOf, stateKey } from "./tree.ts";
import { type Trust, sameValidators } from "./trust.ts";

/** The validators from an epoch on. */
export interface EpochSet {
  epoch: bigint;
  members: Member[];
  /** How the handover to them was verified; the pinned ones have none. */
  report?: Report;
}

/** Whether a handover proves the validators of the epoch after its header's. Adds nothing. */
export async function verifyHandover(keys: Keys, encoded: string): Promise<{ report: Report; handover?: Handover }> {
  const steps = new Steps();
  let handover!: Handover;
  await steps.take("encoding", () => {
    handover = decodeHandover(unhex(encoded));
    return `a handover to ${handover.set.members.length} validators`;
  });
  await steps.take("asked", () => {
    const { header, set } = handover;
    const length = keys.trust.epochBlocks;
    require(length !== undefined, "the pinned trust says that the validators never change");
    const last = (header.epoch + 1n) * length;
    require(header.height === last, `block ${header.height} is not the last one of epoch ${header.epoch}, which is ${last}`);
    require(set.epoch === header.epoch + 1n, `validators of epoch ${set.epoch}, and a block of epoch ${header.epoch}`);
    require(set.epoch > keys.newest.epoch, `validators of epoch ${set.epoch}, and those from epoch ${keys.newest.epoch} on are known`);
    const fixed = last - length / 2n;
    require(header.executedHeight >= fixed, `the state after block ${header.executedHeight}, before block ${fixed} has fixed the next validators`);
    return `block ${last} is the last one of epoch ${header.epoch}`;
  });
  await steps.take("chain", () => {
    require(handover.header.chain === keys.trust.chainId, "a block of another chain");
    return "of the pinned chain";
  });
  await steps.take("certificate", () => checkSubject(handover.finalization.subject, handover.header));
  await steps.take("state", () => {
    const { header, proof, set } = handover;
    const [key, tree] = [stateKey(unhex(REGISTRY)), decodeTreeProof(proof)];
    require(rootOf(tree, key) === header.stateRoot, "the proof does not lead to the state root of the header");
    const note = accountIn(tree, key)?.note;
    require(note?.epoch === header.epoch && note.next !== undefined, "the state does not name the validators of the next epoch");
    require(note.next === set.digest, "the state names other validators");
    return `the state names these validators, ${hex(unhex(set.digest).slice(0, 4)).slice(2)}…`;
  });
  // Only now are keys read that the server has sent: they are a quorum's word.
  await takeSignature(steps, keys, () => handover.finalization);
  await steps.take("keys", async () => {
    const voteKeys = handover.set.members.map(({ voteKey }) => voteKey);
    require(new Set(voteKeys).size === voteKeys.length, "two validators have one vote key");
    await Promise.all(voteKeys.map((voteKey) => keys.read(voteKey)));
    return `${voteKeys.length} keys, each of the subgroup`;
  });
  const report = steps.report();
  return { report, ...(report.checks[0]!.state === "passed" && { handover }) };
}

export interface Followed {
  /** Those that were news, oldest first. */
  adopted: EpochSet[];
  /** The first handover that does not hold, if one does not. Nothing after it is looked at. */
  refused?: { epoch: bigint | undefined; report: Report };
}

/** Follows handovers, oldest first, and adds the validators that they prove. Those that are known are left out. */
export async function follow(keys: Keys, { handovers }: { handovers: string[] }): Promise<Followed> {
  const adopted: EpochSet[] = [];
  for (const encoded of handovers) {
    if (isKnown(keys, encoded)) continue;
    const { report, handover } = await verifyHandover(keys, encoded);
    if (!report.ok || !handover) return { adopted, refused: { epoch: handover?.set.epoch, report } };
    keys.adopt(handover.set);
    adopted.push({ epoch: handover.set.epoch, members: handover.set.members, report });
  }
  return { adopted };
}

function isKnown(keys: Keys, encoded: string): boolean {
  try {
    return decodeHandover(unhex(encoded)).set.epoch <= keys.newest.epoch;
  } catch {
    return false;
  }
}

export interface LeadsClaim {
  from: Trust;
  /** Of a later epoch. */
  to: Trust;
  handovers: string[];
}

/** Whether handovers lead from one trust file of a chain to another one. The pinned keys are not used. */
export async function leads({ signatures }: Keys, { from, to, handovers }: LeadsClaim): Promise<boolean> {
  const keys = new Keys(from, signatures);
  await keys.check();
  await follow(keys, { handovers });
  return sameValidators(keys.at(to.epoch).members, to.validators);
}
