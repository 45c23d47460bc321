// All blocks, page by page. One certificate verifies a whole page: the others follow by their hashes.

import type { App, View } from "../app.ts";
import type { BlockCertificate, BlockSummary, Page } from "../data/types.ts";
import { unhex } from "../verify/bytes.ts";
import { HEADER_BYTES, decodeHeader } from "../verify/codec.ts";
import type { Report } from "../verify/checks.ts";
import { fill, h, hidden, icon } from "../ui/dom.ts";
import { bytes, count, duration, moment } from "../ui/format.ts";
import { hashLink, heading, line, loading, problem, table, validatorLink } from "../ui/parts.ts";
import { markCell } from "./live.ts";

const LIMIT = 25;
/** Numbers and sizes of transactions are not in the header. */
export const TOLD = "told by the server; the block’s own page verifies it";

interface Listed {
  page: Page<BlockSummary>;
  /** As many as there are blocks, in the same order. */
  headers: string[];
  top: BlockCertificate | undefined;
}

/** A page of blocks, newest first, with their headers and the first one's certificate. */
async function list(app: App, before: string | undefined, signal: AbortSignal): Promise<Listed> {
  const path = `/v1/blocks?limit=${LIMIT}${before === undefined ? "" : `&before=${before}`}`;
  const certificate = (block: BlockSummary) => app.api.get<BlockCertificate>(`/v1/blocks/${block.height}/certificate`, signal);
  const page = await app.api.get<Page<BlockSummary>>(path, signal);
  const all = await Promise.all(page.data.map(certificate));
  return { page, headers: all.map((found) => found.header), top: all[0] };
}

export function blocksView(app: App, query: URLSearchParams): View {
  const before = query.get("before") ?? undefined;
  const gone = new AbortController();
  const content = h("div", {}, loading());
  const element = h("div", {}, heading("Blocks"), content);
  const view: View = { title: "Blocks", element, close: () => gone.abort() };

  async function show(): Promise<void> {
    const listed = await list(app, before, gone.signal);
    const { page, headers, top } = listed;
    const marks = page.data.map(() => markCell());
    marks.forEach((mark) => mark.set("waiting"));
    const verdict = h("p", { class: "verdict verdict-wait", role: "status" }, icon("wait"), "Verifying this page in your browser…");
    const rows = page.data.map((block, i) => row(app, block, headers[i]!, marks[i]!.element));
    const newest = page.data[0] ? BigInt(page.data[0].height) : 0n;
    const oldest = page.data.at(-1) ? BigInt(page.data.at(-1)!.height) : 0n;
    const tip = BigInt(page.tip ?? newest);
    const newer = newest < tip ? `#/blocks?before=${newest + BigInt(LIMIT) + 1n}` : undefined;
    const older = page.next ? `#/blocks?before=${oldest}` : undefined;
    view.previous = newer;
    view.next = older;
    const link = (href: string | undefined, ...inside: (Node | string)[]) =>
      href ? h("a", { class: "button", href }, ...inside) : h("span", { class: "button button-off", "aria-disabled": "true" }, ...inside);
    fill(
      content,
      verdict,
      h(
        "section",
        { class: "card card-flush" },
        table(`Blocks ${oldest} to ${newest}, newest first`, [hidden("Verified"), "Height|number", "Id", "View|number wide", "Leader", "Txs|number", "Size|number wide", "Time"], rows, "blocks"),
        page.data.length === 0 && h("p", { class: "quiet pad" }, "No block here."),
      ),
      h("nav", { class: "pager", "aria-label": "Pages" }, link(newer ? "#/blocks" : undefined, "Newest"), link(newer, icon("left"), "Newer"), link(older, "Older", icon("right")), !page.next && page.data.length > 0 && h("span", { class: "quiet" }, oldest > 1n ? `History begins at block ${count(oldest)}` : "This is where the chain begins")),
    );
    if (!top) return verdict.remove();
    // The heights that were asked for, not those that came.
    const asked = before !== undefined && BigInt(before) <= tip ? BigInt(before) - 1n : newest;
    const from = asked - BigInt(page.data.length) + 1n;
    const claim = { headers: [...[...headers].reverse(), ...top.headers], certificate: top.certificate, from };
    const { report } = await app.verify("chain", claim);
    marks.forEach((mark) => mark.set(report.ok ? "verified" : "refused"));
    conclude(verdict, report, page.data.length);
    if (!report.ok) app.chain.refuse(`blocks ${oldest} to ${newest}`, location.hash, report);
  }

  show().catch((error: unknown) => {
    if (!gone.signal.aborted) fill(content, problem("These blocks cannot be shown.", error));
  });
  return view;
}

function row(app: App, block: BlockSummary, headerHex: string, mark: HTMLElement): HTMLElement {
  const header = decodeHeader(unhex(headerHex, HEADER_BYTES));
  const told = (text: string) => h("span", { class: "told", title: TOLD }, text);
  const shown = line(
    ["", mark],
    ["number", h("a", { href: `#/block/${header.height}` }, count(header.height))],
    ["", hashLink(header.id, `#/block/${header.id}`)],
    ["number wide", h("a", { href: `#/view/${header.epoch}.${header.view}` }, `${header.epoch}.${header.view}`)],
    ["", validatorLink(app.chain.leaderOf(header.epoch, header.view) ?? block.leader, app.verifier.canChange ? header.epoch : undefined)],
    ["number", told(count(block.transactions))],
    ["number wide", told(bytes(Number(block.bytes)))],
    ["when", moment(header.timestampMs)],
  );
  shown.dataset["height"] = header.height.toString();
  return shown;
}

function conclude(verdict: HTMLElement, report: Report, blocks: number): void {
  const failed = report.checks.find((check) => check.state === "failed");
  verdict.className = `verdict verdict-${report.ok ? "ok" : "bad"}`;
  verdict.dataset["verdict"] = report.ok ? "verified" : "refused";
  const text = report.ok
    ? `${blocks} blocks verified in your browser with one signature check, in ${duration(report.ms)}`
    : `Refused: ${failed?.detail ?? "the check failed"}`;
  fill(verdict, icon(report.ok ? "shield" : "alarm"), text);
}
