//! A change whose later statement fails leaves nothing of its earlier ones.

use sqlx::AssertSqlSafe;

use super::{key_rotation::rotation, *};
use crate::rbac::Role;

on_both! {
    no_change_stays_without_its_audit_row,
    what_came_before_a_refused_row_goes_with_it,
}

/// The content of every table, except the audit log.
async fn contents(store: &Store) -> Vec<(String, String)> {
    let tables = match &store.writer {
        Pool::Sqlite(_) => "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
        Pool::Postgres(_) => {
            "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1"
        }
    };
    let tables: Vec<(String,)> = sql::query_as(tables).fetch_all(&store.writer).await.unwrap();
    let mut contents = Vec::new();
    for (table,) in tables {
        // The time of a migration does not belong to a change.
        if ["audit_logs", "elsewhere", "_sqlx_migrations"].contains(&table.as_str()) {
            continue;
        }
        let rows: Option<String> = match &store.writer {
            Pool::Sqlite(pool) => {
                let columns: Vec<(String,)> =
                    sqlx::query_as("SELECT 'quote(' || name || ')' FROM pragma_table_info(?)")
                        .bind(&table)
                        .fetch_all(pool)
                        .await
                        .unwrap();
                let row = columns.into_iter().map(|(column,)| column).collect::<Vec<_>>().join(" || ',' || ");
                let all = AssertSqlSafe(format!("SELECT group_concat({row}, char(10)) FROM {table}"));
                sqlx::query_scalar(all).fetch_one(pool).await.unwrap()
            }
            Pool::Postgres(pool) => {
                let all = format!("SELECT string_agg(t::text, E'\\n' ORDER BY t::text COLLATE \"C\") FROM {table} t");
                sqlx::query_scalar(AssertSqlSafe(all)).fetch_one(pool).await.unwrap()
            }
        };
        contents.push((table, rows.unwrap_or_default()));
    }
    contents
}

fn wrap() -> KeyWrap {
    KeyWrap {
        ephemeral_pub: vec![1; 32],
        kek_wrapped: vec![2; 48],
        kek_nonce: vec![3; 24],
        signature: None,
        signer_id: None,
    }
}

fn device(name: &str) -> NewPrincipal {
    NewPrincipal { name: name.into(), public_key: hash_token(name).to_vec(), x25519_public_key: None }
}

fn invite<'a>(token: &'a str, workspace_ids: &'a [String]) -> NewInvite<'a> {
    NewInvite { token, workspace_ids, expires_at: i64::MAX, kek_encrypted: None, kek_nonce: None, max_uses: None }
}

