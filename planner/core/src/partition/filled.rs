//! Stages that are filled with blocks one after the other, as nanotron does.

/// Number of blocks of each of `num_stages` stages. A stage takes blocks in order until the cost so far exceeds its
/// share of the total. `None` where a stage would be empty, or where the norm before the head, which costs nothing,
/// would be on another stage than the head.
///
/// # Source
///
/// `build_model` of `nanotron/models/base.py`, nanotron 0.4.
pub fn filled(costs: &[u64], num_stages: u32) -> Option<Vec<u32>> {
    let (head, others) = costs.split_last()?;
    let all: u64 = costs.iter().sum();
    let share = |stage: u32| all as f64 * (f64::from(stage + 1) / f64::from(num_stages));
    let mut counts = vec![0; num_stages as usize];
    let (mut stage, mut so_far) = (0, 0);
    let mut put = |cost: u64, counted: u32| {
        so_far += cost;
        let here = stage;
        counts[here as usize] += counted;
        if so_far as f64 > share(stage) && stage + 1 < num_stages {
            stage += 1;
        }
        here
    };
    for cost in others {
        put(*cost, 1);
    }
    let of_norm = put(0, 0);
    let of_head = put(*head, 1);
    (of_norm == of_head && counts.iter().all(|count| *count > 0)).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers worked out by hand from `build_model`: a Llama 2 7B's head costs 0.65 layers.
    #[test]
    fn stages_are_those_of_build_model() {
        let layer = 4 * 4096 * 4096 + 3 * 11_008 * 4096;
        let llama: Vec<u64> = [&[0][..], &[layer; 32], &[32_000 * 4096]].concat();
        assert_eq!(filled(&llama, 1), Some(vec![34]));
        assert_eq!(filled(&llama, 2), Some(vec![18, 16]));
        assert_eq!(filled(&llama, 4), Some(vec![10, 8, 8, 8]));
        assert_eq!(filled(&llama, 64), None);
    }
}
