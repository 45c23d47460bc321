// Requests to one explorer.

/** An answer that is an error, or none. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, detail: string) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

const ATTEMPTS = 4;
const TIMEOUT_MS = 15_000;
const LONGEST_WAIT_MS = 5_000;

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export class Api {
  /** Where the server is; ends in a slash. */
  readonly base: string;

  constructor(base: string) {
    this.base = base.endsWith("/") ? base : `${base}/`;
  }

  /** The address of a path such as `/v1/status`. */
  url(path: string): string {
    return new URL(path.replace(/^\//, ""), this.base).href;
  }

  /** The answer to a path. Asks again, after the time the server names, if it is too busy. */
  async get<T>(path: string, signal?: AbortSignal): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      const response = await this.#fetch(path, signal);
      if (response.ok) return (await response.json()) as T;
      const error = await problem(response);
      if (attempt >= ATTEMPTS || (response.status !== 429 && response.status !== 503)) throw error;
      const seconds = Number(response.headers.get("retry-after") ?? "1");
      await pause(Math.min(LONGEST_WAIT_MS, 1_000 * (Number.isFinite(seconds) ? seconds : 1)));
      signal?.throwIfAborted();
    }
  }

  /** Sends something, once. */
  async post<T>(path: string, value: unknown, signal?: AbortSignal): Promise<T> {
    const body = JSON.stringify(value);
    const response = await this.#fetch(path, signal, { method: "POST", body, headers: { accept: "application/json", "content-type": "application/json" } });
    if (response.ok) return (await response.json()) as T;
    throw await problem(response);
  }

  async #fetch(path: string, signal?: AbortSignal, options: RequestInit = {}): Promise<Response> {
    const limit = AbortSignal.timeout(TIMEOUT_MS);
    const either = signal ? AbortSignal.any([signal, limit]) : limit;
    try {
      const headers = { accept: "application/json" };
      return await fetch(this.url(path), { headers, ...options, signal: either, credentials: "omit" });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError(0, "unreachable", "The server does not answer.");
    }
  }
}

async function problem(response: Response): Promise<ApiError> {
  const fallback = `The server answers ${response.status}.`;
  try {
    const body = (await response.json()) as { code?: string; detail?: string; title?: string };
    return new ApiError(response.status, body.code ?? "", body.detail ?? body.title ?? fallback);
  } catch {
    return new ApiError(response.status, "", fallback);
  }
}
