//! Whether two values mean the same to the API server, which has its own spelling of quantities, durations and times.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Whether the API server may show `wanted` as `stored`.
pub(super) fn is_semantically_equal(wanted: &Value, stored: &Value) -> bool {
    match (wanted, stored) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::String(one), Value::String(other)) => one == other || is_same_text(one, other),
        // A quantity may be written as a number and always comes back as text.
        (Value::Number(number), Value::String(text)) => is_same_text(&number.to_string(), text),
        (wanted, stored) => wanted == stored,
    }
}

fn is_same_text(one: &str, other: &str) -> bool {
    fn is_same<T: PartialEq>(one: &str, other: &str, read: impl Fn(&str) -> Option<T>) -> bool {
        matches!((read(one), read(other)), (Some(one), Some(other)) if one == other)
    }
    is_same(one, other, quantity)
        || is_same(one, other, nanoseconds)
        || is_same(one, other, |text| text.parse::<Timestamp>().ok().map(Timestamp::as_second))
}

/// A number of Kubernetes such as `500m` or `1Gi`, in billionths; nothing if it is none or too large.
fn quantity(text: &str) -> Option<i128> {
    const BILLION: i128 = 1_000_000_000;
    let end = text.rfind(|character: char| character.is_ascii_digit() || character == '.')? + 1;
    // An exponent has digits behind its letter.
    let exponent = text.find(['e', 'E']).filter(|&position| position + 1 < text.len());
    let (number, suffix) = text.split_at(exponent.unwrap_or(end));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_negative = whole.starts_with('-');
    let digits = whole.trim_start_matches(['+', '-']);
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() > digits.len() + 1
        || !all_digits(digits)
        || !all_digits(fraction)
        || digits.len() + fraction.len() == 0
    {
        return None;
    }
    let (mut value, scale) = (format!("{digits}{fraction}").parse::<i128>().ok()?, u32::try_from(fraction.len()).ok()?);
    let power = |base: i128, exponent: u32| base.checked_pow(exponent);
    let (multiplier, divisor) = match suffix {
        "" => (1, 1),
        "n" => (1, power(10, 9)?),
        "u" => (1, power(10, 6)?),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (power(10, 6)?, 1),
        "G" => (power(10, 9)?, 1),
        "T" => (power(10, 12)?, 1),
        "P" => (power(10, 15)?, 1),
        "E" => (power(10, 18)?, 1),
        "Ki" => (power(1024, 1)?, 1),
        "Mi" => (power(1024, 2)?, 1),
        "Gi" => (power(1024, 3)?, 1),
        "Ti" => (power(1024, 4)?, 1),
        "Pi" => (power(1024, 5)?, 1),
        "Ei" => (power(1024, 6)?, 1),
        _ => match suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()? {
            exponent @ 0.. => (power(10, exponent.unsigned_abs())?, 1),
            exponent => (1, power(10, exponent.unsigned_abs())?),
        },
    };
    value = value.checked_mul(BILLION)?.checked_mul(multiplier)?;
    let divisor = power(10, scale)?.checked_mul(divisor)?;
    // Kubernetes keeps no more than billionths and rounds them up.
    value = value / divisor + i128::from(value % divisor != 0);
    Some(if is_negative { -value } else { value })
}

/// A duration of Go such as `1h30m`; nothing if it is none.
fn nanoseconds(text: &str) -> Option<i128> {
    let mut rest = text.strip_prefix('-').unwrap_or(text);
    let mut total = 0_i128;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let unit_at = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, behind) = rest.split_at(unit_at);
        let end = behind.find(|character: char| character.is_ascii_digit() || character == '.').unwrap_or(behind.len());
        let (unit, next) = behind.split_at(end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        // Billionths of the unit are enough for what Go prints.
        let number = quantity(number)?;
        total = total.checked_add(number.checked_mul(unit)? / 1_000_000_000)?;
        rest = next;
    }
    Some(if text.starts_with('-') { -total } else { total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_the_same_in_every_spelling() {
        let same = [
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1024Mi", "1Gi"),
            ("1e3", "1k"),
            ("1E3", "1000"),
            ("1.5e-3", "1500u"),
            ("-2", "-2000m"),
            ("+2", "2"),
            ("2E", "2000P"),
            ("60m", "1h0m0s"),
            ("1.5h", "1h30m0s"),
            ("90s", "1m30s"),
            ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00Z"),
            ("2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00Z"),
        ];
        for (one, other) in same {
            assert!(is_same_text(one, other) && is_same_text(other, one), "{one} {other}");
        }
        let others = [
            ("1", "2"),
            ("1m", "1M"),
            ("1Gi", "1G"),
            ("1h", "1m"),
            ("a", "b"),
            ("", "0"),
            ("m", "0"),
            ("-", "0"),
            ("--1", "1"),
            ("1.2.3", "1.2"),
            ("web:1", "web:1.0"),
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
            ("9999999999999999999999999999999999999999", "1"),
        ];
        for (one, other) in others {
            assert!(!is_same_text(one, other) && !is_same_text(other, one), "{one} {other}");
        }
    }
}
