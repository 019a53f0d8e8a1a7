//! Training data: every window once an epoch, the same for everyone, and what is refused.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::fs::{self, File};
use std::path::PathBuf;

use executor_runtime::data::{DataError, Samples, Sampling, SyntheticSamples, TokenFormat, Tokens};
use proptest::prelude::*;
use tempfile::TempDir;

/// A file of a name and contents, in a directory of its own that goes with the first value.
fn file(name: &str, contents: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, contents).unwrap();
    (directory, path)
}

/// Tokens 0, 1, 2, .. in a file.
fn counting(num_tokens: u32) -> Tokens {
    let bytes: Vec<u8> = (0..num_tokens).flat_map(u32::to_le_bytes).collect();
    let (_directory, path) = file("counting.u32", &bytes);
    Tokens::open(&path).unwrap()
}

fn samples(tokens: Tokens, sequence_length: u64, seed: u64) -> Samples {
    Samples::new(tokens, Sampling { sequence_length, vocab_size: 1 << 32, seed }).unwrap()
}

/// The order of the windows in an epoch, where tokens count from 0.
fn order(samples: &Samples, epoch: u64, sequence_length: u64) -> Vec<u64> {
    let first = epoch * samples.num_windows();
    (first..first + samples.num_windows())
        .map(|index| u64::from(samples.window(index).unwrap()[0]) / (sequence_length + 1))
        .collect()
}

proptest! {
    #[test]
    fn an_epoch_has_every_window_once(
        num_windows in 1u32..300, left_over in 0u32..8, sequence_length in 8u32..12,
        seed: u64, epoch in 0u64..1_000_000,
    ) {
        let num_tokens = num_windows * (sequence_length + 1) + left_over;
        let samples = samples(counting(num_tokens), u64::from(sequence_length), seed);
        prop_assert_eq!(samples.num_windows(), u64::from(num_windows));

        let first = epoch * samples.num_windows();
        let windows = (first..first + samples.num_windows()).map(|index| samples.window(index).unwrap());
        let mut starts = BTreeSet::new();
        for window in windows {
            let start = window[0];
            prop_assert_eq!(start % (sequence_length + 1), 0);
            prop_assert_eq!(&window, &(start..=start + sequence_length).collect::<Vec<_>>());
            prop_assert!(starts.insert(start));
        }
        prop_assert_eq!(starts.len(), num_windows as usize);
    }

    #[test]
    fn each_layout_sees_the_same_samples(
        num_windows in 1u32..50, seed: u64, num_steps in 1u64..10,
        (global_batch_size, data_parallel, micro_batch_size) in
            (1u64..4, 1u64..4, 1u64..4).prop_map(|(m, d, b)| (m * d * b, d, b)),
    ) {
        let read = || samples(counting(num_windows * 5), 4, seed);
        let alone = read();
        let ranks: Vec<Samples> = (0..data_parallel).map(|_| read()).collect();
        for step in 0..num_steps {
            let first = step * global_batch_size;
            let batch: Vec<_> =
                (first..first + global_batch_size).map(|index| alone.window(index).unwrap()).collect();
            let mut sharded = Vec::new();
            for (rank, samples) in (0..).zip(&ranks) {
                let shard = global_batch_size / data_parallel;
                let indices: Vec<_> = (first + rank * shard..first + (rank + 1) * shard).collect();
                for micro_batch in indices.chunks(micro_batch_size as usize) {
                    sharded.extend(micro_batch.iter().map(|&index| samples.window(index).unwrap()));
                }
            }
            prop_assert_eq!(sharded, batch);
        }
    }

    #[test]
    fn made_up_vectors_depend_on_seed_and_sample_alone(
        seed: u64, index: u64, len in 1usize..100,
    ) {
        let samples = SyntheticSamples { seed };
        let input = samples.input(index, len);
        prop_assert_eq!(&samples.input(index, len + 7)[..len], &input);
        prop_assert_ne!(&samples.input(index.wrapping_add(1), len), &input);
        prop_assert_ne!(&samples.target(index, len), &input);
        let other = SyntheticSamples { seed: seed.wrapping_add(1) };
        prop_assert_ne!(&other.input(index, len), &input);
    }
}

/// A run that goes on with a later version trains on what it would have.
#[test]
fn the_order_stays_what_it_is() {
    let samples = samples(counting(60), 4, 17);
    assert_eq!(order(&samples, 0, 4), [6, 4, 8, 10, 7, 5, 3, 0, 2, 1, 9, 11]);
}

#[test]
fn epochs_and_seeds_have_their_own_order() {
    let of_seed = |seed| samples(counting(500), 4, seed);
    let orders: BTreeSet<_> = (0..20)
        .flat_map(|seed| (0..20).map(move |epoch| (seed, epoch)))
        .map(|(seed, epoch)| order(&of_seed(seed), epoch, 4))
        .collect();
    assert_eq!(orders.len(), 400);
}

/// Of 12,000 epochs, each window stands at each place in a twelfth; 200 are six standard deviations.
#[test]
fn every_window_is_as_likely_at_every_place() {
    let samples = samples(counting(60), 4, 1);
    let mut counts = [[0u32; 12]; 12];
    for epoch in 0..12_000 {
        for (place, window) in order(&samples, epoch, 4).into_iter().enumerate() {
            counts[place][window as usize] += 1;
        }
    }
    for count in counts.into_iter().flatten() {
        assert!((800..1200).contains(&count), "{count}");
    }
}

