// Bytes, hexadecimal text, and a reader that never goes past the end.

/** Bytes that are not what they should be. The message is for people. */
export class DecodeError extends Error {}

const DIGITS = /^[0-9a-fA-F]*$/;

/** Hexadecimal text with `0x`. */
export function hex(bytes: Uint8Array): string {
  let text = "0x";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

/** The bytes of hexadecimal text, with or without `0x`; of this length if one is given. */
export function unhex(text: unknown, length?: number): Uint8Array {
  if (typeof text !== "string") throw new DecodeError("hexadecimal text expected");
  const digits = text.startsWith("0x") ? text.slice(2) : text;
  if (digits.length % 2 !== 0 || !DIGITS.test(digits)) {
    throw new DecodeError("not hexadecimal text");
  }
  if (length !== undefined && digits.length !== 2 * length) {
    throw new DecodeError(`${2 * length} hexadecimal digits expected, not ${digits.length}`);
  }
  const bytes = new Uint8Array(digits.length / 2);
  for (let i = 0; i < bytes.length; i++) bytes[i] = parseInt(digits.slice(2 * i, 2 * i + 2), 16);
  return bytes;
}

/** Hexadecimal text in the one form that this page compares: lower case, with `0x`. */
export function normal(text: unknown, length?: number): string {
  return hex(unhex(text, length));
}

export function concat(...parts: Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let end = 0;
  for (const part of parts) {
    bytes.set(part, end);
    end += part.length;
  }
  return bytes;
}

export function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

/** Eight bytes, big-endian. */
export function u64(value: bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, value);
  return bytes;
}

/** Reads numbers (big-endian) and byte strings, front to back. */
export class Reader {
  #at = 0;
  readonly #bytes: Uint8Array;
  readonly #what: string;

  constructor(bytes: Uint8Array, what: string) {
    this.#bytes = bytes;
    this.#what = what;
  }

  take(length: number): Uint8Array {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new DecodeError(`${this.#what}: too short`);
    const part = this.#bytes.slice(this.#at, end);
    this.#at = end;
    return part;
  }

  #view(length: number): DataView {
    return new DataView(this.take(length).buffer);
  }

  u8(): number {
    return this.#view(1).getUint8(0);
  }

  u16(): number {
    return this.#view(2).getUint16(0);
  }

  u32(): number {
    return this.#view(4).getUint32(0);
  }

  u64(): bigint {
    return this.#view(8).getBigUint64(0);
  }

  /** Everything that has not been read. */
  rest(): Uint8Array {
    return this.take(this.#bytes.length - this.#at);
  }

  /** One byte that must have this value. */
  version(expected: number): void {
    const found = this.u8();
    if (found !== expected) {
      throw new DecodeError(`${this.#what}: version ${found}, not ${expected}`);
    }
  }

  /** Everything must have been read: there is one encoding of each value. */
  end(): void {
    if (this.#at !== this.#bytes.length) {
      throw new DecodeError(`${this.#what}: ${this.#bytes.length - this.#at} bytes too many`);
    }
  }
}
