//! The writer of Java's properties files.

use konverge_core::SecretValue;

/// Writes one line per value. All but printable ASCII is escaped, so that the file is the same in ISO 8859-1 and UTF-8.
pub(crate) fn format(values: &[(&str, &str)]) -> SecretValue {
    let mut length = 0;
    write(values, |piece| length += piece.len());
    // A buffer that grew would leave copies of values behind.
    let mut text = Vec::with_capacity(length);
    write(values, |piece| text.extend_from_slice(piece.as_bytes()));
    SecretValue::new(text)
}

fn write(values: &[(&str, &str)], mut push: impl FnMut(&str)) {
    for (key, value) in values {
        for character in key.chars() {
            escape(character, " =:#!".contains(character), &mut push);
        }
        push("=");
        for (index, character) in value.chars().enumerate() {
            // A reader drops white space before the value.
            escape(character, index == 0 && character == ' ', &mut push);
        }
        push("\n");
    }
}

/// Writes one character. `is_special` says whether it needs a backslash at this place.
fn escape(character: char, is_special: bool, push: &mut impl FnMut(&str)) {
    match character {
        '\\' => push("\\\\"),
        '\n' => push("\\n"),
        '\r' => push("\\r"),
        '\t' => push("\\t"),
        '\x0c' => push("\\f"),
        ' '..='~' => {
            if is_special {
                push("\\");
            }
            push(character.encode_utf8(&mut [0; 4]));
        }
        _ => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                push(&format!("\\u{unit:04x}"));
            }
        }
    }
}
