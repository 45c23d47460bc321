// A local network, an explorer before it, a proxy that can lie before that, and a browser.

import { spawn } from "node:child_process";
import { createServer, request } from "node:http";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const page = fileURLToPath(new URL("..", import.meta.url));
const dist = join(page, "dist");
const CHROMIUM = process.env.CHROMIUM ?? ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"].find(existsSync);
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml" };
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Asks again and again until the answer is not false. */
export async function until(what, ask, ms = 30_000) {
  const deadline = Date.now() + ms;
  let last;
  while (Date.now() < deadline) {
    try {
      const found = await ask();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    await pause(100);
  }
  throw new Error(`waited ${ms} ms in vain for: ${what}${last ? ` (${last.message})` : ""}`);
}

/** A program that ends with this one. */
function start(binary, args, log) {
  const child = spawn(binary, args, { stdio: ["pipe", "pipe", "pipe"] });
  const lines = [];
  const take = (bytes) => {
    lines.push(bytes.toString());
    if (log) process.stderr.write(bytes);
  };
  child.stdout.on("data", take);
  child.stderr.on("data", take);
  child.ended = new Promise((resolve) => child.on("exit", resolve));
  child.said = () => lines.join("");
  return child;
}

export class Network {
  constructor({ binary, scheme = "bls-threshold", validators = 4, interval = "100ms", load = 40, port = 28_400, extra = [], log = false }) {
    Object.assign(this, { binary, scheme, validators, interval, load, port, extra, log });
    this.dir = mkdtempSync(join(tmpdir(), "quorate-page-"));
    this.explorerPort = port + 90;
  }

  async start() {
    const { dir, port } = this;
    const args = ["localnet", "--no-explorer", "--validators", this.validators, "--scheme", this.scheme, "--block-interval", this.interval];
    this.net = start(this.binary, [...args, "--load", this.load, "--for", "60m", "--base-port", port, "--dir", join(dir, "net"), ...this.extra].map(String), this.log);
    this.trustFile = join(dir, "net", "trust.json");
    await until("the trust file", () => existsSync(this.trustFile));
    try {
      await until("the first block", async () => (await fetch(`http://127.0.0.1:${port + 1}/v1/blocks/3`)).ok, 120_000);
    } catch (error) {
      throw new Error(`${error.message}; the network says: ${this.net.said()}`);
    }
    await this.startExplorer();
  }

  async startExplorer() {
    const upstreams = [0, 1].flatMap((i) => ["--upstream", `http://127.0.0.1:${this.port + 1 + 2 * i}`]);
    // The page as one file is of no origin, and asks this explorer without the proxy.
    const args = ["explorer", "--trust", this.trustFile, ...upstreams, "--cors-origin", "*", "--listen", `127.0.0.1:${this.explorerPort}`, "--data", join(this.dir, "explorer")];
    this.explorer = start(this.binary, args, this.log);
    const state = () => this.explorer.exitCode === null;
    await until("the explorer", async () => {
      if (!state()) throw new Error(`it ended: ${this.explorer.said()}`);
      return BigInt((await (await fetch(`${this.explorerUrl}v1/status`)).json()).tip?.height ?? 0) > 2n;
    });
  }

  get explorerUrl() {
    return `http://127.0.0.1:${this.explorerPort}/`;
  }

  async api(path) {
    return (await fetch(new URL(path.replace(/^\//, ""), this.explorerUrl))).json();
  }

  async stopExplorer(signal = "SIGKILL") {
    this.explorer.kill(signal);
    await this.explorer.ended;
  }

  async stop() {
    for (const child of [this.explorer, this.net]) {
      if (!child || child.exitCode !== null) continue;
      child.kill("SIGINT");
      await Promise.race([child.ended, pause(8_000).then(() => child.kill("SIGKILL"))]);
    }
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/**
 * Serves the page as built, with the explorer's own content policy, and passes everything else on.
 * `answer(path, json)` may change an answer, `event(type, data)` an event: it gives the events to
 * send in its place.
 */
export class Proxy {
  constructor(network, port) {
    this.network = network;
    this.port = port;
    this.reset();
  }

  reset() {
    this.answer = undefined;
    this.event = undefined;
    this.streamFrom = undefined;
  }

  get url() {
    return `http://127.0.0.1:${this.port}/`;
  }

  async start() {
    const front = await fetch(this.network.explorerUrl, { headers: { accept: "text/html" } });
    this.policy = front.headers.get("content-security-policy");
    if (!this.policy) throw new Error("the explorer sends no content policy with the page");
    this.sockets = new Set();
    this.server = createServer((incoming, outgoing) => {
      const path = incoming.url;
      if (path.startsWith("/v1/")) this.#pass(incoming, outgoing, path);
      else this.#file(outgoing, path === "/" ? "/index.html" : path);
    });
    this.server.on("connection", (socket) => {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
    await new Promise((resolve) => this.server.listen(this.port, "127.0.0.1", resolve));
  }

  #file(outgoing, path) {
    const file = join(dist, path.split("?")[0]);
    if (!existsSync(file)) return outgoing.writeHead(404).end();
    outgoing.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream", "content-security-policy": this.policy });
    outgoing.end(readFileSync(file));
  }

  #pass(incoming, outgoing, path) {
    const isStream = path.startsWith("/v1/stream/sse");
    const target = new URL((isStream && this.streamFrom ? this.streamFrom(path) : path).slice(1), this.network.explorerUrl);
    const { "accept-encoding": _, host: __, ...headers } = incoming.headers;
    const passed = request(target, { headers, method: incoming.method }, (response) => {
      const type = response.headers["content-type"] ?? "";
      if (isStream && this.event && type.startsWith("text/event-stream")) {
        outgoing.writeHead(response.statusCode, response.headers);
        return this.#events(response, outgoing);
      }
      if (!this.answer || isStream) {
        outgoing.writeHead(response.statusCode, response.headers);
        return response.pipe(outgoing);
      }
      const parts = [];
      response.on("data", (part) => parts.push(part));
      response.on("end", async () => {
        let text = Buffer.concat(parts).toString();
        let status = response.statusCode;
        try {
          const changed = await this.answer(path, JSON.parse(text));
          if (changed !== undefined) [text, status] = [JSON.stringify(changed), 200];
        } catch {
          // Not JSON: as it is.
        }
        const { "content-length": _, ...kept } = response.headers;
        outgoing.writeHead(status, kept);
        outgoing.end(text);
      });
    });
    passed.on("error", () => outgoing.destroy());
    outgoing.on("close", () => passed.destroy());
    incoming.pipe(passed);
  }

  #events(response, outgoing) {
    let rest = "";
    const handler = this.event;
    let order = Promise.resolve();
    response.on("data", (part) => {
      rest += part.toString();
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const block = rest.slice(0, end);
        rest = rest.slice(end + 2);
        const field = (name) => new RegExp(`^${name}: ?(.*)$`, "m").exec(block)?.[1];
        const [type, data, id] = [field("event"), field("data"), field("id")];
        order = order.then(async () => {
          if (type === undefined) return outgoing.write(`${block}\n\n`);
          const sent = (await handler(type, JSON.parse(data))) ?? [[type, JSON.parse(data), id]];
          for (const [kind, content, number] of sent) {
            outgoing.write(`${number === undefined ? "" : `id: ${number}\n`}event: ${kind}\ndata: ${JSON.stringify(content)}\n\n`);
          }
        });
      }
    });
    response.on("end", () => order.then(() => outgoing.end()));
  }

  /** Breaks all connections. */
  cut() {
    for (const socket of this.sockets) socket.destroy();
  }

  async stop() {
    this.cut();
    await new Promise((resolve) => this.server?.close(resolve));
  }
}

export const openBrowser = () =>
  chromium.launch({
    executablePath: CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"],
  });

/** The option's value on the command line. */
export function option(name, fallback) {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? fallback : process.argv[at + 1];
}
