// What a search finds.

import type { App, View } from "../app.ts";
import type { SearchHit } from "../data/types.ts";
import { fill, h } from "../ui/dom.ts";
import { heading, loading, pill, problem } from "../ui/parts.ts";

/** Where a hit is shown here, from where the server has it. */
export function hrefOf(hit: SearchHit): string {
  const url = new URL(hit.href, "http://server/");
  const last = decodeURIComponent(url.pathname.split("/").at(-1) ?? "");
  if (hit.kind === "view") {
    const epoch = url.searchParams.get("epoch");
    return `#/view/${epoch === null ? "" : `${epoch}.`}${last}`;
  }
  const names = { block: "block", transaction: "tx", account: "account", validator: "validator" } as const;
  return `#/${names[hit.kind]}/${last}`;
}

/** What needs no server to be understood: a height, or a view with its epoch. */
export function direct(text: string): string | undefined {
  const plain = text.replace(/[\s\u202f,_#]/g, "");
  if (/^\d{1,20}$/.test(plain)) return `#/block/${plain}`;
  if (/^\d{1,20}\.\d{1,20}$/.test(plain)) return `#/view/${plain}`;
  if (/^latest$/i.test(plain)) return "#/block/latest";
  return undefined;
}

export function searchView(app: App, text: string): View {
  const gone = new AbortController();
  const content = h("div", {}, loading());
  const element = h("div", {}, heading("Search"), content);

  app.api.get<SearchHit[]>(`/v1/search?q=${encodeURIComponent(text)}`, gone.signal).then(
    (hits) => {
      if (hits.length === 1) return location.replace(hrefOf(hits[0]!));
      fill(
        content,
        h(
          "section",
          { class: "card" },
          hits.length === 0
            ? h("p", {}, "Nothing is known under ", h("code", { class: "hash" }, text), ". Search for a height, a view (2.41), an id, an identity, or a validator’s place.")
            : h("ul", { class: "plain-list" }, ...hits.map((hit) => h("li", {}, pill(hit.kind), " ", h("a", { href: hrefOf(hit) }, hit.label)))),
        ),
      );
    },
    (error: unknown) => {
      if (!gone.signal.aborted) fill(content, problem("The search failed.", error));
    },
  );
  return { title: "Search", element, close: () => gone.abort() };
}
