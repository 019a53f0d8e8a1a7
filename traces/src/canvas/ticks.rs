//! Round numbers along an axis.

/// Round numbers between two values, evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ticks {
    step: f64,
    from: f64,
    to: f64,
}

impl Ticks {
    /// Numbers from 0 to `most`, at most about `count` of them: 1, 2 or 5 times a power of ten apart.
    pub(crate) fn new(most: f64, count: f64) -> Self {
        Self::between([0.0, if most > 0.0 { most } else { 1.0 }], count)
    }

    /// Ticks between two different values, about `count` at most.
    pub(crate) fn between([from, to]: [f64; 2], count: f64) -> Self {
        let raw = (to - from) / count.max(1.0);
        let power = 10_f64.powf(raw.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = steps.into_iter().find(|step| *step >= raw * (1.0 - 1e-9)).unwrap_or(raw);
        Self { step, from, to }
    }

    /// Ticks between two values, whole numbers only.
    pub(crate) fn whole(range: [f64; 2], count: f64) -> Self {
        let ticks = Self::between(range, count);
        Self { step: ticks.step.max(1.0), ..ticks }
    }

    /// The numbers, with their labels.
    pub(crate) fn iter(self) -> impl Iterator<Item = (f64, String)> {
        let decimals = (-self.step.log10().floor()).max(0.0) as usize;
        let first = (self.from / self.step - 1e-9).ceil() as i64;
        let last = (self.to / self.step * (1.0 + 1e-9)).floor() as i64;
        (first..=last).map(move |index| {
            let value = index as f64 * self.step;
            (value, format!("{value:.decimals$}"))
        })
    }
}
