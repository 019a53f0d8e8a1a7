//! Collectives: rings come to what the definitions say, at the textbook's cost.

use ir::collective::Collective;
use traces::collectives::{BufferContents, Operation, Ring, draw, draw_ring};
use traces::palette::Theme;
use traces::{DrawError, ImageFormat, Paper};

use crate::drawing::{Bitmap, Drawing};

const PAPER: Paper = Paper { width: 1200, theme: Theme::Light, pixel_ratio: 1 };

fn svg(operation: Operation, num_ranks: u32, paper: &Paper) -> Result<String, DrawError> {
    draw(operation, num_ranks, paper)?.svg()
}

fn ring_svg(ring: Ring, num_ranks: u32, paper: &Paper) -> Result<String, DrawError> {
    draw_ring(ring, num_ranks, paper)?.svg()
}

#[test]
fn rings_end_as_the_definition_says() {
    for ring in Ring::ALL {
        for n in 2..=8 {
            let steps = ring.steps(n);
            let end = &steps.last().unwrap().contents;
            assert_eq!(*end, ring.operation().after(n), "{ring} of {n}");
        }
        assert!(ring.steps(1).is_empty());
    }
}

/// Thakur et al. 2005: `n - 1` chunks for each rank, twice as many for an all-reduce.
#[test]
fn every_rank_sends_what_the_textbook_says() {
    for n in 2..=8_u32 {
        for (ring, chunks) in
            [(Ring::AllGather, n - 1), (Ring::ReduceScatter, n - 1), (Ring::AllReduce, 2 * (n - 1))]
        {
            let steps = ring.steps(n);
            assert_eq!(steps.len() as u32, chunks);
            for rank in 0..n {
                let sends = steps.iter().flat_map(|step| &step.sends);
                let sent: Vec<_> = sends.filter(|send| send.from == rank).collect();
                assert_eq!(sent.len() as u32, chunks, "{ring}, rank {rank} of {n}");
                assert!(sent.iter().all(|send| send.to == (rank + 1) % n));
            }
        }
    }
}

/// A line for each slot, a column for each rank.
fn text(contents: &BufferContents) -> String {
    let label = |rank, slot| match contents.label(rank, slot) {
        empty if empty.is_empty() => "-".to_owned(),
        label => label,
    };
    let line = |slot| {
        let labels = (0..contents.num_ranks()).map(|rank| label(rank, slot));
        labels.collect::<Vec<_>>().join(" | ") + "\n"
    };
    (0..contents.num_slots()).map(line).collect()
}

#[track_caller]
fn check(operation: Operation, expected: &str) {
    let text = format!("{}to\n{}", text(&operation.before(3)), text(&operation.after(3)));
    assert_eq!(text, expected.trim_start(), "{operation}");
}

#[test]
fn the_definitions() {
    check(
        Operation::Collective(Collective::AllReduce),
        "
a0 | b0 | c0
a1 | b1 | c1
a2 | b2 | c2
to
Σ0 | Σ0 | Σ0
Σ1 | Σ1 | Σ1
Σ2 | Σ2 | Σ2
",
    );
    check(
        Operation::Collective(Collective::AllGather),
        "
a0 | - | -
- | b0 | -
- | - | c0
to
a0 | a0 | a0
b0 | b0 | b0
c0 | c0 | c0
",
    );
    check(
        Operation::Collective(Collective::ReduceScatter),
        "
a0 | b0 | c0
a1 | b1 | c1
a2 | b2 | c2
to
Σ0 | - | -
- | Σ1 | -
- | - | Σ2
",
    );
    check(
        Operation::Collective(Collective::AllToAll),
        "
a0 | b0 | c0
a1 | b1 | c1
a2 | b2 | c2
to
a0 | a1 | a2
b0 | b1 | b2
c0 | c1 | c2
",
    );
    check(Operation::Collective(Collective::Broadcast), "a0 | - | -\nto\na0 | a0 | a0\n");
    check(Operation::Collective(Collective::SendReceive), "a0 | b0 | c0\nto\nc0 | a0 | b0\n");
    check(
        Operation::Scatter,
        "
a0 | - | -
a1 | - | -
a2 | - | -
to
a0 | - | -
- | a1 | -
- | - | a2
",
    );
    check(
        Operation::Gather,
        "
a0 | - | -
- | b0 | -
- | - | c0
to
a0 | - | -
b0 | - | -
c0 | - | -
",
    );
    check(
        Operation::Reduce,
        "
a0 | b0 | c0
a1 | b1 | c1
a2 | b2 | c2
to
Σ0 | - | -
Σ1 | - | -
Σ2 | - | -
",
    );
}

/// A reduce-scatter of three, step by step.
#[test]
fn sums_grow_round_the_ring() {
    let states: Vec<String> =
        Ring::ReduceScatter.steps(3).iter().map(|step| text(&step.contents)).collect();
    assert_eq!(
        states,
        [
            "a0 | - | b0+c0\na1+c1 | b1 | -\n- | a2+b2 | c2\n",
            "Σ0 | - | -\n- | Σ1 | -\n- | - | Σ2\n",
        ]
    );
}

#[test]
fn every_operation_is_drawn() {
    for operation in Operation::ALL {
        for n in [1, 2, 4, 8] {
            let drawing = Drawing::parse(&svg(operation, n, &PAPER).unwrap());
            drawing.says(&operation.to_string());
            drawing.says("before");
            drawing.says("after");
            drawing.says(&format!("rank {}", n - 1));
            let picture = draw(operation, n, &PAPER).unwrap();
            let bitmap = Bitmap::decode(&picture.file(ImageFormat::Png).unwrap());
            assert!((f64::from(bitmap.height) - drawing.height).abs() < 0.5);
        }
    }
}

#[test]
fn every_step_of_a_ring_is_drawn() {
    for ring in Ring::ALL {
        for theme in Theme::ALL {
            let paper = Paper { theme, ..PAPER };
            let document = ring_svg(ring, 4, &paper).unwrap();
            let drawing = Drawing::parse(&document);
            drawing.says("start");
            let num_steps = ring.steps(4).len();
            drawing.says(&format!("after step {num_steps}"));
            drawing.says(&format!("each rank sends {num_steps} chunks"));
            // Four arrows a step, one of them in two parts.
            assert_eq!(document.matches("<polygon").count(), num_steps * 5);
            let picture = draw_ring(ring, 4, &paper).unwrap();
            let bitmap = Bitmap::decode(&picture.file(ImageFormat::Png).unwrap());
            assert_eq!(bitmap.at(0, 0), theme.background());
            assert!(bitmap.colors().contains(&theme.series(3)));
        }
    }
}

#[test]
fn too_many_ranks_for_the_paper_are_an_error_that_says_what_would_do() {
    let narrow = Paper { width: 300, ..PAPER };
    let error = ring_svg(Ring::AllReduce, 8, &narrow).unwrap_err();
    let DrawError::TooSmall { what: "width", least, .. } = error else {
        panic!("{error}");
    };
    ring_svg(Ring::AllReduce, 8, &Paper { width: least, ..PAPER }).unwrap();
    // Long before what they hold is worked out, which for so many is beyond any memory.
    for many in [128, 1_000_000_000, u32::MAX] {
        let error = ring_svg(Ring::AllReduce, many, &PAPER).unwrap_err();
        assert!(matches!(error, DrawError::TooSmall { what: "width", .. }), "{error}");
        for operation in Operation::ALL {
            let error = svg(operation, many, &PAPER).unwrap_err();
            assert!(matches!(error, DrawError::TooSmall { what: "width", .. }), "{error}");
        }
    }
}
