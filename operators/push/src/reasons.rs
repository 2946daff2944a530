//! How things stand with an object, in one word: in its record, in events and in the metric of bindings.
//!
//! Refusals of Vault and of the API server have the reasons of [`VaultError`](konverge_vault::VaultError) and
//! [`ApplyError`](konverge_apply::ApplyError).

/// In Vault is what should be there.
pub const SYNCED: &str = "Synced";
/// It was written for the first time, or after it had been there already.
pub const ADOPTED: &str = "Adopted";
/// Somebody else had changed or deleted content in Vault, and the operator corrected it.
pub const DRIFT_CORRECTED: &str = "DriftCorrected";
/// The rules of the platform do not allow the path.
pub const NOT_ALLOWED: &str = "PathNotAllowed";
/// The path cannot be one.
pub const INVALID_PATH: &str = "InvalidPath";
/// Somebody else has the path.
pub const OWNED_BY_ANOTHER: &str = "OwnedByAnother";
/// There is something at the path already that nobody has marked, and taking it over is not wanted.
pub const EXISTS_ALREADY: &str = "ExistsAlready";
/// Somebody wrote the path moments ago, and may be about to mark it.
pub const JUST_WRITTEN: &str = "JustWritten";
/// A Secret is not there.
pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
/// A Secret does not have a key.
pub const KEY_NOT_FOUND: &str = "KeyNotFound";
/// There is nothing to write.
pub const SOURCE_EMPTY: &str = "SourceEmpty";
/// A value is no text, and encoding it is not wanted.
pub const BINARY_VALUE: &str = "BinaryValue";
/// The desired content of a path is too large, or its sources are.
pub const CONTENT_TOO_LARGE: &str = "ContentTooLarge";
/// Values are no text and stand in Vault in base64.
pub const ENCODED: &str = "ValuesEncoded";
/// A template of a `VaultPush` cannot be followed.
pub const INVALID_TEMPLATE: &str = "InvalidTemplate";
/// A `VaultPush` is not what its kind says.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// The content differs from the cluster and stays, as the object requests.
pub const LEFT_ALONE: &str = "LeftAlone";
/// Merging needs an engine with check-and-set.
pub const NEEDS_VERSION_TWO: &str = "NeedsVersionTwo";
/// A setting was put right.
pub const ADJUSTED: &str = "AnnotationAdjusted";
/// The owner cannot be noted in Vault.
pub const UNMARKED: &str = "OwnerNotMarked";
/// Another actor keeps removing the record or setting it back.
pub const RECORD_TAKEN: &str = "RecordTakenAway";
/// It is paused.
pub const PAUSED: &str = "Paused";
/// Written content was deleted.
pub const CLEARED: &str = "Cleared";
/// Content at a dropped path stays, because the operator did not write it.
pub const NOT_CLEARED: &str = "NotCleared";
/// The object was let go although what was written for it is still there.
pub const RELEASED: &str = "ReleasedWithOrphans";
