// Drawing on a canvas that fits its box and the screen's density.

export interface Surface {
  element: HTMLCanvasElement;
  /** The context, in CSS pixels, cleared; nothing while the canvas has no size. */
  begin(): { draw: CanvasRenderingContext2D; width: number; height: number } | undefined;
}

export function surface(label: string, className: string): Surface {
  const element = document.createElement("canvas");
  element.className = className;
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", label);
  // Asked of the element itself, its size would hold up each frame for a layout.
  let [width, height] = [0, 0];
  new ResizeObserver(() => {
    [width, height] = [element.clientWidth, element.clientHeight];
  }).observe(element);
  return {
    element,
    begin() {
      if (width === 0) [width, height] = [element.clientWidth, element.clientHeight];
      const draw = element.getContext("2d");
      if (!draw || width === 0 || height === 0) return undefined;
      const scale = Math.min(3, window.devicePixelRatio || 1);
      const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
      if (element.width !== w || element.height !== h) [element.width, element.height] = [w, h];
      draw.setTransform(scale, 0, 0, scale, 0, 0);
      draw.clearRect(0, 0, width, height);
      return { draw, width, height };
    },
  };
}
