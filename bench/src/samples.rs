//! The percentiles that are quoted from samples.

/// The smallest sample that at least `percent` of all are not above (nearest rank); zero when there are none.
pub(crate) fn percentile(samples: &[f64], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

pub(crate) fn median(samples: &[f64]) -> f64 {
    percentile(samples, 50)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(samples: &[f64], percent: usize, expected: f64) {
        assert!((percentile(samples, percent) - expected).abs() < f64::EPSILON, "p{percent} of {samples:?}");
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (percent, expected) in [(50, 50.0), (99, 99.0), (100, 100.0), (1, 1.0)] {
            is(&hundred, percent, expected);
        }
    }

    #[test]
    fn few_samples_give_the_worst_for_p99_and_any_may_be_negative() {
        is(&[3.0, -1.0, 4.0], 99, 4.0);
        is(&[3.0, -1.0, 2.0], 50, 2.0);
        is(&[-1.0], 50, -1.0);
        is(&[], 99, 0.0);
    }
}
