//! Workspaces and their keys.

use konverge_zopp_crypto::{SigningPublic, WrapToSign, wrap_signature::WRAP_SIGNATURE_KEY};
use konverge_zopp_proto::{self as proto, identity};
use tonic::Status;

use crate::{
    call::{Access, Call},
    rbac::Role,
    status::{from_store, or_exists},
    store::{Admitted, KeyWrap, NewWorkspace, StoreError},
    validate,
};

/// Makes a workspace that the caller's user owns.
pub(crate) async fn create(
    call: &mut Call,
    message: proto::CreateWorkspaceRequest,
) -> Result<proto::Workspace, Status> {
    let owner = call.caller.user_id()?.to_owned();
    let id = validate::id("id", &message.id)?;
    let name = validate::name("workspace name", &message.name)?;
    let wrap = key_wrap(&message.ephemeral_pub, &message.kek_wrapped, &message.kek_nonce)?;
    let wrap = signed_by_caller(
        call,
        call.wrap_signature.clone(),
        wrap,
        &id,
        call.caller.principal.x25519_public_key.as_deref(),
    )?;
    let mut kdf_salt = [0; 32];
    getrandom::fill(&mut kdf_salt).map_err(|error| {
        tracing::error!(%error, "the operating system gave no random bytes");
        Status::internal("the server could not complete the request; its log says why")
    })?;
    let mut audit = call.audit(&id);
    audit.workspace_id = Some(id.clone());
    let workspace = NewWorkspace { id: &id, name, kdf_salt };
    call.state
        .store
        .create_workspace(&workspace, &owner, &call.caller.principal.id, &wrap, &audit)
        .await
        .map_err(or_exists("workspace", name))?;
    Ok(proto::Workspace { id, name: message.name })
}

/// The workspaces of the caller's user.
pub(crate) async fn list(call: &mut Call, _: proto::Empty) -> Result<proto::WorkspaceList, Status> {
    let (user_id, principal_id) = (call.caller.user_id()?, &call.caller.principal.id);
    let rows = call.state.store.workspaces_of_user(user_id, principal_id).await.map_err(from_store)?;
    let workspaces = rows.into_iter().map(|row| proto::Workspace { id: row.id, name: row.name }).collect();
    Ok(proto::WorkspaceList { workspaces })
}

/// The workspace key as wrapped for the caller.
pub(crate) async fn keys(
    call: &mut Call,
    message: proto::GetWorkspaceKeysRequest,
) -> Result<proto::WorkspaceKeys, Status> {
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    let (store, name) = (&call.state.store, &message.workspace_name);
    // Before the key: a key that is replaced in between is newer than its number says, and what is made of it is refused once.
    let generation = store.key_generation(&place.workspace.id).await.map_err(from_store)?;
    let generation = generation.ok_or_else(|| Status::not_found("workspace not found or access denied"))?;
    let wrap = store.key_wrap(&place.workspace.id, &call.caller.principal.id).await.map_err(from_store)?;
    let wrap = wrap.ok_or_else(|| {
        Status::not_found(match generation {
            1 => format!("workspace {name:?} has no key for this principal; ask a member to grant it access"),
            _ => format!(
                "workspace {name:?} has no key for this principal; the key was replaced (it is generation {generation} now), and this \
                 principal may have been left out: ask for access, which an admin grants"
            ),
        })
    })?;
    Ok(proto::WorkspaceKeys {
        workspace_id: place.workspace.id,
        ephemeral_pub: wrap.ephemeral_pub,
        kek_wrapped: wrap.kek_wrapped,
        kek_nonce: wrap.kek_nonce,
        generation,
    })
}

