//! Labels of the original's metrics, under its names.

use konverge_runtime::metrics::NameLabels;
use konverge_vault::VaultError;
use prometheus_client::encoding::EncodeLabelSet;

use crate::spec::Invalid;

/// The label of everything beyond the bound.
pub(super) const OTHER: &str = "other";

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($field:ident),* $(; $($fixed:ident),*)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
        pub(super) struct $name {
            $(pub(super) $field: String,)*
            $($(pub(super) $fixed: &'static str,)*)?
        }

        impl NameLabels for $name {
            fn other(&self) -> Self {
                Self { $($field: OTHER.to_owned(),)* $($($fixed: self.$fixed,)*)? }
            }
        }
    )*};
}

labels! {
    /// An object with a request.
    Resource { namespace, resource }
    /// The same, and how a run ended.
    Attempt { namespace, resource; result }
    /// The same, and what could not be read.
    Parsing { namespace, resource; error_type }
    /// A Secret that was looked for.
    Missing { namespace, secret_name }
    /// A key that was looked for.
    MissingKey { namespace, secret_name, key }
    /// A path in Vault, and why it was not written.
    WriteError { path; error_type }
}

/// The original's word for an error. It went by words in the text, which paths can hold; this goes by what happened.
pub(super) fn category(error: &VaultError) -> &'static str {
    match error {
        _ if error.is_outage() => "connection_failed",
        VaultError::Login { .. } | VaultError::LoginRefused { .. } | VaultError::Credential { .. } => "auth_failed",
        VaultError::Denied { .. } => "permission_denied",
        VaultError::Path(_)
        | VaultError::NoMount { .. }
        | VaultError::UnknownMount { .. }
        | VaultError::NotKv { .. } => "invalid_path",
        _ => "unknown",
    }
}

/// The original knows the first of these words alone, for its JSON; what else cannot be followed is ours, and has others.
pub(super) fn parse_error(invalid: &Invalid) -> &'static str {
    match invalid {
        Invalid::Secrets { .. } => "json_parse_error",
        Invalid::Word { .. } => "invalid_annotation",
        Invalid::Template { .. } => "invalid_template",
        Invalid::Spec { .. } => "invalid_spec",
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use konverge_vault::SecretPath;

    use super::*;

    #[test]
    fn errors_by_what_happened_and_not_by_their_words() {
        let what = || "write secret/data/network/404/permission denied".to_owned();
        let address = || Arc::<str>::from("https://vault");
        let cause = || "invalid path".to_owned();
        let sealed = VaultError::Sealed { what: what(), address: address() };
        let refused = VaultError::LoginRefused { status: 400, cause: cause() };
        let login = |source| VaultError::Login { how: "AppRole".into(), source: Arc::new(source) };
        for (error, expected) in [
            (login(refused), "auth_failed"),
            (login(sealed), "connection_failed"),
            (VaultError::Credential { what: "token", path: None, cause: cause() }, "auth_failed"),
            (VaultError::Denied { what: what(), capability: "update", cause: cause() }, "permission_denied"),
            (VaultError::Path(SecretPath::parse("..").unwrap_err()), "invalid_path"),
            (VaultError::NoMount { what: what() }, "invalid_path"),
            (VaultError::UnknownMount { what: what() }, "invalid_path"),
            (VaultError::Deadline { what: what(), address: address(), limit: Duration::ZERO }, "connection_failed"),
            (VaultError::Limited { what: what(), retry_after: None }, "connection_failed"),
            (VaultError::Rejected { what: what(), status: 400, cause: cause() }, "unknown"),
            (VaultError::Conflict { what: what() }, "unknown"),
        ] {
            assert_eq!(category(&error), expected, "{error}");
        }
    }
}
