// One transaction, followed from its bytes up to the quorum's signature.

import type { App, View } from "../app.ts";
import { ApiError } from "../data/api.ts";
import type { TransactionAnswer, TransactionProof } from "../data/types.ts";
import { fill, h } from "../ui/dom.ts";
import { age, bare, count, moment, words } from "../ui/format.ts";
import { type Fact, checkCard, facts, fullHash, heading, loading, pill, problem, saveButton } from "../ui/parts.ts";
import { hex } from "../verify/bytes.ts";
import { type Operation, REGISTRY, conflict, operationOf } from "../verify/codec.ts";
import { rawBytes } from "./block.ts";

const POLL_MS = 1_000;
const MEMO_CHARACTERS = 120;
const layout = (memoBytes: number): [string, number][] => [
  ["version", 1],
  ["chain tag", 8],
  ["sender", 32],
  ["nonce", 8],
  ["to", 32],
  ["amount", 8],
  ["fee", 8],
  ...(memoBytes > 0 ? ([["memo length", 2], ["memo", memoBytes]] as [string, number][]) : []),
  ["signature", 64],
];

/** What cannot be read, or could turn the text around it: controls, and marks of direction. */
const UNREADABLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffd]/;

/** Whether a memo can be shown as text. Joiners are part of it: scripts and emoji need them. */
export const isReadable = (text: string): boolean => !UNREADABLE.test(text);

/** A memo as text if it is one that can be read, else as digits. It is a stranger's: shown, never followed. */
function memo(bytes: Uint8Array): [string, ...(Node | string)[]] {
  const text = new TextDecoder().decode(bytes);
  const readable = isReadable(text);
  const shown = readable ? text : hex(bytes);
  const whole = h("span", { class: "memo" }, shown);
  // A long one is folded.
  const folded = shown.length > MEMO_CHARACTERS ? h("details", { class: "memo-fold" }, h("summary", {}, `${[...shown].slice(0, MEMO_CHARACTERS).join("")}…`, h("span", { class: "quiet" }, ` ${count(bytes.length)} bytes`)), whole) : whole;
  return ["Memo", folded, h("span", { class: "quiet" }, " the sender's words; nobody has checked them")];
}

/** The fields of an operation. Addresses and names are a stranger's: shown, never followed. */
function operationFacts({ kind, stake, voteKey, address, name, validator, votes }: Operation): Fact[] {
  const [first, second] = votes ?? [];
  return [
    ["Operation", pill(words(kind)), h("span", { class: "quiet" }, " of the staking registry")],
    stake !== undefined && [kind === "report" ? "Stake" : "Takes out", h("strong", {}, count(stake))],
    name !== undefined && ["Name", name || "none"],
    address !== undefined && ["Address", address || "none"],
    voteKey !== undefined && ["Vote key", fullHash(voteKey, "the vote key")],
    validator !== undefined && [kind === "report" ? (stake === undefined ? "Not a validator" : "About") : "Accused", fullHash(validator, "the validator", `#/account/${validator}`)],
    first && second && ["Of", `${words(conflict(first, second) ?? "votes that exclude nothing")} in view ${first.subject.epoch}.${first.subject.view}`],
  ];
}

/** What a validator says of a transaction that is in no block yet. */
export function waiting(answer: TransactionAnswer): string {
  if (answer.state === "dropped") return `a validator kept it no longer${answer.reason ? `: ${words(answer.reason)}` : ""}. Another one may hold it still.`;
  if (answer.waits_for_nonce === undefined) return "waits for a block";
  const left = answer.expires_in_ms === undefined ? "" : `; dropped in ${age(Number(answer.expires_in_ms))} otherwise`;
  return `waits for the sender’s transfer with nonce ${count(answer.waits_for_nonce)}, or for money${left}`;
}

export function transactionView(app: App, id: string): View {
  const gone = new AbortController();
  const content = h("div", {}, loading());
  const element = h("div", {}, heading("Transaction"), content);

  async function show(): Promise<void> {
    const answer = await app.api.get<TransactionAnswer>(`/v1/transactions/${id}`, gone.signal);
    if (answer.state === "pending" || answer.state === "dropped") {
      fill(content, h("section", { class: "card" }, facts(["Id", fullHash(id, "the id")], ["State", pill(answer.state, "warn"), h("span", { class: "quiet" }, ` ${waiting(answer)}`)])));
      setTimeout(() => {
        if (!gone.signal.aborted) start();
      }, POLL_MS);
      return;
    }
    const proof = await app.api.get<TransactionProof>(`/v1/transactions/${id}/proof`, gone.signal);
    const found = await app.verify("transaction", { ...proof, id });
    const card = checkCard("Inclusion");
    card.show(found.report);
    if (!found.report.ok) app.chain.refuse(`transaction ${bare(id).slice(0, 16)}`, `#/tx/${id}`, found.report);
    const { transaction, header } = found;
    if (!transaction || !header) return fill(content, card.element);
    const outcome = answer.outcome ?? "";
    const operation = operationOf(transaction);
    fill(
      content,
      h(
        "div",
        { class: "columns" },
        h(
          "section",
          { class: "card" },
          h("div", { class: "card-head" }, h("h2", {}, operation ? "Operation" : "Transfer")),
          facts(
            ["Id", fullHash(transaction.id, "the id")],
            ["Outcome", pill(words(outcome), outcome === "applied" ? "plain" : "warn"), h("span", { class: "quiet" }, answer.outcome_checked === true ? " this server has executed the block itself, and a final header confirms the state; your browser has verified inclusion only" : " told by a validator; the proof covers inclusion")],
            ...(operation ? operationFacts(operation) : []),
            ["Amount", h("strong", {}, count(transaction.amount))],
            ["Fee", count(transaction.fee)],
            ...(transaction.memo.length > 0 && !operation ? [memo(transaction.memo)] : []),
            ["From", fullHash(transaction.sender, "the sender", `#/account/${transaction.sender}`)],
            ["To", transaction.to === REGISTRY ? h("a", { href: "#/registry" }, "the staking registry") : fullHash(transaction.to, "the receiver", `#/account/${transaction.to}`)],
            ["Nonce", count(transaction.nonce)],
            ["Block", h("a", { href: `#/block/${header.height}` }, count(header.height)), h("span", { class: "quiet" }, ` index ${proof.index} of ${proof.count} ${proof.count === 1 ? "transaction" : "transactions"}, ${moment(header.timestampMs)}`)],
          ),
        ),
        card.element,
      ),
      h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Bytes"), saveButton("Proof", `transaction-${bare(id).slice(0, 16)}.json`, () => JSON.stringify(proof, null, 2), "application/json")), rawBytes("Transaction", proof.transaction, layout(transaction.memo.length)), rawBytes("Header", proof.header), rawBytes("Certificate", proof.finality.certificate)),
    );
  }

  function start(): void {
    show().catch((error: unknown) => {
      if (gone.signal.aborted) return;
      const unknown = error instanceof ApiError && error.status === 404;
      fill(content, problem(unknown ? "Nobody knows this transaction." : "This transaction cannot be shown.", error));
    });
  }

  start();
  return { title: "Transaction", element, close: () => gone.abort() };
}
