// Elements, without a framework. Text is always text: nothing here parses markup.

type Child = Node | string | number | bigint | false | null | undefined | Child[];
type Handler = (event: never) => void;
type Props = Record<string, string | number | boolean | Handler | undefined>;

function append(parent: Node, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) append(parent, child);
    else if (child instanceof Node) parent.appendChild(child);
    else if (child !== false && child !== null && child !== undefined) {
      parent.appendChild(document.createTextNode(String(child)));
    }
  }
}

function assign(element: Element, props: Props): void {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** An element with attributes (`onclick` and the like are listeners) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  assign(element, props);
  append(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

const ICONS = {
  check: "M3.5 8.5l3 3 6-7",
  cross: "M4.5 4.5l7 7m0-7l-7 7",
  wait: "M8 4.5V8l2.3 1.6M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12z",
  skip: "M4.5 8h7",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  pause: "M5.5 3.5v9m5-9v9",
  play: "M5 3.2v9.6L12.5 8z",
  search: "M10.5 10.5l3.5 3.5M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10z",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  left: "M9.5 3.5L5 8l4.5 4.5",
  right: "M6.5 3.5L11 8l-4.5 4.5",
  shield: "M8 1.8l5 1.8v4c0 3.2-2.1 5.4-5 6.6-2.9-1.2-5-3.4-5-6.6v-4zM5.6 8l1.8 1.8 3-3.4",
  alarm: "M8 2.2l6.3 11.3H1.7zM8 6.5v3.4M8 11.6v.4",
  save: "M8 2.5v7.5M4.8 7L8 10.2 11.2 7M3 13.5h10",
} as const;

/** A small line drawing; hidden from screen readers, so words stand beside it. */
export function icon(name: keyof typeof ICONS): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  assign(svg, { viewBox: "0 0 16 16", class: `icon icon-${name}`, "aria-hidden": "true", focusable: "false" });
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.appendChild(path);
  return svg;
}

/** Sets text only if it is another: what does not change is not painted again. */
export function setText(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

export function setClass(node: Element, name: string): void {
  if (node.className !== name) node.className = name;
}

/** Replaces what is in an element. */
export function fill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}

/** Text for screen readers only. */
export const hidden = (text: string): HTMLElement => h("span", { class: "visually-hidden" }, text);
