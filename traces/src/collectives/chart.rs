//! States side by side: a column for each rank, a cell for each slot.

use std::borrow::Cow;
use std::collections::BTreeSet;

use plotters::backend::DrawingBackend;

use super::holdings::Holdings;
use super::operation::Operation;
use super::ring::{Ring, Send};
use crate::canvas::{Align, Area, Canvas, DrawError, Font, Paper, Picture, Text, baseline_around};
use crate::palette::Rgb;

const MARGIN: f64 = 18.0;
const TITLE: f64 = 15.0;
const TITLE_LINE: f64 = 21.0;
const SUBTITLE: f64 = 11.5;
const SUBTITLE_LINE: f64 = 17.0;
const BELOW_HEADING: f64 = 14.0;
/// The heading of a state, and the names of its ranks.
const STATE: f64 = 11.5;
const STATE_LINE: f64 = 20.0;
const RANK: f64 = 9.5;
const RANK_LINE: f64 = 15.0;
const CELL_HEIGHT: f64 = 22.0;
const BETWEEN_SLOTS: f64 = 2.0;
const LABEL: f64 = 10.0;
const BESIDE_LABEL: f64 = 8.0;
/// Between ranks; arrows need more.
const BETWEEN_RANKS: f64 = 5.0;
const ARROW: f64 = 18.0;
const ARROW_HEAD: f64 = 5.0;
const BETWEEN_STATES: f64 = 44.0;
const BELOW_STATE: f64 = 18.0;

/// The narrowest that a cell is.
const LEAST_CELL_WIDTH: f64 = 30.0;

/// What is drawn at one moment.
struct State {
    heading: String,
    holdings: Holdings,
    /// What is sent next.
    sends: Vec<Send>,
    /// Slots that have just been received, with their ranks.
    received: BTreeSet<(u32, u32)>,
}

pub(super) struct Chart<'a> {
    title: String,
    subtitle: String,
    /// Whether chunks of several ranks are added.
    has_sums: bool,
    operation: Operation,
    states: Vec<State>,
    cell_width: f64,
    between_ranks: f64,
    /// How many states stand side by side.
    columns: usize,
    /// From the left edge of one to that of the next.
    pitch: f64,
    /// Of the picture.
    width: u32,
    paper: &'a Paper,
}

impl<'a> Chart<'a> {
    /// The state before and the state after.
    pub(super) fn of_operation(
        operation: Operation,
        num_ranks: u32,
        paper: &'a Paper,
        font: &Font,
    ) -> Result<Self, DrawError> {
        check_room(num_ranks, BETWEEN_RANKS, 0.0, paper)?;
        let state = |heading: &str, holdings| State {
            heading: heading.to_owned(),
            holdings,
            sends: Vec::new(),
            received: BTreeSet::new(),
        };
        let states = vec![
            state("before", operation.before(num_ranks)),
            state("after", operation.after(num_ranks)),
        ];
        let subtitle = ranks(num_ranks);
        Self { between_ranks: BETWEEN_RANKS, ..Self::new(operation, subtitle, states, paper) }
            .fitted(font)
    }

    /// The state at the start and after each step.
    pub(super) fn of_ring(
        ring: Ring,
        num_ranks: u32,
        paper: &'a Paper,
        font: &Font,
    ) -> Result<Self, DrawError> {
        check_room(num_ranks, ARROW, ARROW, paper)?;
        let steps = ring.steps(num_ranks);
        let sent = steps.iter().flat_map(|step| &step.sends).filter(|send| send.from == 0).count();
        let subtitle = format!(
            "{}  ·  {} steps  ·  each rank sends {sent} chunks of 1/{num_ranks} of the buffer",
            ranks(num_ranks),
            steps.len()
        );
        let mut states = vec![State {
            heading: "start".to_owned(),
            holdings: ring.operation().before(num_ranks),
            sends: Vec::new(),
            received: BTreeSet::new(),
        }];
        for (step, number) in steps.into_iter().zip(1..) {
            let received = step.sends.iter().map(|send| (send.to, send.slot)).collect();
            if let Some(before) = states.last_mut() {
                before.sends = step.sends;
            }
            let part = match ring {
                Ring::AllReduce => format!(" ({})", step.part),
                Ring::AllGather | Ring::ReduceScatter => String::new(),
            };
            states.push(State {
                heading: format!("after step {number}{part}"),
                holdings: step.holdings,
                sends: Vec::new(),
                received,
            });
        }
        let chart = Self::new(ring.operation(), subtitle, states, paper);
        Self { title: ring.to_string(), between_ranks: ARROW, ..chart }.fitted(font)
    }

    fn new(operation: Operation, subtitle: String, states: Vec<State>, paper: &'a Paper) -> Self {
        let has_sums = states.iter().any(|state| {
            let holdings = &state.holdings;
            let slots = 0..holdings.num_slots();
            (0..holdings.num_ranks())
                .any(|rank| slots.clone().any(|slot| holdings.slot(rank, slot).len() > 1))
        });
        Self {
            title: operation.to_string(),
            subtitle,
            has_sums,
            operation,
            states,
            cell_width: 0.0,
            between_ranks: BETWEEN_RANKS,
            columns: 1,
            pitch: 0.0,
            width: paper.width,
            paper,
        }
    }

