//! Names of objects: several of them in a sentence, and whether a text is a valid one.

use std::fmt::Display;

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
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
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
