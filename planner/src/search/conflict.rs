//! What of a user's lists leaves nothing to search.

use ir::layout::{Among, PartialLayout};

use super::space::Space;
use crate::problem::Problem;

/// The fewest of the lists among which a search may choose that together, beside what is fixed, leave no layout; none
/// if what is fixed leaves none by itself, or some are left.
pub fn conflicting(
    problem: &Problem,
    fixed: &PartialLayout,
) -> Option<Vec<(&'static str, String)>> {
    let restrictions = fixed.among.restrictions();
    let leaves = |kept: u32| {
        let mut among = fixed.among;
        for (place, (option, _)) in restrictions.iter().enumerate() {
            if kept & 1 << place == 0 {
                among = among.without(option);
            }
        }
        let fixed = PartialLayout { among, ..*fixed };
        Space::new(problem, &fixed).has_layouts(problem, &fixed)
    };
    if fixed.among == Among::default() || !leaves(0) {
        return None;
    }
    let mut sets: Vec<u32> = (1..1u32 << restrictions.len()).collect();
    sets.sort_by_key(|set| set.count_ones());
    let conflict = sets.into_iter().find(|set| !leaves(*set))?;
    let of_conflict = restrictions.into_iter().enumerate();
    let of_conflict = of_conflict.filter(|(place, _)| conflict & 1 << place != 0);
    Some(of_conflict.map(|(_, restriction)| restriction).collect())
}
