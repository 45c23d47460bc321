// What the browser remembers for this page; if it refuses to, only until the page is closed.

const fallback = new Map<string, string>();

export function load(key: string): string | undefined {
  try {
    return localStorage.getItem(key) ?? fallback.get(key);
  } catch {
    return fallback.get(key);
  }
}

export function store(key: string, value: string | undefined): void {
  if (value === undefined) fallback.delete(key);
  else fallback.set(key, value);
  try {
    if (value === undefined) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // Private windows and files may have no storage.
  }
}
