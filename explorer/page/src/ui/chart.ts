// A curve, on uPlot.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { h, setText } from "./dom.ts";
import { palette } from "./theme.ts";

export interface CurveOptions {
  title: string;
  /** The names of the series after the first, which is the x axis. */
  series: { label: string; colour: "accent" | "ok" | "warn" | "ink-3"; fill?: boolean }[];
  /** The x values are moments in seconds. */
  time: boolean;
  /** The values are sums over periods of so many seconds, drawn as bars. */
  step?: number;
  xLabel: string;
  format(value: number): string;
}

export interface Curve {
  element: HTMLElement;
  set(data: (number | null)[][], summary: string): void;
  recolour(): void;
  close(): void;
}

const HEIGHT = 168;

const two = (value: number) => value.toString().padStart(2, "0");

/** A moment on the axis, as exactly as the distance between two of them asks for. */
export function tick(seconds: number, apart: number): string {
  const at = new Date(1_000 * seconds);
  const day = `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  if (apart >= 86_400) return day;
  const minute = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (apart < 60) return `${minute}:${two(at.getSeconds())}`;
  return minute === "00:00" ? day : minute;
}

const ticks = (seconds: number[]) => seconds.map((value) => tick(value, seconds.length > 1 ? seconds[1]! - seconds[0]! : 60));

/** The least number of periods on the axis: a lone bar is not as broad as the picture. */
const LEAST_PERIODS = 12;

export function curve(options: CurveOptions): Curve {
  const box = h("div", { class: "curve-box", role: "img", "aria-label": options.title });
  const now = h("p", { class: "curve-summary" });
  const legend = h(
    "ul",
    { class: "legend" },
    ...options.series.map(({ label, colour }) => h("li", {}, h("span", { class: `swatch swatch-${colour}`, "aria-hidden": "true" }), label)),
  );
  const element = h("section", { class: "card curve" }, h("div", { class: "card-head" }, h("h2", {}, options.title), legend), now, box);
  let plot: uPlot | undefined;
  let data: (number | null)[][] = [[], ...options.series.map(() => [])];

  const build = () => {
    const width = box.clientWidth;
    if (width === 0) return;
    const { step } = options;
    const colours = palette();
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: colours["ink-3"], font, ticks: { show: false }, gap: 6 };
    const grid = { stroke: colours.line, width: 1 };
    plot = new uPlot(
      {
        width,
        height: HEIGHT,
        // The last moment's label is half beyond the end of the axis.
        padding: [8, options.time ? 28 : 12, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { size: 6 } },
        scales: { x: { time: options.time, ...(options.time ? { range: (_, min, max) => (step === undefined ? [Math.min(min, max - 30), max] : [Math.min(min, max - (LEAST_PERIODS - 1) * step), max + step]) } : {}) }, y: { range: (_, __, max) => [0, max > 0 ? 1.15 * max : 1] } },
        axes: [
          { ...axis, grid: { show: false }, space: 80, size: 30, values: (_, values) => (options.time ? ticks(values) : values.map((value) => value.toFixed(0))) },
          { ...axis, grid, size: 56, space: 32, values: (_, values) => values.map((value) => options.format(value)) },
        ],
        series: [
          {},
          ...options.series.map(({ label, colour, fill }) => ({
            label,
            stroke: colours[colour],
            width: 1.5,
            spanGaps: true,
            points: { show: false },
            ...(fill ? { fill: colours[colour].replace("rgb(", "rgba(").replace(")", step === undefined ? ", 0.12)" : ", 0.45)") } : {}),
            ...(step === undefined ? {} : { paths: uPlot.paths.bars!({ size: [0.8, 60], align: 1 }) }),
          })),
        ],
      },
      data as uPlot.AlignedData,
      box,
    );
  };
  const rebuild = () => {
    plot?.destroy();
    plot = undefined;
    build();
  };
  const observer = new ResizeObserver(() => {
    if (plot) plot.setSize({ width: box.clientWidth, height: HEIGHT });
    else build();
  });
  observer.observe(box);
  return {
    element,
    set(fresh, summary) {
      data = fresh;
      plot?.setData(data as uPlot.AlignedData);
      setText(now, summary);
      box.setAttribute("aria-label", `${options.title}: ${summary}`);
    },
    recolour: rebuild,
    close() {
      observer.disconnect();
      plot?.destroy();
    },
  };
}
