// The consensus protocols, as far as they tell who leads a view.

interface Pace {
  /** How many views in a row a validator leads. */
  turn: bigint;
  /** How many views a block takes: one for each phase. */
  viewsOfABlock: bigint;
}

const PACES = {
  simplex: { turn: 1n, viewsOfABlock: 1n },
  "hotstuff-chained": { turn: 1n, viewsOfABlock: 1n },
  "hotstuff-basic": { turn: 3n, viewsOfABlock: 3n },
  pbft: { turn: 100n, viewsOfABlock: 1n },
} satisfies Record<string, Pace>;

/** By its name in genesis and trust files. */
export type Protocol = keyof typeof PACES;

export const PROTOCOLS = Object.keys(PACES) as Protocol[];

export const turn = (protocol: Protocol): bigint => PACES[protocol].turn;
export const viewsOfABlock = (protocol: Protocol): bigint => PACES[protocol].viewsOfABlock;

/** The first of the `length` views that a view belongs to. They count from 1. */
const firstOf = (view: bigint, length: bigint): bigint => view - ((view - 1n) % length);

/** The leader of a view, by its place in a committee of so many validators. */
export function leader(protocol: Protocol, validators: number, epoch: bigint, view: bigint): number {
  const length = turn(protocol);
  return Number(((view + length - 1n) / length + epoch) % BigInt(validators));
}

/** The first view of the turn that a view belongs to. */
export const turnOf = (protocol: Protocol, view: bigint): bigint => firstOf(view, turn(protocol));

/** The first view of the next turn. */
export const turnAfter = (protocol: Protocol, view: bigint): bigint => turnOf(protocol, view) + turn(protocol);

/** The view in which a block was proposed that a view may have a phase of. */
export const proposedIn = (protocol: Protocol, view: bigint): bigint => firstOf(view, viewsOfABlock(protocol));

/** How far a later view is ahead of another one, where each step leads to the next view or skips the rest of a turn; 0 of one that is not later. */
export function steps(protocol: Protocol, from: bigint, to: bigint): bigint {
  const [fromTurn, toTurn] = [turnOf(protocol, from), turnOf(protocol, to)];
  if (fromTurn < toTurn) return (toTurn - fromTurn) / turn(protocol) + to - toTurn;
  return to > from ? to - from : 0n;
}

/**
 * Where it went on without a block between two blocks of an epoch: for each turn its first view that
 * brought none, oldest first. Of more than `limit` turns, the newest.
 */
export function turnsBetween(protocol: Protocol, last: bigint, next: bigint, limit: number): bigint[] {
  const first = last + viewsOfABlock(protocol);
  const found: bigint[] = [];
  let view = turnOf(protocol, next - 1n);
  for (; view > first && found.length < limit; view -= turn(protocol)) found.push(view);
  if (first < next && found.length < limit) found.push(first);
  return found.reverse();
}
