//! A connection used in the name of one identity: every call is signed.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures::Stream;
use konverge_zopp_crypto::signature;
use konverge_zopp_proto::{WatchSecretsRequest, WatchSecretsResponse};
use prost::Message;
use tonic::Code;

use crate::{
    connection::{Authentication, Connection, Proofs, Rpc},
    error::CallError,
    identity::Identity,
};

/// Two equal changes within a second (set, remove, set again) have equal signatures, and the second one looks like a
/// replay of the first. Dated back by a second it is told apart. A third of a signature's life leaves room for clocks that
/// differ.
const MAXIMUM_BACKDATE_SECONDS: i64 = signature::MAXIMUM_AGE_SECONDS / 3;

/// A connection used in the name of one identity. Clones share both. The calls are in [`crate::calls`].
#[derive(Clone)]
pub struct Client {
    connection: Connection,
    identity: Arc<Identity>,
}

impl Client {
    /// Nothing is sent before the first call.
    pub fn new(connection: Connection, identity: impl Into<Arc<Identity>>) -> Self {
        Self { connection, identity: identity.into() }
    }

    /// Returns the identity in whose name the calls are made.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the connection for the calls.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Opens a stream of changes to one environment. It is bounded by no deadline; a dead peer ends it by keepalive.
    pub async fn watch_secrets(
        &self,
        request: WatchSecretsRequest,
    ) -> Result<impl Stream<Item = Result<WatchSecretsResponse, CallError>> + Send + use<>, CallError> {
        const WATCH: Rpc = Rpc { name: "WatchSecrets", path: "/zopp.ZoppService/WatchSecrets" };
        let body = Bytes::from(request.encode_to_vec());
        let authentication = self.authenticate(WATCH, &body, 0).await?;
        self.connection.server_streaming(WATCH, body, Some(authentication)).await
    }

    pub(crate) async fn call<A: Message + Default>(&self, rpc: Rpc, request: &impl Message) -> Result<A, CallError> {
        self.call_with_proofs(rpc, request, Proofs::default()).await
    }

    pub(crate) async fn call_with_proofs<A: Message + Default>(
        &self,
        rpc: Rpc,
        request: &impl Message,
        proofs: Proofs,
    ) -> Result<A, CallError> {
        let body = Bytes::from(request.encode_to_vec());
        let mut backdate = 0;
        loop {
            let authentication = self.authenticate(rpc, &body, backdate).await?;
            let answer = self.connection.unary_with_proofs(rpc, body.clone(), Some(authentication), proofs).await;
            match answer {
                Err(error) if is_taken_for_replay(&error) && backdate < MAXIMUM_BACKDATE_SECONDS => backdate += 1,
                answer => return answer,
            }
        }
    }

    async fn authenticate(&self, rpc: Rpc, body: &[u8], backdate: i64) -> Result<Authentication, CallError> {
        let profile = self.connection.profile().await?;
        let signed = signature::sign(profile, self.identity.signing_seed(), rpc.path, body, now() - backdate);
        Ok(Authentication { principal_id: self.identity.principal_id_metadata(), signed })
    }
}

/// By the server's words, since the code is that of every other doubt about a signature.
fn is_taken_for_replay(error: &CallError) -> bool {
    error.code() == Code::Unauthenticated
        && error.server_message().is_some_and(|message| message.starts_with("this very request was received before"))
}

/// Unix seconds. A clock before 1970 counts as 1970; the server will say that it is wrong.
fn now() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}
