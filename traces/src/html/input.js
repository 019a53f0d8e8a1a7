// Pointers, wheels and keys.

/** How far a pointer moves before a click has become a drag, in pixels. */
const DRAG_FROM = 4;
/** By how much a key or a button zooms, and which share of the view it pans. */
const ZOOM_STEP = 1.35;
const PAN_STEP = 0.15;
/** A notch of a wheel, about 100 pixels, zooms by a quarter. */
const ZOOM_PER_PIXEL = 0.0022;
/** No event of a wheel counts for more than so many pixels. */
const MOST_WHEEL = 300;

/** Wires the plot: `app` is told to hover, click and select, its view to zoom and pan. */
function listenToPlot(plot, scroller, app) {
  const { view } = app;
  const pointers = new Map();
  let moved = 0;
  let pinch = null;
  /** Where a range is dragged from; null while nothing or something else is. */
  let rangeFrom = null;

  const position = (event) => {
    const box = plot.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const pinchOf = () => {
    const [a, b] = [...pointers.values()];
    return { distance: Math.hypot(a.x - b.x, a.y - b.y), x: (a.x + b.x) / 2 };
  };

  plot.addEventListener("wheel", (event) => {
    event.preventDefault();
    // Lines and pages as pixels.
    const unit = [1, 16, plot.clientHeight][event.deltaMode];
    const sideways = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.pan(sideways * unit);
    } else {
      const pixels = clamped(event.deltaY * unit, -MOST_WHEEL, MOST_WHEEL);
      view.zoom(Math.exp(pixels * ZOOM_PER_PIXEL), position(event).x);
    }
  }, { passive: false });

  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    if (event.shiftKey && pointers.size === 0) {
      rangeFrom = position(event).x;
      return;
    }
    pointers.set(event.pointerId, position(event));
    moved = 0;
    pinch = pointers.size === 2 ? pinchOf() : null;
  });

  // On the window, so that a drag may leave the plot.
  window.addEventListener("pointermove", (event) => {
    const now = position(event);
    const before = pointers.get(event.pointerId);
    if (rangeFrom !== null) {
      app.selectRange(rangeFrom, now.x);
    } else if (!before) {
      if (event.target === plot) app.hover(now, event);
    } else {
      pointers.set(event.pointerId, now);
      if (pinch && pointers.size === 2) {
        const next = pinchOf();
        view.pan(pinch.x - next.x);
        view.zoom(pinch.distance / Math.max(next.distance, 1), next.x);
        pinch = next;
        moved = Infinity;
        return;
      }
      moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      if (moved < DRAG_FROM) return;
      plot.classList.add("dragging");
      app.unhover();
      view.pan(before.x - now.x);
      if (event.pointerType === "mouse") scroller.scrollTop += before.y - now.y;
    }
  });

  const release = (event) => {
    if (rangeFrom !== null) {
      app.selectRange(rangeFrom, position(event).x);
      rangeFrom = null;
    } else if (pointers.delete(event.pointerId)) {
      plot.classList.remove("dragging");
      pinch = null;
      if (event.type === "pointerup" && moved < DRAG_FROM) app.click(position(event));
    }
  };
  window.addEventListener("pointerup", release);
  window.addEventListener("pointercancel", release);
  plot.addEventListener("pointerleave", () => app.unhover());
  plot.addEventListener("dblclick", (event) => {
    view.zoom(event.shiftKey ? 3 : 1 / 3, position(event).x);
  });
}

/** Wires the axis, on which a drag moves the view to a time of the whole. */
function listenToAxis(axis, view) {
  let isDown = false;
  const move = (event) => {
    const box = axis.getBoundingClientRect();
    if (isDown) view.centreOn(((event.clientX - box.left) / box.width) * view.fullEnd);
  };
  axis.addEventListener("pointerdown", (event) => {
    isDown = true;
    move(event);
  });
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", () => { isDown = false; });
}

/** Wires the keys, and the buttons that name one of them. */
function listenToKeys(app) {
  const { view } = app;
  const scroller = element("scroller");
  const actions = new Map([
    ["+ = w", () => view.zoom(1 / ZOOM_STEP)],
    ["- s", () => view.zoom(ZOOM_STEP)],
    ["ArrowLeft a", () => view.pan(-PAN_STEP * view.width)],
    ["ArrowRight d", () => view.pan(PAN_STEP * view.width)],
    ["ArrowUp", () => { scroller.scrollTop -= 60; }],
    ["ArrowDown", () => { scroller.scrollTop += 60; }],
    ["0 Home", () => view.reset()],
    ["f", () => app.toggleAll()],
    ["m", () => app.toggleMemory()],
    ["t", () => app.toggleTheme()],
    ["r", () => app.selectRange(0, view.width)],
    ["/", () => element("search").focus()],
    ["n", () => app.findNext(1)],
    ["Enter", () => app.enter()],
    ["Shift+ArrowLeft", () => app.selectNext(-1)],
    ["Shift+ArrowRight", () => app.selectNext(1)],
    ["Shift+ArrowUp", () => app.selectTrack(-1)],
    ["Shift+ArrowDown", () => app.selectTrack(1)],
    ["[", () => app.followNext(-1)],
    ["]", () => app.followNext(1)],
    ["Escape", () => {
      document.activeElement.blur();
      app.clear();
    }],
    ["?", () => app.showKeys()],
  ].flatMap(([keys, action]) => keys.split(" ").map((key) => [key, action])));
  window.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLInputElement && event.key !== "Escape";
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    // A key that a button or a link takes is not ours.
    if (event.key === "Enter" && event.target !== document.body && event.target.id !== "plot") return;
    const isMove = event.shiftKey && event.key.startsWith("Arrow");
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = actions.get(isMove ? `Shift+${key}` : key);
    if (!action) return;
    event.preventDefault();
    action();
  });
  for (const button of document.querySelectorAll("[data-key]")) {
    button.addEventListener("click", actions.get(button.dataset.key));
  }
}
