// The newest transactions of the chain, and handing over a signed transfer.

import type { App, View } from "../app.ts";
import type { BlockTransaction, Page, SubmissionResults } from "../data/types.ts";
import { fill, h } from "../ui/dom.ts";
import { count, moment, words } from "../ui/format.ts";
import { accountLink, hashLink, heading, line, loading, outcomePill, pill, problem, table } from "../ui/parts.ts";

const LIMIT = 25;

/** The place before which a page begins, as the server names it. */
const placeIn = (path: string | null): string | undefined => (path === null ? undefined : /before=(\d+\.\d+)/.exec(path)?.[1]);

export function transactionsView(app: App, query: URLSearchParams): View {
  const gone = new AbortController();
  const content = h("div", {}, loading());
  const before = query.get("before");
  const until = query.get("until");
  const time = h("input", { type: "datetime-local", id: "until", "aria-label": "Up to this time" });
  const jump = h("form", { class: "inline-form" }, h("label", { for: "until" }, "Up to"), time, h("button", { class: "button" }, "Show"));
  jump.addEventListener("submit", (event) => {
    event.preventDefault();
    const at = new Date((time as HTMLInputElement).value).getTime();
    if (Number.isFinite(at)) location.hash = `#/transactions?until=${at}`;
  });
  const element = h("div", {}, heading("Transactions", jump), content, submitSection(app, gone.signal));

  async function show(): Promise<void> {
    const bound = before !== null ? `&before=${encodeURIComponent(before)}` : until !== null ? `&until_ms=${encodeURIComponent(until)}` : "";
    const page = await app.api.get<Page<BlockTransaction>>(`/v1/transactions?limit=${LIMIT}${bound}`, gone.signal);
    const rows = page.data.map((transaction) =>
      line(
        ["", hashLink(transaction.id, `#/tx/${transaction.id}`)],
        ["number", h("a", { href: `#/block/${transaction.height}` }, count(transaction.height))],
        ["wide", accountLink(transaction.sender)],
        ["", accountLink(transaction.to, transaction.operation)],
        ["number", count(transaction.amount)],
        ["", outcomePill(transaction.outcome, transaction.outcome_checked)],
        ["when", moment(BigInt(transaction.timestamp_ms))],
      ),
    );
    const next = placeIn(page.next);
    fill(
      content,
      h(
        "section",
        { class: "card card-flush" },
        table("Transactions, newest first", ["Id", "Block|number", "From|wide", "To", "Amount|number", "Outcome", "Time"], rows),
        rows.length === 0 && h("p", { class: "quiet pad" }, "No transaction here."),
        h("p", { class: "quiet pad" }, "This list is the server’s word; each transaction’s own page proves that it is in a block. ✓: this server has executed the block itself."),
        h("nav", { class: "pager pad", "aria-label": "Pages" }, (before !== null || until !== null) && h("a", { class: "button", href: "#/transactions" }, "Newest"), next !== undefined && h("a", { class: "button", href: `#/transactions?before=${next}` }, "Older")),
      ),
    );
  }

  show().catch((error: unknown) => {
    if (!gone.signal.aborted) fill(content, problem("The transactions cannot be shown.", error));
  });
  return { title: "Transactions", element, close: () => gone.abort() };
}

/** A form that takes a transfer which was signed elsewhere: no key ever comes to this page. */
function submitSection(app: App, signal: AbortSignal): HTMLElement {
  const text = h("textarea", { id: "signed", rows: "3", spellcheck: "false", autocomplete: "off" }) as HTMLTextAreaElement;
  const said = h("div", { role: "status" });
  const form = h("form", {}, h("label", { for: "signed" }, "A signed transfer in hexadecimal"), text, h("button", { class: "button" }, "Submit"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const digits = text.value.replace(/\s/g, "").replace(/^0x/i, "");
    if (!/^([0-9a-f]{2})+$/i.test(digits)) return fill(said, h("p", { class: "quiet" }, "That is no hexadecimal text."));
    app.api.post<SubmissionResults>("/v1/transactions", { hex: [`0x${digits}`] }, signal).then(
      ({ results: [result] }) => {
        if (!result) return fill(said, h("p", {}, "The server told no result."));
        fill(said, h("p", {}, pill(words(result.state), result.state === "refused" ? "warn" : "plain"), " ", h("a", { href: `#/tx/${result.id}` }, "its page"), h("span", { class: "quiet" }, result.error ? ` ${words(result.error)}` : " says a validator; the page proves it once it is in a block")));
      },
      (error: unknown) => {
        if (!signal.aborted) fill(said, problem("It was not taken.", error));
      },
    );
  });
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Submit a signed transfer"), h("span", { class: "quiet" }, "signed elsewhere: no key comes to this page")), form, said);
}
