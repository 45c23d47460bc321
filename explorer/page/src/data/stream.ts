// The stream of what happens, over Server-Sent Events. It is opened anew, from the next height
// that is wanted, whenever it breaks or falls silent.

import type { Api } from "./api.ts";
import type { Message } from "./types.ts";

const TYPES = ["finalized", "notarized", "nullified", "stats", "gap", "pruned"] as const;
const FIRST_DELAY_MS = 250;
const LONGEST_DELAY_MS = 5_000;
/** Statistics come every second, so this much silence is a dead connection. */
const SILENCE_MS = 10_000;

export type StreamState = "connecting" | "open" | "broken" | "closed";

export interface StreamOwner {
  /** The first height that is still wanted, if there is one. */
  next(): bigint | undefined;
  receive(message: Message): void;
  changed(state: StreamState): void;
}

export class Stream {
  readonly #api: Api;
  readonly #owner: StreamOwner;
  #source: EventSource | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #watch: ReturnType<typeof setInterval> | undefined;
  #delay = FIRST_DELAY_MS;
  #heard = 0;

  constructor(api: Api, owner: StreamOwner) {
    this.#api = api;
    this.#owner = owner;
  }

  open(): void {
    if (this.#source || this.#retry) return;
    this.#connect("connecting");
    this.#watch = setInterval(() => {
      if (this.#source && performance.now() - this.#heard > SILENCE_MS) this.#broken();
    }, 1_000);
  }

  close(): void {
    this.#stop();
    clearInterval(this.#watch);
    this.#owner.changed("closed");
  }

  #stop(): void {
    clearTimeout(this.#retry);
    this.#retry = undefined;
    this.#source?.close();
    this.#source = undefined;
  }

  #connect(state: StreamState): void {
    this.#retry = undefined;
    const next = this.#owner.next();
    const from = next === undefined ? "" : `&from_height=${next}`;
    const path = `/v1/stream/sse?topics=finalized,notarized,nullified,stats${from}`;
    const source = new EventSource(this.#api.url(path));
    this.#source = source;
    this.#heard = performance.now();
    this.#owner.changed(state);
    source.addEventListener("open", () => {
      this.#heard = performance.now();
      this.#owner.changed("open");
    });
    source.addEventListener("error", () => {
      if (source === this.#source) this.#broken();
    });
    for (const type of TYPES) {
      source.addEventListener(type, (event: MessageEvent<string>) => {
        if (source !== this.#source) return;
        this.#heard = performance.now();
        this.#delay = FIRST_DELAY_MS;
        let message: Message;
        try {
          message = JSON.parse(event.data) as Message;
        } catch {
          return;
        }
        this.#owner.receive(message);
      });
    }
  }

  #broken(): void {
    this.#stop();
    this.#owner.changed("broken");
    this.#retry = setTimeout(() => this.#connect("broken"), this.#delay);
    this.#delay = Math.min(LONGEST_DELAY_MS, 2 * this.#delay);
  }
}
