// Draws what the tables say, and puts two plans side by side.

const { capacity_bytes: capacity, plans, others } = JSON.parse(element("data").textContent);
const viewer = JSON.parse(element("viewer").textContent);

/** Makes an element of a drawing with attributes and children. */
function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

const GIB = 2 ** 30;
const inGib = (bytes) => `${(bytes / GIB).toFixed(1)} GiB`;

/** A time of a step: in seconds, or in thousandths of them where it is short. */
function inSeconds(seconds) {
  const size = Math.abs(seconds);
  if (size >= 1) return `${seconds.toFixed(3)} s`;
  return size >= 1e-3 ? `${(seconds * 1e3).toFixed(2)} ms` : `${(seconds * 1e6).toFixed(1)} \u00b5s`;
}

/** Round numbers between two, about `wanted` of them. */
function ticks(from, to, wanted) {
  const rough = Math.max((to - from) / wanted, Number.MIN_VALUE);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const decimals = Math.max(0, -Math.floor(Math.log10(step)));
  const result = [];
  for (let n = Math.ceil(from / step); n * step <= to; n += 1) {
    result.push({ value: n * step, text: (n * step).toFixed(decimals) });
  }
  return result;
}

/** Whether there is nothing to put beside the plan. */
const isOne = plans.length < 2;

/** Which two are side by side. */
const pair = { first: 0, second: Math.min(1, plans.length - 1) };

// Time against memory.

const SIZE = { width: 1180, height: 340, left: 64, right: 24, top: 14, bottom: 40 };

