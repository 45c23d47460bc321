// Puts the page together: what is pinned, the verifier, the stream, and one view at a time.

import "./style.css";
import type { App, View } from "./app.ts";
import { Api } from "./data/api.ts";
import { Chain, type Known } from "./data/chain.ts";
import { Servers } from "./data/servers.ts";
import { TrustStore } from "./data/trust.ts";
import { startShell } from "./ui/shell.ts";
import { drawn, onFrame } from "./ui/frame.ts";
import { startTheme } from "./ui/theme.ts";
import { Verifier } from "./verify/client.ts";
import { spawn } from "./verify/spawn.ts";
import { parseTrust } from "./verify/trust.ts";
import { accountView } from "./views/account.ts";
import { blockView } from "./views/block.ts";
import { blocksView } from "./views/blocks.ts";
import { faultsView } from "./views/faults.ts";
import { historyView } from "./views/history.ts";
import { liveView } from "./views/live.ts";
import { registryView } from "./views/registry.ts";
import { direct, searchView } from "./views/search.ts";
import { transactionView } from "./views/transaction.ts";
import { transactionsView } from "./views/transactions.ts";
import { trustView } from "./views/trust.ts";
import { validatorView, validatorsView } from "./views/validators.ts";
import { viewView } from "./views/view.ts";

/** A tab that nobody has looked at for so long gives up its connection. */
const REST_AFTER_MS = 20_000;

const own = __STANDALONE__ ? undefined : new URL(".", location.href).href;
const servers = new Servers(own);
const trust = new TrustStore();
const verifier = new Verifier(spawn());
let whenPinned = Promise.withResolvers<void>();
let chain: Chain;
let known: Known = {};
let api: Api;

const app: App = {
  get api() {
    return api;
  },
  get chain() {
    return chain;
  },
  get known() {
    return known;
  },
  verifier,
  trust,
  servers,
  verify: (task, claim) => whenPinned.promise.then(() => verifier.check(task, claim, api)),
  async pin(file, source) {
    const parsed = typeof file === "string" ? parseTrust(file) : (file as ReturnType<typeof parseTrust>);
    trust.isChecking = true;
    try {
      await verifier.trust(parsed);
    } finally {
      trust.isChecking = false;
    }
    const isFirst = trust.pinned === undefined;
    trust.pin(parsed, source);
    trust.isNew = true;
    whenPinned.resolve();
    if (isFirst) {
      // What has come so far waits to be verified.
      chain.ready();
      if (name() === "trust" || __STANDALONE__) open();
    } else {
      restart();
      open();
    }
  },
  forget() {
    trust.forget();
    known = {};
    whenPinned = Promise.withResolvers();
    restart();
    open();
  },
  use(server) {
    servers.use(server);
    restart();
    open();
  },
  announce: (text) => shell.announce(text),
};

const shell = startShell(app, (text) => {
  location.hash = direct(text) ?? `#/search/${encodeURIComponent(text)}`;
});
let view: View | undefined;

function draw(): void {
  shell.update();
  view?.update?.();
}

const redraw = () => onFrame(draw);

verifier.changed = () => chain.recount();
verifier.refused = (base, epoch, report) => {
  if (base === api.base) chain.refuse(`change of the validators${epoch === undefined ? "" : ` of epoch ${epoch}`}`, "#/validators", report);
};

/** Follows the server that is to be shown, from its tip on. */
function restart(): void {
  chain?.close();
  api = new Api(servers.active ?? "http://localhost/");
  const fresh = new Chain(api, verifier, redraw, known);
  chain = fresh;
  if (servers.active !== undefined) {
    void compareTrust(api);
    void fresh.open();
  }
  if (trust.pinned && trust.error === undefined) fresh.ready();
  redraw();
}

/** Compares the server's trust with what is pinned; the first one is pinned as it comes. */
async function compareTrust(from: Api): Promise<void> {
  for (let wait = 500; from === api; wait = Math.min(5_000, 2 * wait)) {
    try {
      const offered = await from.get<unknown>("/v1/trust");
      if (trust.compare(offered) && trust.pinned && trust.offered) {
        const [pinned, other] = [trust.pinned.trust, trust.offered.trust];
        // The same chain's, moved forward: no other trust.
        const agree = await verifier.agree(pinned, other, from).catch(() => false);
        if (from !== api) return;
        if (agree) trust.offered = undefined;
      }
      if (!__STANDALONE__ && !trust.pinned && trust.offered) await app.pin(trust.offered.trust, `this server, on first sight (${location.host})`);
      redraw();
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The parts of the address: what is to be shown, which one, and how. */
function route(): { name: string; argument: string; query: URLSearchParams } {
  const [path = "", query = ""] = location.hash.replace(/^#/, "").split("?", 2);
  const [name = "", argument = ""] = path.split("/").filter((part) => part !== "").map(decoded);
  return { name, argument, query: new URLSearchParams(query) };
}

const name = () => route().name;

function open(): void {
  const { name, argument, query } = route();
  view?.close?.();
  view = make(name, argument, query);
  shell.show(view, name);
  redraw();
}

function make(name: string, argument: string, query: URLSearchParams): View {
  if (name === "trust" || servers.active === undefined || (__STANDALONE__ && !trust.pinned)) return trustView(app);
  if (name === "blocks") return blocksView(app, query);
  if (name === "block" && argument) return blockView(app, argument);
  if (name === "view" && argument) return viewView(app, argument);
  if (name === "tx" && argument) return transactionView(app, argument);
  if (name === "account" && argument) return accountView(app, argument, query);
  if (name === "validators") return validatorsView(app, query);
  if (name === "validator" && argument) return validatorView(app, argument, query);
  if (name === "registry") return registryView(app);
  if (name === "faults") return faultsView(app);
  if (name === "transactions") return transactionsView(app, query);
  if (name === "history") return historyView(app, query);
  if (name === "search" && argument) return searchView(app, argument);
  return liveView(app);
}

async function start(): Promise<void> {
  startTheme(() => view?.recolour?.());
  shell.onTheme(() => view?.recolour?.());
  shell.onKey({ pause: () => view?.togglePause?.(), previous: () => view?.previous, next: () => view?.next });
  restart();
  window.addEventListener("hashchange", open);
  open();
  if (trust.pinned) {
    try {
      await verifier.trust(trust.pinned.trust);
      whenPinned.resolve();
      chain.ready();
    } catch (error) {
      trust.error = error instanceof Error ? error.message : String(error);
      redraw();
    }
  }
}

let resting: ReturnType<typeof setTimeout> | undefined;
document.addEventListener("visibilitychange", () => {
  clearTimeout(resting);
  if (document.hidden) resting = setTimeout(() => chain.rest(), REST_AFTER_MS);
  else void chain.wake();
});

// What tests look at.
Object.defineProperty(window, "quorate", { value: { app, drawn } });

void start();
