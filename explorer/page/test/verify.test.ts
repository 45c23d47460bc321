import { describe, expect, test } from "vitest";
import { DecodeError, hex, unhex } from "../src/verify/bytes.ts";
import {
  type CheckName,
  type Report,
  pathRoot,
  verifyBlock,
  verifyChain,
  verifyEvidence,
  verifyTransaction,
  verifyView,
} from "../src/verify/checks.ts";
import { REGISTRY, ZERO, decodeAccount, decodeBlock, decodeCertificate, decodeHeader, decodeOperation, decodeTransaction, merkleRoot, operationOf, sha256 } from "../src/verify/codec.ts";
import { Keys } from "../src/verify/keys.ts";
import { Noble } from "../src/verify/noble.ts";
import { accountIn, decodeTreeProof, rootOf, stateKey } from "../src/verify/tree.ts";
import { fingerprint, parseTrust, trustJson } from "../src/verify/trust.ts";
import { type FinalityVector, vectors } from "./vectors.ts";

const noble = new Noble();
const keysOf = (trust: unknown) => new Keys(parseTrust(trust), noble);
const failedAt = (report: Report): CheckName | undefined => report.checks.find((check) => check.state === "failed")?.name;
const vector = (name: string): FinalityVector => {
  const found = vectors.finality.find((candidate) => candidate.name === name);
  if (!found) throw new Error(`no vector ${name}`);
  return found;
};
const flip = (text: string, at: number) => {
  const bytes = unhex(text);
  const place = at < 0 ? bytes.length + at : at;
  bytes[place] = bytes[place]! ^ 1;
  return hex(bytes);
};

function claim({ header, headers, certificate }: FinalityVector) {
  const { height, id } = decodeHeader(unhex(header));
  return { asked: { height }, id, header, finality: { headers, certificate } } as const;
}

/** Where each kind of tampering is noticed, when everything else is as the server would have it. */
const NOTICED: Record<string, CheckName> = {
  "header changed": "certificate",
  "certificate of another block": "certificate",
  "signature changed": "signature",
  "view of the subject changed": "signature",
  notarization: "certificate",
  "a header left out": "links",
  "headers in another order": "links",
  "another chain's certificate": "certificate",
  "identity as signature": "signature",
};

