// The consensus protocols, as far as they tell who leads a view.

/** How the views of an epoch follow one another. */
export interface Turns {
  /** How many views in a row a validator leads. */
  length: bigint;
  /** How many views a block takes: one for each phase. */
  viewsOfABlock: bigint;
}

/** A new leader in each view. It also stands for turns that are not known yet. */
const VIEW_BY_VIEW: Turns = { length: 1n, viewsOfABlock: 1n };

/** The longest turns of each protocol. */
const LONGEST = {
  simplex: VIEW_BY_VIEW,
  "hotstuff-chained": VIEW_BY_VIEW,
  "hotstuff-basic": { length: 3n, viewsOfABlock: 3n },
  pbft: { length: 100n, viewsOfABlock: 1n },
} satisfies Record<string, Turns>;

/** By its name in genesis and trust files. */
export type Protocol = keyof typeof LONGEST;

export const PROTOCOLS = Object.keys(LONGEST) as Protocol[];

/**
 * The turns of an epoch with so many validators. Where these can change, so that there are `epochBlocks`, turns of several
 * blocks are so short that each validator has two before the middle of the epoch; unknown if the number of validators is.
 */
export function turnsOf(protocol: Protocol, epochBlocks: bigint | undefined, validators: number | undefined): Turns | undefined {
  const longest = LONGEST[protocol];
  if (epochBlocks === undefined || longest.length === longest.viewsOfABlock) return longest;
  if (!validators) return undefined;
  const each = epochBlocks / 4n / BigInt(validators);
  return { ...longest, length: each < 1n ? 1n : each < longest.length ? each : longest.length };
}

/** The first of the `length` views that a view belongs to. They count from 1. */
const firstOf = (view: bigint, length: bigint): bigint => view - ((view - 1n) % length);

/** The leader of a view, by its place in a committee of so many validators. */
export function leader({ length }: Turns, validators: number, epoch: bigint, view: bigint): number {
  return Number(((view + length - 1n) / length + epoch) % BigInt(validators));
}

/** The first view of the turn that a view belongs to. */
export const turnOf = ({ length }: Turns, view: bigint): bigint => firstOf(view, length);

/** The first view of the next turn. */
export const turnAfter = ({ length }: Turns, view: bigint): bigint => firstOf(view, length) + length;

/** The view in which a block was proposed that a view may have a phase of. */
export const proposedIn = ({ viewsOfABlock } = VIEW_BY_VIEW, view: bigint): bigint => firstOf(view, viewsOfABlock);

/** How far a later view is ahead of another one, where each step leads to the next view or skips the rest of a turn; 0 of one that is not later. */
export function steps({ length } = VIEW_BY_VIEW, from: bigint, to: bigint): bigint {
  const [fromTurn, toTurn] = [firstOf(from, length), firstOf(to, length)];
  if (fromTurn < toTurn) return (toTurn - fromTurn) / length + to - toTurn;
  return to > from ? to - from : 0n;
}

/**
 * Where it went on without a block between two blocks of an epoch: for each turn its first view that
 * brought none, oldest first. Of more than `limit` turns, the newest.
 */
export function turnsBetween({ length, viewsOfABlock }: Turns, last: bigint, next: bigint, limit: number): bigint[] {
  const first = last + viewsOfABlock;
  const found: bigint[] = [];
  let view = firstOf(next - 1n, length);
  for (; view > first && found.length < limit; view -= length) found.push(view);
  if (first < next && found.length < limit) found.push(first);
  return found.reverse();
}
