import { expect, test } from "vitest";
import { normalServer } from "../src/data/servers.ts";
import { age, bytes, count, duration, shortHash } from "../src/ui/format.ts";
import type { Registry, Validator } from "../src/data/types.ts";
import { filled } from "../src/views/history.ts";
import { label, prospects } from "../src/views/registry.ts";
import { direct, hrefOf } from "../src/views/search.ts";
import { silenceOf } from "../src/views/validators.ts";
import { type Protocol, turnsOf } from "../src/verify/protocol.ts";

test("numbers are grouped, also beyond 53 bits", () => {
  expect(count(18_446_744_073_709_551_615n).replace(/\D/g, " ")).toBe("18 446 744 073 709 551 615");
  expect(count(999)).toBe("999");
});

test("times have three digits that count, and ages are never negative", () => {
  expect([4.183, 41.83, 418.3, 4_183, 41_830].map(duration)).toEqual(["4.18 ms", "41.8 ms", "418 ms", "4.18 s", "41 s"]);
  expect(duration(undefined)).toBe("–");
  expect([-500, 400, 59_900, 3_600_000, 90_000_000].map(age)).toEqual(["0.0 s", "0.4 s", "59 s", "1 h", "1 d"]);
  expect([999, 1_500, 2_500_000].map(bytes)).toEqual(["999 B", "1.5 kB", "2.50 MB"]);
  expect(shortHash("0x" + "ab".repeat(32))).toBe("abababab…ababab");
});

test("heights and views are found without asking", () => {
  expect(direct("1 200")).toBe("#/block/1200");
  expect(direct("#42")).toBe("#/block/42");
  expect(direct("2.41")).toBe("#/view/2.41");
  expect(direct("latest")).toBe("#/block/latest");
  expect(direct("ab".repeat(32))).toBeUndefined();
  expect(direct("1".repeat(64))).toBeUndefined();
});

test("hits of a search lead to this page’s own views", () => {
  const [id, other] = ["ab".repeat(32), "cd".repeat(32)];
  const hit = (kind: "block" | "view" | "validator" | "transaction" | "account", searched: string, href = `/v1/x/${other}`) =>
    hrefOf({ kind, href, label: "" }, searched, [{ identity: `0x${other}` }, { identity: `0x${id}` }]);
  // Whatever a server says of the place, it is that of what was searched for.
  expect(hit("block", id)).toBe(`#/block/0x${id}`);
  expect(hit("transaction", `0x${id.toUpperCase()}`)).toBe(`#/tx/0x${id}`);
  expect(hit("account", id, "javascript:alert(1)")).toBe(`#/account/0x${id}`);
  expect(hit("validator", id)).toBe("#/validator/1");
  expect(hit("validator", "ef".repeat(32))).toBeUndefined();
  expect(hit("view", id)).toBeUndefined();
  expect(hit("block", "7")).toBe("#/block/7");
  expect(hit("validator", "2")).toBeUndefined();
  expect(hit("transaction", "seven")).toBeUndefined();
});

test("addresses of servers are made whole, and others are refused", () => {
  expect(normalServer("localhost:26680")).toBe("http://localhost:26680/");
  expect(normalServer(" https://explorer.example/chain?x#y ")).toBe("https://explorer.example/chain/");
  for (const bad of ["", "javascript:alert(1)", "ftp://a", "http://"]) expect(() => normalServer(bad)).toThrow();
});

test("history has a point for every period, and never too many", () => {
  const point = (time_ms: string) => ({ time_ms, blocks: "2", transactions: "3", bytes: "4" });
  const points = filled({ step: "hour", step_ms: "3600000", data: [point("3600000"), point("10800000")] });
  expect(points.map(({ time, blocks }) => [time, blocks])).toEqual([[3_600, 2], [7_200, 0], [10_800, 2]]);
  expect(filled({ step: "hour", step_ms: "1", data: [point("0"), point("18446744073709551615")] }).length).toBe(1_000);
  expect(filled({ step: "hour", step_ms: "0", data: [point("0")] })).toEqual([]);
});

