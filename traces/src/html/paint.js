// Drawing on the canvases.

const LABEL_SIZE = 10.5;
/** Of numbers that have no room otherwise. */
const SMALL_LABEL_SIZE = 8;
const LABEL_CHARACTER = 6.4;
/** How much of their colour events keep while another micro-batch is followed. */
const DIMMED = 0.2;
/** How many passes in view are asked whether their names have room. */
const MOST_ASKED = 500;
/** The least strength of a pixel in which something happens, however short. */
const LEAST_SEEN = 0.35;
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

  x(time) {
    return this.view.xOf(time);
  }

  fill(color, x, y, width, height, alpha = 1) {
    this.context.globalAlpha = alpha;
    this.context.fillStyle = color;
    this.context.fillRect(x, y, width, height);
  }

  write(text, x, y, color, size, align = "center") {
    const { context } = this;
    context.globalAlpha = 1;
    context.font = `${size}px system-ui, sans-serif`;
    context.textAlign = align;
    context.textBaseline = "middle";
    context.fillStyle = color;
    context.fillText(text, x, y);
  }

  /** `state`: the view, the layout, the followed micro-batch or null, the event under the pointer. */
  paint(canvas, height, scrolled, state) {
    const { palette } = this;
    const { view, layout: { items }, followed } = state;
    this.context = prepare(canvas, view.width, height);
    this.view = view;
    this.context.translate(0, -scrolled);
    for (const { time } of ticks(view.start, view.end, view.width / 110)) {
      this.fill(palette.get("line"), Math.round(this.x(time)), scrolled, 1, height, 0.6);
    }
    const isFollowing = followed.microBatch !== null;
    for (const item of items) {
      const isSeen = item.y + item.height > scrolled && item.y < scrolled + height;
      if (isSeen) this.paintItem(item, isFollowing ? DIMMED : 1);
    }
    if (isFollowing) this.paintFollowed(items, followed);
    if (state.range) {
      const [left, right] = [state.range.start, state.range.end].map((time) => this.x(time));
      const accent = palette.get("accent");
      this.fill(accent, left, scrolled, right - left, height, 0.14);
      for (const x of [left, right]) this.fill(accent, Math.round(x), scrolled, 1, height);
    }
    if (state.selected) {
      // Wherever its row is drawn.
      const { row, index } = state.selected;
      for (const band of items.flatMap(bands)) {
        if (band.row === row) this.paintOutline({ ...band, index }, 2.5);
      }
    }
    if (state.hovered) this.paintOutline(state.hovered, 1.5);
    if (state.cursor !== null) {
      this.fill(palette.get("faint"), Math.round(this.x(state.cursor)), scrolled, 1, height);
    }
  }

  paintItem(item, alpha) {
    const { palette, view } = this;
    if (item.type === "memory") {
      this.paintMemory(item);
    } else if (item.type === "nothing") {
      const middle = item.y + item.height / 2;
      this.write("nothing happens", view.width / 2, middle, palette.get("faint"), 14);
    } else if (item.type !== "heading") {
      const [from, to] = [Math.max(this.x(0), 0), Math.min(this.x(item.timeline.end), view.width)];
      this.fill(palette.get("idle"), from, item.y, Math.max(to - from, 0), item.height);
      for (const band of bands(item)) this.paintBand(band, alpha);
    }
  }

  /** Draws the events of a band that are in view; those that share a pixel, as one. */
  paintBand(band, alpha) {
    const { row, y, height } = band;
    const { palette, view } = this;
    const scale = view.width / view.span;
    this.hasNames = this.hasRoomForNames(row);
    let i = row.firstEndingAfter(view.start);
    while (i < row.length && row.starts[i] < view.end) {
      const left = (row.starts[i] - view.start) * scale;
      const right = (row.ends[i] - view.start) * scale;
      if (right - left >= 1) {
        this.paintEvent(band, i, left, right, alpha);
        i += 1;
        continue;
      }
      const pixel = Math.floor(left);
      const from = view.start + pixel / scale;
      const to = view.start + (pixel + 1) / scale;
      const next = Math.max(row.firstEndingAfter(to), i + 1);
      const share = (row.busyUntil(to) - row.busyUntil(from)) * scale;
      const color = palette.ofEvent(row, this.longest(row, i, next));
      this.fill(color, pixel, y, 1, height, alpha * clamped(share, LEAST_SEEN, 1));
      i = next;
    }
  }

  /** Whether the passes in view that have room for a number have it for their whole name: a row says one or the other. */
  hasRoomForNames(row) {
    const { view } = this;
    const scale = view.width / view.span / LABEL_CHARACTER;
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

  /** Draws an event, with its name where it is not dimmed. */
  paintEvent(band, i, left, right, alpha = 1) {
    const { context, palette, view } = this;
    const { row, y } = band;
    const height = heightOf(band, i);
    const color = palette.ofEvent(row, i);
    const gap = right - left > 4 ? 1 : 0;
    const [from, to] = [Math.max(left, -2), Math.min(right - gap, view.width + 2)];
    if (to - from > 6 && height > 8) {
      context.globalAlpha = alpha;
      context.fillStyle = color;
      context.beginPath();
      context.roundRect(from, y, to - from, height, 2);
      context.fill();
    } else {
      this.fill(color, from, y, Math.max(to - from, 1), height, alpha);
    }
    if (alpha === 1 && height >= 10) this.paintLabel(row, i, from, to, y + height / 2, color);
  }

  /** Writes the longest of an event's names that fits, in the part of it that is in view. */
  paintLabel(row, i, left, right, middle, color) {
    const [from, to] = [Math.max(left, 0), Math.min(right, this.view.width)];
    const room = (to - from - 4) / LABEL_CHARACTER;
    if (room < 1) return;
    const { is_pass: isPass, has_micro_batch: hasMicroBatch } = row.kind(i);
    const number = hasMicroBatch ? [String(row.microBatches[i])] : [];
    const names = isPass && !this.hasNames ? number : [row.label(i), row.action(i), ...number];
    let text = names.find((name) => name.length <= room);
    let size = LABEL_SIZE;
    if (!text && isPass) {
      const smallRoom = ((to - from - 1) * LABEL_SIZE) / SMALL_LABEL_SIZE / LABEL_CHARACTER;
      text = number.find((name) => name.length <= smallRoom);
      size = SMALL_LABEL_SIZE;
    }
    if (text) this.write(text, (from + to) / 2, middle + 0.5, this.palette.textOn(color), size);
  }

  /** Memory in use, with its peak dotted and the capacity dashed where it is in the picture. */
  paintMemory({ track, timeline, y, height }) {
    const { context, palette, view } = this;
    const bottom = y + height;
    const heightOf = (bytes) => ((height - 3) * bytes) / timeline.topOfMemory;
    const isOver = track.capacity !== null && track.peak > track.capacity;
    const end = Math.min(this.x(timeline.end), view.width);
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
    for (const band of items.flatMap(bands)) {
      const { row } = band;
      const seen = (events.get(row) ?? []).filter(
        (i) => row.ends[i] >= view.start && row.starts[i] <= view.end,
      );
      this.hasNames = this.hasRoomForNames(row);
      if (row.isCompute) {
        for (const i of seen) {
          const left = this.x(row.starts[i]);
          this.paintEvent(band, i, left, Math.max(this.x(row.ends[i]), left + 2));
        }
      } else {
        this.paintShares(band, seen);
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
  }

  /** Draws exchanges, those that share a pixel as dark as they fill it. */
  paintShares(band, indices) {
    const { row, y, height } = band;
    const pixels = new Map();
    for (const i of indices) {
      const [left, right] = [this.x(row.starts[i]), this.x(row.ends[i])];
      if (right - left >= 1) {
        this.paintEvent(band, i, left, right);
        continue;
      }
      const pixel = Math.floor(left);
      const share = (pixels.get(pixel)?.share ?? 0) + right - left;
      pixels.set(pixel, { share, color: this.palette.ofEvent(row, i) });
    }
    for (const [pixel, { share, color }] of pixels) {
      this.fill(color, pixel, y, 1, height, clamped(share, LEAST_SEEN, 1));
    }
  }

  /** The outline of a band's event. */
  paintOutline(band, lineWidth) {
    const { context, view } = this;
    const { row, index, y } = band;
    const left = Math.max(this.x(row.starts[index]), -3);
    const right = Math.min(this.x(row.ends[index]), view.width + 3);
    context.globalAlpha = 1;
    context.strokeStyle = this.palette.get("ink");
    context.lineWidth = lineWidth;
    context.strokeRect(left, y, Math.max(right - left, 2), heightOf(band, index));
  }

  /** The axis, with a bar that says which part of the whole is shown, and where the pointer is in time. */
  paintAxis(canvas, height, { view, cursor, range }) {
    const { width } = view;
    this.context = prepare(canvas, width, height);
    const [faint, line, accent, ink, paper] =
      ["faint", "line", "accent", "ink", "paper"].map((name) => this.palette.get(name));
    for (const { time, text } of ticks(view.start, view.end, width / 110)) {
      const x = view.xOf(time);
      this.fill(faint, Math.round(x), height - 6, 1, 6);
      const align = x < 24 ? "left" : x > width - 30 ? "right" : "center";
      this.write(text, clamped(x, 2, width - 4), height - 15, faint, 11, align);
    }
    this.fill(line, 0, 2, width, 4);
    const [from, to] = [view.start, view.end].map((time) => (time / view.fullEnd) * width);
    this.fill(accent, from, 2, Math.max(to - from, 3), 4);
    this.fill(line, 0, height - 1, width, 1);
    if (range) {
      const [left, right] = [range.start, range.end].map((time) => view.xOf(time));
      this.fill(accent, left, height - 4, Math.max(right - left, 1), 4);
    }
    if (cursor !== null) {
      const x = view.xOf(cursor);
      const text = formatTime(Math.max(Math.round(cursor), 0));
      const room = this.context.measureText(text).width + 10;
      const left = clamped(x - room / 2, 0, width - room);
      this.fill(ink, Math.round(x), height - 6, 1, 6);
      this.fill(ink, left, height - 24, room, 18);
      this.write(text, left + room / 2, height - 14.5, paper, 11);
    }
  }
}

/** The way of a micro-batch through each timeline: its passes by time, and where they are drawn. */
function waysOf(items, events, microBatch) {
  const ways = new Map();
  for (const item of items.filter(({ type }) => type === "track")) {
    for (const band of bands(item).filter(({ row }) => row.isCompute)) {
      const { row, y } = band;
      // A weight gradient goes nowhere.
      const isOnWay = (i) => row.kind(i).word !== "W" && row.isOf(i, microBatch);
      const passes = (events.get(row) ?? []).filter(isOnWay).map((i) => (
        { start: row.starts[i], end: row.ends[i], y: y + heightOf(band, i) / 2 }));
      ways.set(item.timeline, [...(ways.get(item.timeline) ?? []), ...passes]);
    }
  }
  return [...ways.values()].map((way) => way.sort((a, b) => a.start - b.start));
}
