//! Charts of more events than pixels: areas are times, and nothing is taken for idle that is not.

use ir::schedule::{Action, ActionKind, ScheduleKind};
use ir::units::{Bytes, Nanos};
use traces::gantt::{self, GanttOptions, Visibility};
use traces::palette::{Rgb, Theme};
use traces::timeline::{Activity, Event, Stream, Timeline, Track};
use traces::{ImageFormat, Paper};

use crate::drawing::{Bitmap, Drawing, Rect};
use crate::example;

fn options(lanes: Visibility) -> GanttOptions {
    let paper = Paper { width: 1000, ..Paper::default() };
    GanttOptions { paper, lanes, memory: Visibility::Hidden, ..GanttOptions::default() }
}

fn draw(timeline: &Timeline) -> Drawing {
    Drawing::parse(&gantt::draw(&[timeline], &options(Visibility::Shown)).unwrap().svg().unwrap())
}

fn png(timeline: &Timeline, lanes: Visibility) -> Vec<u8> {
    gantt::draw(&[timeline], &options(lanes)).unwrap().file(ImageFormat::Png).unwrap()
}

fn event(start: u64, end: u64, stream: Stream, kind: ActionKind, micro_batch: u32) -> Event {
    let activity = Activity::Action(Action { stage: 0, kind, micro_batch });
    Event { start: Nanos::new(start), end: Nanos::new(end), stream, activity, bytes: Bytes::ZERO }
}

fn one_track(events: Vec<Event>) -> Timeline {
    let track = Track { name: "rank".to_owned(), num_ranks: 1, events, ..Track::default() };
    Timeline { tracks: vec![track], ..Timeline::default() }
}

/// `count` rounds of 1000 ns: a forward of 310, a backward of 640, 50 without work; a message of `sent`.
fn rounds(count: u32, sent: u64) -> Timeline {
    let round = |index: u32| {
        let start = u64::from(index) * 1000;
        [
            event(start, start + 310, Stream::Compute, ActionKind::Forward, index),
            event(start + 310, start + 310 + sent, Stream::Send, ActionKind::SendForward, index),
            event(start + 310, start + 950, Stream::Compute, ActionKind::Backward, index),
        ]
    };
    one_track((0..count).flat_map(round).collect())
}

/// The share that a colour has of a row, the highest rectangle of `of` as wide as the plot.
fn share(drawing: &Drawing, color: Rgb, row: Rect) -> f64 {
    let inside = |rect: &Rect| rect.top >= row.top && rect.top < row.top + row.height;
    let areas = drawing.of_color(color).into_iter().filter(inside).map(|it| it.width * it.height);
    areas.sum::<f64>() / (row.width * row.height)
}

#[test]
fn passes_keep_their_shares_however_many_there_are() {
    for count in [60, 300, 900, 2560, 20_000] {
        let drawing = draw(&rounds(count, 100));
        let row = drawing.of_color(Theme::Light.idle())[0];
        for (kind, true_share) in [(ActionKind::Forward, 0.31), (ActionKind::Backward, 0.64)] {
            let share = share(&drawing, Theme::Light.action(kind), row);
            assert!((share - true_share).abs() < 0.012, "{count} of {kind:?}: {share:.3}");
        }
        let says = drawing.texts.iter().any(|text| text.contains("too narrow to draw one by one"));
        assert_eq!(says, count >= 300, "{count}");
    }
}

/// A lane is as full as its stream is busy, in every format.
#[test]
fn exchanges_keep_their_shares_in_every_format() {
    let send = Theme::Light.stream(Stream::Send);
    for (count, sent) in [(900, 18), (900, 127), (5000, 500), (5000, 950)] {
        let timeline = rounds(count, sent);
        let drawing = draw(&timeline);
        // Named lanes are ten pixels apart, with one between them.
        let row = drawing.of_color(Theme::Light.idle())[0];
        let lane = Rect { top: row.top + row.height, height: 9.0, ..row };
        let true_share = sent as f64 / 1000.0;
        let shares = share(&drawing, send, Rect { height: 11.0, ..lane }) * 11.0 / 9.0;
        assert!((shares - true_share).abs() < 0.02, "{count} of {sent}: {shares:.3} in SVG");
        let file = png(&timeline, Visibility::Shown);
        let bitmap = Bitmap::decode(&file);
        let rows = (lane.top * 2.0) as u32..(lane.top * 2.0) as u32 + 23;
        let columns = (lane.left * 2.0) as u32..((lane.left + lane.width) * 2.0) as u32;
        let inked = rows.flat_map(|y| columns.clone().map(move |x| (x, y)));
        let inked = inked.filter(|(x, y)| bitmap.at(*x, *y) == send).count();
        let shares = inked as f64 / (lane.width * 2.0 * 18.0);
        assert!((shares - true_share).abs() < 0.02, "{count} of {sent}: {shares:.3} in PNG");
    }
}

/// Without a gap between them, passes leave no more of the row's background than a line in some.
#[test]
fn passes_without_gaps_leave_nothing_idle() {
    for count in [40_u32, 150, 300, 1200] {
        let events = (0..count).map(|index| {
            let start = u64::from(index) * 1000;
            event(start, start + 1000, Stream::Compute, ActionKind::Backward, index)
        });
        let timeline = one_track(events.collect());
        let bitmap = png(&timeline, Visibility::Hidden);
        let idle = Theme::Light.idle();
        assert!(!Bitmap::decode(&bitmap).colors().contains(&idle), "{count} passes");
    }
}

/// Where two run side by side and one takes longer, the row is not idle.
#[test]
fn a_shorter_one_of_two_leaves_no_idle_time() {
    let events = vec![
        event(0, 600, Stream::Compute, ActionKind::Forward, 0),
        event(0, 1000, Stream::Compute, ActionKind::Backward, 0),
    ];
    let file = png(&one_track(events), Visibility::Hidden);
    let bitmap = Bitmap::decode(&file);
    assert!(!bitmap.colors().contains(&Theme::Light.idle()));
    // Where neither runs, it is.
    let timeline = example::timeline(ScheduleKind::DualPipe, 4, 8, 1, 1000);
    let file = png(&timeline, Visibility::Hidden);
    assert!(Bitmap::decode(&file).colors().contains(&Theme::Light.idle()));
}

/// Of two at the same time each counts half.
#[test]
fn overlapping_passes_share_columns() {
    let pair = |index: u32| {
        let start = u64::from(index) * 1000;
        [
            event(start, start + 1000, Stream::Compute, ActionKind::Forward, index),
            event(start, start + 1000, Stream::Compute, ActionKind::Backward, index),
        ]
    };
    let drawing = draw(&one_track((0..3000).flat_map(pair).collect()));
    let row = drawing.of_color(Theme::Light.idle())[0];
    for kind in [ActionKind::Forward, ActionKind::Backward] {
        let share = share(&drawing, Theme::Light.action(kind), row);
        assert!((share - 0.5).abs() < 0.012, "{kind:?}: {share:.3}");
    }
}
