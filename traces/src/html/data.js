// From the data of the page to arrays that can be searched by time. All times are in nanoseconds.

/** Signed integers of variable length from base64, one after the other. */
function* unpacked(base64) {
  // Sums and products instead of shifts, which would cut at 32 bits.
  let [value, scale] = [0, 1];
  for (const character of atob(base64)) {
    const byte = character.charCodeAt(0);
    value += (byte & 127) * scale;
    scale *= 128;
    if (byte & 128) continue;
    yield value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    [value, scale] = [0, 1];
  }
}

/** The first index from 0 to `length` at which `isBeyond` holds; it holds at all after the first. */
function partitionPoint(length, isBeyond) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBeyond(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Events of a stream, none of which overlap, in order of time. */
class Row {
  constructor(data, kinds) {
    const length = data.num_events;
    this.stream = data.stream;
    this.name = data.lane === 0 ? data.stream : `${data.stream}, overlapped`;
    this.isCompute = data.is_compute;
    /** Which of its rank's stages each is, where there are several. */
    this.places = null;
    this.length = length;
    this.kinds = kinds;
    this.starts = new Float64Array(length);
    this.ends = new Float64Array(length);
    this.kindIds = new Uint16Array(length);
    this.stages = new Uint32Array(length);
    this.microBatches = new Uint32Array(length);
    this.bytes = new Float64Array(length);
    /** How long the events before each took together. */
    this.busyBefore = new Float64Array(length + 1);
    const numbers = unpacked(data.events);
    const next = () => numbers.next().value;
    const last = this.kinds.map(() => [0, 0, 0, 0]);
    let end = 0;
    for (let i = 0; i < this.length; i += 1) {
      const head = next();
      const kind = head >> 1;
      const start = end + next();
      const values = last[kind];
      if (head & 1) values[2] += 1;
      else for (let field = 0; field < 4; field += 1) values[field] += next();
      end = start + values[0];
      this.kindIds[i] = kind;
      this.starts[i] = start;
      this.ends[i] = end;
      [, this.stages[i], this.microBatches[i], this.bytes[i]] = values;
      this.busyBefore[i + 1] = this.busyBefore[i] + values[0];
    }
  }

  kind(i) {
    return this.kinds[this.kindIds[i]];
  }

  /** The action that an event is or belongs to, such as `2F3` or `optimizer step, stage 2`. */
  action(i) {
    const { word, action_name: name, has_micro_batch: hasMicroBatch } = this.kind(i);
    const stage = this.stages[i];
    return hasMicroBatch ? `${stage}${word}${this.microBatches[i]}` : `${name}, stage ${stage}`;
  }

  /** What an event is called. */
  label(i) {
    const { collective } = this.kind(i);
    return collective ? `${collective} in ${this.action(i)}` : this.action(i);
  }

  isOf(i, microBatch) {
    return this.microBatches[i] === microBatch && this.kind(i).has_micro_batch;
  }

  /** Whether a word of what an event is or does, or its whole name, is searched for. */
  isCalled(i, wanted) {
    const { class_name: className, action_name: name, collective } = this.kind(i);
    const words = [className, name, collective ?? ""];
    return words.some((word) => word.includes(wanted)) || this.action(i).toLowerCase() === wanted;
  }

  /** The events for which something holds. */
  where(holds) {
    return [...this.kindIds.keys()].filter(holds);
  }

  /** The first event that ends after `time`. */
  firstEndingAfter(time) {
    return partitionPoint(this.length, (i) => this.ends[i] > time);
  }

  hasEventIn(start, end) {
    const i = this.firstEndingAfter(start);
    return i < this.length && this.starts[i] < end;
  }

  /** The event at `time`, or the nearest no further than `reach` from it; -1 if there is none. */
  at(time, reach) {
    const next = this.firstEndingAfter(time);
    const distance = (i) => Math.max(this.starts[i] - time, time - this.ends[i], 0);
    const near = [next, next - 1].filter((i) => i >= 0 && i < this.length);
    const best = near.sort((a, b) => distance(a) - distance(b))[0];
    return best !== undefined && distance(best) <= reach ? best : -1;
  }

  /** How long events took before `time`. */
  busyUntil(time) {
    const i = this.firstEndingAfter(time);
    return this.busyBefore[i] + (i < this.length ? Math.max(0, time - this.starts[i]) : 0);
  }
}

/**
 * How long each kind of event takes from `start` to `end`, in the mean over the ranks of `tracks`, the
 * longest first.
 */
function totalsOf(tracks, start, end) {
  const totals = new Map();
  let numRanks = 0;
  for (const track of tracks) {
    const weight = Math.max(track.numRanks, 1);
    numRanks += weight;
    for (const row of track.rows) {
      for (let i = row.firstEndingAfter(start); i < row.length && row.starts[i] < end; i += 1) {
        const time = Math.min(row.ends[i], end) - Math.max(row.starts[i], start);
        const { class: key, class_name: name } = row.kind(i);
        const total = totals.get(key) ?? { key, name, time: 0, count: 0 };
        total.time += time * weight;
        total.count += 1;
        totals.set(key, total);
      }
    }
  }
  const means = [...totals.values()].map((total) => ({ ...total, time: total.time / numRanks }));
  return means.sort((a, b) => b.time - a.time);
}

/** A rank, or several that are alike. */
class Track {
  constructor(data, kinds) {
    this.name = data.name;
    this.rank = data.rank;
    this.numRanks = data.num_ranks;
    this.capacity = data.capacity_bytes;
    this.peak = data.peak_bytes;
    const rows = data.rows.map((row) => new Row(row, kinds));
    this.compute = rows.filter((row) => row.isCompute);
    this.others = rows.filter((row) => !row.isCompute);
    // What a rank waits for may be of another's stage.
    const passed = (row) => [...new Set(row.stages.filter((_, i) => row.kind(i).is_pass))];
    const stages = [...new Set(this.compute.flatMap(passed))].sort((a, b) => a - b);
    if (stages.length > 1) {
      const places = new Map(stages.map((stage, nth) => [stage, nth]));
      for (const row of this.compute) row.places = places;
    }
    this.times = new Float64Array(data.num_points);
    this.bytes = new Float64Array(data.num_points);
    const numbers = unpacked(data.memory);
    let [time, bytes] = [0, 0];
    for (let i = 0; i < data.num_points; i += 1) {
      this.times[i] = time += numbers.next().value;
      this.bytes[i] = bytes += numbers.next().value;
    }
  }

  get rows() {
    return [...this.compute, ...this.others];
  }

  /** The event of its compute at a time, or the nearest; null if there is none. */
  nearest(time) {
    const row = this.rows[0];
    const index = row ? row.at(time, Infinity) : -1;
    return index < 0 ? null : { row, index };
  }

  get hasMemory() {
    return this.times.length > 0;
  }

  /** Memory in use at `time`; null before the first point. */
  memoryAt(time) {
    const next = partitionPoint(this.times.length, (i) => this.times[i] > time);
    return next === 0 ? null : this.bytes[next - 1];
  }
}

/**
 * What the top of memory curves stands for, the same for all tracks of a timeline: the capacity, or
 * the largest peak where that is above it or so far below that curves would be flat.
 */
function topOfMemory(tracks) {
  const largest = (sizes) => sizes.reduce((a, b) => Math.max(a, b ?? 0), 1);
  const peak = largest(tracks.map((track) => track.peak));
  const capacity = largest(tracks.map((track) => track.capacity));
  return capacity > 2 * peak ? peak : Math.max(peak, capacity);
}

/** All timelines of the page. */
function readTimelines(data) {
  countPlainUnits(data.unit_nanoseconds);
  return data.timelines.map(({ title, work, setting, remark, ...timeline }) => {
    const tracks = timeline.tracks.map((track) => new Track(track, data.kinds));
    const [end, bubble] = [timeline.end_nanoseconds, timeline.bubble_fraction];
    const isEmpty = tracks.every((track) => track.rows.length === 0);
    return { title, work, setting, remark, end, bubble, tracks, isEmpty, topOfMemory: topOfMemory(tracks) };
  });
}
