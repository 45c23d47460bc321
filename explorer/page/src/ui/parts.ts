// The pieces that several views are made of.

import type { Check, CheckName, Report } from "../verify/checks.ts";
import { ApiError } from "../data/api.ts";
import { fill, h, hidden, icon } from "./dom.ts";
import { bare, duration, shortHash, words } from "./format.ts";
import { REGISTRY } from "../verify/codec.ts";

const TITLES: Record<CheckName, string> = {
  encoding: "The bytes decode",
  asked: "It is what was asked for",
  chain: "It is of the pinned chain",
  hash: "The header hashes to the id",
  body: "The transactions are the header’s",
  included: "The transaction is in the block",
  sender: "The sender has signed it",
  state: "The proof leads to the state root",
  links: "The headers lead to the finalised one",
  certificate: "The certificate is of this very block",
  quorum: "A quorum of the epoch’s validators",
  signature: "The quorum’s signature holds",
  keys: "The new vote keys are valid",
  conflict: "The two votes exclude each other",
  votes: "Both votes are the validator’s",
};

/** What else is verified, and how its steps are called. */
const OTHER_TITLES = {
  block: {},
  view: { certificate: "It says what is shown here" },
  handover: { asked: "It is of the end of the epoch before", certificate: "The certificate is of its last block", state: "The state names these validators" },
} satisfies Record<string, Partial<Record<CheckName, string>>>;

const STATES = {
  passed: { icon: "check", word: "passed" },
  failed: { icon: "cross", word: "failed" },
  skipped: { icon: "skip", word: "not checked" },
} as const;

function checkItem(check: Check, titles: Partial<Record<CheckName, string>>): HTMLElement {
  const { icon: name, word } = STATES[check.state];
  const title = titles[check.name] ?? TITLES[check.name];
  return h(
    "li",
    { class: `check check-${check.state}`, "data-check": check.name, "data-state": check.state },
    icon(name),
    h("div", {}, h("span", { class: "check-title" }, title, hidden(`: ${word}`)), h("span", { class: "check-detail" }, check.detail)),
  );
}

export interface Card {
  element: HTMLElement;
  /** Shows a verification that has ended. */
  show(report: Report): void;
  /** Says why there is none. */
  say(text: string): void;
}

/** A card with a tick for each step of a verification. */
export function checkCard(title: string, of: keyof typeof OTHER_TITLES = "block"): Card {
  const head = h("div", { class: "card-head" }, h("h2", {}, title));
  const verdict = h("p", { class: "verdict verdict-wait", role: "status" }, icon("wait"), "Verifying in your browser…");
  const list = h("ol", { class: "checks" });
  const element = h("section", { class: "card card-checks" }, head, verdict, list);
  const titles = OTHER_TITLES[of];
  return {
    element,
    show(report) {
      verdict.className = `verdict verdict-${report.ok ? "ok" : "bad"}`;
      verdict.dataset["verdict"] = report.ok ? "verified" : "refused";
      const text = report.ok ? `Verified in your browser, in ${duration(report.ms)}` : "Refused: do not believe this answer";
      fill(verdict, icon(report.ok ? "shield" : "alarm"), text);
      fill(list, ...report.checks.map((check) => checkItem(check, titles)));
    },
    say(text) {
      verdict.className = "verdict verdict-wait";
      delete verdict.dataset["verdict"];
      fill(verdict, icon("wait"), text);
      fill(list);
    },
  };
}

/** A button that copies text. */
export function copyButton(text: string, what: string): HTMLElement {
  const button = h("button", { type: "button", class: "icon-button", "aria-label": `Copy ${what}`, title: `Copy ${what}` }, icon("copy"));
  button.addEventListener("click", () => {
    const done = (ok: boolean) => {
      fill(button, icon(ok ? "check" : "cross"));
      setTimeout(() => fill(button, icon("copy")), 1_200);
    };
    if (!navigator.clipboard) return done(false);
    navigator.clipboard.writeText(text).then(() => done(true), () => done(false));
  });
  return button;
}

/** A hash in full, with a button that copies it. */
export function fullHash(text: string, what: string, href?: string): HTMLElement {
  const digits = bare(text);
  const shown = href === undefined ? h("code", { class: "hash" }, digits) : h("a", { class: "hash", href }, digits);
  return h("span", { class: "hash-line" }, shown, copyButton(digits, what));
}

export function hashLink(text: string, href: string): HTMLElement {
  return h("a", { class: "hash", href, title: bare(text) }, shortHash(text));
}

export type Fact = [string, ...(Node | string)[]] | false | undefined;

/** Names and values. */
export function facts(...list: Fact[]): HTMLElement {
  const rows = list.filter((fact): fact is [string, ...(Node | string)[]] => Array.isArray(fact));
  return h("dl", { class: "facts" }, ...rows.map(([name, ...value]) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value))));
}

