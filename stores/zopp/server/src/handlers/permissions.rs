//! Grants to principals, users and groups on a workspace, a project or an environment: the same four calls nine times.

use konverge_zopp_proto as proto;
use tonic::Status;

use super::{groups, principals::find, roles};
use crate::{
    call::{Access, Call},
    place::Place,
    rbac::{Level, Role, may_change},
    status::from_store,
    store::{Changed, Grant, HolderKind, Target},
    validate,
};

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

    /// Sets a grant, or with no role removes it.
    async fn change(&self, call: &mut Call, holder: Named<'_>, role: Option<i32>) -> Result<proto::Empty, Status> {
        let place = match holder {
            Named::Principal(_) => self.resolve_for_change(call).await?,
            Named::User { .. } | Named::Group(_) => {
                call.caller.user_id()?;
                self.resolve(call, Access::Member).await?
            }
        };
        let group = match holder {
            Named::Group(name) => Some(groups::find(call, &place, name).await?),
            Named::Principal(_) | Named::User { .. } => None,
        };
        // Without a role here, a caller learns nothing about principals and users either.
        let minimum = holder.minimum_role(place.scope.level());
        call.require(&place, minimum).await?;
        let role = role.map(roles::from_wire).transpose()?;
        let (principal, email);
        let target = match holder {
            Named::Principal(id) => {
                principal = find(call, id).await?;
                Target::Principal(&principal)
            }
            Named::User { email: text, allow_non_member } => {
                email = validate::email(text)?;
                Target::User { email: &email, allow_non_member }
            }
            Named::Group(_) => Target::Group(group.as_ref().map(|group| group.id.as_str()).unwrap_or_default()),
        };
        let audit = call.audit(holder.text());
        let caller = &call.caller.principal;
        let node = place.scope.node();
        let changed = call
            .state
            .store
            .change_permission(
                &place.scope,
                (&caller.id, caller.user_id.as_deref()),
                target,
                role,
                &audit,
                |caller, target| caller.at(&node).allow(minimum) && may_change(caller, target, &node, role),
            )
            .await
            .map_err(from_store)?;
        match changed {
            Changed::Done => Ok(proto::Empty {}),
            Changed::Refused => Err(Status::permission_denied(
                "only what you have yourself can be given or taken, here and at every place below; ask an admin of the workspace",
            )),
            Changed::NothingToRemove => Err(no_grant(holder)),
            Changed::NoSuchUser if role.is_none() => Err(no_grant(holder)),
            Changed::NoSuchUser => Err(groups::no_such_user(holder.text(), &place.workspace.name)),
        }
    }

    async fn get(&self, call: &mut Call, holder: Named<'_>) -> Result<proto::PermissionResponse, Status> {
        call.caller.user_id()?;
        let place = self.resolve(call, Access::Member).await?;
        let (kind, id) = match holder {
            Named::Principal(id) => (HolderKind::Principal, Some(validate::id("principal_id", id)?)),
            Named::Group(name) => (HolderKind::Group, Some(groups::find(call, &place, name).await?.id)),
            Named::User { email, .. } => {
                let email = validate::email(email)?;
                (HolderKind::User, call.state.store.user_by_email(&email).await.map_err(from_store)?)
            }
        };
        // An address of nobody gets the answer of an address without a grant: addresses are not for guessing.
        let role = match id {
            Some(id) => call.state.store.permission(&place.scope, kind, &id).await.map_err(from_store)?,
            None => None,
        };
        let role = role.ok_or_else(|| no_grant(holder))?;
        Ok(proto::PermissionResponse { role: roles::to_wire(role).into() })
    }

    async fn list<L: GrantList>(&self, call: &mut Call) -> Result<L, Status> {
        call.caller.user_id()?;
        let place = self.resolve(call, Access::Member).await?;
        let grants = call.state.store.permissions(&place.scope, L::HOLDER).await.map_err(from_store)?;
        Ok(L::of(grants))
    }
}

