import { expect, test } from "vitest";
import { normalServer } from "../src/data/servers.ts";
import { age, bytes, count, duration, shortHash } from "../src/ui/format.ts";
import { direct, hrefOf } from "../src/views/search.ts";

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
  const hit = (kind: "block" | "view" | "validator", href: string) => hrefOf({ kind, href, label: "" });
  expect(hit("block", "/v1/blocks/0xab")).toBe("#/block/0xab");
  expect(hit("view", "/v1/views/7?epoch=2")).toBe("#/view/2.7");
  expect(hit("validator", "/v1/validators/3")).toBe("#/validator/3");
  // Whatever a server says, it stays a place within this page.
  expect(hit("block", "javascript:alert(1)")).toMatch(/^#\/block\//);
});

test("addresses of servers are made whole, and others are refused", () => {
  expect(normalServer("localhost:26680")).toBe("http://localhost:26680/");
  expect(normalServer(" https://explorer.example/chain?x#y ")).toBe("https://explorer.example/chain/");
  for (const bad of ["", "javascript:alert(1)", "ftp://a", "http://"]) expect(() => normalServer(bad)).toThrow();
});