/// The last statement of all, without which no change is to be: the record of it.
#[expect(clippy::too_many_lines, reason = "one change after the other, each in two lines")]
async fn no_change_stays_without_its_audit_row(database: Database) {
    let store = database.open().await;
    let audit = row(Action::SecretUpdate);
    let (workspace_id, user_id) = workspace(&store).await;
    let laptop = store.principals_of_user(&user_id).await.unwrap().remove(0);
    let project = store.create_project(&workspace_id, "backend", &audit).await.unwrap();
    let new_environment = |name| NewEnvironment {
        workspace_id: &workspace_id,
        project_id: &project.id,
        name,
        dek_wrapped: &[0; 48],
        dek_nonce: &[0; 24],
    };
    let environment = store.create_environment(&new_environment("production"), &audit).await.unwrap();
    let secret = |key: &str| SecretRow { key: key.into(), nonce: vec![0; 24], ciphertext: vec![9; 16] };
    for _ in 0..2 {
        store.upsert_secret(&workspace_id, &environment.id, &secret("A"), &audit).await.unwrap();
    }
    let service_id = store.create_service_principal(&workspace_id, &device("operator"), &wrap(), &audit).await.unwrap();
    let service = store.principal(&service_id).await.unwrap().unwrap();
    let scope = Scope { workspace_id: workspace_id.clone(), project_id: None, environment_id: None };
    let caller = (laptop.id.as_str(), Some(user_id.as_str()));
    let yes = |_: &_, _: &_| true;
    store.change_permission(&scope, caller, Target::Principal(&service), Some(Role::Read), &audit, yes).await.unwrap();
    let workspace_ids = [workspace_id.clone()];
    let invited = store.create_invite(&invite("token", &workspace_ids), None).await.unwrap();
    let member = store.join("token", "m@example.com", None, &device("member"), Some(&wrap()), &audit).await.unwrap();
    assert!(matches!(member, Joined::Done(_)), "{member:?}");
    let group_caller = GroupCaller { principal_id: caller.0, user_id: caller.1, workspace_id: &workspace_id };
    let group = store.create_group(group_caller, "ops", "", &audit, |_| true).await.unwrap().unwrap();
    let add = |email| GroupChange::Add { email, allow_non_member: false };
    store.change_group(group_caller, &group.id, add("a@example.com"), &audit, yes).await.unwrap();
    let export = |code| NewExport {
        code,
        token_hash: code,
        verification_salt: &[1; 16],
        user_id: &user_id,
        principal_id: &laptop.id,
        encrypted_data: &[2; 16],
        salt: &[3; 16],
        nonce: &[4; 24],
        expires_at: i64::MAX,
    };
    store.create_export(&export("exp_aaaaaaaa"), &audit).await.unwrap();
    let other = new_id();
    let new_workspace = NewWorkspace { id: &other, name: "other", kdf_salt: [0; 32] };
    let registered = store.register("b@example.com", None, true, &device("phone"), &audit).await.unwrap();
    let Registration::Done { principal_id: stranger_id, .. } = registered else { panic!("a new e-mail registers") };
    let stranger = store.principal(&stranger_id).await.unwrap().unwrap();

    let keys = store.key_state(&workspace_id).await.unwrap().unwrap();
    let holders: Vec<&str> = keys.holders.iter().map(|holder| holder.id.as_str()).collect();

    sql::query("ALTER TABLE audit_logs RENAME TO elsewhere").execute(&store.writer).await.unwrap();
    let before = contents(&store).await;
    let check = async |what: &str, result: Result<(), StoreError>| {
        assert!(matches!(result, Err(StoreError::Database(_))), "{what}: {result:?}");
        assert_eq!(contents(&store).await, before, "{what}");
    };
    let principal = device("tablet");
    check("register", store.register("c@example.com", None, true, &principal, &audit).await.map(drop)).await;
    let joined = store.join("token", "c@example.com", None, &principal, Some(&wrap()), &audit).await;
    check("join", joined.map(drop)).await;
    check("workspace", store.create_workspace(&new_workspace, &user_id, &laptop.id, &wrap(), &audit).await).await;
    check("access", store.grant_access(&laptop, &workspace_id, &stranger, &wrap(), &audit).await.map(drop)).await;
    let service_made = store.create_service_principal(&workspace_id, &principal, &wrap(), &audit).await;
    check("service", service_made.map(drop)).await;
    check("rename", store.rename_principal(&laptop.id, "desktop", &audit).await).await;
    let invited_again = store.create_invite(&invite("another", &workspace_ids), Some((&user_id, &audit))).await;
    check("invite", invited_again.map(drop)).await;
    check("revoked invite", store.revoke_invite(&invited.id, Some(&audit)).await).await;
    check("project", store.create_project(&workspace_id, "frontend", &audit).await.map(drop)).await;
    check("environment", store.create_environment(&new_environment("staging"), &audit).await.map(drop)).await;
    for key in ["A", "B"] {
        let set = store.upsert_secret(&workspace_id, &environment.id, &secret(key), &audit).await;
        check(key, set.map(drop)).await;
    }
    let many = store.change_secrets(&workspace_id, &environment.id, &many(&["A", "B"], &[], None), &audit).await;
    check("many secrets", many.map(drop)).await;
    check("forgotten history", store.forget_history(&environment.id, "A", &audit).await.map(drop)).await;
    let rotated = store.rotate_key(&workspace_id, &rotation(1, &holders, &[&environment.id]), &audit).await;
    check("rotated key", rotated.map(drop)).await;
    check("deleted secret", store.delete_secret(&environment.id, "A", &audit).await.map(drop)).await;
    for role in [Some(Role::Admin), None] {
        let changed = store.change_permission(&scope, caller, Target::Principal(&service), role, &audit, yes).await;
        check("grant", changed.map(drop)).await;
    }
    for (what, target) in [
        ("grant of a user", Target::User { email: "m@example.com", allow_non_member: false }),
        ("grant of a group", Target::Group(&group.id)),
    ] {
        let changed = store.change_permission(&scope, caller, target, Some(Role::Read), &audit, yes).await;
        check(what, changed.map(drop)).await;
    }
    check("group", store.create_group(group_caller, "dev", "", &audit, |_| true).await.map(drop)).await;
    for (what, change) in [
        ("renamed group", GroupChange::Update { name: Some("sre"), description: "nights" }),
        ("new member of a group", add("m@example.com")),
        ("removed member of a group", GroupChange::Remove { email: "a@example.com" }),
        ("deleted group", GroupChange::Delete),
    ] {
        check(what, store.change_group(group_caller, &group.id, change, &audit, yes).await.map(drop)).await;
    }
    check("export", store.create_export(&export("exp_bbbbbbbb"), &audit).await).await;
    for (what, hash, opening) in [
        ("wrong hash", "wrong", Opening::Read),
        ("read export", "exp_aaaaaaaa", Opening::Read),
        ("consumed export", "exp_aaaaaaaa", Opening::Consume),
    ] {
        let opened = store.open_export("exp_aaaaaaaa", hash, opening, |_, _| audit.clone()).await;
        check(what, opened.map(drop)).await;
    }
    check("all grants", store.revoke_all_permissions(&laptop, &workspace_id, &service_id, &audit).await.map(drop))
        .await;
    let removed = store.remove_principal_from_workspace(&laptop, &workspace_id, &service_id, &audit).await;
    check("removed principal", removed.map(drop)).await;
    let disabled = store.set_principal_disabled(None, &service_id, true, false, &audit).await;
    check("disabled principal", disabled.map(drop)).await;
    let joined = store.user_by_email("m@example.com").await.unwrap().unwrap();
    check("removed member", store.remove_member(&workspace_id, &joined, &audit).await.map(drop)).await;
    let transferred = store.transfer_ownership(&laptop, &workspace_id, &joined, &audit).await;
    check("transferred workspace", transferred.map(drop)).await;
    check("removed user", store.remove_user(None, &joined, &audit).await.map(drop)).await;
    check("deleted environment", store.delete_environment(&environment.id, &audit).await).await;
    check("deleted project", store.delete_project(&project.id, &audit).await.map(drop)).await;
    check("deleted workspace", store.delete_workspace(&laptop, &workspace_id, true, &audit).await.map(drop)).await;
}