describe("finality", () => {
  test.each(vectors.finality)("$name", async (given) => {
    const { report } = await verifyBlock(keysOf(given.trust), claim(given));
    const kind = given.name.slice(given.name.indexOf(": ") + 2);
    expect(report.ok).toBe(given.valid);
    expect(failedAt(report)).toBe(given.valid ? undefined : NOTICED[kind]);
  });

  for (const scheme of ["bls-threshold", "bls-aggregate"]) {
    const [direct, later] = [vector(`${scheme}: direct`), vector(`${scheme}: through descendants`)];
    const keys = keysOf(direct.trust);

    test(`${scheme}: a valid certificate of another block is refused`, async () => {
      const other = { header: later.headers.at(-1)!, headers: [], certificate: later.certificate };
      const { id, height } = decodeHeader(unhex(other.header));
      const answer = { id, header: other.header, finality: other };
      expect((await verifyBlock(keys, { ...answer, asked: { height } })).report.ok).toBe(true);
      const asked = { height: decodeHeader(unhex(direct.header)).height };
      const byHeight = await verifyBlock(keys, { ...answer, asked });
      expect(failedAt(byHeight.report)).toBe("asked");
      const byId = await verifyBlock(keys, { ...answer, asked: { id: claim(direct).id } });
      expect(failedAt(byId.report)).toBe("asked");
    });

    test(`${scheme}: its certificate under the asked header is refused`, async () => {
      const given = { ...claim(direct), finality: { headers: [], certificate: later.certificate } };
      expect(failedAt((await verifyBlock(keys, given)).report)).toBe("certificate");
    });

    test(`${scheme}: another id than the header's hash is refused`, async () => {
      const given = { ...claim(direct), id: claim(later).id };
      const { report } = await verifyBlock(keys, given);
      if (given.id !== claim(direct).id) expect(failedAt(report)).toBe("hash");
    });

    test(`${scheme}: another pinned chain or key refuses`, async () => {
      const chain = { ...keys.trust, chainId: flip(keys.trust.chainId, 0) };
      expect(failedAt((await verifyBlock(new Keys(chain, noble), claim(direct))).report)).toBe("chain");
      const validators = [...keys.trust.validators].reverse();
      const trust = { ...keys.trust, validators };
      if (scheme === "bls-threshold") trust.groupKey = validators[0]!.voteKey;
      const { report } = await verifyBlock(new Keys(trust, noble), claim(direct));
      expect(failedAt(report)).toBe("signature");
    });

    test(`${scheme}: a certificate of the other scheme is refused`, async () => {
      const other = vector(`${scheme === "bls-threshold" ? "bls-aggregate" : "bls-threshold"}: direct`);
      const trust = { ...keysOf(other.trust).trust, chainId: keys.trust.chainId };
      expect(failedAt((await verifyBlock(new Keys(trust, noble), claim(direct))).report)).toBe("quorum");
    });

    test(`${scheme}: one signature check covers a backlog`, async () => {
      const headers = [later.header, ...later.headers];
      const from = decodeHeader(unhex(later.header)).height;
      const backlog = { headers, certificate: later.certificate, from };
      const { report, ids } = await verifyChain(keys, backlog);
      expect(report.ok).toBe(true);
      expect(ids).toEqual(headers.map((header) => decodeHeader(unhex(header)).id));
      const shifted = await verifyChain(keys, { ...backlog, from: from + 1n });
      expect(failedAt(shifted.report)).toBe("asked");
      const fork = await verifyChain(keys, { ...backlog, below: flip(decodeHeader(unhex(later.header)).parent, 3) });
      expect(failedAt(fork.report)).toBe("asked");
      const tampered = await verifyChain(keys, { ...backlog, headers: headers.map((h, i) => (i === 0 ? flip(h, -1) : h)) });
      expect(failedAt(tampered.report)).toBe("links");
    });

    test(`${scheme}: a certificate is for its own view only`, async () => {
      const { subject } = decodeCertificate(unhex(direct.certificate));
      const view = { epoch: subject.epoch, view: subject.view, kind: "finalize", certificate: direct.certificate } as const;
      expect((await verifyView(keys, view)).report.ok).toBe(true);
      expect(failedAt((await verifyView(keys, { ...view, view: view.view + 1n })).report)).toBe("asked");
      expect(failedAt((await verifyView(keys, { ...view, kind: "nullify" })).report)).toBe("certificate");
    });

    test(`${scheme}: bytes cut short or too long are refused, and nothing else is tried`, async () => {
      for (const certificate of [direct.certificate.slice(0, -2), direct.certificate + "00", "0x", "junk"]) {
        const { report } = await verifyBlock(keys, { ...claim(direct), finality: { headers: [], certificate } });
        expect(failedAt(report)).toBe("encoding");
        expect(report.checks.slice(1).every((check) => check.state === "skipped")).toBe(true);
      }
    });

    test(`${scheme}: every flipped byte of header and certificate is refused`, async () => {
      const places = (text: string) => unhex(text).map((_, i) => i).filter((i) => i % 23 === 0);
      for (const at of places(direct.header)) {
        const given = { ...claim(direct), header: flip(direct.header, at) };
        expect((await verifyBlock(keys, given)).report.ok).toBe(false);
      }
      for (const at of places(direct.certificate)) {
        const given = { ...claim(direct), finality: { headers: [], certificate: flip(direct.certificate, at) } };
        expect((await verifyBlock(keys, given)).report.ok).toBe(false);
      }
    });
  }

  test("fewer signers than a quorum, or of another committee, are refused before the arithmetic", async () => {
    const direct = vector("bls-aggregate: direct");
    const keys = keysOf(direct.trust);
    const bytes = unhex(direct.certificate);
    const bitmap = 1 + 49 + 1 + 2;
    const fewer = Uint8Array.from(bytes);
    fewer[bitmap] = fewer[bitmap]! & (fewer[bitmap]! - 1);
    const few = await verifyBlock(keys, { ...claim(direct), finality: { headers: [], certificate: hex(fewer) } });
    expect(failedAt(few.report)).toBe("quorum");
    const larger = Uint8Array.from(bytes);
    larger[bitmap - 1] = larger[bitmap - 1]! + 1;
    const other = await verifyBlock(keys, { ...claim(direct), finality: { headers: [], certificate: hex(larger) } });
    expect(failedAt(other.report)).toBe("quorum");
    const spare = Uint8Array.from(bytes);
    spare[bitmap] = spare[bitmap]! | 0x80;
    const past = await verifyBlock(keys, { ...claim(direct), finality: { headers: [], certificate: hex(spare) } });
    expect(failedAt(past.report)).toBe("encoding");
  });
});

