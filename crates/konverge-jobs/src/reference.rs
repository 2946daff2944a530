//! The entries of the reference pages that a job's crate declares. `cargo xtask generate` writes the pages.
//!
//! [`reasons!`](crate::reasons) and [`annotations!`](crate::annotations) declare each entry once: as the constant that the code uses, and as the row that
//! people read.

#[doc(hidden)]
pub use konverge_apply::Reason as ConditionReason;

/// A reason of an event, a condition or a recorded state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// The reason itself, such as `Synced`.
    pub reason: &'static str,
    /// The objects that carry it.
    pub on: &'static str,
    /// The cause.
    pub cause: &'static str,
    /// The next step of the person who reads it; empty if there is none.
    pub next: &'static str,
}

impl Reason {
    /// Returns a reason of these objects.
    pub const fn on(on: &'static str, reason: &'static str, cause: &'static str, next: &'static str) -> Self {
        Self { reason, on, cause, next }
    }
}

/// An annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// The annotation itself, such as `zopp.dev/sync`.
    pub name: &'static str,
    /// The objects that may carry it.
    pub on: &'static str,
    /// The values and their effect.
    pub meaning: &'static str,
    /// The effect of a value that is not valid; empty if every value is.
    pub otherwise: &'static str,
}

/// Declares the reasons of a job in its module `reasons`: a constant for each, whose documentation is the cause, and `REASONS` with all of them. A reason
/// without a name comes from another crate. A word that the API server does not accept as a reason does not compile.
///
/// ```
/// konverge_jobs::reasons! {
///     /// The Secret holds the keys and values of its environment.
///     SYNCED = "Synced" on "Secret";
///     /// The environment does not fit into a Secret.
///     TOO_LARGE = "TooLarge" on "Secret", next: "Split the environment.";
///     /// Vault is sealed.
///     "VaultSealed" on "Secret", next: "Unseal Vault.";
/// }
/// assert_eq!((REASONS[1].reason, REASONS[1].cause), (TOO_LARGE, "The environment does not fit into a Secret."));
/// assert_eq!([REASONS[0].next, REASONS[2].next], ["", "Unseal Vault."]);
/// ```
///
/// ```compile_fail
/// konverge_jobs::reasons! {
///     /// The Secret holds the keys and values of its environment.
///     SYNCED = "in sync" on "Secret";
/// }
/// ```
#[macro_export]
macro_rules! reasons {
    ($($(#[doc = $cause:literal])+ $($name:ident =)? $reason:literal on $on:expr $(, next: $next:expr)?;)+) => {
        $($crate::reasons!(@constant [$($name)?] $reason [$($cause)+]);)+

        /// Every reason of this job.
        pub const REASONS: &[$crate::reference::Reason] = &[$($crate::reference::Reason {
            reason: $reason,
            on: $on,
            cause: ::core::concat!($($cause),+).trim_ascii(),
            // `next`, or empty.
            next: [$($next,)? ""][0],
        }),+];

        // The compiler checks each word, because `Reason::new` panics on a bad one.
        const _: &[$crate::reference::ConditionReason] = &[$($crate::reference::ConditionReason::new($reason)),+];
    };
    (@constant [] $reason:literal [$($cause:literal)+]) => {};
    (@constant [$name:ident] $reason:literal [$($cause:literal)+]) => {
        $(#[doc = $cause])+
        #[allow(clippy::doc_markdown, reason = "people read the text on a page, where kinds have no backticks")]
        pub const $name: &str = $reason;
    };
}

/// Declares the annotations of a job: a constant for each, whose documentation is the meaning, and `ANNOTATIONS` with all of them. The path of another
/// crate's constant stands in parentheses.
///
/// ```
/// konverge_jobs::annotations! {
///     /// `true` fills the Secret.
///     SYNC = "zopp.dev/sync" on "Secret", otherwise: "`InvalidAnnotation`";
///     /// Written by the operator: the version that the Secret holds.
///     VERSION = "zopp.dev/version" on "Secret";
///     /// Another crate reads it.
///     OTHER = (other::NAME) on "Secret";
/// }
/// mod other {
///     pub const NAME: &str = "zopp.dev/other";
/// }
/// assert_eq!(ANNOTATIONS[2].name, "zopp.dev/other");
/// assert_eq!((ANNOTATIONS[0].name, ANNOTATIONS[0].meaning), (SYNC, "`true` fills the Secret."));
/// assert_eq!([ANNOTATIONS[0].otherwise, ANNOTATIONS[1].otherwise], ["`InvalidAnnotation`", ""]);
/// ```
#[macro_export]
macro_rules! annotations {
    ($($(#[doc = $meaning:literal])+ $name:ident = $($annotation:literal)? $(($path:path))? on $on:expr $(, otherwise: $otherwise:expr)?;)+) => {
        $(
            $(#[doc = $meaning])+
            #[allow(clippy::doc_markdown, reason = "people read the text on a page, where kinds have no backticks")]
            pub const $name: &str = $($annotation)? $($path)?;
        )+

        /// Every annotation of this job.
        pub const ANNOTATIONS: &[$crate::reference::Annotation] = &[$($crate::reference::Annotation {
            name: $name,
            on: $on,
            meaning: ::core::concat!($($meaning),+).trim_ascii(),
            // `otherwise`, or empty.
            otherwise: [$($otherwise,)? ""][0],
        }),+];
    };
}