/// The holder of a grant as a request names it.
#[derive(Clone, Copy)]
enum Named<'a> {
    /// By id.
    Principal(&'a str),
    /// By e-mail address.
    User { email: &'a str, allow_non_member: bool },
    /// By name.
    Group(&'a str),
}

impl Named<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Principal(text) | Self::User { email: text, .. } | Self::Group(text) => text,
        }
    }

    /// The role that a caller needs to change a grant at a level. Where it is Read, the caller's own role bounds the change; see
    /// [`may_change`].
    fn minimum_role(self, level: Level) -> Role {
        match (self, level) {
            (Self::Principal(_), _) | (Self::User { allow_non_member: false, .. }, Level::Workspace) => Role::Read,
            (Self::User { .. } | Self::Group(_), _) => Role::Admin,
        }
    }
}

fn no_grant(holder: Named<'_>) -> Status {
    let (kind, text) = match holder {
        Named::Principal(id) => ("principal", id),
        Named::User { email, .. } => ("user", email),
        Named::Group(name) => ("group", name),
    };
    Status::not_found(format!("{kind} {text:?} has no permission here"))
}

/// The answer of a list call.
trait GrantList {
    const HOLDER: HolderKind;
    fn of(grants: Vec<Grant>) -> Self;
}

impl GrantList for proto::PermissionList {
    const HOLDER: HolderKind = HolderKind::Principal;
    fn of(grants: Vec<Grant>) -> Self {
        let permission = |grant: Grant| proto::Permission {
            principal_id: grant.holder_id,
            principal_name: grant.holder_name,
            role: roles::to_wire(grant.role).into(),
        };
        Self { permissions: grants.into_iter().map(permission).collect() }
    }
}

impl GrantList for proto::UserPermissionList {
    const HOLDER: HolderKind = HolderKind::User;
    fn of(grants: Vec<Grant>) -> Self {
        let permission = |grant: Grant| proto::UserPermission {
            user_id: grant.holder_id,
            user_email: grant.holder_name,
            role: roles::to_wire(grant.role).into(),
        };
        Self { permissions: grants.into_iter().map(permission).collect() }
    }
}

impl GrantList for proto::GroupPermissionList {
    const HOLDER: HolderKind = HolderKind::Group;
    fn of(grants: Vec<Grant>) -> Self {
        let permission = |grant: Grant| proto::GroupPermission {
            group_id: grant.holder_id,
            group_name: grant.holder_name,
            role: roles::to_wire(grant.role).into(),
        };
        Self { permissions: grants.into_iter().map(permission).collect() }
    }
}

/// The four calls of one kind of holder at one level; the fields of their messages differ only in which names there are.
macro_rules! grants {
    (
        $module:ident, $set:ident, $get:ident, $list:ident, $remove:ident, $answer:ident,
        |$message:ident| [$project:expr, $environment:expr], set $set_holder:expr, else $holder:expr
    ) => {
        pub(crate) mod $module {
            use super::{Call, Named, Names, Status, proto};

            /// Sets a grant.
            pub(crate) async fn set(call: &mut Call, $message: proto::$set) -> Result<proto::Empty, Status> {
                let names = Names { workspace: &$message.workspace_name, project: $project, environment: $environment };
                names.change(call, $set_holder, Some($message.role)).await
            }

            /// One grant.
            pub(crate) async fn get(
                call: &mut Call,
                $message: proto::$get,
            ) -> Result<proto::PermissionResponse, Status> {
                let names = Names { workspace: &$message.workspace_name, project: $project, environment: $environment };
                names.get(call, $holder).await
            }

            /// All grants to holders of this kind.
            pub(crate) async fn list(call: &mut Call, $message: proto::$list) -> Result<proto::$answer, Status> {
                let names = Names { workspace: &$message.workspace_name, project: $project, environment: $environment };
                names.list(call).await
            }

            /// Removes a grant.
            pub(crate) async fn remove(call: &mut Call, $message: proto::$remove) -> Result<proto::Empty, Status> {
                let names = Names { workspace: &$message.workspace_name, project: $project, environment: $environment };
                names.change(call, $holder, None).await
            }
        }
    };
}