/// The file has holes instead of contents, and 2^32 tokens.
#[test]
fn a_file_may_be_large() {
    let (_directory, path) = file("large.u16", b"");
    File::options().write(true).open(&path).unwrap().set_len(1 << 33).unwrap();
    let samples = samples(Tokens::open(&path).unwrap(), 1023, 0);
    assert_eq!(samples.num_windows(), 1 << 22);
    assert_eq!(samples.window(u64::MAX).unwrap(), [0; 1024]);
}

#[test]
fn formats_are_told_by_extension() {
    for (name, contents, ids) in [
        ("a.txt", "Aé".as_bytes(), &[0x41, 0xc3, 0xa9][..]),
        ("a.md", b"# A", &[0x23, 0x20, 0x41]),
        ("a.u16", &[1, 2, 3, 4], &[0x0201, 0x0403]),
        ("a.bin", &[1, 2, 3, 4], &[0x0201, 0x0403]),
        ("a.u32", &[1, 2, 3, 4, 5, 6, 7, 8], &[0x0403_0201, 0x0807_0605]),
    ] {
        let (_directory, path) = file(name, contents);
        let all = samples(Tokens::open(&path).unwrap(), ids.len() as u64 - 1, 0);
        assert_eq!(all.window(0).unwrap(), ids, "{name}");
    }
    let (_directory, path) = file("tokens", &[1, 2]);
    assert_eq!(Tokens::open_as(&path, TokenFormat::U16).unwrap().num_tokens(), 1);
}

#[test]
fn a_book_is_built_in() {
    let tokens = Tokens::built_in();
    assert_eq!(tokens.num_tokens(), 148_476);
    let samples = samples(tokens, 148_475, 0);
    let ids = samples.window(0).unwrap();
    let text = String::from_utf8(ids.into_iter().map(|id| u8::try_from(id).unwrap()).collect());
    assert!(
        text.unwrap().contains("Alice was beginning to get very tired of sitting by her sister")
    );
}

#[test]
fn what_cannot_be_trained_on_is_refused() {
    check(
        "a.json",
        b"[1]",
        Err("`a.json`: its extension does not tell what it holds
hint: name it `.txt` for text, `.u16` or `.u32` for token ids of 2 or 4 bytes, little endian"),
    );
    check("a.txt", b"", Err("`a.txt` is empty"));
    check("a.u16", b"", Err("`a.u16` is empty"));
    check(
        "a.txt",
        b"abc\xffdef",
        Err("`a.txt` is not UTF-8 text: byte 3 does not belong there
hint: token ids go into a file named `.u16` or `.u32`"),
    );
    check(
        "a.u16",
        &[0; 7],
        Err("`a.u16` has 7 bytes, which are no whole number of token ids of 2 bytes
hint: 6 bytes would be"),
    );
    check(
        "a.u32",
        &[0; 3],
        Err("`a.u32` has 3 bytes, which are no whole number of token ids of 4 bytes
hint: use more data"),
    );
    check(
        "a.txt",
        b"abcd",
        Err("`a.txt` ends after 4 of the 5 tokens that a sample of sequence length 4 takes
hint: sequence length 3 fits"),
    );
    check(
        "a.u16",
        &[0; 2],
        Err("`a.u16` ends after 1 of the 5 tokens that a sample of sequence length 4 takes
hint: use more data"),
    );
    check(
        "a.u16",
        &[0, 0, 1, 0, 2, 0, 0, 1, 4, 0],
        Err("`a.u16`: token 3 has id 256, but the model's vocabulary ends at 255
hint: `vocab_size` must be above the largest id; text is read as bytes and takes 256"),
    );
    check("a.u16", &[0, 0, 1, 0, 2, 0, 255, 0, 4, 0], Ok(&[0, 1, 2, 255, 4]));
}

#[test]
fn what_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = Tokens::open(&directory.path().join("missing.txt")).unwrap_err();
    assert!(missing.to_string().contains("missing.txt"), "{missing}");
    assert!(missing.source().is_some());
    let folder = Tokens::open_as(directory.path(), TokenFormat::Text).unwrap_err();
    assert!(matches!(folder, DataError::NotAFile { .. }), "{folder}");
}

/// The mean and variance of 100,000 values; bounds are five standard deviations of these.
#[test]
fn made_up_values_are_normal() {
    let samples = SyntheticSamples { seed: 3 };
    let values: Vec<f64> = (0..1000).flat_map(|index| samples.input(index, 100)).collect();
    let average = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let squares: Vec<f64> = values.iter().map(|value| value.powi(2)).collect();
    assert!(average(&values).abs() < 0.016);
    assert!((average(&squares) - 1.0).abs() < 0.023);
}

/// Of 10,000 samples, each class has a tenth; 180 are six standard deviations.
#[test]
fn classes_are_equally_likely() {
    let samples = SyntheticSamples { seed: 0 };
    let mut counts = [0u32; 10];
    for index in 0..10_000 {
        counts[samples.class(index, 10) as usize] += 1;
    }
    for count in counts {
        assert!((820..1180).contains(&count), "{count}");
    }
}

/// What comes of a file of a name and contents at sequence length 4 and a vocabulary of 256: the ids
/// of its first sample, or the message.
fn check(name: &str, contents: &[u8], expected: Result<&[u32], &str>) {
    let (directory, path) = file(name, contents);
    let sampling = Sampling { sequence_length: 4, vocab_size: 256, seed: 0 };
    let window = Tokens::open(&path)
        .and_then(|tokens| Samples::new(tokens, sampling))
        .and_then(|samples| samples.window(0));
    let folder = format!("{}/", directory.path().display());
    let window = window.map_err(|error| error.to_string().replace(&folder, ""));
    assert_eq!(window.as_deref(), expected.map_err(str::to_owned).as_ref().copied());
}
