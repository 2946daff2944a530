//! Refusals of a plan: the path stays as it is, and the owner of the object is told why.

/// Why a path is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is kept for somebody else, who is named.
    Foreign(String),
    /// Somebody wrote it who left no mark, and taking it over is not wanted.
    Existing,
    /// One of the keys is kept for somebody else.
    ForeignKey {
        /// The key.
        key: String,
        /// The owner.
        owner: String,
    },
    /// Somebody wrote one of the keys who left no mark, and taking it over is not wanted.
    ExistingKey(String),
}
