//! One change after the other: each call that changes anything, once.

use std::collections::HashMap;

use konverge_zopp_crypto::SigningSeed;
use konverge_zopp_proto::{
    self as proto, Role,
    identity::{self, RotateWorkspaceKeyRequest},
    secrets,
};
use prost::Message;
use tonic::Code;

use crate::harness::{exchange_key, join_request, now, register_request, service_request, upsert, workspace_request};

/// The caller of a step.
#[derive(Debug, Clone, Copy)]
pub(super) enum By {
    Nobody,
    Owner,
    /// The user who joins on the way.
    Member,
}

/// The end of a step to which nothing happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    Done,
    /// It changes something all the same.
    Refused(Code),
}

/// The objects that a message refers to.
pub(super) struct Known {
    /// Identifiers, and the code of an export.
    pub(super) names: HashMap<String, String>,
    /// A new key for `acme`, as long as the owner may replace it.
    pub(super) rotation: Option<RotateWorkspaceKeyRequest>,
}

impl Known {
    pub(super) fn id(&self, name: &str) -> &str {
        self.names.get(name).unwrap_or_else(|| panic!("there is no {name}"))
    }
}

/// A change.
pub(super) struct Step {
    pub(super) path: String,
    pub(super) by: By,
    pub(super) message: fn(&Known) -> Vec<u8>,
    pub(super) outcome: Outcome,
}

/// The calls that change nothing, or nothing but the audit log.
pub(super) const READS: [&str; 46] = [
    "CountAuditLogs",
    "GetAuditLog",
    "GetEffectivePermissions",
    "GetEnvironment",
    "GetEnvironmentPermission",
    "GetGroup",
    "GetGroupEnvironmentPermission",
    "GetGroupProjectPermission",
    "GetGroupWorkspacePermission",
    "GetInvite",
    "GetKeyChain",
    "GetKeySignature",
    "GetKeyState",
    "GetPrincipal",
    "GetProject",
    "GetProjectPermission",
    "GetSecret",
    "GetUserEnvironmentPermission",
    "GetUserProjectPermission",
    "GetUserWorkspacePermission",
    "GetWorkspaceKeys",
    "GetWorkspacePermission",
    "ListAuditLogs",
    "ListEnvironmentPermissions",
    "ListEnvironments",
    "ListGroupEnvironmentPermissions",
    "ListGroupMembers",
    "ListGroupProjectPermissions",
    "ListGroupWorkspacePermissions",
    "ListGroups",
    "ListInvites",
    "ListPrincipals",
    "ListProjectPermissions",
    "ListProjects",
    "ListSecrets",
    "ListUserEnvironmentPermissions",
    "ListUserGroups",
    "ListUserProjectPermissions",
    "ListUserWorkspacePermissions",
    "ListWorkspacePermissions",
    "ListWorkspaceServicePrincipals",
    "ListWorkspaces",
    "ReadEnvironment",
    "ReadSecret",
    "ReadSecretHistory",
    "WatchSecrets",
];

/// The other places of the grants of which one is a step. `Login` uses a signature up, by one statement.
pub(super) const SAME_STATEMENTS: [&str; 13] = [
    "Login",
    "RemoveEnvironmentPermission",
    "RemoveGroupProjectPermission",
    "RemoveGroupWorkspacePermission",
    "RemoveUserEnvironmentPermission",
    "RemoveUserProjectPermission",
    "RemoveWorkspacePermission",
    "SetEnvironmentPermission",
    "SetGroupProjectPermission",
    "SetGroupWorkspacePermission",
    "SetUserEnvironmentPermission",
    "SetUserProjectPermission",
    "SetWorkspacePermission",
];

pub(super) fn owner_seed() -> SigningSeed {
    seed(1)
}

pub(super) fn member_seed() -> SigningSeed {
    seed(2)
}

fn seed(number: u8) -> SigningSeed {
    SigningSeed::from_slice(&[number; 32]).unwrap()
}

const OTHER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const MEMBER: &str = "member@example.com";

/// The token of the invite.
fn token() -> String {
    "ab".repeat(32)
}

/// The proof that belongs to the export.
fn token_hash() -> String {
    hex::encode([7; 32])
}

