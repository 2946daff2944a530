//! Spans of time as Go writes them: `90s`, `1h30m`, `-1.5h`. Pure.
//!
//! The original parses intervals with Go's `time.ParseDuration`, so what that takes is taken here with the same result, to the
//! nanosecond, and what it refuses is refused.

use jiff::SignedDuration;

/// Go's largest span in nanoseconds, plus one: the smallest is that far below zero.
const BOUND: u64 = 1 << 63;

/// The text is no span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// It has no number where one belongs.
    #[error("a number with a unit is expected, such as 90s, 5m or 1h30m")]
    NoNumber,
    /// A number has no unit.
    #[error("the unit is missing; write for example 90s or 5m")]
    NoUnit,
    /// There is no such unit.
    #[error("it has a unit that is none of ns, us, ms, s, m and h")]
    UnknownUnit,
    /// It is beyond some 292 years.
    #[error("it is longer than 292 years")]
    TooLong,
}

/// Reads a span. One of several parts is their sum, and one sign counts for all.
pub fn parse(text: &str) -> Result<SignedDuration, SpanError> {
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    // The only number that needs no unit.
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(SpanError::NoNumber);
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (part, after) = part(rest)?;
        total = total.checked_add(part).filter(|total| *total <= BOUND).ok_or(SpanError::TooLong)?;
        rest = after;
    }
    let signed = if negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() };
    signed.map(SignedDuration::from_nanos).ok_or(SpanError::TooLong)
}

/// The nanoseconds of the first part, such as `1.5h`, and what comes after it.
fn part(text: &str) -> Result<(u64, &str), SpanError> {
    let (digits, mut rest) = split_digits(text);
    let mut decimals = "";
    if let Some(after) = rest.strip_prefix('.') {
        (decimals, rest) = split_digits(after);
    }
    if digits.is_empty() && decimals.is_empty() {
        return Err(SpanError::NoNumber);
    }
    let whole = whole(digits)?;
    let end = rest.find(|letter: char| letter == '.' || letter.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let unit = nanoseconds_of(unit)?;
    let whole = whole.checked_mul(unit).filter(|whole| *whole <= BOUND).ok_or(SpanError::TooLong)?;
    let sum = whole.checked_add(fraction(decimals, unit)).filter(|sum| *sum <= BOUND);
    Ok((sum.ok_or(SpanError::TooLong)?, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn whole(digits: &str) -> Result<u64, SpanError> {
    if digits.is_empty() {
        return Ok(0);
    }
    digits.parse().ok().filter(|whole| *whole <= BOUND).ok_or(SpanError::TooLong)
}

/// The value of the digits after the point, cut to whole nanoseconds.
///
/// In floating point, because Go does so: `0.3333333333333333333h` is twenty minutes there, and exact arithmetic stops short of it.
/// Digits beyond the precision of 63 bits count for nothing.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the result is that of Go only with the same roundings; it is not negative and at most an hour"
)]
fn fraction(decimals: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0_f64);
    for digit in decimals.bytes().map(|digit| u64::from(digit - b'0')) {
        let Some(next) = (value <= (BOUND - 1) / 10).then(|| value * 10 + digit).filter(|next| *next <= BOUND) else {
            break;
        };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

fn nanoseconds_of(unit: &str) -> Result<u64, SpanError> {
    match unit {
        "ns" => Ok(1),
        // The sign for micro and the Greek letter, which look alike.
        "us" | "\u{b5}s" | "\u{3bc}s" => Ok(1_000),
        "ms" => Ok(1_000_000),
        "s" => Ok(1_000_000_000),
        "m" => Ok(60 * 1_000_000_000),
        "h" => Ok(3_600 * 1_000_000_000),
        "" => Err(SpanError::NoUnit),
        _ => Err(SpanError::UnknownUnit),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn spans_as_go_has_them() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("0s", 0),
            ("5s", 5 * SECOND),
            ("1478s", 1478 * SECOND),
            ("-5s", -5 * SECOND),
            ("+5s", 5 * SECOND),
            ("5.s", 5 * SECOND),
            (".5s", SECOND / 2),
            ("1.004s", SECOND + 4_000_000),
            ("100.00100s", 100 * SECOND + 1_000_000),
            ("11us", 11_000),
            ("12µs", 12_000),
            ("12μs", 12_000),
            ("13ms", 13_000_000),
            ("14ns", 14),
            ("1.9ns", 1),
            ("3h30m", 12_600 * SECOND),
            ("1.5h", 5_400 * SECOND),
            ("10.5s4m", 250 * SECOND + SECOND / 2),
            ("1h2m3s4ms5us6ns", 3_723 * SECOND + 4_005_006),
            ("-2m3.4s", -(123 * SECOND + 400_000_000)),
            ("1s1s", 2 * SECOND),
            ("1h.5m", 3_630 * SECOND),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("-9223372036854775.808us", i64::MIN),
            ("-9223372036s854775808ns", i64::MIN),
            ("9007199254.740993ms", 9_007_199_254_740_993),
            ("0.100000000000000000000h", 360 * SECOND),
            ("0.3333333333333333333h", 1_200 * SECOND),
            ("0.830103483285477580700h", 2_988 * SECOND + 372_539_827),
            ("0.9223372036854775807h", 3_320 * SECOND + 413_933_267),
        ] {
            assert_eq!(parse(text), Ok(SignedDuration::from_nanos(expected)), "{text}");
        }
    }

    #[test]
    fn what_go_refuses() {
        use SpanError::{NoNumber, NoUnit, TooLong, UnknownUnit};
        for (text, expected) in [
            ("", NoNumber),
            ("-", NoNumber),
            ("s", NoNumber),
            (".", NoNumber),
            (".s", NoNumber),
            ("-.", NoNumber),
            ("+.s", NoNumber),
            ("--5s", NoNumber),
            (" 5s", NoNumber),
            ("Off", NoNumber),
            ("5", NoUnit),
            ("00", NoUnit),
            ("1.", NoUnit),
            ("5m5", NoUnit),
            ("1d", UnknownUnit),
            ("5S", UnknownUnit),
            ("5 s", UnknownUnit),
            ("5s ", UnknownUnit),
            ("5m-3s", UnknownUnit),
            ("1é", UnknownUnit),
            ("9223372036854775808ns", TooLong),
            ("9223372036854775810ns", TooLong),
            ("-9223372036854775809ns", TooLong),
            ("99999999999999999999999s", TooLong),
            ("9223372036854ms775us808ns", TooLong),
            ("3000000h", TooLong),
        ] {
            assert_eq!(parse(text), Err(expected), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_stumble(text in "[-+0-9.hmsnuµx ]{0,24}") {
            let _ = parse(&text);
        }

        #[test]
        fn a_span_is_the_sum_of_its_parts(hours in 0..1000_i64, minutes in 0..1000_i64, seconds in 0..1000_i64, nanos in 0..1000_i64) {
            let text = format!("{hours}h{nanos}ns{minutes}m{seconds}s");
            let expected = (hours * 3600 + minutes * 60 + seconds) * SECOND + nanos;
            prop_assert_eq!(parse(&text), Ok(SignedDuration::from_nanos(expected)));
            prop_assert_eq!(parse(&format!("-{text}")), Ok(SignedDuration::from_nanos(-expected)));
        }
    }
}
