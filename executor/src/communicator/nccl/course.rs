//! What one rank sends another in each step.
//!
//! A program sends the same in every step, in the same order. The first step learns it from letters; the later ones
//! need none, and no rank waits for another before it asks the library for what comes.

use super::engine::Form;
use crate::communicator::Tag;

/// The arrays of a step between two ranks, in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// The step that was reached; zero before the first.
    step: u64,
    arrays: Vec<(Tag, Form)>,
    /// How many of the arrays have gone in a step that is known.
    gone: Option<usize>,
}

impl Course {
    /// The next array of a step, if a step before has shown it. Both ranks ask it for each array, and for those that
    /// are not known call [`Self::learn`].
    ///
    /// # Panics
    ///
    /// If the step before had no more.
    pub(super) fn next(&mut self, step: u64) -> Option<(Tag, Form)> {
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

    /// Notes the next array of a step that is not known. What is sent before the first step is of none.
    pub(super) fn learn(&mut self, tag: Tag, form: &Form) {
        if self.step > 0 {
            self.arrays.push((tag.of_sender(), form.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;
    use traces::timeline::Stream;

    use super::{Course, Form, Tag};

    const TAG: Tag = Tag::Stream(Stream::Context);

    fn form(size: usize) -> Form {
        Form { element: DType::F32, shape: vec![size] }
    }

    #[test]
    fn a_step_is_known_from_the_first_on() {
        let mut course = Course::default();
        assert_eq!(course.next(0), None);
        course.learn(TAG, &form(9));
        for size in [2, 3] {
            assert_eq!(course.next(1), None);
            course.learn(TAG, &form(size));
        }
        for step in [2, 3, 7] {
            assert_eq!(
                [course.next(step), course.next(step)],
                [2, 3].map(|size| Some((TAG, form(size))))
            );
        }
    }

    #[test]
    #[should_panic(expected = "step 2 goes on after all of")]
    fn a_step_that_sends_more_is_a_bug() {
        let mut course = Course::default();
        assert_eq!(course.next(1), None);
        course.learn(TAG, &form(1));
        course.next(2);
        course.next(2);
    }

    #[test]
    #[should_panic(expected = "step 2 ended before")]
    fn a_step_that_sends_less_is_a_bug() {
        let mut course = Course::default();
        for size in [2, 3] {
            assert_eq!(course.next(1), None);
            course.learn(TAG, &form(size));
        }
        course.next(2);
        course.next(3);
    }
}
