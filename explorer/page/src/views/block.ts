// One block: what it says, why it is final, what is in it.

import type { App, View } from "../app.ts";
import type { Block, BlockTransaction, Page } from "../data/types.ts";
import { type Certificate, type Header, type Transaction, operationOf } from "../verify/codec.ts";
import { fill, h, icon } from "../ui/dom.ts";
import { bare, bytes, count, moment } from "../ui/format.ts";
import { accountLink, checkCard, command, copyButton, facts, fullHash, hashLink, heading, line, loading, outcomePill, problem, saveButton, table, validatorLink } from "../ui/parts.ts";

const PAGE = 50;

/** The header's fields in the order of its encoding, with their lengths in bytes. */
const LAYOUT: [string, number][] = [
  ["version", 1],
  ["chain id", 32],
  ["epoch", 8],
  ["view", 8],
  ["height", 8],
  ["parent", 32],
  ["parent view", 8],
  ["timestamp", 8],
  ["executed height", 8],
  ["state root", 32],
  ["body root", 32],
];

function certificateLayout(certificate: Certificate): [string, number][] {
  const { committee, signature } = certificate.proof;
  const signers: [string, number][] = committee === undefined ? [] : [["committee size", 2], ["signers’ bitmap", Math.ceil(committee / 8)]];
  return [["version", 1], ["epoch", 8], ["view", 8], ["kind", 1], ["block id", 32], ["scheme", 1], ...signers, ["signature", signature.length]];
}

/** Bytes with each field told apart. */
export function rawBytes(title: string, hex: string, layout?: [string, number][]): HTMLElement {
  const digits = bare(hex);
  let at = 0;
  const parts = layout
    ? layout.map(([name, length], i) => {
        const part = digits.slice(2 * at, 2 * (at + length));
        at += length;
        return h("span", { class: `field field-${i % 2}`, title: name }, h("span", { class: "field-name" }, name), part);
      })
    : [digits];
  return h(
    "details",
    { class: "raw" },
    h("summary", {}, title, h("span", { class: "quiet" }, ` ${count(digits.length / 2)} bytes`)),
    h("div", { class: "raw-bytes", tabindex: "0", role: "region", "aria-label": title }, ...parts),
    copyButton(digits, title.toLowerCase()),
  );
}

function signerList(signers: number[], committee: number): HTMLElement {
  const signed = new Set(signers);
  const places = Array.from({ length: committee }, (_, place) => place);
  return h(
    "ul",
    { class: "signers" },
    ...places.map((place) => h("li", { class: signed.has(place) ? "signed" : "unsigned", title: signed.has(place) ? "signed" : "is not among the signers" }, String(place))),
  );
}

/** The place of the server, as other programs take it. */
const server = (app: App) => app.api.base.replace(/\/$/, "");

export function blockView(app: App, which: string): View {
  const gone = new AbortController();
  const isHeight = /^\d+$/.test(which);
  const title = isHeight ? `Block ${count(which)}` : which === "latest" ? "Newest block" : "Block";
  const content = h("div", {}, loading());
  const card = checkCard("Finality");
  const element = h("div", {}, heading(title), content);
  const view: View = { title, element, close: () => gone.abort() };
  if (isHeight) {
    view.previous = BigInt(which) > 1n ? `#/block/${BigInt(which) - 1n}` : undefined;
    view.next = `#/block/${BigInt(which) + 1n}`;
  }

  async function show(): Promise<void> {
    const block = await app.api.get<Block>(`/v1/blocks/${which}`, gone.signal);
    const asked = isHeight ? { height: BigInt(which) } : which === "latest" ? ("latest" as const) : { id: which };
    const { id, header, finality } = block;
    const found = await app.verify("block", { asked, id, header, block: block.block, finality });
    card.show(found.report);
    if (!found.report.ok) app.chain.refuse(`block ${which}`, `#/block/${which}`, found.report);
    if (!found.header || !found.transactions || !found.certificate) {
      fill(content, card.element, rawBytes("The answer’s header", header));
      return;
    }
    const height = found.header.height;
    view.previous = height > 1n ? `#/block/${height - 1n}` : undefined;
    view.next = height < (app.chain.tip ?? height + 1n) ? `#/block/${height + 1n}` : undefined;
    const step = (href: string | undefined, label: string, name: "left" | "right") =>
      href ? h("a", { class: "button", href, "aria-label": label, title: label }, icon(name)) : "";
    element.firstElementChild!.replaceWith(
      heading(`Block ${count(height)}`, step(view.previous, "The block before", "left"), step(view.next, "The block after", "right")),
    );
    const { epoch } = found.header;
    const leader = validatorLink(app.chain.leaderOf(epoch, found.header.view) ?? block.leader, app.verifier.canChange ? epoch : undefined);
    fill(
      content,
      h("div", { class: "columns" }, summary(found.header, found.transactions, block, leader), card.element),
      certificateSection(app, block, found.header, found.certificate),
      transactionSection(app, found.header, found.transactions, gone.signal),
    );
    if (!found.report.ok) content.prepend(h("div", { class: "notice notice-bad", role: "alert" }, icon("alarm"), h("div", {}, h("strong", {}, "This answer is refused."), h("p", {}, "What is shown below is what the server sent. It is not, or not provably, what you asked for."))));
  }

  show().catch((error: unknown) => {
    if (!gone.signal.aborted) fill(content, problem("This block cannot be shown.", error));
  });
  return view;
}

