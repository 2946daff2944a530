//! Two replicas on one database: what one decides by, the other does not change meanwhile.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::*;
use crate::rbac::{Grants, Role};

on_both! {
    versions_are_contiguous_whoever_writes,
    changes_of_one_environment_wait_for_each_other,
    a_lost_race_is_reported_as_what_it_is,
    a_signature_counts_once_on_all_replicas,
    no_change_follows_an_acknowledged_revocation,
    the_last_place_is_taken_once,
}

async fn versions_are_contiguous_whoever_writes(database: Database) {
    let replicas = [database.open().await, database.open().await];
    let (workspace_id, environment_id) = environment(&replicas[0]).await;
    let mut writes = JoinSet::new();
    for number in 0..40_usize {
        let (store, workspace_id, environment_id) =
            (replicas[number % 2].clone(), workspace_id.clone(), environment_id.clone());
        writes.spawn(async move {
            let key = format!("K{}", number % 5);
            store.upsert_secret(&workspace_id, &environment_id, &secret(&key), &row(Action::SecretUpdate)).await
        });
    }
    let mut changes: Vec<Change> = writes.join_all().await.into_iter().map(Result::unwrap).collect();
    changes.sort_by_key(|change| change.version);
    assert!(changes.iter().map(|change| change.version).eq(1..=40), "{changes:?}");
    assert_eq!(changes.iter().filter(|change| change.created).count(), 5);
}

