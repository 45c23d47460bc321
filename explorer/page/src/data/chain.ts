// The newest part of the chain as the stream brings it: followed without gap or double, and
// verified. One signature check covers all that has come since the last one.

import type { CheckName, Report } from "../verify/checks.ts";
import type { Verifier } from "../verify/client.ts";
import { unhex } from "../verify/bytes.ts";
import { HEADER_BYTES, type Header, decodeHeader } from "../verify/codec.ts";
import { type Protocol, type Turns, leader, proposedIn } from "../verify/protocol.ts";
import type { Api } from "./api.ts";
import { Stream, type StreamState } from "./stream.ts";
import type { BlockCertificate, BlockSummary, Finality, Message, Page, Stats, Status } from "./types.ts";

/** Blocks that are kept. */
export const MAX_ROWS = 600;
const MAX_VIEWS = 600;
/** Blocks before the tip that are asked for at the start. */
const BACKLOG = 120n;
/** Headers that one signature check covers at most. */
const MAX_RUN = 256;
/** A hole of more blocks than this is not filled but begun anew after. */
const MAX_FILL = 500n;
/** The least time between two signature checks: a core has other things to do. */
const CHECK_INTERVAL_MS = 200;
const MAX_REFUSALS = 50;
const SHORTEST_FINALITY_MS = 0.5;
/** The body root of a block without transactions. */
const EMPTY_BODY = `0x${"00".repeat(32)}`;
/** What an idle chain pauses if nothing else is known, and the least that is too long. */
const USUAL_PAUSE_MS = 1_000;
const LEAST_PATIENCE_MS = 3_000;
const LEAST_STANDS_MS = 10_000;
/** A server's word counts up to a day. */
const LONGEST_PATIENCE_MS = 86_400_000;
/** One and a half of the five pauses after which validators call the chain stalled. */
const LATE_PART = 0.3;
const STATUS_EVERY_MS = 15_000;
/** What clocks may differ by. */
const CLOCKS_MS = 10_000;

export type Mark = "waiting" | "verified" | "refused";

export interface Row {
  /** The height that it was sent for; a refused row's header may say another one. */
  height: bigint;
  /** Decoded from the header's bytes, whatever the server says of them. */
  header: Header;
  headerHex: string;
  finality: Finality;
  leader: number;
  /** Told by the server: the header commits to them only together. */
  transactions: number;
  bytes: number;
  /** When it came, by this machine's clock; undefined if it was history by then. */
  arrived: number | undefined;
  blockTimeMs: number | undefined;
  finalityMs: number | undefined;
  mark: Mark;
}

/** A view; or the views of one block, if it takes several. */
export interface ViewRow {
  epoch: bigint;
  /** The first of them. */
  view: bigint;
  leader: number;
  proposed?: number | undefined;
  notarized?: number | undefined;
  finalized?: number | undefined;
  nullified?: number | undefined;
  /** Which of them was nullified. */
  nullifiedView?: bigint;
  reason?: string | null;
  height?: bigint;
  /** A nullification's certificate that waits for its check. */
  certificate?: string | undefined;
  mark?: Mark;
}

/** An answer that this page did not believe. */
export interface Refusal {
  at: number;
  what: string;
  href: string;
  report: Report;
}

/** What this page has verified itself, whichever server it asks. */
export interface Known {
  newest?: Header | undefined;
}

interface Sample {
  at: number;
  stats: Stats;
}

export class Chain {
  readonly rows = new Map<bigint, Row>();
  readonly views = new Map<string, ViewRow>();
  readonly refusals: Refusal[] = [];
  readonly samples: Sample[] = [];
  tip: bigint | undefined;
  verified: Row | undefined;
  status: Status | undefined;
  stats: Stats | undefined;
  state: StreamState = "connecting";
  /** The oldest block that the server still has, if it has said so. */
  pruned: bigint | undefined;
  /** Blocks that came twice, that were asked for again, and that were left out for good. */
  doubles = 0;
  filled = 0;
  holes: { from: bigint; to: bigint }[] = [];
  readonly #api: Api;
  readonly #verifier: Verifier;
  readonly #stream: Stream;
  readonly #changed: () => void;
  #ready = false;
  #checking = false;
  #closed = false;
  #lastCheck = 0;
  #notarized = new Map<string, number>();
  #filling = Promise.resolve();

  readonly #known: Known;
  /** When the newest block came, by this machine's clock. */
  arrivedAt: number | undefined;

