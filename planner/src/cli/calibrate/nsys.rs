//! Reader of the SQLite tables of an Nsight Systems export.

use std::path::Path;

use anyhow::{Context as _, ensure};
use planner_evidence::measured::nsys::{KernelRow, RangeRow, profiles};
use planner_evidence::measured::profile::Profile;
use rusqlite::{Connection, OpenFlags};

const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const RANGES: &str = "NVTX_EVENTS";

/// Profiles of the recorded GPUs.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Profile>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    let broken = "the database is cut off or broken\nhint: export it again, and copy it whole";
    let columns = |table: &str| -> rusqlite::Result<Vec<String>> {
        let mut rows = database.prepare("SELECT name FROM pragma_table_info(?1)")?;
        rows.query_map([table], |row| row.get(0))?.collect()
    };
    for table in [KERNELS, "StringIds"] {
        ensure!(
            !columns(table).context(broken)?.is_empty(),
            "the database has no table `{table}`, so it is no export of Nsight Systems, or of a run without GPUs\nhint: \
             `nsys export --type sqlite`, of `nsys profile --trace cuda,nvtx ..`"
        );
    }
    let mut rows = database.prepare(&format!(
        "SELECT k.start, k.end, k.deviceId, s.value FROM {KERNELS} k JOIN StringIds s ON s.id = k.demangledName"
    ))?;
    let kernel = |row: &rusqlite::Row<'_>| {
        Ok(KernelRow { span: [row.get(0)?, row.get(1)?], device: row.get(2)?, name: row.get(3)? })
    };
    let kernels: rusqlite::Result<Vec<KernelRow>> = rows.query_map([], kernel)?.collect();
    let kernels = kernels.context(broken)?;
    let of_ranges = columns(RANGES).context(broken)?;
    let mut ranges = Vec::new();
    if !of_ranges.is_empty() {
        // Older exports have no column `textId`.
        let has_ids = of_ranges.iter().any(|name| name == "textId");
        let (text, joined) = if has_ids {
            ("COALESCE(n.text, s.value)", "LEFT JOIN StringIds s ON s.id = n.textId")
        } else {
            ("n.text", "")
        };
        let mut rows = database.prepare(&format!(
            "SELECT n.start, n.end, {text} FROM {RANGES} n {joined} WHERE n.end IS NOT NULL"
        ))?;
        let range = |row: &rusqlite::Row<'_>| {
            let text: Option<String> = row.get(2)?;
            Ok(RangeRow { span: [row.get(0)?, row.get(1)?], text: text.unwrap_or_default() })
        };
        let found: rusqlite::Result<Vec<RangeRow>> = rows.query_map([], range)?.collect();
        ranges = found.context(broken)?;
    }
    Ok(profiles(&kernels, &ranges)?)
}
