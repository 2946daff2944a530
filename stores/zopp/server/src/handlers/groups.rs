//! Groups of users. A grant to a group holds for each of its members.

use konverge_zopp_proto as proto;
use tonic::Status;

use crate::{
    call::{Access, Call},
    place::Place,
    rbac::{Holdings, Node, Role, may_manage_group},
    status::{from_store, or_exists, or_missing},
    store::{AuditRow, Changed, GroupCaller, GroupChange, GroupRow, StoreError},
    validate,
};

/// Makes a group.
pub(crate) async fn create(call: &mut Call, message: proto::CreateGroupRequest) -> Result<proto::Group, Status> {
    let place = workspace(call, &message.workspace_name).await?;
    call.require(&place, Role::Admin).await?;
    let name = validate::name("group name", &message.name)?;
    let description = validate::description(&message.description)?;
    let audit = call.audit(name);
    let made = call
        .state
        .store
        .create_group(caller(call, &place), name, description, &audit, |caller| {
            caller.at(&Node::Workspace).allow(Role::Admin)
        })
        .await
        .map_err(or_exists("group", name))?;
    made.map(answer).ok_or_else(refused)
}

/// One group.
pub(crate) async fn get(call: &mut Call, message: proto::GetGroupRequest) -> Result<proto::Group, Status> {
    let place = workspace(call, &message.workspace_name).await?;
    find(call, &place, &message.group_name).await.map(answer)
}

/// The groups of a workspace.
pub(crate) async fn list(call: &mut Call, message: proto::ListGroupsRequest) -> Result<proto::GroupList, Status> {
    let place = workspace(call, &message.workspace_name).await?;
    let rows = call.state.store.groups(&place.workspace.id).await.map_err(from_store)?;
    Ok(proto::GroupList { groups: rows.into_iter().map(answer).collect() })
}

/// Gives a group another name (an empty one keeps the old) and another description (an empty one clears it).
pub(crate) async fn update(call: &mut Call, message: proto::UpdateGroupRequest) -> Result<proto::Group, Status> {
    let (place, group) = resolve(call, &message.workspace_name, &message.group_name).await?;
    let name = match message.new_name.as_str() {
        "" => None,
        name => Some(validate::name("new_name", name)?),
    };
    let description = validate::description(&message.new_description)?;
    let audit = call.audit(&group.id);
    let change = GroupChange::Update { name, description };
    let is_admin = |caller: &Holdings, _: &Holdings| caller.at(&Node::Workspace).allow(Role::Admin);
    let changed = change_group(call, &place, &group, change, &audit, is_admin).await;
    changed.map_err(or_exists("group", name.unwrap_or(&group.name)))?.done(&place, "")?;
    find(call, &place, name.unwrap_or(&group.name)).await.map(answer)
}

/// Deletes a group with its grants and memberships.
pub(crate) async fn delete(call: &mut Call, message: proto::DeleteGroupRequest) -> Result<proto::Empty, Status> {
    let (place, group) = resolve(call, &message.workspace_name, &message.group_name).await?;
    let audit = call.audit(&group.id);
    let changed = change_group(call, &place, &group, GroupChange::Delete, &audit, may_manage_group).await;
    changed.map_err(or_missing("group", &group.name))?.done(&place, "")
}

/// Adds a user to a group.
pub(crate) async fn add_member(call: &mut Call, message: proto::AddGroupMemberRequest) -> Result<proto::Empty, Status> {
    let (place, group) = resolve(call, &message.workspace_name, &message.group_name).await?;
    let email = validate::email(&message.user_email)?;
    let audit = call.audit(&group.id);
    let change = GroupChange::Add { email: &email, allow_non_member: message.allow_non_member };
    let changed = change_group(call, &place, &group, change, &audit, may_manage_group).await;
    let changed = changed.map_err(|error| match error {
        StoreError::Duplicate => {
            Status::already_exists(format!("user {email:?} is a member of group {:?} already", group.name))
        }
        other => or_missing("group", &group.name)(other),
    })?;
    changed.done(&place, &email)
}

/// Removes a user from a group.
pub(crate) async fn remove_member(
    call: &mut Call,
    message: proto::RemoveGroupMemberRequest,
) -> Result<proto::Empty, Status> {
    let (place, group) = resolve(call, &message.workspace_name, &message.group_name).await?;
    let email = validate::email(&message.user_email)?;
    let audit = call.audit(&group.id);
    let change = GroupChange::Remove { email: &email };
    let changed = change_group(call, &place, &group, change, &audit, may_manage_group).await;
    changed.map_err(or_missing("group", &group.name))?.done(&place, &email)
}