grants!(
    principal_workspace,
    SetWorkspacePermissionRequest,
    GetWorkspacePermissionRequest,
    ListWorkspacePermissionsRequest,
    RemoveWorkspacePermissionRequest,
    PermissionList,
    |message| [None, None],
    set Named::Principal(&message.principal_id),
    else Named::Principal(&message.principal_id)
);
grants!(
    principal_project,
    SetProjectPermissionRequest,
    GetProjectPermissionRequest,
    ListProjectPermissionsRequest,
    RemoveProjectPermissionRequest,
    PermissionList,
    |message| [Some(&message.project_name), None],
    set Named::Principal(&message.principal_id),
    else Named::Principal(&message.principal_id)
);
grants!(
    principal_environment,
    SetEnvironmentPermissionRequest,
    GetEnvironmentPermissionRequest,
    ListEnvironmentPermissionsRequest,
    RemoveEnvironmentPermissionRequest,
    PermissionList,
    |message| [Some(&message.project_name), Some(&message.environment_name)],
    set Named::Principal(&message.principal_id),
    else Named::Principal(&message.principal_id)
);
grants!(
    user_workspace,
    SetUserWorkspacePermissionRequest,
    GetUserWorkspacePermissionRequest,
    ListUserWorkspacePermissionsRequest,
    RemoveUserWorkspacePermissionRequest,
    UserPermissionList,
    |message| [None, None],
    set Named::User { email: &message.user_email, allow_non_member: message.allow_non_member },
    else Named::User { email: &message.user_email, allow_non_member: false }
);
grants!(
    user_project,
    SetUserProjectPermissionRequest,
    GetUserProjectPermissionRequest,
    ListUserProjectPermissionsRequest,
    RemoveUserProjectPermissionRequest,
    UserPermissionList,
    |message| [Some(&message.project_name), None],
    set Named::User { email: &message.user_email, allow_non_member: message.allow_non_member },
    else Named::User { email: &message.user_email, allow_non_member: false }
);
grants!(
    user_environment,
    SetUserEnvironmentPermissionRequest,
    GetUserEnvironmentPermissionRequest,
    ListUserEnvironmentPermissionsRequest,
    RemoveUserEnvironmentPermissionRequest,
    UserPermissionList,
    |message| [Some(&message.project_name), Some(&message.environment_name)],
    set Named::User { email: &message.user_email, allow_non_member: message.allow_non_member },
    else Named::User { email: &message.user_email, allow_non_member: false }
);
grants!(
    group_workspace,
    SetGroupWorkspacePermissionRequest,
    GetGroupWorkspacePermissionRequest,
    ListGroupWorkspacePermissionsRequest,
    RemoveGroupWorkspacePermissionRequest,
    GroupPermissionList,
    |message| [None, None],
    set Named::Group(&message.group_name),
    else Named::Group(&message.group_name)
);
grants!(
    group_project,
    SetGroupProjectPermissionRequest,
    GetGroupProjectPermissionRequest,
    ListGroupProjectPermissionsRequest,
    RemoveGroupProjectPermissionRequest,
    GroupPermissionList,
    |message| [Some(&message.project_name), None],
    set Named::Group(&message.group_name),
    else Named::Group(&message.group_name)
);
grants!(
    group_environment,
    SetGroupEnvironmentPermissionRequest,
    GetGroupEnvironmentPermissionRequest,
    ListGroupEnvironmentPermissionsRequest,
    RemoveGroupEnvironmentPermissionRequest,
    GroupPermissionList,
    |message| [Some(&message.project_name), Some(&message.environment_name)],
    set Named::Group(&message.group_name),
    else Named::Group(&message.group_name)
);
