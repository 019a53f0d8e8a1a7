//! Contents of ranks' buffers before and after a collective, from the values that the buffers really have.

use std::fmt;

use burn::tensor::backend::Backend;
use executor_communicators::{Communicator, Reduction};
use executor_kernels::array::{Array, Element};
use traces::collectives::{BufferContents, InputChunk, Operation};
use traces::timeline::Stream;

use super::call::GroupOperation;
use super::contents::{Contents, Numbers};
use super::error::CollectiveError;

/// Relative difference below which two numbers are the same: results are in fp32, and pieces differ by at least 1e-3.
const TOLERANCE: f64 = 1e-5;

/// Text of an empty slot.
const EMPTY: &str = ".";

/// The slots of all ranks before and after an operation, as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The operation.
    pub operation: Operation,
    /// Content of each slot of each rank before.
    pub before: Vec<Vec<String>>,
    /// Content of each slot of each rank after.
    pub after: Vec<Vec<String>>,
}

/// Runs an operation on one number per slot among all ranks, and returns the contents of slots. Only rank 0 gets them.
///
/// # Errors
///
/// [`CollectiveError::Wrong`] where ranks ended with wrong results.
pub fn show<B: Backend>(
    communicator: &dyn Communicator<B>,
    operation: Operation,
    reduction: Reduction,
    device: &B::Device,
) -> Result<Option<Shown>, CollectiveError> {
    let world = communicator.world();
    let position = communicator.rank();
    let contents = Contents::new(operation, communicator.num_ranks(), reduction, Numbers::Telling);
    let given = contents.given::<B>(position, 1, Element::F32, device);
    let call = GroupOperation { communicator, group: &world, operation, reduction };
    let had = slots(&contents.before, position, given.as_ref());
    let result = call.run(given)?;
    let has = slots(&contents.after, position, result.as_ref());
    let tell = |slots: Vec<f64>| {
        let array = Array::from_f64(slots, &[contents.num_slots() as usize], Element::F32, device);
        communicator.on(&world, Stream::Host).gather(0, array)
    };
    let (Some(had), Some(has)) = (tell(had)?, tell(has)?) else { return Ok(None) };
    let [had, has] =
        [had, has].map(|ranks| ranks.iter().map(Array::to_f64).collect::<Vec<Vec<f64>>>());
    check(&contents, &has)?;
    let named = |ranks: &[Vec<f64>], sums: bool| {
        let rank = |slots: &Vec<f64>| slots.iter().map(|it| name(&contents, *it, sums)).collect();
        ranks.iter().map(rank).collect()
    };
    Ok(Some(Shown {
        operation,
        before: named(&had, false),
        after: named(&has, operation.is_reduction()),
    }))
}

/// The numbers in a rank's slots, whose array has only the filled ones; NaN in empty slots.
fn slots<B: Backend>(
    contents: &BufferContents,
    position: u32,
    array: Option<&Array<B>>,
) -> Vec<f64> {
    let values = array.map_or_else(Vec::new, Array::to_f64);
    let mut values = values.into_iter();
    let slot = |slot| {
        if contents.slot(position, slot).is_empty() { None } else { values.next() }
    };
    (0..contents.num_slots()).map(slot).map(|value| value.unwrap_or(f64::NAN)).collect()
}

/// Compares the ranks' contents with the expected ones.
fn check(contents: &Contents, ranks: &[Vec<f64>]) -> Result<(), CollectiveError> {
    let mut first = None;
    let mut num_wrong = 0;
    for (rank, slots) in (0..).zip(ranks) {
        for (slot, found) in (0..).zip(slots) {
            let pieces = contents.after.slot(rank, slot);
            let expected = contents.number(pieces, 0).unwrap_or(f64::NAN);
            if !is_same(*found, expected) {
                num_wrong += 1;
                first = first.or(Some((rank, slot, *found, expected)));
            }
        }
    }
    let Some((rank, slot, found, expected)) = first else { return Ok(()) };
    Err(CollectiveError::Wrong {
        operation: contents.operation,
        num_ranks: contents.num_ranks(),
        num_wrong,
        num_slots: ranks.iter().map(Vec::len).sum(),
        rank,
        slot,
        found: name(contents, found, true),
        expected: name(contents, expected, true),
    })
}

fn is_same(found: f64, expected: f64) -> bool {
    if expected.is_nan() {
        return found.is_nan();
    }
    (found - expected).abs() <= TOLERANCE * expected.abs()
}

/// Name of the piece with this value, or of the reduction of all ranks' pieces of a chunk; else the number. `sums` says
/// which name is taken where both fit, as for a maximum.
fn name(contents: &Contents, value: f64, sums: bool) -> String {
    if value.is_nan() {
        return EMPTY.to_owned();
    }
    let n = contents.num_ranks();
    let chunks = 0..contents.num_slots();
    let pieces =
        (0..n).flat_map(|rank| chunks.clone().map(move |chunk| InputChunk { rank, chunk }));
    let piece = pieces
        .map(|piece| (piece.to_string(), contents.number(&[piece].into(), 0)))
        .find(|(_, number)| number.is_some_and(|number| is_same(value, number)));
    let symbol = match contents.reduction {
        Reduction::Sum => "Σ",
        Reduction::Product => "Π",
        Reduction::Max => "max ",
        Reduction::Min => "min ",
    };
    let of_all = chunks.clone().map(|chunk| {
        let pieces = (0..n).map(|rank| InputChunk { rank, chunk }).collect();
        (format!("{symbol}{chunk}"), contents.number(&pieces, 0))
    });
    let mut of_all = of_all.filter(|(_, number)| number.is_some_and(|it| is_same(value, it)));
    let found = if sums { of_all.next().or(piece) } else { piece };
    found.map_or_else(|| format!("{value:.4}"), |(name, _)| name)
}

/// A line for each slot, a column for each rank; on the left before, on the right after.
impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, after, .. } = self;
        let labels = before.iter().chain(after).flatten();
        let ranks = before.len();
        let longest = labels.map(|label| label.chars().count()).max().unwrap_or(1);
        let width = longest.max(ranks.saturating_sub(1).to_string().len());
        let side = ranks * (width + 2) - 2;
        let line = |cells: Vec<&str>| {
            cells.iter().map(|it| format!("{it:<width$}")).collect::<Vec<_>>().join("  ")
        };
        let names: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
        let heading = line(names.iter().map(String::as_str).collect());
        writeln!(f, "          {:<side$}     after", "before")?;
        writeln!(f, "  rank    {heading}     {}", heading.trim_end())?;
        for slot in 0..before.first().map_or(0, Vec::len) {
            let row =
                |side: &[Vec<String>]| line(side.iter().map(|it| it[slot].as_str()).collect());
            writeln!(f, "          {}     {}", row(before), row(after).trim_end())?;
        }
        Ok(())
    }
}