/// The members of a group.
pub(crate) async fn list_members(
    call: &mut Call,
    message: proto::ListGroupMembersRequest,
) -> Result<proto::GroupMemberList, Status> {
    let place = workspace(call, &message.workspace_name).await?;
    let group = find(call, &place, &message.group_name).await?;
    let rows = call.state.store.group_members(&group.id).await.map_err(from_store)?;
    let member = |row: crate::store::MemberRow| proto::GroupMember {
        user_id: row.user_id,
        user_email: row.email,
        created_at: time(row.created_at),
    };
    Ok(proto::GroupMemberList { members: rows.into_iter().map(member).collect() })
}

/// The groups of a workspace that a user is in.
pub(crate) async fn list_of_user(
    call: &mut Call,
    message: proto::ListUserGroupsRequest,
) -> Result<proto::GroupList, Status> {
    let place = workspace(call, &message.workspace_name).await?;
    let email = validate::email(&message.user_email)?;
    let rows = call.state.store.groups_of_user(&place.workspace.id, &email).await.map_err(from_store)?;
    let rows = rows.ok_or_else(|| no_such_user(&email, &place.workspace.name))?;
    Ok(proto::GroupList { groups: rows.into_iter().map(answer).collect() })
}

/// The group of that name in the workspace of a place.
pub(super) async fn find(call: &mut Call, place: &Place, name: &str) -> Result<GroupRow, Status> {
    validate::lookup("group name", name)?;
    call.state
        .store
        .group(&place.workspace.id, name)
        .await
        .map_err(from_store)?
        .ok_or_else(|| Status::not_found(format!("group {name:?} not found")))
}

/// For an e-mail address of nobody, or of a user who does not belong to the workspace. Which of the two, the caller is not told.
pub(super) fn no_such_user(email: &str, workspace: &str) -> Status {
    Status::not_found(format!(
        "user {email:?} is not a member of workspace {workspace:?}; invite the user first, or allow users who are no members"
    ))
}

/// A user's view of a workspace.
async fn workspace(call: &mut Call, name: &str) -> Result<Place, Status> {
    call.caller.user_id()?;
    call.workspace(name, Access::Member).await
}

/// The group, if the caller is an admin of its workspace.
async fn resolve(call: &mut Call, workspace_name: &str, group_name: &str) -> Result<(Place, GroupRow), Status> {
    let place = workspace(call, workspace_name).await?;
    let group = find(call, &place, group_name).await?;
    call.about(&group.id, None);
    call.require(&place, Role::Admin).await?;
    Ok((place, group))
}

fn caller<'a>(call: &'a Call, place: &'a Place) -> GroupCaller<'a> {
    let principal = &call.caller.principal;
    GroupCaller {
        principal_id: &principal.id,
        user_id: principal.user_id.as_deref(),
        workspace_id: &place.workspace.id,
    }
}

async fn change_group(
    call: &Call,
    place: &Place,
    group: &GroupRow,
    change: GroupChange<'_>,
    audit: &AuditRow,
    decide: impl FnOnce(&Holdings, &Holdings) -> bool + Send,
) -> Result<GroupOutcome, StoreError> {
    let changed = call.state.store.change_group(caller(call, place), &group.id, change, audit, decide).await?;
    Ok(GroupOutcome { changed, group: group.name.clone() })
}

/// The result of a change, and its group.
struct GroupOutcome {
    changed: Changed,
    group: String,
}

impl GroupOutcome {
    fn done(self, place: &Place, email: &str) -> Result<proto::Empty, Status> {
        match self.changed {
            Changed::Done => Ok(proto::Empty {}),
            Changed::Refused => Err(refused()),
            Changed::NothingToRemove => {
                Err(Status::not_found(format!("user {email:?} is not a member of group {:?}", self.group)))
            }
            Changed::NoSuchUser => Err(no_such_user(email, &place.workspace.name)),
        }
    }
}

fn refused() -> Status {
    Status::permission_denied(
        "this needs the admin role in the workspace, and at every place at least the role that the group has there; ask an admin \
         without such limits",
    )
}

fn answer(row: GroupRow) -> proto::Group {
    proto::Group {
        id: row.id,
        workspace_id: row.workspace_id,
        name: row.name,
        description: row.description.unwrap_or_default(),
        created_at: time(row.created_at),
        updated_at: time(row.updated_at),
    }
}

/// RFC 3339 of Unix seconds.
fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
