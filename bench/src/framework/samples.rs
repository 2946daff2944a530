//! Figures of several turns, by framework, in milliseconds or bytes.

use super::field::Framework;

#[derive(Debug, Default)]
pub(crate) struct Turns([Vec<f64>; 3]);

impl Turns {
    pub(crate) fn of(&mut self, framework: Framework) -> &mut Vec<f64> {
        let [konverge, kube_runtime, koprs] = &mut self.0;
        match framework {
            Framework::Konverge => konverge,
            Framework::KubeRuntime => kube_runtime,
            Framework::Koprs => koprs,
        }
    }
}

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

    #[test]
    fn percentiles_are_nearest_rank_and_may_be_negative() {
        for (samples, percent, expected) in
            [(&[3.0, -1.0, 2.0][..], 50, 2.0), (&[3.0, -1.0, 2.0], 99, 3.0), (&[-1.0], 50, -1.0), (&[], 99, 0.0)]
        {
            assert!((percentile(samples, percent) - expected).abs() < f64::EPSILON, "p{percent} of {samples:?}");
        }
    }
}
