//! Gantt charts: what is in them, and that they bear any timeline.

use ir::schedule::{Action, ActionKind, ScheduleKind};
use ir::units::{Bytes, Nanos};
use proptest::prelude::*;
use traces::gantt::{self, GanttOptions, TimeAxis, Visibility, Window};
use traces::palette::Theme;
use traces::timeline::{Activity, Event, Stream, Timeline, Track};
use traces::{DrawError, ImageFormat, Paper};

use crate::drawing::{Bitmap, Drawing};
use crate::example::timeline;

const PLAIN: GanttOptions = GanttOptions {
    paper: Paper { width: 1000, theme: Theme::Light, pixel_ratio: 1 },
    time_axis: TimeAxis::Clock,
    lanes: Visibility::Hidden,
    memory: Visibility::Hidden,
    window: Window::Whole,
    max_tracks: 64,
};

fn svg(timeline: &Timeline, options: &GanttOptions) -> Result<String, DrawError> {
    gantt::draw(&[timeline], options)?.svg()
}

fn png(timeline: &Timeline, options: &GanttOptions) -> Result<Vec<u8>, DrawError> {
    gantt::draw(&[timeline], options)?.file(ImageFormat::Png)
}

/// Eight boxes of each pass on four ranks, and one more of each in the legend.
#[test]
fn every_action_has_its_box_and_its_number() {
    let timeline = timeline(ScheduleKind::OneFOneB, 4, 8, 1, 1_000_000);
    let drawing = Drawing::parse(&svg(&timeline, &PLAIN).unwrap());
    for kind in [ActionKind::Forward, ActionKind::Backward] {
        assert_eq!(drawing.of_color(Theme::Light.action(kind)).len(), 4 * 8 + 1, "{kind:?}");
    }
    for micro_batch in 0..8 {
        let number = micro_batch.to_string();
        let count = drawing.texts.iter().filter(|text| **text == number).count();
        assert!(count >= 4 * 2, "{count} boxes say {number}");
    }
    for text in ["1f1b, 4 pipeline ranks", "step 362.00 ms", "bubble 33.7 %", "pipeline rank 3"] {
        drawing.says(text);
    }
    for text in ["forward", "backward", "idle", "time (ms)", "numbers are micro-batches"] {
        drawing.says(text);
    }
}

#[test]
fn widths_are_proportional_to_durations() {
    let timeline = timeline(ScheduleKind::ZbH1, 2, 2, 1, 1000);
    let drawing = Drawing::parse(&svg(&timeline, &PLAIN).unwrap());
    let all = drawing.of_color(Theme::Light.idle())[0];
    let end = timeline.end().as_f64();
    let forward = drawing.of_color(Theme::Light.action(ActionKind::Forward));
    let is_first = |event: &&Event| event.activity.to_string() == "0F0";
    let event = timeline.tracks[0].events.iter().find(is_first).unwrap();
    // To the quarter of a pixel, and but for the line between boxes.
    assert!((forward[0].width - all.width * event.duration().as_f64() / end).abs() < 1.3);
    assert!((forward[0].left - all.left - all.width * event.start.as_f64() / end).abs() < 0.3);
}

#[test]
fn two_that_overlap_have_half_the_height() {
    let timeline = timeline(ScheduleKind::DualPipe, 4, 8, 1, 1000);
    let drawing = Drawing::parse(&svg(&timeline, &PLAIN).unwrap());
    let row = drawing.of_color(Theme::Light.idle())[0].height;
    let forward = [0, 1]
        .into_iter()
        .flat_map(|nth| drawing.of_color(Theme::Light.action(ActionKind::Forward).shaded(nth, 2)));
    let halves = forward.filter(|rect| rect.height < row * 0.6 && rect.height > row * 0.4);
    let pairs: usize = timeline
        .tracks
        .iter()
        .map(|track| {
            let compute = track.events.iter().filter(|event| event.stream == Stream::Compute);
            let compute: Vec<&Event> = compute.collect();
            compute.windows(2).filter(|pair| pair[1].start < pair[0].end).count()
        })
        .sum();
    assert!(pairs > 0);
    // The marks of the legend are squares of 11 pixels.
    assert_eq!(halves.filter(|rect| (rect.height - 11.0).abs() > 0.1).count(), pairs);
}