  constructor(api: Api, verifier: Verifier, changed: () => void, known: Known = {}) {
    this.#api = api;
    this.#known = known;
    this.#verifier = verifier;
    this.#changed = changed;
    this.#stream = new Stream(api, {
      next: () => (this.tip === undefined ? undefined : this.tip + 1n),
      receive: (message) => this.#receive(message),
      changed: (state) => {
        this.state = state;
        this.#changed();
      },
    });
  }

  /** Verification may begin: the keys are pinned. */
  ready(): void {
    this.#ready = true;
    this.recount();
    this.#check();
  }

  /** The protocol, or more of the validators, is known: says again which views belong together, and who leads. */
  recount(): void {
    for (const [name, view] of [...this.views]) {
      view.leader = this.#leader(view.epoch, view.view, view.leader);
      if (this.#firstOf(view.epoch, view.view) === view.view) continue;
      this.views.delete(name);
      const first = this.#view(view.epoch, view.view);
      Object.assign(first, { ...view, ...first });
    }
    for (const row of this.rows.values()) row.leader = this.#leader(row.header.epoch, row.header.view, row.leader);
    this.#changed();
  }

  /** The protocol, once the keys are pinned. */
  get protocol(): Protocol | undefined {
    return this.#ready ? this.#verifier.protocol : undefined;
  }

  /** The turns of an epoch, as far as that is verified. */
  turns(epoch: bigint): Turns | undefined {
    return this.#ready ? this.#verifier.turns(epoch) : undefined;
  }

  /** How many validators an epoch has, as far as that is verified; 0 if it is not known. */
  committee(epoch: bigint): number {
    return this.#ready ? (this.#verifier.validators(epoch)?.members.length ?? 0) : 0;
  }

  /** Begins some way before the server's tip. */
  async open(): Promise<void> {
    for (let wait = 500; !this.#closed; wait = Math.min(5_000, 2 * wait)) {
      try {
        this.status = await this.#api.get<Status>("/v1/status");
        break;
      } catch {
        this.state = "broken";
        this.#changed();
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
    if (this.#closed) return;
    const tip = BigInt(this.status?.tip?.height ?? 0);
    const oldest = BigInt(this.status?.oldest ?? 1);
    const start = tip > BACKLOG ? tip - BACKLOG : 0n;
    this.tip = start < oldest - 1n ? oldest - 1n : start;
    this.#history = tip;
    this.#stream.open();
  }

  /** Up to here it was history when this page came. */
  #history = 0n;

  close(): void {
    this.#closed = true;
    this.#stream.close();
  }

  /** Nobody looks: the connection is given up until somebody does. */
  rest(): void {
    if (!this.#closed) this.#stream.close();
  }

  async wake(): Promise<void> {
    if (this.#closed || this.state !== "closed" || this.tip === undefined) return;
    try {
      this.status = await this.#api.get<Status>("/v1/status");
      const tip = BigInt(this.status.tip?.height ?? 0);
      if (tip > this.tip + MAX_FILL) this.#leaveOut(this.tip + 1n, tip - BACKLOG - 1n);
      if (tip > this.#history) this.#history = tip;
    } catch {
      // The stream will tell.
    }
    this.#stream.open();
  }

  #statusAt = 0;

  /** Asks now and then for what changes seldom. */
  #askStatus(): void {
    if (performance.now() - this.#statusAt < STATUS_EVERY_MS) return;
    this.#statusAt = performance.now();
    this.#api.get<Status>("/v1/status").then((status) => (this.status = status), () => undefined);
  }

  /** The newest rows, newest first. */
  newest(count: number): Row[] {
    // By the rows that there are: between heights that a server names there may be any number.
    const heights = [...this.rows.keys()].sort((a, b) => (a < b ? 1 : a > b ? -1 : 0));
    return heights.slice(0, count).map((height) => this.rows.get(height)!);
  }

  /**
   * How long no block may come before the chain is late, and before it stands. The server tells, from its
   * validators, who call the chain stalled after five times the longest pause that their settings allow: half as
   * long again as that pause is late. Without its word, ten and thirty times what lay between empty blocks.
   */
  patience(): { late: number; stands: number } {
    const told = Number(this.status?.patience_ms ?? 0);
    if (told > 0 && told <= LONGEST_PATIENCE_MS) {
      return { late: Math.max(LEAST_PATIENCE_MS, LATE_PART * told), stands: Math.max(LEAST_STANDS_MS, told) };
    }
    const usual = this.#usualPause();
    const late = Math.max(LEAST_PATIENCE_MS, 10 * Math.min(usual, 60_000));
    return { late, stands: 3 * late };
  }

  /** What lies between blocks while the chain idles. A header tells whether its block is empty. */
  #usualPause(): number {
    const pauses: number[] = [];
    for (const row of this.rows.values()) {
      if (row.mark !== "refused" && row.header.bodyRoot === EMPTY_BODY && row.blockTimeMs !== undefined) pauses.push(row.blockTimeMs);
    }
    pauses.sort((a, b) => a - b);
    return pauses[Math.floor(pauses.length * 0.9)] ?? USUAL_PAUSE_MS;
  }

  /** For how long no block has come, and whether that is too long. */
  silence(now = Date.now()): { ms: number; state: "fresh" | "late" | "stands" } {
    const top = this.newest(1)[0];
    if (!top) return { ms: 0, state: "fresh" };
    const { late, stands } = this.patience();
    const old = Math.max(0, now - Number(top.header.timestampMs));
    // The leader's clock may be another one; what came lately is late only if it is much older.
    const waited = this.arrivedAt === undefined ? old : now - this.arrivedAt;
    const ms = old > late + CLOCKS_MS ? Math.max(old, waited) : waited;
    return { ms, state: ms > stands ? "stands" : ms > late ? "late" : "fresh" };
  }

  /** Writes down an answer that was not believed. */
  refuse(what: string, href: string, report: Report): void {
    this.refusals.unshift({ at: Date.now(), what, href, report });
    this.refusals.length = Math.min(this.refusals.length, MAX_REFUSALS);
    this.#changed();
  }

  #receive(message: Message): void {
    switch (message.type) {
      case "finalized":
        this.#follow(message);
        break;
      case "notarized": {
        // A block may be notarized in several views: what counts is the first.
        if (!this.#notarized.has(message.id)) this.#notarized.set(message.id, performance.now());
        if (this.#notarized.size > MAX_VIEWS) this.#notarized.delete(this.#notarized.keys().next().value!);
        const view = this.#view(BigInt(message.epoch), BigInt(message.view));
        view.notarized ??= Date.now();
        break;
      }
      case "nullified": {
        const nullified = BigInt(message.view);
        const view = this.#view(BigInt(message.epoch), nullified);
        view.nullified ??= Date.now();
        view.reason = message.reason;
        view.certificate = message.certificate;
        if (view.nullifiedView !== nullified) view.mark = "waiting";
        view.nullifiedView = nullified;
        this.#check();
        break;
      }
      case "stats":
        this.stats = message;
        this.samples.push({ at: Date.now(), stats: message });
        if (this.samples.length > 300) this.samples.shift();
        this.#askStatus();
        break;
      case "gap":
        // The next block tells what is missing, and its certificate whether that is true.
        break;
      case "pruned":
        this.pruned = BigInt(message.oldest);
        break;
    }
    this.#changed();
  }

  #follow(message: Extract<Message, { type: "finalized" }>): void {
    const height = BigInt(message.height);
    const due = this.tip === undefined ? undefined : this.tip + 1n;
    const arrived = height > this.#history ? Date.now() : undefined;
    const row = this.#add(height, message.block, message.header, message.finality, arrived);
    if (!row) return;
    if (row.header.height !== height) {
      // What it was sent for moves nothing.
      this.#refuseRow(height, row, "asked", `asked for height ${height}, the header says ${row.header.height}`);
      this.#changed();
      return;
    }
    if (due !== undefined && height > due) this.#fill(due, height - 1n);
    if (this.tip === undefined || height > this.tip) this.tip = height;
    if (arrived !== undefined) this.arrivedAt = arrived;
    const view = this.#view(row.header.epoch, row.header.view);
    view.height = height;
    if (arrived !== undefined) {
      view.proposed = Number(row.header.timestampMs);
      view.finalized ??= arrived;
      const notarized = this.#notarized.get(row.header.id);
      const measured = notarized === undefined ? undefined : performance.now() - notarized;
      // Both in one packet: nothing was measured.
      row.finalityMs = measured !== undefined && measured >= SHORTEST_FINALITY_MS ? measured : undefined;
    }
    this.#check();
  }

  /** A row, unless it is there already or no header. */
  #add(height: bigint, block: BlockSummary, headerHex: string, finality: Finality, arrived: number | undefined): Row | undefined {
    const known = this.rows.get(height);
    if (known) {
      this.doubles += 1;
      if (known.headerHex !== headerHex) {
        const detail = `there are two answers for height ${height}`;
        this.refuse(`block ${height}`, `#/block/${height}`, { ok: false, ms: 0, checks: [{ name: "asked", state: "failed", detail }] });
      }
      return undefined;
    }
    let header: Header;
    try {
      header = decodeHeader(unhex(headerHex, HEADER_BYTES));
    } catch (error) {
      const detail = error instanceof Error ? error.message : String(error);
      this.refuse(`block ${height}`, `#/block/${height}`, { ok: false, ms: 0, checks: [{ name: "encoding", state: "failed", detail }] });
      return undefined;
    }
    const leader = this.#leader(header.epoch, header.view, block.leader);
    const row: Row = {
      height,
      header,
      headerHex,
      finality,
      leader,
      transactions: block.transactions,
      bytes: Number(block.bytes),
      arrived,
      blockTimeMs: this.#blockTime(height, header),
      finalityMs: undefined,
      mark: "waiting",
    };
    this.rows.set(height, row);
    const above = this.rows.get(height + 1n);
    if (above) above.blockTimeMs ??= this.#blockTime(height + 1n, above.header);
    if (this.rows.size > MAX_ROWS) {
      let lowest = height;
      // What was refused goes first, however high it claims to be.
      const refused = [...this.rows].find(([, other]) => other.mark === "refused");
      for (const at of this.rows.keys()) if (at < lowest) lowest = at;
      this.rows.delete(refused?.[0] ?? lowest);
    }
    return row;
  }

  /** Who leads a view, by the rule; undefined until turns and committee are known. */
  leaderOf(epoch: bigint, view: bigint): number | undefined {
    const [turns, committee] = [this.turns(epoch), this.committee(epoch)];
    return turns && committee > 0 ? leader(turns, committee, epoch, view) : undefined;
  }

  /** Who leads a view, by the rule; what the server says only until the committee is known. */
  #leader(epoch: bigint, view: bigint, told: number): number {
    return this.leaderOf(epoch, view) ?? told;
  }

  #blockTime(height: bigint, header: Header): number | undefined {
    const parent = this.rows.get(height - 1n)?.header;
    return parent && Number(header.timestampMs - parent.timestampMs);
  }

  /** The first of the views of a block that a view belongs to; itself until the turns are known. */
  #firstOf(epoch: bigint, view: bigint): bigint {
    return proposedIn(this.turns(epoch), view);
  }

  /** The row that a view belongs to. */
  #view(epoch: bigint, of: bigint): ViewRow {
    const view = this.#firstOf(epoch, of);
    const name = `${epoch}.${view}`;
    let row = this.views.get(name);
    if (!row) {
      row = { epoch, view, leader: this.#leader(epoch, view, 0) };
      this.views.set(name, row);
      if (this.views.size > MAX_VIEWS) this.views.delete(this.views.keys().next().value!);
    }
    return row;
  }

  /** Fetches what the stream has left out. One gap after the other. */
  #fill(from: bigint, to: bigint): void {
    if (to < from) return;
    if (this.tip === undefined || this.tip < to) this.tip = to;
    if (to - from > MAX_FILL) {
      this.#leaveOut(from, to - BACKLOG);
      from = to - BACKLOG + 1n;
    }
    this.#filling = this.#filling.then(() => this.#fetch(from, to)).catch(() => this.#leaveOut(from, to));
  }

  #leaveOut(from: bigint, to: bigint): void {
    if (to < from) return;
    this.holes.push({ from, to });
    if (this.tip === undefined || this.tip < to) this.tip = to;
    this.#changed();
  }

  async #fetch(from: bigint, to: bigint): Promise<void> {
    for (let after = from - 1n; after < to && !this.#closed; ) {
      const limit = to - after < 100n ? to - after : 100n;
      const page = await this.#api.get<Page<BlockSummary>>(`/v1/blocks?after=${after}&limit=${limit}`);
      if (page.data.length === 0) break;
      for (let i = 0; i < page.data.length; i += 6) {
        await Promise.all(page.data.slice(i, i + 6).map((block) => this.#fetchOne(block)));
        this.#changed();
      }
      const last = BigInt(page.data.at(-1)!.height);
      if (last <= after) break;
      after = last;
    }
    this.#check();
  }

  async #fetchOne(block: BlockSummary): Promise<void> {
    const height = BigInt(block.height);
    if (this.rows.has(height)) return;
    const found = await this.#api.get<BlockCertificate>(`/v1/blocks/${height}/certificate`);
    if (this.#add(height, block, found.header, found, undefined)) this.filled += 1;
  }

  /** Starts a check if none runs and something waits for one. */
  #check(): void {
    if (!this.#ready || this.#checking || this.#closed) return;
    const wait = this.#lastCheck + CHECK_INTERVAL_MS - performance.now();
    this.#checking = true;
    setTimeout(() => {
      void this.#checkNewest().then((more) => {
        this.#checking = false;
        this.#lastCheck = performance.now();
        this.#changed();
        if (more) this.#check();
      });
    }, Math.max(0, wait));
  }

  /** Settles what waits, with one signature check at most; whether more may be waiting. */
  async #checkNewest(): Promise<boolean> {
    const newest = this.#settle();
    if (newest === undefined) return this.#checkView();
    let from = newest;
    while (newest - from < MAX_RUN && this.rows.get(from - 1n)?.mark === "waiting" && this.#isLinked(from - 1n)) from--;
    await this.#checkRun(from, newest);
    return true;
  }

  /** Whether a row is the parent of the one above it, by its hash. */
  #isLinked(height: bigint): boolean {
    const [header, above] = [this.rows.get(height)?.header, this.rows.get(height + 1n)?.header];
    return header !== undefined && above?.parent === header.id && header.chain === above.chain;
  }

  /**
   * Settles what needs no signature, from the top down: a row is verified if a verified one above it
   * names its hash, and refused if that one names another, or if it has another height than it was
   * sent for. Gives the highest row that needs a signature.
   */
  #settle(): bigint | undefined {
    let newest: bigint | undefined;
    const waiting = [...this.rows].filter(([, row]) => row.mark === "waiting").sort(([a], [b]) => (a < b ? 1 : -1));
    for (const [height, row] of waiting) {
      const above = this.rows.get(height + 1n);
      if (row.header.height !== height) {
        this.#refuseRow(height, row, "asked", `asked for height ${height}, the header says ${row.header.height}`);
      } else if (above?.mark !== "verified") {
        newest ??= height;
      } else if (this.#isLinked(height)) {
        row.mark = "verified";
      } else {
        this.#refuseRow(height, row, "links", `block ${height + 1n}, which is verified, names another parent`);
      }
    }
    return newest;
  }

  /** The newest block goes back to one that was not refused, so that what is real is followed. */
  #stepBack(): void {
    let highest = this.verified?.header.height;
    for (const [height, row] of this.rows) if (row.mark !== "refused" && (highest === undefined || height > highest)) highest = height;
    this.tip = highest;
  }

  #refuseRow(height: bigint, row: Row, name: CheckName, detail: string): void {
    row.mark = "refused";
    if (this.tip !== undefined && height >= this.tip) this.#stepBack();
    this.refuse(`block ${height}`, `#/block/${height}`, { ok: false, ms: 0, checks: [{ name, state: "failed", detail }] });
  }

  /** One signature check for a run that hangs together by its hashes. */
  async #checkRun(from: bigint, to: bigint): Promise<void> {
    const run: Row[] = [];
    for (let height = from; height <= to; height++) run.push(this.rows.get(height)!);
    const last = run.at(-1)!;
    const beneath = this.rows.get(from - 1n);
    const below = beneath?.mark === "verified" ? beneath.header.id : undefined;
    const headers = [...run.map((row) => row.headerHex), ...last.finality.headers];
    const claim = { headers, certificate: last.finality.certificate, from, below };
    let report: Report;
    try {
      ({ report } = await this.#verifier.check("chain", claim, this.#api));
    } catch {
      // The verifier was given other keys meanwhile, or is gone: the rows go on waiting.
      return;
    }
    if (report.ok) {
      for (const row of run) row.mark = "verified";
      if (!this.verified || this.verified.header.height < last.header.height) this.verified = last;
      const known = this.#known.newest;
      if (!known || known.height < last.header.height) this.#known.newest = last.header;
    } else {
      // The run hangs together, so it is the last one whose certificate does not hold, or the
      // first one that follows another block than the verified one: neither can be told to be final.
      last.mark = "refused";
      if (this.tip !== undefined && to >= this.tip) this.#stepBack();
      this.refuse(`block ${to}`, `#/block/${to}`, report);
    }
  }

  /** A nullification, when no block waits. */
  async #checkView(): Promise<boolean> {
    for (const row of [...this.views.values()].reverse()) {
      if (row.certificate === undefined || row.mark !== "waiting") continue;
      const { epoch, nullifiedView: view = row.view, certificate } = row;
      try {
        const { report } = await this.#verifier.check("view", { epoch, view, kind: "nullify", certificate }, this.#api);
        // Meanwhile another view of the row may have been nullified.
        if (row.certificate === certificate) {
          row.mark = report.ok ? "verified" : "refused";
          row.certificate = undefined;
        }
        if (!report.ok) this.refuse(`nullification of view ${epoch}.${view}`, `#/view/${epoch}.${view}`, report);
        return true;
      } catch {
        return false;
      }
    }
    return false;
  }
}
