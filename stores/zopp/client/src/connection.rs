//! A lazy connection to one server, and what was learnt about it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::uri::PathAndQuery;
use konverge_zopp_crypto::{
    Profile,
    key_link::KEY_GENERATION_KEY,
    signature::{KEY_PROOF_KEY, PRINCIPAL_ID_KEY, REQUEST_HASH_KEY, SIGNATURE_KEY, Signed, TIMESTAMP_KEY},
    wrap_signature::WRAP_SIGNATURE_KEY,
};
use prost::Message;
use tonic::{
    Request, Status,
    client::Grpc,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

use crate::{
    channel::ServerChannel,
    codec::BytesCodec,
    config::{ClientConfig, ConfigError, parse_address},
    error::{CallError, is_deadline},
    trust::Trust,
};

/// Environments of tens of thousands of values arrive in one message; stock servers and clients stop at 4 MiB.
const DECODE_LIMIT: usize = 64 * 1024 * 1024;

/// How long after a server did not know the calls of Konverge's own it is asked again.
const ASK_AGAIN: Duration = Duration::from_mins(10);

/// A connection to one server. Clones share it. Dials at the first call and again after a loss.
///
/// ```
/// # #[tokio::main] async fn main() {
/// use konverge_zopp_client::{ClientConfig, Connection};
///
/// assert!(Connection::new(&ClientConfig::new("http://127.0.0.1:50051")).is_ok(), "nobody needs to listen there yet");
/// let error = Connection::new(&ClientConfig::new("zopp:50051")).unwrap_err();
/// assert!(error.to_string().contains("http://zopp:50051"));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Connection {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    channel: ServerChannel,
    server: Arc<str>,
    call_timeout: Duration,
    profile_override: Option<Profile>,
    require_signed_keys: Option<bool>,
    trust_first_key: bool,
    require_manifest: bool,
    trust: Trust,
    /// When the server last said that it does not know the calls of Konverge's own.
    own_calls_unknown_since: Mutex<Option<Instant>>,
}

/// One call: the name for error texts and the full method path, which is part of what is signed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rpc {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
}

/// Signatures and the like that go with a request, beside that of its caller. Stock servers ignore them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Proofs {
    /// That the caller holds the key that its request registers.
    pub(crate) key: Option<[u8; 64]>,
    /// By whom the workspace key in it was wrapped.
    pub(crate) wrap: Option<[u8; 64]>,
    /// The generation of the workspace key from which it was made.
    pub(crate) generation: Option<u32>,
}

/// The caller: the principal's id and its signature over the call.
pub(crate) struct Authentication {
    pub(crate) principal_id: MetadataValue<Ascii>,
    pub(crate) signed: Signed,
}

impl Connection {
    /// Checks the configuration and reads the certificate files, but does not dial. Must be called within a tokio runtime.
    pub fn new(config: &ClientConfig) -> Result<Self, ConfigError> {
        let uri = parse_address(&config.server)?;
        if config.profile == Some(Profile::V1) && config.trust.generation() == Some(Profile::V2) {
            return Err(ConfigError::Downgrade { address: config.server.clone() });
        }
        let server = Arc::from(uri.to_string().trim_end_matches('/'));
        Ok(Self {
            shared: Arc::new(Shared {
                channel: ServerChannel::new(config, uri)?,
                server,
                call_timeout: config.call_timeout,
                profile_override: config.profile,
                require_signed_keys: config.require_signed_keys,
                trust_first_key: config.trust_first_key,
                require_manifest: config.require_manifest,
                trust: config.trust.clone(),
                own_calls_unknown_since: Mutex::default(),
            }),
        })
    }

    /// The server's address, as dialled.
    pub fn server(&self) -> &str {
        &self.shared.server
    }

    /// The pins of the server.
    pub fn trust(&self) -> &Trust {
        &self.shared.trust
    }

    /// Whether a key of this workspace that nobody known signed is refused: as configured, else where the administrators are known.
    pub(crate) fn requires_signed_keys(&self, workspace: &str) -> bool {
        self.shared.require_signed_keys.unwrap_or_else(|| self.shared.trust.first_administrators(workspace).is_some())
    }

    /// Whether the first key of a workspace is trusted.
    pub(crate) fn trusts_first_key(&self) -> bool {
        self.shared.trust_first_key
    }

    /// Whether an environment without a manifest is refused.
    pub(crate) fn requires_manifest(&self) -> bool {
        self.shared.require_manifest
    }

    /// Whether the server may know the calls of Konverge's own. A server that did not is asked again after a while: it may be upgraded.
    pub(crate) fn may_know_own_calls(&self) -> bool {
        let unknown_since = *self.shared.own_calls_unknown_since.lock().unwrap_or_else(PoisonError::into_inner);
        unknown_since.is_none_or(|since| since.elapsed() >= ASK_AGAIN)
    }

