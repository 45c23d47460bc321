// The newest views as a strip, each in its leader's colour.

import type { ViewRow } from "../data/chain.ts";
import { surface } from "./canvas.ts";
import { h, setText } from "./dom.ts";
import { count, words } from "./format.ts";
import { palette } from "./theme.ts";

const CELL = 12;
const GAP = 3;
const LINES = 3;

/** What became of a view, in words. */
export function outcomeOf(view: ViewRow): string {
  if (view.height !== undefined) return `block ${count(view.height)}`;
  if (view.nullified !== undefined) return view.reason ? `nullified (${words(view.reason)})` : "nullified";
  return view.notarized === undefined ? "nothing seen" : "notarized";
}

/** What a row is called: its view, or the one that was nullified. */
export const nameOf = (view: ViewRow): string => `${view.epoch}.${view.height === undefined ? (view.nullifiedView ?? view.view) : view.view}`;

export function strip() {
  const canvas = surface("Leaders of the newest views", "strip");
  const said = h("p", { class: "strip-text" }, "Newest on the right; a cross is a view that was nullified.");
  const element = h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Leaders")), canvas.element, said);
  let shown: ViewRow[] = [];
  let columns = 1;

  const at = (event: MouseEvent): ViewRow | undefined => {
    const column = Math.floor(event.offsetX / (CELL + GAP));
    const line = Math.floor(event.offsetY / (CELL + GAP));
    return column < columns ? shown[line * columns + column] : undefined;
  };
  canvas.element.addEventListener("mousemove", (event) => {
    const view = at(event);
    if (view) setText(said, `View ${nameOf(view)}, led by validator ${view.leader}: ${outcomeOf(view)}.`);
  });
  canvas.element.addEventListener("click", (event) => {
    const view = at(event);
    if (view) location.hash = `#/view/${nameOf(view)}`;
  });

  return {
    element,
    update(views: Iterable<ViewRow>): void {
      const started = canvas.begin();
      if (!started) return;
      const { draw, width } = started;
      const colours = palette();
      columns = Math.max(1, Math.floor((width + GAP) / (CELL + GAP)));
      const all = [...views].slice(-2 * columns * LINES).sort((a, b) => (a.epoch === b.epoch ? Number(a.view - b.view) : Number(a.epoch - b.epoch)));
      shown = all.slice(-columns * LINES);
      shown.forEach((view, i) => {
        const x = (i % columns) * (CELL + GAP);
        const y = Math.floor(i / columns) * (CELL + GAP);
        const colour = colours.hues[view.leader % 12]!;
        if (view.nullified !== undefined && view.height === undefined) {
          draw.strokeStyle = colours.bad;
          draw.lineWidth = 1.5;
          draw.strokeRect(x + 0.75, y + 0.75, CELL - 1.5, CELL - 1.5);
          draw.beginPath();
          draw.moveTo(x + 3.5, y + 3.5);
          draw.lineTo(x + CELL - 3.5, y + CELL - 3.5);
          draw.moveTo(x + CELL - 3.5, y + 3.5);
          draw.lineTo(x + 3.5, y + CELL - 3.5);
          draw.stroke();
        } else {
          draw.globalAlpha = view.height === undefined ? 0.35 : 1;
          draw.fillStyle = colour;
          draw.fillRect(x, y, CELL, CELL);
          draw.globalAlpha = 1;
        }
      });
      const nullified = shown.filter((view) => view.nullified !== undefined && view.height === undefined).length;
      canvas.element.setAttribute("aria-label", `Leaders of the newest ${shown.length} views; ${nullified} of these were nullified.`);
    },
  };
}
