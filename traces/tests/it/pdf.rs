//! PDF files: of the size of the picture, with text that is text.

use std::io::Read as _;

use flate2::read::ZlibDecoder;
use ir::schedule::ScheduleKind;
use traces::gantt::{self, GanttOptions};
use traces::{ImageFormat, Paper};

use crate::drawing::Drawing;
use crate::example::timeline;

/// What stands between two marks.
fn between<'a>(bytes: &'a [u8], start: &[u8], end: &[u8]) -> Option<&'a [u8]> {
    let find = |bytes: &[u8], mark: &[u8]| bytes.windows(mark.len()).position(|it| it == mark);
    let rest = &bytes[find(bytes, start)? + start.len()..];
    Some(&rest[..find(rest, end)?])
}

#[test]
fn a_page_has_the_size_of_the_picture_and_what_is_in_it() {
    let timeline = timeline(ScheduleKind::OneFOneB, 2, 2, 1, 1000);
    let paper = Paper { width: 800, ..Paper::default() };
    let options = GanttOptions { paper, ..GanttOptions::default() };
    let drawing = gantt::draw(&[&timeline], &options).unwrap();
    let file = drawing.file(ImageFormat::Pdf).unwrap();
    assert!(file.starts_with(b"%PDF-") && file.trim_ascii_end().ends_with(b"%%EOF"));
    // Three quarters of a point a pixel.
    let size = between(&file, b"/MediaBox [", b"]").unwrap();
    let height = Drawing::parse(&drawing.svg().unwrap()).height * 0.75;
    assert_eq!(size, format!("0 0 600 {height}").as_bytes());
    let packed = between(&file, b"/FlateDecode\n>>\nstream\n", b"\nendstream").unwrap();
    let mut content = String::new();
    ZlibDecoder::new(packed).read_to_string(&mut content).unwrap();
    // Four forwards and four backwards at least, in the colour of the palette; and titles and numbers.
    assert!(content.matches(" re").count() > 8, "{content}");
    assert!(content.matches("\nBT\n").count() > 8, "{content}");
    let forward = format!("{:.3}", 86.0 / 255.0);
    assert!(content.contains(&forward[..4]), "{content}");
    // Letters are glyphs of the embedded font, and the file says what each stands for.
    assert!(between(&file, b"/FontFile2 ", b"R").is_some());
    let meanings = between(&file, b"beginbfchar", b"endcmap").unwrap();
    for letter in "pielnrak0123".chars() {
        let code = format!("> <{:04X}>", u32::from(letter));
        let is_there = meanings.windows(code.len()).any(|it| it == code.as_bytes());
        assert!(is_there, "{letter} in {}", String::from_utf8_lossy(meanings));
    }
    assert_eq!(file, gantt::draw(&[&timeline], &options).unwrap().file(ImageFormat::Pdf).unwrap());
}
