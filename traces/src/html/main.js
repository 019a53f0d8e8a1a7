// The page: what it shows, and what it does when asked.

const element = (id) => document.getElementById(id);

/** Makes an element with attributes and children; texts are texts, never markup. */
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Up to this many tracks, memory is shown from the start. */
const FEW_TRACKS = 8;

class App {
  constructor(timelines) {
    this.timelines = timelines;
    this.tracks = timelines.flatMap((timeline) => timeline.tracks);
    this.view = new View(Math.max(0, ...timelines.map((timeline) => timeline.end)));
    this.unfolded = new Set();
    this.showMemory =
      this.tracks.length <= FEW_TRACKS && this.tracks.some((track) => track.hasMemory);
    /** The followed micro-batch, and its events by row. */
    this.followed = { microBatch: null, events: new Map() };
    this.hovered = null;
    this.cursor = null;
    /** The selected event with its row, track and timeline, and the selected part of time. */
    this.selected = null;
    this.range = null;
    /** What is searched for, and which of the events that are called so is selected. */
    this.found = { wanted: "", matches: [], at: -1 };
    this.palette = new Palette();
    this.painter = new Painter(this.palette);
    this.isDue = false;

    this.writeTitles();
    this.writeDetails();
    this.arrange();
    this.listen();
  }

