// Who validates, and how the newest views went.

import type { App, View } from "../app.ts";
import type { BlockSummary, Page, Validator, Validators, ViewAnswer } from "../data/types.ts";
import { type Turns, steps, turnsBetween } from "../verify/protocol.ts";
import { fill, h, icon } from "../ui/dom.ts";
import { count, words } from "../ui/format.ts";
import { checkCard, dot, facts, fullHash, hashLink, heading, line, loading, pill, problem, repeat, table } from "../ui/parts.ts";

const CELLS = 200;
/** Turns without a block that are asked for, one by one. */
const MAX_SINGLE = 40;
const REFRESH_MS = 5_000;

interface Cell {
  epoch: bigint;
  view: bigint;
  leader: number;
  state: ViewAnswer["state"];
  height?: string;
  reason: string | null;
}

/** What its cells and counts are of: the views of one block are one turn of its leader. */
const unitOf = (turns: Turns | undefined): string => (turns && turns.viewsOfABlock > 1n ? "turns" : "views");

/** Asks how a turn ended without a block. Where a block takes several views, each of them may be the one that was nullified. */
async function askFor(app: App, cell: Cell, phases: bigint, signal: AbortSignal): Promise<void> {
  for (let view = cell.view; view < cell.view + phases; view++) {
    const found = await app.api.get<ViewAnswer>(`/v1/views/${view}?epoch=${cell.epoch}`, signal);
    if (found.state === "skipped") continue;
    Object.assign(cell, { view, state: found.state, reason: found.reason });
    return;
  }
}

/** The views of the newest blocks, and what is known of the turns between them. */
export async function newestViews(app: App, signal: AbortSignal): Promise<Cell[]> {
  const first = await app.api.get<Page<BlockSummary>>("/v1/blocks?limit=100", signal);
  const second = first.next === null ? [] : (await app.api.get<Page<BlockSummary>>(first.next, signal)).data;
  const blocks = [...first.data, ...second].reverse();
  // The number of validators decides how long a turn is, and who leads.
  await app.verifier.follow(app.api, BigInt(blocks.at(-1)?.epoch ?? 0));
  const cells: Cell[] = [];
  const asked: Promise<void>[] = [];
  let last: Cell | undefined;
  for (const block of blocks) {
    const { height, leader } = block;
    const cell: Cell = { epoch: BigInt(block.epoch), view: BigInt(block.view), leader, state: "finalized", height, reason: null };
    const turns = app.chain.turns(cell.epoch);
    const gap = turns && last?.epoch === cell.epoch ? turnsBetween(turns, last.view, cell.view, CELLS) : [];
    for (const view of gap) {
      const leader = app.chain.leaderOf(cell.epoch, view) ?? 0;
      const between: Cell = { epoch: cell.epoch, view, leader, state: "skipped", reason: null };
      cells.push(between);
      if (asked.length < MAX_SINGLE) asked.push(askFor(app, between, turns!.viewsOfABlock, signal).catch(() => undefined));
    }
    cells.push(cell);
    last = cell;
  }
  await Promise.all(asked);
  return cells.slice(-CELLS);
}

const STATE_WORDS: Record<Cell["state"], string> = { finalized: "with a final block", nullified: "nullified", skipped: "without one, no certificate seen" };

