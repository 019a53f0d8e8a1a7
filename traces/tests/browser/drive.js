// Uses the page as a person does, and leaves what it saw in the document as JSON.
//
// `window.target`, if there is one, is an event: its track's number, a time within it, and the share
// of the step at which it is.
(async () => {
  const element = (id) => document.getElementById(id);
  const saw = {};

  /** What the page shows, in coordinates of the window. */
  const app = window.timeline;
  const timeline = {
    view: () => ({ start: app.view.start, end: app.view.end, fullEnd: app.view.fullEnd }),
    tracks: () => {
      const box = element("plot").getBoundingClientRect();
      const shift = box.top - element("scroller").scrollTop;
      return app.layout.items.filter((item) => item.type === "track").map((item) => ({
        name: item.track.name,
        isFolded: item.isFolded,
        streams: item.track.rows.map((row) => row.stream),
        left: box.left,
        right: box.right,
        top: item.y + shift,
        bottom: item.y + item.height + shift,
      }));
    },
    followed: () => app.followed.microBatch,
    selected: () => app.selected && app.selected.row.label(app.selected.index),
    range: () => app.range,
    eventAt: (x, y) => {
      const box = element("plot").getBoundingClientRect();
      const found = app.eventAt({ x: x - box.left, y: y - box.top });
      return found && {
        label: found.row.label(found.index),
        stream: found.row.stream,
        track: found.track.name,
        stage: found.row.stages[found.index],
        microBatch: found.row.microBatches[found.index],
        start: found.row.starts[found.index],
        end: found.row.ends[found.index],
        bytes: found.row.bytes[found.index],
      };
    },
  };

  /** Waits until what was asked for is drawn. */
  const drawn = () =>
    new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));

  /** Sends an event to whatever is at a place of the window. */
  const send = async (Kind, type, { x, y }, more = {}) => {
    const under = document.elementFromPoint(x, y);
    under.dispatchEvent(new Kind(type, {
      bubbles: true, cancelable: true, clientX: x, clientY: y, pointerId: 1, button: 0,
      pointerType: "mouse", ...more,
    }));
    await drawn();
  };
  const press = async (key, more = {}) => {
    document.body.dispatchEvent(
      new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }),
    );
    await drawn();
  };
  const click = async (place) => {
    await send(PointerEvent, "pointerdown", place);
    await send(PointerEvent, "pointerup", place);
  };
  const push = async (id) => {
    element(id).click();
    await drawn();
  };

  /** How many colours the plot has. */
  const countColors = () => {
    const { width, height } = element("plot");
    const pixels = element("plot").getContext("2d").getImageData(0, 0, width, height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
  };
  const numNames = () => element("names").children.length;

  const use = async () => {
    await drawn();
    saw.tracks = timeline.tracks();
    saw.colors = countColors();
    saw.titles = element("titles").textContent;
    saw.view = timeline.view();
    const box = element("plot").getBoundingClientRect();
    const middle = { x: (box.left + box.right) / 2, y: box.top + 20 };

    await send(WheelEvent, "wheel", middle, { deltaY: -240 });
    saw.zoomedIn = timeline.view();
    await send(PointerEvent, "pointerdown", middle);
    await send(PointerEvent, "pointermove", { ...middle, x: middle.x - 100 });
    await send(PointerEvent, "pointerup", { ...middle, x: middle.x - 100 });
    saw.dragged = timeline.view();
    await press("ArrowLeft");
    saw.panned = timeline.view();
    await send(WheelEvent, "wheel", middle, { deltaY: 240 });
    await send(WheelEvent, "wheel", middle, { deltaY: 240 });
    saw.zoomedOut = timeline.view();
    await press("+");
    saw.zoomedByKey = timeline.view();
    await send(MouseEvent, "dblclick", middle);
    saw.zoomedByClick = timeline.view();
    await press("0");
    const finger = { pointerType: "touch" };
    const [left, right] = [-50, 50].map((shift) => ({ ...middle, x: middle.x + shift }));
    await send(PointerEvent, "pointerdown", left, { ...finger, pointerId: 2 });
    await send(PointerEvent, "pointerdown", right, { ...finger, pointerId: 3 });
    const further = { ...right, x: right.x + 100 };
    await send(PointerEvent, "pointermove", further, { ...finger, pointerId: 3 });
    await send(PointerEvent, "pointerup", further, { ...finger, pointerId: 3 });
    await send(PointerEvent, "pointerup", left, { ...finger, pointerId: 2 });
    saw.pinched = timeline.view();
    await push("reset");
    saw.reset = timeline.view();

    saw.numNames = [numNames()];
    const clickFirstName = async () => {
      element("names").querySelector("button")?.click();
      await drawn();
    };
    await clickFirstName();
    saw.unfolded = timeline.tracks().map((track) => !track.isFolded);
    saw.numNames.push(numNames());
    await clickFirstName();
    await push("fold");
    saw.allUnfolded = timeline.tracks().map((track) => !track.isFolded);
    saw.numNames.push(numNames());
    await push("fold");
    saw.numNames.push(numNames());

    if (window.target) {
      const find = () => timeline.tracks()[window.target.track];
      element("scroller").scrollTop += find().top - middle.y;
      await drawn();
      const track = find();
      const x = track.left + window.target.share * (track.right - track.left);
      const place = { x, y: track.top + 3 };
      const moved = send(PointerEvent, "pointermove", place);
      // At once: that the page was scrolled above may be told later, and ends hovering.
      saw.tooltip = element("tooltip").hidden ? null : element("tooltip").innerText;
      await moved;
      saw.hit = timeline.eventAt(place.x, place.y);
      await click(place);
      saw.followed = timeline.followed();
      saw.input = element("micro-batch").value;
      await press("]");
      saw.followedNext = timeline.followed();
      saw.selected = timeline.selected();
      saw.details = element("details").innerText;
      await press("ArrowRight", { shiftKey: true });
      saw.selectedNext = timeline.selected();
      await press("Escape");
      saw.followedNone = timeline.followed();
      saw.selectedNone = timeline.selected();

      element("search").value = saw.hit.label.toLowerCase();
      element("search").dispatchEvent(new Event("input", { bubbles: true }));
      saw.matches = element("matches").textContent;
      element("search").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
      await drawn();
      saw.foundFirst = timeline.selected();
      saw.matchesThen = element("matches").textContent;
      await push("reset");
      await press("Escape");
    }
    const [quarter, half] = [0.25, 0.5].map((share) => ({
      ...middle, x: box.left + share * (box.right - box.left),
    }));
    await send(PointerEvent, "pointerdown", quarter, { shiftKey: true });
    await send(PointerEvent, "pointermove", half, { shiftKey: true });
    await send(PointerEvent, "pointerup", half, { shiftKey: true });
    saw.range = timeline.range();
    saw.rangeDetails = element("details").innerText;
    await press("Escape");
    await press("Enter");
    saw.selectedByKey = timeline.selected();
    await press("Escape");
    // The page arranges its tracks anew once it sees that the details are gone.
    await drawn();
    const [last] = timeline.tracks().slice(-1);
    const plot = element("plot").getBoundingClientRect();
    saw.filled = last ? (last.bottom - plot.top) / (plot.bottom - plot.top) : null;

    await press("t");
    await press("m");
    saw.colorsInOtherTheme = countColors();
    await press("?");
    saw.keysAreShown = element("keys").open;
  };

  try {
    await use();
  } catch (error) {
    window.problems.push(error.stack);
  }
  window.leave(saw);
})();
