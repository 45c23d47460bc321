// What the page and its verifier say to each other.

import type { verifyAccount, verifyBlock, verifyChain, verifyEvidence, verifyTransaction, verifyView } from "./checks.ts";
import type { follow, leads } from "./handovers.ts";
import type { Trust } from "./trust.ts";

/** The tasks: what they take after the keys, and what they give. */
export interface Tasks {
  block: typeof verifyBlock;
  chain: typeof verifyChain;
  view: typeof verifyView;
  transaction: typeof verifyTransaction;
  account: typeof verifyAccount;
  evidence: typeof verifyEvidence;
  /** Follows changes of the validators. */
  follow: typeof follow;
  leads: typeof leads;
}

export type TaskName = keyof Tasks;
export type Claim<T extends TaskName> = Parameters<Tasks[T]>[1];
export type Outcome<T extends TaskName> = Awaited<ReturnType<Tasks[T]>>;

export type Request =
  | { trust: Trust; number: number }
  | { task: TaskName; claim: unknown; number: number };

export type Response = { number: number; outcome: unknown } | { number: number; error: string };
