//! The permissions of each role: callers of each role make every call, those of the original's table (section 5 of its specification) and our
//! own.

use std::collections::BTreeSet;

use konverge_zopp_crypto::SigningSeed;
use konverge_zopp_proto::{self as proto, Role, identity, method_path, secrets};
use konverge_zopp_testing::calls;
use prost::Message;
use tonic::{Code, Request, Status};

use crate::{
    harness::{Person, World, exchange_key, now, workspace_request},
    hostile::send_raw,
};

/// The position of a caller in workspace `acme`, from the weakest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Stranger,
    Member,
    Reader,
    Writer,
    Admin,
    Owner,
}

use Level::{Admin, Member, Owner, Reader, Stranger, Writer};

/// Whether services may make a call, and how they are refused if they may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Services {
    Yes,
    Unauthenticated,
    Denied,
}

use Services::{Denied, Unauthenticated, Yes};

struct Caller {
    level: Level,
    person: Person,
}

/// The names in a request.
struct Names {
    /// No other caller has it.
    own: String,
    /// A service of the workspace that makes no call.
    target: String,
}

/// A request of a caller, signed.
type Build = fn(&Person, &Names) -> Request<Vec<u8>>;

/// A call, the least that its caller must be, and a request that makes sense.
struct Row {
    path: String,
    least: Level,
    services: Services,
    build: Build,
}

const EMAIL: &str = "target@example.com";

macro_rules! rows {
    ($($name:ident: $least:expr, $services:expr, $message:ident $fields:tt, |$caller:ident, $names:ident|;)*) => {
        vec![$(Row {
            path: method_path(stringify!($name)),
            least: $least,
            services: $services,
            build: |$caller, $names| {
                let _ = ($caller, $names);
                $caller.sign(stringify!($name), rows!(@message $message $fields)).map(|message| message.encode_to_vec())
            },
        }),*]
    };
    (@message $message:ident { $($field:ident: $value:expr),* $(,)? }) => {
        #[allow(clippy::needless_update, reason = "some messages have no more fields")]
        { proto::$message { $($field: $value.into(),)* ..Default::default() } }
    };
}

macro_rules! own_rows {
    ($($package:ident $sign:ident $name:ident: $least:expr, $services:expr, $message:ident { $($field:ident: $value:expr),* $(,)? };)*) => {
        vec![$(Row {
            path: $package::method_path(stringify!($name)),
            least: $least,
            services: $services,
            build: |caller, _| {
                #[allow(clippy::needless_update, reason = "some messages have no more fields")]
                let message = $package::$message { $($field: $value.into(),)* ..Default::default() };
                caller.$sign(stringify!($name), message).map(|message| message.encode_to_vec())
            },
        }),*]
    };
}

fn role() -> i32 {
    Role::Read.into()
}

