// What a lying or broken server can do to the live view: nothing that lasts.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Chain, type Known } from "../src/data/chain.ts";
import type { Api } from "../src/data/api.ts";
import type { Verifier } from "../src/verify/client.ts";
import { sha256 } from "../src/verify/codec.ts";
import { type Protocol, turnsOf } from "../src/verify/protocol.ts";
import { hex } from "../src/verify/bytes.ts";
import { isReadable } from "../src/views/transaction.ts";

type Listener = (event: { data: string }) => void;

class FakeSource {
  static newest: FakeSource;
  readonly listeners = new Map<string, Listener>();
  constructor() {
    FakeSource.newest = this;
  }
  addEventListener(type: string, listener: Listener): void {
    this.listeners.set(type, listener);
  }
  close(): void {}
  send(message: { type: string } & Record<string, unknown>): void {
    this.listeners.get(message.type)?.({ data: JSON.stringify(message) });
  }
}

beforeEach(() => {
  vi.stubGlobal("EventSource", FakeSource);
});
afterEach(() => {
  vi.unstubAllGlobals();
});

const NOW = 1_900_000_000_000;

/** A header that follows a parent; all of it made up but the chain of hashes. */
function header(height: bigint, parent: string, timestamp = BigInt(NOW) + 100n * height, inView = height): { text: string; id: string } {
  const bytes = new Uint8Array(177);
  const view = new DataView(bytes.buffer);
  bytes[0] = 1;
  view.setBigUint64(41, inView);
  view.setBigUint64(49, height);
  bytes.set(Buffer.from(parent.slice(2), "hex"), 57);
  view.setBigUint64(97, timestamp);
  return { text: hex(bytes), id: hex(sha256(bytes)) };
}

function setup(known: Known = {}, holds: (from: bigint) => boolean = () => true) {
  const asked: string[] = [];
  const api = {
    base: "http://server/",
    url: (path: string) => path,
    get: (path: string) => {
      asked.push(path);
      if (path === "/v1/status") return Promise.resolve({ tip: { height: "3" }, oldest: "1", chain: { name: "" } });
      return Promise.resolve({ data: [], next: null });
    },
  } as unknown as Api;
  const verifier = { turns: () => undefined, validators: () => undefined, check: (_: string, claim: { from: bigint }) => Promise.resolve({ report: { ok: holds(claim.from), checks: [], ms: 0 } }) } as unknown as Verifier;
  const chain = new Chain(api, verifier, () => undefined, known);
  return { chain, asked };
}

let parent = `0x${"00".repeat(32)}`;
const chainOf = (count: number) => {
  parent = `0x${"00".repeat(32)}`;
  return Array.from({ length: count }, (_, i) => {
    const made = header(BigInt(i + 1), parent);
    parent = made.id;
    return made;
  });
};
const event = (height: bigint | number, text: string) => ({
  type: "finalized",
  height: String(height),
  block: { height: String(height), leader: 0, transactions: 9, bytes: "200" },
  header: text,
  finality: { headers: [], certificate: "0x00", finalized_by: { height: String(height), id: "" } },
});

test("numbers that no chain reaches do not hang the page, and what is real is followed after them", async () => {
  const { chain } = setup();
  await chain.open();
  const headers = chainOf(8);
  for (let i = 0; i < 4; i++) FakeSource.newest.send(event(i + 1, headers[i]!.text));
  const huge = String(2n ** 63n);
  FakeSource.newest.send({ type: "gap", from: "5", to: huge });
  FakeSource.newest.send({ type: "pruned", oldest: huge });
  FakeSource.newest.send(event(2n ** 63n, headers[4]!.text));
  const started = performance.now();
  expect(chain.newest(24).filter((row) => row.mark !== "refused").map((row) => Number(row.height))).toEqual([4, 3, 2, 1]);
  expect(performance.now() - started).toBeLessThan(1_000);
  expect(chain.tip).toBe(4n);
  for (let i = 4; i < 8; i++) FakeSource.newest.send(event(i + 1, headers[i]!.text));
  expect(chain.tip).toBe(8n);
  chain.close();
});