test("points outside the subgroup and second encodings are refused", async () => {
  const key = await noble.key(unhex(keysOf(vector("bls-threshold: direct").trust).trust.groupKey));
  // About every second x is that of a point of the curve, and next to none of these is in the subgroup.
  for (let x = 1; x <= 16; x++) {
    const bytes = new Uint8Array(48);
    [bytes[0], bytes[47]] = [0x80, x];
    expect(await noble.verify(key, Uint8Array.of(1), bytes)).toBe(false);
  }
  for (const length of [0, 47, 49, 95, 97]) {
    expect(await noble.verify(key, Uint8Array.of(1), new Uint8Array(length))).toBe(false);
  }
  await expect(noble.key(Uint8Array.of(0xc0, ...new Uint8Array(95)))).rejects.toThrow();
});

describe("bodies", () => {
  test.each(vectors.bodies)("$name", (given) => {
    const block = decodeBlock(unhex(given.block));
    expect(block.header.id).toBe(given.id);
    expect(block.bodyMatches).toBe(given.valid);
  });

  test("a block with another body fails at the body", async () => {
    const direct = vector("bls-threshold: direct");
    const body = vectors.bodies.find((given) => given.header === direct.header && given.valid);
    const changed = vectors.bodies.find((given) => given.header === direct.header && !given.valid);
    if (!body || !changed) throw new Error("no body for the header of the finality vector");
    const keys = keysOf(direct.trust);
    const good = await verifyBlock(keys, { ...claim(direct), block: body.block });
    expect(good.report.ok).toBe(true);
    expect(good.transactions).not.toHaveLength(0);
    const bad = await verifyBlock(keys, { ...claim(direct), block: changed.block });
    expect(failedAt(bad.report)).toBe("body");
  });
});