#[test]
fn lanes_and_memory_are_there_when_asked_for() {
    let timeline = timeline(ScheduleKind::OneFOneB, 4, 8, 1, 1000);
    let send = Theme::Light.stream(Stream::Send);
    let without = Drawing::parse(&svg(&timeline, &PLAIN).unwrap());
    assert_eq!(without.of_color(send), []);
    let options = GanttOptions { lanes: Visibility::Shown, memory: Visibility::Shown, ..PLAIN };
    let with = Drawing::parse(&svg(&timeline, &options).unwrap());
    // Three ranks send eight activations each and three eight gradients, and there is the legend.
    assert_eq!(with.of_color(send).len(), 3 * 8 * 2 + 1);
    assert!(with.height > without.height);
    for text in ["send", "receive", "memory in use (GiB)", "memory capacity", "80"] {
        with.says(text);
    }
}

#[test]
fn an_axis_of_units_has_plain_numbers() {
    let timeline = timeline(ScheduleKind::GPipe, 2, 2, 1, 1);
    let options = GanttOptions { time_axis: TimeAxis::Units(Nanos::new(10)), ..PLAIN };
    let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
    drawing.says("step 9.4 units");
    drawing.says("time (units)");
    assert!(!drawing.texts.iter().any(|text| text.contains("ns")), "{:?}", drawing.texts);
}

#[test]
fn of_many_tracks_some_are_shown_and_the_picture_says_so() {
    let timeline = timeline(ScheduleKind::OneFOneB, 16, 4, 1, 1000);
    let options = GanttOptions { max_tracks: 6, ..PLAIN };
    let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
    drawing.says("6 of 16 ranks drawn, the first and the last among them");
    drawing.says("pipeline rank 15");
    assert!(!drawing.texts.iter().any(|text| text == "pipeline rank 1"));
    for max_tracks in [2, 5, 7, 15] {
        let options = GanttOptions { max_tracks, ..options };
        let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
        let of_rank = |text: &&String| text.starts_with("pipeline rank ");
        assert_eq!(drawing.texts.iter().filter(of_rank).count(), max_tracks as usize);
        drawing.says("pipeline rank 0");
        drawing.says("pipeline rank 15");
    }
}

/// Curves of some ranks only are said to be, and so is what they are of.
#[test]
fn a_legend_says_whose_memory_is_drawn() {
    let said = |ranks, time_axis| {
        let timeline = timeline(ScheduleKind::OneFOneB, ranks, 4, 1, 1000);
        let options = GanttOptions { memory: Visibility::Shown, time_axis, ..PLAIN };
        Drawing::parse(&svg(&timeline, &options).unwrap())
    };
    said(1, TimeAxis::Clock).says("memory");
    said(4, TimeAxis::Clock).says("memory, first to last rank");
    said(40, TimeAxis::Clock).says("memory, 16 of 40 ranks, first to last");
    let units = said(4, TimeAxis::Units(Nanos::new(1000)));
    units.says("in flight, first to last rank");
    units.says("in flight (micro-batches \u{d7} stages)");
}

/// A capacity far above all curves would flatten them; it is in the heading.
#[test]
fn a_capacity_far_above_the_peak_is_not_drawn() {
    let mut timeline = timeline(ScheduleKind::OneFOneB, 2, 4, 1, 1000);
    for track in &mut timeline.tracks {
        track.memory_capacity = Some(Bytes::new(400 << 30));
    }
    let options = GanttOptions { memory: Visibility::Shown, ..PLAIN };
    let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
    drawing.says("peak memory 28.00 GiB of 400.00 GiB");
    assert!(!drawing.texts.iter().any(|text| text.contains("capacity")), "{:?}", drawing.texts);
    assert!(!drawing.texts.contains(&"200".to_owned()));
}

/// What tells plans apart stands below the title, and what events do not show.
#[test]
fn settings_and_remarks_are_below_the_title() {
    let mut timeline = timeline(ScheduleKind::OneFOneB, 2, 4, 1, 1000);
    timeline.setting = "batch 64, ZeRO-1".to_owned();
    timeline.remark = "recompute 23 % of the step".to_owned();
    let drawing = Drawing::parse(&svg(&timeline, &PLAIN).unwrap());
    drawing.says("batch 64, ZeRO-1");
    drawing.says("recompute 23 % of the step");
}

