// Who did wrong, as far as anybody can tell: validators, upstreams, and the server itself.

import type { App, View } from "../app.ts";
import type { Evidence, Status, Validators } from "../data/types.ts";
import { fill, h, icon } from "../ui/dom.ts";
import { bare, count, moment, words } from "../ui/format.ts";
import { checkCard, heading, loading, pill, problem, repeat, saveButton, validatorLink } from "../ui/parts.ts";
import { rawBytes } from "./block.ts";

const REFRESH_MS = 5_000;

function evidenceCard(app: App, evidence: Evidence): HTMLElement {
  const card = checkCard(`Validator ${evidence.validator}: ${words(evidence.conflict)} in view ${evidence.epoch}.${evidence.view}`);
  const { validator, hex } = evidence;
  app.verify("evidence", { validator, hex }).then(
    ({ report }) => card.show(report),
    () => card.say("Not verified: there is no trust to verify it against."),
  );
  const file = { id: bare(evidence.id), validator, conflict: evidence.conflict, epoch: evidence.epoch, view: evidence.view, hex: bare(hex) };
  card.element.append(rawBytes("Both votes", hex), saveButton("Save", `evidence-${bare(evidence.id).slice(0, 16)}.json`, () => JSON.stringify(file, null, 2), "application/json"));
  return card.element;
}

export function faultsView(app: App): View {
  const refusals = h("div", {});
  const blocked = h("div", {}, loading());
  const evidence = h("div", { class: "stack" });
  const upstreams = h("div", {});
  const section = (title: string, aside: string, content: HTMLElement) =>
    h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, title), h("span", { class: "quiet" }, aside)), content);
  const element = h(
    "div",
    {},
    heading("Faults"),
    section("Refused here", "answers of this server that did not verify in your browser", refusals),
    section("Blocked validators", "by whom, and why", blocked),
    h("h2", { class: "section-title" }, "Evidence"),
    evidence,
    section("Upstreams", "the validators that the explorer follows", upstreams),
  );
  let shown = "";
  let drawn = -1;

  function update(): void {
    const { refusals: list } = app.chain;
    if (drawn === (list[0]?.at ?? 0)) return;
    drawn = list[0]?.at ?? 0;
    if (list.length === 0) return fill(refusals, h("p", { class: "calm" }, icon("check"), "Nothing was refused."));
    fill(
      refusals,
      h(
        "ul",
        { class: "plain-list" },
        ...list.map((refusal) => {
          const failed = refusal.report.checks.find((check) => check.state === "failed");
          return h("li", { "data-refused": refusal.what }, pill("refused", "bad"), " ", h("a", { href: refusal.href }, refusal.what), h("span", {}, ` – ${failed?.detail ?? ""}`), h("span", { class: "quiet" }, ` ${moment(refusal.at)}`));
        }),
      ),
    );
  }

  async function show(signal: AbortSignal): Promise<void> {
    const [validators, status] = await Promise.all([app.api.get<Validators>("/v1/validators", signal), app.api.get<Status>("/v1/status", signal)]);
    const key = JSON.stringify([validators.data.map((v) => [v.blocked, v.evidence]), status.upstreams.map((u) => [u.url, u.state, u.error])]);
    const bad = validators.data.filter((validator) => validator.blocked.length > 0);
    if (key === shown) return;
    shown = key;
    fill(
      blocked,
      bad.length === 0
        ? h("p", { class: "calm" }, icon("check"), "Nobody is blocked.")
        : h("ul", { class: "plain-list" }, ...bad.flatMap((validator) => validator.blocked.map((entry) => h("li", {}, validatorLink(validator.index), pill(words(entry.reason), "bad"), h("span", { class: "quiet" }, ` by ${entry.by}`))))),
    );
    const all = validators.data.flatMap((validator) => validator.evidence);
    fill(evidence, all.length === 0 ? h("section", { class: "card" }, h("p", { class: "calm" }, icon("check"), "There is no evidence of conflicting votes.")) : all.map((each) => evidenceCard(app, each)));
    const tones = { following: "ok", standby: "plain", failing: "warn", lagging: "warn", lying: "bad" } as const;
    fill(
      upstreams,
      h(
        "ul",
        { class: "plain-list" },
        ...status.upstreams.map((upstream) =>
          h("li", {}, pill(upstream.state, tones[upstream.state] ?? "plain"), " ", h("code", {}, upstream.url), h("span", { class: "quiet" }, upstream.height === null ? "" : ` at block ${count(upstream.height)}`), upstream.error ? h("span", {}, ` – ${upstream.error}`) : ""),
        ),
      ),
    );
  }

  const close = repeat(REFRESH_MS, show, (error) => {
    if (shown === "") fill(blocked, problem("This server does not tell.", error));
  });
  return { title: "Faults", element, update, close };
}
