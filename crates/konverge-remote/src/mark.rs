//! The mark by which an item on the server shows which object it belongs to.

use std::fmt;

/// The word that begins a mark, wherever it is in a text.
const WORD: &str = "konverge=";
/// The end of a mark whose item stays. No other part of a mark can contain the semicolon.
const STAYS: &str = ";stays";

/// Names the object, and the cluster of the object, that an item belongs to. It is written into a field of the item that takes free text, such
/// as a description, a tag or a part of the name.
///
/// ```
/// use konverge_remote::Mark;
///
/// let mark = Mark::new("c-1", "0b2f", "router");
/// let description = format!("Made by shop-operator {mark}");
/// assert_eq!(Mark::find_in(&description), Some(mark));
/// assert_eq!(Mark::find_in("Made by hand"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    cluster: String,
    uid: String,
    part: String,
    stays: bool,
}

impl Mark {
    /// The mark of an object with this uid in this cluster. `part` tells the items of one object apart, and is empty for the only one. Other
    /// characters than letters, digits, `-`, `_` and `.` become `-`.
    pub fn new(cluster: &str, uid: &str, part: &str) -> Self {
        Self { cluster: plain(cluster), uid: plain(uid), part: plain(part), stays: false }
    }

    /// Returns the same mark with the note whether the item [stays](Self::stays).
    #[must_use]
    pub fn with_stay(self, stays: bool) -> Self {
        Self { stays, ..self }
    }

    /// Returns the last mark in a text of an item, or `None` if there is none. A mark is written behind the text of its object, which may have a mark in
    /// it, such as one that was copied from another item.
    pub fn find_in(text: &str) -> Option<Self> {
        text.match_indices(WORD).filter_map(|(at, _)| Self::read(&text[at + WORD.len()..])).last()
    }

    /// Reads a mark without its first word, from the beginning of a text.
    fn read(text: &str) -> Option<Self> {
        let end = text.find(|character| !is_plain(character) && character != '/').unwrap_or(text.len());
        let mut words = text[..end].splitn(3, '/');
        let (cluster, uid) = (words.next()?, words.next()?);
        let part = words.next().unwrap_or_default();
        let stays = text[end..].starts_with(STAYS);
        (!cluster.is_empty() && !uid.is_empty()).then(|| Self::new(cluster, uid, part).with_stay(stays))
    }

    /// The cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The uid of the object.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The part of the object.
    pub fn part(&self) -> &str {
        &self.part
    }

    /// Whether the item stays on the server when its object is gone, because it was adopted or its object releases it. This item is no leftover.
    pub fn stays(&self) -> bool {
        self.stays
    }

    /// Whether both name the same part of the same object.
    pub fn is_of_same_object(&self, other: &Self) -> bool {
        (&self.cluster, &self.uid, &self.part) == (&other.cluster, &other.uid, &other.part)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD}{}/{}", self.cluster, self.uid)?;
        if !self.part.is_empty() {
            write!(f, "/{}", self.part)?;
        }
        if self.stays { f.write_str(STAYS) } else { Ok(()) }
    }
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.')
}

fn plain(text: &str) -> String {
    text.chars().map(|character| if is_plain(character) { character } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_in_any_text_and_nothing_else_is_taken_for_one() {
        for (text, expected) in [
            ("konverge=c/u", Some(("c", "u", ""))),
            ("made for konverge=c/u/router, do not edit", Some(("c", "u", "router"))),
            // A mark that was copied with the text of another item, and a word that only looks like the beginning of one.
            ("like konverge=x/y;stays konverge=c/u/router", Some(("c", "u", "router"))),
            ("konverge=c/u konverge=rocks", Some(("c", "u", ""))),
            ("konverge=konverge=c/u", Some(("c", "u", ""))),
            ("konverge=c", None),
            ("konverge=/u", None),
            ("konverge=c/", None),
            ("", None),
        ] {
            assert_eq!(
                Mark::find_in(text),
                expected.map(|(cluster, uid, part)| Mark::new(cluster, uid, part)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_mark_notes_whether_the_item_stays() {
        for part in ["", "router"] {
            let mark = Mark::new("c", "u", part);
            let staying = mark.clone().with_stay(true);
            let found = |mark: &Mark| Mark::find_in(&format!("theirs {mark}, do not edit"));
            assert_eq!((found(&mark), found(&staying)), (Some(mark.clone()), Some(staying.clone())));
            assert!(mark != staying && mark.is_of_same_object(&staying));
        }
    }

    #[test]
    fn characters_that_would_end_a_mark_are_replaced() {
        let mark = Mark::new("my cluster", "u/1", "a b");
        assert_eq!(mark.to_string(), "konverge=my-cluster/u-1/a-b");
        assert_eq!(Mark::find_in(&mark.to_string()), Some(mark));
    }
}
