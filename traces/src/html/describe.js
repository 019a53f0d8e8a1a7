// What is said of events and of parts of time.

/** What a tooltip says of an event. */
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
  return { heading: row.label(index), swatch: kind.class, facts };
}

/** The event of a track's compute at a time, or the nearest; null if there is none. */
function nearestOf(track, time) {
  const row = track.compute[0] ?? track.rows[0];
  const index = row ? row.at(time, Infinity) : -1;
  return index < 0 ? null : { row, index };
}

/** What the time of a range goes to. */
function describeRange({ start, end }, tracks) {
  const span = end - start;
  const rows = totalsOf(tracks, start, end).map(({ key, name, time, count }) =>
    make("tr", {},
      make("th", { scope: "row" }, make("i", { style: `background:var(--${key})` }), name),
      make("td", {}, formatTime(time, 4)),
      make("td", {}, formatPercent(time / span)),
      make("td", {}, String(count))));
  const heads = ["", "mean of a rank", "of the range", "events"];
  return [
    make("h2", {}, `${formatTime(span)}, from ${formatTime(start)} to ${formatTime(end)}`),
    make("table", {},
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...rows)),
  ];
}

/** Shows a tooltip beside the pointer, where the window has room for it; hides it if there is none. */
function showTooltip(content, x, y) {
  const tooltip = element("tooltip");
  tooltip.hidden = content === null;
  if (content === null) return;
  const { heading, swatch, facts } = content;
  tooltip.replaceChildren(
    make("strong", {}, make("i", { style: `background:var(--${swatch})` }), heading),
    make("dl", {}, ...facts.flatMap(([name, value]) => [
      make("dt", {}, name),
      make("dd", {}, String(value)),
    ])),
  );
  const { width, height } = tooltip.getBoundingClientRect();
  const left = x + 16 + width < innerWidth ? x + 16 : Math.max(x - 16 - width, 4);
  const top = Math.min(y + 16, innerHeight - height - 4);
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${Math.max(top, 4)}px`;
}
