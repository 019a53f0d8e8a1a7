// Where things stand, from top to bottom, in CSS pixels.

const HEADING_HEIGHT = 30;
const STREAM_HEIGHT = 15;
const MEMORY_HEIGHT = 38;
/** No track and no memory is higher, however few there are. */
const MOST_TRACK_HEIGHT = 84;
const MOST_MEMORY_HEIGHT = 110;

/** Of a folded track, the height of what shows all streams but compute. */
function stripHeight(height) {
  return Math.max(4, Math.round(height / 8));
}

/** The least height of a track: what lets many of them stand on a screen. */
function trackHeight(numTracks) {
  if (numTracks <= 8) return 34;
  if (numTracks <= 20) return 24;
  return 14;
}

/** The items of the picture in their places, as high as the room allows; see `place`. */
function layOut(timelines, state) {
  const tracks = timelines.flatMap((timeline) => timeline.tracks);
  const least = { track: trackHeight(tracks.length), memory: MEMORY_HEIGHT };
  const dense = place(timelines, state, least);
  const numMemories = state.showMemory ? tracks.filter((track) => track.hasMemory).length : 0;
  const flexible = tracks.length * least.track + numMemories * least.memory;
  const spare = state.room - dense.height;
  if (spare <= 0 || flexible === 0) return dense;
  const factor = 1 + spare / flexible;
  return place(timelines, state, {
    track: Math.floor(Math.min(least.track * factor, MOST_TRACK_HEIGHT)),
    memory: Math.floor(Math.min(least.memory * factor, MOST_MEMORY_HEIGHT)),
  });
}

/**
 * The items of the picture, each with its `y` and `height`:
 *
 * - `heading` of a timeline, if there are several;
 * - `track`: its compute, and its other streams as a strip below while it is folded;
 * - `row`: another stream of an unfolded track;
 * - `memory` of a track;
 * - `nothing`, for a timeline without events.
 */
function place(timelines, { unfolded, showMemory }, { track: height, memory }) {
  const gap = height > 20 ? 8 : 3;
  const items = [];
  let y = gap;
  const put = (item) => {
    items.push({ ...item, y });
    y += item.height;
  };
  for (const timeline of timelines) {
    if (timelines.length > 1) put({ type: "heading", timeline, height: HEADING_HEIGHT });
    if (timeline.isEmpty) put({ type: "nothing", timeline, height: 60 });
    for (const track of timeline.tracks) {
      const isFolded = !unfolded.has(track);
      put({ type: "track", timeline, track, isFolded, height });
      if (!isFolded) {
        for (const row of track.others) {
          y += 1;
          put({ type: "row", timeline, track, row, height: STREAM_HEIGHT });
        }
      }
      if (showMemory && track.hasMemory) {
        y += 2;
        put({ type: "memory", timeline, track, height: memory });
      }
      y += isFolded ? gap : gap + 4;
    }
    y += gap;
  }
  return { items, height: y };
}

/**
 * The bands of a track or a row, none of other items: which row is drawn from where to where, in the order of drawing.
 *
 * Lanes of compute beyond the first are what overlaps it. They take the lower part of its height, and
 * events of the first lane that share their time with one of them the upper part: `beside` holds
 * those lanes.
 */
function bands({ type, track, row, isFolded, y, height }) {
  if (type === "row") return [{ row, y, height, beside: [] }];
  if (type !== "track") return [];
  const strip = isFolded && track.others.length > 0 ? stripHeight(height) : 0;
  const full = height - strip;
  const [first, ...overlapping] = track.compute;
  const share = full / track.compute.length;
  const result = [];
  if (first) result.push({ row: first, y, height: full, beside: overlapping });
  overlapping.forEach((lane, i) => {
    result.push({ row: lane, y: y + share * (i + 1), height: share, beside: [] });
  });
  if (strip > 0) {
    const below = { y: y + full + 1, height: strip - 1, beside: [] };
    result.push(...track.others.map((other) => ({ row: other, ...below })));
  }
  return result;
}

/** The height of an event of a band: less than the band's where it shares its time. */
function heightOf({ row, height, beside }, i) {
  const isShared = beside.some((lane) => lane.hasEventIn(row.starts[i], row.ends[i]));
  return isShared ? height / (beside.length + 1) - 1 : height;
}

/** The item at a height, or none. */
function itemAt(items, y) {
  const next = partitionPoint(items.length, (i) => items[i].y > y);
  const item = items[next - 1];
  return item && y < item.y + item.height ? item : null;
}
