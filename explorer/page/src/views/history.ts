// How much there was, over hours and days.

import type { App, View } from "../app.ts";
import type { History, Status } from "../data/types.ts";
import { type Curve, curve } from "../ui/chart.ts";
import { fill, h, setText } from "../ui/dom.ts";
import { count, moment } from "../ui/format.ts";
import { heading, loading, problem } from "../ui/parts.ts";

const STEPS: [History["step"], string, number][] = [
  ["minute", "Last 3 hours", 180],
  ["hour", "Last 7 days", 168],
  ["day", "Last 90 days", 90],
];

/** The sums of all periods; those without blocks are zero. */
export function filled(history: History): { time: number; blocks: number; transactions: number }[] {
  const [first, last] = [history.data[0], history.data.at(-1)];
  const step = Number(history.step_ms);
  if (!first || !last || !(step > 0)) return [];
  const sums = new Map(history.data.map((point) => [Number(point.time_ms), point]));
  const points = [];
  // Never more than were asked for, whatever the server says of the time.
  for (let time = Number(last.time_ms); time >= Number(first.time_ms) && points.length < 1_000; time -= step) {
    const point = sums.get(time);
    points.push({ time: time / 1_000, blocks: Number(point?.blocks ?? 0), transactions: Number(point?.transactions ?? 0) });
  }
  return points.reverse();
}

/** Hours say nothing of a chain that is younger: the shortest step unless there are so many periods. */
const ENOUGH_HOURS = 3;

export function historyView(app: App, query: URLSearchParams): View {
  const gone = new AbortController();
  const links = STEPS.map(([name, text]) => h("a", { class: "button", href: `#/history?step=${name}`, "data-step": name }, text));
  const totals = h("p", { class: "quiet totals", role: "status" });
  const charts = h("div", {}, loading());
  const element = h("div", {}, heading("History", ...links), totals, charts, h("p", { class: "quiet" }, "Sums are this server’s word, by the leaders’ clocks."));
  let curves: Curve[] = [];

  const ask = (step: History["step"]) => {
    const [, , limit] = STEPS.find(([name]) => name === step)!;
    return app.api.get<History>(`/v1/history?step=${step}&limit=${limit}`, gone.signal);
  };

  async function find(): Promise<History> {
    const named = STEPS.find(([name]) => name === query.get("step"));
    if (named) return ask(named[0]);
    const hours = await ask("hour");
    return hours.data.length < ENOUGH_HOURS ? ask("minute") : hours;
  }

  async function show(): Promise<void> {
    const [history, status] = await Promise.all([find(), app.api.get<Status>("/v1/status", gone.signal)]);
    const { step } = history;
    for (const link of links) if (link.dataset["step"] === step) link.setAttribute("aria-current", "true");
    const points = filled(history);
    const times = points.map(({ time }) => time);
    const since = points[0] ? `since ${moment(1_000 * points[0].time).slice(0, 16)}` : "";
    const sum = (name: "blocks" | "transactions") => count(points.reduce((all, point) => all + point[name], 0));
    const bars = { time: true, step: Number(history.step_ms) / 1_000, xLabel: "time", format: (value: number) => count(value) };
    const transactions = curve({ ...bars, title: `Transactions per ${step}`, series: [{ label: "finalised", colour: "accent", fill: true }] });
    const blocks = curve({ ...bars, title: `Blocks per ${step}`, series: [{ label: "final", colour: "ok", fill: true }] });
    curves = [transactions, blocks];
    fill(charts, transactions.element, blocks.element);
    transactions.set([times, points.map((point) => point.transactions)], `${sum("transactions")} ${since}`);
    blocks.set([times, points.map((point) => point.blocks)], `${sum("blocks")} ${since}`);
    const { accounts, supply, transactions: all } = status.totals ?? { transactions: "0", accounts: null, supply: null };
    const more = accounts === null || supply === null ? "" : `; ${count(accounts)} accounts hold ${count(supply)} together`;
    setText(totals, `${count(all)} transactions in all${more}.`);
  }

  show().catch((error: unknown) => {
    if (!gone.signal.aborted) element.replaceChildren(heading("History", ...links), problem("There is no history to show.", error));
  });
  return {
    title: "History",
    element,
    recolour() {
      for (const each of curves) each.recolour();
    },
    close() {
      gone.abort();
      for (const each of curves) each.close();
    },
  };
}