test("a block whose certificate does not hold moves the tip back", async () => {
  const known: Known = {};
  const far = header(1_000_000n, `0x${"11".repeat(32)}`);
  const { chain } = setup(known, (from) => from < 1_000n);
  await chain.open();
  chain.ready();
  const headers = chainOf(4);
  for (let i = 0; i < 4; i++) FakeSource.newest.send(event(i + 1, headers[i]!.text));
  await vi.waitFor(() => expect(chain.verified?.height).toBe(4n));
  expect(known.newest?.height).toBe(4n);
  FakeSource.newest.send(event(1_000_000n, far.text));
  await vi.waitFor(() => expect(chain.rows.get(1_000_000n)?.mark).toBe("refused"));
  expect(chain.tip).toBe(4n);
  expect(chain.verified?.height).toBe(4n);
  chain.close();
});

test("what was verified stays known when another server shows less", async () => {
  const known: Known = {};
  const first = setup(known);
  await first.chain.open();
  first.chain.ready();
  const headers = chainOf(6);
  for (let i = 0; i < 6; i++) FakeSource.newest.send(event(i + 1, headers[i]!.text));
  await vi.waitFor(() => expect(known.newest?.height).toBe(6n));
  first.chain.close();
  const second = setup(known);
  await second.chain.open();
  second.chain.ready();
  for (let i = 0; i < 2; i++) FakeSource.newest.send(event(i + 1, headers[i]!.text));
  await vi.waitFor(() => expect(second.chain.verified?.height).toBe(2n));
  expect(known.newest?.height).toBe(6n);
  second.chain.close();
});

test("a chain stands after ten times what lies between its empty blocks", async () => {
  const { chain } = setup();
  await chain.open();
  const pause = 2_000n;
  let last = `0x${"00".repeat(32)}`;
  for (let height = 1n; height <= 12n; height++) {
    const made = header(height, last, BigInt(NOW) + pause * height);
    last = made.id;
    FakeSource.newest.send(event(height, made.text));
  }
  expect(chain.patience()).toEqual({ late: 20_000, stands: 60_000 });
  const arrived = chain.arrivedAt!;
  expect(chain.silence(arrived + 15_000).state).toBe("fresh");
  expect(chain.silence(arrived + 38_000)).toEqual({ ms: 38_000, state: "late" });
  expect(chain.silence(arrived + 100_000).state).toBe("stands");
  chain.close();
});

test("a chain that rests for as long as its validators say is not late", async () => {
  const { chain } = setup();
  await chain.open();
  const headers = chainOf(12);
  // Busy until now: blocks that are 100 ms apart tell nothing of how long the pauses are.
  for (let i = 0; i < 12; i++) FakeSource.newest.send(event(i + 1, headers[i]!.text));
  const arrived = chain.arrivedAt!;
  expect(chain.silence(arrived + 25_000).state).not.toBe("fresh");
  const told = (patience_ms: string) => Object.assign(chain, { status: { ...chain.status, patience_ms } });
  told("100000");
  expect(chain.silence(arrived + 25_000).state).toBe("fresh");
  expect(chain.silence(arrived + 31_000).state).toBe("late");
  expect(chain.silence(arrived + 101_000).state).toBe("stands");
  // A word that would hide for ever that the chain stands is none.
  told("18446744073709551615");
  expect(chain.silence(arrived + 100_000).state).toBe("stands");
  chain.close();
});

/** A chain of four validators, whose keys are pinned. */
function pinned(protocol: Protocol, epochBlocks?: bigint) {
  const asked: { view: bigint; certificate: string }[] = [];
  const api = { base: "http://server/", url: (path: string) => path, get: () => Promise.resolve({ tip: null, oldest: "1" }) } as unknown as Api;
  const trusted: { protocol?: Protocol } = { protocol };
  const verifier = {
    get protocol() {
      return trusted.protocol;
    },
    turns: () => trusted.protocol && turnsOf(trusted.protocol, epochBlocks, 4),
    validators: () => (trusted.protocol ? { members: [0, 1, 2, 3] } : undefined),
    check: (task: string, claim: { view: bigint; certificate: string }) => {
      if (task === "view") asked.push(claim);
      return Promise.resolve({ report: { ok: true, checks: [], ms: 0 } });
    },
  } as unknown as Verifier;
  return { chain: new Chain(api, verifier, () => undefined), asked, trusted };
}

const notarized = (view: number, id = "0x00") => ({ type: "notarized", epoch: "0", view: String(view), id, certificate: "0x00" });
const nullified = (view: number) => ({ type: "nullified", epoch: "0", view: String(view), leader: 0, certificate: `0x${view}`, reason: "unknown" });

