//! Replacing the key of a workspace: the calls of Konverge's own.

use std::collections::BTreeSet;

use konverge_zopp_crypto::{Fingerprint, KeyAdministrators, KeyLink, Sealed, SigningPublic};
use konverge_zopp_proto::identity as proto;
use tonic::Status;

use super::workspaces::{key_wrap, signed_by_caller};
use crate::{
    call::{Access, Call},
    clock,
    place::Place,
    rbac::Role,
    status::from_store,
    store::{KeyHolderRow, KeyLinkRow, KeyRotation, KeyState, KeyedEnvironmentRow, Rotated},
    validate,
};

/// A workspace whose key was replaced so often has a chain that is no longer worth following.
const MOST_GENERATIONS: u32 = 1000;

/// A link that names more principals is refused. Each reader of the chain gets all of them.
const MAX_ADMINISTRATORS: usize = 1000;

/// The holders of a workspace's key and the environments whose keys it wraps.
pub(crate) async fn state(
    call: &mut Call,
    message: proto::GetKeyStateRequest,
) -> Result<proto::GetKeyStateResponse, Status> {
    let place = admin(call, &message.workspace_name).await?;
    let workspace_id = place.workspace.id.clone();
    call.about(&workspace_id, None);
    let KeyState { generation, holders: rows, environments } = current(call, &workspace_id).await?;
    let mut holders = Vec::with_capacity(rows.len());
    for row in rows {
        let administrator = is_administrator(call, &row, &place).await?;
        holders.push(proto::KeyHolder { administrator, ..holder(row) });
    }
    Ok(proto::GetKeyStateResponse {
        workspace_id,
        generation,
        holders,
        environments: environments.into_iter().map(environment).collect(),
    })
}

/// Replaces the key of a workspace.
pub(crate) async fn rotate(
    call: &mut Call,
    message: proto::RotateWorkspaceKeyRequest,
) -> Result<proto::RotateWorkspaceKeyResponse, Status> {
    let place = admin(call, &message.workspace_name).await?;
    let workspace_id = place.workspace.id;
    let KeyState { generation, holders, .. } = current(call, &workspace_id).await?;
    if generation != message.expected_generation {
        return Err(outdated());
    }
    if generation >= MOST_GENERATIONS {
        return Err(Status::failed_precondition(format!(
            "the key of this workspace was replaced {MOST_GENERATIONS} times, which is the most there may be; make a new workspace"
        )));
    }
    let link = link(call, message.link.unwrap_or_default(), &workspace_id, generation + 1)?;
    let own_id = &call.caller.principal.id;
    if !message.wraps.iter().any(|wrap| wrap.principal_id == *own_id) {
        return Err(Status::invalid_argument("the new key must be wrapped for the caller as well"));
    }
    let wraps = message.wraps.into_iter().map(|wrap| {
        let recipient = holders.iter().find(|holder| holder.id == wrap.principal_id).ok_or_else(outdated)?;
        let fields = key_wrap(&wrap.ephemeral_pub, &wrap.kek_wrapped, &wrap.kek_nonce)?;
        let key = recipient.x25519_public_key.as_deref();
        Ok((wrap.principal_id, signed_by_caller(call, Some(wrap.signature), fields, &workspace_id, key)?))
    });
    let wraps = wraps.collect::<Result<Vec<_>, Status>>()?;
    let environments = message.environments.into_iter().map(|dek| {
        let wrapped = validate::wrapped_key("dek_wrapped", &dek.dek_wrapped)?;
        Ok((dek.environment_id, wrapped, validate::nonce("dek_nonce", &dek.dek_nonce)?))
    });
    let environments = environments.collect::<Result<Vec<_>, Status>>()?;
    let generation = link.generation;
    let rotation = KeyRotation {
        expected_generation: message.expected_generation,
        link,
        wraps,
        left_out: message.left_out,
        environments,
    };
    let mut audit = call.audit(&workspace_id);
    audit.details = Some(format!("{{\"generation\":{generation},\"left_out\":{}}}", rotation.left_out.len()));
    let rotated = call.state.store.rotate_key(&workspace_id, &rotation, &audit).await.map_err(from_store)?;
    let invites = match rotated {
        Rotated::Done { invites } => invites,
        Rotated::Outdated => return Err(outdated()),
        Rotated::Disabled => {
            return Err(Status::failed_precondition(
                "a disabled principal gets no key; leave it out, or enable it first",
            ));
        }
        Rotated::Broken => {
            return Err(Status::invalid_argument(
                "the former key of the link is not the key to which the workspace's chain leads",
            ));
        }
    };
    Ok(proto::RotateWorkspaceKeyResponse { generation, invites_revoked: u32::try_from(invites).unwrap_or(u32::MAX) })
}

fn outdated() -> Status {
    Status::aborted("the key of the workspace, its holders or its environments were changed meanwhile; read them again")
}

/// How the key of a workspace was replaced.
pub(crate) async fn chain(
    call: &mut Call,
    message: proto::GetKeyChainRequest,
) -> Result<proto::GetKeyChainResponse, Status> {
    let place = call.workspace(&message.workspace_name, Access::KeyHolder).await?;
    let links = call.state.store.key_chain(&place.workspace.id).await.map_err(from_store)?;
    let links = links.into_iter().map(link_answer).collect();
    Ok(proto::GetKeyChainResponse { workspace_id: place.workspace.id, links })
}

/// The workspace, for a person who is its admin and holds its key.
async fn admin(call: &mut Call, name: &str) -> Result<Place, Status> {
    call.caller.user_id()?;
    let place = call.workspace(name, Access::Member).await?;
    call.require(&place, Role::Admin).await?;
    Ok(place)
}

