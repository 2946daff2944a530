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
    connection::{Authentication, Connection, Rpc},
    error::CallError,
    identity::Identity,
};

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

    /// In whose name the calls are made.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Through what the calls are made.
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
        let authentication = self.authenticate(WATCH, &body).await?;
        let opened = self.connection.server_streaming(WATCH, body, Some(authentication)).await;
        self.forget_profile_if_unauthenticated(opened)
    }

    pub(crate) async fn call<A: Message + Default>(&self, rpc: Rpc, request: &impl Message) -> Result<A, CallError> {
        let body = Bytes::from(request.encode_to_vec());
        let authentication = self.authenticate(rpc, &body).await?;
        let answer = self.connection.unary(rpc, body, Some(authentication)).await;
        self.forget_profile_if_unauthenticated(answer)
    }

    async fn authenticate(&self, rpc: Rpc, body: &[u8]) -> Result<Authentication, CallError> {
        let profile = self.connection.profile().await?;
        let signed = signature::sign(profile, self.identity.signing_seed(), rpc.path, body, now());
        Ok(Authentication { principal_id: self.identity.principal_id_metadata(), signed })
    }

    /// A server replaced by one of the other generation does not accept signatures of the first one's.
    fn forget_profile_if_unauthenticated<T>(&self, answer: Result<T, CallError>) -> Result<T, CallError> {
        if let Err(error) = &answer
            && error.code() == Code::Unauthenticated
        {
            self.connection.learn_profile(None);
        }
        answer
    }
}

/// Unix seconds. A clock before 1970 counts as 1970; the server will say that it is wrong.
fn now() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}
