// What stands around every view: name, search, the tip with its age, and alarms.

import type { App, View } from "../app.ts";
import { fill, h, icon, setClass, setText } from "./dom.ts";
import { age, count } from "./format.ts";
import { nextTheme, theme } from "./theme.ts";

const ANNOUNCE_MS = 15_000;

const LINKS: [string, string][] = [
  ["", "Live"],
  ["blocks", "Blocks"],
  ["transactions", "Transactions"],
  ["history", "History"],
  ["validators", "Validators"],
  ["registry", "Registry"],
  ["faults", "Faults"],
  ["trust", "Trust"],
];
/** Under which link a view stands. */
const PARENTS: Record<string, string> = { block: "blocks", view: "blocks", tx: "transactions", validator: "validators" };

const KEYS: [string, string][] = [
  ["/", "search"],
  ["p", "pause the live view"],
  ["[ and ]", "the block, view or page before and after"],
  ["t", "light, dark, or as the system"],
  ["?", "this help"],
];

export interface Shell {
  show(view: View, name: string): void;
  update(): void;
  announce(text: string): void;
  onTheme(action: () => void): void;
  onKey(actions: { pause(): void; previous(): string | undefined; next(): string | undefined }): void;
}

export function startShell(app: App, search: (text: string) => void): Shell {
  const main = h("main", { id: "main" });
  const links = LINKS.map(([name, text]) => h("a", { href: `#/${name}`, "data-name": name }, text));
  const input = h("input", { type: "search", id: "search", placeholder: "Height, view, id, identity", autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": "/" });
  const form = h("form", { class: "search", role: "search" }, h("label", { for: "search", class: "visually-hidden" }, "Search"), icon("search"), input, h("kbd", { "aria-hidden": "true" }, "/"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (text === "") return;
    input.value = "";
    input.blur();
    search(text);
  });

  const themeButton = h("button", { type: "button", class: "icon-button" }, icon("theme"));
  const nameTheme = () => {
    const text = { auto: "Colours: as the system", light: "Colours: light", dark: "Colours: dark" }[theme()];
    themeButton.setAttribute("aria-label", text);
    themeButton.title = text;
  };
  let themeChanged = () => {};
  const switchTheme = () => {
    nextTheme();
    nameTheme();
    themeChanged();
  };
  themeButton.addEventListener("click", switchTheme);
  nameTheme();

  const help = h(
    "dialog",
    { "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", { class: "facts" }, ...KEYS.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)))),
    h("form", { method: "dialog" }, h("button", { class: "button" }, "Close")),
  );

  const chainName = h("span", { class: "chain-name" });
  const connection = h("span", { class: "connection" });
  const connectionText = h("span");
  const tip = h("a", { class: "strip-tip", href: "#/block/latest" }, "–");
  const tipAge = h("span", { class: "strip-age" });
  const mark = h("span", { class: "strip-mark", "data-mark": "" });
  const banners = h("div", { class: "banners" });
  const spoken = h("div", { class: "visually-hidden", "aria-live": "polite" });
  const finger = h("a", { href: "#/trust", class: "footer-trust" });

  document.body.append(
    h("a", { class: "skip", href: "#main", onclick: (event: Event) => { event.preventDefault(); main.querySelector<HTMLElement>("h1")?.focus(); } }, "Skip to the content"),
    h(
      "header",
      { class: "top" },
      h("a", { class: "brand", href: "#/" }, brandMark(), h("span", {}, "Quorate"), chainName),
      h("nav", { class: "links", "aria-label": "Views" }, ...links),
      form,
      themeButton,
    ),
    h(
      "div",
      { class: "strip-bar", role: "region", "aria-label": "The tip" },
      h("span", { class: "strip-item" }, connection, connectionText),
      h("span", { class: "strip-item" }, h("span", { class: "strip-name" }, "Tip"), tip),
      h("span", { class: "strip-item" }, h("span", { class: "strip-name" }, "Age"), tipAge),
      h("span", { class: "strip-item strip-grow" }, mark),
    ),
    banners,
    main,
    h("footer", { class: "footer" }, finger, h("span", {}, "A certificate proves finality, not freshness."), h("button", { type: "button", class: "link", onclick: () => help.showModal() }, "Keys")),
    help,
    spoken,
  );

  let shownMark = "";
  let shownBanners = "";
  let announced = performance.now();

  function updateMark(): void {
    const { chain, trust } = app;
    const verified = chain.verified;
    const top = chain.newest(1)[0];
    const known = app.known.newest;
    const behind = known !== undefined && verified !== undefined && verified.header.height < known.height && chain.state === "open";
    let key: string;
    let text: string;
    if (trust.isChecking) [key, text] = ["wait", "checking the keys to be pinned…"];
    else if (trust.error !== undefined || !trust.pinned) [key, text] = ["wait", "nothing is verified: no trust is pinned"];
    else if (top?.mark === "refused") [key, text] = ["bad", `block ${count(top.height)} was refused`];
    else if (!verified) [key, text] = ["wait", "verifying in your browser…"];
    else [key, text] = [chain.silence().state === "fresh" && !behind ? "ok" : "late", `verified in your browser to block ${count(verified.header.height)}`];
    if (behind && known) text += `; this server is behind block ${count(known.height)}, which was verified here before`;
    setText(markText, text);
    if (key === shownMark) return;
    shownMark = key;
    mark.dataset["mark"] = key;
    setClass(mark, `strip-mark strip-mark-${key}`);
    fill(mark, icon(key === "ok" || key === "late" ? "shield" : key === "bad" ? "alarm" : "wait"), markText);
  }
  const markText = h("span");

  function updateBanners(): void {
    const { chain, trust } = app;
    const texts: { text: string; href: string }[] = [];
    if (trust.pinned && trust.offered) texts.push({ text: "The server gives another trust file than the one that is pinned. Everything is still verified against the pinned one.", href: "#/trust" });
    if (trust.error !== undefined) texts.push({ text: `The pinned keys cannot be used: ${trust.error}`, href: "#/trust" });
    const conflict = app.servers.conflict();
    if (conflict) texts.push({ text: "Two servers show different final blocks of one height.", href: "#/trust" });
    const refused = chain.refusals.length;
    if (refused > 0) texts.push({ text: `${refused === 1 ? "An answer" : `${refused} answers`} of this server did not verify: ${chain.refusals[0]!.what}, ${chain.refusals[0]!.report.checks.find((check) => check.state === "failed")?.detail ?? ""}.`, href: "#/faults" });
    const key = texts.map(({ text }) => text).join("|");
    if (key === shownBanners) return;
    shownBanners = key;
    fill(banners, ...texts.map(({ text, href }) => h("div", { class: "banner", role: "alert" }, icon("alarm"), h("span", {}, text), h("a", { href }, "Look"))));
  }

  const STATES = { connecting: "connecting", open: "live", broken: "connecting again", closed: "at rest" } as const;

  function update(): void {
    const { chain, trust } = app;
    const top = chain.newest(1)[0];
    setText(chainName, trust.pinned?.trust.name ?? chain.status?.chain.name ?? "");
    setClass(connection, `connection connection-${chain.state}`);
    setText(connectionText, app.servers.active === undefined ? "no server" : STATES[chain.state]);
    if (top) {
      setText(tip, count(top.height));
      tip.setAttribute("href", `#/block/${top.height}`);
    }
    const silence = chain.silence();
    const old = top ? silence.ms : undefined;
    setText(tipAge, old === undefined ? "–" : silence.state === "fresh" ? age(old) : `no block for ${age(old)}`);
    setClass(tipAge, `strip-age ${silence.state}`);
    setText(finger, trust.pinned ? `Pinned ${trust.pinned.fingerprint.slice(2, 18)}…` : "Nothing is pinned");
    updateMark();
    updateBanners();
    const now = performance.now();
    if (top && now - announced > ANNOUNCE_MS) {
      announced = now;
      setText(spoken, `Block ${top.header.height}, ${top.mark}, ${age(old ?? 0)} old.`);
    }
  }

  setInterval(update, 500);

  return {
    show(view, name) {
      document.title = `${view.title} · Quorate`;
      main.replaceChildren(view.element);
      const at = PARENTS[name] ?? name;
      for (const link of links) {
        const isCurrent = link.dataset["name"] === (LINKS.some(([known]) => known === at) ? at : at === "account" || at === "search" ? "?" : "");
        if (isCurrent) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      window.scrollTo(0, 0);
      if (opened) view.element.querySelector<HTMLElement>("h1")?.focus({ preventScroll: true });
      opened = true;
    },
    update,
    announce: (text) => setText(spoken, text),
    onTheme(action) {
      themeChanged = action;
    },
    onKey(actions) {
      document.addEventListener("keydown", (event) => {
        const target = event.target as HTMLElement;
        if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input, textarea, select") || help.open) return;
        const go = (href: string | undefined) => {
          if (href !== undefined) location.hash = href.slice(1);
        };
        if (event.key === "/") {
          event.preventDefault();
          input.focus();
        } else if (event.key === "p") actions.pause();
        else if (event.key === "[") go(actions.previous());
        else if (event.key === "]") go(actions.next());
        else if (event.key === "t") switchTheme();
        else if (event.key === "?") help.showModal();
      });
      input.addEventListener("keydown", (event) => {
        if (event.key === "Escape") input.blur();
      });
    },
  };
}

/** Whether a view was shown before: the first one leaves the focus where the browser has it. */
let opened = false;

/** Three quarters of a circle: a quorum. */
function brandMark(): SVGSVGElement {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("class", "brand-mark");
  svg.setAttribute("aria-hidden", "true");
  const arcs: [string, string][] = [
    ["M10 2.5A7.5 7.5 0 0 1 17.5 10", "brand-on"],
    ["M17.5 10A7.5 7.5 0 0 1 10 17.5", "brand-on"],
    ["M10 17.5A7.5 7.5 0 0 1 2.5 10", "brand-on"],
    ["M2.5 10A7.5 7.5 0 0 1 10 2.5", "brand-off"],
  ];
  for (const [d, name] of arcs) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", d);
    path.setAttribute("class", name);
    svg.appendChild(path);
  }
  return svg;
}

