//! The change of an external item.

/// A change of one thing. It gets no further variant, so that a handler is known to deal with each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// It is seen for the first time.
    Added(T),
    /// It differs from what was seen last.
    Modified(T),
    /// It was there and is there no more; the item carries what is still known of it.
    Removed(T),
}

/// Which change it is, without the thing; exhaustive as [`Change`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// See [`Change::Added`].
    Added,
    /// See [`Change::Modified`].
    Modified,
    /// See [`Change::Removed`].
    Removed,
}

impl ChangeKind {
    /// The label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Removed => "removed",
        }
    }

    /// This change of `item`.
    pub fn of<T>(self, item: T) -> Change<T> {
        match self {
            Self::Added => Change::Added(item),
            Self::Modified => Change::Modified(item),
            Self::Removed => Change::Removed(item),
        }
    }
}

impl<T> Change<T> {
    /// Which change it is.
    pub fn kind(&self) -> ChangeKind {
        match self {
            Self::Added(_) => ChangeKind::Added,
            Self::Modified(_) => ChangeKind::Modified,
            Self::Removed(_) => ChangeKind::Removed,
        }
    }

    /// The thing.
    pub fn item(&self) -> &T {
        match self {
            Self::Added(item) | Self::Modified(item) | Self::Removed(item) => item,
        }
    }

    /// The thing, taken out.
    pub fn into_item(self) -> T {
        match self {
            Self::Added(item) | Self::Modified(item) | Self::Removed(item) => item,
        }
    }

    /// The same change of something made from the thing.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Change<U> {
        let kind = self.kind();
        kind.of(make(self.into_item()))
    }
}
