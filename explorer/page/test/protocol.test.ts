// Who leads a view, and which views brought no block.

import { expect, test } from "vitest";
import type { App } from "../src/app.ts";
import { type Protocol, PROTOCOLS, type Turns, leader, proposedIn, steps, turnAfter, turnOf, turnsBetween, turnsOf } from "../src/verify/protocol.ts";
import { newestViews } from "../src/views/validators.ts";
import { viewAfter } from "../src/views/view.ts";

/** The turns of an epoch; with epochs of so many blocks, if its four validators can change. */
const turns = (protocol: Protocol, epochBlocks?: bigint, validators = 4): Turns => turnsOf(protocol, epochBlocks, validators)!;
const [SIMPLEX, BASIC, PBFT] = [turns("simplex"), turns("hotstuff-basic"), turns("pbft")];
/** Of two views. */
const SHORT = turns("pbft", 40n);

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => BigInt(from + i));

test("a validator leads one view in a row, three, or a hundred", () => {
  const leaders = (protocol: Protocol, views: bigint[], epoch = 0n) => views.map((view) => leader(turns(protocol), 4, epoch, view));
  for (const protocol of ["simplex", "hotstuff-chained"] as const) {
    expect(leaders(protocol, range(1, 6))).toEqual([1, 2, 3, 0, 1, 2]);
    expect(leaders(protocol, range(1, 4), 2n)).toEqual([3, 0, 1, 2]);
  }
  expect(leaders("hotstuff-basic", range(1, 12))).toEqual([1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0, 0]);
  expect(leaders("hotstuff-basic", range(1, 4), 3n)).toEqual([0, 0, 0, 1]);
  expect(leaders("pbft", [1n, 2n, 100n, 101n, 200n, 301n, 401n])).toEqual([1, 1, 1, 2, 2, 0, 1]);
  expect(leaders("pbft", [1n, 100n, 101n], 7n)).toEqual([0, 0, 1]);
  // Numbers are not rounded.
  expect(leaders("simplex", [2n ** 64n - 1n, 2n ** 64n - 2n])).toEqual([3, 2]);
  for (const protocol of PROTOCOLS) expect(leader(turns(protocol), 1, 5n, 7n)).toBe(0);
});

test("where validators can change, each has two turns of pbft before the middle of an epoch", () => {
  const lengths = (protocol: Protocol, ...cases: [bigint | undefined, number][]) => cases.map(([epochBlocks, validators]) => Number(turns(protocol, epochBlocks, validators).length));
  expect(lengths("pbft", [40n, 4], [40n, 7], [39n, 4], [60n, 4], [10_000n, 4], [10_000n, 25], [10_000n, 26])).toEqual([2, 1, 2, 3, 100, 100, 96]);
  // At least one view, at most a hundred.
  expect(lengths("pbft", [40n, 11], [1n, 1], [2n ** 53n, 1], [undefined, 1_024])).toEqual([1, 1, 100, 100]);
  for (const protocol of ["simplex", "hotstuff-chained"] as const) expect(lengths(protocol, [40n, 4], [10_000n, 4])).toEqual([1, 1]);
  expect(lengths("hotstuff-basic", [40n, 4], [40n, 7], [10_000n, 4])).toEqual([3, 3, 3]);
  // Only such a length takes the number of validators.
  for (const unknown of [undefined, 0]) {
    expect(turnsOf("pbft", 40n, unknown)).toBeUndefined();
    expect(turnsOf("pbft", undefined, unknown)).toEqual(PBFT);
    expect(turnsOf("hotstuff-basic", 40n, unknown)).toEqual(BASIC);
  }
});

test("in turns of two views the leader changes every two views", () => {
  expect(range(1, 9).map((view) => leader(SHORT, 4, 0n, view))).toEqual([1, 1, 2, 2, 3, 3, 0, 0, 1]);
  expect(range(1, 5).map((view) => leader(SHORT, 4, 7n, view))).toEqual([0, 0, 1, 1, 2]);
  expect(range(1, 4).map((view) => turnOf(SHORT, view))).toEqual([1n, 1n, 3n, 3n]);
  expect(range(1, 4).map((view) => turnAfter(SHORT, view))).toEqual([3n, 3n, 5n, 5n]);
  expect(range(1, 3).map((view) => proposedIn(SHORT, view))).toEqual([1n, 2n, 3n]);
  expect([2n, 3n, 4n, 5n, 9n].map((to) => steps(SHORT, 1n, to))).toEqual([1n, 1n, 2n, 2n, 4n]);
});

test("turns begin where the leader changes", () => {
  const firsts = [1n, 2n, 3n, 4n, 6n, 7n];
  expect(firsts.map((view) => turnOf(BASIC, view))).toEqual([1n, 1n, 1n, 4n, 4n, 7n]);
  expect(firsts.map((view) => turnAfter(BASIC, view))).toEqual([4n, 4n, 4n, 7n, 7n, 10n]);
  expect([1n, 100n, 101n].map((view) => turnOf(PBFT, view))).toEqual([1n, 1n, 101n]);
  expect([1n, 2n].map((view) => turnAfter(SIMPLEX, view))).toEqual([2n, 3n]);
  expect([1n, 2n, 3n, 4n].map((view) => proposedIn(BASIC, view))).toEqual([1n, 1n, 1n, 4n]);
  for (const protocol of ["simplex", "hotstuff-chained", "pbft"] as const) expect(proposedIn(turns(protocol), 5n)).toBe(5n);
  const ahead = [[1n, 2n], [1n, 3n], [1n, 4n], [3n, 4n], [1n, 5n], [2n, 9n], [5n, 4n]] as const;
  expect(ahead.map(([from, to]) => steps(BASIC, from, to))).toEqual([1n, 2n, 1n, 1n, 2n, 4n, 0n]);
});

