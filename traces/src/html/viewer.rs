//! The page of timelines as a part of another page, which chooses the timelines that are shown.

use std::cell::Cell;

use ir::units::Nanos;
use serde_json::json;

use super::{columns, script_json, with_data};
use crate::gantt::TimeAxis;
use crate::timeline::Timeline;

/// JSON that may be in a `script` element. `before` and `after` are the page around its data; `data` is the data of all
/// timelines.
///
/// A page consists of `before`, the data with the chosen ones of `data.timelines`, each `<` in it written `\u003c`,
/// and `after`.
pub fn viewer(timelines: &[&Timeline]) -> String {
    let place = Cell::new(0);
    let page = with_data(timelines, TimeAxis::Clock, |page| place.set(page.len()));
    let (before, after) = page.split_at(place.get());
    let parts = script_json(&json!({ "before": before, "after": after }));
    let data = columns::json(timelines, TimeAxis::Clock, [Nanos::ZERO; 2]);
    format!("{},\"data\":{data}}}", parts.trim_end_matches('}'))
}
