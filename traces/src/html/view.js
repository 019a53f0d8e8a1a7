// What part of the time is shown.

/** No view is shorter than this many nanoseconds. */
const SHORTEST_VIEW = 20;

class View {
  constructor(end) {
    this.fullEnd = Math.max(end, SHORTEST_VIEW);
    this.reset();
  }

  get span() {
    return this.end - this.start;
  }

  get isWhole() {
    return this.start <= 0 && this.end >= this.fullEnd;
  }

  reset() {
    this.show(0, this.fullEnd);
  }

  /** Shows from `start` to `end`, or as much of it as there is. */
  show(start, end) {
    const span = Math.min(Math.max(end - start, SHORTEST_VIEW), this.fullEnd);
    this.start = Math.min(Math.max(start, 0), this.fullEnd - span);
    this.end = this.start + span;
  }

  /** Makes the span `factor` times as long; `time` stays where it is. */
  zoom(factor, time) {
    const span = Math.min(Math.max(this.span * factor, SHORTEST_VIEW), this.fullEnd);
    const start = time - ((time - this.start) / this.span) * span;
    this.show(start, start + span);
  }

  /** Moves by a share of the span, to later times if positive. */
  pan(share) {
    const shift = share * this.span;
    this.show(this.start + shift, this.end + shift);
  }

  /** The time at `x` on a plot of so many pixels. */
  timeAt(x, width) {
    return this.start + (x / width) * this.span;
  }

  /** Where a time is on a plot of so many pixels. */
  xOf(time, width) {
    return ((time - this.start) / this.span) * width;
  }
}
