//! Tests of the bisection against all partitions, and against an integer program.

use good_lp::{Expression, Solution, SolverModel, constraint, microlp, variable, variables};
use proptest::prelude::*;

use ir::units::Nanos;

use super::{balanced, evened, mirrored, partition, slowest};

fn prefix_sums(times: &[u32]) -> Vec<Nanos> {
    let sums = times.iter().scan(Nanos::ZERO, |sum, time| {
        *sum += Nanos::new(u64::from(*time));
        Some(*sum)
    });
    std::iter::once(Nanos::ZERO).chain(sums).collect()
}

/// The least bottleneck over every way to cut the chain.
fn exhaustive(prefix: &[Nanos], num_stages: usize, most: usize) -> Option<Nanos> {
    fn cut(prefix: &[Nanos], start: usize, stages: usize, most: usize) -> Option<Nanos> {
        let num_blocks = prefix.len() - 1;
        if stages == 1 {
            return (num_blocks - start <= most).then(|| prefix[num_blocks] - prefix[start]);
        }
        (start + 1..=num_blocks - (stages - 1))
            .filter(|end| end - start <= most)
            .filter_map(|end| {
                Some(cut(prefix, end, stages - 1, most)?.max(prefix[end] - prefix[start]))
            })
            .min()
    }
    cut(prefix, 0, num_stages, most)
}

proptest! {
    #[test]
    fn bisection_finds_what_exhaustive_search_finds(
        times in prop::collection::vec(1u32..100, 1..9),
        num_stages in 1usize..5,
        most in 1usize..9,
    ) {
        prop_assume!(num_stages <= times.len());
        let prefix = prefix_sums(&times);
        let found = partition(&prefix, num_stages, |_, start, end| end - start <= most);
        let expected = exhaustive(&prefix, num_stages, most);
        prop_assert_eq!(found.as_deref().map(|ends| slowest(&prefix, ends)), expected);
    }
}

proptest! {
    /// Where the last block takes as long as all others together, the others are cut as if they were alone.
    #[test]
    fn stages_before_a_large_block_are_balanced_among_themselves(
        times in prop::collection::vec(1u32..100, 2..9), num_stages in 2usize..5,
    ) {
        prop_assume!(num_stages <= times.len());
        let alone = exhaustive(&prefix_sums(&times), num_stages, times.len());
        let large = times.iter().sum();
        let prefix = prefix_sums(&[&times[..], &[large]].concat());
        let ends = balanced(&prefix, num_stages + 1).unwrap();
        prop_assert_eq!(ends[num_stages - 1], times.len());
        prop_assert_eq!(Some(slowest(&prefix, &ends[..num_stages])), alone);
    }
}

/// Time of all blocks of each rank, where stages go round the ranks.
fn of_ranks(prefix: &[Nanos], ends: &[usize], num_ranks: usize) -> Vec<u64> {
    let mut ranks = vec![0; num_ranks];
    let starts = std::iter::once(0).chain(ends.iter().copied());
    for (stage, (start, end)) in starts.zip(ends).enumerate() {
        ranks[stage % num_ranks] += (prefix[*end] - prefix[start]).get();
    }
    ranks
}

proptest! {
    /// Evening out makes no stage slower, leaves no stage empty, and makes ranks more alike, until no single move of a
    /// block does so.
    #[test]
    fn ranks_become_more_even(
        times in prop::collection::vec(1u32..100, 4..60), num_ranks in 1usize..5, v in 1usize..5,
        most in 1usize..20,
    ) {
        let prefix = prefix_sums(&times);
        let fits = |stage: usize, start: usize, end: usize| end - start <= most + stage % 3;
        let Some(cut) = partition(&prefix, num_ranks * v, fits) else { return Ok(()) };
        let even = evened(&prefix, cut.clone(), num_ranks, fits);
        prop_assert!(slowest(&prefix, &even) <= slowest(&prefix, &cut));
        prop_assert!(even.is_sorted_by(|end, next| end < next) && even.last() == cut.last());
        let holds = |ends: &[usize]| {
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let mut stages = starts.zip(ends).enumerate();
            stages.all(|(stage, (start, end))| start < *end && fits(stage, start, *end))
        };
        prop_assert!(holds(&even));
        let squares = |ends: &[usize]| -> u64 {
            of_ranks(&prefix, ends, num_ranks).iter().map(|time| time * time).sum()
        };
        prop_assert!(squares(&even) <= squares(&cut));
        let limit = slowest(&prefix, &cut);
        for (stage, forward) in (0..even.len() - 1).flat_map(|stage| [(stage, true), (stage, false)]) {
            let mut moved = even.clone();
            moved[stage] = if forward { moved[stage] + 1 } else { moved[stage] - 1 };
            let may_move = holds(&moved) && slowest(&prefix, &moved) <= limit;
            prop_assert!(!may_move || squares(&moved) >= squares(&even), "{:?} -> {:?}", even, moved);
        }
    }
}

#[test]
fn equal_blocks_are_shared_out_evenly() {
    let prefix = prefix_sums(&[10; 82]);
    let cut = balanced(&prefix, 32).unwrap();
    assert_eq!(of_ranks(&prefix, &cut, 4), [220, 200, 200, 200]);
    let even = evened(&prefix, cut, 4, |_, _, _| true);
    assert_eq!(of_ranks(&prefix, &even, 4), [210, 210, 200, 200]);
}