    /// With cells as wide as the labels need, and as many states in a row as the paper has room for.
    fn fitted(self, font: &Font) -> Result<Self, DrawError> {
        let labels = self.states.iter().flat_map(|State { holdings, .. }| {
            (0..holdings.num_ranks()).flat_map(move |rank| {
                (0..holdings.num_slots()).map(move |slot| holdings.label(rank, slot))
            })
        });
        let widths = labels.map(|label| font.width(&label, LABEL) + BESIDE_LABEL);
        let names = font.width(&rank_name(self.num_ranks().saturating_sub(1)), RANK) + 4.0;
        let cell_width = widths.fold(names.max(LEAST_CELL_WIDTH), f64::max).ceil();
        let chart = Self { cell_width, ..self };
        let headings = chart.states.iter().map(|state| font.width(&state.heading, STATE));
        let headings = headings.map(|width| width + chart.stub());
        let pitch = headings.fold(chart.state_width(), f64::max) + BETWEEN_STATES;
        let texts = font.width(&chart.subtitle, SUBTITLE).max(chart.remarks_width(font));
        let least = (pitch - BETWEEN_STATES).max(texts);
        let margins = 2.0 * MARGIN;
        let room = f64::from(chart.paper.width) - margins;
        if least > room {
            return Err(DrawError::TooSmall {
                what: "width",
                given: chart.paper.width,
                least: (least + margins).ceil() as u32,
            });
        }
        let columns = ((room + BETWEEN_STATES) / pitch).floor().max(1.0);
        let columns = columns.min(chart.states.len() as f64);
        let width = (columns * pitch - BETWEEN_STATES).max(texts) + margins;
        Ok(Self { columns: columns as usize, pitch, width: width.ceil() as u32, ..chart })
    }

    /// What letters, frames and shades mean, a line each.
    fn remarks(&self) -> Vec<&'static str> {
        let mut remarks = vec!["a0 is chunk 0 of rank 0"];
        if self.has_sums {
            remarks = vec![
                "a0 is chunk 0 of rank 0; Σ0 is the sum of chunk 0 over all ranks",
                "3 of Σ0: the sum over three of them; the fewer, the paler",
            ];
        }
        if self.states.iter().any(|state| !state.received.is_empty()) {
            remarks.push("framed: what has just come; arrows: what is sent next");
        }
        remarks
    }

    /// How wide the widest of them is.
    fn remarks_width(&self, font: &Font) -> f64 {
        let widths = self.remarks().into_iter().map(|remark| font.width(remark, SUBTITLE));
        widths.fold(0.0, f64::max)
    }

    fn num_ranks(&self) -> u32 {
        self.states.first().map_or(0, |state| state.holdings.num_ranks())
    }

    /// Arrows from the last rank to the first leave on the right and come in on the left.
    fn stub(&self) -> f64 {
        if self.states.iter().any(|state| !state.sends.is_empty()) { ARROW } else { 0.0 }
    }

    fn state_width(&self) -> f64 {
        width_of_state(self.num_ranks(), self.cell_width, self.between_ranks, self.stub())
    }

    fn state_height(&self) -> f64 {
        let slots = self.states.first().map_or(0, |state| state.holdings.num_slots());
        STATE_LINE + RANK_LINE + f64::from(slots) * (CELL_HEIGHT + BETWEEN_SLOTS) + BELOW_STATE
    }

    fn cell(&self, left: f64, top: f64, rank: u32, slot: u32) -> Area {
        Area {
            left: left + self.stub() + f64::from(rank) * (self.cell_width + self.between_ranks),
            top: top + STATE_LINE + RANK_LINE + f64::from(slot) * (CELL_HEIGHT + BETWEEN_SLOTS),
            width: self.cell_width,
            height: CELL_HEIGHT,
        }
    }

    fn state<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        state: &State,
        left: f64,
        top: f64,
    ) -> Result<(), DrawError> {
        let theme = self.paper.theme;
        canvas.text(&Text {
            content: &state.heading,
            x: left + self.stub(),
            baseline: top + 11.0,
            size: STATE,
            align: Align::Left,
            color: theme.text(),
        })?;
        for rank in 0..state.holdings.num_ranks() {
            let head = self.cell(left, top, rank, 0);
            canvas.text(&Text {
                content: &rank_name(rank),
                x: head.left + head.width / 2.0,
                baseline: head.top - 5.0,
                size: RANK,
                align: Align::Center,
                color: theme.muted_text(),
            })?;
            for slot in 0..state.holdings.num_slots() {
                let area = self.cell(left, top, rank, slot);
                self.slot(canvas, &state.holdings, (rank, slot), area)?;
                if state.received.contains(&(rank, slot)) {
                    canvas.frame(area, 1.5, theme.text())?;
                }
            }
        }
        state.sends.iter().try_for_each(|send| self.arrow(canvas, *send, left, top))
    }

    fn slot<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        holdings: &Holdings,
        (rank, slot): (u32, u32),
        area: Area,
    ) -> Result<(), DrawError> {
        let theme = self.paper.theme;
        let pieces = holdings.slot(rank, slot);
        let Some(first) = pieces.first() else { return canvas.frame(area, 1.0, theme.grid()) };
        let color = if self.operation.is_by_origin() {
            theme.series(first.rank as usize)
        } else if !self.has_sums {
            theme.series(first.chunk as usize)
        } else {
            // The more of the sum is there, the fuller the colour.
            let missing = 1.0 - pieces.len() as f64 / f64::from(self.num_ranks());
            theme.series(first.chunk as usize).mix(theme.background(), 0.65 * missing)
        };
        canvas.fill(area, color)?;
        canvas.text(&Text {
            content: &holdings.label(rank, slot),
            x: area.left + area.width / 2.0,
            baseline: baseline_around(area.top + area.height / 2.0, LABEL),
            size: LABEL,
            align: Align::Center,
            color: color.ink(),
        })
    }

    /// From a rank to the next; from the last, out of the picture, and into it to the first.
    fn arrow<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        send: Send,
        left: f64,
        top: f64,
    ) -> Result<(), DrawError> {
        let (from, to) =
            (self.cell(left, top, send.from, send.slot), self.cell(left, top, send.to, send.slot));
        let middle = from.top + from.height / 2.0;
        let color = self.paper.theme.text();
        let mut draw = |start: f64, tip: f64| {
            let (start, tip) = (start + 2.0, tip - 2.0);
            let width = tip - ARROW_HEAD - start;
            canvas.fill(Area { left: start, top: middle - 0.75, width, height: 1.5 }, color)?;
            let back = tip - ARROW_HEAD;
            let half = ARROW_HEAD * 0.7;
            canvas.polygon(&[(tip, middle), (back, middle - half), (back, middle + half)], color)
        };
        if send.from < send.to {
            draw(from.right(), to.left)
        } else {
            draw(from.right(), from.right() + ARROW)?;
            draw(to.left - ARROW, to.left)
        }
    }
}

