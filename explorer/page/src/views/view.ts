// One view: one attempt, by one leader, to extend the chain.

import type { App, View } from "../app.ts";
import type { Block, ViewAnswer } from "../data/types.ts";
import { type Turns, proposedIn, turnAfter, turnOf } from "../verify/protocol.ts";
import { fill, h, icon } from "../ui/dom.ts";
import { count, moment, words } from "../ui/format.ts";
import { type Fact, checkCard, facts, fullHash, heading, loading, pill, problem, validatorLink } from "../ui/parts.ts";
import { rawBytes } from "./block.ts";

const MEANING: Record<ViewAnswer["state"], string> = {
  finalized: "brought a final block",
  nullified: "brought nothing: a quorum gave it up",
  skipped: "brought no final block; nobody has shown this explorer why",
};

/** Of a block that takes several views. */
const PHASES = ["prepare", "pre-commit", "commit"];

const meaning = (state: ViewAnswer["state"], turns: Turns | undefined): string =>
  state === "skipped" && turns && turns.length > 1n ? "brought no final block: its turn may have ended before it" : MEANING[state];

/** The view after; after a view that ends its leader’s turn, the first of the next one. */
export function viewAfter(turns: Turns | undefined, view: bigint, state: ViewAnswer["state"]): bigint {
  if (!turns) return view + 1n;
  // Where each view has a block, none follows a missing one in the same turn.
  const isLast = state === "nullified" || (state === "skipped" && turns.viewsOfABlock === 1n);
  return isLast ? turnAfter(turns, view) : view + 1n;
}

/** A view’s place in its leader’s turn, where that has several. */
function placeIn(turns: Turns, epoch: bigint, view: bigint): Fact[] {
  const { length, viewsOfABlock: phases } = turns;
  if (length === 1n) return [];
  const first = turnOf(turns, view);
  const link = (number: bigint) => h("a", { href: `#/view/${epoch}.${number}` }, `${epoch}.${number}`);
  const phase = view - proposedIn(turns, view);
  return [
    ["Turn", link(first), " to ", link(first + length - 1n), h("span", { class: "quiet" }, " led by one validator")],
    phases > 1n && ["Phase", PHASES[Number(phase)] ?? "", h("span", { class: "quiet" }, ` ${phase + 1n} of ${phases} for one block`)],
  ];
}

export function viewView(app: App, which: string): View {
  const gone = new AbortController();
  const [epoch, number] = which.includes(".") ? (which.split(".", 2) as [string, string]) : [undefined, which];
  const content = h("div", {}, loading());
  const element = h("div", {}, heading(`View ${which}`), content);
  const view: View = { title: `View ${which}`, element, close: () => gone.abort() };

  async function show(): Promise<void> {
    const answer = await app.api.get<ViewAnswer>(`/v1/views/${number}${epoch === undefined ? "" : `?epoch=${epoch}`}`, gone.signal);
    const [e, v] = [BigInt(answer.epoch), BigInt(answer.view)];
    view.previous = v > 1n ? `#/view/${e}.${v - 1n}` : undefined;
    await app.verifier.follow(app.api, e);
    const turns = app.chain.turns(e);
    view.next = `#/view/${e}.${viewAfter(turns, v, answer.state)}`;
    const leader = app.chain.leaderOf(e, v) ?? answer.leader;
    element.firstElementChild!.replaceWith(
      heading(
        `View ${e}.${v}`,
        view.previous ? h("a", { class: "button", href: view.previous, "aria-label": "The view before", title: "The view before" }, icon("left")) : "",
        h("a", { class: "button", href: view.next, "aria-label": "The view after", title: "The view after" }, icon("right")),
      ),
    );
    const card = checkCard(answer.state === "nullified" ? "Nullification" : "Finality", "view");
    const tone = answer.state === "finalized" ? "ok" : answer.state === "nullified" ? "bad" : "warn";
    fill(
      content,
      h(
        "div",
        { class: "columns" },
        h(
          "section",
          { class: "card" },
          h("div", { class: "card-head" }, h("h2", {}, "View")),
          facts(
            ["State", pill(answer.state, tone), h("span", { class: "quiet" }, ` ${meaning(answer.state, turns)}`)],
            answer.state !== "finalized" && ["Reason", answer.reason === null ? "not known" : words(answer.reason)],
            ["Leader", validatorLink(leader, app.verifier.canChange ? e : undefined), turns ? h("span", { class: "quiet" }, ` (${turns.length === 1n ? "view" : `⌈view / ${turns.length}⌉`} + epoch) mod validators`) : ""],
            ...(turns ? placeIn(turns, e, v) : []),
            answer.block !== null && ["Block", h("a", { href: `#/block/${answer.block.height}` }, count(answer.block.height))],
            answer.block !== null && ["Id", fullHash(answer.block.id, "the id", `#/block/${answer.block.id}`)],
            answer.block !== null && ["Time", moment(BigInt(answer.block.timestamp_ms))],
          ),
        ),
        card.element,
      ),
      answer.certificate !== null ? h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Bytes")), rawBytes("Certificate", answer.certificate)) : "",
    );
    if (answer.block !== null) {
      const { id, header, finality } = await app.api.get<Block>(`/v1/blocks/${answer.block.height}`, gone.signal);
      const { report, header: found } = await app.verify("block", { asked: { height: BigInt(answer.block.height) }, id, header, finality });
      const proposed = proposedIn(app.verifier.turns(e), v);
      if (found && (found.view !== proposed || found.epoch !== e)) {
        const detail = `asked for view ${e}.${v}, the block is of view ${found.epoch}.${found.view}`;
        report.ok = false;
        report.checks = report.checks.map((check) => (check.name === "asked" ? { ...check, state: "failed", detail } : check));
      }
      card.show(report);
    } else if (answer.certificate !== null) {
      const { report } = await app.verify("view", { epoch: e, view: v, kind: "nullify", certificate: answer.certificate });
      card.show(report);
      if (!report.ok) app.chain.refuse(`nullification of view ${e}.${v}`, `#/view/${e}.${v}`, report);
    } else {
      card.say("There is no certificate of this view to verify.");
    }
  }

  show().catch((error: unknown) => {
    if (!gone.signal.aborted) fill(content, problem("This view cannot be shown.", error));
  });
  return view;
}
