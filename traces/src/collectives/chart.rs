//! States of a collective, next to each other: a column for each rank, a cell for each slot.

use std::collections::BTreeSet;

use super::contents::BufferContents;
use super::operation::Operation;
use super::ring::{Ring, Send};
use crate::canvas::{Align, Area, DrawError, Drawing, Paper, TextStyle, text_width};
use crate::palette::Theme;

const MARGIN: f64 = 18.0;
const TITLE: f64 = 15.0;
const TITLE_LINE: f64 = 21.0;
const SUBTITLE: f64 = 11.5;
const SUBTITLE_LINE: f64 = 17.0;
const BELOW_HEADING: f64 = 14.0;
/// Sizes of the heading of a state, and of the names of its ranks.
const STATE: f64 = 11.5;
const STATE_LINE: f64 = 20.0;
const RANK: f64 = 9.5;
const RANK_LINE: f64 = 15.0;
const CELL_HEIGHT: f64 = 22.0;
const BETWEEN_SLOTS: f64 = 2.0;
const LABEL: f64 = 10.0;
const BESIDE_LABEL: f64 = 8.0;
/// Gaps between ranks; arrows need more.
const BETWEEN_RANKS: f64 = 5.0;
const ARROW: f64 = 18.0;
const ARROW_HEAD: f64 = 5.0;
const BETWEEN_STATES: f64 = 44.0;
const BELOW_STATE: f64 = 18.0;

/// Least width of a cell.
const LEAST_CELL_WIDTH: f64 = 30.0;

/// Number of ranks up to which states are computed before the width is checked.
const FEW_RANKS: u32 = 32;

/// Draws the buffers of `num_ranks` ranks before and after the operation.
///
/// # Errors
///
/// If the picture is too small for so many ranks.
pub fn draw(operation: Operation, num_ranks: u32, paper: &Paper) -> Result<Drawing, DrawError> {
    check_room(num_ranks, false, paper)?;
    let states = [
        State::new("before", operation.before(num_ranks)),
        State::new("after", operation.after(num_ranks)),
    ];
    draw_states(&operation.to_string(), &ranks(num_ranks), operation, &states, paper)
}

/// Draws every step of a ring algorithm on `num_ranks` ranks. Arrows are the next sends.
///
/// # Errors
///
/// If the picture is too small for so many ranks.
pub fn draw_ring(ring: Ring, num_ranks: u32, paper: &Paper) -> Result<Drawing, DrawError> {
    check_room(num_ranks, true, paper)?;
    let steps = ring.steps(num_ranks);
    let subtitle = format!(
        "{}  ·  {num_steps} steps  ·  each rank sends {num_steps} chunks of 1/{num_ranks} of the buffer",
        ranks(num_ranks),
        num_steps = steps.len(),
    );
    let mut states = vec![State::new("start", ring.operation().before(num_ranks))];
    for (step, number) in steps.into_iter().zip(1..) {
        let received = step.sends.iter().map(|send| (send.to, send.slot)).collect();
        if let Some(before) = states.last_mut() {
            before.sends = step.sends;
        }
        let part = match ring {
            Ring::AllReduce => format!(" ({})", step.part),
            Ring::AllGather | Ring::ReduceScatter => String::new(),
        };
        let heading = format!("after step {number}{part}");
        states.push(State { received, ..State::new(&heading, step.contents) });
    }
    draw_states(&ring.to_string(), &subtitle, ring.operation(), &states, paper)
}

/// Buffers of all ranks between two steps.
struct State {
    heading: String,
    contents: BufferContents,
    /// Chunks that are sent in the next step.
    sends: Vec<Send>,
    /// Rank and slot of chunks received in the step before.
    received: BTreeSet<(u32, u32)>,
}

impl State {
    fn new(heading: &str, contents: BufferContents) -> Self {
        let (sends, received) = (Vec::new(), BTreeSet::new());
        Self { heading: heading.to_owned(), contents, sends, received }
    }
}