/// All partitions of the chain.
fn cuts(num_blocks: usize, num_stages: usize) -> Vec<Vec<usize>> {
    if num_stages == 1 {
        return if num_blocks > 0 { vec![vec![num_blocks]] } else { Vec::new() };
    }
    let last = num_stages - 1..num_blocks;
    let with_last = |before: usize| {
        cuts(before, num_stages - 1)
            .into_iter()
            .map(move |ends| [&ends[..], &[num_blocks]].concat())
    };
    last.flat_map(with_last).collect()
}

/// Time of the slowest rank, where each has a stage and its mirror image.
fn slowest_of_pairs(prefix: &[Nanos], ends: &[usize]) -> Nanos {
    let num_stages = ends.len();
    let time = |stage: usize| {
        prefix[ends[stage]]
            - stage.checked_sub(1).map_or(Nanos::ZERO, |before| prefix[ends[before]])
    };
    let pairs = (0..num_stages / 2).map(|stage| time(stage) + time(num_stages - 1 - stage));
    pairs.max().unwrap_or_default()
}

/// The best of all partitions, by the slowest rank, then by the slowest stage.
fn best_of_pairs(prefix: &[Nanos], num_stages: usize) -> Option<(Nanos, Nanos)> {
    cuts(prefix.len() - 1, num_stages)
        .into_iter()
        .map(|ends| (slowest_of_pairs(prefix, &ends), slowest(prefix, &ends)))
        .min()
}

proptest! {
    /// With any blocks the partition is complete, and between the best and the one that balances stages alone.
    #[test]
    fn mirrored_chains_are_cut_well(
        times in prop::collection::vec(0u32..30, 1..12), num_pairs in 1usize..4,
    ) {
        let num_stages = 2 * num_pairs;
        let prefix = prefix_sums(&times);
        let Some((least, _)) = best_of_pairs(&prefix, num_stages) else {
            prop_assert_eq!(mirrored(&prefix, num_stages), None);
            return Ok(());
        };
        let ends = mirrored(&prefix, num_stages).unwrap();
        prop_assert_eq!(ends.len(), num_stages);
        prop_assert!(ends.is_sorted_by(|a, b| a < b) && ends[0] > 0, "{ends:?}");
        prop_assert_eq!(ends[num_stages - 1], times.len());
        let found = slowest_of_pairs(&prefix, &ends);
        let by_stages = slowest_of_pairs(&prefix, &balanced(&prefix, num_stages).unwrap());
        prop_assert!((least..=by_stages).contains(&found), "{least}, {found}, {by_stages}");
    }
}

/// Equal layers between an embedding and a head, as in models: every small case.
#[test]
fn mirrored_chains_are_cut_best() {
    for (num_pairs, num_layers) in
        (1..4).flat_map(|pairs| (0..11).map(move |layers| (pairs, layers)))
    {
        for (first, last) in (0..7).flat_map(|first| (0..15).map(move |last| (first, last))) {
            let layers = vec![3; num_layers];
            let prefix = prefix_sums(&[&[first], &layers[..], &[last]].concat());
            let found = mirrored(&prefix, 2 * num_pairs);
            let found =
                found.map(|ends| (slowest_of_pairs(&prefix, &ends), slowest(&prefix, &ends)));
            let best = best_of_pairs(&prefix, 2 * num_pairs);
            assert_eq!(found, best, "{num_pairs} pairs of {first}, {num_layers} x 3, {last}");
        }
    }
}

/// Inner ranks are not left idle because of a slower one: if the slowest of 8 pairs of stages has 5 of 32 layers, none
/// has fewer than 4.
#[test]
fn mirrored_chains_are_evened_out() {
    let layers = [30; 32];
    let prefix = prefix_sums(&[&[1], &layers[..], &[100]].concat());
    let ends = mirrored(&prefix, 16).unwrap();
    let stages: Vec<Nanos> = (0..16)
        .map(|stage| {
            prefix[ends[stage]] - if stage == 0 { Nanos::ZERO } else { prefix[ends[stage - 1]] }
        })
        .collect();
    let ranks: Vec<u64> = (0..8).map(|rank| (stages[rank] + stages[15 - rank]).get()).collect();
    assert_eq!(ranks.iter().max(), Some(&150), "{ranks:?}");
    assert!(ranks.iter().all(|rank| *rank >= 120), "{ranks:?}");
    let halves = (0..8).map(|rank| [stages[rank], stages[15 - rank]].map(Nanos::get));
    let uneven = halves.filter(|[front, back]| front.abs_diff(*back) > 30).count();
    assert!(uneven <= 1, "but for the head's: {stages:?}");
}

/// Bottleneck by an integer program with one count of layers per stage, as equal layers need no variable each.
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
fn bisection_agrees_with_an_integer_program() {
    for (num_layers, num_stages, head) in [(32, 4, 2.5), (80, 8, 3.0), (126, 16, 1.75)] {
        let mut times = vec![1000; num_layers as usize];
        times.push((head * 1000.0) as u32);
        let prefix = prefix_sums(&times);
        let ends = partition(&prefix, num_stages, |_, _, _| true).unwrap();
        let expected = integer_program(1.0, head, num_layers, num_stages);
        assert!((slowest(&prefix, &ends).as_f64() * 1e-3 - expected).abs() < 1e-6);
    }
}

#[test]
fn more_stages_than_blocks_do_not_fit() {
    assert_eq!(partition(&prefix_sums(&[1]), 2, |_, _, _| true), None);
    assert_eq!(partition(&prefix_sums(&[1, 1]), 2, |_, start, end| end - start > 5), None);
}
