// Drawing on the canvases.

const LABEL_SIZE = 10.5;
/** Of numbers that have no room otherwise. */
const SMALL_LABEL_SIZE = 8;
const LABEL_CHARACTER = 6.4;
/** How much of their colour events keep while another micro-batch is followed. */
const DIMMED = 0.2;
/** How many passes in view are asked whether their names have room. */
const MOST_ASKED = 500;
/** Of events that share a pixel, how many are asked for the longest, whose colour it gets. */
const LOOKED_AT = 16;

/** Colours of the style sheet as a canvas takes them. */
class Palette {
  constructor() {
    this.probe = document.createElement("i");
    this.probe.hidden = true;
    document.body.append(this.probe);
    this.refresh();
  }

  /** Forgets all colours: the theme has changed. */
  refresh() {
    this.known = new Map();
  }

  get(name) {
    if (!this.known.has(name)) {
      this.probe.style.color = `var(--${name})`;
      this.known.set(name, getComputedStyle(this.probe).color);
    }
    return this.known.get(name);
  }

  /**
   * The colour of an event: of passes of a rank with several stages, the later the paler, and of more
   * than two the first darker, as the palette of drawings has it.
   */
  ofEvent(row, i) {
    const { class: name, is_pass: isPass } = row.kind(i);
    if (!row.places || !isPass) return this.get(name);
    const nth = row.places.get(row.stages[i]);
    const key = `${name}-${nth}`;
    if (!this.known.has(key)) {
      const last = row.places.size - 1;
      const darkest = last > 1 ? 0.3 : 0;
      const shade = (nth / last) * (0.55 + darkest) - darkest;
      const towards = shade < 0 ? 0 : 255;
      const parts = this.get(name).match(/[\d.]+/g).slice(0, 3).map(Number);
      const mixed = parts.map((part) => Math.round(part + (towards - part) * Math.abs(shade)));
      this.known.set(key, `rgb(${mixed.join(", ")})`);
    }
    return this.known.get(key);
  }

  /** Black or white, whichever is read better on a colour. */
  textOn(color) {
    const key = `text on ${color}`;
    if (!this.known.has(key)) {
      const [r, g, b] = color.match(/[\d.]+/g).map((part) => Number(part) / 255);
      const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
      const luminance = 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
      // Equal contrast to both is at sqrt(1.05 * 0.05) - 0.05; white is favoured a little, since
      // small bold shapes around it read darker than they are.
      this.known.set(key, luminance > 0.25 ? "#101418" : "#ffffff");
    }
    return this.known.get(key);
  }
}

/** Gives a canvas the size that it has on the screen, and drawing in CSS pixels. */
function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.globalAlpha = 1;
  return context;
}

/** Draws the items of a layout that are on the screen. */
class Painter {
  constructor(palette) {
    this.palette = palette;
  }

  /** `state`: the view, the layout, the followed micro-batch or null, the event under the pointer. */
  paint(canvas, width, height, scrolled, state) {
    this.context = prepare(canvas, width, height);
    this.width = width;
    this.view = state.view;
    this.context.translate(0, -scrolled);
    this.paintGrid(scrolled, height);
    const seen = state.layout.items.filter(
      (item) => item.y + item.height > scrolled && item.y < scrolled + height,
    );
    const isFollowing = state.followed.microBatch !== null;
    for (const item of seen) this.paintItem(item, isFollowing);
    if (isFollowing) this.paintFollowed(state.layout.items, state.followed);
    this.paintRange(state.range, scrolled, height);
    if (state.selected) this.paintSelected(state.layout.items, state.selected);
    if (state.hovered) this.paintOutline(state.hovered, 1.5);
    if (state.cursor !== null) {
      this.context.fillStyle = this.palette.get("faint");
      this.context.fillRect(Math.round(this.x(state.cursor)), scrolled, 1, height);
    }
  }

  /** The selected part of time. */
  paintRange(range, top, height) {
    if (!range) return;
    const { context, palette } = this;
    const [left, right] = [this.x(range.start), this.x(range.end)];
    context.fillStyle = palette.get("accent");
    context.globalAlpha = 0.14;
    context.fillRect(left, top, right - left, height);
    context.globalAlpha = 1;
    for (const x of [left, right]) context.fillRect(Math.round(x), top, 1, height);
  }

