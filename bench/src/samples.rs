//! Latency samples and the percentiles that are quoted from them.

use std::time::Duration;

/// Durations of one subject in one run.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest sample that at least `percent` of all are not above (nearest rank); zero when there are none.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(milliseconds: impl IntoIterator<Item = u64>) -> Samples {
        Samples(milliseconds.into_iter().map(Duration::from_millis).collect())
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let hundred = samples((1..=100).rev());
        for (percent, expected) in [(50, 50), (99, 99), (100, 100), (1, 1)] {
            assert_eq!(hundred.percentile(percent), Duration::from_millis(expected), "p{percent}");
        }
    }

    #[test]
    fn few_samples_give_the_worst_for_p99() {
        assert_eq!(samples([3, 9, 4]).percentile(99), Duration::from_millis(9));
        assert_eq!(samples([]).percentile(99), Duration::ZERO);
    }
}
