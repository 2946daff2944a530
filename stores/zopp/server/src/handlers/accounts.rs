//! Join, Register, Login: the calls of those who are not known yet, or prove it differently.
//!
//! A principal is added to an existing user only by that user: the request is then signed by one of the user's principals, and the new
//! one inherits its ceilings. An e-mail address or an invite alone opens nobody's account. New users come by invite, unless
//! registration is open. Where the client can, it proves that it holds the key that is registered.

use std::sync::Arc;

use konverge_zopp_proto::{self as proto, method_path};
use prost::Message;
use tonic::{Request, Response, Status};

use super::workspaces::{key_wrap, signed_by_caller};
use crate::{
    audit::row::{NOBODY, blank_row, client_ip, refusal},
    auth::{self, Caller, Repeat, is_signed},
    call::{Access, Call, Record, admit_guess, admit_open, wrap_signature},
    rbac::Role,
    state::State,
    status::{from_store, or_exists},
    store::{Action, AuditRow, Authority, Joined, KeyWrap, NewPrincipal, PrincipalRow, Registration},
    validate,
};

/// Joins by an invite.
pub(crate) async fn join(
    state: &Arc<State>,
    request: Request<proto::JoinRequest>,
) -> Result<Response<proto::JoinResponse>, Status> {
    admit_open(state, &request, Action::UserJoin).await?;
    let mut row = open_row(Action::UserJoin, &request);
    let result = async {
        let proven = proven_caller(state, "Join", &request, &mut row).await?;
        prove_key(state, "Join", &request, &request.get_ref().public_key)?;
        // By the new principal, for itself: a wrong one harms nobody else.
        let signature = wrap_signature(&request)?;
        join_as(state, proven.as_ref(), request.get_ref(), signature, &row).await
    };
    let result = result.await;
    close(state, &row, result).await
}

async fn join_as(
    state: &Arc<State>,
    proven: Option<&Caller>,
    message: &proto::JoinRequest,
    signature: Option<Vec<u8>>,
    row: &AuditRow,
) -> Result<proto::JoinResponse, Status> {
    let token = validate::token(&message.invite_token)?;
    let email = validate::email(&message.email)?;
    let principal = new_principal(&message.principal_name, &message.public_key, &message.x25519_public_key)?;
    let wrap = if message.kek_wrapped.is_empty() {
        None
    } else {
        Some(KeyWrap { signature, ..key_wrap(&message.ephemeral_pub, &message.kek_wrapped, &message.kek_nonce)? })
    };
    let proven = proven.map(|caller| &caller.principal);
    let joined = state
        .store
        .join(token, &email, proven, &principal, wrap.as_ref(), row)
        .await
        .map_err(or_exists("a principal named", &principal.name))?;
    match joined {
        Joined::Done(membership) => Ok(proto::JoinResponse {
            user_id: membership.user_id,
            principal_id: membership.principal_id,
            workspaces: membership
                .workspaces
                .into_iter()
                .map(|workspace| proto::Workspace { id: workspace.id, name: workspace.name })
                .collect(),
        }),
        Joined::UnknownInvite => Err(Status::not_found("invite not found; ask for a new one")),
        Joined::ExpiredInvite => Err(Status::permission_denied("the invite has expired; ask for a new one")),
        Joined::UsedUpInvite => {
            Err(Status::permission_denied("the invite has been used as often as it may be; ask for a new one"))
        }
        Joined::SeveralWorkspaces => Err(Status::failed_precondition(
            "the invite is to several workspaces but carries the key of one; ask for an invite to each workspace",
        )),
        Joined::OtherUser => Err(other_user()),
        Joined::KeyMissing => {
            Err(Status::invalid_argument("kek_wrapped must be given for an invite that brings workspaces"))
        }
    }
}

/// Registers a user, a further principal of the caller's user, or a service principal of a workspace.
pub(crate) async fn register(
    state: &Arc<State>,
    request: Request<proto::RegisterRequest>,
) -> Result<Response<proto::RegisterResponse>, Status> {
    if request.get_ref().is_service {
        let record = Record::Change(Action::PrincipalCreate, "principal");
        let mut call = Call::open(state, &request, "Register", record, None).await?;
        let result = match prove_key(state, "Register", &request, &request.get_ref().public_key) {
            Ok(()) => register_service(&mut call, request.into_inner()).await,
            Err(status) => Err(status),
        };
        return call.answer(result).await;
    }
    admit_open(state, &request, Action::UserRegister).await?;
    let mut row = open_row(Action::UserRegister, &request);
    let result = async {
        let proven = proven_caller(state, "Register", &request, &mut row).await?;
        prove_key(state, "Register", &request, &request.get_ref().public_key)?;
        register_user(state, proven.as_ref(), request.get_ref(), &row).await
    };
    let result = result.await;
    close(state, &row, result).await
}

async fn register_user(
    state: &Arc<State>,
    proven: Option<&Caller>,
    message: &proto::RegisterRequest,
    row: &AuditRow,
) -> Result<proto::RegisterResponse, Status> {
    let email = validate::email(&message.email)?;
    let principal = new_principal(&message.principal_name, &message.public_key, &message.x25519_public_key)?;
    let open = state.policy.open_registration;
    if proven.is_none() && !open {
        return Err(invite_only());
    }
    let registered = state
        .store
        .register(&email, proven.map(|caller| &caller.principal), open, &principal, row)
        .await
        .map_err(or_exists("a principal named", &principal.name))?;
    match registered {
        Registration::Done { user_id, principal_id } => Ok(proto::RegisterResponse { user_id, principal_id }),
        Registration::OtherUser => Err(other_user()),
        Registration::InviteOnly => Err(invite_only()),
    }
}

