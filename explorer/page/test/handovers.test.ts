// Changes of the validators: real ones, of a network whose validators joined and left, and forged ones.

import { bls12_381 } from "@noble/curves/bls12-381.js";
import { readFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import { concat, hex, u64, unhex, utf8 } from "../src/verify/bytes.ts";
import { type CheckName, type Report, verifyAccount, verifyBlock } from "../src/verify/checks.ts";
import { Verifier } from "../src/verify/client.ts";
import { decodeAccount, decodeHandover, decodeHeader, decodeValidatorSet, sha256 } from "../src/verify/codec.ts";
import { follow, leads, verifyHandover } from "../src/verify/handovers.ts";
import { Keys } from "../src/verify/keys.ts";
import type { Request } from "../src/verify/messages.ts";
import { Noble } from "../src/verify/noble.ts";
import { VOTE_DST } from "../src/verify/scheme.ts";
import { type Trust, fingerprint, parseTrust, trustJson } from "../src/verify/trust.ts";

interface Found {
  trust: Record<string, unknown> & { validators: Record<string, unknown>[] };
  /** The trust file after `quorate trust update`. */
  moved: Record<string, unknown>;
  handovers: { epoch: number; handover: string }[];
  /** The last blocks of epochs and some after, by height. */
  blocks: { id: string; header: string; finality: { headers: string[]; certificate: string } }[];
  accounts: Parameters<typeof verifyAccount>[1][];
}

const found = JSON.parse(readFileSync(new URL("./handovers.json", import.meta.url), "utf8")) as Found;
const all = found.handovers.map(({ handover }) => handover);
const noble = new Noble();
const keysOf = (trust: unknown) => new Keys(parseTrust(trust), noble);
const failedAt = (report: Report | undefined): CheckName | undefined => report?.checks.find((check) => check.state === "failed")?.name;
const claim = (block: Found["blocks"][number]) => ({ asked: { id: block.id }, ...block });
const epochOf = (block: Found["blocks"][number]) => decodeHeader(unhex(block.header)).epoch;

test("handovers lead to the validators of each epoch, and to its blocks", async () => {
  const keys = keysOf(found.trust);
  const { adopted, refused } = await follow(keys, { handovers: all });
  expect(refused).toBeUndefined();
  expect(adopted.map(({ epoch, members }) => [epoch, members.length])).toEqual([[2n, 5], [3n, 6], [4n, 5], [5n, 4]]);
  expect(adopted.every(({ report }) => report?.ok)).toBe(true);
  for (const block of found.blocks) {
    const { report } = await verifyBlock(keys, claim(block));
    expect(report.checks.filter(({ state }) => state === "failed")).toEqual([]);
  }
  expect(new Set(found.blocks.map(epochOf)).size).toBe(6);
  expect([...keys.at(7n).members]).toEqual(adopted.at(-1)!.members);
  // Again: they are known.
  expect(await follow(keys, { handovers: all })).toEqual({ adopted: [] });
});

test("without handovers, blocks of later validators are refused, and the reason is said", async () => {
  const keys = keysOf(found.trust);
  for (const block of found.blocks) {
    const { report } = await verifyBlock(keys, claim(block));
    expect(report.ok).toBe(epochOf(block) < 2n);
    const detail = report.checks.find(({ state }) => state === "failed")?.detail;
    if (!report.ok) expect(detail).toContain("those from epoch 0 on");
  }
});

test("a trust file that was moved forward verifies later blocks, and says why not earlier ones", async () => {
  const keys = keysOf(found.moved);
  await keys.check();
  for (const block of found.blocks) {
    const { report } = await verifyBlock(keys, claim(block));
    expect(report.ok).toBe(epochOf(block) >= 5n);
    if (!report.ok) expect(report.checks.find(({ state }) => state === "failed")?.detail).toContain("from epoch 5 on");
  }
  const moved = parseTrust(found.moved);
  const first = parseTrust(found.trust);
  expect([moved.epoch, moved.epochBlocks, first.epoch, first.epochBlocks]).toEqual([5n, 60n, 0n, 60n]);
  expect(parseTrust(trustJson(moved))).toEqual(moved);
  expect(fingerprint(moved)).not.toBe(fingerprint({ ...moved, epoch: 4n }));
  expect(await leads(keys, { from: first, to: moved, handovers: all })).toBe(true);
  expect(await leads(keys, { from: first, to: moved, handovers: all.slice(0, 3) })).toBe(false);
  expect(await leads(keys, { from: first, to: { ...moved, validators: [...moved.validators].reverse() }, handovers: all })).toBe(false);
  // Proofs of possession are needed from the start only.
  const [head, ...rest] = found.trust.validators;
  expect(() => parseTrust({ ...found.trust, validators: [{ ...head, proof_of_possession: undefined }, ...rest] })).toThrow();
  for (const wrong of [{ epoch_blocks: undefined }, { epoch_blocks: 0 }, { epoch: -1 }, { epoch: 1.5 }, { epoch: "5" }, { scheme: "bls-threshold" }]) {
    expect(() => parseTrust({ ...found.moved, ...wrong })).toThrow();
  }
});

test("one that was left out is missed, and nothing after a refused one is looked at", async () => {
  const keys = keysOf(found.trust);
  const { adopted, refused } = await follow(keys, { handovers: all.slice(1) });
  expect(adopted).toEqual([]);
  expect([refused?.epoch, failedAt(refused?.report)]).toEqual([3n, "quorum"]);
  expect(keys.newest.epoch).toBe(0n);
  const broken = all.map((text, i) => (i === 1 ? text.slice(0, -2) + "00" : text));
  expect((await follow(keys, { handovers: broken })).adopted.map(({ epoch }) => epoch)).toEqual([2n]);
});

test("a handover with any byte changed, cut short or too long is refused", async () => {
  const keys = keysOf(found.trust);
  const bytes = unhex(all[0]!);
  for (let at = 0; at < bytes.length; at += 3) {
    const changed = Uint8Array.from(bytes);
    changed[at] = changed[at]! ^ 1;
    expect((await verifyHandover(keys, hex(changed))).report.ok).toBe(false);
  }
  for (const text of ["0x", "junk", all[0] + "00", all[0]!.slice(0, -2)]) {
    expect(failedAt((await verifyHandover(keys, text)).report)).toBe("encoding");
  }
  expect((await verifyHandover(keys, all[0]!)).report.ok).toBe(true);
  expect(keys.newest.epoch).toBe(0n);
});

test("a chain whose validators never change has no handovers", async () => {
  const { epoch_blocks: _, ...fixed } = found.trust;
  expect(failedAt((await verifyHandover(keysOf(fixed), all[0]!)).report)).toBe("asked");
});

test("accounts with a bond, and the registry's own one, are proven as others are", async () => {
  const keys = keysOf(found.trust);
  await follow(keys, { handovers: all });
  const [first, joined, registry] = await Promise.all(found.accounts.map((account) => verifyAccount(keys, account)));
  expect([first, joined, registry].map((each) => failedAt(each?.report))).toEqual([undefined, undefined, undefined]);
  expect([first?.account?.bond?.stake, joined?.account?.bond?.name]).toEqual([1_000_000n, "v4"]);
  expect(joined?.account?.bond?.identity).toBe(found.accounts[1]!.identity);
  expect(registry?.account?.note?.epoch).toBe(registry?.header?.epoch);
});

// Forged ones that are signed. What a quorum signs is believed, but for what the rules ask of it.

const LENGTH = 20n;
const EPOCH = 3n;
const CHAIN = "11".repeat(32);
const secrets = [101n, 102n, 103n, 104n];
const keyOf = (secret: bigint) => bls12_381.G2.Point.BASE.multiply(secret).toBytes(true);
const member = (secret: bigint) => ({ identity: new Uint8Array(32).fill(Number(secret)), voteKey: keyOf(secret) });
const made: Trust = {
  ...parseTrust(found.moved),
  chainId: `0x${CHAIN}`,
  epochBlocks: LENGTH,
  epoch: 0n,
  validators: secrets.map((secret) => ({ identity: hex(member(secret).identity), voteKey: hex(keyOf(secret)) })),
};
const u32 = (value: number) => u64(BigInt(value)).slice(4);
const u16 = (value: number) => u64(BigInt(value)).slice(6);

interface Parts {
  chain: string;
  epoch: bigint;
  height: bigint;
  executed: bigint;
  setEpoch: bigint;
  members: { identity: Uint8Array; voteKey: Uint8Array }[];
  noteEpoch: bigint;
  digest: Uint8Array | undefined;
  accountVersion: number;
  account: Uint8Array;
  root: Uint8Array | undefined;
  kind: number;
  subjectEpoch: bigint;
  payload: Uint8Array | undefined;
  signers: number[];
  signedBy: bigint[];
  signedChain: string;
}

/** A handover as the chain makes it, with some parts changed before it is signed. */
function handover(changes: Partial<Parts> = {}): string {
  const parts: Parts = {
    chain: CHAIN, epoch: EPOCH, height: (EPOCH + 1n) * LENGTH, executed: (EPOCH + 1n) * LENGTH - LENGTH / 2n, setEpoch: EPOCH + 1n,
    members: [101n, 102n, 103n, 105n, 106n].map(member), noteEpoch: EPOCH, digest: undefined, accountVersion: 3,
    account: utf8("quorate/registry/operations/0001"), root: undefined, kind: 3, subjectEpoch: EPOCH, payload: undefined, signers: [0, 1, 3], signedBy: [101n, 102n, 104n], signedChain: CHAIN, ...changes,
  };
  const members = parts.members.map(({ identity, voteKey }) => concat(identity, voteKey, Uint8Array.of(1, 65), Uint8Array.of(0)));
  const set = concat(Uint8Array.of(1), u64(parts.setEpoch), u32(members.length), ...members);
  const digest = parts.digest ?? sha256(utf8("quorate/validator-set/1"), set);
  const note = concat(u64(parts.noteEpoch), u16(1), Uint8Array.of(7), digest.length === 0 ? Uint8Array.of(0) : concat(Uint8Array.of(1), digest));
  const account = concat(Uint8Array.of(parts.accountVersion), new Uint8Array(16), parts.accountVersion === 3 ? note : new Uint8Array());
  const leaf = concat(Uint8Array.of(1), sha256(parts.account), Uint8Array.of(account.length), account);
  const proof = concat(Uint8Array.of(1, 0), leaf);
  const root = parts.root ?? sha256(Uint8Array.of(0, 0), leaf);
  const zero = new Uint8Array(32);
  const header = concat(Uint8Array.of(1), unhex(parts.chain), u64(parts.epoch), u64(9n), u64(parts.height), zero, u64(8n), u64(1n), u64(parts.executed), root, zero);
  const subject = concat(u64(parts.subjectEpoch), u64(9n), Uint8Array.of(parts.kind), parts.payload ?? sha256(header));
  const message = concat(utf8("quorate/vote/1"), unhex(parts.signedChain), subject);
  const hashed = bls12_381.G1.hashToCurve(message, { DST: utf8(VOTE_DST) }) as InstanceType<typeof bls12_381.G1.Point>;
  const signature = hashed.multiply(parts.signedBy.reduce((sum, secret) => sum + secret, 0n)).toBytes(true);
  const bits = parts.signers.reduce((sum, place) => sum | (1 << place), 0);
  const certificate = concat(Uint8Array.of(1), subject, Uint8Array.of(1), u16(secrets.length), Uint8Array.of(bits), signature);
  return hex(concat(Uint8Array.of(1), header, certificate, u32(proof.length), proof, set));
}

test("a handover that a quorum has signed is believed", async () => {
  const keys = new Keys(made, noble);
  const { adopted, refused } = await follow(keys, { handovers: [handover()] });
  expect(refused).toBeUndefined();
  expect(adopted.map(({ epoch, members }) => [epoch, members.length])).toEqual([[4n, 5]]);
  // Executed further is later than the choice, too.
  expect((await verifyHandover(new Keys(made, noble), handover({ executed: 79n }))).report.ok).toBe(true);
});

const other = (text: string) => sha256(utf8(text));
test.each<[string, Partial<Parts>, CheckName]>([
  ["another chain's block", { chain: "22".repeat(32) }, "chain"],
  ["not the last block of its epoch", { height: 79n }, "asked"],
  ["the last block of another epoch", { height: 60n }, "asked"],
  ["a block of another epoch", { epoch: 2n, subjectEpoch: 2n, noteEpoch: 2n }, "asked"],
  ["validators of the same epoch", { setEpoch: 3n }, "asked"],
  ["validators of the epoch after the next one", { setEpoch: 5n }, "asked"],
  ["a state of before the choice", { executed: 69n }, "asked"],
  ["a notarization", { kind: 1 }, "certificate"],
  ["a finalization of another epoch", { subjectEpoch: 2n }, "certificate"],
  ["a finalization of another block", { payload: other("block") }, "certificate"],
  ["a proof in another state", { root: other("root") }, "state"],
  ["a proof of another account", { account: utf8("quorate/registry/operations/0002") }, "state"],
  ["an account without a note", { accountVersion: 1 }, "state"],
  ["a note of the epoch before", { noteEpoch: 2n }, "state"],
  ["a note without a digest", { digest: new Uint8Array() }, "state"],
  ["a note of other validators", { digest: other("set") }, "state"],
  ["fewer signers than a quorum", { signers: [0, 1], signedBy: [101n, 102n] }, "quorum"],
  ["signed by the new validators", { signers: [0, 1, 2], signedBy: [101n, 102n, 105n] }, "signature"],
  ["signed by fewer than it says", { signers: [0, 1, 3], signedBy: [101n, 102n] }, "signature"],
  ["signed for another chain", { signedChain: "22".repeat(32) }, "signature"],
  ["a vote key twice", { members: [member(101n), { ...member(102n), voteKey: keyOf(101n) }] }, "keys"],
  ["a vote key that is none", { members: [member(101n), { ...member(102n), voteKey: new Uint8Array(96) }] }, "keys"],
  ["a member twice", { members: [member(101n), member(101n)] }, "encoding"],
  ["no members", { members: [] }, "encoding"],
])("refused: %s", async (_, changes, name) => {
  const keys = new Keys(made, noble);
  const { adopted, refused } = await follow(keys, { handovers: [handover(changes)] });
  expect(adopted).toEqual([]);
  expect(failedAt(refused?.report)).toBe(name);
  expect(keys.newest.epoch).toBe(0n);
});

test("an old epoch's validators cannot hand over again", async () => {
  const keys = new Keys(made, noble);
  expect((await follow(keys, { handovers: [handover()] })).adopted).toHaveLength(1);
  const early = handover({ epoch: 1n, subjectEpoch: 1n, noteEpoch: 1n, setEpoch: 2n, height: 40n, executed: 30n });
  expect(await follow(keys, { handovers: [early] })).toEqual({ adopted: [] });
  expect(failedAt((await verifyHandover(keys, early)).report)).toBe("asked");
  expect(keys.at(2n).epoch).toBe(0n);
});

test("notes, sets and labels have one form", () => {
  const { set, header } = decodeHandover(unhex(all[0]!));
  expect(set.epoch).toBe(header.epoch + 1n);
  const zero = new Uint8Array(16);
  const note = (tag: number, rest = new Uint8Array()) => concat(Uint8Array.of(3), zero, u64(1n), u16(0), Uint8Array.of(tag), rest);
  expect(decodeAccount(note(0)).note).toEqual({ epoch: 1n });
  expect(() => decodeAccount(note(4))).toThrow("digest");
  // While shares are passed on, a round follows.
  expect(decodeAccount(note(2, new Uint8Array(40))).note).toEqual({ epoch: 1n });
  expect(decodeAccount(note(3, new Uint8Array(72))).note).toEqual({ epoch: 1n, next: "0x" + "00".repeat(32) });
  expect(() => decodeAccount(note(1))).toThrow();
  expect(() => decodeAccount(note(0, Uint8Array.of(0)))).toThrow();
  expect(() => decodeAccount(Uint8Array.of(6, ...zero))).toThrow("version 6");
  expect(decodeAccount(Uint8Array.of(5, ...zero, 0)).note).toBeUndefined();
  const label = (text: Uint8Array) => concat(Uint8Array.of(1), u64(1n), u32(1), new Uint8Array(128), text, Uint8Array.of(0));
  expect(decodeValidatorSet(label(Uint8Array.of(1, 65))).members).toHaveLength(1);
  const sharing = concat(Uint8Array.of(2), u64(1n), new Uint8Array(96), u32(1), new Uint8Array(128), Uint8Array.of(0, 0));
  expect(decodeValidatorSet(sharing).members).toHaveLength(1);
  expect(() => decodeValidatorSet(label(Uint8Array.of(1, 32)))).toThrow("label");
  expect(() => decodeValidatorSet(label(Uint8Array.of(49, ...new Uint8Array(49).fill(65))))).toThrow("label");
});

// The page's side: which server is asked for changes, and when.

/** The verifier without a thread of its own. */
class FakeWorker {
  #listener: (event: { data: unknown }) => void = () => {};
  #keys: Keys | undefined;
  #last: Promise<void> = Promise.resolve();
  addEventListener(type: string, listener: (event: { data: unknown }) => void): void {
    if (type === "message") this.#listener = listener;
  }
  postMessage(request: Request): void {
    this.#last = this.#last.then(async () => {
      const tasks = { block: verifyBlock, follow, leads } as unknown as Record<string, (keys: Keys, claim: unknown) => Promise<unknown>>;
      if ("trust" in request) this.#keys = new Keys(request.trust, noble);
      const outcome = "trust" in request ? undefined : await tasks[request.task]!(this.#keys!, request.claim);
      this.#listener({ data: { number: request.number, outcome } });
    });
  }
}