#[expect(clippy::too_many_lines, reason = "one line per call")]
fn table() -> Vec<Row> {
    let mut rows = rows! {
        CreateWorkspace: Stranger, Unauthenticated, CreateWorkspaceRequest {
            id: workspace_request("").id, name: n.own.clone(), ephemeral_pub: exchange_key(), kek_wrapped: vec![2; 48], kek_nonce: vec![3; 24],
        }, |c, n|;
        ListWorkspaces: Stranger, Unauthenticated, Empty {}, |c, n|;
        ListInvites: Stranger, Unauthenticated, Empty {}, |c, n|;
        ListPrincipals: Stranger, Unauthenticated, Empty {}, |c, n|;
        GetPrincipal: Stranger, Yes, GetPrincipalRequest { principal_id: c.principal_id.clone() }, |c, n|;
        RenamePrincipal: Stranger, Denied, RenamePrincipalRequest { principal_id: c.principal_id.clone(), new_name: n.own.clone() }, |c, n|;
        CreatePrincipalExport: Stranger, Denied, CreatePrincipalExportRequest {
            token_hash: hex::encode([7; 32]), verification_salt: vec![1; 16], encrypted_data: vec![1; 40], salt: vec![1; 16],
            nonce: vec![1; 24], expires_at: now() + 60,
        }, |c, n|;

        GetWorkspaceKeys: Member, Yes, GetWorkspaceKeysRequest { workspace_name: "acme" }, |c, n|;
        GrantPrincipalWorkspaceAccess: Admin, Denied, GrantPrincipalWorkspaceAccessRequest {
            workspace_name: "acme", principal_id: n.target.clone(), ephemeral_pub: exchange_key(), kek_wrapped: vec![2; 48], kek_nonce: vec![3; 24],
        }, |c, n|;
        ListWorkspaceServicePrincipals: Member, Unauthenticated, ListWorkspaceServicePrincipalsRequest { workspace_name: "acme" }, |c, n|;
        GetEffectivePermissions: Member, Unauthenticated, GetEffectivePermissionsRequest {
            workspace_name: "acme", principal_id: n.target.clone(),
        }, |c, n|;

        CreateProject: Admin, Unauthenticated, CreateProjectRequest { workspace_name: "acme", name: n.own.clone() }, |c, n|;
        ListProjects: Reader, Unauthenticated, ListProjectsRequest { workspace_name: "acme" }, |c, n|;
        GetProject: Reader, Unauthenticated, GetProjectRequest { workspace_name: "acme", project_name: "backend" }, |c, n|;
        DeleteProject: Admin, Unauthenticated, DeleteProjectRequest { workspace_name: "acme", project_name: format!("old-{}", n.own) }, |c, n|;
        CreateEnvironment: Admin, Unauthenticated, CreateEnvironmentRequest {
            workspace_name: "acme", project_name: "backend", name: n.own.clone(), dek_wrapped: vec![1; 48], dek_nonce: vec![1; 24],
        }, |c, n|;
        ListEnvironments: Reader, Unauthenticated, ListEnvironmentsRequest { workspace_name: "acme", project_name: "backend" }, |c, n|;
        GetEnvironment: Reader, Yes, GetEnvironmentRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production",
        }, |c, n|;
        DeleteEnvironment: Admin, Unauthenticated, DeleteEnvironmentRequest {
            workspace_name: "acme", project_name: "backend", environment_name: format!("old-{}", n.own),
        }, |c, n|;

        UpsertSecret: Writer, Yes, UpsertSecretRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", key: n.own.clone(), nonce: vec![1; 24],
            ciphertext: vec![1; 20],
        }, |c, n|;
        GetSecret: Reader, Yes, GetSecretRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", key: "A",
        }, |c, n|;
        ListSecrets: Reader, Yes, ListSecretsRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production",
        }, |c, n|;
        WatchSecrets: Reader, Yes, WatchSecretsRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", since_version: Some(0),
        }, |c, n|;
        DeleteSecret: Writer, Yes, DeleteSecretRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", key: n.own.clone(),
        }, |c, n|;

        CreateGroup: Admin, Unauthenticated, CreateGroupRequest { workspace_name: "acme", name: n.own.clone(), description: "" }, |c, n|;
        GetGroup: Member, Unauthenticated, GetGroupRequest { workspace_name: "acme", group_name: "team" }, |c, n|;
        ListGroups: Member, Unauthenticated, ListGroupsRequest { workspace_name: "acme" }, |c, n|;
        UpdateGroup: Admin, Unauthenticated, UpdateGroupRequest {
            workspace_name: "acme", group_name: "team", new_name: "", new_description: "the team",
        }, |c, n|;
        DeleteGroup: Admin, Unauthenticated, DeleteGroupRequest { workspace_name: "acme", group_name: format!("old-{}", n.own) }, |c, n|;
        AddGroupMember: Admin, Unauthenticated, AddGroupMemberRequest { workspace_name: "acme", group_name: "team", user_email: EMAIL }, |c, n|;
        RemoveGroupMember: Admin, Unauthenticated, RemoveGroupMemberRequest { workspace_name: "acme", group_name: "team", user_email: EMAIL }, |c, n|;
        ListGroupMembers: Member, Unauthenticated, ListGroupMembersRequest { workspace_name: "acme", group_name: "team" }, |c, n|;
        ListUserGroups: Member, Unauthenticated, ListUserGroupsRequest { workspace_name: "acme", user_email: EMAIL }, |c, n|;

        ListAuditLogs: Admin, Yes, ListAuditLogsRequest { workspace_name: "acme" }, |c, n|;
        GetAuditLog: Admin, Yes, GetAuditLogRequest { workspace_name: "acme", audit_log_id: uuid::Uuid::now_v7().to_string() }, |c, n|;
        CountAuditLogs: Admin, Yes, CountAuditLogsRequest { workspace_name: "acme" }, |c, n|;
    };
    rows.extend(grants());
    rows.extend(own_rows! {
        secrets sign_secrets ReadEnvironment: Reader, Yes, ReadEnvironmentRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production",
        };
        secrets sign_secrets ReadSecret: Reader, Yes, ReadSecretRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", key: "A",
        };
        secrets sign_secrets ChangeSecrets: Writer, Yes, ChangeSecretsRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", delete: vec!["none".to_owned()],
        };
        secrets sign_secrets ReadSecretHistory: Reader, Yes, ReadSecretHistoryRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", key: "A",
        };
        secrets sign_secrets ForgetSecretHistory: Writer, Yes, ForgetSecretHistoryRequest {
            workspace_name: "acme", project_name: "backend", environment_name: "production", key: "A",
        };
        identity sign_own GetKeyChain: Member, Yes, GetKeyChainRequest { workspace_name: "acme" };
        identity sign_own GetKeyState: Admin, Unauthenticated, GetKeyStateRequest { workspace_name: "acme" };
        identity sign_own RotateWorkspaceKey: Admin, Unauthenticated, RotateWorkspaceKeyRequest { workspace_name: "acme" };
        // For the owner alone, as the change itself decides (lifecycle.rs); an admin may know who is no member.
        identity sign_own TransferOwnership: Admin, Unauthenticated, TransferOwnershipRequest {
            workspace_name: "acme", user_email: "nobody@example.com",
        };
        identity sign_own RemoveMember: Admin, Unauthenticated, RemoveMemberRequest {
            workspace_name: "acme", user_email: "nobody@example.com",
        };
    });
    // The last ones: the target is of no use afterwards.
    rows.extend(rows! {
        RevokeAllPrincipalPermissions: Admin, Unauthenticated, RevokeAllPrincipalPermissionsRequest {
            workspace_name: "acme", principal_id: n.target.clone(),
        }, |c, n|;
        RemovePrincipalFromWorkspace: Admin, Unauthenticated, RemovePrincipalFromWorkspaceRequest {
            workspace_name: "acme", principal_id: n.target.clone(),
        }, |c, n|;
    });
    rows
}

