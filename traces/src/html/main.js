// The page: what it shows, and what it does when asked.

/** Up to this many tracks, memory is shown from the start. */
const FEW_TRACKS = 8;

class App {
  constructor(timelines) {
    this.timelines = timelines;
    this.tracks = timelines.flatMap((timeline) => timeline.tracks);
    /** All rows, each with its track and its timeline. */
    this.rows = timelines.flatMap((timeline) => timeline.tracks.flatMap((track) =>
      track.rows.map((row) => ({ row, track, timeline }))));
    const ends = timelines.map((timeline) => timeline.end);
    this.view = new View(Math.max(0, ...ends), () => this.paintSoon());
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
    this.painter = new Painter(new Palette());

    this.writeTitles();
    this.writeDetails();
    this.arrange();
    this.listen();
  }

  listen() {
    listenToPlot(element("plot"), element("scroller"), this);
    listenToAxis(element("axis"), this.view);
    listenToKeys(this);
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
    element("scroller").addEventListener("scroll", () => this.unhover());
    new ResizeObserver(() => this.arrange()).observe(element("stage"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
  }

  // What stands around the picture.

  writeTitles() {
    const [first] = this.timelines;
    element("titles").replaceChildren(...this.timelines.map((timeline) => {
      const step = make("b", {}, formatTime(timeline.end, 4));
      const bubble = make("b", {}, formatPercent(timeline.bubble));
      const notes = [
        [this.settingOf(timeline)],
        ["step ", step, this.comparison(first, timeline)],
        ["bubble ", bubble],
        [timeline.remark],
      ].filter(([text]) => text);
      return make("li", {},
        make("h1", {}, timeline.title || "untitled"),
        ...notes.map((parts) => make("span", {}, ...parts)));
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
    this.view.width = Math.max(element("plot").clientWidth, 1);
    this.layout = layOut(this.timelines, this);
    element("content").style.height = `${this.layout.height}px`;
    const names = this.layout.items.map((item) => this.nameOf(item)).filter(Boolean);
    element("names").replaceChildren(...names);
    element("fold").textContent = this.isAnyFolded ? "unfold all" : "fold all";
    element("fold").hidden = this.tracks.length === 0;
    element("memory").setAttribute("aria-pressed", String(this.showMemory));
    element("memory").hidden = !this.tracks.some((track) => track.hasMemory);
    const numEvents = this.rows.reduce((sum, { row }) => sum + row.length, 0);
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
    const named = (text, attributes = {}) =>
      make("div", { class: type, style, ...attributes }, make("span", {}, text));
    switch (type) {
      case "heading":
        return named(timeline.title || "untitled");
      case "track": {
        const { name, rank, numRanks } = track;
        const ranks = numRanks > 1 ? `ranks ${rank} to ${rank + numRanks - 1}` : `rank ${rank}`;
        const attributes = { style, title: `${name}: ${ranks}`, "aria-expanded": String(!item.isFolded) };
        const button = make("button", attributes, make("span", {}, name || `rank ${rank}`));
        button.addEventListener("click", () => this.toggle(track));
        return button;
      }
      case "row":
        return named(item.row.name);
      case "memory": {
        const of = track.capacity === null ? "" : ` of ${formatBytes(track.capacity)}`;
        const title = `peak ${formatBytes(track.peak)}${of}`;
        return named(title, { title });
      }
      default:
        return null;
    }
  }

  // Painting.

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
    this.view.width = Math.max(plot.clientWidth, 1);
    this.painter.paint(plot, scroller.clientHeight, scroller.scrollTop, this);
    this.painter.paintAxis(axis, axis.clientHeight, this);
    const { start, end, span, fullEnd, isWhole } = this.view;
    const whole = formatTime(fullEnd);
    element("range").textContent = isWhole
      ? `all of ${whole}`
      : `${formatTime(start)} to ${formatTime(end)}: ${formatTime(span)} of ${whole}`;
  }

  recolour() {
    this.painter.palette.refresh();
    this.paintSoon();
  }

  // What a reader asks for.

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
    for (const { row } of microBatch === null ? [] : this.rows) {
      const found = row.where((i) => row.isOf(i, microBatch));
      if (found.length > 0) events.set(row, found);
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

  /** The item at a place of the plot, or none, and how far below the top of all items the place is. */
  itemAt({ y }) {
    const below = y + element("scroller").scrollTop;
    return { below, item: itemAt(this.layout.items, below) };
  }

  /** The event at a place of the plot, and where it is drawn; null if there is none. */
  eventAt(place) {
    const { below, item } = this.itemAt(place);
    const time = this.view.timeAt(place.x);
    const reach = (2 / this.view.width) * this.view.span;
    // The uppermost was drawn last.
    for (const band of item ? bands(item).reverse() : []) {
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
    const times = [from, to].map((x) => Math.max(Math.round(this.view.timeAt(x)), 0));
    const [start, end] = times.sort((a, b) => a - b);
    this.range = end > start ? { start, end: Math.min(end, this.view.fullEnd) } : null;
    this.select(null);
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
    const places = this.timelines.flatMap((timeline) => timeline.tracks.map((track) => (
      { ...track.nearest(time), track, timeline })));
    const event = places.find(({ row }) => row);
    if (event) this.select(event);
  }

  selectNext(step) {
    if (!this.selected) {
      this.enter();
      return;
    }
    const { row, index } = this.selected;
    this.goTo({ ...this.selected, index: clamped(index + step, 0, row.length - 1) });
  }

  /** Selects what the rank above or below does at the time of what is selected. */
  selectTrack(step) {
    if (!this.selected) {
      this.enter();
      return;
    }
    const { row, index, track, timeline } = this.selected;
    const other = timeline.tracks[timeline.tracks.indexOf(track) + step];
    const event = other?.nearest((row.starts[index] + row.ends[index]) / 2);
    if (event) this.goTo({ ...event, track: other, timeline });
  }

  /** Selects an event and brings it into view. */
  goTo(event) {
    const { row, index, track } = event;
    const [start, end] = [row.starts[index], row.ends[index]];
    const { view } = this;
    const isNarrow = ((end - start) / view.span) * view.width < 8;
    if (isNarrow || start < view.start || end > view.end) {
      const span = isNarrow ? Math.max((end - start) * (view.width / 60), 1) : view.span;
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
    const matches = wanted === "" ? [] : this.rows.flatMap((place) =>
      place.row.where((i) => place.row.isCalled(i, wanted)).map((index) => ({ ...place, index })));
    matches.sort((a, b) => a.row.starts[a.index] - b.row.starts[b.index]);
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
      details.replaceChildren(make("h2", {}, heading), makeFacts(facts, true));
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
    this.cursor = this.view.timeAt(place.x);
    const { item } = this.itemAt(place);
    const memory = item?.type === "memory" ? describeMemory(item.track, this.cursor) : null;
    showTooltip(this.hovered ? describe(this.hovered) : memory, clientX, clientY);
    this.paintSoon();
  }

  unhover() {
    this.hovered = null;
    this.cursor = null;
    showTooltip(null);
    this.paintSoon();
  }
}

const data = JSON.parse(element("data").textContent);
const app = new App(readTimelines(data));
if (data.view_end_nanoseconds > data.view_start_nanoseconds) {
  app.view.show(data.view_start_nanoseconds, data.view_end_nanoseconds);
}
// For tests and the console.
window.timeline = app;