/// A row in the middle refers to what is not there.
async fn what_came_before_a_refused_row_goes_with_it(database: Database) {
    let store = database.open().await;
    let audit = row(Action::WorkspaceCreate);
    let (workspace_id, user_id) = workspace(&store).await;
    let (before, records) = (contents(&store).await, audit_count(&store).await);
    let nobody = new_id();
    // Workspace and member are inserted, then its key for a principal that is none.
    let other = NewWorkspace { id: &new_id(), name: "other", kdf_salt: [0; 32] };
    let failed = store.create_workspace(&other, &user_id, &nobody, &wrap(), &audit).await;
    assert!(matches!(failed, Err(StoreError::Missing)), "{failed:?}");
    assert_eq!(contents(&store).await, before);
    // The principal is inserted, then the key of a workspace that is none.
    let failed = store.create_service_principal(&nobody, &device("operator"), &wrap(), &audit).await;
    assert!(matches!(failed, Err(StoreError::Missing)), "{failed:?}");
    assert_eq!(contents(&store).await, before);
    // The invite and its first workspace are inserted, then a second that is none.
    let failed = store.create_invite(&invite("token", &[workspace_id, nobody]), Some((&user_id, &audit))).await;
    assert!(matches!(failed, Err(StoreError::Missing)), "{failed:?}");
    assert_eq!(contents(&store).await, before);
    assert_eq!(audit_count(&store).await, records);
}
