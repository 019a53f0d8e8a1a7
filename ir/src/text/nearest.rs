//! Known names that are nearest to an unknown one.

use super::folded;

/// The largest number of names that are offered.
const MOST: usize = 3;

/// The smallest similarity of a name that is offered, where neither contains the other.
const LEAST_SIMILARITY: f64 = 0.6;

/// The smallest length of a contained name: shorter names are contained in too many others.
const LEAST_WITHIN: usize = 3;

/// Similarity of two names, from 0 to 1: one minus the edits (change, add, leave out or swap) of letters and digits
/// over the length of the longer name.
pub fn similarity(one: &str, other: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(&folded(one), &folded(other))
}

/// The `names` that `given` may stand for, by [`similarity`], at most three; empty where none is similar.
///
/// A name that contains the other, or is contained in it, ranks before all others. In a tie, the name that is listed
/// first comes first.
///
/// ```
/// assert_eq!(ir::text::nearest("lama-3-8b", ["gpt2", "llama-3-8b"]), ["llama-3-8b"]);
/// ```
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let given = folded(given);
    let likeness = |name: &str| {
        let name = folded(name);
        let similarity = strsim::normalized_damerau_levenshtein(&given, &name);
        let (short, long) =
            if given.len() < name.len() { (&given, &name) } else { (&name, &given) };
        // Few models have a number of parameters, such as `8b`, in their names.
        let is_size = short.ends_with('b') && short.starts_with(|c: char| c.is_ascii_digit());
        let is_within = (short.len() >= LEAST_WITHIN || (is_size && short.len() > 1))
            && long.contains(short.as_str());
        let is_alike = is_within || similarity >= LEAST_SIMILARITY;
        is_alike.then_some(similarity + f64::from(u8::from(is_within)))
    };
    let mut alike: Vec<(f64, &str)> =
        names.into_iter().filter_map(|name| Some((likeness(name)?, name))).collect();
    alike.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut nearest: Vec<&str> = Vec::new();
    for (_, name) in alike {
        if nearest.len() < MOST && !nearest.contains(&name) {
            nearest.push(name);
        }
    }
    nearest
}