/// Keeps the workspace key wrapped for another principal: for one of the caller's own, or as an admin.
pub(crate) async fn grant_access(
    call: &mut Call,
    message: proto::GrantPrincipalWorkspaceAccessRequest,
) -> Result<proto::Empty, Status> {
    let Some(user_id) = call.caller.principal.user_id.clone() else {
        return Err(Status::permission_denied("service principals cannot grant access to a workspace"));
    };
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    let target = match validate::id("principal_id", &message.principal_id) {
        Ok(id) => call.state.store.principal(&id).await.map_err(from_store)?,
        Err(_) => None,
    };
    let own = target.as_ref().is_some_and(|target| target.user_id.as_ref() == Some(&user_id));
    if !own {
        call.require(&place, Role::Admin).await?;
    }
    validate::id("principal_id", &message.principal_id)?;
    let target = target.ok_or_else(|| not_found(&message.principal_id))?;
    let wrap = key_wrap(&message.ephemeral_pub, &message.kek_wrapped, &message.kek_nonce)?;
    let signature = call.wrap_signature.clone();
    let wrap = signed_by_caller(call, signature, wrap, &place.workspace.id, target.x25519_public_key.as_deref())?;
    let audit = call.audit(&target.id);
    let caller = &call.caller.principal;
    let admitted = call.state.store.grant_access(caller, &place.workspace.id, &target, &wrap, &audit).await;
    let admitted = admitted.map_err(|error| match error {
        StoreError::Duplicate => Status::already_exists(format!(
            "principal {:?} has access to workspace {:?} already",
            target.id, place.workspace.name
        )),
        other => from_store(other),
    })?;
    match admitted {
        Admitted::Done => Ok(proto::Empty {}),
        Admitted::Disabled => Err(Status::failed_precondition(format!("principal {:?} is disabled", target.id))),
        Admitted::Barred => Err(Status::permission_denied(format!(
            "principal {:?} was taken out of workspace {:?}; ask an admin of the workspace to grant it access again",
            target.id, place.workspace.name
        ))),
    }
}

/// A wrapped workspace key, with all three parts of the right length.
pub(crate) fn key_wrap(ephemeral_pub: &[u8], kek_wrapped: &[u8], kek_nonce: &[u8]) -> Result<KeyWrap, Status> {
    Ok(KeyWrap {
        ephemeral_pub: validate::ephemeral_key(ephemeral_pub)?,
        kek_wrapped: validate::wrapped_key("kek_wrapped", kek_wrapped)?,
        kek_nonce: validate::nonce("kek_nonce", kek_nonce)?,
        signature: None,
        signer_id: None,
    })
}

/// The wrap with the caller's signature, if there is one. A wrong one is refused: its recipient would refuse the key.
pub(crate) fn signed_by_caller(
    call: &Call,
    signature: Option<Vec<u8>>,
    wrap: KeyWrap,
    workspace_id: &str,
    recipient: Option<&[u8]>,
) -> Result<KeyWrap, Status> {
    let Some(signature) = signature else { return Ok(wrap) };
    let signed = WrapToSign {
        workspace_id,
        recipient: recipient.unwrap_or_default(),
        ephemeral_public: &wrap.ephemeral_pub,
        nonce: &wrap.kek_nonce,
        wrapped: &wrap.kek_wrapped,
    };
    let caller = &call.caller.principal;
    let is_right =
        SigningPublic::from_slice(&caller.public_key).is_ok_and(|key| signed.verify(&key, &signature).is_ok());
    if !is_right {
        return Err(Status::invalid_argument(format!(
            "{WRAP_SIGNATURE_KEY} is not by the caller over this workspace key for this recipient"
        )));
    }
    Ok(KeyWrap { signature: Some(signature), signer_id: Some(caller.id.clone()), ..wrap })
}

/// By whom the caller's copy of a workspace key was wrapped.
pub(crate) async fn key_signature(
    call: &mut Call,
    message: identity::GetKeySignatureRequest,
) -> Result<identity::GetKeySignatureResponse, Status> {
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    let own_id = call.caller.principal.id.clone();
    let store = &call.state.store;
    let wrap = store.key_wrap(&place.workspace.id, &own_id).await.map_err(from_store)?;
    let unsigned = || Status::not_found("no signature of this workspace key is known");
    let KeyWrap { signature, signer_id, .. } = wrap.ok_or_else(unsigned)?;
    let signature = signature.ok_or_else(unsigned)?;
    let signer = store.principal(&signer_id.unwrap_or(own_id)).await.map_err(from_store)?.ok_or_else(unsigned)?;
    Ok(identity::GetKeySignatureResponse {
        principal_id: signer.id,
        principal_name: signer.name,
        public_key: signer.public_key,
        x25519_public_key: signer.x25519_public_key.unwrap_or_default(),
        signature,
    })
}

/// For a principal that is not there.
pub(crate) fn not_found(id: &str) -> Status {
    Status::not_found(format!("principal {id:?} not found"))
}
