//! The states of an object, as reasons in its record, in events and in the metric of bindings.
//!
//! Refusals of Vault and of the API server have the reasons of [`VaultError`](konverge_vault::VaultError) and
//! [`ApplyError`](konverge_apply::ApplyError).

/// All paths are in sync.
pub const SYNCED: &str = "Synced";
/// Content without an owner was adopted.
pub const ADOPTED: &str = "Adopted";
/// Another actor had changed or deleted content in Vault, and the operator restored it.
pub const DRIFT_CORRECTED: &str = "DriftCorrected";
/// The rules of the platform do not allow the path.
pub const NOT_ALLOWED: &str = "PathNotAllowed";
/// The path is invalid.
pub const INVALID_PATH: &str = "InvalidPath";
/// The path belongs to another owner.
pub const OWNED_BY_ANOTHER: &str = "OwnedByAnother";
/// The path has content without a mark, and the object does not adopt it.
pub const EXISTS_ALREADY: &str = "ExistsAlready";
/// Another writer wrote the path moments ago, and may be about to mark it.
pub const JUST_WRITTEN: &str = "JustWritten";
/// A Secret does not exist.
pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
/// A Secret does not have a key.
pub const KEY_NOT_FOUND: &str = "KeyNotFound";
/// The sources have no value.
pub const SOURCE_EMPTY: &str = "SourceEmpty";
/// A value is not UTF-8, and the object does not allow its encoding.
pub const BINARY_VALUE: &str = "BinaryValue";
/// The desired content of a path is too large, or its sources are.
pub const CONTENT_TOO_LARGE: &str = "ContentTooLarge";
/// Values are not UTF-8, so they are base64-encoded in Vault.
pub const ENCODED: &str = "ValuesEncoded";
/// A template of a `VaultPush` is invalid.
pub const INVALID_TEMPLATE: &str = "InvalidTemplate";
/// A `VaultPush` does not match its kind.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// The content differs from the cluster and stays, as the object requests.
pub const LEFT_ALONE: &str = "LeftAlone";
/// Merging needs an engine with check-and-set.
pub const NEEDS_VERSION_TWO: &str = "NeedsVersionTwo";
/// A setting was corrected.
pub const ADJUSTED: &str = "AnnotationAdjusted";
/// The owner cannot be marked in Vault.
pub const UNMARKED: &str = "OwnerNotMarked";
/// Another actor keeps removing the record or setting it back.
pub const RECORD_TAKEN: &str = "RecordTakenAway";
/// The object is paused.
pub const PAUSED: &str = "Paused";
/// Written content was deleted.
pub const CLEARED: &str = "Cleared";
/// Content at a dropped path stays, because the operator did not write it.
pub const NOT_CLEARED: &str = "NotCleared";
/// The object was released although its content is still in Vault.
pub const RELEASED: &str = "ReleasedWithOrphans";
