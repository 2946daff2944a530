//! The facts by which a change was decided, as the database compares them.

use std::collections::BTreeSet;

use super::{
    grants::{number, same},
    *,
};
use crate::rbac::{Grants, Role};

on_both! {
    the_database_knows_the_grants_by_which_was_decided_from_all_others,
}

const ROLES: [Option<Role>; 4] = [None, Some(Role::Read), Some(Role::Write), Some(Role::Admin)];

/// All grants that differ in one part from these.
fn others(grants: Grants) -> Vec<Grants> {
    let mut others = vec![Grants { barred: !grants.barred, ..grants }, Grants { owner: !grants.owner, ..grants }];
    for role in ROLES {
        others.extend([Grants { user: role, ..grants }, Grants { group: role, ..grants }]);
        others.extend([0, 1, 2].map(|level| {
            let mut other = grants;
            other.principal[level] = role;
            other
        }));
    }
    others.retain(|other| *other != grants);
    others
}

#[test]
fn each_part_of_the_grants_is_in_their_number() {
    let mut numbers = BTreeSet::new();
    for [user, group, workspace, project, environment] in
        (0..1024).map(|place: usize| [0, 2, 4, 6, 8].map(|bits| ROLES[(place >> bits) & 3]))
    {
        let grants = Grants { user, group, principal: [workspace, project, environment], ..Grants::default() };
        for (barred, owner) in [(false, false), (false, true), (true, false), (true, true)] {
            numbers.insert(number(Grants { barred, owner, ..grants }));
        }
    }
    assert_eq!(numbers.len(), 4096);
}

async fn the_database_knows_the_grants_by_which_was_decided_from_all_others(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    let (project_id, user_id): (String, String) = sql::query_as(
        "SELECT e.project_id, w.owner_user_id FROM environments e JOIN workspaces w ON w.id = e.workspace_id",
    )
    .fetch_one(&store.readers)
    .await
    .unwrap();
    let device = store.principals_of_user(&user_id).await.unwrap().remove(0).id;
    let scope = Scope { workspace_id, project_id: Some(project_id), environment_id: Some(environment_id) };
    let times = "0, 0 FROM workspaces w";
    let steps = [
        "SELECT 1".to_owned(),
        format!("INSERT INTO workspace_permissions SELECT w.id, '{device}', 'read', {times}"),
        format!("INSERT INTO project_permissions SELECT p.id, '{device}', 'admin', 0, 0 FROM projects p"),
        format!("INSERT INTO environment_permissions SELECT e.id, '{device}', 'write', 0, 0 FROM environments e"),
        format!("INSERT INTO user_project_permissions SELECT p.id, '{user_id}', 'write', 0, 0 FROM projects p"),
        format!("INSERT INTO user_environment_permissions SELECT e.id, '{user_id}', 'admin', 0, 0 FROM environments e"),
        format!("INSERT INTO groups SELECT 'g', w.id, 'g', '', {times}"),
        format!("INSERT INTO group_members SELECT 'g', '{user_id}', 0"),
        format!("INSERT INTO group_workspace_permissions SELECT w.id, 'g', 'read', {times}"),
        "DELETE FROM project_permissions".to_owned(),
        format!("INSERT INTO workspace_bars SELECT w.id, '{device}', 0 FROM workspaces w"),
    ];
    for step in steps {
        sql::query_made(step.clone()).execute(&store.writer).await.unwrap();
        for user in [Some(user_id.as_str()), None] {
            let seen = store.grants(&device, user, &scope).await.unwrap();
            let found = async |grants: Grants| {
                same(&device, user, &scope, grants).fetch_optional(&store.readers).await.unwrap().is_some()
            };
            assert!(found(seen).await, "{step}: {seen:?}");
            // The role of an owner depends on no grant.
            let is_owner = |grants: Grants| grants.human && grants.owner && !grants.barred;
            for other in others(seen) {
                let is_same = is_owner(seen) && is_owner(other);
                assert_eq!(found(other).await, is_same, "{step}: {other:?} in the place of {seen:?}");
            }
        }
    }
}
