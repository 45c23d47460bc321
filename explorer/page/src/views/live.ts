// What happens now.

import type { App, View } from "../app.ts";
import { type Mark, type Row } from "../data/chain.ts";
import { curve } from "../ui/chart.ts";
import { fill, h, hidden, icon, setClass, setText } from "../ui/dom.ts";
import { age, bytes, count, duration, rate, shortHash } from "../ui/format.ts";
import { heading, table } from "../ui/parts.ts";
import { strip } from "../ui/strip.ts";
import { timeline } from "../ui/timeline.ts";
import { TOLD } from "./blocks.ts";

const LINES = 24;
const CURVE_BLOCKS = 200;
const CURVE_INTERVAL_MS = 120;

const MARKS: Record<Mark, { icon: "check" | "wait" | "cross"; word: string }> = {
  verified: { icon: "check", word: "verified" },
  waiting: { icon: "wait", word: "being verified" },
  refused: { icon: "cross", word: "refused" },
};

/** The mark of a row; redrawn only when it changes. */
export function markCell(): { element: HTMLElement; set(mark: Mark): void } {
  const element = h("span", { class: "mark" });
  let shown: Mark | undefined;
  return {
    element,
    set(mark) {
      if (mark === shown) return;
      shown = mark;
      element.className = `mark mark-${mark}`;
      element.title = MARKS[mark].word;
      fill(element, icon(MARKS[mark].icon), hidden(MARKS[mark].word));
    },
  };
}

function tile(name: string, hint: string) {
  const value = h("span", { class: "tile-value" }, "–");
  const note = h("span", { class: "tile-note" });
  const element = h("div", { class: "tile" }, h("dt", { title: hint }, name), h("dd", {}, value, note));
  return {
    element,
    set(text: string, aside = "") {
      setText(value, text);
      setText(note, aside);
    },
  };
}

/** One line of the table, used again and again for other blocks. */
type Line = ReturnType<typeof makeLine>;

function makeLine() {
  const height = h("a", {});
  const hash = h("a", { class: "hash", tabindex: "-1" });
  const mark = markCell();
  const dot = h("span", { "aria-hidden": "true" });
  const leader = h("span");
  const view = h("a", { tabindex: "-1" });
  const cell = (className: string) => h("td", { class: className });
  const [transactions, size, blockTime, finality, old] = [cell("number told"), cell("number wide told"), cell("number"), cell("number wide"), cell("number")];
  const element = h(
    "tr",
    {},
    h("td", {}, mark.element),
    h("td", { class: "number" }, height),
    h("td", { class: "wide" }, hash),
    h("td", { class: "number wide" }, view),
    h("td", {}, h("span", { class: "leader" }, dot, leader)),
    transactions,
    size,
    blockTime,
    finality,
    old,
  );
  let shown: bigint | undefined;
  return {
    element,
    get height() {
      return shown;
    },
    set(row: Row) {
      const { header } = row;
      if (row.height !== shown) {
        shown = row.height;
        const name = shown.toString();
        element.dataset["height"] = name;
        height.setAttribute("href", `#/block/${name}`);
        setText(height, count(row.height));
        hash.setAttribute("href", `#/block/${header.id}`);
        setText(hash, shortHash(header.id));
        view.setAttribute("href", `#/view/${header.epoch}.${header.view}`);
        setText(view, `${header.epoch}.${header.view}`);
        setClass(dot, `dot hue-${row.leader % 12}`);
        setText(leader, row.leader.toString());
        setText(transactions, count(row.transactions));
        setText(size, bytes(row.bytes));
        setText(old, age(Date.now() - Number(header.timestampMs)));
      }
      mark.set(row.mark);
      setText(blockTime, duration(row.blockTimeMs));
      setText(finality, duration(row.finalityMs));
    },
    setAge(row: Row, now: number) {
      setText(old, age(now - Number(row.header.timestampMs)));
    },
  };
}

