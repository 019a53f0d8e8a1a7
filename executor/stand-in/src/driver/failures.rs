//! Errors on demand.

use std::collections::BTreeMap;

use super::codes::Code;

/// Which calls fail, from `STAND_IN_FAIL`: `function:n` or `function:n=code`, with commas between.
/// The n-th call of the function fails, counted from one on over all threads.
///
/// Three names are not functions. `peer:n`: the n-th group of calls to NCCL never ends, as if another
/// rank did not come. `join:n`: the n-th communicator is never made, for the same reason. `async:n`:
/// who asks a communicator for the n-th time how it does is told of an error, then and later.
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

    /// Counts a call, and says with what it fails if it is to fail.
    pub(super) fn count(&mut self, name: &'static str) -> Option<Code> {
        let count = self.counts.entry(name).or_default();
        *count += 1;
        let planned = self.planned.iter().find(|next| next.name == name && next.call == *count)?;
        Some(planned.code.unwrap_or_else(|| Code::usual(name)))
    }

    /// How often each function was called, and what is no function was asked for.
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
