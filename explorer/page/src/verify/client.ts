// The page's side of the verifier.

import type { Claim, Outcome, Request, Response, TaskName } from "./messages.ts";
import type { Trust } from "./trust.ts";

interface Waiting {
  resolve(outcome: unknown): void;
  reject(error: Error): void;
}

export class Verifier {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #next = 0;
  /** Why it stopped, if it has. */
  #stopped: Error | undefined;

  constructor(worker: Worker) {
    this.#worker = worker;
    worker.addEventListener("message", (event: MessageEvent<Response>) => {
      const waiting = this.#waiting.get(event.data.number);
      this.#waiting.delete(event.data.number);
      if ("error" in event.data) waiting?.reject(new Error(event.data.error));
      else waiting?.resolve(event.data.outcome);
    });
    worker.addEventListener("error", (event) => {
      const error = new Error(`the verifier stopped: ${event.message ?? "the browser does not start it"}`);
      this.#stopped = error;
      for (const waiting of this.#waiting.values()) waiting.reject(error);
      this.#waiting.clear();
    });
  }

  /** Verifies against this from now on. Fails if the keys are none. */
  async trust(trust: Trust): Promise<void> {
    await this.#ask({ trust, number: this.#next++ });
  }

  async check<T extends TaskName>(task: T, claim: Claim<T>): Promise<Outcome<T>> {
    return (await this.#ask({ task, claim, number: this.#next++ })) as Outcome<T>;
  }

  #ask(request: Request): Promise<unknown> {
    if (this.#stopped) return Promise.reject(this.#stopped);
    return new Promise((resolve, reject) => {
      this.#waiting.set(request.number, { resolve, reject });
      this.#worker.postMessage(request);
    });
  }
}