async fn changes_of_one_environment_wait_for_each_other(database: Database) {
    let replicas = [database.open().await, database.open().await];
    let (workspace_id, environment_id) = environment(&replicas[0]).await;
    let mut writes = JoinSet::new();
    for number in 0..40_usize {
        let (store, workspace_id, environment_id) =
            (replicas[number % 2].clone(), workspace_id.clone(), environment_id.clone());
        writes.spawn(async move {
            let audit = row(Action::SecretUpdate);
            if number % 4 < 2 {
                store.upsert_secret(&workspace_id, &environment_id, &secret("A"), &audit).await.map(|_| ())
            } else {
                match store.delete_secret(&environment_id, "A", &audit).await {
                    Ok(_) | Err(StoreError::Missing) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        });
    }
    for result in writes.join_all().await {
        result.unwrap();
    }
    let kept = replicas[0].snapshot(&environment_id).await.unwrap().unwrap();
    let full: (i64, i64) =
        sql::query_as("SELECT key_count, byte_count FROM environments").fetch_one(&replicas[1].readers).await.unwrap();
    let count = i64::try_from(kept.secrets.len()).unwrap();
    assert_eq!(full, (count, 16 * count), "what is counted is what is there");
}

async fn a_lost_race_is_reported_as_what_it_is(database: Database) {
    let replicas = [database.open().await, database.open().await];
    let register = |store: &Store, email: &'static str, key: u8| {
        let store = store.clone();
        async move {
            let principal = NewPrincipal { name: "laptop".into(), public_key: vec![key; 32], x25519_public_key: None };
            store.register(email, None, true, &principal, &row(Action::UserRegister)).await
        }
    };
    let (one, other) =
        tokio::join!(register(&replicas[0], "a@example.com", 1), register(&replicas[1], "a@example.com", 2));
    let mut done = 0;
    for result in [one, other] {
        match result {
            Ok(Registration::Done { .. }) => done += 1,
            Ok(Registration::OtherUser) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(done, 1);
    let (one, other) =
        tokio::join!(register(&replicas[0], "b@example.com", 3), register(&replicas[1], "c@example.com", 3));
    let mut done = 0;
    for result in [one, other] {
        match result {
            Ok(Registration::Done { .. }) => done += 1,
            Err(StoreError::KeyTaken) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(done, 1);
}

async fn a_signature_counts_once_on_all_replicas(database: Database) {
    let replicas = [database.open().await, database.open().await];
    let (workspace_id, environment_id) = environment(&replicas[0]).await;
    let audit = AuditRow { signature: Some([7; 32]), ..row(Action::SecretUpdate) };
    let key = secret("A");
    let upsert = |store: &Store| {
        let (store, audit, key) = (store.clone(), audit.clone(), key.clone());
        let (workspace_id, environment_id) = (workspace_id.clone(), environment_id.clone());
        async move { store.upsert_secret(&workspace_id, &environment_id, &key, &audit).await }
    };
    let (one, other) = tokio::join!(upsert(&replicas[0]), upsert(&replicas[1]));
    let (done, refused) = if one.is_ok() { (one, other) } else { (other, one) };
    assert_eq!(done.unwrap().version, 1);
    assert!(matches!(refused, Err(StoreError::Replayed)), "{refused:?}");
    assert_eq!(replicas[0].used_signatures(60).await.unwrap().len(), 1, "a replica that starts knows it");
    // A signature of a change without effect counts as unused.
    let audit = AuditRow { signature: Some([8; 32]), ..row(Action::SecretDelete) };
    let missing = replicas[0].delete_secret(&environment_id, "B", &audit).await;
    assert!(matches!(missing, Err(StoreError::Missing)), "{missing:?}");
    replicas[1].upsert_secret(&workspace_id, &environment_id, &secret("B"), &audit).await.unwrap();
    // It is forgotten when it is too old to be accepted.
    replicas[0].forget_signatures(-60).await.unwrap();
    assert_eq!(replicas[1].used_signatures(60).await.unwrap(), []);
}

async fn no_change_follows_an_acknowledged_revocation(database: Database) {
    let replicas = [database.open().await, database.open().await];
    let (workspace_id, environment_id) = environment(&replicas[0]).await;
    let new = NewPrincipal { name: "operator".into(), public_key: vec![9; 32], x25519_public_key: None };
    let wrap = KeyWrap {
        ephemeral_pub: vec![1; 32],
        kek_wrapped: vec![2; 48],
        kek_nonce: vec![3; 24],
        signature: None,
        signer_id: None,
    };
    let admin = row(Action::PermissionSetWorkspace);
    let id = replicas[0].create_service_principal(&workspace_id, &new, &wrap, &admin).await.unwrap();
    let service = replicas[0].principal(&id).await.unwrap().unwrap();
    let scope = Scope { workspace_id: workspace_id.clone(), project_id: None, environment_id: None };
    let target = Target::Principal(&service);
    let caller = (id.as_str(), None);
    let yes = |_: &_, _: &_| true;
    replicas[0].change_permission(&scope, caller, target, Some(Role::Write), &admin, yes).await.unwrap();

    let mut authority = Authority::of(&id, None);
    authority.add(Need::KeyHolder(workspace_id.clone()));
    authority.add(Need::Role(scope.clone(), Role::Write, Grants::default()));
    let audit = Arc::new(AuditRow { authority, ..row(Action::SecretUpdate) });
    let mut writers = JoinSet::new();
    for store in &replicas {
        let (store, audit) = (store.clone(), Arc::clone(&audit));
        let (workspace_id, environment_id) = (workspace_id.clone(), environment_id.clone());
        writers.spawn(async move {
            loop {
                match store.upsert_secret(&workspace_id, &environment_id, &secret("A"), &audit).await {
                    Ok(_) => {}
                    Err(StoreError::Revoked(_)) => return,
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
    }
    // They are at it.
    while replicas[0].environment_version(&environment_id).await.unwrap() < Some(10) {
        tokio::task::yield_now().await;
    }
    replicas[1].change_permission(&scope, caller, target, None, &admin, yes).await.unwrap();
    let acknowledged = replicas[0].environment_version(&environment_id).await.unwrap();
    writers.join_all().await;
    assert_eq!(replicas[1].environment_version(&environment_id).await.unwrap(), acknowledged);
}

async fn the_last_place_is_taken_once(database: Database) {
    let limits = Limits { projects: 3, ..Limits::default() };
    let replicas = [database.open().await.with_limits(limits), database.open().await.with_limits(limits)];
    let (workspace_id, _) = workspace(&replicas[0]).await;
    let mut makers = JoinSet::new();
    for number in 0..8_usize {
        let (store, workspace_id) = (replicas[number % 2].clone(), workspace_id.clone());
        let name = format!("project-{number}");
        makers.spawn(async move { store.create_project(&workspace_id, &name, &row(Action::ProjectCreate)).await });
    }
    let made = makers.join_all().await;
    assert!(made.iter().all(|made| matches!(made, Ok(_) | Err(StoreError::Limit(_)))), "{made:?}");
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 3);
}
