// Who validates, and how the newest views went.

import type { App, View } from "../app.ts";
import type { BlockSummary, Page, Validator, Validators, ViewAnswer } from "../data/types.ts";
import { fill, h } from "../ui/dom.ts";
import { bare, count, shortHash, words } from "../ui/format.ts";
import { dot, facts, fullHash, heading, labelled, loading, pill, problem } from "../ui/parts.ts";

const CELLS = 200;
/** Views without a block that are asked for, one by one. */
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

const cellOf = (view: { epoch: string; view: string; leader: number; state: ViewAnswer["state"]; reason: string | null }): Cell => ({
  epoch: BigInt(view.epoch),
  view: BigInt(view.view),
  leader: view.leader,
  state: view.state,
  reason: view.reason,
});

/** The views of the newest blocks, and what is known of those between them. */
async function newestViews(app: App, signal: AbortSignal): Promise<Cell[]> {
  const first = await app.api.get<Page<BlockSummary>>("/v1/blocks?limit=100", signal);
  const second = first.next === null ? [] : (await app.api.get<Page<BlockSummary>>(first.next, signal)).data;
  const blocks = [...first.data, ...second].reverse();
  const cells: Cell[] = [];
  const asked: Promise<void>[] = [];
  let last: Cell | undefined;
  for (const block of blocks) {
    const cell: Cell = { ...cellOf({ ...block, state: "finalized", reason: null }), height: block.height };
    for (let view = last && last.epoch === cell.epoch ? last.view + 1n : cell.view; view < cell.view; view++) {
      const leader = app.chain.committee > 0 ? Number((view + cell.epoch) % BigInt(app.chain.committee)) : 0;
      const between: Cell = { epoch: cell.epoch, view, leader, state: "skipped", reason: null };
      cells.push(between);
      if (asked.length < MAX_SINGLE) asked.push(app.api.get<ViewAnswer>(`/v1/views/${view}?epoch=${cell.epoch}`, signal).then((found) => { between.state = found.state; between.reason = found.reason; }, () => undefined));
    }
    cells.push(cell);
    last = cell;
  }
  await Promise.all(asked);
  return cells.slice(-CELLS);
}

const STATE_WORDS: Record<Cell["state"], string> = { finalized: "with a final block", nullified: "nullified", skipped: "without one, no certificate seen" };

/** A grid that arrow keys walk through. */
function grid(cells: Cell[]): HTMLElement {
  const links = cells.map((cell) => {
    const outcome = cell.height === undefined ? STATE_WORDS[cell.state] : `block ${count(cell.height)}`;
    const label = `View ${cell.epoch}.${cell.view}, validator ${cell.leader}: ${outcome}${cell.reason ? `, ${words(cell.reason)}` : ""}`;
    return h("a", { href: `#/view/${cell.epoch}.${cell.view}`, class: `cell cell-${cell.state} hue-${cell.leader % 12}`, title: label, "aria-label": label, tabindex: "-1" });
  });
  links.at(-1)?.setAttribute("tabindex", "0");
  const list = h("ul", { class: "grid", "aria-label": "The newest views; move with the arrow keys" }, ...links.map((link) => h("li", {}, link)));
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

function gridSection(cells: Cell[]): HTMLElement {
  const tally = new Map<string, number>();
  for (const { state, reason } of cells) {
    const name = state === "nullified" ? `nullified: ${reason === null ? "reason not known" : words(reason)}` : STATE_WORDS[state];
    tally.set(name, (tally.get(name) ?? 0) + 1);
  }
  const swatch = (name: string) => (name.startsWith("nullified") ? "nullified" : name === STATE_WORDS.finalized ? "finalized" : "skipped");
  const legend = [...tally].map(([name, number]) => h("li", {}, h("span", { class: `cell cell-key cell-${swatch(name)} hue-0`, "aria-hidden": "true" }), `${count(number)} ${name}`));
  const range = cells.length > 0 ? `${cells[0]!.epoch}.${cells[0]!.view} to ${cells.at(-1)!.epoch}.${cells.at(-1)!.view}` : "";
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, `The last ${cells.length} views`), h("span", { class: "quiet" }, range)), grid(cells), h("ul", { class: "legend" }, ...legend));
}

/** A vote of a validator may be so many rounds of leaders old before it counts as silent. */
const SILENT_ROUNDS = 3n;

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
export function silenceOf(validator: Validator, tip: { epoch: bigint; view: bigint } | undefined, committee: number): string | undefined {
  const { last_vote: last, source } = validator.participation;
  if (!tip || source !== "observed" && last === null) return undefined;
  if (last === null) return "no vote seen";
  const [epoch, view] = [BigInt(last[0]), BigInt(last[1])];
  const rounds = SILENT_ROUNDS * BigInt(Math.max(committee, 4));
  if (epoch > tip.epoch || (epoch === tip.epoch && view + rounds >= tip.view)) return undefined;
  if (epoch + 1n === tip.epoch && tip.view < rounds) return undefined;
  return `no vote since view ${epoch}.${view}`;
}