/** A grid that arrow keys walk through. */
function grid(cells: Cell[], unit: string): HTMLElement {
  const links = cells.map((cell) => {
    const outcome = cell.height === undefined ? STATE_WORDS[cell.state] : `block ${count(cell.height)}`;
    const label = `View ${cell.epoch}.${cell.view}, validator ${cell.leader}: ${outcome}${cell.reason ? `, ${words(cell.reason)}` : ""}`;
    return h("a", { href: `#/view/${cell.epoch}.${cell.view}`, class: `cell cell-${cell.state} hue-${cell.leader % 12}`, title: label, "aria-label": label, tabindex: "-1" });
  });
  links.at(-1)?.setAttribute("tabindex", "0");
  const list = h("ul", { class: "grid", "aria-label": `The newest ${unit}; move with the arrow keys` }, ...links.map((link) => h("li", {}, link)));
  list.addEventListener("keydown", (event) => {
    const at = links.indexOf(document.activeElement as HTMLAnchorElement);
    const columns = links.findIndex((link) => link.offsetTop > links[0]!.offsetTop);
    const width = columns > 0 ? columns : links.length;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -width, ArrowDown: width, Home: -at, End: links.length - 1 - at }[event.key];
    const next = step === undefined ? undefined : links[at + step];
    if (at < 0 || !next) return;
    event.preventDefault();
    links[at]!.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
  return list;
}

function gridSection(cells: Cell[], unit: string): HTMLElement {
  const tally = new Map<string, number>();
  for (const { state, reason } of cells) {
    const name = state === "nullified" ? `nullified: ${reason === null ? "reason not known" : words(reason)}` : STATE_WORDS[state];
    tally.set(name, (tally.get(name) ?? 0) + 1);
  }
  const swatch = (name: string) => (name.startsWith("nullified") ? "nullified" : name === STATE_WORDS.finalized ? "finalized" : "skipped");
  const legend = [...tally].map(([name, number]) => h("li", {}, h("span", { class: `cell cell-key cell-${swatch(name)} hue-0`, "aria-hidden": "true" }), `${count(number)} ${name}`));
  const range = cells.length > 0 ? `${cells[0]!.epoch}.${cells[0]!.view} to ${cells.at(-1)!.epoch}.${cells.at(-1)!.view}` : "";
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, `The last ${cells.length} ${unit}`), h("span", { class: "quiet" }, range)), grid(cells, unit), h("ul", { class: "legend" }, ...legend));
}

/** How many steps back a validator’s newest vote may be, for each member of the committee, before it counts as silent. */
const SILENT_STEPS = 3n;

/** Evidence that was verified here, and that was refused. */
const judged = new Map<string, Promise<boolean>>();

/** A pill that says no more than what is verified by now. */
function evidencePill(app: App, validator: Validator): HTMLElement {
  const shown = pill("evidence told, not verified", "plain");
  const checks = validator.evidence.map(({ hex }) => {
    const key = `${validator.index}:${hex}`;
    let check = judged.get(key);
    if (!check) {
      check = app.verify("evidence", { validator: validator.index, hex }).then(({ report }) => report.ok, () => false);
      judged.set(key, check);
    }
    return check;
  });
  void Promise.all(checks).then((results) => {
    const holds = results.some((result) => result);
    shown.textContent = holds ? "evidence" : "evidence does not hold";
    shown.className = `pill pill-${holds ? "bad" : "warn"}`;
  });
  return shown;
}

/** Why a validator cannot be called good, as far as its votes were heard. */
export function silenceOf(validator: Validator, tip: { epoch: bigint; view: bigint } | undefined, committee: number, turns?: Turns): string | undefined {
  const { last_vote: last, newest_vote: newest, source } = validator.participation;
  if (!tip || source !== "observed" && last === null) return undefined;
  if (last === null) return "no vote seen";
  const [epoch, view] = [BigInt(last[0]), BigInt(last[1])];
  const most = SILENT_STEPS * BigInt(Math.max(committee, 4));
  // Votes are asked for every few seconds, and the tip may be many views further since.
  const heard = newest === null ? tip : { epoch: BigInt(newest[0]), view: BigInt(newest[1]) };
  const until = heard.epoch < tip.epoch || (heard.epoch === tip.epoch && heard.view < tip.view) ? heard : tip;
  if (epoch > until.epoch || (epoch === until.epoch && steps(turns, view, until.view) <= most)) return undefined;
  if (epoch + 1n === until.epoch && steps(turns, 0n, until.view) < most) return undefined;
  return `no vote since view ${epoch}.${view}`;
}

/** In an epoch that has ended, votes are none that could be missing. */
function standing(app: App, validator: Validator, epoch: bigint): HTMLElement[] {
  const marks: HTMLElement[] = [];
  if (validator.evidence.length > 0) marks.push(evidencePill(app, validator));
  if (validator.blocked.length > 0) marks.push(pill(`blocked by ${validator.blocked.length}`, "bad"));
  const tip = app.chain.newest(1)[0]?.header;
  const silent = tip && tip.epoch > epoch && app.verifier.canChange ? undefined : silenceOf(validator, tip, app.chain.committee(epoch), tip && app.chain.turns(tip.epoch));
  if (silent !== undefined) marks.push(pill(silent, "bad"));
  else if (app.chain.silence().state === "stands") marks.push(pill("the chain stands", "warn"));
  return marks.length > 0 ? marks : [pill("good", "ok")];
}

