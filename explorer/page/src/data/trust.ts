// What this page trusts. It is pinned: whatever a server says later changes nothing by itself.

import { fingerprint, parseTrust, trustJson, type Trust } from "../verify/trust.ts";
import { load, store } from "./memory.ts";

const KEY = "quorate.trust";

export interface Pinned {
  trust: Trust;
  fingerprint: string;
  /** When, in milliseconds since 1970. */
  since: number;
  /** Where it came from. */
  source: string;
}

export class TrustStore {
  pinned: Pinned | undefined;
  /** Pinned in this visit, on the server's word. */
  isNew = false;
  /** What the server gives now, if that is something else. */
  offered: { trust: Trust; fingerprint: string } | undefined;
  /** Keys are being read, and proofs of possession checked. */
  isChecking = false;
  /** Why the keys cannot be used. */
  error: string | undefined;

  constructor() {
    const text = load(KEY);
    if (text === undefined) return;
    try {
      const { file, since, source } = JSON.parse(text) as { file: string; since: number; source: string };
      const trust = parseTrust(file);
      this.pinned = { trust, fingerprint: fingerprint(trust), since, source };
    } catch {
      // Unreadable: as if nothing were pinned. What is pinned next is shown as new.
    }
  }

  pin(trust: Trust, source: string): void {
    const since = Date.now();
    this.pinned = { trust, fingerprint: fingerprint(trust), since, source };
    this.error = undefined;
    if (this.offered?.fingerprint === this.pinned.fingerprint) this.offered = undefined;
    store(KEY, JSON.stringify({ file: trustJson(trust), since, source }));
  }

  forget(): void {
    this.pinned = undefined;
    this.isNew = false;
    store(KEY, undefined);
  }

  /** What the server gives. Whether it differs from what is pinned. */
  compare(value: unknown): boolean {
    const trust = parseTrust(value);
    const offered = { trust, fingerprint: fingerprint(trust) };
    const differs = this.pinned !== undefined && this.pinned.fingerprint !== offered.fingerprint;
    this.offered = differs || !this.pinned ? offered : undefined;
    return differs;
  }
}
