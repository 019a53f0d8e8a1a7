// The part of the time that is shown, on a plot of so many pixels.

/** No view is shorter than this many nanoseconds. */
const SHORTEST_VIEW = 20;

const clamped = (value, least, most) => Math.min(Math.max(value, least), most);

class View {
  /** `changed` is called after each move. */
  constructor(end, changed) {
    this.fullEnd = Math.max(end, SHORTEST_VIEW);
    this.changed = changed;
    this.width = 1;
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
    const span = clamped(end - start, SHORTEST_VIEW, this.fullEnd);
    this.start = clamped(start, 0, this.fullEnd - span);
    this.end = this.start + span;
    this.changed();
  }

  /** Makes the span `factor` times as long; the time at `x` stays where it is. */
  zoom(factor, x = this.width / 2) {
    const span = clamped(this.span * factor, SHORTEST_VIEW, this.fullEnd);
    const start = this.timeAt(x) - (x / this.width) * span;
    this.show(start, start + span);
  }

  /** Moves by so many pixels, to later times if positive. */
  pan(pixels) {
    const shift = (pixels / this.width) * this.span;
    this.show(this.start + shift, this.end + shift);
  }

  /** Moves so that a time is in the middle. */
  centreOn(time) {
    this.show(time - this.span / 2, time + this.span / 2);
  }

  timeAt(x) {
    return this.start + (x / this.width) * this.span;
  }

  xOf(time) {
    return ((time - this.start) / this.span) * this.width;
  }
}