  listen() {
    listenToPlot(element("plot"), element("scroller"), this);
    listenToAxis(element("axis"), this);
    listenToKeys(this);
    const on = (id, action) => element(id).addEventListener("click", action);
    on("zoom-in", () => this.zoom(1 / ZOOM_STEP));
    on("zoom-out", () => this.zoom(ZOOM_STEP));
    on("reset", () => this.reset());
    on("fold", () => this.toggleAll());
    on("memory", () => this.toggleMemory());
    on("theme", () => this.toggleTheme());
    on("help", () => this.showKeys());
    element("keys").addEventListener("close", () => {
      element("help").setAttribute("aria-expanded", "false");
    });
    element("micro-batch").addEventListener("input", ({ target }) => {
      this.follow(target.value === "" ? null : target.valueAsNumber);
    });
    element("search").addEventListener("input", ({ target }) => this.find(target.value));
    element("search").addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.findNext(event.shiftKey ? -1 : 1);
    });
    element("scroller").addEventListener("scroll", () => {
      this.unhover();
      this.paintSoon();
    });
    new ResizeObserver(() => this.arrange()).observe(element("stage"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
  }

  // What stands around the picture.

  writeTitles() {
    const [first] = this.timelines;
    element("titles").replaceChildren(...this.timelines.map((timeline) => {
      const step = make("b", {}, formatTime(timeline.end, 4));
      const bubble = make("b", {}, formatPercent(timeline.bubble));
      return make("li", {},
        make("h1", {}, timeline.title || "untitled"),
        ...[this.settingOf(timeline)].filter(Boolean).map((text) => make("span", {}, text)),
        make("span", {}, "step ", step, this.comparison(first, timeline)),
        make("span", {}, "bubble ", bubble),
        ...[timeline.remark].filter(Boolean).map((text) => make("span", {}, text)));
    }));
  }

  /** Whether all steps do the same, so that their times compare. */
  get isOneWork() {
    const [first] = this.timelines;
    return this.timelines.every(({ work }) => work !== "" && work === first.work);
  }

  /** What tells a step from others, or does what others do not. */
  settingOf({ setting, work }) {
    return setting || (this.isOneWork ? "" : work);
  }

  /** How much longer or shorter a step is than the first, if it does the same. */
  comparison(first, timeline) {
    if (timeline === first || first.end === 0 || !this.isOneWork) return "";
    const change = timeline.end / first.end - 1;
    const share = formatPercent(Math.abs(change));
    if (!/[1-9]/.test(share)) return "";
    return `, ${share} ${change < 0 ? "shorter" : "longer"} than the first`;
  }

  /** Puts all items in their places, and their names beside them. */
  arrange() {
    this.room = element("scroller").clientHeight;
    this.layout = layOut(this.timelines, this);
    element("content").style.height = `${this.layout.height}px`;
    const names = this.layout.items.map((item) => this.nameOf(item)).filter(Boolean);
    element("names").replaceChildren(...names);
    element("fold").textContent = this.isAnyFolded ? "unfold all" : "fold all";
    element("fold").hidden = this.tracks.length === 0;
    element("memory").setAttribute("aria-pressed", String(this.showMemory));
    element("memory").hidden = !this.tracks.some((track) => track.hasMemory);
    const rows = this.tracks.flatMap((track) => track.rows);
    const numEvents = rows.reduce((sum, row) => sum + row.length, 0);
    element("plot").setAttribute(
      "aria-label",
      `Timeline of ${this.tracks.length} tracks with ${numEvents} events; a table follows`,
    );
    this.paintSoon();
  }

  get isAnyFolded() {
    return this.unfolded.size < this.tracks.length;
  }

  nameOf(item) {
    const { type, track, timeline, y, height } = item;
    const style = `top:${y}px;height:${height}px`;
    switch (type) {
      case "heading":
        return make("div", { class: "heading", style }, make("span", {}, timeline.title || "untitled"));
      case "track": {
        const title = track.numRanks > 1
          ? `${track.name}: ranks ${track.rank} to ${track.rank + track.numRanks - 1}`
          : `${track.name}: rank ${track.rank}`;
        const button = make("button", { style, title, "aria-expanded": String(!item.isFolded) },
          make("span", {}, track.name || `rank ${track.rank}`));
        button.addEventListener("click", () => this.toggle(track));
        return button;
      }
      case "row":
        return make("div", { class: "row", style }, make("span", {}, item.row.name));
      case "memory": {
        const of = track.capacity === null ? "" : ` of ${formatBytes(track.capacity)}`;
        const text = `peak ${formatBytes(track.peak)}${of}`;
        return make("div", { class: "memory", style, title: text }, make("span", {}, text));
      }
      default:
        return null;
    }
  }

  // Painting.

  /** The width of the plot, never zero. */
  get width() {
    return Math.max(element("plot").clientWidth, 1);
  }

  paintSoon() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.paint();
    });
  }

  paint() {
    const [plot, axis, scroller] = ["plot", "axis", "scroller"].map(element);
    plot.style.height = `${scroller.clientHeight}px`;
    const { width } = this;
    this.painter.paint(plot, width, scroller.clientHeight, scroller.scrollTop, this);
    this.painter.paintAxis(axis, width, axis.clientHeight, this);
    const { start, end, span, fullEnd, isWhole } = this.view;
    const whole = formatTime(fullEnd);
    element("range").textContent = isWhole
      ? `all of ${whole}`
      : `${formatTime(start)} to ${formatTime(end)}: ${formatTime(span)} of ${whole}`;
  }

  recolour() {
    this.palette.refresh();
    this.paintSoon();
  }

  // What a reader asks for.

  zoomAt(x, factor) {
    this.view.zoom(factor, this.view.timeAt(x, this.width));
    this.paintSoon();
  }

  zoom(factor) {
    this.zoomAt(this.width / 2, factor);
  }

  pan(share) {
    this.view.pan(share);
    this.paintSoon();
  }

  panPixels(pixels) {
    this.pan(pixels / this.width);
  }

  /** Moves the view so that a share of the whole is in its middle. */
  centreOn(share) {
    const { span, fullEnd } = this.view;
    const start = share * fullEnd - span / 2;
    this.view.show(start, start + span);
    this.paintSoon();
  }

  scroll(pixels) {
    element("scroller").scrollTop += pixels;
  }

  reset() {
    this.view.reset();
    this.paintSoon();
  }

  toggle(track) {
    if (!this.unfolded.delete(track)) this.unfolded.add(track);
    const { activeElement } = document;
    const focused = [...element("names").querySelectorAll("button")].indexOf(activeElement);
    this.arrange();
    if (focused >= 0) element("names").querySelectorAll("button")[focused].focus();
  }

  toggleAll() {
    this.unfolded = new Set(this.isAnyFolded ? this.tracks : []);
    this.arrange();
  }

  toggleMemory() {
    this.showMemory = !this.showMemory;
    this.arrange();
  }

  toggleTheme() {
    const { dataset } = document.documentElement;
    const isDark = dataset.theme
      ? dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    dataset.theme = isDark ? "light" : "dark";
    this.recolour();
  }

  showKeys() {
    element("help").setAttribute("aria-expanded", "true");
    element("keys").showModal();
  }

  /** Brings a micro-batch to the front on all ranks, or none. */
  follow(microBatch) {
    const events = new Map();
    if (microBatch !== null) {
      for (const row of this.tracks.flatMap((track) => track.rows)) {
        const found = [];
        for (let i = 0; i < row.length; i += 1) if (row.isOf(i, microBatch)) found.push(i);
        if (found.length > 0) events.set(row, found);
      }
    }
    // One that does not exist hides nothing.
    this.followed = { microBatch: events.size > 0 ? microBatch : null, events };
    const input = element("micro-batch");
    if (document.activeElement !== input) input.value = this.followed.microBatch ?? "";
    this.paintSoon();
  }

  followNext(step) {
    const { microBatch } = this.followed;
    this.follow(microBatch === null ? 0 : Math.max(microBatch + step, 0));
  }

  /** The event at a place of the plot, and where it is drawn; null if there is none. */
  eventAt({ x, y }) {
    const below = y + element("scroller").scrollTop;
    const item = itemAt(this.layout.items, below);
    if (!item || (item.type !== "track" && item.type !== "row")) return null;
    const time = this.view.timeAt(x, this.width);
    const reach = (2 / this.width) * this.view.span;
    // The uppermost was drawn last.
    for (const band of bands(item).reverse()) {
      const isHit = below >= band.y && below < band.y + band.height;
      const index = isHit ? band.row.at(time, reach) : -1;
      if (index >= 0) return { ...band, index, track: item.track, timeline: item.timeline };
    }
    return null;
  }

  // What is selected.

  /** Selects an event, or none, and says what it is. */
  select(event) {
    this.selected = event;
    if (event) this.range = null;
    this.writeDetails();
    this.paintSoon();
  }

  /** Selects the time between two places of the plot, and says what it goes to. */
  selectRange(from, to) {
    const times = [from, to].map((x) => this.view.timeAt(x, this.width));
    const [start, end] = times.sort((a, b) => a - b).map((time) => Math.max(Math.round(time), 0));
    this.range = end > start ? { start, end: Math.min(end, this.view.fullEnd) } : null;
    this.selected = null;
    this.writeDetails();
    this.paintSoon();
  }

  /** Selects, follows and measures nothing. */
  clear() {
    this.range = null;
    this.select(null);
    this.follow(null);
  }

  /** Selects what is in the middle of the view, or follows what is selected. */
  enter() {
    if (this.selected) {
      const { row, index } = this.selected;
      if (row.kind(index).has_micro_batch) this.follow(row.microBatches[index]);
      return;
    }
    const time = (this.view.start + this.view.end) / 2;
    for (const timeline of this.timelines) {
      for (const track of timeline.tracks) {
        const event = nearestOf(track, time);
        if (event) {
          this.select({ ...event, track, timeline });
          return;
        }
      }
    }
  }

  selectNext(step) {
    if (!this.selected) {
      this.enter();
      return;
    }
    const { row, index } = this.selected;
    const next = Math.min(Math.max(index + step, 0), row.length - 1);
    this.goTo({ ...this.selected, index: next });
  }

  /** Selects what the rank above or below does at the time of what is selected. */
  selectTrack(step) {
    if (!this.selected) {
      this.enter();
      return;
    }
    const { row, index, track, timeline } = this.selected;
    const other = timeline.tracks[timeline.tracks.indexOf(track) + step];
    const event = other && nearestOf(other, (row.starts[index] + row.ends[index]) / 2);
    if (event) this.goTo({ ...event, track: other, timeline });
  }

  /** Selects an event and brings it into view. */
  goTo(event) {
    const { row, index, track } = event;
    const [start, end] = [row.starts[index], row.ends[index]];
    const { view, width } = this;
    const pixels = ((end - start) / view.span) * width;
    if (pixels < 8 || start < view.start || end > view.end) {
      const span = pixels < 8 ? Math.max((end - start) * (width / 60), 1) : view.span;
      const middle = (start + end) / 2;
      view.show(middle - span / 2, middle + span / 2);
    }
    const item = this.layout.items.find((other) => other.type === "track" && other.track === track);
    const scroller = element("scroller");
    const isSeen = item.y >= scroller.scrollTop
      && item.y + item.height <= scroller.scrollTop + scroller.clientHeight;
    if (!isSeen) scroller.scrollTop = item.y - scroller.clientHeight / 2;
    this.select(event);
  }

  /** Finds the events that are called so. */
  find(text) {
    const wanted = text.trim().toLowerCase();
    const matches = [];
    if (wanted !== "") {
      for (const timeline of this.timelines) {
        for (const track of timeline.tracks) {
          for (const row of track.rows) {
            for (let index = 0; index < row.length; index += 1) {
              if (row.isCalled(index, wanted)) matches.push({ row, index, track, timeline });
            }
          }
        }
      }
      matches.sort((a, b) => a.row.starts[a.index] - b.row.starts[b.index]);
    }
    this.found = { wanted, matches, at: -1 };
    this.writeMatches();
  }

  findNext(step) {
    const { matches, at } = this.found;
    if (matches.length === 0) return;
    const from = at < 0 && step < 0 ? 0 : at;
    this.found.at = (from + step + matches.length) % matches.length;
    this.goTo(matches[this.found.at]);
    this.writeMatches();
  }

  writeMatches() {
    const { wanted, matches, at } = this.found;
    const all = matches.length === 0 ? "none" : String(matches.length);
    element("matches").textContent = wanted === "" ? "" : at < 0 ? all : `${at + 1} of ${all}`;
  }

  /** Says what is selected, for eyes and for readers of the screen. */
  writeDetails() {
    const details = element("details");
    if (this.selected) {
      const { heading, facts } = describe(this.selected);
      details.replaceChildren(make("h2", {}, heading), make("dl", {}, ...facts.map(
        ([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value))),
      )));
    } else if (this.range) {
      details.replaceChildren(...describeRange(this.range, this.tracks));
    } else {
      details.replaceChildren(make("p", {}, "nothing is selected"));
    }
  }

  click(place) {
    const found = this.eventAt(place);
    this.range = null;
    this.select(found);
    const isOne = found && found.row.kind(found.index).has_micro_batch;
    const microBatch = isOne ? found.row.microBatches[found.index] : null;
    this.follow(microBatch === this.followed.microBatch ? null : microBatch);
  }

  hover(place, { clientX, clientY }) {
    this.hovered = this.eventAt(place);
    this.cursor = this.view.timeAt(place.x, this.width);
    const content = this.hovered ? describe(this.hovered, this.view) : this.describeMemory(place);
    showTooltip(content, clientX, clientY);
    this.paintSoon();
  }

  unhover() {
    this.hovered = null;
    this.cursor = null;
    showTooltip(null);
    this.paintSoon();
  }

  describeMemory({ x, y }) {
    const item = itemAt(this.layout.items, y + element("scroller").scrollTop);
    if (item?.type !== "memory") return null;
    const time = this.view.timeAt(x, this.width);
    const bytes = item.track.memoryAt(time);
    if (bytes === null) return null;
    const facts = [["at", formatTime(Math.round(time))], ["in use", formatBytes(bytes)]];
    facts.push(["peak", formatBytes(item.track.peak)]);
    if (item.track.capacity !== null) facts.push(["capacity", formatBytes(item.track.capacity)]);
    return { heading: `memory of ${item.track.name}`, swatch: "curve", facts };
  }
}

const data = JSON.parse(element("data").textContent);
const app = new App(readTimelines(data));
if (data.view_end_nanoseconds > data.view_start_nanoseconds) {
  app.view.show(data.view_start_nanoseconds, data.view_end_nanoseconds);
}

/** For tests and the console: what is shown, in coordinates of the window. */
window.timeline = {
  view: () => ({ start: app.view.start, end: app.view.end, fullEnd: app.view.fullEnd }),
  tracks: () => {
    const box = element("plot").getBoundingClientRect();
    const shift = box.top - element("scroller").scrollTop;
    const { items } = app.layout;
    return items.filter((item) => item.type === "track").map((item) => ({
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
