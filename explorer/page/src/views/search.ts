// What a search finds.

import type { App, View } from "../app.ts";
import type { SearchHit } from "../data/types.ts";
import { fill, h } from "../ui/dom.ts";
import { bare } from "../ui/format.ts";
import { heading, loading, pill, problem } from "../ui/parts.ts";

/**
 * Where a hit is shown here. The server tells what kind of thing was searched for; which one it is,
 * is what was typed, so no search leads anywhere else. A validator is one of the newest that
 * are verified.
 */
export function hrefOf(hit: SearchHit, searched: string, validators: { identity: string }[] = []): string | undefined {
  const text = bare(searched.trim().toLowerCase());
  if (/^[0-9a-f]{64}$/.test(text)) {
    if (hit.kind === "validator") {
      const place = validators.findIndex((validator) => bare(validator.identity) === text);
      return place < 0 ? undefined : `#/validator/${place}`;
    }
    const names: Record<string, string> = { block: "block", transaction: "tx", account: "account" };
    const name = names[hit.kind];
    return name === undefined ? undefined : `#/${name}/0x${text}`;
  }
  if (!/^\d{1,20}$/.test(text)) return undefined;
  if (hit.kind === "validator") return BigInt(text) < BigInt(validators.length) ? `#/validator/${text}` : undefined;
  return hit.kind === "block" || hit.kind === "view" ? `#/${hit.kind}/${text}` : undefined;
}

const LABELS: Record<string, string> = { block: "The block with this id", transaction: "The transaction with this id", account: "The account", validator: "The validator", view: "The view" };

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
    (answer) => {
      const validators = (app.verifier.newest()?.trust ?? app.trust.pinned?.trust)?.validators ?? [];
      const hits = answer.flatMap((hit) => {
        const href = hrefOf(hit, text, validators);
        return href === undefined ? [] : [{ kind: hit.kind, label: LABELS[hit.kind] ?? hit.kind, href }];
      });
      if (hits.length === 1) return location.replace(hits[0]!.href);
      fill(
        content,
        h(
          "section",
          { class: "card" },
          hits.length === 0
            ? h("p", {}, "Nothing is known under ", h("code", { class: "hash" }, text), ". Search for a height, a view (2.41), an id, an identity, or a validator’s place.")
            : h("ul", { class: "plain-list" }, ...hits.map((hit) => h("li", {}, pill(hit.kind), " ", h("a", { href: hit.href }, hit.label)))),
        ),
      );
    },
    (error: unknown) => {
      if (!gone.signal.aborted) fill(content, problem("The search failed.", error));
    },
  );
  return { title: "Search", element, close: () => gone.abort() };
}