/// Returns `true` if a holder of the key may replace it: a device of a person who is an admin of the workspace.
async fn is_administrator(call: &Call, holder: &KeyHolderRow, place: &Place) -> Result<bool, Status> {
    let Some(user_id) = &holder.user_id else { return Ok(false) };
    let grants = call.state.store.grants(&holder.id, Some(user_id), &place.scope).await.map_err(from_store)?;
    Ok(grants.allow(Role::Admin))
}

async fn current(call: &Call, workspace_id: &str) -> Result<KeyState, Status> {
    let state = call.state.store.key_state(workspace_id).await.map_err(from_store)?;
    state.ok_or_else(|| Status::not_found("workspace not found or access denied"))
}

/// The link, if its signatures are by the caller. Nobody would follow another one.
fn link(call: &Call, link: proto::KeyLink, workspace_id: &str, generation: u32) -> Result<KeyLinkRow, Status> {
    let nonce = validate::nonce("former_nonce", &link.former_nonce)?;
    let former_sealed = validate::wrapped_key("former_sealed", &link.former_sealed)?;
    let signed = KeyLink {
        generation,
        former: fingerprint("former_fingerprint", &link.former_fingerprint)?,
        new: fingerprint("fingerprint", &link.fingerprint)?,
        sealed: Sealed {
            nonce: nonce
                .as_slice()
                .try_into()
                .map_err(|_| Status::invalid_argument("former_nonce has a wrong length"))?,
            ciphertext: former_sealed.clone(),
        },
    };
    if signed.former == signed.new {
        return Err(Status::invalid_argument("the new key must be another one than the former"));
    }
    let caller = &call.caller.principal;
    let public_key = SigningPublic::from_slice(&caller.public_key)
        .ok()
        .filter(|key| signed.verify(workspace_id, key, &link.signature).is_ok())
        .ok_or_else(|| Status::invalid_argument("the signature of the link is not by the caller over this link"))?;
    let administrators = administrators(&link, signed.new, &public_key)?;
    Ok(KeyLinkRow {
        generation,
        former_fingerprint: link.former_fingerprint,
        fingerprint: link.fingerprint,
        former_nonce: nonce,
        former_sealed,
        signature: link.signature,
        signer_id: caller.id.clone(),
        signer_name: caller.name.clone(),
        signer_public_key: caller.public_key.clone(),
        signer_x25519_public_key: caller.x25519_public_key.clone().unwrap_or_default(),
        created_at: clock::now(),
        administrators_signature: administrators.is_some().then_some(link.administrators_signature),
        administrators,
    })
}

/// The administrators that a link names, if the signer signed them. `None` if an earlier client made the link, which names none.
fn administrators(link: &proto::KeyLink, key: Fingerprint, signer: &SigningPublic) -> Result<Option<Vec<u8>>, Status> {
    if link.administrators.is_empty() && link.administrators_signature.is_empty() {
        return Ok(None);
    }
    if link.administrators.len() > MAX_ADMINISTRATORS {
        return Err(Status::invalid_argument(format!("a link names at most {MAX_ADMINISTRATORS} administrators")));
    }
    let prints = link.administrators.iter().map(|bytes| fingerprint("administrators", bytes));
    let list = KeyAdministrators { key, administrators: prints.collect::<Result<BTreeSet<_>, _>>()? };
    list.verify(signer, &link.administrators_signature).map_err(|_| {
        Status::invalid_argument("the signature of the administrators is not by the caller over them and the new key")
    })?;
    Ok(Some(list.administrators.into_iter().flat_map(Fingerprint::to_bytes).collect()))
}

fn fingerprint(what: &str, bytes: &[u8]) -> Result<Fingerprint, Status> {
    let length = Fingerprint::LENGTH;
    Fingerprint::from_slice(bytes)
        .ok_or_else(|| Status::invalid_argument(format!("{what} must be {length} bytes long")))
}

fn link_answer(row: KeyLinkRow) -> proto::KeyLink {
    let KeyLinkRow { generation, former_fingerprint, fingerprint, former_nonce, former_sealed, signature, .. } = row;
    proto::KeyLink {
        generation,
        former_fingerprint,
        fingerprint,
        former_nonce,
        former_sealed,
        signature,
        signer_id: row.signer_id,
        signer_name: row.signer_name,
        signer_public_key: row.signer_public_key,
        signer_x25519_public_key: row.signer_x25519_public_key,
        created_at: row.created_at,
        administrators: row
            .administrators
            .unwrap_or_default()
            .chunks(Fingerprint::LENGTH)
            .map(<[u8]>::to_vec)
            .collect(),
        administrators_signature: row.administrators_signature.unwrap_or_default(),
    }
}

fn holder(row: KeyHolderRow) -> proto::KeyHolder {
    proto::KeyHolder {
        signer_id: row.signer_id.unwrap_or_else(|| row.id.clone()),
        principal_id: row.id,
        principal_name: row.name,
        user_email: row.email,
        disabled: row.disabled_at.is_some(),
        public_key: row.public_key,
        x25519_public_key: row.x25519_public_key.unwrap_or_default(),
        ephemeral_pub: row.ephemeral_pub,
        kek_wrapped: row.kek_wrapped,
        kek_nonce: row.kek_nonce,
        signature: row.signature.unwrap_or_default(),
        administrator: false,
    }
}

fn environment(row: KeyedEnvironmentRow) -> proto::KeyedEnvironment {
    let KeyedEnvironmentRow { id, project, name, dek_wrapped, dek_nonce, made_under } = row;
    proto::KeyedEnvironment {
        environment_id: id,
        project_name: project,
        environment_name: name,
        dek_wrapped,
        dek_nonce,
        made_under,
    }
}
