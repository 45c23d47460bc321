// The newest views, each a line: proposed, notarized, finalised or nullified, against time.

import type { ViewRow } from "../data/chain.ts";
import { surface } from "./canvas.ts";
import { h } from "./dom.ts";
import { nameOf } from "./strip.ts";
import { palette } from "./theme.ts";

const ROW = 20;
const LEFT = 92;
const AXIS = 18;
const SHORTEST_MS = 400;
const LONGEST_MS = 120_000;

const begun = (view: ViewRow) => Math.min(view.proposed ?? Infinity, view.notarized ?? Infinity, view.finalized ?? Infinity, view.nullified ?? Infinity);
const ended = (view: ViewRow) => Math.max(view.finalized ?? 0, view.nullified ?? 0, view.notarized ?? 0);

function niceStep(span: number): number {
  const rough = span / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? rough;
}

export function timeline() {
  const canvas = surface("Timeline of the newest views", "timeline");
  const swatch = (name: string, text: string) => h("li", {}, h("span", { class: `swatch swatch-${name}`, "aria-hidden": "true" }), text);
  const legend = h("ul", { class: "legend" }, swatch("proposed", "proposed"), swatch("notarized", "notarized"), swatch("finalized", "finalised"), swatch("bad", "nullified"));
  const element = h("section", { class: "card card-tall" }, h("div", { class: "card-head" }, h("h2", {}, "Views"), legend), canvas.element);
  let span = 2_000;
  let described = 0;

  return {
    element,
    update(views: Iterable<ViewRow>): void {
      const started = canvas.begin();
      if (!started) return;
      const { draw, width, height } = started;
      const colours = palette();
      const lines = Math.max(4, Math.floor((height - AXIS) / ROW));
      // They stand in the order of their first sight, nearly that of their numbers.
      const seen = [...views].slice(-4 * lines).filter((view) => Number.isFinite(begun(view)) && (view.finalized ?? view.nullified ?? view.notarized) !== undefined);
      seen.sort((a, b) => (a.epoch === b.epoch ? Number(b.view - a.view) : Number(b.epoch - a.epoch)));
      const rows = seen.slice(0, lines);
      draw.font = "11.5px system-ui, sans-serif";
      draw.textBaseline = "middle";
      if (rows.length === 0) {
        draw.fillStyle = colours["ink-3"];
        draw.fillText("Waiting for the next view…", 4, 16);
        return;
      }
      const right = Math.max(...rows.map(ended));
      const wanted = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, 1.05 * (right - Math.min(...rows.map(begun)))));
      span += (wanted - span) * (wanted > span ? 0.35 : 0.08);
      const from = right - span;
      const x = (at: number) => LEFT + Math.max(0, ((at - from) / span) * (width - LEFT - 10));

      const step = niceStep(span);
      const bottom = lines * ROW;
      for (let back = 0; back < span; back += step) {
        const at = x(right - back);
        draw.fillStyle = colours.line;
        draw.fillRect(Math.round(at), 0, 1, bottom);
        draw.fillStyle = colours["ink-3"];
        draw.textAlign = "center";
        const text = back === 0 ? "now" : step >= 1_000 ? `−${(back / 1_000).toFixed(0)} s` : `−${back.toFixed(0)} ms`;
        if (at > LEFT + 16) draw.fillText(text, Math.min(at, width - 16), bottom + AXIS / 2);
      }
      draw.textAlign = "left";
      rows.forEach((view, i) => {
        const y = i * ROW;
        draw.fillStyle = colours.hues[view.leader % 12]!;
        draw.beginPath();
        draw.arc(8, y + ROW / 2, 4, 0, 7);
        draw.fill();
        draw.fillStyle = colours["ink-2"];
        draw.fillText(nameOf(view), 19, y + ROW / 2 + 0.5);
        bar(draw, view, x, y + 5, ROW - 10, colours);
      });
      const now = performance.now();
      if (now - described > 5_000) {
        described = now;
        const nullified = rows.filter((view) => view.nullified !== undefined).length;
        const text = `The newest ${rows.length} views, ${rows.at(-1)!.view} to ${rows[0]!.view}: ${rows.length - nullified} brought a block, ${nullified} were nullified.`;
        canvas.element.setAttribute("aria-label", text);
      }
    },
  };
}

function bar(draw: CanvasRenderingContext2D, view: ViewRow, x: (at: number) => number, y: number, height: number, colours: ReturnType<typeof palette>): void {
  const start = x(begun(view));
  if (view.nullified !== undefined && view.finalized === undefined) {
    const end = Math.max(x(view.nullified), start + 6);
    draw.fillStyle = colours.bad;
    draw.globalAlpha = 0.25;
    draw.fillRect(start - 6, y, end - start + 6, height);
    draw.globalAlpha = 1;
    draw.strokeStyle = colours.bad;
    draw.lineWidth = 1.6;
    draw.beginPath();
    draw.moveTo(end - 3, y + height / 2 - 3);
    draw.lineTo(end + 3, y + height / 2 + 3);
    draw.moveTo(end + 3, y + height / 2 - 3);
    draw.lineTo(end - 3, y + height / 2 + 3);
    draw.stroke();
    return;
  }
  const middle = x(view.notarized ?? view.finalized ?? begun(view));
  const end = x(view.finalized ?? view.notarized ?? begun(view));
  draw.fillStyle = colours.accent;
  draw.globalAlpha = 0.3;
  draw.fillRect(start, y, Math.max(2, middle - start), height);
  draw.globalAlpha = 1;
  draw.fillStyle = colours.accent;
  draw.fillRect(middle, y, Math.max(2, end - middle), height);
  if (view.finalized !== undefined) {
    draw.fillStyle = colours.ok;
    draw.fillRect(end - 1, y - 2, 3, height + 4);
  }
}