/** A server with these handovers, one in each answer. */
function server(base: string, handovers = found.handovers, epoch: number = 5) {
  const get = vi.fn((path: string) => {
    const after = Number(/^\/v1\/handovers\?after=(\d+)$/.exec(path)![1]);
    return Promise.resolve({ epoch, handovers: handovers.filter((each) => each.epoch > after).slice(0, 1) });
  });
  return { base, get: get as unknown as <T>(path: string) => Promise<T>, asked: get };
}

async function verifierOf(trust: unknown) {
  const verifier = new Verifier(new FakeWorker() as unknown as Worker);
  await verifier.trust(parseTrust(trust));
  return verifier;
}

test("changes are asked for when a certificate may need them, answer by answer", async () => {
  const verifier = await verifierOf(found.trust);
  const honest = server("http://honest/");
  verifier.changed = vi.fn();
  expect((await verifier.check("block", claim(found.blocks[0]!), honest)).report.ok).toBe(true);
  expect(honest.asked).not.toHaveBeenCalled();
  expect(verifier.protocol).toBe("simplex");
  expect(verifier.validators(0n)?.members).toHaveLength(4);
  expect(verifier.validators(1n)).toBeUndefined();
  const newest = found.blocks.at(-1)!;
  const both = await Promise.all([verifier.check("block", claim(newest), honest), verifier.check("block", claim(newest), honest)]);
  expect(both.map(({ report }) => report.ok)).toEqual([true, true]);
  expect(honest.asked.mock.calls.map(([path]) => path)).toEqual([0, 2, 3, 4, 5].map((epoch) => `/v1/handovers?after=${epoch}`));
  expect(verifier.changed).toHaveBeenCalled();
  expect([0n, 1n, 2n, 3n, 4n, 5n, 6n].map((epoch) => verifier.validators(epoch)?.members.length)).toEqual([4, 4, 5, 6, 5, 4, undefined]);
  await verifier.check("block", claim(newest), honest);
  expect(honest.asked).toHaveBeenCalledTimes(5);
  const moved = verifier.newest()!;
  expect(moved.changes).toBe(4);
  expect(trustJson(moved.trust)).toBe(trustJson(parseTrust(found.moved)));
});

