// One account, with its balance proven under a certified state root.

import type { App, View } from "../app.ts";
import type { AccountAnswer, BlockTransaction, Page } from "../data/types.ts";
import { fill, h } from "../ui/dom.ts";
import { age, bare, count, moment } from "../ui/format.ts";
import { accountLink, checkCard, command, facts, fullHash, hashLink, heading, line, loading, outcomePill, pill, problem, saveButton, table } from "../ui/parts.ts";
import { rawBytes } from "./block.ts";

/** The least time between two looks at an account that has new transactions. */
const REFRESH_MS = 1_500;

export function accountView(app: App, identity: string, query: URLSearchParams): View {
  const gone = new AbortController();
  const content = h("div", {}, h("p", { class: "quiet", role: "status" }, "Waiting for a proof: it comes with one of the next blocks…"));
  const history = h("div", {}, loading());
  const element = h("div", {}, heading("Account"), content, h("section", { class: "card card-flush" }, h("div", { class: "card-head" }, h("h2", {}, "Transactions")), history));

  async function showState(): Promise<void> {
    const answer = await app.api.get<AccountAnswer>(`/v1/accounts/${identity}`, gone.signal);
    const { proof } = answer;
    const found = await app.verify("account", {
      identity,
      balance: answer.balance,
      nonce: answer.nonce,
      exists: answer.exists,
      proof: proof.encoded,
      header: proof.anchor.header,
      certificate: proof.anchor.certificate,
    });
    const card = checkCard("State proof");
    card.show(found.report);
    if (!found.report.ok) app.chain.refuse(`account ${bare(identity).slice(0, 16)}`, `#/account/${identity}`, found.report);
    const { header, account } = found;
    const old = header ? `state after block ${count(header.executedHeight)}, ${age(Date.now() - Number(header.timestampMs))} old` : "";
    fill(
      content,
      h(
        "div",
        { class: "columns" },
        h(
          "section",
          { class: "card" },
          h("div", { class: "card-head" }, h("h2", {}, "State"), h("span", { class: "quiet" }, old)),
          facts(
            ["Identity", fullHash(identity, "the identity")],
            ["Balance", h("strong", { class: "big" }, count(account?.balance ?? 0n)), account ? "" : h("span", { class: "quiet" }, " proven to hold nothing: it was never paid")],
            ["Next nonce", count(account?.nonce ?? 0n)],
            account?.bond && ["Stake", count(account.bond.stake), h("span", { class: "quiet" }, account.bond.leaving > 0n ? ` and ${count(account.bond.leaving)} that is held until epoch ${account.bond.leavesAt}` : "")],
            account?.bond && ["Vote key", fullHash(account.bond.voteKey, "the vote key"), h("span", { class: "quiet" }, " of its bond")],
            header && ["Named by", h("a", { href: `#/block/${header.height}` }, `block ${count(header.height)}`)],
          ),
          h("h3", {}, "Verify it elsewhere"),
          command(`quorate account ${bare(identity)} --proof --trust trust.json`),
        ),
        card.element,
      ),
      h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Bytes"), saveButton("Answer", `account-${bare(identity).slice(0, 16)}.json`, () => JSON.stringify(answer, null, 2), "application/json")), rawBytes("Proof", proof.encoded), rawBytes("Header", proof.anchor.header), rawBytes("Certificate", proof.anchor.certificate)),
    );
  }

  async function showHistory(): Promise<void> {
    const before = query.get("before");
    const page = await app.api.get<Page<BlockTransaction>>(`/v1/accounts/${identity}/transactions?limit=25${before === null ? "" : `&before=${before}`}`, gone.signal);
    const next = page.next === null ? undefined : /before=([\d.]+)/.exec(page.next)?.[1];
    const rows = page.data.map((transaction) => {
      const isSender = transaction.role !== "receiver";
      const other = isSender ? transaction.to : transaction.sender;
      const moved = transaction.outcome === "applied" && transaction.role !== "both";
      const paid = isSender && transaction.outcome !== "wrong_nonce" && transaction.outcome !== "cannot_pay_fee";
      return line(
        ["number", h("a", { href: `#/block/${transaction.height}` }, count(transaction.height))],
        ["", hashLink(transaction.id, `#/tx/${transaction.id}`)],
        ["", pill(transaction.role === "both" ? "to itself" : isSender ? "sent" : "received", "plain")],
        ["full", accountLink(other, transaction.operation)],
        ["number", moved ? `${isSender ? "−" : "+"}${count(transaction.amount)}` : h("span", { class: "quiet", title: "nothing was moved" }, count(transaction.amount))],
        ["number", paid ? `−${count(transaction.fee)}` : ""],
        ["", outcomePill(transaction.outcome, transaction.outcome_checked)],
        ["when wide", moment(BigInt(transaction.timestamp_ms))],
      );
    });
    fill(
      history,
      table("Transactions of the account, newest first", ["Block|number", "Id", "Role", "Other side", "Amount|number", "Fee|number", "Outcome", "Time|wide"], rows),
      rows.length === 0 && h("p", { class: "quiet pad" }, "No transaction of this account is in the index."),
      h("p", { class: "quiet pad" }, "This list is the server’s word; each transaction’s own page proves that it is in a block. Fees that a validator earns as a leader are not in it."),
      h("nav", { class: "pager pad", "aria-label": "Pages" }, before !== null && h("a", { class: "button", href: `#/account/${identity}` }, "Newest"), next !== undefined && h("a", { class: "button", href: `#/account/${identity}?before=${next}` }, "Older")),
    );
  }

  // Its transactions as they become final; the newest page only.
  let due: ReturnType<typeof setTimeout> | undefined;
  const events = query.get("before") === null ? new EventSource(app.api.url(`/v1/stream/sse?account=${bare(identity)}`)) : undefined;
  events?.addEventListener("transaction", () => {
    due ??= setTimeout(() => {
      due = undefined;
      Promise.all([showHistory(), showState()]).catch(() => undefined);
    }, REFRESH_MS);
  });

  showState().catch((error: unknown) => {
    if (!gone.signal.aborted) fill(content, problem("This account’s state cannot be shown.", error));
  });
  showHistory().catch((error: unknown) => {
    if (!gone.signal.aborted) fill(history, problem("Its transactions cannot be shown.", error));
  });
  return { title: "Account", element, close: () => { gone.abort(); clearTimeout(due); events?.close(); } };
}
