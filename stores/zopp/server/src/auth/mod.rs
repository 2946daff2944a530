//! Authentication: from metadata to a verified principal.
//!
//! The order of the checks is part of the contract: metadata, time, request hash, principal, signature, replay. Nothing about
//! who exists is told to a caller who has not proven anything.

pub(crate) mod known;
pub(crate) mod replay;

use konverge_zopp_crypto::{
    SigningPublic,
    signature::{self, Profile, Signed, VerifyError},
};
use konverge_zopp_proto::method_path;
use prost::Message;
use tonic::{Request, Status, metadata::MetadataMap};

use self::{
    known::KnownCallers,
    replay::{Admission, ReplayCache, SignatureDigest},
};
use crate::{
    clock,
    limits::Reached,
    rbac::Role,
    state::State,
    status::{disabled, exhausted, from_store, replayed},
    store::{KnownCaller, Located, PrincipalRow, Store},
    validate,
};

/// A principal that proved to be the one calling.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// As kept.
    pub principal: PrincipalRow,
    /// The signature that the call used up, if it may not be repeated.
    pub used: Option<SignatureDigest>,
    /// The place that was looked up together with the principal: its names, and what the principal sees there.
    pub place: Option<([String; 3], Option<Located>)>,
    /// The facts that the call depends on if the look at the principal and the place was that of an earlier call.
    pub remembered: Option<Remembered>,
}

/// The facts that a call depends on if it makes no look at the database of its own.
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    /// The names of the place.
    names: [String; 3],
    /// When the request was signed (Unix seconds).
    signed_at: i64,
    /// Whether the request may be repeated.
    repeat: Repeat,
    /// The Unix second in which the database was last restored.
    pub restored_at: Option<i64>,
}

impl Caller {
    /// Looks up anew what was remembered, and refuses a principal that is none any more. Without anything remembered, does nothing.
    pub(crate) async fn look_again(&mut self, state: &State) -> Result<(), Status> {
        let Some(Remembered { names, signed_at, repeat, .. }) = self.remembered.take() else { return Ok(()) };
        let by_name = names.each_ref().map(String::as_str);
        state.known.forget(&self.principal.id, by_name);
        let known = state.store.caller(&self.principal.id, Some(by_name)).await.map_err(from_store)?;
        let known = known.ok_or_else(refused)?;
        known_to_be_good(&known, signed_at, repeat)?;
        state.known.remember(by_name, &known);
        self.principal = known.principal;
        self.place = Some((names, known.located));
        Ok(())
    }

    /// The id of the user it belongs to; a service is refused.
    pub(crate) fn user_id(&self) -> Result<&str, Status> {
        self.principal
            .user_id
            .as_deref()
            .ok_or_else(|| Status::unauthenticated("service principals cannot make this call; use a user's principal"))
    }
}

/// A request without a caller.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The answer to it.
    pub status: Status,
    /// The principal, if it proved its identity and has used up its share.
    pub principal: Option<Box<PrincipalRow>>,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self { status, principal: None }
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        refused.status
    }
}

/// May the very same request come twice?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It only reads. Clients that ask the same twice within a second sign the same bytes, and mean no harm.
    Allowed,
    /// It changes something: a second one is a replay.
    Refused,
}

/// Does the request carry any credentials at all?
pub(crate) fn is_signed(metadata: &MetadataMap) -> bool {
    metadata.contains_key(signature::SIGNATURE_KEY)
}

/// Verifies that `request` was signed for the call with this full path by a principal that exists and is not disabled, recently. The names of the
/// workspace, the project and the environment that the call is about, if any, save a look at the database.
pub(crate) async fn authenticate<M: Message>(
    state: &State,
    method: &str,
    request: &Request<M>,
    repeat: Repeat,
    names: Option<[&str; 3]>,
) -> Result<Caller, Refused> {
    let metadata = request.metadata();
    let principal_id = uuid::Uuid::try_parse(text(metadata, signature::PRINCIPAL_ID_KEY)?)
        .map_err(|_| Status::unauthenticated("principal-id is not a UUID"))?
        .to_string();
    let request_hash = if metadata.contains_key(signature::REQUEST_HASH_KEY) {
        Some(text(metadata, signature::REQUEST_HASH_KEY)?)
    } else {
        None
    };
    let signed = Signed::parse(
        text(metadata, signature::TIMESTAMP_KEY)?,
        text(metadata, signature::SIGNATURE_KEY)?,
        request_hash,
    )
    .map_err(|error| Status::unauthenticated(error.to_string()))?;
    if signed.profile() == Profile::V1 {
        admit_first_generation(state, method)?;
    }
    // Encoded anew: what the handler will see is what must have been signed. The bytes, which may be megabytes, are gone before anything is waited for.
    let request_hash = signature::request_hash(method, &request.get_ref().encode_to_vec());
    // The database takes no text with this character.
    let names =
        names.filter(|names| names.iter().all(|name| validate::lookup("name", name).is_ok() && !name.contains('\0')));
    let known = known::role_for(method).map(|role| (&state.known, role));
    verify((&state.store, known), &state.replays, (&principal_id, names), (method, request_hash), &signed, repeat).await
}