/// Draws the states in rows. A row has as many states as fit the paper, with cells as wide as the labels need.
fn draw_states(
    title: &str,
    subtitle: &str,
    operation: Operation,
    states: &[State],
    paper: &Paper,
) -> Result<Drawing, DrawError> {
    let first = &states[0].contents;
    let has_arrows = states.iter().any(|state| !state.sends.is_empty());
    let has_sums = states.iter().any(|State { contents, .. }| {
        contents.cells().any(|(rank, slot)| contents.slot(rank, slot).len() > 1)
    });
    let remarks = remarks(has_sums, has_arrows);

    let labels = states.iter().flat_map(|State { contents, .. }| {
        contents.cells().map(|(rank, slot)| contents.label(rank, slot))
    });
    let widths = labels.map(|label| text_width(&label, LABEL) + BESIDE_LABEL);
    let name = text_width(&rank_name(first.num_ranks().saturating_sub(1)), RANK) + 4.0;
    let cell_width = widths.fold(name.max(LEAST_CELL_WIDTH), f64::max).ceil();
    let grid = Grid { num_ranks: first.num_ranks(), cell_width, has_arrows };
    let headings = states.iter().map(|state| text_width(&state.heading, STATE) + grid.stub());
    let pitch = headings.fold(grid.width(), f64::max) + BETWEEN_STATES;
    let texts = remarks.iter().map(|text| &**text).chain([subtitle]);
    let texts = texts.map(|text| text_width(text, SUBTITLE)).fold(0.0, f64::max);
    let least = (pitch - BETWEEN_STATES).max(texts);
    DrawError::check_side("width", paper.width, least + 2.0 * MARGIN)?;
    let room = f64::from(paper.width) - 2.0 * MARGIN;
    let columns = ((room + BETWEEN_STATES) / pitch).floor().max(1.0).min(states.len() as f64);
    let width = (columns * pitch - BETWEEN_STATES).max(texts) + 2.0 * MARGIN;
    let columns = columns as usize;

    let top = MARGIN + TITLE_LINE + SUBTITLE_LINE + BELOW_HEADING;
    let slots = f64::from(first.num_slots()) * (CELL_HEIGHT + BETWEEN_SLOTS);
    let state_height = STATE_LINE + RANK_LINE + slots + BELOW_STATE;
    let below = remarks.len() as f64 * SUBTITLE_LINE + MARGIN;
    let height = (top + states.len().div_ceil(columns) as f64 * state_height + below).ceil();
    let mut drawing = Drawing::new(format!("{title}\n{subtitle}"), width, height, *paper)?;
    let theme = paper.theme;
    let mut write = |content: &str, baseline, size, color| {
        drawing.text(content, (MARGIN, baseline), TextStyle { size, align: Align::Left, color });
    };
    let baseline = MARGIN - 7.0 + TITLE_LINE;
    write(title, baseline, TITLE, theme.text());
    write(subtitle, baseline + SUBTITLE_LINE + 2.0, SUBTITLE, theme.muted_text());
    for (remark, line) in remarks.into_iter().rev().zip(0_u8..) {
        let baseline = height - MARGIN - f64::from(line) * SUBTITLE_LINE;
        write(remark, baseline, SUBTITLE - 1.0, theme.muted_text());
    }
    let colors = Colors { operation, has_sums, theme };
    for (index, state) in states.iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        let left = MARGIN + column as f64 * pitch;
        let top = top + row as f64 * state_height;
        draw_state(&mut drawing, state, grid, (left, top), colors);
    }
    Ok(drawing)
}

/// Explanations of letters, frames and shades, one per line.
fn remarks(has_sums: bool, has_arrows: bool) -> Vec<&'static str> {
    let mut remarks = vec!["a0 is chunk 0 of rank 0"];
    if has_sums {
        remarks = vec![
            "a0 is chunk 0 of rank 0; Σ0 is the sum of chunk 0 over all ranks",
            "3 of Σ0: the sum over three of them; the fewer, the paler",
        ];
    }
    if has_arrows {
        remarks.push("framed: what has just come; arrows: what is sent next");
    }
    remarks
}

/// Layout of a state's cells.
#[derive(Clone, Copy)]
struct Grid {
    num_ranks: u32,
    cell_width: f64,
    has_arrows: bool,
}

impl Grid {
    /// Width for arrows from the last rank to the first, which leave on the right and enter on the left.
    const fn stub(self) -> f64 {
        if self.has_arrows { ARROW } else { 0.0 }
    }

    /// Distance between the left edges of neighbouring ranks' cells.
    fn pitch(self) -> f64 {
        self.cell_width + if self.has_arrows { ARROW } else { BETWEEN_RANKS }
    }

    fn width(self) -> f64 {
        let between = f64::from(self.num_ranks.saturating_sub(1)) * self.pitch();
        between + f64::from(self.num_ranks.min(1)) * self.cell_width + 2.0 * self.stub()
    }