test("a validator whose votes were not heard lately is not called good", () => {
  const validator = (last_vote: [string, string] | null, source = "observed", newest: [string, string] | null = null) => ({ participation: { source, last_vote, newest_vote: newest, percent: null, signed: null, of: null } }) as unknown as Validator;
  const tip = { epoch: 2n, view: 1_000n };
  expect(silenceOf(validator(["2", "995"]), tip, 4)).toBeUndefined();
  expect(silenceOf(validator(["2", "900"]), tip, 4)).toBe("no vote since view 2.900");
  expect(silenceOf(validator(["1", "9000"]), tip, 4)).toBe("no vote since view 1.9000");
  expect(silenceOf(validator(["1", "9000"]), { epoch: 2n, view: 3n }, 4)).toBeUndefined();
  expect(silenceOf(validator(null), tip, 4)).toBe("no vote seen");
  expect(silenceOf(validator(null, "certificate"), tip, 4)).toBeUndefined();
  expect(silenceOf(validator(["2", "1"]), undefined, 4)).toBeUndefined();
  // What was asked a while ago is compared with what was known then, and with nothing above the tip.
  expect(silenceOf(validator(["2", "900"], "observed", ["2", "905"]), tip, 4)).toBeUndefined();
  expect(silenceOf(validator(["2", "900"], "observed", ["2", "990"]), tip, 4)).toBe("no vote since view 2.900");
  expect(silenceOf(validator(["2", "995"], "observed", ["9", "9"]), tip, 4)).toBeUndefined();
});

test("a view that was jumped over is none in which a validator was silent", () => {
  const validator = { participation: { source: "observed", last_vote: ["2", "6"], newest_vote: null } } as unknown as Validator;
  const silent = (view: bigint, protocol: Protocol, epoch = 2n, epochBlocks?: bigint) => silenceOf(validator, { epoch, view }, 4, turnsOf(protocol, epochBlocks, 4)) !== undefined;
  expect([101n, 112n, 113n, 1_201n, 1_301n].map((view) => silent(view, "pbft"))).toEqual([false, false, true, false, true]);
  // Turns of two views: 5 and 6, 7 and 8, …
  expect([29n, 30n].map((view) => silent(view, "pbft", 2n, 40n))).toEqual([false, true]);
  expect([40n, 43n].map((view) => silent(view, "hotstuff-basic"))).toEqual([false, true]);
  expect([18n, 19n].map((view) => silent(view, "hotstuff-chained"))).toEqual([false, true]);
  // In the next epoch: as many steps as after its beginning.
  expect([34n, 37n].map((view) => silent(view, "hotstuff-basic", 3n))).toEqual([false, true]);
});

test("the registry says what becomes of a bond in words", () => {
  const rules = { min_stake: "1000", max_validators: 5, unbond_epochs: "2", slashing: null };
  const set = (...names: string[]) => names.map((identity) => ({ identity, vote_key: "0x", address: "", name: "" }));
  const registry = (coming: string[] | null) => ({ epoch: "7", rules, acting: set("a", "b"), coming: coming && set(...coming) }) as Registry;
  const entry = (identity: string, stake: string, since = "0", jailed = false) => ({ identity, stake, since, jailed, address: "", name: "" });
  const texts = (...given: Parameters<typeof prospects>) => prospects(...given).map(([text]) => text.replace(/\D000/, "000"));
  expect(texts(entry("a", "1000"), registry(null))).toEqual([]);
  expect(texts(entry("a", "1000"), registry(["b"]))).toEqual(["leaves"]);
  expect(texts(entry("c", "1000"), registry(["b", "c"]))).toEqual(["joins"]);
  expect(texts(entry("b", "999"), registry(["b"]))).toEqual(["less than 1000 at stake"]);
  expect(texts(entry("d", "2000", "8"), registry(["b"]))).toEqual(["can be chosen in epoch 8"]);
  expect(texts(entry("d", "2000", "9", true), registry(["b"]))).toEqual(["jailed until epoch 9"]);
  // Who has withdrawn everything keeps a seat for some time.
  expect(texts({ identity: "a", address: "", name: "" }, registry(["a", "b"]))).toEqual(["less than 1000 at stake"]);
});

test("what a server sends as a name is shown if the chain could have it", () => {
  expect(label("<b>seven")).toBe("<b>seven");
  for (const bad of ["a b", "\u202eb", "x".repeat(49), "é"]) expect(label(bad)).toBe("unreadable");
});
