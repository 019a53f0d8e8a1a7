// Descriptions of events and of parts of time.

const swatch = (name) => make("i", { style: `background:var(--${name})` });

/** Names and values as a list of definitions, each in an element of its own if `isGrouped`. */
function makeFacts(facts, isGrouped) {
  const pairs = facts.map(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]);
  return make("dl", {}, ...(isGrouped ? pairs.map((pair) => make("div", {}, ...pair)) : pairs.flat()));
}

/** Facts about an event. */
function describe({ row, index, track }) {
  const kind = row.kind(index);
  const facts = [["what", kind.class_name], ["on", track.name], ["stage", row.stages[index]]];
  if (kind.has_micro_batch) facts.push(["micro-batch", row.microBatches[index]]);
  facts.push(
    ["stream", row.stream],
    ["start", formatTime(row.starts[index])],
    ["duration", formatTime(row.ends[index] - row.starts[index])],
  );
  if (row.bytes[index] > 0) facts.push(["size", formatBytes(row.bytes[index])]);
  return { heading: row.label(index), color: kind.class, facts };
}

/** Facts about a track's memory at a time; null before it is known. */
function describeMemory(track, time) {
  const bytes = track.memoryAt(time);
  if (bytes === null) return null;
  const facts = [["at", formatTime(Math.round(time))], ["in use", formatBytes(bytes)]];
  facts.push(["peak", formatBytes(track.peak)]);
  if (track.capacity !== null) facts.push(["capacity", formatBytes(track.capacity)]);
  return { heading: `memory of ${track.name}`, color: "curve", facts };
}

/** The time of each kind of event in a range. */
function describeRange({ start, end }, tracks) {
  const span = end - start;
  const rows = totalsOf(tracks, start, end).map(({ key, name, time, count }) =>
    make("tr", {},
      make("th", { scope: "row" }, swatch(key), name),
      make("td", {}, formatTime(time, 4)),
      make("td", {}, formatPercent(time / span)),
      make("td", {}, String(count))));
  return [
    make("h2", {}, `${formatTime(span)}, from ${formatTime(start)} to ${formatTime(end)}`),
    makeTable(["", "mean of a rank", "of the range", "events"], rows),
  ];
}

/** Shows a tooltip beside the pointer, where the window has room for it; hides it if there is none. */
function showTooltip(content, x, y) {
  const tooltip = element("tooltip");
  tooltip.hidden = content === null;
  if (content === null) return;
  const { heading, color, facts } = content;
  tooltip.replaceChildren(make("strong", {}, swatch(color), heading), makeFacts(facts, false));
  const { width, height } = tooltip.getBoundingClientRect();
  const left = x + 16 + width < innerWidth ? x + 16 : Math.max(x - 16 - width, 4);
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${Math.max(Math.min(y + 16, innerHeight - height - 4), 4)}px`;
}
