//! Rows of a table by index.

use executor_kernels::ops::embedding;
use proptest::prelude::*;

use super::{Traced, assert_close, check, random, random_indices};

proptest! {
    #[test]
    fn rows_are_taken_and_their_gradients_add_up(
        (entries, width, count) in (1usize..6, 1usize..4, 1usize..12), seed: u16,
    ) {
        let table = random(&[entries, width], seed.into());
        let ids = random_indices(count, entries as u32, seed.into());
        let rows = embedding::forward(table.clone(), &ids, 0);
        let one_by_one = |[table]: [Traced; 1]| {
            let row = |id: &u32| table.narrow(0, *id as usize..*id as usize + 1);
            Traced::concat(ids.iter().map(row).collect(), 0)
        };
        check([&table], one_by_one, &rows, |grad| {
            [embedding::weight_grad(&ids, 0, entries, grad)]
        });
    }

    #[test]
    fn shards_of_the_table_add_up_to_the_whole(
        (entries, width, count) in (2usize..8, 1usize..4, 1usize..12), cut in 1usize..7, seed: u16,
    ) {
        let cut = cut.min(entries - 1);
        let table = random(&[entries, width], seed.into());
        let grad = random(&[count, width], u64::from(seed) + 1);
        let ids = random_indices(count, entries as u32, seed.into());
        let shards = table.split(0, &[cut, entries - cut]);
        let first = embedding::forward(shards[0].clone(), &ids, 0);
        let second = embedding::forward(shards[1].clone(), &ids, cut);
        assert_close(&(first + second), &embedding::forward(table, &ids, 0), 0.0);
        let whole = embedding::weight_grad(&ids, 0, entries, grad.clone());
        let parts = whole.split(0, &[cut, entries - cut]);
        assert_close(&embedding::weight_grad(&ids, 0, cut, grad.clone()), &parts[0], 0.0);
        assert_close(&embedding::weight_grad(&ids, cut, entries - cut, grad), &parts[1], 0.0);
    }
}
