// One redraw for each animation frame, however much has happened since the last.

const wanted = new Set<() => void>();
let asked = false;
/** How many frames were drawn, for tests. */
export let frames = 0;

function draw(): void {
  asked = false;
  frames += 1;
  const due = [...wanted];
  wanted.clear();
  for (const action of due) action();
}

/** Runs this in the next frame; once, however often it is asked for. */
export function onFrame(action: () => void): void {
  wanted.add(action);
  if (asked) return;
  asked = true;
  requestAnimationFrame(draw);
}
