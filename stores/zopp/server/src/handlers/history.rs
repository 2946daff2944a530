//! Earlier values of secrets: the calls of Konverge's own. The server sees when and by whom they were set, never a value.

use konverge_zopp_proto::secrets as proto;
use tonic::Status;

use super::secrets::resolve;
use crate::{
    call::Call,
    rbac::Role,
    status::{from_store, or_missing},
    store::{EndRow, Extent, HistoryState, VersionRow},
    validate,
};

/// Reads the versions of a secret. Earlier values are for callers that could set them again: a reader needs the current one only.
pub(crate) async fn read(
    call: &mut Call,
    message: proto::ReadSecretHistoryRequest,
) -> Result<proto::ReadSecretHistoryResponse, Status> {
    validate::lookup("secret key", &message.key)?;
    let extent = match (message.version, message.with_ciphertexts) {
        (Some(version), _) => Extent::One(version),
        (None, true) => Extent::All,
        (None, false) => Extent::Numbers,
    };
    let details = match extent {
        Extent::Numbers => None,
        Extent::All => Some(r#"{"values":"all"}"#.to_owned()),
        Extent::One(version) => Some(serde_json::json!({ "version": version }).to_string()),
    };
    call.about(&message.key, details);
    let role = if extent == Extent::Numbers { Role::Read } else { Role::Write };
    let names = [&message.workspace_name, &message.project_name, &message.environment_name];
    let (_, environment) = resolve(call, names, role).await?;
    if extent != Extent::Numbers {
        call.reserve_history().await?;
    }
    let history = call.state.store.secret_history(&environment.id, &message.key, extent).await.map_err(from_store)?;
    let Some(HistoryState { dek_wrapped, dek_nonce, versions }) = history else {
        return Err(Status::not_found(format!("environment {:?} not found", environment.name)));
    };
    let versions = versions.into_iter().map(answer).collect();
    Ok(proto::ReadSecretHistoryResponse { environment_id: environment.id, dek_wrapped, dek_nonce, versions })
}

/// Erases the earlier values of a secret.
pub(crate) async fn forget(
    call: &mut Call,
    message: proto::ForgetSecretHistoryRequest,
) -> Result<proto::ForgetSecretHistoryResponse, Status> {
    validate::lookup("secret key", &message.key)?;
    let names = [&message.workspace_name, &message.project_name, &message.environment_name];
    let (_, environment) = resolve(call, names, Role::Write).await?;
    let audit = call.audit(&message.key);
    let erased = call.state.store.forget_history(&environment.id, &message.key, &audit).await;
    let erased = erased.map_err(or_missing("environment", &environment.name))?;
    Ok(proto::ForgetSecretHistoryResponse { erased: u32::try_from(erased).unwrap_or(u32::MAX) })
}

fn answer(row: VersionRow) -> proto::SecretVersion {
    let VersionRow { version, nonce, ciphertext, set_at, set_by, end } = row;
    let end =
        end.map(|EndRow { version, at, by, deleted }| proto::VersionEnd { version, at, by: Some(actor(by)), deleted });
    proto::SecretVersion { version, nonce, ciphertext, set_at, set_by: set_by.map(actor), end }
}

fn actor((principal_id, name): (String, Option<String>)) -> proto::Actor {
    proto::Actor { principal_id, name: name.unwrap_or_default() }
}
