//! A browser without a window, as tests use it: a page is opened, a script uses it, and what that saw comes back.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// Where browsers are looked for on the path.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A browser that takes longer is ended.
const MOST_SECONDS: u32 = 50;

/// What `reader`, a script at the end of `page`, gives to `window.leave`; nothing may have gone wrong on the page.
/// None if there is no browser.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub(crate) fn seen(page: &str, reader: &str) -> Option<Value> {
    let Some(browser) = browser() else {
        eprintln!("skipped: no {} on the path, and `CHROMIUM` is not set", BROWSERS.join(", "));
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(&file, with_reader(page, reader)).unwrap();
    let dump = dump(&browser, folder.path(), &file);
    let saw = dump.split_once("<pre id=\"saw\">{").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (saw, _) =
        saw.unwrap_or_else(|| panic!("{}: the reader came to no end", browser.display()));
    // The document has its own escapes.
    let saw = saw.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let saw: Value = serde_json::from_str(&format!("{{{saw}")).unwrap();
    assert_eq!(saw["problems"], json!([]), "the page has no errors");
    Some(saw)
}

/// The page, watched from its start and used at its end.
fn with_reader(page: &str, reader: &str) -> String {
    let watch = include_str!("watch.js");
    let (head, rest) = page.split_once("<head>").unwrap();
    let (body, tail) = rest.rsplit_once("</body>").unwrap();
    format!("{head}<head><script>{watch}</script>{body}<script>{reader}</script></body>{tail}")
}

/// The document as it is once the reader is done.
fn dump(browser: &Path, folder: &Path, file: &Path) -> String {
    let output = folder.join("dump.html");
    let child = Command::new(browser)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--disable-extensions", "--window-size=1400,900"])
        .args(["--virtual-time-budget=60000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(File::create(&output).unwrap())
        .stderr(File::create(folder.join("log")).unwrap())
        .spawn();
    let mut browser = Running(child.unwrap());
    for _ in 0..MOST_SECONDS * 10 {
        if browser.0.try_wait().unwrap().is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    drop(browser);
    fs::read_to_string(output).unwrap()
}

/// A browser that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The browser that `CHROMIUM` names, or the first on the path.
fn browser() -> Option<PathBuf> {
    if let Some(named) = env::var_os("CHROMIUM") {
        return Some(named.into());
    }
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
    let places =
        BROWSERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    places.into_iter().find(|place| place.is_file())
}
