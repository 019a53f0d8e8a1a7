//! The sequence of arrays that one rank sends another in each step.
//!
//! A program sends the same arrays in every step, in the same order. The first step learns them from control messages;
//! later ones need none, and a rank calls the library's receive without waiting for another rank.

use crate::{ArraySpec, Tag};

/// The arrays of a step between two ranks, in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct RecordedStep {
    /// The current step; zero before the first.
    step: u64,
    arrays: Vec<(Tag, ArraySpec)>,
    /// Number of arrays of the current step that were sent so far; none if the arrays of a step are not recorded yet.
    gone: Option<usize>,
}

impl RecordedStep {
    /// The next array of a step, if an earlier step recorded it. Both ranks call it for each array, and
    /// [`Self::record`] for arrays that it does not know.
    ///
    /// # Panics
    ///
    /// If the recorded step had no more arrays.
    pub(super) fn next(&mut self, step: u64) -> Option<(Tag, ArraySpec)> {
        if step != self.step {
            assert!(
                self.gone.is_none_or(|gone| gone == self.arrays.len()),
                "steps send the same: step {} ended before {:?}",
                self.step,
                self.gone.and_then(|gone| self.arrays.get(gone)),
            );
            self.step = step;
            self.gone = (!self.arrays.is_empty()).then_some(0);
        }
        let gone = self.gone.as_mut()?;
        let Some(next) = self.arrays.get(*gone) else {
            panic!("steps send the same: step {step} goes on after all of {:?}", self.arrays)
        };
        *gone += 1;
        Some(next.clone())
    }

    /// Records the next array of a step that is not recorded yet. Arrays before the first step are not recorded.
    pub(super) fn record(&mut self, tag: Tag, spec: &ArraySpec) {
        if self.step > 0 {
            self.arrays.push((tag.of_sender(), spec.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;
    use traces::timeline::Stream;

    use super::{ArraySpec, RecordedStep, Tag};

    const TAG: Tag = Tag::Stream(Stream::Context);

    fn spec(size: usize) -> ArraySpec {
        ArraySpec { element: DType::F32, shape: vec![size] }
    }

    #[test]
    fn a_step_is_known_from_the_first_on() {
        let mut steps = RecordedStep::default();
        assert_eq!(steps.next(0), None);
        steps.record(TAG, &spec(9));
        for size in [2, 3] {
            assert_eq!(steps.next(1), None);
            steps.record(TAG, &spec(size));
        }
        for step in [2, 3, 7] {
            assert_eq!(
                [steps.next(step), steps.next(step)],
                [2, 3].map(|size| Some((TAG, spec(size))))
            );
        }
    }

    #[test]
    #[should_panic(expected = "step 2 goes on after all of")]
    fn a_step_that_sends_more_is_a_bug() {
        let mut steps = RecordedStep::default();
        assert_eq!(steps.next(1), None);
        steps.record(TAG, &spec(1));
        steps.next(2);
        steps.next(2);
    }

    #[test]
    #[should_panic(expected = "step 2 ended before")]
    fn a_step_that_sends_less_is_a_bug() {
        let mut steps = RecordedStep::default();
        for size in [2, 3] {
            assert_eq!(steps.next(1), None);
            steps.record(TAG, &spec(size));
        }
        steps.next(2);
        steps.next(3);
    }
}