/// The nine families of grants, each with its four calls. A grant to read is for those to give and to take who may read, except where the original
/// demands an admin.
fn grants() -> Vec<Row> {
    macro_rules! family {
        ($set:ident, $get:ident, $list:ident, $remove:ident: $change:expr, $services:expr, $level:tt, $holder:ident: |$n:ident| $value:expr;
         $set_message:ident, $get_message:ident, $list_message:ident, $remove_message:ident) => {
            family!(@rows $level, $set $get $list $remove, $change, $services, $holder, $n, $value, $set_message $get_message $list_message $remove_message)
        };
        (@rows [$($place:ident: $name:literal),*], $set:ident $get:ident $list:ident $remove:ident, $change:expr, $services:expr, $holder:ident,
         $n:ident, $value:expr, $set_message:ident $get_message:ident $list_message:ident $remove_message:ident) => {
            rows! {
                $list: Member, Unauthenticated, $list_message { $($place: $name),* }, |c, $n|;
                $set: $change, $services, $set_message { $($place: $name,)* $holder: $value, role: role() }, |c, $n|;
                $get: Member, Unauthenticated, $get_message { $($place: $name,)* $holder: $value }, |c, $n|;
                $remove: $change, $services, $remove_message { $($place: $name,)* $holder: $value }, |c, $n|;
            }
        };
    }
    let families = [
        family!(SetWorkspacePermission, GetWorkspacePermission, ListWorkspacePermissions, RemoveWorkspacePermission: Reader, Unauthenticated,
            [workspace_name: "acme"], principal_id: |n| n.target.clone();
            SetWorkspacePermissionRequest, GetWorkspacePermissionRequest, ListWorkspacePermissionsRequest, RemoveWorkspacePermissionRequest),
        family!(SetProjectPermission, GetProjectPermission, ListProjectPermissions, RemoveProjectPermission: Reader, Yes,
            [workspace_name: "acme", project_name: "backend"], principal_id: |n| n.target.clone();
            SetProjectPermissionRequest, GetProjectPermissionRequest, ListProjectPermissionsRequest, RemoveProjectPermissionRequest),
        family!(SetEnvironmentPermission, GetEnvironmentPermission, ListEnvironmentPermissions, RemoveEnvironmentPermission: Reader, Yes,
            [workspace_name: "acme", project_name: "backend", environment_name: "production"], principal_id: |n| n.target.clone();
            SetEnvironmentPermissionRequest, GetEnvironmentPermissionRequest, ListEnvironmentPermissionsRequest, RemoveEnvironmentPermissionRequest),
        family!(SetGroupWorkspacePermission, GetGroupWorkspacePermission, ListGroupWorkspacePermissions, RemoveGroupWorkspacePermission: Admin,
            Unauthenticated, [workspace_name: "acme"], group_name: |n| "team";
            SetGroupWorkspacePermissionRequest, GetGroupWorkspacePermissionRequest, ListGroupWorkspacePermissionsRequest,
            RemoveGroupWorkspacePermissionRequest),
        family!(SetGroupProjectPermission, GetGroupProjectPermission, ListGroupProjectPermissions, RemoveGroupProjectPermission: Admin,
            Unauthenticated, [workspace_name: "acme", project_name: "backend"], group_name: |n| "team";
            SetGroupProjectPermissionRequest, GetGroupProjectPermissionRequest, ListGroupProjectPermissionsRequest, RemoveGroupProjectPermissionRequest),
        family!(SetGroupEnvironmentPermission, GetGroupEnvironmentPermission, ListGroupEnvironmentPermissions, RemoveGroupEnvironmentPermission: Admin,
            Unauthenticated, [workspace_name: "acme", project_name: "backend", environment_name: "production"], group_name: |n| "team";
            SetGroupEnvironmentPermissionRequest, GetGroupEnvironmentPermissionRequest, ListGroupEnvironmentPermissionsRequest,
            RemoveGroupEnvironmentPermissionRequest),
        family!(SetUserWorkspacePermission, GetUserWorkspacePermission, ListUserWorkspacePermissions, RemoveUserWorkspacePermission: Reader,
            Unauthenticated, [workspace_name: "acme"], user_email: |n| EMAIL;
            SetUserWorkspacePermissionRequest, GetUserWorkspacePermissionRequest, ListUserWorkspacePermissionsRequest,
            RemoveUserWorkspacePermissionRequest),
        family!(SetUserProjectPermission, GetUserProjectPermission, ListUserProjectPermissions, RemoveUserProjectPermission: Admin, Unauthenticated,
            [workspace_name: "acme", project_name: "backend"], user_email: |n| EMAIL;
            SetUserProjectPermissionRequest, GetUserProjectPermissionRequest, ListUserProjectPermissionsRequest, RemoveUserProjectPermissionRequest),
        family!(SetUserEnvironmentPermission, GetUserEnvironmentPermission, ListUserEnvironmentPermissions, RemoveUserEnvironmentPermission: Admin,
            Unauthenticated, [workspace_name: "acme", project_name: "backend", environment_name: "production"], user_email: |n| EMAIL;
            SetUserEnvironmentPermissionRequest, GetUserEnvironmentPermissionRequest, ListUserEnvironmentPermissionsRequest,
            RemoveUserEnvironmentPermissionRequest),
    ];
    families.into_iter().flatten().collect()
}

