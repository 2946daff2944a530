//! A workspace's key, wrapped for a principal, in a request.

use konverge_zopp_crypto::{Kek, WrappedKek, X25519Public};

use crate::failure::Failure;

/// A wrapped workspace key as it goes over the wire; empty if there is none.
#[derive(Default)]
pub(super) struct WrappedFields {
    pub(super) ephemeral_pub: Vec<u8>,
    pub(super) kek_nonce: Vec<u8>,
    pub(super) kek_wrapped: Vec<u8>,
}

impl From<WrappedKek> for WrappedFields {
    fn from(wrapped: WrappedKek) -> Self {
        Self {
            ephemeral_pub: wrapped.ephemeral_public.to_bytes().to_vec(),
            kek_nonce: wrapped.sealed.nonce.to_vec(),
            kek_wrapped: wrapped.sealed.ciphertext,
        }
    }
}

/// Wraps a workspace's key, for a request.
pub(super) fn wrap(kek: &Kek, recipient: &X25519Public, workspace_id: &str) -> Result<WrappedFields, Failure> {
    kek.wrap_for(recipient, workspace_id)
        .map(WrappedFields::from)
        .map_err(|source| Failure::new("the workspace key cannot be wrapped").because(source))
}
