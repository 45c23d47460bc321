// One redraw for each animation frame, however much has happened since the last.

const wanted = new Set<() => void>();
let asked = false;
/** How many frames were drawn, and how long that took, for tests. */
export const drawn = { frames: 0, ms: 0 };

function draw(): void {
  asked = false;
  const started = performance.now();
  const due = [...wanted];
  wanted.clear();
  for (const action of due) action();
  drawn.frames += 1;
  drawn.ms += performance.now() - started;
}

/** Runs this in the next frame; once, however often it is asked for. */
export function onFrame(action: () => void): void {
  wanted.add(action);
  if (asked) return;
  asked = true;
  requestAnimationFrame(draw);
}
