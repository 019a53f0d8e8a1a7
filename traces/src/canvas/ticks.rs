//! Round numbers along an axis.

/// Round numbers from 0 to a most, evenly apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ticks {
    step: f64,
    most: f64,
}

impl Ticks {
    /// At most about `count` of them: 1, 2 or 5 times a power of ten apart.
    pub(crate) fn new(most: f64, count: f64) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let raw = most / count.max(1.0);
        let power = 10_f64.powf(raw.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = steps.into_iter().find(|step| *step >= raw * (1.0 - 1e-9)).unwrap_or(raw);
        Self { step, most }
    }

    /// The same, but only whole numbers.
    pub(crate) fn whole(most: f64, count: f64) -> Self {
        let ticks = Self::new(most, count);
        Self { step: ticks.step.max(1.0), ..ticks }
    }

    /// The numbers and how they are written.
    pub(crate) fn iter(self) -> impl Iterator<Item = (f64, String)> {
        let decimals = (-self.step.log10().floor()).max(0.0) as usize;
        let count = (self.most / self.step * (1.0 + 1e-9)) as u32;
        (0..=count).map(move |index| {
            let value = f64::from(index) * self.step;
            (value, format!("{value:.decimals$}"))
        })
    }
}