async fn register_service(call: &mut Call, message: proto::RegisterRequest) -> Result<proto::RegisterResponse, Status> {
    let Some(workspace_name) = &message.workspace_name else {
        return Err(Status::invalid_argument("workspace_name must be given for a service principal"));
    };
    let place = call.workspace(workspace_name, Access::KeyHolder).await?;
    call.require(&place, Role::Admin).await?;
    let principal = new_principal(&message.principal_name, &message.public_key, &message.x25519_public_key)?;
    let wrap = key_wrap(
        message.ephemeral_pub.as_deref().unwrap_or_default(),
        message.kek_wrapped.as_deref().unwrap_or_default(),
        message.kek_nonce.as_deref().unwrap_or_default(),
    )?;
    let wrap = signed_by_caller(
        call,
        call.wrap_signature.clone(),
        wrap,
        &place.workspace.id,
        principal.x25519_public_key.as_deref(),
    )?;
    let audit = call.audit(&principal.name);
    let principal_id = call
        .state
        .store
        .create_service_principal(&place.workspace.id, &principal, &wrap, &audit)
        .await
        .map_err(from_store)?;
    Ok(proto::RegisterResponse { user_id: String::new(), principal_id })
}

/// Confirms that somebody holds the key of a principal, and tells its ids.
pub(crate) async fn login(
    state: &Arc<State>,
    request: Request<proto::LoginRequest>,
) -> Result<Response<proto::LoginResponse>, Status> {
    admit_open(state, &request, Action::UserLogin).await?;
    let mut row = open_row(Action::UserLogin, &request);
    // An attacker must not learn by guessing which devices a user has.
    let guess = admit_guess(state, &request, blank_row(Action::UserLogin, "user")).await?;
    let result = login_as(state, request.into_inner(), &mut row).await;
    if result.is_ok() {
        guess.was_right();
    }
    let recorded = match &result {
        Ok(_) => row,
        Err(status) => refusal(row, status),
    };
    let is_recorded = state.audit.record(recorded).await.is_ok();
    if result.is_ok() && !is_recorded {
        return Err(Status::unavailable("this login cannot be recorded; try again later"));
    }
    result.map(Response::new)
}

async fn login_as(
    state: &Arc<State>,
    message: proto::LoginRequest,
    row: &mut AuditRow,
) -> Result<proto::LoginResponse, Status> {
    let email = validate::email(&message.email)?;
    let principal: PrincipalRow = state
        .store
        .principal_by_email_and_name(&email, &message.principal_name)
        .await
        .map_err(from_store)?
        .ok_or_else(|| Status::not_found("no user has this email and a principal of this name"))?;
    let caller = auth::verify_login(&state.store, &state.replays, &principal, message).await?;
    let user_id = caller.user_id()?.to_owned();
    row.principal_id.clone_from(&principal.id);
    row.user_id = Some(user_id.clone());
    row.signature = caller.used;
    row.resource_id.clone_from(&principal.id);
    Ok(proto::LoginResponse { user_id, principal_id: principal.id })
}

/// The caller, if the request is signed, and on record that the signature was used. A bad signature is refused even where none is needed.
async fn proven_caller<M: Message>(
    state: &Arc<State>,
    call: &str,
    request: &Request<M>,
    row: &mut AuditRow,
) -> Result<Option<Caller>, Status> {
    if !is_signed(request.metadata()) {
        return Ok(None);
    }
    let method = method_path(call);
    let caller = auth::authenticate(state, &method, request, Repeat::Refused, None).await?;
    row.signature = caller.used;
    row.authority = Authority::of(&caller.principal.id, caller.principal.user_id.as_deref());
    Ok(Some(caller))
}

/// Checks, as far as the client can show it and the server asks for it, that the key to be registered is its sender's.
fn prove_key<M: Message>(state: &State, call: &str, request: &Request<M>, public_key: &[u8]) -> Result<(), Status> {
    auth::check_key_proof(request, &method_path(call), public_key, state.policy.require_key_proof)
}

fn new_principal(name: &str, public_key: &[u8], x25519_public_key: &[u8]) -> Result<NewPrincipal, Status> {
    Ok(NewPrincipal {
        name: validate::name("principal_name", name)?.to_owned(),
        public_key: validate::signing_key(public_key)?,
        x25519_public_key: validate::optional_x25519_key(x25519_public_key)?,
    })
}

fn invite_only() -> Status {
    Status::permission_denied(
        "new users come by invite: ask for one and use \"zopp join\" (a server started with --open-registration needs none); to add a \
         principal to your own user, sign the request with a principal you have",
    )
}

fn other_user() -> Status {
    Status::permission_denied(
        "a user with this email exists; to add a principal to your own user, sign the request with a principal you have",
    )
}

fn open_row<M>(action: Action, request: &Request<M>) -> AuditRow {
    AuditRow { principal_id: NOBODY.into(), client_ip: client_ip(request), ..blank_row(action, "user") }
}

/// A success has recorded itself.
async fn close<T>(state: &Arc<State>, row: &AuditRow, result: Result<T, Status>) -> Result<Response<T>, Status> {
    if let Err(status) = &result {
        // A refusal is never held up by its row.
        let _ = state.audit.record(refusal(row.clone(), status)).await;
    }
    result.map(Response::new)
}