    /// Area of a cell, in a state with its upper left corner at a point.
    fn cell(self, (left, top): (f64, f64), rank: u32, slot: u32) -> Area {
        Area {
            left: left + self.stub() + f64::from(rank) * self.pitch(),
            top: top + STATE_LINE + RANK_LINE + f64::from(slot) * (CELL_HEIGHT + BETWEEN_SLOTS),
            width: self.cell_width,
            height: CELL_HEIGHT,
        }
    }
}

/// Parameters of the colours of cells.
#[derive(Clone, Copy)]
struct Colors {
    operation: Operation,
    /// True if chunks of several ranks are summed.
    has_sums: bool,
    theme: Theme,
}

fn draw_state(
    drawing: &mut Drawing,
    state: &State,
    grid: Grid,
    corner: (f64, f64),
    colors: Colors,
) {
    let (theme, (left, top)) = (colors.theme, corner);
    let style = TextStyle { size: STATE, align: Align::Left, color: theme.text() };
    drawing.text(&state.heading, (left + grid.stub(), top + 11.0), style);
    for rank in 0..state.contents.num_ranks() {
        let head = grid.cell(corner, rank, 0);
        let style = TextStyle { size: RANK, align: Align::Center, color: theme.muted_text() };
        drawing.text(&rank_name(rank), (head.left + head.width / 2.0, head.top - 5.0), style);
        for slot in 0..state.contents.num_slots() {
            let area = grid.cell(corner, rank, slot);
            draw_slot(drawing, &state.contents, (rank, slot), area, colors);
            if state.received.contains(&(rank, slot)) {
                drawing.frame(area, 1.5, theme.text());
            }
        }
    }
    for Send { from, to, slot } in &state.sends {
        let [start, end] = [*from, *to].map(|rank| grid.cell(corner, rank, *slot));
        if from < to {
            draw_arrow(drawing, start.right(), end.left, start, theme);
        } else {
            draw_arrow(drawing, start.right(), start.right() + ARROW, start, theme);
            draw_arrow(drawing, end.left - ARROW, end.left, start, theme);
        }
    }
}

/// Draws the contents of a slot.
fn draw_slot(
    drawing: &mut Drawing,
    contents: &BufferContents,
    (rank, slot): (u32, u32),
    area: Area,
    Colors { operation, has_sums, theme }: Colors,
) {
    let pieces = contents.slot(rank, slot);
    let Some(first) = pieces.first() else { return drawing.frame(area, 1.0, theme.grid()) };
    let color = if operation.is_by_origin() {
        theme.series(first.rank as usize)
    } else if !has_sums {
        theme.series(first.chunk as usize)
    } else {
        // The more ranks are in the sum, the stronger the colour.
        let missing = 1.0 - pieces.len() as f64 / f64::from(contents.num_ranks());
        theme.series(first.chunk as usize).mix(theme.background(), 0.65 * missing)
    };
    drawing.fill(area, color);
    let style = TextStyle { size: LABEL, align: Align::Center, color: color.ink() };
    drawing.text(&contents.label(rank, slot), area.middle(LABEL), style);
}

/// Draws an arrow at the height of a cell's middle.
fn draw_arrow(drawing: &mut Drawing, from: f64, to: f64, cell: Area, theme: Theme) {
    let (left, tip, middle) = (from + 2.0, to - 2.0, cell.top + cell.height / 2.0);
    let (back, half) = (tip - ARROW_HEAD, ARROW_HEAD * 0.7);
    let line = Area { left, top: middle - 0.75, width: back - left, height: 1.5 };
    drawing.fill(line, theme.text());
    let head = [(tip, middle), (back, middle - half), (back, middle + half)];
    drawing.polygon(&head, theme.text());
}

/// Checks that the narrowest cells of more than a few ranks fit, before buffers are computed: the contributions in the
/// states of a ring grow with the fourth power of the number of ranks.
fn check_room(num_ranks: u32, has_arrows: bool, paper: &Paper) -> Result<(), DrawError> {
    if num_ranks <= FEW_RANKS {
        return Ok(());
    }
    let grid = Grid { num_ranks, cell_width: LEAST_CELL_WIDTH, has_arrows };
    DrawError::check_side("width", paper.width, grid.width() + 2.0 * MARGIN)
}

fn ranks(num_ranks: u32) -> String {
    if num_ranks == 1 { "1 rank".to_owned() } else { format!("{num_ranks} ranks") }
}

fn rank_name(rank: u32) -> String {
    format!("rank {rank}")
}
