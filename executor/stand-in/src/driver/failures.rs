//! Planned failures.

use std::collections::BTreeMap;

use super::codes::Code;

/// Planned failures of calls, from `STAND_IN_FAIL`: `function:n` or `function:n=code`, separated by commas. The n-th
/// call of the function fails, counted from one on over all threads.
///
/// Three names are not functions. `peer:n`: the n-th group of calls to NCCL never ends, as if another rank were
/// missing. `join:n`: the n-th communicator is never made, for the same reason. `async:n`: the n-th query of a
/// communicator's state, and all later ones, return an error.
#[derive(Default)]
pub(super) struct Failures {
    planned: Vec<Failure>,
    counts: BTreeMap<&'static str, u64>,
}

struct Failure {
    name: String,
    call: u64,
    code: Option<Code>,
}

impl Failures {
    pub(super) fn parse(text: &str) -> Self {
        let failure = |item: &str| {
            let (name, rest) = item.trim().split_once(':')?;
            let (call, code) = match rest.split_once('=') {
                Some((call, code)) => (call, Some(Code(code.parse().ok()?))),
                None => (rest, None),
            };
            Some(Failure { name: name.to_owned(), call: call.parse().ok()?, code })
        };
        Self { planned: text.split(',').filter_map(failure).collect(), counts: BTreeMap::new() }
    }

    /// Counts a call, and returns its error if it is planned to fail.
    pub(super) fn count(&mut self, name: &'static str) -> Option<Code> {
        let count = self.counts.entry(name).or_default();
        *count += 1;
        let planned = self.planned.iter().find(|next| next.name == name && next.call == *count)?;
        Some(planned.code.unwrap_or_else(|| Code::usual(name)))
    }

    /// Number of calls of each function, and of each of the three other names.
    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, Failures};

    #[test]
    fn the_call_that_is_named_fails_and_no_other() {
        let mut failures = Failures::parse("cuMemAllocAsync:2, cuLaunchKernel:1=700,nonsense");
        assert_eq!(failures.count("cuMemAllocAsync"), None);
        assert_eq!(failures.count("cuInit"), None);
        assert_eq!(failures.count("cuMemAllocAsync"), Some(Code::OUT_OF_MEMORY));
        assert_eq!(failures.count("cuMemAllocAsync"), None);
        assert_eq!(failures.count("cuLaunchKernel"), Some(Code(700)));
        let counts = failures.counts();
        let expected = [("cuInit", 1), ("cuLaunchKernel", 1), ("cuMemAllocAsync", 3)];
        assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)).into());
    }
}