/// The calls without a role to check: they are open, about the caller's own user or key, or need an object of the caller's.
const ELSEWHERE: [&str; 14] = [
    "Join",
    "Register",
    "Login",
    "GetInvite",
    "RevokeInvite",
    "CreateInvite",
    "GetPrincipalExport",
    "ConsumePrincipalExport",
    "DisablePrincipal",
    "EnablePrincipal",
    "DeleteWorkspace",
    "RemoveUser",
    "ListInvites",
    "GetKeySignature",
];

/// How a call ended for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It got past the checks of the caller, whatever came of it.
    Allowed,
    /// The workspace is not there for the caller.
    NoWorkspace,
    /// The caller's role is too low, or it is no human being.
    Denied,
    /// A service, where only human beings are known.
    Unauthenticated,
}

fn verdict(result: &Result<(), Status>) -> Verdict {
    match result {
        Err(status) if status.code() == Code::PermissionDenied => Verdict::Denied,
        Err(status) if status.code() == Code::Unauthenticated => Verdict::Unauthenticated,
        Err(status) if status.code() == Code::NotFound && status.message().contains("not found or access denied") => {
            Verdict::NoWorkspace
        }
        _ => Verdict::Allowed,
    }
}

fn expected(row: &Row, caller: &Caller) -> Verdict {
    let is_service = caller.person.user_id.is_empty();
    match row.services {
        Unauthenticated if is_service => Verdict::Unauthenticated,
        Denied if is_service => Verdict::Denied,
        _ if caller.level >= row.least => Verdict::Allowed,
        _ if caller.level == Stranger => Verdict::NoWorkspace,
        _ => Verdict::Denied,
    }
}

