// The verifier: a Web Worker, so that a pairing never holds up a frame.

import { verifyAccount, verifyBlock, verifyChain, verifyEvidence, verifyTransaction, verifyView } from "./checks.ts";
import { follow, leads } from "./handovers.ts";
import { Keys } from "./keys.ts";
import type { Request, Response, Tasks } from "./messages.ts";
import { Noble } from "./noble.ts";

const tasks: Tasks = {
  block: verifyBlock,
  chain: verifyChain,
  view: verifyView,
  transaction: verifyTransaction,
  account: verifyAccount,
  evidence: verifyEvidence,
  follow,
  leads,
};

const signatures = new Noble();
let keys: Keys | undefined;

async function answer(request: Request): Promise<unknown> {
  if ("trust" in request) {
    keys = undefined;
    const fresh = new Keys(request.trust, signatures);
    await fresh.check();
    keys = fresh;
    return undefined;
  }
  if (!keys) throw new Error("nothing is pinned yet");
  const task = tasks[request.task] as (keys: Keys, claim: unknown) => Promise<unknown>;
  return task(keys, request.claim);
}

// One after the other: each task is computation, and a new trust must not overtake.
let last = Promise.resolve();
self.addEventListener("message", (event: MessageEvent<Request>) => {
  const { number } = event.data;
  last = last.then(async () => {
    let response: Response;
    try {
      response = { number, outcome: await answer(event.data) };
    } catch (error) {
      response = { number, error: error instanceof Error ? error.message : String(error) };
    }
    self.postMessage(response);
  });
});
