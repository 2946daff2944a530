//! Grants to principals on a workspace, a project or an environment: the same four calls three times.

use konverge_zopp_proto as proto;
use tonic::Status;

use super::principals::find;
use crate::{
    call::{Access, Call, Place},
    rbac::{Role, may_delegate},
    status::from_store,
    store::{Changed, Grant},
    validate,
};

/// A role as the wire has it.
pub(crate) const fn wire_role(role: Role) -> proto::Role {
    match role {
        Role::Admin => proto::Role::Admin,
        Role::Write => proto::Role::Write,
        Role::Read => proto::Role::Read,
    }
}

fn role_from_wire(role: i32) -> Result<Role, Status> {
    match proto::Role::try_from(role) {
        Ok(proto::Role::Admin) => Ok(Role::Admin),
        Ok(proto::Role::Write) => Ok(Role::Write),
        Ok(proto::Role::Read) => Ok(Role::Read),
        Ok(proto::Role::Unspecified) | Err(_) => Err(Status::invalid_argument("role must be ADMIN, WRITE or READ")),
    }
}

/// Where a grant is, by names; the last two are empty above their level.
struct Names<'a> {
    workspace: &'a str,
    project: Option<&'a str>,
    environment: Option<&'a str>,
}

impl Names<'_> {
    async fn resolve(&self, call: &mut Call, access: Access) -> Result<Place, Status> {
        let mut place = call.workspace(self.workspace, access).await?;
        match (self.project, self.environment) {
            (Some(project), Some(environment)) => {
                call.environment(&mut place, project, environment).await?;
            }
            (Some(project), None) => {
                call.project(&mut place, project).await?;
            }
            (None, _) => {}
        }
        Ok(place)
    }

    /// Changing a grant on a workspace is for users; below it, services may too, and everybody needs the workspace's key.
    async fn resolve_for_change(&self, call: &mut Call) -> Result<Place, Status> {
        if self.project.is_some() {
            return self.resolve(call, Access::KeyHolder).await;
        }
        call.caller.user_id()?;
        self.resolve(call, Access::Member).await
    }

    async fn change(&self, call: &mut Call, principal_id: &str, role: Option<i32>) -> Result<proto::Empty, Status> {
        let place = self.resolve_for_change(call).await?;
        // Who may nothing here learns nothing about principals either.
        call.require(&place, Role::Read).await?;
        let role = role.map(role_from_wire).transpose()?;
        let target = find(call, principal_id).await?;
        let audit = call.audit(&target.id);
        let caller = &call.caller.principal;
        let level = place.scope.level();
        let changed = call
            .state
            .store
            .change_permission(
                &place.scope,
                (&caller.id, caller.user_id.as_deref()),
                &target,
                role,
                &audit,
                |caller, target| may_delegate(caller, target, level, role),
            )
            .await
            .map_err(from_store)?;
        match changed {
            Changed::Done => Ok(proto::Empty {}),
            Changed::Refused => Err(Status::permission_denied(
                "only what you have yourself can be given or taken; ask an admin of the workspace",
            )),
            Changed::NothingToRemove => {
                Err(Status::not_found(format!("principal {:?} has no permission here to remove", target.id)))
            }
        }
    }

    async fn get(&self, call: &mut Call, principal_id: &str) -> Result<proto::PermissionResponse, Status> {
        call.caller.user_id()?;
        let place = self.resolve(call, Access::Member).await?;
        let id = validate::id("principal_id", principal_id)?;
        let role = call
            .state
            .store
            .permission(&place.scope, &id)
            .await
            .map_err(from_store)?
            .ok_or_else(|| Status::not_found(format!("principal {id:?} has no permission here")))?;
        Ok(proto::PermissionResponse { role: wire_role(role).into() })
    }

    async fn list(&self, call: &mut Call) -> Result<proto::PermissionList, Status> {
        call.caller.user_id()?;
        let place = self.resolve(call, Access::Member).await?;
        let grants = call.state.store.permissions(&place.scope).await.map_err(from_store)?;
        Ok(proto::PermissionList { permissions: grants.into_iter().map(answer).collect() })
    }
}

fn answer(grant: Grant) -> proto::Permission {
    proto::Permission {
        principal_id: grant.principal_id,
        principal_name: grant.principal_name,
        role: wire_role(grant.role).into(),
    }
}

/// The four calls of one level; the fields of their messages differ only in which names there are.
macro_rules! level {
    (
        $module:ident, $doc:literal, $set:ident, $get:ident, $list:ident, $remove:ident,
        |$message:ident| $project:expr, $environment:expr
    ) => {
        #[doc = $doc]
        pub(crate) mod $module {
            use super::{Call, Names, Status, proto};

            /// Sets the grant of a principal.
            pub(crate) async fn set(call: &mut Call, $message: proto::$set) -> Result<proto::Empty, Status> {
                let names = Names { workspace: &$message.workspace_name, project: $project, environment: $environment };
                names.change(call, &$message.principal_id, Some($message.role)).await
            }

            /// The grant of a principal.
            pub(crate) async fn get(
                call: &mut Call,
                $message: proto::$get,
            ) -> Result<proto::PermissionResponse, Status> {
                let names = Names { workspace: &$message.workspace_name, project: $project, environment: $environment };
                names.get(call, &$message.principal_id).await
            }

            /// The grants of all principals.
            pub(crate) async fn list(call: &mut Call, $message: proto::$list) -> Result<proto::PermissionList, Status> {
                let names = Names { workspace: &$message.workspace_name, project: $project, environment: $environment };
                names.list(call).await
            }

            /// Removes the grant of a principal.
            pub(crate) async fn remove(call: &mut Call, $message: proto::$remove) -> Result<proto::Empty, Status> {
                let names = Names { workspace: &$message.workspace_name, project: $project, environment: $environment };
                names.change(call, &$message.principal_id, None).await
            }
        }
    };
}

level!(
    workspace,
    "Grants on a workspace.",
    SetWorkspacePermissionRequest,
    GetWorkspacePermissionRequest,
    ListWorkspacePermissionsRequest,
    RemoveWorkspacePermissionRequest,
    |message| None,
    None
);
level!(
    project,
    "Grants on a project.",
    SetProjectPermissionRequest,
    GetProjectPermissionRequest,
    ListProjectPermissionsRequest,
    RemoveProjectPermissionRequest,
    |message| Some(&message.project_name),
    None
);
level!(
    environment,
    "Grants on an environment.",
    SetEnvironmentPermissionRequest,
    GetEnvironmentPermissionRequest,
    ListEnvironmentPermissionsRequest,
    RemoveEnvironmentPermissionRequest,
    |message| Some(&message.project_name),
    Some(&message.environment_name)
);
