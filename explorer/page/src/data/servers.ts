// The servers that the page may ask, and what each says is newest.

import type { Report } from "../verify/checks.ts";
import type { Verifier } from "../verify/client.ts";
import type { Header } from "../verify/codec.ts";
import { Api } from "./api.ts";
import { load, store } from "./memory.ts";
import type { Block } from "./types.ts";

const KEY = "quorate.servers";
const MAX_SERVERS = 12;
const POLL_MS = 2_000;

export interface Tip {
  header?: Header;
  report?: Report;
  error?: string;
  at: number;
}

/** An address as somebody types it, made whole; throws if it is none. */
export function normalServer(text: string): string {
  const trimmed = text.trim();
  const url = new URL(/^[a-z]+:\/\//i.test(trimmed) ? trimmed : `http://${trimmed}`);
  if (url.protocol !== "http:" && url.protocol !== "https:") throw new Error("An address begins with http:// or https://.");
  url.hash = "";
  url.search = "";
  return url.href.endsWith("/") ? url.href : `${url.href}/`;
}

export class Servers {
  list: string[] = [];
  readonly tips = new Map<string, Tip>();
  readonly #fixed: boolean;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** With the address of the server that the page came from, there is only that one. */
  constructor(own?: string) {
    this.#fixed = own !== undefined;
    if (own !== undefined) {
      this.list = [own];
      return;
    }
    try {
      const stored: unknown = JSON.parse(load(KEY) ?? "[]");
      if (Array.isArray(stored)) this.list = stored.filter((item) => typeof item === "string").slice(0, MAX_SERVERS);
    } catch {
      // Nothing that could be read.
    }
  }

  /** The one whose answers are shown. */
  get active(): string | undefined {
    return this.list[0];
  }

  add(text: string): void {
    const server = normalServer(text);
    if (this.list.includes(server)) throw new Error("This server is in the list already.");
    if (this.list.length >= MAX_SERVERS) throw new Error(`At most ${MAX_SERVERS} servers.`);
    this.list.push(server);
    this.#save();
  }

  remove(server: string): void {
    this.list = this.list.filter((other) => other !== server);
    this.tips.delete(server);
    this.#save();
  }

  use(server: string): void {
    if (!this.list.includes(server)) return;
    this.list = [server, ...this.list.filter((other) => other !== server)];
    this.#save();
  }

  #save(): void {
    if (!this.#fixed) store(KEY, JSON.stringify(this.list));
  }

  /** Asks all of them for their newest block, again and again, and verifies it. */
  watch(verifier: Verifier, changed: () => void): () => void {
    let stopped = false;
    const round = async () => {
      await Promise.all(this.list.map(async (server) => {
        const tip = await this.#ask(server, verifier);
        if (!stopped && this.list.includes(server)) this.tips.set(server, tip);
      }));
      if (stopped) return;
      changed();
      this.#timer = setTimeout(() => void round(), POLL_MS);
    };
    void round();
    return () => {
      stopped = true;
      clearTimeout(this.#timer);
    };
  }

  async #ask(server: string, verifier: Verifier): Promise<Tip> {
    const at = Date.now();
    try {
      const api = new Api(server);
      const { id, header, finality } = await api.get<Block>("/v1/blocks/latest", AbortSignal.timeout(5_000));
      const found = await verifier.check("block", { asked: "latest", id, header, finality }, api);
      return { at, report: found.report, ...(found.header && { header: found.header }) };
    } catch (error) {
      return { at, error: error instanceof Error ? error.message : String(error) };
    }
  }

  /** Two verified blocks of one height that are not the same one: the chain itself is broken. */
  conflict(): [string, string] | undefined {
    const seen = new Map<bigint, [string, string]>();
    for (const [server, { header, report }] of this.tips) {
      if (!header || !report?.ok) continue;
      const other = seen.get(header.height);
      if (other && other[1] !== header.id) return [other[0], server];
      seen.set(header.height, [server, header.id]);
    }
    return undefined;
  }
}
