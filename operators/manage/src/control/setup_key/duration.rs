//! Durations as the custom resources spell them.

/// Returns the seconds of a text such as `720h`, `1.5h30m` or `30d`, or why it is no duration.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("has {text:?}; write numbers with units, such as 720h or 1h30m");
    let (mut total, mut number) = (0.0, String::new());
    for character in text.chars() {
        let unit = match character {
            '0'..='9' | '.' => {
                number.push(character);
                continue;
            }
            's' => 1.0,
            'm' => 60.0,
            'h' => 3600.0,
            'd' => 86_400.0,
            'w' => 604_800.0,
            _ => return Err(wrong()),
        };
        total += unit * std::mem::take(&mut number).parse::<f64>().map_err(|_| wrong())?;
    }
    if !number.is_empty() || total < 1.0 {
        return Err(wrong());
    }
    // More than a century is for ever for all that is concerned, and the server adds it to a date.
    if total > 100.0 * 366.0 * 86_400.0 {
        return Err(format!("has {text:?}, which is longer than a century; leave it out for a key without end"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and a century")]
    let whole = total.round() as u64;
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_numbers_and_units() {
        for (text, expected) in [
            ("720h", Some(2_592_000)),
            ("1.5h", Some(5400)),
            ("1h30m", Some(5400)),
            ("30d", Some(2_592_000)),
            ("2w", Some(1_209_600)),
            ("90s", Some(90)),
            ("", None),
            ("5", None),
            ("h", None),
            ("1y", None),
            ("1..5h", None),
            ("0h", None),
            ("9999999999w", None),
        ] {
            assert_eq!(seconds(text).ok(), expected, "{text}");
        }
    }
}