test("turns are those of each epoch’s own validators", async () => {
  const lengths = async (trust: object) => {
    const verifier = await verifierOf({ ...found.trust, ...trust });
    await verifier.follow(server("http://honest/"), 5n);
    return [0n, 2n, 3n, 4n, 5n, 6n].map((epoch) => verifier.turns(epoch)?.length);
  };
  expect(await lengths({ protocol: "pbft" })).toEqual([3n, 3n, 2n, 3n, 3n, undefined]);
  expect(await lengths({ protocol: "pbft", epoch_blocks: undefined })).toEqual(Array(6).fill(100n));
  expect(await lengths({ protocol: "hotstuff-basic" })).toEqual(Array(6).fill(3n));
  const untold = await verifierOf({ ...found.trust, protocol: "pbft" });
  expect([0n, 1n].map((epoch) => untold.turns(epoch)?.length)).toEqual([3n, undefined]);
});

test("a server that hides changes or forges one hurts only what it says itself", async () => {
  const verifier = await verifierOf(found.trust);
  const refused: unknown[] = [];
  verifier.refused = (base, epoch, report) => refused.push([base, epoch, failedAt(report)]);
  const newest = found.blocks.at(-1)!;
  const hides = server("http://hides/", [], 1_000);
  expect((await verifier.check("block", claim(newest), hides)).report.ok).toBe(false);
  const forged = [{ epoch: 2, handover: all[0]!.slice(0, -2) + "00" }];
  expect((await verifier.check("block", claim(newest), server("http://forges/", forged))).report.ok).toBe(false);
  expect(refused).toEqual([["http://forges/", undefined, "encoding"]]);
  const broken = { base: "http://broken/", get: () => Promise.reject(new Error("no")) };
  expect((await verifier.check("block", claim(newest), broken)).report.ok).toBe(false);
  expect((await verifier.check("block", claim(newest), server("http://honest/"))).report.ok).toBe(true);
});

test("a trust file that was moved forward is no other trust, in both directions", async () => {
  const [first, moved] = [parseTrust(found.trust), parseTrust(found.moved)];
  const verifier = await verifierOf(found.trust);
  const honest = server("http://honest/");
  expect(await verifier.agree(first, moved, honest)).toBe(true);
  expect(await verifier.agree(moved, first, honest)).toBe(true);
  expect(await verifier.agree(first, { ...moved, validators: [...moved.validators].reverse() }, honest)).toBe(false);
  expect(await verifier.agree(first, { ...moved, name: "other" }, honest)).toBe(false);
  expect(await verifier.agree(first, { ...moved, protocol: "pbft" }, honest)).toBe(false);
  expect(await verifier.agree(first, moved, server("http://hides/", []))).toBe(false);
});