  /** The frame of the selected event, wherever its row is drawn. */
  paintSelected(items, { row, index }) {
    for (const item of items) {
      if (item.type !== "track" && item.type !== "row") continue;
      const band = bands(item).find((other) => other.row === row);
      if (band) this.paintOutline({ ...band, index }, 2.5);
    }
  }

  x(time) {
    return this.view.xOf(time, this.width);
  }

  paintGrid(top, height) {
    this.context.fillStyle = this.palette.get("line");
    this.context.globalAlpha = 0.6;
    for (const { time } of ticks(this.view.start, this.view.end, this.width / 110)) {
      this.context.fillRect(Math.round(this.x(time)), top, 1, height);
    }
    this.context.globalAlpha = 1;
  }

  paintItem(item, isFollowing) {
    const { context, palette } = this;
    if (item.type === "memory") {
      this.paintMemory(item);
    } else if (item.type === "nothing") {
      context.fillStyle = palette.get("faint");
      context.font = "14px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText("nothing happens", this.width / 2, item.y + item.height / 2);
    } else if (item.type !== "heading") {
      context.fillStyle = palette.get("idle");
      const [from, to] = [Math.max(this.x(0), 0), Math.min(this.x(item.timeline.end), this.width)];
      context.fillRect(from, item.y, Math.max(to - from, 0), item.height);
      for (const band of bands(item)) this.paintBand(band, isFollowing);
    }
  }

  /** Draws the events of a band that are in view; those that share a pixel, as one. */
  paintBand(band, isDimmed) {
    const { row, y, height } = band;
    const { context, palette, view, width } = this;
    const scale = width / view.span;
    const strength = isDimmed ? DIMMED : 1;
    this.hasNames = this.hasRoomForNames(row);
    let i = row.firstEndingAfter(view.start);
    while (i < row.length && row.starts[i] < view.end) {
      const left = (row.starts[i] - view.start) * scale;
      const right = (row.ends[i] - view.start) * scale;
      if (right - left >= 1) {
        context.globalAlpha = strength;
        this.paintEvent(band, i, left, right, !isDimmed);
        i += 1;
        continue;
      }
      const pixel = Math.floor(left);
      const from = view.start + pixel / scale;
      const to = view.start + (pixel + 1) / scale;
      const next = Math.max(row.firstEndingAfter(to), i + 1);
      const share = (row.busyUntil(to) - row.busyUntil(from)) * scale;
      // Something that happens is seen, however short.
      context.globalAlpha = strength * Math.min(Math.max(share, 0.35), 1);
      context.fillStyle = palette.ofEvent(row, this.longest(row, i, next));
      context.fillRect(pixel, y, 1, height);
      i = next;
    }
    context.globalAlpha = 1;
  }

  /** Whether the passes in view that have room for a number have it for their whole name: a row says one or the other. */
  hasRoomForNames(row) {
    const { view, width } = this;
    const scale = width / view.span / LABEL_CHARACTER;
    let asked = 0;
    for (let i = row.firstEndingAfter(view.start); i < row.length && row.starts[i] < view.end; i += 1) {
      const room = (row.ends[i] - row.starts[i]) * scale - 5 / LABEL_CHARACTER;
      if (!row.kind(i).is_pass || room < String(row.microBatches[i]).length) continue;
      if (room < row.action(i).length) return false;
      asked += 1;
      if (asked === MOST_ASKED) break;
    }
    return true;
  }

  longest(row, from, to) {
    let best = from;
    for (let i = from + 1; i < Math.min(to, from + LOOKED_AT); i += 1) {
      if (row.ends[i] - row.starts[i] > row.ends[best] - row.starts[best]) best = i;
    }
    return best;
  }

  paintEvent(band, i, left, right, hasLabel) {
    const { context, palette, width } = this;
    const { row, y } = band;
    const height = heightOf(band, i);
    const color = palette.ofEvent(row, i);
    const gap = right - left > 4 ? 1 : 0;
    const from = Math.max(left, -2);
    const to = Math.min(right - gap, width + 2);
    context.fillStyle = color;
    if (to - from > 6 && height > 8) {
      context.beginPath();
      context.roundRect(from, y, to - from, height, 2);
      context.fill();
    } else {
      context.fillRect(from, y, Math.max(to - from, 1), height);
    }
    if (hasLabel && height >= 10) this.paintLabel(row, i, from, to, y, height, color);
  }

