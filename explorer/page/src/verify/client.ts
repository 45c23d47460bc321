// The page's side of the verifier.

import { unhex } from "./bytes.ts";
import type { Report } from "./checks.ts";
import type { EpochSet } from "./handovers.ts";
import type { Claim, Outcome, Request, Response, TaskName } from "./messages.ts";
import { type Protocol, type Turns, turnsOf } from "./protocol.ts";
import type { Trust } from "./trust.ts";

interface Waiting {
  resolve(outcome: unknown): void;
  reject(error: Error): void;
}

/** A server that knows changes of the validators. */
export interface Source {
  /** Where it is. */
  readonly base: string;
  get<T>(path: string): Promise<T>;
}

interface Answer {
  epoch: number;
  handovers: { epoch: number; handover: string }[];
}

/** Answers of `/v1/handovers` that are asked for in a row. Each has at least one change, or it is the last. */
const MAX_ANSWERS = 10_000;

/** The epoch that a claim's certificate or votes are of; both begin with a version and it. */
function epochOf(claim: object): bigint | undefined {
  const { certificate, finality, hex } = claim as { certificate?: string; finality?: { certificate: string }; hex?: string };
  try {
    const bytes = unhex((certificate ?? finality?.certificate ?? hex)?.replace(/^0x/, "").slice(0, 18), 9);
    return new DataView(bytes.buffer).getBigUint64(1);
  } catch {
    return undefined;
  }
}

export class Verifier {
  /** Called when changes of the validators were verified. */
  changed: () => void = () => {};
  /** Called with a change of the validators that was not believed. */
  refused: (base: string, epoch: bigint | undefined, report: Report) => void = () => {};
  #trusted: Trust | undefined;
  /** The validators by their first epochs, ascending. */
  #sets: EpochSet[] = [];
  /** For each server, the epoch up to which it has told its changes, and what is being asked. */
  readonly #followed = new Map<string, bigint>();
  readonly #following = new Map<string, Promise<void>>();
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
    this.#trusted = undefined;
    await this.#ask({ trust, number: this.#next++ });
    this.#trusted = trust;
    this.#sets = [{ epoch: trust.epoch, members: trust.validators }];
    this.#followed.clear();
    this.#following.clear();
  }

  /** Verifies a claim, after the changes of the validators that this server knows, if they may matter. */
  async check<T extends TaskName>(task: T, claim: Claim<T>, from?: Source): Promise<Outcome<T>> {
    const epoch = from && epochOf(claim);
    if (from && epoch !== undefined) await this.follow(from, epoch);
    return this.#run(task, claim);
  }

  async #run<T extends TaskName>(task: T, claim: Claim<T>): Promise<Outcome<T>> {
    return (await this.#ask({ task, claim, number: this.#next++ })) as Outcome<T>;
  }

  /** Whether the validators of the pinned chain can change. */
  get canChange(): boolean {
    return this.#trusted?.epochBlocks !== undefined;
  }

  /** The pinned chain's protocol. */
  get protocol(): Protocol | undefined {
    return this.#trusted?.protocol;
  }

  /** The turns of an epoch, as far as its validators are known. */
  turns(epoch: bigint): Turns | undefined {
    const trust = this.#trusted;
    return trust && turnsOf(trust.protocol, trust.epochBlocks, this.validators(epoch)?.members.length);
  }

  /** The validators of an epoch; nothing before the pinned trust's, or if its changes were not asked for yet. */
  validators(epoch: bigint): EpochSet | undefined {
    const found = this.#sets.findLast((set) => set.epoch <= epoch);
    const isNewest = found === this.#sets.at(-1);
    const isSure = !this.canChange || !isNewest || epoch === found?.epoch || [...this.#followed.values()].some((to) => epoch <= to);
    return isSure ? found : undefined;
  }

  /** The pinned trust with the newest validators that are known, and how many changes were verified. */
  newest(): { trust: Trust; changes: number } | undefined {
    const [trust, set] = [this.#trusted, this.#sets.at(-1)];
    if (!trust || !set) return undefined;
    const changes = this.#sets.length - 1;
    return { trust: changes === 0 ? trust : { ...trust, epoch: set.epoch, validators: set.members }, changes };
  }

  /**
   * Verifies the changes of the validators up to an epoch, as far as a server tells them. If it tells too few,
   * what is of later validators does not verify.
   */
  async follow(from: Source, epoch: bigint): Promise<void> {
    const trust = this.#trusted;
    if (trust?.epochBlocks === undefined || epoch <= (this.#followed.get(from.base) ?? trust.epoch)) return;
    let running = this.#following.get(from.base);
    if (!running) {
      const mine = this.#askChanges(from, trust).finally(() => {
        if (this.#following.get(from.base) === mine) this.#following.delete(from.base);
      });
      running = mine;
      this.#following.set(from.base, mine);
    }
    await running;
  }

  async #askChanges(from: Source, trust: Trust): Promise<void> {
    try {
      for (let i = 0; i < MAX_ANSWERS && this.#trusted === trust; i++) {
        const after = this.#sets.at(-1)!.epoch;
        const answer = await from.get<Answer>(`/v1/handovers?after=${after}`);
        if (this.#trusted !== trust) return;
        const { adopted, refused } = await this.#run("follow", { handovers: answer.handovers.map(({ handover }) => handover) });
        if (this.#trusted !== trust) return;
        this.#sets.push(...adopted.filter(({ epoch }) => epoch > this.#sets.at(-1)!.epoch));
        const isEnd = refused !== undefined || this.#sets.at(-1)!.epoch === after;
        if (isEnd) this.#followed.set(from.base, BigInt(answer.epoch));
        this.changed();
        if (refused) this.refused(from.base, refused.epoch, refused.report);
        if (isEnd) return;
      }
    } catch {
      // No answer, or none of this form: what is of later validators does not verify.
    }
  }

  /** Whether one of two trust files is the other one moved forward, by the changes that a server knows. */
  async agree(a: Trust, b: Trust, from: Source): Promise<boolean> {
    const isOne = (["name", "chainId", "scheme", "epochBlocks", "protocol"] as const).every((field) => a[field] === b[field]);
    if (!isOne || a.epochBlocks === undefined || a.epoch === b.epoch) return false;
    const [earlier, later] = a.epoch < b.epoch ? [a, b] : [b, a];
    const handovers: string[] = [];
    let after = earlier.epoch;
    for (let i = 0; i < MAX_ANSWERS && after < later.epoch; i++) {
      const answer = await from.get<Answer>(`/v1/handovers?after=${after}`);
      const last = answer.handovers.at(-1);
      if (!last || BigInt(last.epoch) <= after) break;
      handovers.push(...answer.handovers.map(({ handover }) => handover));
      after = BigInt(last.epoch);
    }
    return this.#run("leads", { from: earlier, to: later, handovers });
  }

  #ask(request: Request): Promise<unknown> {
    if (this.#stopped) return Promise.reject(this.#stopped);
    return new Promise((resolve, reject) => {
      this.#waiting.set(request.number, { resolve, reject });
      this.#worker.postMessage(request);
    });
  }
}