/// The calls of the first generation that are signed.
const FIRST_GENERATION: [&str; 23] = [
    "Register",
    "CreateWorkspace",
    "ListWorkspaces",
    "GetWorkspaceKeys",
    "CreateInvite",
    "ListInvites",
    "RevokeInvite",
    "GetPrincipal",
    "RenamePrincipal",
    "ListPrincipals",
    "CreateProject",
    "ListProjects",
    "GetProject",
    "DeleteProject",
    "CreateEnvironment",
    "ListEnvironments",
    "GetEnvironment",
    "DeleteEnvironment",
    "UpsertSecret",
    "GetSecret",
    "ListSecrets",
    "DeleteSecret",
    "WatchSecrets",
];

/// Refuses the signature of a first-generation client, unless the operator allows it, and always for calls that such a client does not have.
fn admit_first_generation(state: &State, method: &str) -> Result<(), Status> {
    if state.policy.first_generation.is_none() {
        return Err(Status::unauthenticated(
            "request-hash is missing: this is the signature of a first-generation client (zopp 0.1.1), which covers nothing \
             but the time; use a client that signs the request",
        ));
    }
    if FIRST_GENERATION.iter().any(|call| method_path(call) == method) {
        Ok(())
    } else {
        Err(Status::unauthenticated(
            "request-hash is missing: clients of the first generation do not have this call, so it takes no signature of theirs",
        ))
    }
}

/// Verifies the signature of a request, which is a method with the hash of both it and its body, by the rules of its generation.
async fn verify(
    (store, callers): (&Store, Option<(&KnownCallers, Role)>),
    replays: &ReplayCache,
    (principal_id, names): (&str, Option<[&str; 3]>),
    (method, request_hash): (&str, [u8; 32]),
    signed: &Signed,
    repeat: Repeat,
) -> Result<Caller, Refused> {
    let now = clock::now();
    signature::check_age(signed.timestamp, now).map_err(|error| Status::unauthenticated(error.to_string()))?;
    if signed.request_hash.is_some_and(|signed| signed != request_hash) {
        return Err(Status::unauthenticated(VerifyError::RequestHashMismatch.to_string()).into());
    }
    let remembered = callers.zip(names).and_then(|((callers, role), names)| callers.get(principal_id, names, role));
    // A refusal is looked up each time.
    let remembered = remembered.filter(|known| known_to_be_good(known, signed.timestamp, repeat).is_ok());
    let is_remembered = remembered.is_some();
    let known = match remembered {
        Some(known) => known,
        None => store.caller(principal_id, names).await.map_err(from_store)?.ok_or_else(refused)?,
    };
    let principal = &known.principal;
    let public = SigningPublic::from_slice(&principal.public_key).map_err(|_| refused())?;
    signature::verify_hashed(signed.profile(), &public, method, &request_hash, signed).map_err(|_| refused())?;
    known_to_be_good(&known, signed.timestamp, repeat)?;
    let used = match repeat {
        Repeat::Allowed => None,
        Repeat::Refused => Some(use_up(replays, principal, (signed, &request_hash), (store.limits().changes, now))?),
    };
    if let (Some((callers, _)), Some(names), false) = (callers, names, is_remembered) {
        callers.remember(names, &known);
    }
    let KnownCaller { principal, restored_at, located } = known;
    let names = names.map(|names| names.map(str::to_owned));
    let remembered = names.clone().filter(|_| is_remembered);
    let remembered = remembered.map(|names| Remembered { names, signed_at: signed.timestamp, repeat, restored_at });
    Ok(Caller { principal, used, place: names.map(|names| (names, located)), remembered })
}

