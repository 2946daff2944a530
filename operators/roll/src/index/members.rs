//! A sorted set of few. Most sources have one user, and a B-tree makes room for eleven with the first.

/// The set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Members<T>(Vec<T>);

impl<T> Default for Members<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> Members<T> {
    /// Puts one in.
    pub(super) fn insert(&mut self, member: T) {
        let Err(place) = self.0.binary_search(&member) else { return };
        if self.0.is_empty() {
            self.0.reserve_exact(1);
        }
        self.0.insert(place, member);
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, member: &T) {
        if let Ok(place) = self.0.binary_search(member) {
            self.0.remove(place);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a, T> IntoIterator for &'a Members<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_there_once_and_in_order_until_it_is_taken_out() {
        let mut members = Members::default();
        for member in ["b", "c", "a", "b"] {
            members.insert(member);
        }
        assert_eq!(members.0, ["a", "b", "c"]);
        members.remove(&"b");
        members.remove(&"d");
        assert_eq!(members.into_iter().copied().collect::<Vec<_>>(), ["a", "c"]);
        assert!(!members.is_empty());
        assert!(Members::<u8>::default().is_empty());
    }
}