test("who leads is told by the protocol", async () => {
  const leaders = (protocol: Protocol, views: bigint[], epochBlocks?: bigint) => {
    const { chain } = pinned(protocol, epochBlocks);
    expect([chain.protocol, chain.turns(0n), chain.leaderOf(0n, 1n)]).toEqual([undefined, undefined, undefined]);
    chain.ready();
    return views.map((view) => chain.leaderOf(2n, view));
  };
  expect(leaders("simplex", [1n, 2n, 3n, 4n])).toEqual([3, 0, 1, 2]);
  expect(leaders("hotstuff-basic", [1n, 3n, 4n, 7n])).toEqual([3, 3, 0, 1]);
  expect(leaders("pbft", [1n, 100n, 101n, 300n])).toEqual([3, 3, 0, 1]);
  expect(leaders("pbft", [1n, 2n, 3n, 5n], 40n)).toEqual([3, 3, 0, 1]);
});

test("the views of one block are one row", async () => {
  const { chain, asked } = pinned("hotstuff-basic");
  await chain.open();
  chain.ready();
  const send = (message: { type: string }) => FakeSource.newest.send(message);
  const first = header(1n, `0x${"00".repeat(32)}`);
  const second = header(2n, first.id, undefined, 7n);
  send(notarized(1, first.id));
  send(notarized(2, first.id));
  send(event(1, first.text));
  send(notarized(4));
  send(nullified(5));
  send(notarized(7, second.id));
  send(event(2, second.text));
  const rows = () => [...chain.views.values()].map(({ epoch, view, leader, height, nullifiedView }) => [`${epoch}.${view}`, leader, height, nullifiedView]);
  expect(rows()).toEqual([["0.1", 1, 1n, undefined], ["0.4", 2, undefined, 5n], ["0.7", 3, 2n, undefined]]);
  await vi.waitFor(() => expect(chain.views.get("0.4")?.mark).toBe("verified"));
  expect(asked).toMatchObject([{ view: 5n, certificate: "0x5" }]);
  chain.close();
});

test("with pbft each view is a row", async () => {
  const { chain } = pinned("pbft");
  await chain.open();
  chain.ready();
  for (const view of [1, 2, 3]) FakeSource.newest.send(notarized(view));
  FakeSource.newest.send(nullified(4));
  FakeSource.newest.send(notarized(101));
  expect([...chain.views.values()].map(({ view, leader }) => [Number(view), leader])).toEqual([[1, 1], [2, 1], [3, 1], [4, 1], [101, 2]]);
  chain.close();
});

test("rows of one block that came before the protocol was known become one", async () => {
  const { chain, trusted } = pinned("hotstuff-basic");
  delete trusted.protocol;
  await chain.open();
  chain.ready();
  for (const view of [1, 2, 5]) FakeSource.newest.send(notarized(view));
  FakeSource.newest.send(nullified(6));
  expect(chain.views.size).toBe(4);
  const { notarized: at } = chain.views.get("0.1")!;
  trusted.protocol = "hotstuff-basic";
  chain.recount();
  expect([...chain.views.values()].map(({ view, leader, nullifiedView }) => [view, leader, nullifiedView])).toEqual([[1n, 1, undefined], [4n, 2, 6n]]);
  expect(chain.views.get("0.1")!.notarized).toBe(at);
  expect(chain.views.get("0.4")).toMatchObject({ certificate: "0x6" });
  chain.close();
});

test("finality is counted from a block’s first notarization", async () => {
  const { chain } = pinned("hotstuff-basic");
  await chain.open();
  const now = vi.spyOn(performance, "now");
  const made = header(1n, `0x${"00".repeat(32)}`);
  for (const [at, message] of [[100, notarized(1, made.id)], [130, notarized(2, made.id)], [170, event(1, made.text)]] as const) {
    now.mockReturnValue(at);
    FakeSource.newest.send(message);
  }
  expect(chain.rows.get(1n)?.finalityMs).toBe(70);
  now.mockRestore();
  chain.close();
});

test("a memo with joiners is text, one that turns the text around it is not", () => {
  for (const text of ["👩‍👩‍👧", "نمی‌خواهم", "two\nlines\tand a tab"]) expect(isReadable(text)).toBe(true);
  for (const text of ["a\u202eb", "a\u200fb", "\u0007", "\u2066x"]) expect(isReadable(text)).toBe(false);
});