/// Uses up the signature of a change, within the share of the principal and the capacity for all. Refuses a signature that was used before.
fn use_up(
    replays: &ReplayCache,
    principal: &PrincipalRow,
    (signed, request_hash): (&Signed, &[u8; 32]),
    (share, now): (u32, i64),
) -> Result<SignatureDigest, Refused> {
    let digest = match signed.profile() {
        // All requests of a second have the same signature.
        Profile::V1 => replay::digest_of_request(&principal.id, &signed.signature, request_hash),
        Profile::V2 => replay::digest(&principal.id, &signed.signature),
    };
    let limited = |what, limit, flag, seconds| {
        let status = exhausted(&Reached { what, limit, flag }, Some(seconds));
        Err(Refused { status, principal: Some(Box::new(principal.clone())) })
    };
    match replays.admit(&principal.id, digest, share, now) {
        Admission::First => Ok(digest),
        Admission::Replay => Err(replayed().into()),
        Admission::ShareUsed(seconds) => {
            limited("changes of a principal within a minute and a half", share, "--max-changes", seconds)
        }
        Admission::Full(seconds) => {
            let limit = u32::try_from(replay::CAPACITY).unwrap_or(u32::MAX);
            limited("changes of all principals within a minute and a half", limit, "of this build", seconds)
        }
    }
}

/// Refuses a principal that is disabled, and a change that was signed before the database was restored.
fn known_to_be_good(known: &KnownCaller, signed_at: i64, repeat: Repeat) -> Result<(), Status> {
    if known.principal.disabled_at.is_some() {
        return Err(disabled());
    }
    // It may have taken effect after the backup was made, and the restored database does not know.
    if repeat == Repeat::Refused && known.restored_at.is_some_and(|restored_at| signed_at < restored_at) {
        return Err(Status::unauthenticated(
            "this change was signed before the server's database was restored; sign it again, with a clock that is right",
        ));
    }
    Ok(())
}

/// One answer for an unknown principal and for a wrong key: ids are not for guessing.
fn refused() -> Status {
    Status::unauthenticated("principal is unknown or its signature does not match")
}

/// Verifies the signature that a `Login` carries in its own fields: over the message with its signature left out.
pub(crate) async fn verify_login(
    store: &Store,
    replays: &ReplayCache,
    principal: &PrincipalRow,
    mut message: konverge_zopp_proto::LoginRequest,
) -> Result<Caller, Status> {
    let bytes = std::mem::take(&mut message.signature);
    let signature = bytes.try_into().map_err(|_| Status::unauthenticated("signature is not 64 bytes long"))?;
    let method = method_path("Login");
    let request_hash = signature::request_hash(&method, &message.encode_to_vec());
    let signed = Signed { timestamp: message.timestamp, signature, request_hash: Some(request_hash) };
    Ok(verify((store, None), replays, (&principal.id, None), (&method, request_hash), &signed, Repeat::Refused).await?)
}

/// Checks the proof, if there is one, that the registering client holds the private half of `public_key`. Stock clients send none.
pub(crate) fn check_key_proof<M: Message>(
    request: &Request<M>,
    method: &str,
    public_key: &[u8],
    required: bool,
) -> Result<(), Status> {
    let metadata = request.metadata();
    if !metadata.contains_key(signature::KEY_PROOF_KEY) {
        return if required {
            Err(Status::permission_denied(
                "this server takes only keys whose possession is proven (--require-key-proof); use Konverge's zopp to join",
            ))
        } else {
            Ok(())
        };
    }
    let refused = || Status::permission_denied("key-proof is not by the private half of public_key over this request");
    let mut proof = [0; 64];
    hex::decode_to_slice(text(metadata, signature::KEY_PROOF_KEY)?, &mut proof).map_err(|_| refused())?;
    let public = SigningPublic::from_slice(public_key).map_err(|_| refused())?;
    let body = request.get_ref().encode_to_vec();
    signature::verify_key_proof(&public, method, &body, &proof).map_err(|_| refused())
}

fn text<'a>(metadata: &'a MetadataMap, key: &str) -> Result<&'a str, Status> {
    metadata
        .get(key)
        .ok_or_else(|| Status::unauthenticated(format!("{key} is missing from the metadata")))?
        .to_str()
        .map_err(|_| Status::unauthenticated(format!("{key} is not text")))
}
