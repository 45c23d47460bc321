// Who leads a view, and which views brought no block.

import { expect, test } from "vitest";
import type { App } from "../src/app.ts";
import { type Protocol, PROTOCOLS, leader, proposedIn, steps, turnAfter, turnOf, turnsBetween } from "../src/verify/protocol.ts";
import { newestViews } from "../src/views/validators.ts";
import { viewAfter } from "../src/views/view.ts";

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => BigInt(from + i));

test("a validator leads one view in a row, three, or a hundred", () => {
  const leaders = (protocol: Protocol, views: bigint[], epoch = 0n) => views.map((view) => leader(protocol, 4, epoch, view));
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
  for (const protocol of PROTOCOLS) expect(leader(protocol, 1, 5n, 7n)).toBe(0);
});

test("turns begin where the leader changes", () => {
  const firsts = [1n, 2n, 3n, 4n, 6n, 7n];
  expect(firsts.map((view) => turnOf("hotstuff-basic", view))).toEqual([1n, 1n, 1n, 4n, 4n, 7n]);
  expect(firsts.map((view) => turnAfter("hotstuff-basic", view))).toEqual([4n, 4n, 4n, 7n, 7n, 10n]);
  expect([1n, 100n, 101n].map((view) => turnOf("pbft", view))).toEqual([1n, 1n, 101n]);
  expect([1n, 2n].map((view) => turnAfter("simplex", view))).toEqual([2n, 3n]);
  expect([1n, 2n, 3n, 4n].map((view) => proposedIn("hotstuff-basic", view))).toEqual([1n, 1n, 1n, 4n]);
  for (const protocol of ["simplex", "hotstuff-chained", "pbft"] as const) expect(proposedIn(protocol, 5n)).toBe(5n);
  const ahead = [[1n, 2n], [1n, 3n], [1n, 4n], [3n, 4n], [1n, 5n], [2n, 9n], [5n, 4n]] as const;
  expect(ahead.map(([from, to]) => steps("hotstuff-basic", from, to))).toEqual([1n, 2n, 1n, 1n, 2n, 4n, 0n]);
});

test("between two blocks lies a view without one for each turn", () => {
  expect(turnsBetween("simplex", 3n, 4n, 9)).toEqual([]);
  expect(turnsBetween("simplex", 3n, 7n, 9)).toEqual([4n, 5n, 6n]);
  expect(turnsBetween("hotstuff-basic", 1n, 4n, 9)).toEqual([]);
  expect(turnsBetween("hotstuff-basic", 1n, 10n, 9)).toEqual([4n, 7n]);
  expect(turnsBetween("pbft", 5n, 6n, 9)).toEqual([]);
  expect(turnsBetween("pbft", 100n, 101n, 9)).toEqual([]);
  expect(turnsBetween("pbft", 5n, 101n, 9)).toEqual([6n]);
  expect(turnsBetween("pbft", 5n, 301n, 9)).toEqual([6n, 101n, 201n]);
  expect(turnsBetween("pbft", 100n, 201n, 9)).toEqual([101n]);
  // What a server says of views does not hang the page.
  expect(turnsBetween("simplex", 1n, 2n ** 64n, 2)).toEqual([2n ** 64n - 2n, 2n ** 64n - 1n]);
  expect(turnsBetween("simplex", 7n, 3n, 9)).toEqual([]);
});

/** What the grid shows of blocks in these views of epoch 0, where these others were nullified. */
async function cellsOf(protocol: Protocol, blocks: number[], nullified: number[] = []) {
  const asked: number[] = [];
  const data = blocks.map((view, i) => ({ epoch: "0", view: String(view), leader: 9, height: String(i + 1) })).reverse();
  const get = (path: string) => {
    const view = /^\/v1\/views\/(\d+)\?epoch=0$/.exec(path)?.[1];
    if (view === undefined) return Promise.resolve({ data, next: null });
    asked.push(Number(view));
    const isNullified = nullified.includes(Number(view));
    return Promise.resolve({ state: isNullified ? "nullified" : "skipped", reason: isNullified ? "unknown" : null });
  };
  const chain = { protocol, leaderOf: (epoch: bigint, view: bigint) => leader(protocol, 4, epoch, view) };
  const cells = await newestViews({ api: { get }, chain } as unknown as App, new AbortController().signal);
  return { cells: cells.map(({ view, leader, state }) => [Number(view), leader, state]), asked };
}

test("the grid has one cell without a block for each turn that brought none", async () => {
  const [done, nil, skip] = ["finalized", "nullified", "skipped"];
  expect((await cellsOf("simplex", [1, 4], [2])).cells).toEqual([[1, 9, done], [2, 2, nil], [3, 3, skip], [4, 9, done]]);
  // The second and third views of a block are not without one.
  expect((await cellsOf("hotstuff-basic", [1, 4, 7])).cells).toEqual([[1, 9, done], [4, 9, done], [7, 9, done]]);
  // It may be any view of a turn that was nullified, and that one the cell leads to.
  const basic = await cellsOf("hotstuff-basic", [1, 13], [4, 8]);
  expect(basic.cells).toEqual([[1, 9, done], [4, 2, nil], [8, 3, nil], [10, 0, skip], [13, 9, done]]);
  expect(basic.asked.sort((a, b) => a - b)).toEqual([4, 7, 8, 10, 11, 12]);
  const pbft = await cellsOf("pbft", [1, 2, 201, 202], [3]);
  expect(pbft.cells).toEqual([[1, 9, done], [2, 9, done], [3, 1, nil], [101, 2, skip], [201, 9, done], [202, 9, done]]);
  expect(pbft.asked).toEqual([3, 101]);
});

test("after a turn that has ended comes the next one", () => {
  expect(viewAfter("simplex", 6n, "nullified")).toBe(7n);
  expect(viewAfter("hotstuff-basic", 5n, "finalized")).toBe(6n);
  expect(viewAfter("hotstuff-basic", 5n, "nullified")).toBe(7n);
  // A later view of its turn may be the one that was nullified.
  expect(viewAfter("hotstuff-basic", 4n, "skipped")).toBe(5n);
  expect(viewAfter("pbft", 5n, "finalized")).toBe(6n);
  expect(viewAfter("pbft", 6n, "nullified")).toBe(101n);
  expect(viewAfter("pbft", 7n, "skipped")).toBe(101n);
  expect(viewAfter(undefined, 6n, "nullified")).toBe(7n);
});