#[test]
fn a_bitmap_has_the_size_and_the_colours_asked_for() {
    let timeline = timeline(ScheduleKind::OneFOneB, 2, 1, 1, 1000);
    for theme in Theme::ALL {
        for pixel_ratio in [1, 2] {
            let paper = Paper { width: 640, theme, pixel_ratio };
            let options = GanttOptions { paper, ..PLAIN };
            let bitmap = Bitmap::decode(&png(&timeline, &options).unwrap());
            // The same picture as SVG says where the boxes are.
            let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
            let size = [640, drawing.height as u32].map(|side| side * pixel_ratio);
            assert_eq!([bitmap.width, bitmap.height], size);
            assert_eq!(bitmap.at(0, 0), theme.background());
            for color in [ActionKind::Forward, ActionKind::Backward].map(|k| theme.action(k)) {
                let rect = drawing.of_color(color)[0];
                let ratio = f64::from(pixel_ratio);
                let x = (rect.left + 2.0) * ratio;
                let y = (rect.top + 2.0) * ratio;
                assert_eq!(bitmap.at(x as u32, y as u32), color);
            }
            assert!(bitmap.colors().contains(&theme.idle()));
        }
    }
}

#[test]
fn two_timelines_share_an_axis() {
    let slow = timeline(ScheduleKind::OneFOneB, 4, 8, 1, 1000);
    let fast = timeline(ScheduleKind::ZbH1, 4, 8, 1, 1000);
    let drawing = Drawing::parse(&gantt::draw(&[&slow, &fast], &PLAIN).unwrap().svg().unwrap());
    let idle = drawing.of_color(Theme::Light.idle());
    let (first, last) = (idle[0], idle[7]);
    assert!((first.left - last.left).abs() < 1e-9);
    let ratio = fast.end().as_f64() / slow.end().as_f64();
    assert!((last.width / first.width - ratio).abs() < 0.002);
    drawing.says("18.8 % shorter than the first");
    // Of what does other work, no one can say how much shorter it is.
    let other = Timeline { work: "another step".to_owned(), ..fast.clone() };
    let drawing = Drawing::parse(&gantt::draw(&[&slow, &other], &PLAIN).unwrap().svg().unwrap());
    assert!(!drawing.texts.iter().any(|text| text.contains("shorter")));
    drawing.says("another step");
    Bitmap::decode(&gantt::draw(&[&slow, &fast], &PLAIN).unwrap().file(ImageFormat::Png).unwrap());
}

/// Half of the time is drawn twice as wide, and what lies outside is not.
#[test]
fn a_part_of_the_step_can_be_drawn() {
    let timeline = timeline(ScheduleKind::OneFOneB, 4, 8, 1, 1_000_000);
    let end = timeline.end();
    let half = Nanos::new(end.get() / 2);
    let forwards = |window| {
        let options = GanttOptions { window, lanes: Visibility::Shown, ..PLAIN };
        let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
        let mut boxes = drawing.of_color(Theme::Light.action(ActionKind::Forward));
        boxes.pop(); // of the legend
        (boxes, drawing)
    };
    let (whole, _) = forwards(Window::Whole);
    let (first, drawing) = forwards(Window::Time { from: Nanos::ZERO, to: half });
    assert!((first[0].width / whole[0].width - 2.0).abs() < 0.1);
    let (second, _) = forwards(Window::Time { from: half, to: Nanos::new(u64::MAX) });
    // One of each of the ranks may lie in both halves.
    assert!((whole.len()..=whole.len() + 4).contains(&(first.len() + second.len())));
    drawing.says("shown from 0 s to 181.00 ms");
    let right = drawing.of_color(Theme::Light.idle())[0];
    let right = right.left + right.width;
    assert!(
        drawing.rects.iter().all(|rect| rect.left + rect.width <= right + 1.1 || rect.left == 0.0)
    );

    let (two, drawing) = forwards(Window::FirstMicroBatches(2));
    assert!(two.len() < whole.len() && two.len() >= 4 * 2);
    let last =
        timeline.tracks[0].events.iter().find(|it| it.activity.to_string() == "0B1").unwrap();
    drawing.says(&format!("shown from 0 s to {}", last.end));
    assert_eq!(forwards(Window::FirstMicroBatches(99)).0.len(), whole.len());

    let nothing = Window::Time { from: end, to: Nanos::new(u64::MAX) };
    let error = svg(&timeline, &GanttOptions { window: nothing, ..PLAIN }).unwrap_err();
    assert!(matches!(error, DrawError::NothingThere { .. }), "{error}");
}

