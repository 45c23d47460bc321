// What every view is given.

import type { Api } from "./data/api.ts";
import type { Chain, Known } from "./data/chain.ts";
import type { Servers } from "./data/servers.ts";
import type { TrustStore } from "./data/trust.ts";
import type { Verifier } from "./verify/client.ts";
import type { Claim, Outcome, TaskName } from "./verify/messages.ts";

export interface App {
  /** The server whose answers are shown. */
  readonly api: Api;
  readonly chain: Chain;
  /** What this page has verified, whichever server it asks. */
  readonly known: Known;
  readonly verifier: Verifier;
  readonly trust: TrustStore;
  readonly servers: Servers;
  /** Verifies; waits until there are keys to do it with. */
  verify<T extends TaskName>(task: T, claim: Claim<T>): Promise<Outcome<T>>;
  /** Pins this trust and verifies against it from now on. */
  pin(file: unknown, source: string): Promise<void>;
  forget(): void;
  /** Asks another server from now on. */
  use(server: string): void;
  /** Says something to screen readers. */
  announce(text: string): void;
}

/** One page of the application. */
export interface View {
  title: string;
  element: HTMLElement;
  /** Something has happened on the chain; called at most once for each frame. */
  update?(): void;
  /** The colours have changed. */
  recolour?(): void;
  /** Another view takes its place. */
  close?(): void;
  /** Whether it handles pausing. */
  togglePause?(): void;
  /** Where the keys [ and ] lead. */
  previous?: string | undefined;
  next?: string | undefined;
}
