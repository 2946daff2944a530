//! The annotations of objects that decide what may happen to their items on the server.

use std::collections::BTreeMap;

use konverge::remote::{Adoption, DeletionPolicy};

/// Annotation: whether an item that somebody else made may be taken over. `true` by its name, `false` never, and any other value is the id of the
/// item to take over.
pub const ADOPT: &str = "konverge.dev/adopt";
/// Annotation: the fate of the item when the object is deleted. `orphan` leaves it on the server and releases the object at once; `delete` deletes
/// it even if it was adopted.
pub const DELETION: &str = "konverge.dev/deletion";

/// The value of [`DELETION`] that leaves the item on the server.
pub const ORPHAN: &str = "orphan";

/// Annotation of an `OZPolicy`, which has no namespace: the namespace whose account it is for. Without it, it is for that of the operator.
pub const ACCOUNT: &str = "konverge.dev/account";

/// Returns the adoption that the annotations ask for, or `unless_said`.
pub fn adoption(annotations: &BTreeMap<String, String>, unless_said: Adoption) -> Adoption {
    match annotations.get(ADOPT).map(String::as_str) {
        None | Some("") => unless_said,
        Some("true") => Adoption::ByName,
        Some("false") => Adoption::Never,
        Some(id) => Adoption::ById(id.to_owned()),
    }
}

/// Returns the fate of the item that the annotations ask for. `deletes_adopted` is the behaviour of the original, which a flag restores.
pub fn deletion(annotations: &BTreeMap<String, String>, deletes_adopted: bool) -> DeletionPolicy {
    match annotations.get(DELETION).map(String::as_str) {
        Some(ORPHAN) => DeletionPolicy::Orphan,
        Some("delete") => DeletionPolicy::DeleteAdopted,
        _ if deletes_adopted => DeletionPolicy::DeleteAdopted,
        _ => DeletionPolicy::Delete,
    }
}

/// The annotations that an object gives to those that it makes: the fate of its item is that of theirs.
pub fn inherited(annotations: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    annotations.get(DELETION).map(|fate| BTreeMap::from([(DELETION.to_owned(), fate.clone())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotated(name: &str, value: &str) -> BTreeMap<String, String> {
        [(name.to_owned(), value.to_owned())].into()
    }

    #[test]
    fn an_annotation_decides_about_adoption_before_the_default() {
        for (value, expected) in [
            ("true", Adoption::ByName),
            ("false", Adoption::Never),
            ("cq3v2", Adoption::ById("cq3v2".to_owned())),
            ("", Adoption::ByName),
        ] {
            assert_eq!(adoption(&annotated(ADOPT, value), Adoption::ByName), expected, "{value}");
        }
        assert_eq!(adoption(&BTreeMap::new(), Adoption::Never), Adoption::Never);
    }

    #[test]
    fn an_adopted_item_is_deleted_only_where_the_object_or_the_flag_says_so() {
        for (value, deletes_adopted, expected) in [
            ("", false, DeletionPolicy::Delete),
            ("", true, DeletionPolicy::DeleteAdopted),
            ("delete", false, DeletionPolicy::DeleteAdopted),
            ("orphan", true, DeletionPolicy::Orphan),
            ("nonsense", false, DeletionPolicy::Delete),
        ] {
            assert_eq!(deletion(&annotated(DELETION, value), deletes_adopted), expected, "{value}");
        }
    }
}
