//! The dynamic program against all partitions, and against an integer program.

use good_lp::{Expression, Solution, SolverModel, constraint, microlp, variable, variables};
use proptest::prelude::*;

use super::{balanced, folded, partition};

fn prefix_sums(times: &[f64]) -> Vec<f64> {
    let sums = times.iter().scan(0.0, |sum, time| {
        *sum += time;
        Some(*sum)
    });
    std::iter::once(0.0).chain(sums).collect()
}

fn slowest(prefix: &[f64], ends: &[usize]) -> f64 {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, end)| prefix[*end] - prefix[start]).fold(0.0, f64::max)
}

/// The least bottleneck over every way to cut the chain.
fn exhaustive(prefix: &[f64], num_stages: usize, most: usize) -> Option<f64> {
    fn cut(prefix: &[f64], start: usize, stages: usize, most: usize) -> Option<f64> {
        let num_blocks = prefix.len() - 1;
        if stages == 1 {
            return (num_blocks - start <= most).then(|| prefix[num_blocks] - prefix[start]);
        }
        (start + 1..=num_blocks - (stages - 1))
            .filter(|end| end - start <= most)
            .filter_map(|end| {
                Some(cut(prefix, end, stages - 1, most)?.max(prefix[end] - prefix[start]))
            })
            .min_by(f64::total_cmp)
    }
    cut(prefix, 0, num_stages, most)
}

proptest! {
    #[test]
    fn the_program_finds_what_exhaustive_search_finds(
        times in prop::collection::vec(1u32..100, 1..9),
        num_stages in 1usize..5,
        most in 1usize..9,
    ) {
        prop_assume!(num_stages <= times.len());
        let times: Vec<f64> = times.into_iter().map(f64::from).collect();
        let prefix = prefix_sums(&times);
        let found = partition(&prefix, num_stages, |_, start, end| end - start <= most);
        let expected = exhaustive(&prefix, num_stages, most);
        prop_assert_eq!(found.as_deref().map(|ends| slowest(&prefix, ends)), expected);
    }

    #[test]
    fn bisection_first_does_not_change_the_answer(
        times in prop::collection::vec(1u32..100, 1..60),
        num_stages in 1usize..20,
    ) {
        prop_assume!(num_stages <= times.len());
        let times: Vec<f64> = times.into_iter().map(|time| f64::from(time) / 7.0).collect();
        let prefix = prefix_sums(&times);
        let free = partition(&prefix, num_stages, |_, _, _| true).unwrap();
        let found = balanced(&prefix, num_stages).unwrap();
        let (least, most) = (slowest(&prefix, &free), slowest(&prefix, &found));
        prop_assert!((most / least - 1.0).abs() < 1e-8, "{least} {most}");
    }
}

/// Every way to cut the chain.
fn cuts(num_blocks: usize, num_chunks: usize) -> Vec<Vec<usize>> {
    if num_chunks == 1 {
        return if num_blocks > 0 { vec![vec![num_blocks]] } else { Vec::new() };
    }
    let last = num_chunks - 1..num_blocks;
    let with_last = |before: usize| {
        cuts(before, num_chunks - 1)
            .into_iter()
            .map(move |ends| [&ends[..], &[num_blocks]].concat())
    };
    last.flat_map(with_last).collect()
}

/// The slowest of ranks that each have a chunk and the one that is as far from the end.
fn slowest_of_pairs(prefix: &[f64], ends: &[usize]) -> f64 {
    let num_chunks = ends.len();
    let time = |chunk: usize| {
        prefix[ends[chunk]] - chunk.checked_sub(1).map_or(0.0, |before| prefix[ends[before]])
    };
    (0..num_chunks / 2).map(|chunk| time(chunk) + time(num_chunks - 1 - chunk)).fold(0.0, f64::max)
}

/// The best of all ways to cut the chain, by the slowest rank, then by the slowest chunk.
fn best_of_pairs(prefix: &[f64], num_chunks: usize) -> Option<(f64, f64)> {
    cuts(prefix.len() - 1, num_chunks)
        .into_iter()
        .map(|ends| (slowest_of_pairs(prefix, &ends), slowest(prefix, &ends)))
        .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)))
}

proptest! {
    /// Equal layers between an embedding and a head, as models are.
    #[test]
    fn folded_chains_are_cut_best(
        first in 0u32..20, layer in 1u32..20, last in 0u32..40, num_layers in 0usize..12,
        num_pairs in 1usize..4,
    ) {
        let layers = vec![f64::from(layer); num_layers];
        let prefix = prefix_sums(&[&[f64::from(first)], &layers[..], &[f64::from(last)]].concat());
        let found = folded(&prefix, 2 * num_pairs);
        let found = found.map(|ends| (slowest_of_pairs(&prefix, &ends), slowest(&prefix, &ends)));
        prop_assert_eq!(found, best_of_pairs(&prefix, 2 * num_pairs));
    }

    /// Any blocks: a whole assignment, between the best and the one that looks at chunks alone.
    #[test]
    fn folded_chains_are_cut_well(
        times in prop::collection::vec(0u32..30, 1..12), num_pairs in 1usize..4,
    ) {
        let num_chunks = 2 * num_pairs;
        let times: Vec<f64> = times.into_iter().map(f64::from).collect();
        let prefix = prefix_sums(&times);
        let Some((least, _)) = best_of_pairs(&prefix, num_chunks) else {
            prop_assert_eq!(folded(&prefix, num_chunks), None);
            return Ok(());
        };
        let ends = folded(&prefix, num_chunks).unwrap();
        prop_assert_eq!(ends.len(), num_chunks);
        prop_assert!(ends.is_sorted_by(|a, b| a < b) && ends[0] > 0, "{ends:?}");
        prop_assert_eq!(ends[num_chunks - 1], times.len());
        let found = slowest_of_pairs(&prefix, &ends);
        let by_chunks = slowest_of_pairs(&prefix, &balanced(&prefix, num_chunks).unwrap());
        prop_assert!((least..=by_chunks).contains(&found), "{least}, {found}, {by_chunks}");
    }
}

/// One integer count of layers for each stage: blocks that are alike need no variable of their own.
fn integer_program(layer: f64, head: f64, num_layers: u32, num_stages: usize) -> f64 {
    let mut variables = variables!();
    let bottleneck = variables.add(variable().min(0));
    let counts = variables.add_vector(variable().integer().min(1), num_stages);
    let total: Expression = counts.iter().sum();
    let mut model = variables
        .minimise(bottleneck)
        .using(microlp)
        .with(constraint!(total == f64::from(num_layers)));
    for (stage, count) in counts.iter().enumerate() {
        let head = if stage + 1 == num_stages { head } else { 0.0 };
        model = model.with(constraint!(*count * layer + head <= bottleneck));
    }
    model.solve().unwrap().value(bottleneck)
}

#[test]
fn the_program_agrees_with_an_integer_program() {
    for (num_layers, num_stages, head) in [(32, 4, 2.5), (80, 8, 3.0), (126, 16, 1.75)] {
        let mut times = vec![1.0; num_layers as usize];
        times.push(head);
        let prefix = prefix_sums(&times);
        let ends = partition(&prefix, num_stages, |_, _, _| true).unwrap();
        let expected = integer_program(1.0, head, num_layers, num_stages);
        assert!((slowest(&prefix, &ends) - expected).abs() < 1e-6);
    }
}

#[test]
fn more_stages_than_blocks_do_not_fit() {
    assert_eq!(partition(&[0.0, 1.0], 2, |_, _, _| true), None);
    assert_eq!(partition(&[0.0, 1.0, 2.0], 2, |_, _, _| false), None);
}
