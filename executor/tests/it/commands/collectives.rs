//! `executor collectives`.

use serde_json::Value;

use super::RunFolder;

/// A few calls of small buffers, so that a test is fast.
const QUICK: &str = "--min-bytes 96 --max-bytes 6K --factor 8 --iterations 2 --warm-up 1";

#[test]
fn tables_are_those_of_nccl_tests() {
    let run = RunFolder::new().run(&format!("collectives all-reduce gather --ranks 3 {QUICK}"));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    for line in [
        "# 3 ranks (threads, CPU)",
        "# all-reduce: who holds what",
        "          a1  b1  c1     Σ1  Σ1  Σ1",
        "          .   b0  .      b0  .   .",
        "# all-reduce, 3 ranks",
        "#       size         count      type   redop    root      time    algbw    busbw  #wrong         sent",
    ] {
        assert!(run.stdout.lines().any(|it| it == line), "no `{line}` in {}", run.stdout);
    }
    let rows: Vec<Vec<&str>> = run
        .stdout
        .lines()
        .filter(|line| line.ends_with(char::is_numeric) && !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|row| row.len() == 10)
        .collect();
    let fixed: Vec<String> =
        rows.iter().map(|row| [&row[..5], &row[8..]].concat().join(" ")).collect();
    assert_eq!(
        fixed,
        [
            "96 24 float sum -1 0 128",
            "768 192 float sum -1 0 1024",
            "6144 1536 float sum -1 0 8192",
            "96 8 float none 0 0 32",
            "768 64 float none 0 0 256",
            "6144 512 float none 0 0 2048",
        ],
        "{}",
        run.stdout
    );
}

#[test]
fn json_has_what_the_table_has() {
    for (reduction, redop) in [("sum", "sum"), ("product", "prod"), ("max", "max"), ("min", "min")]
    {
        let args = format!("collectives --ranks 2 --reduction {reduction} --format json {QUICK}");
        let report = RunFolder::new().run(&args).lines().remove(0);
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 9 * 3, "{args}");
        for row in rows {
            let name = &row["operation"];
            assert_eq!(row["num_wrong"], 0, "{row}");
            assert_eq!(row["sent_bytes_by_rank"], row["planned_bytes_by_rank"], "{row}");
            let is_reduction =
                ["all-reduce", "reduce-scatter", "reduce"].iter().any(|known| name == known);
            assert_eq!(row["redop"], if is_reduction { redop } else { "none" }, "{row}");
            let number = |key: &str| row[key].as_f64().unwrap();
            let bandwidth = number("size_bytes") / number("time_seconds");
            assert!((bandwidth / number("algbw_bytes_per_second") - 1.0).abs() < 1e-9, "{row}");
            let bus = bandwidth * number("bus_factor");
            assert!((bus / number("busbw_bytes_per_second") - 1.0).abs() < 1e-9, "{row}");
            assert!(number("least_seconds") <= number("time_seconds"), "{row}");
        }
        assert_eq!(report["who_holds_what"].as_array().unwrap().len(), 9);
    }
}

#[test]
fn what_cannot_be_measured_is_said_at_once() {
    let place = RunFolder::new();
    let without_nccl: &[&str] = if cfg!(feature = "cuda") {
        &["between GPUs alone", "--backend cuda"]
    } else {
        &["without NCCL", "--features cuda"]
    };
    for (args, words) in [
        ("--ranks 0", &["--ranks", "from 1 to 256"][..]),
        ("--ranks 1", &["one rank sends nothing", "--ranks 2"]),
        ("--ranks -4", &["--ranks", "from 1 to 256"]),
        ("--ranks 2 --threads-per-rank 0", &["--threads-per-rank", "from 1 to"]),
        ("--min-bytes 4M --max-bytes 1K", &["4194304", "above `--max-bytes` 1024"]),
        ("--min-bytes 0", &["from 1 to"]),
        ("--max-bytes 1T", &["such as 1024, 64K, 4MiB or 1G"]),
        ("--factor 1", &["--factor", "at least 2"]),
        ("--iterations 0", &["--iterations"]),
        ("--reduction mean", &["mean", "sum, product, max, min"]),
        ("all-reduced", &["no such collective", "all-to-all"]),
        ("--communicator nccl", without_nccl),
    ] {
        place.refuses(&format!("collectives {args}"), words);
    }
}

impl RunFolder {
    /// The command ends with an error that has `words` in it, and leaves all files as they were.
    pub(super) fn refuses(&self, args: &str, words: &[&str]) {
        let before = self.listing();
        let run = self.run(args);
        assert_eq!(run.code, Some(2), "{args}: {run:?}");
        assert!(run.stderr.starts_with("error: "), "{args}: {run:?}");
        assert!(!run.stderr.contains("panicked"), "{args}: {run:?}");
        for word in words {
            assert!(run.stderr.contains(word), "{args} does not say `{word}`: {}", run.stderr);
        }
        assert_eq!(self.listing(), before, "{args} left something behind");
    }
}

/// A report is one line.
#[test]
fn reports_can_be_piped() {
    let run = RunFolder::new().run(&format!("collectives broadcast --format json {QUICK}"));
    let lines: Vec<Value> = run.lines();
    assert_eq!((lines.len(), lines[0]["num_ranks"].as_u64()), (1, Some(2)));
}
