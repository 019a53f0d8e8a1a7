//! Gantt charts: what is in them, and that they bear any timeline.

use ir::schedule::{Action, ActionKind, ScheduleKind};
use ir::units::{Bytes, Nanos};
use proptest::prelude::*;
use traces::gantt::{GanttOptions, TimeAxis, Visibility, compare_png, compare_svg, png, svg};
use traces::palette::Theme;
use traces::timeline::{Activity, Event, Stream, Timeline, Track};
use traces::{DrawError, Paper};

use crate::drawing::{Bitmap, Drawing};
use crate::example::timeline;

const PLAIN: GanttOptions = GanttOptions {
    paper: Paper { width: 1000, theme: Theme::Light, pixel_ratio: 1 },
    height: None,
    time_axis: TimeAxis::Clock,
    lanes: Visibility::Hidden,
    memory: Visibility::Hidden,
    max_tracks: 64,
};

/// Eight boxes of each pass on four ranks, one more of each in the legend; odd micro-batches darker.
#[test]
fn every_action_has_its_box_and_its_number() {
    let timeline = timeline(ScheduleKind::OneFOneB, 4, 8, 1, 1_000_000);
    let drawing = Drawing::parse(&svg(&timeline, &PLAIN).unwrap());
    for kind in [ActionKind::Forward, ActionKind::Backward] {
        let even = drawing.of_color(Theme::Light.shaded(kind, 0, 0)).len();
        let odd = drawing.of_color(Theme::Light.shaded(kind, 1, 0)).len();
        assert_eq!((even, odd), (4 * 4 + 1, 4 * 4), "{kind:?}");
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
    let forward = drawing.of_color(Theme::Light.shaded(ActionKind::Forward, 1, 0));
    let is_second = |event: &&Event| event.activity.to_string() == "0F1";
    let event = timeline.tracks[0].events.iter().find(is_second).unwrap();
    // To the quarter of a pixel, and but for the line between boxes.
    assert!((forward[0].width - all.width * event.duration().as_f64() / end).abs() < 1.3);
    assert!((forward[0].left - all.left - all.width * event.start.as_f64() / end).abs() < 0.3);
}

#[test]
fn two_that_overlap_have_half_the_height() {
    let timeline = timeline(ScheduleKind::DualPipe, 4, 8, 1, 1000);
    let drawing = Drawing::parse(&svg(&timeline, &PLAIN).unwrap());
    let row = drawing.of_color(Theme::Light.idle())[0].height;
    let boxes = [0, 1].map(|n| [0, 1].map(|chunk| (n, chunk))).concat().into_iter();
    let forward = boxes.flat_map(|(n, chunk)| {
        drawing.of_color(Theme::Light.shaded(ActionKind::Forward, n, chunk))
    });
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
fn of_many_tracks_every_nth_is_shown_and_the_picture_says_so() {
    let timeline = timeline(ScheduleKind::OneFOneB, 16, 4, 1, 1000);
    let options = GanttOptions { max_tracks: 6, ..PLAIN };
    let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
    drawing.says("6 of 16 tracks shown, every 3rd");
    drawing.says("pipeline rank 15");
    assert!(!drawing.texts.iter().any(|text| text == "pipeline rank 1"));
}

#[test]
fn a_bitmap_has_the_size_and_the_colours_asked_for() {
    let timeline = timeline(ScheduleKind::OneFOneB, 2, 1, 1, 1000);
    for theme in Theme::ALL {
        for pixel_ratio in [1, 2] {
            let paper = Paper { width: 640, theme, pixel_ratio };
            let options = GanttOptions { paper, height: Some(240), ..PLAIN };
            let bitmap = Bitmap::decode(&png(&timeline, &options).unwrap());
            assert_eq!((bitmap.width, bitmap.height), (640 * pixel_ratio, 240 * pixel_ratio));
            assert_eq!(bitmap.at(0, 0), theme.background());
            // The same picture as SVG says where the boxes are.
            let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
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
    let drawing = Drawing::parse(&compare_svg(&slow, &fast, &PLAIN).unwrap());
    let idle = drawing.of_color(Theme::Light.idle());
    let (first, last) = (idle[0], idle[7]);
    assert!((first.left - last.left).abs() < 1e-9);
    let ratio = fast.end().as_f64() / slow.end().as_f64();
    assert!((last.width / first.width - ratio).abs() < 0.002);
    drawing.says("18.8 % shorter");
    Bitmap::decode(&compare_png(&slow, &fast, &PLAIN).unwrap());
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
    let timeline = Timeline { title: "many".to_owned(), tracks: tracks.collect() };
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

    let low = GanttOptions { height: Some(50), ..PLAIN };
    let Err(DrawError::TooSmall { what: "height", least, .. }) = svg(&timeline, &low) else {
        panic!("50 pixels are too few")
    };
    svg(&timeline, &GanttOptions { height: Some(least), ..PLAIN }).unwrap();

    for (width, height) in [(u32::MAX, None), (1000, Some(u32::MAX))] {
        let long = GanttOptions { paper: Paper { width, ..PLAIN.paper }, height, ..PLAIN };
        let errors = [svg(&timeline, &long).unwrap_err(), png(&timeline, &long).unwrap_err()];
        assert!(errors.iter().all(|error| matches!(error, DrawError::TooLong { .. })));
    }
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
        let timeline = Timeline { title: String::new(), tracks: vec![track] };
        let paper = Paper { width, ..PLAIN.paper };
        let options = GanttOptions { paper, lanes: Visibility::Shown, ..PLAIN };
        let drawing = Drawing::parse(&svg(&timeline, &options).unwrap());
        for rect in &drawing.rects {
            prop_assert!(rect.left >= 0.0 && rect.left + rect.width <= drawing.width, "{rect:?}");
            prop_assert!(rect.top >= 0.0 && rect.top + rect.height <= drawing.height, "{rect:?}");
        }
    }
}