function standing(app: App, validator: Validator): HTMLElement[] {
  const marks: HTMLElement[] = [];
  if (validator.evidence.length > 0) marks.push(evidencePill(app, validator));
  if (validator.blocked.length > 0) marks.push(pill(`blocked by ${validator.blocked.length}`, "bad"));
  const silent = silenceOf(validator, app.chain.newest(1)[0]?.header, app.chain.committee);
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

export function validatorsView(app: App): View {
  const gone = new AbortController();
  const place = h("div", {}, loading());
  const list = h("div", {}, loading());
  const element = h("div", {}, heading("Validators"), place, list);

  async function show(): Promise<void> {
    const [cells, validators] = await Promise.all([newestViews(app, gone.signal), app.api.get<Validators>("/v1/validators", gone.signal)]);
    const at = place.contains(document.activeElement) ? (document.activeElement as HTMLElement).getAttribute("href") : null;
    fill(place, gridSection(cells));
    if (at !== null) place.querySelector<HTMLElement>(`a[href="${at}"]`)?.focus();
    const column = (text: string, className = "") => h("th", { scope: "col", class: className }, text);
    const rows = validators.data.map((validator) =>
      h(
        "tr",
        {},
        h("td", {}, h("a", { class: "leader", href: `#/validator/${validator.index}` }, dot(validator.index), String(validator.index))),
        h("td", { class: "full" }, h("a", { class: "hash", href: `#/validator/${validator.index}`, title: bare(validator.identity) }, shortHash(validator.identity))),
        h("td", { class: "number" }, count(validator.led)),
        h("td", { class: "number" }, count(validator.blocks)),
        h("td", { class: "number" }, count(validator.missed)),
        h("td", { class: "number wide" }, count(validator.nullified)),
        h("td", { class: "full" }, participation(validator)),
        h("td", { class: "full" }, ...standing(app, validator)),
      ),
    );
    fill(
      list,
      h(
        "section",
        { class: "card card-flush" },
        h("div", { class: "card-head" }, h("h2", {}, `Epoch ${validators.epoch}`), h("span", { class: "quiet" }, `${validators.scheme}; a quorum is ${validators.quorum} of ${validators.data.length}; ${source(validators.data[0])}`)),
        h(
          "div",
          { class: "table-box", tabindex: "0", role: "region", "aria-label": "Validators" },
          labelled(h(
            "table",
            {},
            h("caption", { class: "visually-hidden" }, "Validators of the epoch"),
            h("thead", {}, h("tr", {}, column("Place"), column("Identity"), column("Led", "number"), column("Blocks", "number"), column("Missed", "number"), column("Nullified", "number wide"), column("Participation"), column("Standing"))),
            h("tbody", {}, ...rows),
          )),
        ),
      ),
    );
  }

  const start = () =>
    show().catch((error: unknown) => {
      if (!gone.signal.aborted && list.querySelector("table") === null) fill(list, problem("The validators cannot be shown.", error));
    });
  void start();
  const timer = setInterval(() => void start(), REFRESH_MS);
  return {
    title: "Validators",
    element,
    close() {
      clearInterval(timer);
      gone.abort();
    },
  };
}

export function validatorView(app: App, which: string): View {
  const gone = new AbortController();
  const content = h("div", {}, loading());
  // The server's trust may come after this view.
  const trusted = h("span", {});
  let shown: Validator | undefined;
  const update = () => {
    const { pinned } = app.trust;
    const own = shown && pinned?.trust.validators[shown.index];
    const agrees = own !== undefined && own.identity === shown?.identity && own.voteKey === shown.vote_key;
    const [text, kind] = pinned === undefined ? (["no trust is pinned yet", "plain"] as const) : agrees ? (["as in the pinned trust", "ok"] as const) : (["not as in the pinned trust", "bad"] as const);
    if (trusted.textContent !== text) fill(trusted, pill(text, kind));
  };
  const element = h("div", {}, heading(/^\d+$/.test(which) ? `Validator ${which}` : "Validator"), content);

  async function show(): Promise<void> {
    const validator = await app.api.get<Validator>(`/v1/validators/${which}`, gone.signal);
    shown = validator;
    update();
    fill(
      content,
      h(
        "section",
        { class: "card" },
        h("div", { class: "card-head" }, h("h2", {}, "Validator"), trusted),
        facts(
          ["Place", h("span", { class: "leader" }, dot(validator.index), String(validator.index))],
          ["Identity", fullHash(validator.identity, "the identity")],
          ["Vote key", fullHash(validator.vote_key, "the vote key")],
          ["Account", h("a", { href: `#/account/${validator.identity}` }, "fees that it earned")],
          ["Led", `${count(validator.led)} views: ${count(validator.blocks)} blocks, ${count(validator.missed)} missed; a nullification was seen of ${count(validator.nullified)}`],
          ["Participation", participation(validator)],
          ["Standing", ...standing(app, validator)],
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
