//! Names in a sentence.

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