describe("inclusions", () => {
  test.each(vectors.inclusions)("$name, at $index of $count", (given) => {
    const bytes = unhex(given.transaction);
    expect(decodeTransaction(bytes).id).toBe(given.id);
    const siblings = given.siblings.map((sibling) => unhex(sibling));
    const root = pathRoot(sha256(bytes), given.index, given.count, siblings);
    expect(root === given.body_root).toBe(given.valid);
  });

  test("a memo is read, and none has a second form", () => {
    const all = vectors.inclusions.map((given) => unhex(given.transaction));
    const bytes = all.find((bytes) => bytes[0] === 2)!;
    const transaction = decodeTransaction(bytes);
    expect(transaction.memo).toEqual(new Uint8Array(300).fill("m".charCodeAt(0)));
    expect(all.some((bytes) => decodeTransaction(bytes).memo.length === 0)).toBe(true);
    for (const length of [0, 299, 301, 4_097]) {
      const changed = Uint8Array.from(bytes);
      changed.set([length >> 8, length & 255], 97);
      expect(() => decodeTransaction(changed)).toThrow();
    }
    const empty = Uint8Array.of(...bytes.subarray(0, 97), 0, 0, ...bytes.subarray(-64));
    expect(() => decodeTransaction(empty)).toThrow("a memo of 0 bytes");
  });

  test.each(vectors.operations)("the operation $kind is read from its memo, whole or not at all", ({ kind, memo, fields }) => {
    const bytes = unhex(memo);
    const { votes, ...operation } = decodeOperation(bytes);
    const [first, second] = votes ?? [];
    const guilt = first && second && { view: first.subject.view.toString(), signer: second.signer };
    const stake = operation.stake !== undefined && { stake: operation.stake.toString() };
    expect({ ...operation, ...stake, ...guilt }).toEqual({ kind, ...fields });
    for (let end = 0; end < bytes.length; end++) expect(() => decodeOperation(bytes.subarray(0, end))).toThrow();
    expect(() => decodeOperation(Uint8Array.of(...bytes, 0))).toThrow();
    // Only what is sent to the registry is one.
    expect(operationOf({ to: REGISTRY, memo: bytes })?.kind).toBe(kind);
    expect(operationOf({ to: ZERO, memo: bytes })).toBeUndefined();
    expect(operationOf({ to: REGISTRY, memo: bytes.subarray(1) })).toBeUndefined();
  });

  test("an address that is no printable text makes a memo no operation", () => {
    const bytes = unhex(vectors.operations.find(({ kind }) => kind === "describe")!.memo);
    for (const bad of [0x20, 0x0a, 0x7f, 0xe2]) {
      const changed = Uint8Array.from(bytes);
      changed[4] = bad;
      expect(() => decodeOperation(changed)).toThrow("printable");
    }
  });

  test("paths of all shapes lead to the root of the list, and to no other place", () => {
    for (let count = 1; count <= 17; count++) {
      const leaves = Array.from({ length: count }, (_, i) => sha256(Uint8Array.of(i)));
      const root = hex(merkleRoot(leaves));
      const path = (from: number, to: number, at: number): Uint8Array[] => {
        if (to - from === 1) return [];
        let split = 1;
        while (2 * split < to - from) split *= 2;
        const middle = from + split;
        return at < middle
          ? [...path(from, middle, at), merkleRoot(leaves.slice(middle, to))]
          : [...path(middle, to, at), merkleRoot(leaves.slice(from, middle))];
      };
      for (let at = 0; at < count; at++) {
        const siblings = path(0, count, at);
        expect(pathRoot(leaves[at]!, at, count, siblings)).toBe(root);
        expect(pathRoot(leaves[at]!, (at + 1) % count, count, siblings) === root).toBe(count === 1);
        expect(pathRoot(leaves[at]!, at, count, [...siblings, leaves[0]!])).not.toBe(root);
      }
    }
  });

  test("a transaction is followed up to the quorum's signature", async () => {
    const direct = vector("bls-threshold: direct");
    const keys = keysOf(direct.trust);
    const given = vectors.inclusions.find((candidate) => candidate.valid)!;
    expect(decodeHeader(unhex(direct.header)).bodyRoot).toBe(given.body_root);
    const { header, headers, certificate } = direct;
    const proof = { ...given, header, finality: { headers, certificate } };
    const { report } = await verifyTransaction(keys, proof);
    expect(report.checks.filter((check) => check.state === "failed")).toEqual([]);
    const other = vectors.inclusions.find((candidate) => candidate.valid && candidate.id !== given.id)!;
    expect(failedAt((await verifyTransaction(keys, { ...proof, id: other.id })).report)).toBe("asked");
    expect(failedAt((await verifyTransaction(keys, { ...proof, index: 1 })).report)).toBe("included");
    const forged = flip(given.transaction, -1);
    expect(failedAt((await verifyTransaction(keys, { ...proof, transaction: forged })).report)).toBe("sender");
  });
});

describe("accounts", () => {
  test.each(vectors.accounts)("$name", (given) => {
    const key = stateKey(unhex(given.identity));
    const holds = () => {
      const proof = decodeTreeProof(unhex(given.encoded));
      const found = accountIn(proof, key);
      const value = given.value === null ? undefined : decodeAccount(unhex(given.value));
      return rootOf(proof, key) === given.root && found?.balance === value?.balance && found?.nonce === value?.nonce;
    };
    expect(hex(key) === given.key && holds()).toBe(given.valid);
  });
});