macro_rules! steps {
    ($($package:ident $call:ident by $by:ident: |$known:ident| $message:ident { $($field:ident: $value:expr),* $(,)? } $(refused $code:ident)?;)*) => {
        vec![$(Step {
            path: $package::method_path(stringify!($call)),
            by: By::$by,
            message: |$known| {
                let _ = $known;
                #[allow(clippy::needless_update, reason = "some messages have no more fields")]
                let message = $package::$message { $($field: $value.into(),)* ..Default::default() };
                message.encode_to_vec()
            },
            outcome: [$(Outcome::Refused(Code::$code),)? Outcome::Done][0],
        }),*]
    };
}

#[expect(clippy::too_many_lines, reason = "one change after the other")]
pub(super) fn steps() -> Vec<Step> {
    let mut steps = steps! {
        proto CreateWorkspace by Owner: |known| CreateWorkspaceRequest {
            id: OTHER, name: "other", ephemeral_pub: vec![1; 32], kek_wrapped: vec![2; 48], kek_nonce: vec![3; 24],
        };
    };
    steps.extend([
        own(proto::method_path("Register"), By::Owner, |_| service_request("acme", &seed(4)).encode_to_vec()),
        own(proto::method_path("Register"), By::Owner, |_| {
            register_request("owner@example.com", "phone", &seed(3)).encode_to_vec()
        }),
    ]);
    steps.extend(steps! {
        proto GrantPrincipalWorkspaceAccess by Owner: |known| GrantPrincipalWorkspaceAccessRequest {
            workspace_name: "acme", principal_id: known.id("phone"), ephemeral_pub: exchange_key(), kek_wrapped: vec![2; 48],
            kek_nonce: vec![3; 24],
        };
        proto CreateInvite by Owner: |known| CreateInviteRequest {
            workspace_ids: vec![known.id("acme").to_owned()], expires_at: now() + 3600, token: token(), kek_encrypted: vec![1; 48],
            kek_nonce: vec![2; 24],
        };
        identity CreateInvite by Owner: |known| CreateInviteRequest {
            workspace_id: known.id("acme"), expires_at: now() + 3600, token: "cd".repeat(32), kek_encrypted: vec![1; 48],
            kek_nonce: vec![2; 24], max_uses: 3_u32,
        };
    });
    steps.push(own(proto::method_path("Join"), By::Nobody, |_| {
        let join = join_request(&token(), MEMBER, &member_seed());
        let wrap = workspace_request("");
        let join = proto::JoinRequest {
            principal_name: "notebook".into(),
            ephemeral_pub: wrap.ephemeral_pub,
            kek_wrapped: wrap.kek_wrapped,
            kek_nonce: wrap.kek_nonce,
            ..join
        };
        join.encode_to_vec()
    }));
    steps.extend(steps! {
        proto RevokeInvite by Owner: |known| RevokeInviteRequest { token: token() };
        proto CreateProject by Owner: |known| CreateProjectRequest { workspace_name: "acme", name: "frontend" };
        proto CreateEnvironment by Owner: |known| CreateEnvironmentRequest {
            workspace_name: "acme", project_name: "frontend", name: "staging", dek_wrapped: vec![1; 48], dek_nonce: vec![1; 24],
        };
    });
    steps.extend([
        own(proto::method_path("UpsertSecret"), By::Owner, |_| upsert("A").encode_to_vec()),
        own(proto::method_path("UpsertSecret"), By::Owner, |_| {
            proto::UpsertSecretRequest { ciphertext: vec![8; 30], ..upsert("A") }.encode_to_vec()
        }),
    ]);
    steps.extend(steps! {
        secrets ChangeSecrets by Owner: |known| ChangeSecretsRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", delete: vec!["A".to_owned()],
            set: ["B", "C"].map(|key| secrets::EncryptedSecret { key: key.into(), nonce: vec![1; 24], ciphertext: vec![2; 20] }),
        };
        proto DeleteSecret by Owner: |known| DeleteSecretRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", key: "B",
        };
        secrets ForgetSecretHistory by Owner: |known| ForgetSecretHistoryRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", key: "A",
        };
        proto SetUserWorkspacePermission by Owner: |known| SetUserWorkspacePermissionRequest {
            workspace_name: "acme", user_email: MEMBER, role: role(),
        };
        proto SetProjectPermission by Owner: |known| SetProjectPermissionRequest {
            workspace_name: "acme", project_name: "backend", principal_id: known.id("operator"), role: role(),
        };
        proto RemoveProjectPermission by Owner: |known| RemoveProjectPermissionRequest {
            workspace_name: "acme", project_name: "backend", principal_id: known.id("operator"),
        };
        proto SetProjectPermission by Owner: |known| SetProjectPermissionRequest {
            workspace_name: "acme", project_name: "frontend", principal_id: known.id("operator"), role: role(),
        };
        proto RemoveUserWorkspacePermission by Owner: |known| RemoveUserWorkspacePermissionRequest {
            workspace_name: "acme", user_email: MEMBER,
        };
        proto CreateGroup by Owner: |known| CreateGroupRequest { workspace_name: "acme", name: "team", description: "a team" };
        proto AddGroupMember by Owner: |known| AddGroupMemberRequest { workspace_name: "acme", group_name: "team", user_email: MEMBER };
        proto SetGroupEnvironmentPermission by Owner: |known| SetGroupEnvironmentPermissionRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", group_name: "team", role: role(),
        };
        proto RemoveGroupEnvironmentPermission by Owner: |known| RemoveGroupEnvironmentPermissionRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", group_name: "team",
        };
        proto UpdateGroup by Owner: |known| UpdateGroupRequest {
            workspace_name: "acme", group_name: "team", new_name: "people", new_description: "people",
        };
        proto RemoveGroupMember by Owner: |known| RemoveGroupMemberRequest { workspace_name: "acme", group_name: "people", user_email: MEMBER };
        proto DeleteGroup by Owner: |known| DeleteGroupRequest { workspace_name: "acme", group_name: "people" };
        proto CreatePrincipalExport by Owner: |known| CreatePrincipalExportRequest {
            token_hash: token_hash(), verification_salt: vec![1; 16], encrypted_data: vec![1; 40], salt: vec![1; 16], nonce: vec![1; 24],
            expires_at: now() + 3600,
        };
        // The wrong attempt counts.
        proto GetPrincipalExport by Nobody: |known| GetPrincipalExportRequest {
            export_code: known.id("export"), token_hash: hex::encode([8; 32]),
        } refused PermissionDenied;
        proto ConsumePrincipalExport by Nobody: |known| ConsumePrincipalExportRequest {
            export_code: known.id("export"), token_hash: token_hash(),
        };
        proto RenamePrincipal by Owner: |known| RenamePrincipalRequest { principal_id: known.id("phone"), new_name: "tablet" };
        proto RevokeAllPrincipalPermissions by Owner: |known| RevokeAllPrincipalPermissionsRequest {
            workspace_name: "acme", principal_id: known.id("operator"),
        };
        identity DisablePrincipal by Owner: |known| DisablePrincipalRequest { principal_id: known.id("tablet") };
        identity EnablePrincipal by Owner: |known| EnablePrincipalRequest { principal_id: known.id("tablet") };
    });
    steps.push(own(identity::method_path("RotateWorkspaceKey"), By::Owner, |known| {
        known.rotation.as_ref().expect("the owner may").encode_to_vec()
    }));
    steps.extend(steps! {
        proto RemovePrincipalFromWorkspace by Owner: |known| RemovePrincipalFromWorkspaceRequest {
            workspace_name: "acme", principal_id: known.id("operator"),
        };
        identity TransferOwnership by Owner: |known| TransferOwnershipRequest { workspace_name: "acme", user_email: MEMBER };
        identity RemoveMember by Member: |known| RemoveMemberRequest { workspace_name: "acme", user_email: "owner@example.com" };
        proto DeleteEnvironment by Member: |known| DeleteEnvironmentRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production",
        };
        proto DeleteProject by Member: |known| DeleteProjectRequest { workspace_name: "acme", project_name: "frontend" };
        identity DeleteWorkspace by Member: |known| DeleteWorkspaceRequest { workspace_name: "acme", even_if_not_empty: true };
        identity DeleteWorkspace by Owner: |known| DeleteWorkspaceRequest { workspace_name: "other" };
        identity RemoveUser by Owner: |known| RemoveUserRequest { user_email: "owner@example.com" };
    });
    steps
}

/// A step whose message has a function of its own.
fn own(path: String, by: By, message: fn(&Known) -> Vec<u8>) -> Step {
    Step { path, by, message, outcome: Outcome::Done }
}

fn role() -> i32 {
    Role::Read.into()
}
