// The vectors that the Rust code has written.

import { readFileSync } from "node:fs";

export interface FinalityVector {
  name: string;
  header: string;
  headers: string[];
  certificate: string;
  trust: unknown;
  valid: boolean;
}

interface Vectors {
  finality: FinalityVector[];
  bodies: { name: string; block: string; header: string; id: string; valid: boolean }[];
  inclusions: {
    name: string;
    body_root: string;
    id: string;
    index: number;
    count: number;
    siblings: string[];
    transaction: string;
    valid: boolean;
  }[];
  accounts: {
    name: string;
    identity: string;
    key: string;
    encoded: string;
    root: string;
    value: string | null;
    valid: boolean;
  }[];
  operations: { kind: string; memo: string; fields: Record<string, string | number> }[];
  evidence: { name: string; validator: number; conflict: string; hex: string; trust: unknown; valid: boolean }[];
}

export const vectors = JSON.parse(
  readFileSync(new URL("./vectors.json", import.meta.url), "utf8"),
) as Vectors;
