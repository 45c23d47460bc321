// One account, with its balance proven under a certified state root.

import type { App, View } from "../app.ts";
import type { AccountAnswer, BlockTransaction, Page } from "../data/types.ts";
import { fill, h } from "../ui/dom.ts";
import { age, bare, count, moment, words } from "../ui/format.ts";
import { checkCard, command, facts, fullHash, hashLink, heading, labelled, loading, pill, problem, saveButton } from "../ui/parts.ts";
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
    const column = (text: string, className = "") => h("th", { scope: "col", class: className }, text);
    const rows = page.data.map((transaction) => {
      const isSender = transaction.role !== "receiver";
      const other = isSender ? transaction.to : transaction.sender;
      const moved = transaction.outcome === "applied" && transaction.role !== "both";
      const paid = isSender && (transaction.outcome === "applied" || transaction.outcome === "insufficient_balance");
      return h(
        "tr",
        {},
        h("td", { class: "number" }, h("a", { href: `#/block/${transaction.height}` }, count(transaction.height))),
        h("td", {}, hashLink(transaction.id, `#/tx/${transaction.id}`)),
        h("td", {}, pill(transaction.role === "both" ? "to itself" : isSender ? "sent" : "received", "plain")),
        h("td", { class: "full" }, hashLink(other, `#/account/${other}`)),
        h("td", { class: "number", ...(moved ? {} : { title: "nothing was moved" }) }, moved ? `${isSender ? "−" : "+"}${count(transaction.amount)}` : h("span", { class: "quiet" }, count(transaction.amount))),
        h("td", { class: "number" }, paid ? `−${count(transaction.fee)}` : ""),
        h("td", {}, pill(`${words(transaction.outcome)}${transaction.outcome_checked === true ? " ✓" : ""}`, transaction.outcome === "applied" ? "plain" : "warn")),
        h("td", { class: "when wide" }, moment(BigInt(transaction.timestamp_ms))),
      );
    });
    fill(
      history,
      h(
        "div",
        { class: "table-box", tabindex: "0", role: "region", "aria-label": "Transactions of the account" },
        labelled(h(
          "table",
          {},
          h("caption", { class: "visually-hidden" }, "Transactions of the account, newest first"),
          h("thead", {}, h("tr", {}, column("Block", "number"), column("Id"), column("Role"), column("Other side"), column("Amount", "number"), column("Fee", "number"), column("Outcome"), column("Time", "wide"))),
          h("tbody", {}, ...rows),
        )),
      ),
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
