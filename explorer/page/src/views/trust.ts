// What is pinned, which servers are asked, and whether they agree.

import type { App, View } from "../app.ts";
import { parseTrust, quorum, trustJson } from "../verify/trust.ts";
import { fill, h, icon } from "../ui/dom.ts";
import { age, bare, count, moment, shortHash } from "../ui/format.ts";
import { copyButton, dot, facts, fullHash, heading, pill, problem, saveButton } from "../ui/parts.ts";

/** A fingerprint in groups of eight, to be compared by eye. */
export function fingerprintBlock(text: string): HTMLElement {
  const groups = bare(text).match(/.{8}/g) ?? [];
  return h("span", { class: "fingerprint" }, ...groups.map((group) => h("code", {}, group)), copyButton(bare(text), "the fingerprint"));
}

export function trustView(app: App): View {
  const pinned = h("div", {});
  const change = h("div", {});
  const servers = h("div", {});
  const element = h("div", {}, heading(__STANDALONE__ ? "Trust and servers" : "Trust"), pinned, change, servers);

  function showPinned(): void {
    const { pinned: pin, offered, error, isNew } = app.trust;
    const notices: HTMLElement[] = [];
    if (error !== undefined) notices.push(problem("The pinned keys cannot be used.", error));
    if (pin && offered) {
      notices.push(
        h(
          "div",
          { class: "notice notice-bad", role: "alert" },
          icon("alarm"),
          h(
            "div",
            {},
            h("strong", {}, "The server gives another trust file than the one that is pinned."),
            h("p", {}, "Its fingerprint:"),
            fingerprintBlock(offered.fingerprint),
            h("p", {}, "Everything is still verified against the pinned one. A chain’s trust never changes by itself: accept this only if you know from elsewhere why it should."),
            h("button", { type: "button", class: "button button-bad", onclick: () => void app.pin(offered.trust, "the server, accepted after a change") }, "Pin the server’s trust instead"),
          ),
        ),
      );
    }
    if (!pin) {
      fill(pinned, ...notices, h("div", { class: "notice notice-warn" }, icon("alarm"), h("div", {}, h("strong", {}, "Nothing is pinned yet."), h("p", {}, "Give the chain’s trust.json below: the file that was made with its genesis file."))));
      return;
    }
    const { trust, fingerprint, since, source } = pin;
    const followed = app.verifier.newest();
    fill(
      pinned,
      ...notices,
      h(
        "section",
        { class: "card" },
        h("div", { class: "card-head" }, h("h2", {}, "Pinned"), pill(isNew ? "pinned in this visit" : "pinned", isNew ? "warn" : "ok")),
        facts(
          ["Fingerprint", fingerprintBlock(fingerprint)],
          ["Chain", trust.name],
          ["Chain id", fullHash(trust.chainId, "the chain’s id")],
          ["Protocol", trust.protocol],
          ["Scheme", trust.scheme, h("span", { class: "quiet" }, trust.scheme === "bls-threshold" ? " one group key" : trust.epoch > 0n ? " each validator’s own key" : " each validator’s own key, possession proven")],
          trust.groupKey !== undefined && ["Group key", fullHash(trust.groupKey, "the group key")],
          ["Validators", `${trust.validators.length}, a quorum is ${quorum(trust.validators.length)}`, trust.epochBlocks === undefined ? "" : h("span", { class: "quiet" }, ` from epoch ${count(trust.epoch)} on; they can change every ${count(trust.epochBlocks)} blocks`)],
          trust.epochBlocks !== undefined && ["Followed", followed ? `${count(followed.changes)} ${followed.changes === 1 ? "change" : "changes"} verified: ${followed.trust.validators.length} validators from epoch ${count(followed.trust.epoch)} on` : "not yet"],
          ["Pinned", `${moment(since)}, from ${source}`],
        ),
        h("details", { class: "raw" }, h("summary", {}, "Validators"), h("ol", { class: "plain-list", start: 0 }, ...trust.validators.map((validator, place) => h("li", {}, dot(place), ` ${place} `, h("code", { class: "hash" }, bare(validator.identity)))))),
        h(
          "p",
          { class: "prose" },
          __STANDALONE__
            ? "This page belongs to no server: it verifies what any of them says against this file."
            : "This page came from the server whose answers it verifies, so it can show mistakes and a change of trust, but not protect you from a server that sends you another page. The page as a single file, with your own trust.json, does that.",
        ),
        h("p", { class: "prose" }, "A certificate proves that a block is final. It does not prove that the block is new: watch the tip’s age, and compare servers."),
        h(
          "div",
          { class: "buttons" },
          saveButton("trust.json", "trust.json", () => trustJson(trust), "application/json"),
          followed && followed.changes > 0 && saveButton("trust.json, moved forward", "trust.json", () => trustJson(followed.trust), "application/json"),
          h("button", { type: "button", class: "button button-small", onclick: () => app.forget() }, "Forget it"),
        ),
      ),
    );
  }

  function showChange(): void {
    const text = h("textarea", { id: "trust-text", rows: 4, spellcheck: "false", autocomplete: "off", placeholder: '{ "name": "…", "chain_id": "…", … }' });
    const said = h("div", { role: "status" });
    const use = (content: string, source: string) => {
      try {
        parseTrust(content);
      } catch (error) {
        fill(said, problem("This is no trust file.", error));
        return;
      }
      app.pin(content, source).catch((error: unknown) => fill(said, problem("This trust file cannot be used.", error)));
    };
    const file = h("input", { type: "file", id: "trust-file", accept: ".json,application/json" });
    file.addEventListener("change", () => {
      const chosen = file.files?.[0];
      if (chosen) void chosen.text().then((content) => use(content, `the file ${chosen.name}`));
    });
    fill(
      change,
      h(
        "section",
        { class: "card" },
        h("div", { class: "card-head" }, h("h2", {}, app.trust.pinned ? "Pin another" : "Pin a trust file")),
        h("div", { class: "form-line" }, h("label", { for: "trust-file" }, "From a file"), file),
        h("div", { class: "form-line" }, h("label", { for: "trust-text" }, "Or pasted"), text, h("button", { type: "button", class: "button", onclick: () => use(text.value, "pasted text") }, "Pin it")),
        said,
      ),
    );
  }

  const rows = h("div", {});

  function showServers(): void {
    const said = h("div", { role: "status" });
    const address = h("input", { type: "text", id: "server-address", inputmode: "url", autocomplete: "off", spellcheck: "false", placeholder: "https://explorer.example" });
    const form = h("form", { class: "form-line" }, h("label", { for: "server-address" }, "Add a server"), address, h("button", { class: "button" }, "Add"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      try {
        const first = app.servers.active === undefined;
        app.servers.add(address.value);
        address.value = "";
        fill(said);
        if (first) {
          // More servers may follow: this view stays.
          history.replaceState(null, "", "#/trust");
          return app.use(app.servers.active!);
        }
        restart();
        showTips();
      } catch (error) {
        fill(said, problem("This server cannot be added.", error));
      }
    });
    fill(
      servers,
      h(
        "section",
        { class: "card" },
        h("div", { class: "card-head" }, h("h2", {}, "Tips compared"), h("span", { class: "quiet" }, "each verified in your browser")),
        rows,
        __STANDALONE__ ? form : "",
        said,
      ),
    );
  }

  function showTips(): void {
    const { list, tips, active } = app.servers;
    const best = [...tips.values()].reduce((top, { header, report }) => (report?.ok && header && header.height > top ? header.height : top), 0n);
    const conflict = app.servers.conflict();
    const focused = rows.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset["focus"] : undefined;
    const lines = list.map((server) => {
      const tip = tips.get(server);
      const failed = tip?.report?.checks.find((check) => check.state === "failed");
      const state = !tip ? pill("asking…") : tip.error !== undefined ? pill(tip.error, "warn") : tip.report?.ok ? pill("verified", "ok") : pill(`refused: ${failed?.detail ?? ""}`, "bad");
      const behind = tip?.header && tip.report?.ok ? best - tip.header.height : undefined;
      return h(
        "tr",
        { "data-server": server },
        h("td", {}, h("code", {}, server.replace(/\/$/, "")), server === active && list.length > 1 ? h("span", { class: "quiet" }, " shown") : ""),
        h("td", { class: "number" }, tip?.header ? count(tip.header.height) : "–"),
        h("td", { class: "number" }, tip?.header ? age(tip.at - Number(tip.header.timestampMs)) : "–"),
        h("td", { class: "number" }, behind === undefined ? "–" : behind === 0n ? "newest" : `${count(behind)} behind`),
        h("td", { class: "wide" }, tip?.header ? h("code", { class: "hash" }, shortHash(tip.header.id)) : "–"),
        h("td", {}, state),
        __STANDALONE__
          ? h(
              "td",
              { class: "buttons" },
              h("button", { type: "button", class: "button button-small", "data-focus": `use ${server}`, ...(server === active ? { disabled: true } : {}), onclick: () => app.use(server) }, "Show"),
              h("button", { type: "button", class: "button button-small", "data-focus": `remove ${server}`, "aria-label": `Remove ${server}`, onclick: () => { app.servers.remove(server); if (server === active) app.use(app.servers.active ?? ""); else showTips(); } }, "Remove"),
            )
          : "",
      );
    });
    const column = (text: string, className = "") => h("th", { scope: "col", class: className }, text);
    fill(
      rows,
      conflict && h("div", { class: "notice notice-bad", role: "alert" }, icon("alarm"), h("div", {}, h("strong", {}, "Two final blocks of one height."), h("p", {}, `${conflict[0]} and ${conflict[1]} show different blocks, both with valid certificates. The chain’s safety is broken: more than a third of its validators are faulty.`))),
      list.length === 0
        ? h("p", { class: "quiet" }, "No server yet. Add the address of an explorer; several, run by different people, are better.")
        : h(
            "div",
            { class: "table-box", tabindex: "0", role: "region", "aria-label": "Servers" },
            h(
              "table",
              { class: "servers" },
              h("caption", { class: "visually-hidden" }, "Servers and their newest blocks"),
              h("thead", {}, h("tr", {}, column("Server"), column("Tip", "number"), column("Age", "number"), column("Compared", "number"), column("Id", "wide"), column("Check"), ...(__STANDALONE__ ? [column("")] : []))),
              h("tbody", {}, ...lines),
            ),
          ),
    );
    if (focused !== undefined) rows.querySelector<HTMLElement>(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }

  let stop = () => {};
  function restart(): void {
    stop();
    if (app.trust.pinned && app.servers.list.length > 0) stop = app.servers.watch(app.verifier, showTips);
  }

  // The server's trust may come after this view.
  let shownState = "";
  function update(): void {
    const state = `${app.trust.pinned?.fingerprint}${app.trust.offered?.fingerprint}${app.trust.error}${app.verifier.newest()?.trust.epoch}`;
    if (state === shownState) return;
    shownState = state;
    showPinned();
  }

  update();
  showChange();
  showServers();
  showTips();
  restart();
  return { title: "Trust", element, update, close: () => stop() };
}
