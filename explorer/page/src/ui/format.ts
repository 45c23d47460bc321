// Numbers, times and hashes as people read them.

const THIN = "\u202f";

/** A whole number in groups of three. */
export function count(value: bigint | number | string): string {
  const digits = typeof value === "number" ? Math.round(value).toString() : value.toString();
  return digits.replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

/** Milliseconds with three digits that count: 4.18 ms, 41.8 ms, 418 ms, 4.18 s. */
export function duration(ms: number | undefined | null): string {
  if (ms === undefined || ms === null || !Number.isFinite(ms)) return "–";
  if (ms < 10) return `${ms.toFixed(2)} ms`;
  if (ms < 100) return `${ms.toFixed(1)} ms`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(2)} s`;
  return age(ms);
}

/** How long ago: 0.4 s, 12 s, 3 min, 5 h, 2 d. Never negative, since clocks differ. */
export function age(ms: number): string {
  const seconds = Math.max(0, ms) / 1_000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h`;
  return `${count(Math.floor(seconds / 86_400))} d`;
}

export function bytes(value: number): string {
  if (value < 1_000) return `${value} B`;
  if (value < 1_000_000) return `${(value / 1_000).toFixed(1)} kB`;
  return `${(value / 1_000_000).toFixed(2)} MB`;
}

export function rate(value: number): string {
  return value < 100 ? value.toFixed(1) : count(value);
}

/** A moment, to the millisecond, in this machine's time zone. */
export function moment(ms: number | bigint): string {
  const date = new Date(Number(ms));
  if (Number.isNaN(date.getTime())) return "–";
  const two = (value: number) => value.toString().padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${day} ${time}.${date.getMilliseconds().toString().padStart(3, "0")}`;
}

/** The beginning and end of hexadecimal text, without its `0x`. */
export function shortHash(text: string, head = 8, tail = 6): string {
  const digits = text.replace(/^0x/, "");
  return digits.length <= head + tail + 1 ? digits : `${digits.slice(0, head)}…${digits.slice(-tail)}`;
}

/** Hexadecimal text without its `0x`, as the command line takes it. */
export const bare = (text: string): string => text.replace(/^0x/, "");

/** `two_notarize` as words. */
export const words = (name: string): string => name.replaceAll("_", " ");