/// A legend has what is drawn and nothing else: messages that take no time are not, nor idle time where there is none.
#[test]
fn a_legend_has_what_is_drawn() {
    let event = |start, end, stream, kind, stage| Event {
        start: Nanos::new(start),
        end: Nanos::new(end),
        stream,
        activity: Activity::Action(Action { stage, kind, micro_batch: 0 }),
        bytes: Bytes::ZERO,
    };
    let events = vec![
        event(0, 10, Stream::Compute, ActionKind::Forward, 0),
        event(10, 10, Stream::Send, ActionKind::SendForward, 0),
        event(10, 20, Stream::Compute, ActionKind::Backward, 0),
        event(20, 30, Stream::Compute, ActionKind::OptimizerStep, 0),
        event(20, 30, Stream::Data, ActionKind::ReduceGrad, 0),
    ];
    let track = Track { name: "rank".to_owned(), num_ranks: 1, events, ..Track::default() };
    let timeline = Timeline { tracks: vec![track], ..Timeline::default() };
    let said = |window| {
        let options = GanttOptions { window, lanes: Visibility::Shown, ..PLAIN };
        Drawing::parse(&svg(&timeline, &options).unwrap()).texts
    };
    let whole = said(Window::Whole);
    for (text, count) in [("optimizer step", 1), ("data parallel", 2), ("idle", 0), ("send", 0)] {
        assert_eq!(whole.iter().filter(|it| *it == text).count(), count, "{text}: {whole:?}");
    }
    let part = said(Window::Time { from: Nanos::ZERO, to: Nanos::new(15) });
    assert!(!part.iter().any(|text| text == "optimizer step"), "{part:?}");
}

#[test]
fn many_ranks_have_lanes_and_more_say_that_they_have_none() {
    let options = GanttOptions { lanes: Visibility::Auto, ..PLAIN };
    let lanes = |ranks| {
        let timeline = timeline(ScheduleKind::OneFOneB, ranks, 4, 1, 1000);
        let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
        let is_said =
            drawing.texts.iter().any(|it| it.contains("exchanges and messages not drawn"));
        (drawing.of_color(Theme::Light.stream(Stream::Send)).len() > 1, is_said)
    };
    assert_eq!((lanes(4), lanes(32), lanes(48)), ((true, false), (true, false), (false, true)));
}

/// A rank of one stage that waits for another's has no shades.
#[test]
fn waiting_for_another_rank_is_no_stage() {
    let mut timeline = timeline(ScheduleKind::OneFOneB, 4, 8, 1, 1000);
    for (track, stage) in timeline.tracks.iter_mut().zip(0..) {
        let of = track.events.iter().find(|event| event.start > Nanos::ZERO).copied().unwrap();
        let action = Action { stage: (stage + 1) % 4, kind: ActionKind::Forward, micro_batch: 0 };
        let end = Nanos::new(of.start.get() - 1);
        let waiting = Event { start: end, end: of.start, activity: Activity::Wait(action), ..of };
        let place = track.events.partition_point(|event| event.start <= waiting.start);
        track.events.insert(place, waiting);
    }
    let drawing = Drawing::parse(&svg(&timeline, &PLAIN).unwrap());
    let forwards = drawing.of_color(Theme::Light.action(ActionKind::Forward));
    assert_eq!(forwards.len(), 4 * 8 + 1);
    assert!(!drawing.texts.iter().any(|text| text.contains("paler")), "{:?}", drawing.texts);
}

#[test]
fn numbers_are_where_they_fit() {
    let timeline = timeline(ScheduleKind::OneFOneB, 4, 200, 1, 1000);
    let options = GanttOptions { paper: Paper { width: 6000, ..PLAIN.paper }, ..PLAIN };
    let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
    let count = |number: &str| drawing.texts.iter().filter(|text| *text == number).count();
    // Backwards take twice as long as forwards, which have no room for three digits.
    assert_eq!((count("7"), count("150")), (4, 4));
}

#[test]
fn the_same_timeline_gives_the_same_bytes() {
    let options = GanttOptions::default();
    let draw = || {
        let timeline = timeline(ScheduleKind::Interleaved, 4, 8, 2, 1000);
        (svg(&timeline, &options).unwrap(), png(&timeline, &options).unwrap())
    };
    assert_eq!(draw(), draw());
}

#[test]
fn what_has_no_time_is_drawn_without_boxes() {
    let event = |start, end| Event {
        start: Nanos::new(start),
        end: Nanos::new(end),
        stream: Stream::Compute,
        activity: Activity::Action(Action { stage: 0, kind: ActionKind::Forward, micro_batch: 0 }),
        bytes: Bytes::ZERO,
    };
    let of = |events: Vec<Event>| Timeline {
        title: "<one> & \"two\"".to_owned(),
        tracks: vec![Track { events, num_ranks: 1, ..Track::default() }],
        ..Timeline::default()
    };
    let forward = Theme::Light.action(ActionKind::Forward);
    for (timeline, boxes) in [
        (Timeline::default(), 0),
        (of(vec![]), 0),
        (of(vec![event(0, 0)]), 0),
        (of(vec![event(5, 5)]), 0),
        (of(vec![event(0, 1)]), 1),
        (of(vec![event(0, 0), event(0, 7), event(7, 7)]), 1),
    ] {
        let drawing = Drawing::parse(&svg(&timeline, &GanttOptions::default()).unwrap());
        let rows = drawing.of_color(forward).into_iter().filter(|rect| rect.height > 12.0);
        assert_eq!(rows.count(), boxes, "{timeline:?}");
        Bitmap::decode(&png(&timeline, &GanttOptions::default()).unwrap());
    }
}