/** A file that the browser saves. */
export function saveButton(label: string, name: string, content: () => BlobPart, type: string): HTMLElement {
  return h(
    "button",
    {
      type: "button",
      class: "button button-small",
      onclick: () => {
        const url = URL.createObjectURL(new Blob([content()], { type }));
        h("a", { href: url, download: name }).click();
        setTimeout(() => URL.revokeObjectURL(url), 10_000);
      },
    },
    icon("save"),
    label,
  );
}

/** A command to run elsewhere. */
export function command(text: string): HTMLElement {
  return h("div", { class: "command" }, h("code", { tabindex: "0" }, text), copyButton(text, "the command"));
}

export const pill = (text: string, tone: "ok" | "bad" | "warn" | "plain" = "plain"): HTMLElement =>
  h("span", { class: `pill pill-${tone}` }, text);

/** A page's heading, with what stands beside it. */
export function heading(title: string, ...aside: (Node | string)[]): HTMLElement {
  return h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, title), h("div", { class: "heading-aside" }, ...aside));
}

export function problem(title: string, error: unknown): HTMLElement {
  const detail = error instanceof Error ? error.message : String(error);
  // What is not there is no fault of anybody.
  if (error instanceof ApiError && (error.status === 404 || error.status === 410)) {
    return h("div", { class: "notice", role: "status" }, h("div", {}, h("strong", {}, error.status === 404 ? "There is nothing here." : "This is no longer kept."), h("p", {}, detail)));
  }
  return h("div", { class: "notice notice-bad", role: "alert" }, icon("alarm"), h("div", {}, h("strong", {}, title), h("p", {}, detail)));
}

export const loading = (): HTMLElement => h("p", { class: "quiet", role: "status" }, "Loading…");

/** With the epoch where validators can change: an index is another one's, then. */
export const validatorLink = (index: number, epoch?: bigint | string): HTMLElement =>
  h("a", { href: `#/validator/${index}${epoch === undefined ? "" : `?epoch=${epoch}`}`, class: "leader" }, dot(index), `${index}`);

/** A validator's colour. */
export function dot(index: number): HTMLElement {
  return h("span", { class: `dot hue-${index % 12}`, "aria-hidden": "true" });
}

/** Says in each cell what its column is: on narrow screens, lines are shown as cards. */
function labelled<T extends HTMLElement>(table: T): T {
  const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent ?? "");
  for (const line of table.querySelectorAll<HTMLElement>("tbody tr")) {
    [...line.children].forEach((cell, i) => (cell as HTMLElement).setAttribute("data-label", names[i] ?? ""));
  }
  table.classList.add("cards");
  return table;
}

/** A table within a box that scrolls by itself. A column is its name and, after a bar, its classes; or what stands for it. */
export function table(caption: string, columns: (string | Node)[], rows: HTMLElement[], className = ""): HTMLElement {
  const head = columns.map((column) => {
    if (typeof column !== "string") return h("th", { scope: "col" }, column);
    const [name, classes = ""] = column.split("|");
    return h("th", { scope: "col", class: classes }, name);
  });
  return h(
    "div",
    { class: "table-box", tabindex: "0", role: "region", "aria-label": caption },
    labelled(h("table", { class: className }, h("caption", { class: "visually-hidden" }, caption), h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows))),
  );
}

/** A line of a table: its cells, with their classes. */
export const line = (...cells: [string, ...(Node | string)[]][]): HTMLElement => h("tr", {}, ...cells.map(([classes, ...content]) => h("td", { class: classes }, ...content)));

/** An account; the registry's own one leads to what it says, by what is done there. */
export const accountLink = (identity: string, operation?: { kind: string }): HTMLElement =>
  identity === REGISTRY ? h("a", { href: "#/registry" }, operation ? words(operation.kind) : "registry") : hashLink(identity, `#/account/${identity}`);

/** Whether it was executed, with a tick if the server says that it has executed the block itself. */
export const outcomePill = (outcome: string, checked: boolean | undefined): HTMLElement => pill(`${words(outcome)}${checked === true ? " ✓" : ""}`, outcome === "applied" ? "plain" : "warn");

/** Shows something now and every so often, until what it returns is called. */
export function repeat(ms: number, show: (signal: AbortSignal) => Promise<void>, failed: (error: unknown) => void): () => void {
  const gone = new AbortController();
  const start = () => {
    show(gone.signal).catch((error: unknown) => {
      if (!gone.signal.aborted) failed(error);
    });
  };
  start();
  const timer = setInterval(start, ms);
  return () => {
    clearInterval(timer);
    gone.abort();
  };
}
