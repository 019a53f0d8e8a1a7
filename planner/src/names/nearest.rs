//! Names near to one that nothing has.

use super::folded;

/// The most names that are offered.
const MOST: usize = 3;

/// How alike names are that are offered, from 0 to 1: what clap takes for its own suggestions.
const ALIKE: f64 = 0.7;

/// Shorter names are within too many others to mean one of them.
const LEAST_WITHIN: usize = 3;

/// Those of `names` that `given` may have meant, the likeliest first, three at most; none where none is like it.
///
/// Likest are those that have fewest letters and digits to change, add, leave out or swap, for their length; a name that
/// is within the other, or begins as it does, counts as alike.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let given = folded(given);
    let likeness = |name: &str| {
        let name = folded(name);
        let edits = strsim::normalized_damerau_levenshtein(&given, &name);
        let (short, long) =
            if given.len() < name.len() { (&given, &name) } else { (&name, &given) };
        // A number of parameters, `8b`, is of few models.
        let is_size = short.ends_with('b') && short.starts_with(|c: char| c.is_ascii_digit());
        let is_within = (short.len() >= LEAST_WITHIN || (is_size && short.len() > 1))
            && long.contains(short.as_str());
        let beginning = strsim::jaro_winkler(&given, &name);
        let is_alike = is_within || beginning.max(edits) > ALIKE;
        is_alike.then_some(if is_within { 1.0 + edits } else { beginning.midpoint(edits) })
    };
    let mut alike: Vec<(f64, &str)> =
        names.into_iter().filter_map(|name| Some((likeness(name)?, name))).collect();
    // Of names that are as near, the one that is listed first.
    alike.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut nearest: Vec<&str> = Vec::new();
    for (_, name) in alike {
        if nearest.len() < MOST && !nearest.contains(&name) {
            nearest.push(name);
        }
    }
    nearest
}

/// A hint of the names nearest to `given`, and of what lists `all` of them.
pub fn or_nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>, all: &str) -> String {
    let quoted: Vec<String> =
        nearest(given, names).into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => all.to_owned(),
        [one] => format!("{one} is the nearest; {all}"),
        [others @ .., last] => format!("{} and {last} are the nearest; {all}", others.join(", ")),
    }
}