function drawScatter() {
  const points = [...plans, ...others];
  const times = points.map((point) => point.step_time_seconds);
  const [least, most] = [Math.min(...times), Math.max(...times)];
  const room = Math.max((most - least) * 0.06, least * 0.002);
  const [from, to] = [least - room, most + room];
  const sizes = points.map((point) => point.peak_memory_bytes / GIB);
  const top = Math.max(...sizes, capacity / GIB) * 1.05;
  const { width, height, left, right, top: above, bottom } = SIZE;
  const x = (seconds) => left + ((seconds - from) / (to - from)) * (width - left - right);
  const y = (gib) => height - bottom - (gib / top) * (height - bottom - above);

  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${points.length} plans by time and memory; the table of plans has the first ${plans.length}` });
  for (const { value, text } of ticks(from, to, 8)) {
    svg.append(draw("line", { class: "grid", x1: x(value), x2: x(value), y1: above, y2: height - bottom }));
    svg.append(draw("text", { class: "tick", x: x(value), y: height - bottom + 16, "text-anchor": "middle" }, text));
  }
  for (const { value, text } of ticks(0, top, 5)) {
    svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    svg.append(draw("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, text));
  }
  svg.append(draw("text", { class: "tick", x: width - right, y: height - 6, "text-anchor": "end" }, "step (s)"));
  svg.append(draw("text", { class: "tick", x: 8, y: above + 4 }, "GiB"));
  const limit = y(capacity / GIB);
  svg.append(draw("line", { class: "limit", x1: left, x2: width - right, y1: limit, y2: limit }));
  svg.append(draw("rect", { class: "frame", x: left, y: above, width: width - left - right, height: height - bottom - above }));
  const place = (point) => ({ cx: x(point.step_time_seconds), cy: y(point.peak_memory_bytes / GIB) });
  for (const point of others) {
    svg.append(draw("circle", { class: "point", ...place(point), r: 3 }, draw("title", {}, about(point))));
  }
  plans.forEach((plan, index) => {
    const { cx, cy } = place(plan);
    const names = ["plan"];
    if (index === pair.first) names.push("first");
    else if (index === pair.second) names.push("second");
    const circle = draw("circle", { class: names.join(" "), cx, cy, r: 7 }, draw("title", {}, about(plan)));
    circle.addEventListener("click", () => choose(pair.first, index));
    svg.append(circle, draw("text", { x: cx + 10, y: cy - 6 }, String(index + 1)));
  });
  element("scatter").replaceChildren(svg);
  const more = others.length > 0 ? `; grey: ${others.length} more that were found` : "";
  element("scatter-hint").textContent =
    `numbers are places in the table${more}; dashed: the memory of a GPU${isOne ? "" : "; a click puts a plan beside A"}`;
}

function about(point) {
  return `${point.layout}: ${inSeconds(point.step_time_seconds)}, ${inGib(point.peak_memory_bytes)}`;
}

// What the plans spend.

/** Bars of what plans consist of, one below the other, with what the colours mean. */
function stacks(title, partsOf, totalOf, words, most) {
  const names = plans.length === 0 ? [] : partsOf(plans[0]).map(({ name }) => name);
  const isUsed = names.map((_, part) => plans.some((plan) => partsOf(plan)[part].size > 0));
  const color = (part) => `var(--part-${part % 12})`;
  const box = make("div", {}, make("h3", {}, title));
  plans.forEach((plan, index) => {
    const stack = make("div", { class: "stack", role: "img",
      "aria-label": `${plan.name}: ${words(totalOf(plan))}` });
    partsOf(plan).forEach(({ name, size }, part) => {
      if (size <= 0) return;
      const style = `width:${(100 * size) / most}%;background:${color(part)}`;
      stack.append(make("i", { style, title: `${name}: ${words(size)}` }));
    });
    box.append(make("div", { class: "bar" }, make("span", {}, String(index + 1)), stack,
      make("span", {}, words(totalOf(plan)))));
  });
  const key = names.map((name, part) => isUsed[part]
    && make("li", {}, make("i", { style: `background:${color(part)}` }), name)).filter(Boolean);
  box.append(make("ul", { class: "legend" }, ...key));
  return box;
}

function drawBars() {
  const time = (plan) => plan.time.map(({ name, seconds }) => ({ name, size: seconds }));
  const memory = (plan) => plan.memory.map(({ name, bytes }) => ({ name, size: bytes }));
  const stepOf = (plan) => plan.step_time_seconds;
  const peakOf = (plan) => plan.peak_memory_bytes;
  const longest = Math.max(...plans.map(stepOf));
  const largest = Math.max(capacity, ...plans.map(peakOf));
  element("bars").replaceChildren(
    stacks("time of a step", time, stepOf, inSeconds, longest),
    stacks(`memory of the fullest GPU, of ${inGib(capacity)}`, memory, peakOf, inGib, largest),
  );
}

// Side by side.

function choose(first, second) {
  Object.assign(pair, { first, second });
  element("first").value = String(first);
  element("second").value = String(second);
  drawScatter();
  drawPair();
  showTimelines();
}

function drawPair() {
  const [a, b] = [plans[pair.first], plans[pair.second]];
  const more = b.step_time_seconds - a.step_time_seconds;
  const share = (100 * Math.abs(more)) / a.step_time_seconds;
  const bytes = b.peak_memory_bytes - a.peak_memory_bytes;
  element("verdict").replaceChildren(
    make("b", { class: "second" }, `B, ${b.name}, `),
    `takes ${inSeconds(Math.abs(more))} (${share.toFixed(1)} %) ${more < 0 ? "less" : "more"} than `,
    make("b", { class: "first" }, `A, ${a.name}, `),
    `and ${inGib(Math.abs(bytes))} ${bytes < 0 ? "less" : "more"} memory.`,
  );
  const signed = (value, words) => {
    const size = words(Math.abs(value));
    const sign = value < 0 ? "\u2212" : "+";
    return /[1-9]/.test(size) ? sign + size : "0";
  };
  const time = a.time.map((term, index) => {
    const other = b.time[index];
    const because = term.because === other.because ? term.because : `${term.because} | ${other.because}`;
    return { name: term.name, sizes: [term.seconds, other.seconds], words: inSeconds, because };
  }).filter(({ sizes }) => sizes.some((size) => size !== 0));
  time.sort((p, q) => Math.abs(q.sizes[1] - q.sizes[0]) - Math.abs(p.sizes[1] - p.sizes[0]));
  const memory = a.memory.map((line, index) => (
    { name: line.name, sizes: [line.bytes, b.memory[index].bytes], words: inGib, because: "" }
  )).filter(({ sizes }) => sizes.some((size) => size > 0));
  const row = ({ name, sizes, words, because }) => make("tr", {},
    make("th", { scope: "row" }, name),
    ...sizes.map((size) => make("td", {}, words(size))),
    make("td", {}, signed(sizes[1] - sizes[0], words)),
    make("td", { class: "because" }, because));
  const headings = ["", "A", "B", "B beyond A", "by"];
  element("pair").replaceChildren(makeTable(headings, time.map(row), memory.map(row)));
}

/** The page of the timelines of A and B, in a frame of its own. */
function showTimelines() {
  const chosen = pair.first === pair.second ? [pair.first] : [pair.first, pair.second];
  const timelines = chosen.map((index) => viewer.data.timelines[index]);
  const data = JSON.stringify({ ...viewer.data, timelines }).replaceAll("<", "\\u003c");
  element("timelines").srcdoc = viewer.before + data + viewer.after;
}

function start() {
  if (plans.length === 0) return;
  for (const section of document.querySelectorAll(".drawn")) section.hidden = false;
  for (const id of ["first", "second"]) {
    element(id).append(...plans.map((plan, index) => make("option", { value: index }, plan.name)));
    element(id).addEventListener("change", () => {
      choose(Number(element("first").value), Number(element("second").value));
    });
  }
  if (isOne) {
    element("pairs").hidden = true;
    element("lost").hidden = true;
    element("bars-heading").textContent = "What the plan spends";
    element("timelines-heading").textContent = "Its step";
    element("timelines").title = "Timeline of the plan";
  }
  drawBars();
  choose(pair.first, pair.second);
}

start();