/// One caller of each kind, the weakest first.
async fn callers(world: &World, owner: &mut Person) -> Vec<Caller> {
    let mut callers = vec![Caller { level: Stranger, person: world.join("stranger@example.com").await }];
    let roles = [
        (Member, None, None),
        (Reader, Some("read"), Some(Role::Read)),
        (Writer, Some("write"), Some(Role::Write)),
        (Admin, Some("admin"), Some(Role::Admin)),
    ];
    for (level, of_user, of_service) in roles {
        let person = world.member(owner, &format!("{level:?}@example.com"), of_user).await;
        let service = world.service(owner).await;
        if let Some(role) = of_service {
            owner.grant(&service.principal_id, role).await.unwrap();
        }
        callers.extend([Caller { level, person }, Caller { level, person: service }]);
    }
    callers
}

#[tokio::test]
async fn each_call_is_for_its_callers_and_nobody_else() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let target = world.service(&mut owner).await.principal_id;
    world.member(&owner, EMAIL, None).await;
    owner.create_group("team").await.unwrap();
    owner.set("A").await.unwrap();
    let mut callers = callers(&world, &mut owner).await;
    let seed = SigningSeed::from_slice(owner.seed.expose()).unwrap();
    let same = Person::new(owner.user_id.clone(), owner.principal_id.clone(), seed, world.client());
    callers.push(Caller { level: Owner, person: same });

    let names: Vec<Names> =
        (0..callers.len()).map(|number| Names { own: format!("n{number}"), target: target.clone() }).collect();
    for Names { own, .. } in &names {
        let project = proto::CreateProjectRequest { workspace_name: "acme".into(), name: format!("old-{own}") };
        owner.client.create_project(owner.sign("CreateProject", project)).await.unwrap();
        owner.create_environment(&format!("old-{own}")).await.unwrap();
        owner.create_group(&format!("old-{own}")).await.unwrap();
    }
    let table = table();
    let mut wrong = Vec::new();
    for row in &table {
        let removes = row.path.contains("/Remove") && row.path.ends_with("Permission");
        for (caller, names) in callers.iter().zip(&names) {
            if removes {
                // A grant that one caller took away is made again for the next one. By the one owner that signs: it repeats no request within a
                // second.
                let owner = &callers.last().unwrap().person;
                let set = row.path.replacen("/Remove", "/Set", 1);
                let build = table.iter().find(|row| row.path == set).unwrap().build;
                send_raw(&world, &set, build(owner, names)).await.unwrap();
            }
            let result = send_raw(&world, &row.path, (row.build)(&caller.person, names)).await;
            let (found, expected) = (verdict(&result), expected(row, caller));
            if found != expected {
                let kind = if caller.person.user_id.is_empty() { "service" } else { "person" };
                wrong.push(format!(
                    "{} by a {kind} ({:?}): {found:?} instead of {expected:?}: {result:?}",
                    row.path, caller.level
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_call_is_without_its_row() {
    let rows: Vec<String> = table().into_iter().map(|row| row.path).collect();
    let known: BTreeSet<&str> = rows.iter().map(String::as_str).collect();
    assert_eq!(rows.len(), known.len(), "each once");
    let missing: Vec<String> = calls()
        .into_iter()
        .map(|call| call.path)
        .filter(|path| !known.contains(path.as_str()) && !ELSEWHERE.contains(&path.rsplit('/').next().unwrap()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
