//! The value of `VAULT_RATE_LIMIT`: `rate[:burst]`. Pure.

/// Requests in a second and at once; a rate of 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) per_second: u32,
    pub(super) burst: u32,
    /// Whether it is not exactly what was written.
    pub(super) rounded: bool,
}

impl Rate {
    /// The requests in a second, and as many at once.
    pub(super) fn whole(rate: u32) -> Self {
        Self { per_second: rate, burst: rate, rounded: false }
    }
}

/// A number, which may have a fraction, and a whole number behind a colon. Without it as many may come at once as in a second.
pub(super) fn parse(text: &str) -> Option<Rate> {
    let (rate, burst) = text.split_once(':').map_or((text, None), |(rate, burst)| (rate, Some(burst)));
    let exact: f64 = rate.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0)?;
    let per_second = if exact == 0.0 { 0 } else { rounded(exact) };
    let burst = burst.map_or(Some(per_second), |burst| burst.parse().ok())?;
    Some(Rate { per_second, burst, rounded: (f64::from(per_second) - exact).abs() > f64::EPSILON })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is above zero, and casts of floats saturate"
)]
fn rounded(rate: f64) -> u32 {
    (rate.round() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        for (text, expected) in [
            ("100", Some((100, 100, false))),
            ("100:200", Some((100, 200, false))),
            ("0", Some((0, 0, false))),
            ("2.5", Some((3, 3, true))),
            ("0.1:5", Some((1, 5, true))),
            ("1e20", Some((u32::MAX, u32::MAX, true))),
            ("-1", None),
            ("inf", None),
            ("", None),
            ("ten", None),
            ("10:", None),
            ("10:x", None),
            ("10:-1", None),
        ] {
            let rate = parse(text).map(|Rate { per_second, burst, rounded }| (per_second, burst, rounded));
            assert_eq!(rate, expected, "{text}");
        }
    }
}