/** Where figures of participation come from. */
const source = (validator: Validator | undefined): string =>
  validator?.participation.source === "certificate" ? "participation: how many certificates name the validator; each names the first quorum that voted" : "participation: the newest vote that an upstream has heard";

function participation({ participation: { percent, signed, of, last_vote: last } }: Validator): HTMLElement {
  if (percent === null) {
    return h("span", { class: "quiet" }, last === null ? "–" : `voted in view ${last[0]}.${last[1]}`);
  }
  const title = signed === null || of === null ? "" : `${signed} of ${of} certificates`;
  const filled = h("span", {});
  filled.style.width = `${Math.min(100, Math.max(0, percent))}%`;
  const bar = h("span", { class: "meter", role: "meter", "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": percent.toFixed(1), "aria-label": `Participation ${percent.toFixed(1)} percent` }, filled);
  return h("span", { class: "meter-line", title }, bar, `${percent.toFixed(1)} %`);
}

type Standing = [string, "ok" | "bad" | "warn" | "plain"];

/** Whether validators of an epoch are those that this page has verified. The places are those of `listed`. */
function agreement(app: App, epoch: bigint, listed: Validator[], isWhole: boolean): Standing {
  const pinned = app.trust.pinned?.trust;
  if (!pinned) return ["no trust is pinned yet", "plain"];
  const set = app.verifier.validators(epoch);
  if (!set) return epoch < pinned.epoch ? [`the pinned trust begins at epoch ${pinned.epoch}`, "warn"] : ["not verified yet", "plain"];
  const what = set.epoch === pinned.epoch ? "in the pinned trust" : `proven from epoch ${set.epoch} on`;
  const agrees = (!isWhole || listed.length === set.members.length) && listed.every(({ index, identity, vote_key: key }) => {
    const own = set.members[index];
    return own !== undefined && own.identity === identity && own.voteKey === key;
  });
  return agrees ? [`as ${what}`, "ok"] : [`not as ${what}`, "bad"];
}

/** The epoch that an address asks for. */
const epochOf = (query: URLSearchParams): string | undefined => /^\d{1,20}$/.exec(query.get("epoch") ?? "")?.[0];

export function validatorsView(app: App, query: URLSearchParams): View {
  const wanted = epochOf(query);
  const place = h("div", {}, wanted === undefined ? loading() : "");
  const list = h("div", {}, loading());
  const change = h("div", {});
  const agrees = h("span", {});
  const element = h("div", {}, heading("Validators"), place, list, change);
  let shown: Validators | undefined;
  const view: View = { title: "Validators", element, update };

  /** More changes may have been verified since the last look. */
  function update(): void {
    if (!shown) return;
    const [text, kind] = agreement(app, BigInt(shown.epoch), shown.data, true);
    if (agrees.textContent !== text) fill(agrees, pill(text, kind));
    const set = app.verifier.validators(BigInt(shown.epoch));
    const name = set?.report ? set.epoch.toString() : "";
    if (change.dataset["epoch"] === name) return;
    change.dataset["epoch"] = name;
    const card = checkCard(`The change to the validators from epoch ${name} on`, "handover");
    if (set?.report) card.show(set.report);
    fill(change, set?.report ? card.element : "");
  }

  /** Links to the epochs around it, where they can have other validators. */
  function showSteps(epoch: bigint): void {
    const newest = app.chain.newest(1)[0]?.header.epoch ?? epoch;
    const before = [view.previous, view.next].join();
    view.previous = app.verifier.canChange && epoch > 0n ? `#/validators?epoch=${epoch - 1n}` : undefined;
    view.next = app.verifier.canChange && epoch < newest ? `#/validators?epoch=${epoch + 1n}` : undefined;
    const step = (href: string | undefined, label: string, name: "left" | "right") =>
      href ? h("a", { class: "button", href, "aria-label": label, title: label }, icon(name)) : "";
    if ([view.previous, view.next].join() === before) return;
    fill(element.querySelector<HTMLElement>(".heading-aside")!, step(view.previous, "The epoch before", "left"), step(view.next, "The epoch after", "right"));
  }

  async function show(signal: AbortSignal): Promise<void> {
    const path = `/v1/validators${wanted === undefined ? "" : `?epoch=${wanted}`}`;
    const [cells, validators] = await Promise.all([wanted === undefined ? newestViews(app, signal) : undefined, app.api.get<Validators>(path, signal)]);
    const epoch = BigInt(validators.epoch);
    await app.verifier.follow(app.api, epoch);
    const at = place.contains(document.activeElement) ? (document.activeElement as HTMLElement).getAttribute("href") : null;
    if (cells) fill(place, gridSection(cells, unitOf(app.chain.turns(epoch))));
    if (at !== null) place.querySelector<HTMLElement>(`a[href="${at}"]`)?.focus();
    const link = (index: number) => `#/validator/${index}${app.verifier.canChange ? `?epoch=${epoch}` : ""}`;
    const rows = validators.data.map((validator) =>
      line(
        ["", h("a", { class: "leader", href: link(validator.index) }, dot(validator.index), String(validator.index))],
        ["full", hashLink(validator.identity, link(validator.index))],
        ["number", count(validator.led)],
        ["number", count(validator.blocks)],
        ["number", count(validator.missed)],
        ["number wide", count(validator.nullified)],
        ["full", participation(validator)],
        ["full", ...standing(app, validator, epoch)],
      ),
    );
    fill(
      list,
      h(
        "section",
        { class: "card card-flush" },
        h("div", { class: "card-head" }, h("h2", {}, `Epoch ${validators.epoch}`), agrees, h("span", { class: "quiet" }, `${app.chain.protocol === undefined ? "" : `${app.chain.protocol}, `}${validators.scheme}; a quorum is ${validators.quorum} of ${validators.data.length}; ${source(validators.data[0])}`)),
        table("Validators of the epoch", ["Place", "Identity", "Led|number", "Blocks|number", "Missed|number", "Nullified|number wide", "Participation", "Standing"], rows),
      ),
    );
    shown = validators;
    showSteps(epoch);
    update();
  }

  view.close = repeat(REFRESH_MS, show, (error) => {
    if (list.querySelector("table") === null) fill(list, problem("The validators cannot be shown.", error));
  });
  return view;
}

