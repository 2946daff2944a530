//! How a watch learns what exists before it hears what changes.

use kube::runtime::watcher;

/// How what exists is read at the beginning of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InitialList {
    /// As a list, in pages of at most so many objects, which bounds the memory that one answer takes on both sides.
    Pages(u32),
    /// As events of the watch itself, one object after the other, which spares the API server the work of putting a list together. An API
    /// server that cannot do it is asked for pages: at once if it refuses, or after the first watch has ended if it does not know the
    /// option.
    Streamed,
}

impl Default for InitialList {
    /// Pages of 100 objects. A page is in memory several times while it is read, as text and decoded. The memory that is free afterwards
    /// lies between the objects and stays with the process. The 500 of other components would cost each of 10,000 objects some 300 bytes
    /// more, and save a fifth of the time that the list takes.
    fn default() -> Self {
        Self::Pages(100)
    }
}

impl InitialList {
    pub(super) fn is_streamed(self) -> bool {
        self == Self::Streamed
    }

    /// Whether the error says that the API server streams no lists, rather than that something is wrong.
    pub(super) fn is_refused_by(self, error: &watcher::Error) -> bool {
        let watcher::Error::WatchStartFailed(kube::Error::Api(status)) = error else { return false };
        self.is_streamed() && matches!(status.code, 400 | 405 | 422)
    }
}
