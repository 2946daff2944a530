//! The zopp wire schema: messages, client and server stubs of all 82 calls, generated from `proto/zopp.proto`.
//!
//! Guarantees: field numbers and names are those of zopp, and a message encodes to its canonical bytes (fields in ascending
//! order, defaults left out), which is what request signatures cover. Does not: sign, encrypt or validate anything.

/// Includes the generated code of a package.
macro_rules! generated {
    ($package:tt) => {
        #[allow(
            missing_docs,
            unreachable_pub,
            clippy::allow_attributes_without_reason,
            clippy::pedantic,
            reason = "generated; the schema carries the comments"
        )]
        mod generated {
            tonic::include_proto!($package);
        }

        pub use generated::*;
    };
}

/// Declares a package with a service of Konverge's own, beside the published contract.
macro_rules! own_package {
    ($(#[$doc:meta])* $name:ident: $package:tt, $service:literal, $server:ident) => {
        $(#[$doc])*
        pub mod $name {
            generated!($package);

            #[doc = concat!("The full path of a call, as it is signed: `/", $package, ".", $service, "/<name>`.")]
            pub fn method_path(call: &str) -> String {
                format!("/{}/{call}", $server::SERVICE_NAME)
            }
        }
    };
}

generated!("zopp");

own_package! {
    /// Calls of Konverge's own, beside the published contract: losing an identity, replacing keys, and invites that can be used up.
    identity: "konverge.zopp.v1", "Identity", identity_server
}

own_package! {
    /// Calls of Konverge's own, beside the published contract: environments with their manifest, changed at once.
    secrets: "konverge.zopp.secrets.v1", "Secrets", secrets_server
}

/// The full path of a call, as it is signed: `/zopp.ZoppService/<name>`.
pub fn method_path(call: &str) -> String {
    format!("/{}/{call}", zopp_service_server::SERVICE_NAME)
}

#[cfg(test)]
mod tests;
