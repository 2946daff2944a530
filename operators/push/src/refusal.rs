//! Refusals of a plan: the path stays as it is, and a statement names the reason.

/// The reason why a path is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The path belongs to another owner, who is named.
    Foreign(String),
    /// The path has content without a mark, and the object does not adopt it.
    Existing,
    /// One of the keys belongs to another owner.
    ForeignKey {
        /// The key.
        key: String,
        /// The owner.
        owner: String,
    },
    /// One of the keys has content without a mark, and the object does not adopt it.
    ExistingKey(String),
}