    /// Remembers that the server does not know them.
    pub(crate) fn own_calls_are_unknown(&self) {
        let mut unknown_since = self.shared.own_calls_unknown_since.lock().unwrap_or_else(PoisonError::into_inner);
        *unknown_since = Some(Instant::now());
    }

    pub(crate) fn known_profile(&self) -> Option<Profile> {
        self.shared.profile_override.or_else(|| self.shared.trust.generation())
    }

    pub(crate) async fn unary<A: Message + Default>(
        &self,
        rpc: Rpc,
        body: Bytes,
        authentication: Option<Authentication>,
    ) -> Result<A, CallError> {
        self.unary_with_proofs(rpc, body, authentication, Proofs::default()).await
    }

    /// A call with further signatures.
    pub(crate) async fn unary_with_proofs<A: Message + Default>(
        &self,
        rpc: Rpc,
        body: Bytes,
        authentication: Option<Authentication>,
        proofs: Proofs,
    ) -> Result<A, CallError> {
        let mut grpc = self.grpc();
        let mut request = request(body, authentication, Some(self.shared.call_timeout));
        for (key, proof) in [(KEY_PROOF_KEY, proofs.key), (WRAP_SIGNATURE_KEY, proofs.wrap)] {
            if let Some(proof) = proof {
                insert_hex(request.metadata_mut(), key, &hex::encode(proof));
            }
        }
        if let Some(generation) = proofs.generation {
            request.metadata_mut().insert(KEY_GENERATION_KEY, generation.into());
        }
        let call = async {
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            grpc.unary(request, PathAndQuery::from_static(rpc.path), BytesCodec).await
        };
        let answer = self.within_deadline(rpc, call).await?;
        self.decode(rpc, answer.into_inner())
    }

    /// Opens a stream of answers. The deadline is for the opening only.
    pub(crate) async fn server_streaming<A: Message + Default>(
        &self,
        rpc: Rpc,
        body: Bytes,
        authentication: Option<Authentication>,
    ) -> Result<impl Stream<Item = Result<A, CallError>> + Send + use<A>, CallError> {
        let channel = self.shared.channel.for_stream().map_err(|error| {
            let status = Status::unavailable(error.to_string());
            CallError::from_status(rpc.name, &self.shared.server, status)
        })?;
        let mut grpc = Grpc::new(channel.get()).max_decoding_message_size(DECODE_LIMIT);
        let request = request(body, authentication, None);
        let call = async {
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            grpc.server_streaming(request, PathAndQuery::from_static(rpc.path), BytesCodec).await
        };
        let stream = self.within_deadline(rpc, call).await?.into_inner();
        let connection = self.clone();
        Ok(stream.map(move |item| {
            // For as long as the stream lasts.
            let _held = &channel;
            match item {
                Ok(bytes) => connection.decode(rpc, bytes),
                Err(status) => Err(CallError::from_status(rpc.name, &connection.shared.server, status)),
            }
        }))
    }

    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.shared.channel.get()).max_decoding_message_size(DECODE_LIMIT)
    }

    async fn within_deadline<T>(
        &self,
        rpc: Rpc,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CallError> {
        let (server, timeout) = (&self.shared.server, self.shared.call_timeout);
        match tokio::time::timeout(timeout, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) if !is_deadline(&status) => Err(CallError::from_status(rpc.name, server, status)),
            Ok(Err(_)) | Err(_) => Err(CallError::Deadline { rpc: rpc.name, server: Arc::clone(server), timeout }),
        }
    }

    fn decode<A: Message + Default>(&self, rpc: Rpc, bytes: Bytes) -> Result<A, CallError> {
        A::decode(bytes).map_err(|error| CallError::Garbage {
            rpc: rpc.name,
            server: Arc::clone(&self.shared.server),
            code: tonic::Code::Internal,
            reason: error.to_string(),
        })
    }
}

fn request(body: Bytes, authentication: Option<Authentication>, timeout: Option<Duration>) -> Request<Bytes> {
    let mut request = Request::new(body);
    if let Some(timeout) = timeout {
        request.set_timeout(timeout);
    }
    if let Some(Authentication { principal_id, signed }) = authentication {
        let metadata = request.metadata_mut();
        metadata.insert(PRINCIPAL_ID_KEY, principal_id);
        metadata.insert(TIMESTAMP_KEY, signed.timestamp.into());
        insert_hex(metadata, SIGNATURE_KEY, &signed.signature_hex());
        if let Some(hash) = signed.request_hash_hex() {
            insert_hex(metadata, REQUEST_HASH_KEY, &hash);
        }
    }
    request
}

fn insert_hex(metadata: &mut tonic::metadata::MetadataMap, key: &'static str, hexadecimal: &str) {
    // Hexadecimal is always valid header text.
    if let Ok(value) = MetadataValue::try_from(hexadecimal) {
        metadata.insert(key, value);
    }
}
