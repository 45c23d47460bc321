// The staking registry: who validates, who comes next, and who else has stake up.

import type { App, View } from "../app.ts";
import type { Registry } from "../data/types.ts";
import { fill, h, setText } from "../ui/dom.ts";
import { count } from "../ui/format.ts";
import { accountLink, heading, line, loading, pill, problem, repeat, table } from "../ui/parts.ts";

const REFRESH_MS = 2_000;

type Bond = Registry["bonds"][number];
/** A validator of a set, or somebody with a bond. Who has withdrawn may still have a seat. */
type Entry = Pick<Bond, "identity" | "address" | "name"> & Partial<Bond>;

/** A stranger's words: printable ASCII by the chain's rules, whatever a server sends. */
export const label = (text: string): string => (/^[!-~]{0,48}$/.test(text) ? text : "unreadable");

/** What becomes of an entry, in words. */
export function prospects(entry: Entry, { epoch, rules, acting, coming }: Registry): [string, "bad" | "warn" | "plain"][] {
  const has = (set: { identity: string }[] | null) => set?.some(({ identity }) => identity === entry.identity) === true;
  const found: [string, "bad" | "warn" | "plain"][] = [];
  if (coming !== null && has(acting) !== has(coming)) found.push(has(coming) ? ["joins", "plain"] : ["leaves", "warn"]);
  if (entry.jailed) found.push([`jailed until epoch ${entry.since}`, "bad"]);
  else if (entry.since !== undefined && BigInt(entry.since) > BigInt(epoch)) found.push([`can be chosen in epoch ${entry.since}`, "plain"]);
  if (BigInt(entry.stake ?? 0) < BigInt(rules.min_stake)) found.push([`less than ${count(rules.min_stake)} at stake`, "warn"]);
  return found;
}

/** What is no longer at stake, and until when it is held. */
function unbonded({ leaving = "0", leaves_at: at = "0" }: Entry, epoch: string): string {
  if (leaving === "0") return "";
  return `${count(leaving)} ${BigInt(at) > BigInt(epoch) ? `until epoch ${at}` : "to withdraw"}`;
}

export function registryView(app: App): View {
  const state = h("p", { class: "quiet totals", role: "status" });
  const content = h("div", {}, loading());
  const element = h("div", {}, heading("Registry"), state, content);
  let shown = "";

  async function show(signal: AbortSignal): Promise<void> {
    const registry = await app.api.get<Registry>("/v1/registry", signal);
    const { acting, bonds, coming, epoch, rules } = registry;
    setText(state, `After block ${count(registry.executed_height)}, in epoch ${epoch}, which ends with block ${count(registry.last_height)}. This server has executed all blocks itself; final headers confirm its state to block ${count(registry.checked_to)}.`);
    const key = JSON.stringify([acting, bonds, coming, epoch]);
    if (key === shown) return;
    shown = key;
    const held = new Map(bonds.map((bond) => [bond.identity, bond]));
    const row = (entry: Entry) =>
      line(
        ["full", label(entry.name) || h("span", { class: "quiet" }, "no name")],
        ["full", accountLink(entry.identity)],
        ["number full", count(entry.stake ?? 0)],
        ["number full", unbonded(entry, epoch)],
        ["full", label(entry.address)],
        ["full", ...prospects(entry, registry).map(([text, tone]) => pill(text, tone))],
      );
    const section = (title: string, aside: string, entries: Entry[]) =>
      h(
        "section",
        { class: "card card-flush" },
        h("div", { class: "card-head" }, h("h2", {}, title), h("span", { class: "quiet" }, aside)),
        entries.length > 0 && table(title, ["Name", "Account", "Stake|number", "Unbonded|number", "Address", "Standing"], entries.map(row)),
      );
    const own = (set: Entry[]) => set.map((member) => ({ ...held.get(member.identity), ...member }));
    const seated = new Set([...acting, ...(coming ?? [])].map(({ identity }) => identity));
    const others = bonds.filter(({ identity }) => !seated.has(identity));
    const focused = content.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : undefined;
    fill(
      content,
      section(`Acting: ${acting.length}`, `validators of epoch ${epoch}`, own(acting)),
      section(`Coming: ${coming?.length ?? "not fixed yet"}`, coming === null ? `the state after block ${count(registry.fixing_height)} fixes the validators of epoch ${BigInt(epoch) + 1n}` : `validators of epoch ${BigInt(epoch) + 1n}`, own(coming ?? [])),
      section(`Registered only: ${others.length}`, "a bond, and no seat", others),
      h("p", { class: "quiet" }, `At most ${count(rules.max_validators)} validate: those with the most at stake, of at least ${count(rules.min_stake)}. Names and addresses are their operators’ words.`),
    );
    if (focused) content.querySelector<HTMLElement>(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }

  const close = repeat(REFRESH_MS, show, (error) => {
    if (shown === "") fill(content, problem("The registry cannot be shown.", error));
  });
  return { title: "Registry", element, close };
}
