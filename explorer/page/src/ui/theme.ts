// Light or dark: the system's choice unless somebody chooses here.

import { load, store } from "../data/memory.ts";

export type Theme = "auto" | "light" | "dark";
const NEXT: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
const KEY = "quorate.theme";

export function theme(): Theme {
  const stored = load(KEY);
  return stored === "light" || stored === "dark" ? stored : "auto";
}

function apply(choice: Theme): void {
  if (choice === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = choice;
  colours = undefined;
}

export function startTheme(changed: () => void): void {
  apply(theme());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    colours = undefined;
    changed();
  });
}

export function nextTheme(): Theme {
  const choice = NEXT[theme()];
  store(KEY, choice === "auto" ? undefined : choice);
  apply(choice);
  return choice;
}

const NAMES = ["ink", "ink-2", "ink-3", "line", "surface", "accent", "ok", "bad", "warn"] as const;
export type Colours = Record<(typeof NAMES)[number], string> & { hues: string[] };
let colours: Colours | undefined;

/** The colours of the style sheet, resolved, for what is drawn on a canvas. */
export function palette(): Colours {
  if (colours) return colours;
  const probe = document.createElement("span");
  document.body.appendChild(probe);
  const read = (name: string) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const named = NAMES.map((name) => [name, read(name)]);
  const found = Object.fromEntries(named) as unknown as Colours;
  found.hues = Array.from({ length: 12 }, (_, i) => read(`hue-${i}`));
  probe.remove();
  colours = found;
  return found;
}
