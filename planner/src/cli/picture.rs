//! Options of pictures: format, time window and style.

use std::path::Path;

use anyhow::bail;
use traces::gantt::{GanttOptions, Visibility, Window};
use traces::palette::Theme;
use traces::{ImageFormat, Paper};

use super::args::{LanesArg, LookArgs, ThemeArg};
use super::files::ending;
use command_line::destination::is_dash;

impl LookArgs {
    /// Style and window of a drawing of timelines.
    pub(crate) fn options(&self) -> GanttOptions {
        let window = self.first_micro_batches.map_or(Window::Whole, Window::FirstMicroBatches);
        let lanes = match self.lanes {
            LanesArg::Auto => Visibility::Auto,
            LanesArg::Shown => Visibility::Shown,
            LanesArg::Hidden => Visibility::Hidden,
        };
        GanttOptions { paper: self.paper(), window, lanes, ..GanttOptions::default() }
    }

    pub(crate) fn paper(&self) -> Paper {
        let default = Paper::default();
        let width = self.width.unwrap_or(default.width);
        Paper { width, theme: self.theme.theme(), ..default }
    }
}

impl ThemeArg {
    pub(crate) const fn theme(self) -> Theme {
        match self {
            Self::Light => Theme::Light,
            Self::Dark => Theme::Dark,
        }
    }
}

/// Format of a picture or trace, from the ending of its file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PictureFormat {
    Image(ImageFormat),
    Page,
    Trace,
    Snapshot,
}

impl PictureFormat {
    /// Format from the ending of a path; for stdout, SVG, which is text.
    pub(crate) fn of(path: &Path) -> anyhow::Result<Self> {
        let image = |format| Ok(Self::Image(format));
        match ending(path).as_deref() {
            _ if is_dash(path) => image(ImageFormat::Svg),
            Some("svg") => image(ImageFormat::Svg),
            Some("png") => image(ImageFormat::Png),
            Some("pdf") => image(ImageFormat::Pdf),
            Some("html") => Ok(Self::Page),
            Some("json") => Ok(Self::Trace),
            Some("pickle") => Ok(Self::Snapshot),
            _ => bail!(
                "`{}` does not say what to draw; it must end in .svg, .png, .pdf, .html or .json; or in .pickle with `--show memory`",
                path.display()
            ),
        }
    }
}

/// Endings that name a file format; the format must then be the right one.
const TELLING: [&str; 26] = [
    "bmp", "csv", "docx", "eps", "gif", "htm", "html", "jpeg", "jpg", "md", "npy", "pdf", "pickle",
    "png", "py", "sh", "svg", "tiff", "toml", "txt", "webp", "xlsx", "xml", "yaml", "yml", "zip",
];

/// Endings of compressed files.
const PACKED: [&str; 6] = ["bz2", "gz", "tar", "tgz", "xz", "zst"];

/// Refuses a file whose ending names a format other than those in `works`, which are the endings for the content
/// `what`. `draws` is a hint on the command that draws a picture.
pub(crate) fn refuse_other_endings(
    path: &Path,
    what: &str,
    works: &[&str],
    draws: Option<&str>,
) -> anyhow::Result<()> {
    let ending = ending(path);
    let is_packed = ending.as_deref().is_some_and(|it| PACKED.contains(&it));
    let ending = ending.filter(|it| is_packed || TELLING.contains(&it.as_str()));
    let Some(ending) = ending else { return Ok(()) };
    if works.contains(&ending.as_str()) {
        return Ok(());
    }
    let unpacked = if is_packed { path.with_extension("") } else { path.to_owned() };
    let instead = unpacked.with_extension(works.first().copied().unwrap_or_default());
    let is_picture = ["svg", "png", "pdf", "html"].contains(&ending.as_str());
    let draws = draws.filter(|_| is_picture).map_or_else(String::new, |draws| format!("; {draws}"));
    bail!(
        "`{}` cannot be {what}, which ends in .{}\nhint: `-o {}`{draws}",
        path.display(),
        works.join(" or ."),
        instead.display()
    )
}

/// Format of the image into which `what` is drawn.
pub(crate) fn image_format(path: &Path, what: &str) -> anyhow::Result<ImageFormat> {
    let Ok(PictureFormat::Image(format)) = PictureFormat::of(path) else {
        bail!(
            "{what} is drawn as .svg, .png or .pdf, but `{}` ends in none of these",
            path.display()
        )
    };
    Ok(format)
}
