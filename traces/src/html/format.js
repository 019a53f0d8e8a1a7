// Numbers as people read them.

const TIME_UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]];

/** The unit in which a time of so many nanoseconds has one to three digits before the point. */
function timeUnit(nanos) {
  return TIME_UNITS.find(([size]) => Math.abs(nanos) >= size) ?? TIME_UNITS.at(-1);
}

/** How many nanoseconds a unit of time without a name has; null where time is in seconds. */
let plainUnit = null;

/** Lets all times count such units, and memory what is kept. */
function countPlainUnits(nanos) {
  plainUnit = nanos;
}

/** A time in its own unit, to so many digits. */
function formatTime(nanos, digits = 6) {
  if (plainUnit !== null) return `${Number((nanos / plainUnit).toPrecision(digits))} units`;
  if (nanos === 0) return "0 s";
  const [size, name] = timeUnit(nanos);
  return `${Number((nanos / size).toPrecision(digits))} ${name}`;
}

/** A number of bytes in binary units. */
function formatBytes(bytes) {
  if (plainUnit !== null) return `${bytes} in flight`;
  const units = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  const unit = units.find(([size]) => bytes >= size);
  return unit ? `${(bytes / unit[0]).toFixed(1)} ${unit[1]}` : `${bytes} B`;
}

function formatPercent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

/**
 * Round times between `start` and `end`, about `wanted` of them, with texts in one unit: that of the
 * end, or a smaller one if it would take more than three decimals to tell them apart.
 */
function ticks(start, end, wanted) {
  const rough = Math.max((end - start) / Math.max(wanted, 1), plainUnit ?? 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const [size, unit] = plainUnit === null ? timeUnit(Math.min(end, 1000 * step)) : [plainUnit, ""];
  const decimals = Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9));
  const result = [];
  for (let n = Math.ceil(start / step); n * step <= end; n += 1) {
    result.push({ time: n * step, text: `${((n * step) / size).toFixed(decimals)} ${unit}`.trim() });
  }
  return result;
}