test("between two blocks lies a view without one for each turn", () => {
  expect(turnsBetween(SIMPLEX, 3n, 4n, 9)).toEqual([]);
  expect(turnsBetween(SIMPLEX, 3n, 7n, 9)).toEqual([4n, 5n, 6n]);
  expect(turnsBetween(BASIC, 1n, 4n, 9)).toEqual([]);
  expect(turnsBetween(BASIC, 1n, 10n, 9)).toEqual([4n, 7n]);
  expect(turnsBetween(PBFT, 5n, 6n, 9)).toEqual([]);
  expect(turnsBetween(PBFT, 100n, 101n, 9)).toEqual([]);
  expect(turnsBetween(PBFT, 5n, 101n, 9)).toEqual([6n]);
  expect(turnsBetween(PBFT, 5n, 301n, 9)).toEqual([6n, 101n, 201n]);
  expect(turnsBetween(PBFT, 100n, 201n, 9)).toEqual([101n]);
  expect(turnsBetween(SHORT, 1n, 3n, 9)).toEqual([2n]);
  expect(turnsBetween(SHORT, 2n, 3n, 9)).toEqual([]);
  expect(turnsBetween(SHORT, 1n, 8n, 9)).toEqual([2n, 3n, 5n, 7n]);
  expect(turnsBetween(SHORT, 2n, 9n, 2)).toEqual([5n, 7n]);
  // What a server says of views does not hang the page.
  expect(turnsBetween(SIMPLEX, 1n, 2n ** 64n, 2)).toEqual([2n ** 64n - 2n, 2n ** 64n - 1n]);
  expect(turnsBetween(SIMPLEX, 7n, 3n, 9)).toEqual([]);
});

/** What the grid shows of blocks in these views of epoch 0, where these others were nullified. */
async function cellsOf(turns: Turns, blocks: number[], nullified: number[] = []) {
  const asked: number[] = [];
  const data = blocks.map((view, i) => ({ epoch: "0", view: String(view), leader: 9, height: String(i + 1) })).reverse();
  const get = (path: string) => {
    const view = /^\/v1\/views\/(\d+)\?epoch=0$/.exec(path)?.[1];
    if (view === undefined) return Promise.resolve({ data, next: null });
    asked.push(Number(view));
    const isNullified = nullified.includes(Number(view));
    return Promise.resolve({ state: isNullified ? "nullified" : "skipped", reason: isNullified ? "unknown" : null });
  };
  let followed: bigint | undefined;
  const follow = async (_: unknown, epoch: bigint) => void (followed = epoch);
  const chain = { turns: (epoch: bigint) => (epoch === followed ? turns : undefined), leaderOf: (epoch: bigint, view: bigint) => leader(turns, 4, epoch, view) };
  const cells = await newestViews({ api: { get }, chain, verifier: { follow } } as unknown as App, new AbortController().signal);
  return { cells: cells.map(({ view, leader, state }) => [Number(view), leader, state]), asked };
}

test("the grid has one cell without a block for each turn that brought none", async () => {
  const [done, nil, skip] = ["finalized", "nullified", "skipped"];
  expect((await cellsOf(SIMPLEX, [1, 4], [2])).cells).toEqual([[1, 9, done], [2, 2, nil], [3, 3, skip], [4, 9, done]]);
  // The second and third views of a block are not without one.
  expect((await cellsOf(BASIC, [1, 4, 7])).cells).toEqual([[1, 9, done], [4, 9, done], [7, 9, done]]);
  // It may be any view of a turn that was nullified, and that one the cell leads to.
  const basic = await cellsOf(BASIC, [1, 13], [4, 8]);
  expect(basic.cells).toEqual([[1, 9, done], [4, 2, nil], [8, 3, nil], [10, 0, skip], [13, 9, done]]);
  expect(basic.asked.sort((a, b) => a - b)).toEqual([4, 7, 8, 10, 11, 12]);
  const pbft = await cellsOf(PBFT, [1, 2, 201, 202], [3]);
  expect(pbft.cells).toEqual([[1, 9, done], [2, 9, done], [3, 1, nil], [101, 2, skip], [201, 9, done], [202, 9, done]]);
  expect(pbft.asked).toEqual([3, 101]);
  const short = await cellsOf(SHORT, [1, 6], [2]);
  expect(short.cells).toEqual([[1, 9, done], [2, 1, nil], [3, 2, skip], [5, 3, skip], [6, 9, done]]);
});

test("after a turn that has ended comes the next one", () => {
  expect(viewAfter(SIMPLEX, 6n, "nullified")).toBe(7n);
  expect(viewAfter(BASIC, 5n, "finalized")).toBe(6n);
  expect(viewAfter(BASIC, 5n, "nullified")).toBe(7n);
  // A later view of its turn may be the one that was nullified.
  expect(viewAfter(BASIC, 4n, "skipped")).toBe(5n);
  expect(viewAfter(PBFT, 5n, "finalized")).toBe(6n);
  expect(viewAfter(PBFT, 6n, "nullified")).toBe(101n);
  expect(viewAfter(PBFT, 7n, "skipped")).toBe(101n);
  expect([5n, 6n].map((view) => viewAfter(SHORT, view, "nullified"))).toEqual([7n, 7n]);
  expect(viewAfter(undefined, 6n, "nullified")).toBe(7n);
});