function summary(header: Header, transactions: Transaction[], block: Block, leader: HTMLElement): HTMLElement {
  const fees = transactions.reduce((sum, transaction) => sum + transaction.fee, 0n);
  return h(
    "section",
    { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, "Header")),
    facts(
      ["Id", fullHash(header.id, "the id")],
      ["Parent", header.height > 1n ? fullHash(header.parent, "the parent’s id", `#/block/${header.parent}`) : "none: the first block"],
      ["View", h("a", { href: `#/view/${header.epoch}.${header.view}` }, `${header.epoch}.${header.view}`), h("span", { class: "quiet" }, ` parent in ${header.parentView}`)],
      ["Leader", leader],
      ["Time", moment(header.timestampMs), h("span", { class: "quiet" }, " leader’s clock")],
      ["Transactions", count(transactions.length), h("span", { class: "quiet" }, ` ${count(fees)} in fees, ${bytes(bare(block.block).length / 2)}`)],
      ["State root", fullHash(header.stateRoot, "the state root"), h("span", { class: "quiet" }, ` after block ${count(header.executedHeight)}`)],
      ["Body root", fullHash(header.bodyRoot, "the body root")],
    ),
  );
}

function certificateSection(app: App, block: Block, header: Header, certificate: Certificate): HTMLElement {
  const { subject, proof } = certificate;
  const last = block.finality.headers.length;
  const verify = `quorate block ${header.height} --verify --trust trust.json`;
  return h(
    "section",
    { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, "Certificate"), h("div", { class: "buttons" }, saveButton("Answer", `block-${header.height}.json`, () => JSON.stringify(block, null, 2), "application/json"))),
    facts(
      ["Says", `finalize ${bare(subject.payload).slice(0, 16)}… in view ${subject.epoch}.${subject.view}`],
      last > 0 && ["Finalised by", h("a", { href: `#/block/${block.finality.finalized_by.height}` }, `block ${count(block.finality.finalized_by.height)}`), h("span", { class: "quiet" }, ` by ${last} hash link${last === 1 ? "" : "s"}`)],
      ["Scheme", proof.scheme, h("span", { class: "quiet" }, proof.signers ? " names its signers" : " one signature of the group; it does not tell who signed")],
      proof.signers !== undefined && ["Signers", signerList(proof.signers, proof.committee ?? 0)],
    ),
    rawBytes("Header", block.header, LAYOUT),
    rawBytes("Certificate", block.finality.certificate, certificateLayout(certificate)),
    ...block.finality.headers.map((text, i) => rawBytes(`Header ${header.height + BigInt(i) + 1n}, after it`, text, LAYOUT)),
    h("h3", {}, "Verify it elsewhere"),
    h("p", { class: "quiet" }, "With a validator’s address and your own trust file, on your own machine:"),
    command(verify),
    h("p", { class: "quiet" }, "The bytes alone, from this server:"),
    command(`curl -sH 'accept: application/octet-stream' ${server(app)}/v1/blocks/${header.height}`),
  );
}

function transactionSection(app: App, header: Header, transactions: Transaction[], signal: AbortSignal): HTMLElement {
  const total = transactions.length;
  const place = h("div", {});
  const outcomes = new Map<number, { outcome: string; checked: boolean }>();
  let from = 0;

  const draw = () => {
    const shown = transactions.slice(from, from + PAGE);
    const rows = shown.map((transaction, i) => {
      const index = from + i;
      const outcome = outcomes.get(index);
      return line(
        ["number", count(index)],
        ["", hashLink(transaction.id, `#/tx/${transaction.id}`)],
        ["wide", accountLink(transaction.sender)],
        ["", accountLink(transaction.to, operationOf(transaction))],
        ["number", count(transaction.amount)],
        ["number wide", count(transaction.fee)],
        ["", outcome === undefined ? "–" : outcomePill(outcome.outcome, outcome.checked)],
      );
    });
    const turn = (by: number, label: string, possible: boolean) =>
      h("button", { type: "button", class: "button", ...(possible ? {} : { disabled: true }), onclick: () => { from += by; draw(); void load(); } }, label);
    fill(
      place,
      table("Transactions of the block", ["#|number", "Id", "From|wide", "To", "Amount|number", "Fee|number wide", "Outcome"], rows),
      total > PAGE &&
        h("nav", { class: "pager pad", "aria-label": "Pages of transactions" }, turn(-PAGE, "Back", from > 0), h("span", { class: "quiet" }, `${count(from)} to ${count(Math.min(total, from + PAGE) - 1)} of ${count(total)}`), turn(PAGE, "On", from + PAGE < total)),
    );
  };

  const load = async () => {
    if (outcomes.has(from)) return;
    const after = from === 0 ? "" : `&after=${from - 1}`;
    try {
      const page = await app.api.get<Page<BlockTransaction>>(`/v1/blocks/${header.height}/transactions?limit=${PAGE}${after}`, signal);
      for (const transaction of page.data) {
        if (transactions[transaction.index]?.id === transaction.id) outcomes.set(transaction.index, { outcome: transaction.outcome, checked: transaction.outcome_checked === true });
      }
      draw();
    } catch {
      // Outcomes are missing, then; the transactions themselves come from the verified block.
    }
  };

  if (total > 0) {
    draw();
    void load();
  } else {
    fill(place, h("p", { class: "quiet pad" }, "No transaction in this block."));
  }
  return h(
    "section",
    { class: "card card-flush" },
    h("div", { class: "card-head" }, h("h2", {}, "Transactions"), h("span", { class: "quiet" }, "decoded from the verified body; outcomes are this server’s word: ✓ if it has executed the block itself")),
    place,
  );
}