export function validatorView(app: App, which: string, query: URLSearchParams): View {
  const gone = new AbortController();
  const content = h("div", {}, loading());
  // The server's trust may come after this view.
  const trusted = h("span", {});
  let shown: { validator: Validator; epoch: bigint } | undefined;
  const update = () => {
    if (!shown) return;
    const [text, kind] = agreement(app, shown.epoch, [shown.validator], false);
    if (trusted.textContent !== text) fill(trusted, pill(text, kind));
  };
  const element = h("div", {}, heading(/^\d+$/.test(which) ? `Validator ${which}` : "Validator"), content);

  async function show(): Promise<void> {
    // An index is another validator's in another epoch.
    const asked = epochOf(query) ?? (await app.api.get<Validators>("/v1/validators", gone.signal)).epoch;
    const epoch = BigInt(asked);
    const validator = await app.api.get<Validator>(`/v1/validators/${which}?epoch=${epoch}`, gone.signal);
    await app.verifier.follow(app.api, epoch);
    shown = { validator, epoch };
    update();
    fill(
      content,
      h(
        "section",
        { class: "card" },
        h("div", { class: "card-head" }, h("h2", {}, "Validator"), trusted),
        facts(
          ["Place", h("span", { class: "leader" }, dot(validator.index), String(validator.index)), h("span", { class: "quiet" }, ` in epoch ${epoch}`)],
          ["Identity", fullHash(validator.identity, "the identity")],
          ["Vote key", fullHash(validator.vote_key, "the vote key")],
          ["Account", h("a", { href: `#/account/${validator.identity}` }, "fees that it earned")],
          ["Led", `${count(validator.led)} ${unitOf(app.chain.turns(epoch))}: ${count(validator.blocks)} blocks, ${count(validator.missed)} missed; a nullification was seen of ${count(validator.nullified)}`],
          ["Participation", participation(validator)],
          ["Standing", ...standing(app, validator, epoch)],
          ...validator.blocked.map((entry): [string, string] => ["Blocked", `${words(entry.reason)}, says ${entry.by}`]),
          ...validator.evidence.map((entry): [string, Node] => ["Evidence", h("a", { href: "#/faults" }, `${words(entry.conflict)} in view ${entry.epoch}.${entry.view}`)]),
        ),
      ),
    );
  }

  show().catch((error: unknown) => {
    if (!gone.signal.aborted) fill(content, problem("This validator cannot be shown.", error));
  });
  return { title: `Validator ${which}`, element, update, close: () => gone.abort() };
}
