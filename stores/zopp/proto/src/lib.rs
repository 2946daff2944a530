//! The zopp wire schema: messages, client and server stubs of all 82 calls, generated from `proto/zopp.proto`.
//!
//! Guarantees: field numbers and names are those of zopp, and a message encodes to its canonical bytes (fields in ascending
//! order, defaults left out), which is what request signatures cover. Does not: sign, encrypt or validate anything.

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    reason = "generated; the schema carries the comments"
)]
mod generated {
    tonic::include_proto!("zopp");
}

pub use generated::*;

/// Calls of Konverge's own, beside the published contract: losing an identity, and invites that can be used up.
pub mod identity {
    #[allow(
        missing_docs,
        unreachable_pub,
        clippy::allow_attributes_without_reason,
        clippy::pedantic,
        reason = "generated; the schema carries the comments"
    )]
    mod generated {
        tonic::include_proto!("konverge.zopp.v1");
    }

    pub use generated::*;

    /// The full path of a call, as it is signed: `/konverge.zopp.v1.Identity/<name>`.
    pub fn method_path(call: &str) -> String {
        format!("/{}/{call}", identity_server::SERVICE_NAME)
    }
}

/// Calls of Konverge's own, beside the published contract: environments with their manifest, changed at once.
pub mod secrets {
    #[allow(
        missing_docs,
        unreachable_pub,
        clippy::allow_attributes_without_reason,
        clippy::pedantic,
        reason = "generated; the schema carries the comments"
    )]
    mod generated {
        tonic::include_proto!("konverge.zopp.secrets.v1");
    }

    pub use generated::*;

    /// The full path of a call, as it is signed: `/konverge.zopp.secrets.v1.Secrets/<name>`.
    pub fn method_path(call: &str) -> String {
        format!("/{}/{call}", secrets_server::SERVICE_NAME)
    }
}

/// The full path of a call, as it is signed: `/zopp.ZoppService/<name>`.
pub fn method_path(call: &str) -> String {
    format!("/{}/{call}", zopp_service_server::SERVICE_NAME)
}

#[cfg(test)]
mod tests;