describe("evidence", () => {
  test.each(vectors.evidence)("$name", async (given) => {
    const result = await verifyEvidence(keysOf(given.trust), given);
    expect(result.report.ok).toBe(given.valid);
    expect(result.conflict).toBe(given.conflict);
    const other = await verifyEvidence(keysOf(given.trust), { ...given, validator: 0 });
    expect(failedAt(other.report)).toBe("asked");
  });

  test("the same vote twice is no evidence", async () => {
    const given = vectors.evidence.find((candidate) => candidate.valid)!;
    const once = given.hex.slice(0, 2 + 300);
    const twice = await verifyEvidence(keysOf(given.trust), { ...given, hex: once + once.slice(2) });
    expect(failedAt(twice.report)).toBe("conflict");
  });
});

describe("trust", () => {
  const trusts = [vector("bls-threshold: direct").trust, vector("bls-aggregate: direct").trust];

  test("its keys are read and proofs of possession checked", async () => {
    for (const trust of trusts) await keysOf(trust).check();
    const parsed = parseTrust(trusts[1]);
    const [first, second, ...rest] = parsed.validators;
    const swapped = [
      { ...first!, possession: second!.possession! },
      { ...second!, possession: first!.possession! },
      ...rest,
    ];
    await expect(new Keys({ ...parsed, validators: swapped }, noble).check()).rejects.toThrow("validators 0, 1");
    await expect(new Keys({ ...parsed, name: "other" }, noble).check()).rejects.toThrow("possession");
  });

  test("its fingerprint covers every field and survives its text", () => {
    for (const trust of trusts) {
      const parsed = parseTrust(trust);
      expect(parseTrust(trustJson(parsed))).toEqual(parsed);
      const other = { ...parsed, chainId: flip(parsed.chainId, 31) };
      expect(fingerprint(other)).not.toBe(fingerprint(parsed));
      const reversed = { ...parsed, validators: [...parsed.validators].reverse() };
      expect(fingerprint(reversed)).not.toBe(fingerprint(parsed));
    }
  });

  test("its protocol is read and written; simplex may be left out, and is", () => {
    const [simplex] = trusts as Record<string, unknown>[];
    const plain = parseTrust(simplex);
    expect(plain.protocol).toBe("simplex");
    expect(parseTrust({ ...simplex, protocol: "simplex" })).toEqual(plain);
    expect(trustJson(plain)).not.toContain("protocol");
    for (const protocol of ["hotstuff-chained", "hotstuff-basic", "pbft"]) {
      const parsed = parseTrust({ ...simplex, protocol });
      expect(parsed.protocol).toBe(protocol);
      const text = trustJson(parsed);
      expect(Object.keys(JSON.parse(text) as object).slice(-2)).toEqual(["protocol", "validators"]);
      expect(parseTrust(text)).toEqual(parsed);
      expect(fingerprint(parsed)).not.toBe(fingerprint(plain));
    }
  });

  test("an unknown protocol is refused", () => {
    for (const protocol of ["raft", "PBFT", "toString", "", null, 1, ["pbft"]]) {
      expect(() => parseTrust({ ...(trusts[0] as object), protocol })).toThrow(new DecodeError("trust file: unknown protocol; known are simplex, hotstuff-chained, hotstuff-basic, pbft"));
    }
  });

  test("files of another shape are refused", () => {
    const [good] = trusts as Record<string, unknown>[];
    for (const bad of [
      "{",
      "[]",
      {},
      { ...good, scheme: "rsa" },
      { ...good, validators: [] },
      { ...good, extra: 1 },
      { ...good, group_key: "00" },
      { ...good, validators: [(good!["validators"] as unknown[])[0], (good!["validators"] as unknown[])[0]] },
    ]) {
      expect(() => parseTrust(bad)).toThrow();
    }
  });
});