  /** Writes the longest of an event's names that fits, in the part of it that is in view. */
  paintLabel(row, i, left, right, y, height, color) {
    const { width } = this;
    const [from, to] = [Math.max(left, 0), Math.min(right, width)];
    const room = (to - from - 4) / LABEL_CHARACTER;
    if (room < 1) return;
    const kind = row.kind(i);
    const names = [row.label(i), row.action(i)];
    const number = kind.has_micro_batch ? [String(row.microBatches[i])] : [];
    const text = (kind.is_pass && !this.hasNames ? number : [...names, ...number]).find((name) => name.length <= room);
    if (!text) {
      const isNumber = kind.is_pass && number.length > 0;
      const smallRoom = ((to - from - 1) * LABEL_SIZE) / SMALL_LABEL_SIZE / LABEL_CHARACTER;
      if (isNumber && number[0].length <= smallRoom) {
        this.writeLabel(number[0], SMALL_LABEL_SIZE, (from + to) / 2, y + height / 2, color);
      }
      return;
    }
    this.writeLabel(text, LABEL_SIZE, (from + to) / 2, y + height / 2, color);
  }

  writeLabel(text, size, x, y, color) {
    const { context, palette } = this;
    context.font = `${size}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = palette.textOn(color);
    context.fillText(text, x, y + 0.5);
  }

  /** Memory in use, with its peak dotted and the capacity dashed where it is in the picture. */
  paintMemory({ track, timeline, y, height }) {
    const { context, palette, view, width } = this;
    const bottom = y + height;
    const heightOf = (bytes) => ((height - 3) * bytes) / timeline.topOfMemory;
    const isOver = track.capacity !== null && track.peak > track.capacity;
    const end = Math.min(this.x(timeline.end), width);
    context.fillStyle = palette.get(isOver ? "alarm" : "curve");
    context.beginPath();
    let i = Math.max(partitionPoint(track.times.length, (n) => track.times[n] > view.start) - 1, 0);
    let x = Math.max(this.x(track.times[i]), 0);
    context.moveTo(x, bottom);
    while (i < track.times.length && x < end) {
      // Of all points on a pixel the largest.
      let next = i + 1;
      let most = track.bytes[i];
      while (next < track.times.length && this.x(track.times[next]) < x + 1) {
        most = Math.max(most, track.bytes[next]);
        next += 1;
      }
      const right = next < track.times.length ? Math.min(this.x(track.times[next]), end) : end;
      context.lineTo(x, bottom - heightOf(most));
      context.lineTo(Math.max(right, x), bottom - heightOf(most));
      [i, x] = [next, Math.max(right, x)];
    }
    context.lineTo(x, bottom);
    context.globalAlpha = 0.4;
    context.fill();
    context.globalAlpha = 1;
    const line = (bytes, color, dashes) => {
      context.strokeStyle = palette.get(color);
      context.setLineDash(dashes);
      context.beginPath();
      const level = Math.round(bottom - heightOf(bytes)) + 0.5;
      context.moveTo(Math.max(this.x(0), 0), level);
      context.lineTo(end, level);
      context.stroke();
      context.setLineDash([]);
    };
    context.lineWidth = 1;
    line(0, "line", []);
    line(track.peak, isOver ? "alarm" : "curve", [1, 3]);
    if (track.capacity !== null && track.capacity <= timeline.topOfMemory) {
      line(track.capacity, isOver ? "alarm" : "faint", [6, 4]);
    }
  }

  /** Draws the followed micro-batch over all others, and its way from rank to rank. */
  paintFollowed(items, { microBatch, events }) {
    const { context, palette, view } = this;
    for (const item of items) {
      if (item.type !== "track" && item.type !== "row") continue;
      for (const band of bands(item)) {
        const { row } = band;
        const seen = (events.get(row) ?? []).filter(
          (i) => row.ends[i] >= view.start && row.starts[i] <= view.end,
        );
        this.hasNames = this.hasRoomForNames(row);
        if (row.isCompute) {
          for (const i of seen) {
            const left = this.x(row.starts[i]);
            this.paintEvent(band, i, left, Math.max(this.x(row.ends[i]), left + 2), true);
          }
        } else {
          this.paintShares(band, seen);
        }
      }
    }
    context.strokeStyle = palette.get("ink");
    context.lineWidth = 1.25;
    context.globalAlpha = 0.75;
    for (const way of waysOf(items, events, microBatch)) {
      context.beginPath();
      for (let i = 1; i < way.length; i += 1) {
        context.moveTo(this.x(way[i - 1].end), way[i - 1].y);
        context.lineTo(this.x(way[i].start), way[i].y);
      }
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  /** Draws exchanges, those that share a pixel as dark as they fill it. */
  paintShares(band, indices) {
    const { context, palette } = this;
    const { row, y, height } = band;
    const pixels = new Map();
    for (const i of indices) {
      const [left, right] = [this.x(row.starts[i]), this.x(row.ends[i])];
      if (right - left >= 1) {
        this.paintEvent(band, i, left, right, true);
        continue;
      }
      const pixel = Math.floor(left);
      const share = (pixels.get(pixel)?.share ?? 0) + right - left;
      pixels.set(pixel, { share, color: palette.ofEvent(row, i) });
    }
    for (const [pixel, { share, color }] of pixels) {
      context.globalAlpha = Math.min(Math.max(share, 0.35), 1);
      context.fillStyle = color;
      context.fillRect(pixel, y, 1, height);
    }
    context.globalAlpha = 1;
  }

  /** The outline of a band's event. */
  paintOutline(band, lineWidth) {
    const { context } = this;
    const { row, index, y } = band;
    const left = Math.max(this.x(row.starts[index]), -3);
    const right = Math.min(this.x(row.ends[index]), this.width + 3);
    context.strokeStyle = this.palette.get("ink");
    context.lineWidth = lineWidth;
    context.strokeRect(left, y, Math.max(right - left, 2), heightOf(band, index));
  }

  /** The axis, with a bar that says which part of the whole is shown. */
  paintAxis(canvas, width, height, { view, cursor, range }) {
    const context = prepare(canvas, width, height);
    const { palette } = this;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const { time, text } of ticks(view.start, view.end, width / 110)) {
      const x = view.xOf(time, width);
      context.fillStyle = palette.get("faint");
      context.fillRect(Math.round(x), height - 6, 1, 6);
      context.textAlign = x < 24 ? "left" : x > width - 30 ? "right" : "center";
      context.fillText(text, Math.min(Math.max(x, 2), width - 4), height - 15);
    }
    context.fillStyle = palette.get("line");
    context.fillRect(0, 2, width, 4);
    context.fillStyle = palette.get("accent");
    const [from, to] = [view.start, view.end].map((time) => (time / view.fullEnd) * width);
    context.fillRect(from, 2, Math.max(to - from, 3), 4);
    context.fillStyle = palette.get("line");
    context.fillRect(0, height - 1, width, 1);
    if (range) {
      const [left, right] = [range.start, range.end].map((time) => view.xOf(time, width));
      context.fillStyle = palette.get("accent");
      context.fillRect(left, height - 4, Math.max(right - left, 1), 4);
    }
    if (cursor !== null) this.paintCursor(context, view.xOf(cursor, width), height, width, cursor);
  }

  /** Where the pointer is, in time. */
  paintCursor(context, x, height, width, time) {
    const { palette } = this;
    const text = formatTime(Math.max(Math.round(time), 0));
    const room = context.measureText(text).width + 10;
    const left = Math.min(Math.max(x - room / 2, 0), width - room);
    context.fillStyle = palette.get("ink");
    context.fillRect(Math.round(x), height - 6, 1, 6);
    context.fillRect(left, height - 24, room, 18);
    context.fillStyle = palette.get("paper");
    context.textAlign = "center";
    context.fillText(text, left + room / 2, height - 14.5);
  }
}

/** The way of a micro-batch through each timeline: its passes by time, and where they are drawn. */
function waysOf(items, events, microBatch) {
  const ways = new Map();
  for (const item of items) {
    if (item.type !== "track") continue;
    for (const band of bands(item)) {
      const { row, y } = band;
      if (!row.isCompute) continue;
      for (const i of events.get(row) ?? []) {
        // A weight gradient goes nowhere.
        if (row.kind(i).word === "W" || !row.isOf(i, microBatch)) continue;
        const way = ways.get(item.timeline) ?? [];
        way.push({ start: row.starts[i], end: row.ends[i], y: y + heightOf(band, i) / 2 });
        ways.set(item.timeline, way);
      }
    }
  }
  return [...ways.values()].map((way) => way.sort((a, b) => a.start - b.start));
}