impl Picture for Chart<'_> {
    fn title(&self) -> Cow<'_, str> {
        format!("{}\n{}", self.title, self.subtitle).into()
    }

    fn size(&self) -> (u32, u32) {
        let rows = self.states.len().div_ceil(self.columns) as f64;
        let height = 2.0 * MARGIN + TITLE_LINE + SUBTITLE_LINE + BELOW_HEADING;
        let remarks = self.remarks().len() as f64 * SUBTITLE_LINE;
        let height = height + rows * self.state_height() + remarks;
        (self.width, height.ceil() as u32)
    }

    fn background(&self) -> Rgb {
        self.paper.theme.background()
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<(), DrawError> {
        let theme = self.paper.theme;
        let mut write = |content: &str, baseline, size, color| {
            canvas.text(&Text { content, x: MARGIN, baseline, size, align: Align::Left, color })
        };
        let top = MARGIN - 7.0 + TITLE_LINE;
        write(&self.title, top, TITLE, theme.text())?;
        write(&self.subtitle, top + SUBTITLE_LINE + 2.0, SUBTITLE, theme.muted_text())?;
        let bottom = f64::from(self.size().1);
        for (remark, below) in self.remarks().into_iter().rev().zip(0_u8..) {
            let baseline = bottom - MARGIN - f64::from(below) * SUBTITLE_LINE;
            write(remark, baseline, SUBTITLE - 1.0, theme.muted_text())?;
        }
        let first = MARGIN + TITLE_LINE + SUBTITLE_LINE + BELOW_HEADING;
        for (index, state) in self.states.iter().enumerate() {
            let (row, column) = (index / self.columns, index % self.columns);
            let left = MARGIN + column as f64 * self.pitch;
            self.state(canvas, state, left, first + row as f64 * self.state_height())?;
        }
        Ok(())
    }
}

/// Ranks of which states are worked out before it is known whether the paper has room for them.
const FEW_RANKS: u32 = 32;

/// That a state of more than a few ranks has room for them in their narrowest cells, before what they hold is worked out:
/// the contributions in the states of a ring grow with the fourth power of its ranks.
fn check_room(
    num_ranks: u32,
    between_ranks: f64,
    stub: f64,
    paper: &Paper,
) -> Result<(), DrawError> {
    let least = width_of_state(num_ranks, LEAST_CELL_WIDTH, between_ranks, stub) + 2.0 * MARGIN;
    if num_ranks > FEW_RANKS && least > f64::from(paper.width) {
        let least = least.ceil() as u32;
        return Err(DrawError::TooSmall { what: "width", given: paper.width, least });
    }
    Ok(())
}

fn width_of_state(num_ranks: u32, cell_width: f64, between_ranks: f64, stub: f64) -> f64 {
    let n = f64::from(num_ranks);
    n * cell_width + (n - 1.0).max(0.0) * between_ranks + 2.0 * stub
}

fn ranks(num_ranks: u32) -> String {
    if num_ranks == 1 { "1 rank".to_owned() } else { format!("{num_ranks} ranks") }
}

fn rank_name(rank: u32) -> String {
    format!("rank {rank}")
}
