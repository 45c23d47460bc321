// The shapes of the explorer's answers. Numbers of 64 bits are decimal text.

export interface BlockSummary {
  height: string;
  id: string;
  parent: string;
  epoch: string;
  view: string;
  leader: number;
  timestamp_ms: string;
  transactions: number;
  bytes: string;
  finalized_by: string;
}

export interface Finality {
  finalized_by: { height: string; id: string };
  headers: string[];
  certificate: string;
  signers: number[] | null;
}

export interface Block extends BlockSummary {
  parent_view: string;
  executed_height: string;
  state_root: string;
  body_root: string;
  header: string;
  block: string;
  finality: Finality;
}

export interface BlockCertificate extends Finality {
  height: string;
  id: string;
  header: string;
}

export interface BlockTransaction {
  id: string;
  sender: string;
  nonce: string;
  to: string;
  amount: string;
  fee: string;
  memo?: string;
  signature: string;
  height: string;
  index: number;
  outcome: string;
  /** The server says that it has executed the block itself. */
  outcome_checked?: boolean;
  timestamp_ms: string;
  role?: "sender" | "receiver" | "both";
}

export interface Page<T> {
  data: T[];
  next: string | null;
  prev?: string | null;
  tip?: string;
  total?: number;
}

export interface TransactionAnswer extends Partial<BlockTransaction> {
  state: "finalized" | "failed" | "pending" | "dropped";
  id: string;
  reason?: string | null;
  waits_for_nonce?: string;
  expires_in_ms?: string;
}

export interface TransactionProof {
  id: string;
  height: string;
  index: number;
  count: number;
  transaction: string;
  siblings: string[];
  header: string;
  finality: Finality;
}

export interface AccountAnswer {
  identity: string;
  exists: boolean;
  balance: string;
  nonce: string;
  proof: {
    encoded: string;
    siblings: string[];
    executed_height: string;
    root: string;
    anchor: { height: string; id: string; header: string; certificate: string };
  };
}

export interface ViewAnswer {
  epoch: string;
  view: string;
  leader: number;
  state: "finalized" | "nullified" | "skipped" | "unknown";
  block: BlockSummary | null;
  certificate: string | null;
  reason: string | null;
  source: string | null;
}

export interface Evidence {
  id: string;
  validator: number;
  conflict: string;
  epoch: string;
  view: string;
  hex: string;
}

export interface Validator {
  index: number;
  identity: string;
  vote_key: string;
  votes: number;
  stake: string | null;
  led: string;
  missed: string;
  nullified: string;
  blocks: string;
  participation: { source: string; signed: string | null; of: string | null; percent: number | null; last_vote: [string, string] | null };
  evidence: Evidence[];
  blocked: { by: string; reason: string }[];
}

export interface Validators {
  epoch: string;
  scheme: string;
  quorum: number;
  data: Validator[];
}

export interface Quantiles {
  p50: number;
  p99: number;
}

export interface Stats {
  window: string;
  seconds: number;
  blocks: string;
  transactions: string;
  transactions_per_second: number;
  blocks_per_second: number;
  block_time_ms: Quantiles | null;
  finality_ms: Quantiles | null;
  block_bytes: Quantiles | null;
  nullified: string;
}

export interface Upstream {
  url: string;
  state: "following" | "standby" | "failing" | "lagging" | "lying";
  height: string | null;
  error: string | null;
}

export interface Status {
  chain: { name: string; chain_id: string; scheme: string; validators: number };
  version: string;
  tip: { height: string; id: string; epoch: string; view: string; age_ms: string } | null;
  oldest: string | null;
  lag: string;
  caught_up: boolean;
  /** Earlier servers say nothing of it. */
  patience_ms?: string;
  upstreams: Upstream[];
  uptime_ms: string;
  streams: number;
  totals?: { transactions: string; accounts: string | null; supply: string | null };
}

export interface History {
  step: "minute" | "hour" | "day";
  step_ms: string;
  data: { time_ms: string; blocks: string; transactions: string; bytes: string }[];
}

export interface SubmissionResults {
  results: { id: string; state: string; error: string | null }[];
  by: string;
}

export interface SearchHit {
  kind: "block" | "view" | "transaction" | "account" | "validator";
  href: string;
  label: string;
}

export type Message =
  | { type: "finalized"; height: string; block: BlockSummary; header: string; finality: Finality; finality_ms?: number | null }
  | { type: "notarized"; epoch: string; view: string; id: string; certificate: string }
  | { type: "nullified"; epoch: string; view: string; leader: number; certificate: string; reason: string | null }
  | ({ type: "stats"; tip: string } & Stats)
  | { type: "gap"; from: string; to: string }
  | { type: "pruned"; oldest: string };
