//! Names of objects: several of them in a sentence, and whether a text is a valid one.

use std::fmt::Display;

/// The longest name of an object, in bytes.
const LONGEST_NAME: usize = 253;

/// The longest label, in bytes.
const LONGEST_LABEL: usize = 63;

/// Names beyond this many are counted, so that an event stays readable.
const AT_MOST: usize = 5;

/// The first five names, and how many more there are.
///
/// ```
/// use konverge_core::names::few;
///
/// assert_eq!(few(["a", "b"]), "a, b");
/// assert_eq!(few(1..=7), "1, 2, 3, 4, 5 and 2 more");
/// assert_eq!(few::<&str>([]), "nothing");
/// ```
pub fn few<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    let mut names = names.into_iter();
    let shown: Vec<String> = names.by_ref().take(AT_MOST).map(|name| name.to_string()).collect();
    match names.count() {
        0 if shown.is_empty() => "nothing".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns whether an object can have this name (RFC 1123, a subdomain). Any other text in a URL path could address another object.
///
/// ```
/// use konverge_core::names::is_object_name;
///
/// assert!(["web", "web.shop-1.example"].into_iter().all(is_object_name));
/// assert!(!["", "Web", "a/b", "..", "a..b", "-a", "a-", "a.-b", &"a".repeat(254)].into_iter().any(is_object_name));
/// ```
pub fn is_object_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME && text.split('.').all(is_label_of_any_length)
}

/// Returns whether the text is a domain: an [object name](is_object_name) of [labels](is_label).
pub fn is_domain(text: &str) -> bool {
    text.len() <= LONGEST_NAME && text.split('.').all(is_label)
}

/// Returns whether the text is a label (RFC 1123), as each name of a namespace is.
///
/// ```
/// use konverge_core::names::{is_domain, is_label, is_object_name};
///
/// assert!(is_label("team-a") && is_domain("apps.team-a"));
/// let long = "a".repeat(64);
/// assert!(is_object_name(&long) && !is_label(&long) && !is_domain(&long));
/// ```
pub fn is_label(text: &str) -> bool {
    text.len() <= LONGEST_LABEL && is_label_of_any_length(text)
}

/// Returns whether the text can be the value of a label, or the name of a label or a finalizer behind its domain.
pub fn is_name_segment(text: &str) -> bool {
    let is_end = |letter: char| letter.is_ascii_alphanumeric();
    let is_inner = |letter: char| is_end(letter) || "-_.".contains(letter);
    text.len() <= LONGEST_LABEL && text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(is_inner)
}

/// The API server limits the length of an object's name, and not that of its labels.
fn is_label_of_any_length(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Returns the largest index that is at most `index` and lies between two characters of the text.
///
/// The standard library has this from Rust 1.91 on, which is newer than what these crates need.
pub fn floor_char_boundary(text: &str, index: usize) -> usize {
    (0..=index.min(text.len())).rev().find(|&index| text.is_char_boundary(index)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_is_never_within_a_character() {
        let text = "aä€";
        for (index, expected) in [(0, 0), (1, 1), (2, 1), (3, 3), (4, 3), (5, 3), (6, 6), (100, 6)] {
            assert_eq!(floor_char_boundary(text, index), expected, "{index}");
        }
    }
}