export function liveView(app: App): View {
  const { chain } = app;
  const tiles = {
    tip: tile("Tip", "The newest final block"),
    blockTime: tile("Block time", "Median over the last minute, as the explorer saw the blocks come"),
    finality: tile("Finality", "From the notarization to the finalization, median over the last minute"),
    rate: tile("Transactions", "Per second, over the last minute"),
    blocks: tile("Blocks", "Per second, over the last minute"),
    nullified: tile("Nullified", "Views that were nullified in the last minute"),
  };
  const views = timeline();
  const leaders = strip();
  const ms = (value: number) => (value >= 1_000 ? `${+(value / 1_000).toFixed(2)} s` : `${+value.toFixed(1)} ms`);
  const blockCurve = curve({
    title: "Block time and finality",
    series: [
      { label: "block time", colour: "accent" },
      { label: "finality", colour: "ok" },
    ],
    time: false,
    xLabel: "height",
    format: ms,
  });
  const rateCurve = curve({
    title: "Transactions per second",
    series: [{ label: "finalised", colour: "accent", fill: true }],
    time: true,
    xLabel: "time",
    format: (value) => rate(value),
  });
  let lines = Array.from({ length: LINES }, makeLine);
  for (const { element } of lines) element.hidden = true;
  for (const { element } of lines) for (const cell of element.querySelectorAll(".told")) cell.setAttribute("title", TOLD);
  const columns = ["Height|number", "Id|wide", "View|number wide", "Leader", "Txs|number", "Size|number wide", "Block time|number", "Finality|number wide", "Age|number"];
  const blocks = table("The newest blocks, newest first", [hidden("Verified"), ...columns], lines.map(({ element }) => element), "blocks");
  const body = blocks.querySelector("tbody")!;
  const notes = h("div", { class: "notes" });
  const pauseLabel = h("span", {}, "Pause");
  const pauseIcon = h("span", { class: "icon-slot" }, icon("pause"));
  const pauseButton = h("button", { type: "button", class: "button", "aria-pressed": "false", "aria-keyshortcuts": "p" }, pauseIcon, pauseLabel);
  const paused = h("span", { class: "paused-note", role: "status" });
  let pausedAt: bigint | undefined;
  let isPaused = false;
  let noted = "";

  const togglePause = () => {
    isPaused = !isPaused;
    pausedAt = chain.tip;
    pauseButton.setAttribute("aria-pressed", String(isPaused));
    fill(pauseIcon, icon(isPaused ? "play" : "pause"));
    setText(pauseLabel, isPaused ? "Go on" : "Pause");
    setText(paused, "");
    element.classList.toggle("is-paused", isPaused);
    update();
  };
  pauseButton.addEventListener("click", togglePause);

  const element = h(
    "div",
    { class: "live" },
    heading("Live", paused, pauseButton),
    h("dl", { class: "tiles" }, ...Object.values(tiles).map((each) => each.element)),
    h("div", { class: "columns" }, views.element, h("div", { class: "stack" }, leaders.element, rateCurve.element)),
    blockCurve.element,
    h("section", { class: "card card-flush" }, h("div", { class: "card-head" }, h("h2", {}, "Newest blocks"), h("a", { href: "#/blocks" }, "All blocks")), notes, blocks),
  );

  function updateTiles(): void {
    const { stats } = chain;
    const silence = chain.silence();
    setClass(tiles.tip.element, silence.state === "fresh" ? "tile" : `tile ${silence.state}`);
    const verified = app.known.newest;
    const height = chain.newest(1)[0]?.height ?? verified?.height ?? chain.tip;
    tiles.tip.set(height === undefined ? "–" : count(height), silence.state !== "fresh" ? `no block for ${age(silence.ms)}` : chain.status ? `epoch ${chain.newest(1)[0]?.header.epoch ?? chain.status.tip?.epoch ?? 0}` : "");
    if (!stats) return;
    tiles.blockTime.set(duration(stats.block_time_ms?.p50), stats.block_time_ms ? `p99 ${duration(stats.block_time_ms.p99)}` : "");
    tiles.finality.set(duration(stats.finality_ms?.p50), stats.finality_ms ? `p99 ${duration(stats.finality_ms.p99)}` : "");
    tiles.rate.set(`${rate(stats.transactions_per_second)} /s`, `${count(stats.transactions)} in 1 min`);
    tiles.blocks.set(`${rate(stats.blocks_per_second)} /s`, `${count(stats.blocks)} in 1 min`);
    tiles.nullified.set(count(stats.nullified), "in 1 min");
  }

  let curvesAt = 0;
  let drawnSamples: unknown;

  /** A curve of 200 blocks need not be drawn for each one that comes. */
  function updateCurves(): void {
    const at = performance.now();
    if (at - curvesAt < CURVE_INTERVAL_MS) return;
    curvesAt = at;
    const rows = chain.newest(CURVE_BLOCKS).reverse();
    const times = rows.map((row) => row.blockTimeMs ?? null);
    const known = times.filter((value) => value !== null).sort((a, b) => a - b);
    const median = known[known.length >> 1];
    blockCurve.set(
      [rows.map((row) => Number(row.header.height)), times, rows.map((row) => row.finalityMs ?? null)],
      median === undefined ? "No blocks yet." : `Median block time ${duration(median)} over the last ${rows.length} blocks, by the leaders’ clocks.`,
    );
    const samples = chain.samples;
    const last = samples.at(-1)?.stats;
    if (last === drawnSamples) return;
    drawnSamples = last;
    rateCurve.set(
      [samples.map((sample) => sample.at / 1_000), samples.map((sample) => sample.stats.transactions_per_second)],
      last ? `${rate(last.transactions_per_second)} per second, mean of the last minute.` : "Waiting for figures…",
    );
  }

  function updateNotes(): void {
    const hole = chain.holes.at(-1);
    const texts = [
      hole && `Blocks ${count(hole.from)} to ${count(hole.to)} went by unseen: find them under “All blocks”.`,
      chain.pruned !== undefined && `This server’s history begins at block ${count(chain.pruned)}: what is older was pruned.`,
    ].filter((text): text is string => typeof text === "string");
    if (texts.join() === noted) return;
    noted = texts.join();
    fill(notes, ...texts.map((text) => h("p", { class: "note" }, text)));
  }

  function update(): void {
    if (isPaused) {
      if (pausedAt !== undefined && chain.tip !== undefined) setText(paused, `Paused at ${count(pausedAt)}; ${count(chain.tip - pausedAt)} blocks since`);
      return;
    }
    updateTiles();
    updateNotes();
    views.update(chain.views.values());
    leaders.update(chain.views.values());
    updateCurves();
    updateLines();
  }

  /** A line goes on showing its block while it moves down; those that leave come in again on top. */
  function updateLines(): void {
    const rows = chain.newest(LINES);
    const wanted = new Set(rows.map((row) => row.height));
    const kept = new Map<bigint, Line>();
    const spare: Line[] = [];
    for (const line of lines) {
      if (line.height !== undefined && wanted.has(line.height)) kept.set(line.height, line);
      else spare.push(line);
    }
    const shown = rows.map((row) => {
      const line = kept.get(row.height) ?? spare.pop()!;
      line.element.hidden = false;
      line.set(row);
      return line;
    });
    for (const line of spare) line.element.hidden = true;
    lines = [...shown, ...spare];
    lines.forEach(({ element }, i) => {
      const there = body.children[i];
      if (there !== element) body.insertBefore(element, there ?? null);
    });
  }

  // Ages go on while no block comes.
  const timer = setInterval(() => {
    if (isPaused) return;
    const now = Date.now();
    for (const line of lines) {
      const row = line.height === undefined ? undefined : chain.rows.get(line.height);
      if (row) line.setAge(row, now);
    }
  }, 500);

  return {
    title: "Live",
    element,
    update,
    togglePause,
    recolour() {
      blockCurve.recolour();
      rateCurve.recolour();
      curvesAt = 0;
      drawnSamples = undefined;
      update();
    },
    close() {
      clearInterval(timer);
      blockCurve.close();
      rateCurve.close();
    },
  };
}