/// A million events of ten nanoseconds on four tracks come to at most a box for each pixel.
#[test]
fn a_million_events_make_a_small_picture() {
    let tracks = (0..4).map(|rank| Track {
        name: format!("rank {rank}"),
        rank,
        num_ranks: 1,
        events: (0..250_000_u64)
            .map(|index| Event {
                start: Nanos::new(index * 10),
                end: Nanos::new(index * 10 + 9),
                stream: Stream::Compute,
                activity: Activity::Action(Action {
                    stage: rank,
                    kind: if index % 3 == 0 { ActionKind::Forward } else { ActionKind::Backward },
                    micro_batch: index as u32,
                }),
                bytes: Bytes::ZERO,
            })
            .collect(),
        ..Track::default()
    });
    let timeline =
        Timeline { title: "many".to_owned(), tracks: tracks.collect(), ..Timeline::default() };
    let document = svg(&timeline, &PLAIN).unwrap();
    assert!(document.len() < 1_000_000, "{} bytes", document.len());
    let drawing = Drawing::parse(&document);
    assert!(drawing.rects.len() < 4 * 1000 + 100);
    assert!(!drawing.of_color(Theme::Light.action(ActionKind::Backward)).is_empty());
}

#[test]
fn too_small_or_too_large_a_picture_is_an_error_that_says_what_would_do() {
    let timeline = timeline(ScheduleKind::OneFOneB, 8, 8, 1, 1000);
    let narrow = Paper { width: 100, ..PLAIN.paper };
    let Err(DrawError::TooSmall { what: "width", least, .. }) =
        svg(&timeline, &GanttOptions { paper: narrow, ..PLAIN })
    else {
        panic!("100 pixels are too few")
    };
    let enough = Paper { width: least, ..PLAIN.paper };
    svg(&timeline, &GanttOptions { paper: enough, ..PLAIN }).unwrap();

    let long = GanttOptions { paper: Paper { width: u32::MAX, ..PLAIN.paper }, ..PLAIN };
    let errors = [svg(&timeline, &long).unwrap_err(), png(&timeline, &long).unwrap_err()];
    assert!(errors.iter().all(|error| matches!(error, DrawError::TooLong { .. })));
    let huge = Paper { pixel_ratio: 1000, ..PLAIN.paper };
    let error = png(&timeline, &GanttOptions { paper: huge, ..PLAIN }).unwrap_err();
    assert!(matches!(error, DrawError::TooLarge { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any events on any streams are drawn, and all that is drawn is inside the picture.
    #[test]
    fn all_that_is_drawn_is_inside(
        raw in prop::collection::vec((0_u64..10_000, 0_u64..3000, 0_usize..8, 0_usize..12), 0..60),
        width in 400_u32..1600,
    ) {
        let mut events: Vec<Event> = raw
            .into_iter()
            .map(|(start, length, stream, kind)| Event {
                start: Nanos::new(start),
                end: Nanos::new(start + length),
                stream: Stream::ALL[stream],
                activity: Activity::Action(Action {
                    stage: kind as u32 % 3,
                    kind: ActionKind::ALL[kind],
                    micro_batch: start as u32,
                }),
                bytes: Bytes::ZERO,
            })
            .collect();
        events.sort_by_key(|event| event.start);
        let track = Track { name: "rank".to_owned(), num_ranks: 1, events, ..Track::default() };
        let timeline = Timeline { tracks: vec![track], ..Timeline::default() };
        let paper = Paper { width, ..PLAIN.paper };
        let options = GanttOptions { paper, lanes: Visibility::Shown, ..PLAIN };
        let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
        for rect in &drawing.rects {
            prop_assert!(rect.left >= 0.0 && rect.left + rect.width <= drawing.width, "{rect:?}");
            prop_assert!(rect.top >= 0.0 && rect.top + rect.height <= drawing.height, "{rect:?}");
        }
    }
}
