//! One suite for both databases: each test is a function of an empty database, run on SQLite and on PostgreSQL.

use super::*;
use crate::{audit::row::blank_row, clock};

mod audit;
mod authority;
mod backup;
mod batched_changes;
mod concurrency;
mod erasure;
mod history;
mod import;
mod key_rotation;
mod migrations;
mod procedures;
mod rollback;

/// An empty database, which goes with this.
struct Database {
    location: Location,
    directory: tempfile::TempDir,
}

impl Database {
    fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { location: Location::file(directory.path().join("zopp.db")), directory }
    }

    async fn postgres() -> Self {
        let address = konverge_zopp_testing::postgres_database().await;
        Self { location: Location::parse(&address).unwrap(), directory: tempfile::tempdir().unwrap() }
    }

    /// One more replica's view of it.
    async fn open(&self) -> Store {
        Store::open(&self.location).await.unwrap()
    }
}

/// Runs tests on either database.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::store::tests::Database::sqlite()).await;
            })*
        }

        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::store::tests::Database::postgres().await).await;
            })*
        }
    };
}

use on_both;

on_both! {
    a_refused_write_leaves_no_audit_row,
    every_change_counts_the_version_up_by_one_and_deleting_nothing_does_not,
    texts_are_in_the_order_of_their_bytes,
    a_text_that_no_name_can_be_is_not_found,
    a_change_of_many_keys_is_one_change_or_none,
    of_two_changes_of_one_state_one_is_made,
    a_new_key_comes_with_all_values,
}

fn row(action: Action) -> AuditRow {
    AuditRow { principal_id: "p".into(), ..blank_row(action, "test") }
}

async fn audit_count(store: &Store) -> i64 {
    let (count,): (i64,) = sql::query_as("SELECT count(*) FROM audit_logs").fetch_one(&store.readers).await.unwrap();
    count
}

async fn workspace(store: &Store) -> (String, String) {
    let principal = NewPrincipal { name: "laptop".into(), public_key: vec![1; 32], x25519_public_key: None };
    let Registration::Done { user_id, principal_id } =
        store.register("a@example.com", None, true, &principal, &row(Action::UserRegister)).await.unwrap()
    else {
        panic!("a new e-mail registers");
    };
    let wrap = KeyWrap {
        ephemeral_pub: vec![1; 32],
        kek_wrapped: vec![2; 48],
        kek_nonce: vec![3; 24],
        signature: None,
        signer_id: None,
    };
    let id = new_id();
    let new = NewWorkspace { id: &id, name: "acme", kdf_salt: [0; 32] };
    store.create_workspace(&new, &user_id, &principal_id, &wrap, &row(Action::WorkspaceCreate)).await.unwrap();
    (id, user_id)
}

async fn a_refused_write_leaves_no_audit_row(database: Database) {
    let store = database.open().await;
    let (workspace_id, _) = workspace(&store).await;
    store.create_project(&workspace_id, "backend", &row(Action::ProjectCreate)).await.unwrap();
    let before = audit_count(&store).await;

    let twice = store.create_project(&workspace_id, "backend", &row(Action::ProjectCreate)).await;
    assert!(matches!(twice, Err(StoreError::Duplicate)), "{twice:?}");
    assert_eq!(audit_count(&store).await, before);
}

async fn every_change_counts_the_version_up_by_one_and_deleting_nothing_does_not(database: Database) {
    let store = database.open().await;
    let (workspace_id, _) = workspace(&store).await;
    let project = store.create_project(&workspace_id, "backend", &row(Action::ProjectCreate)).await.unwrap();
    let new = NewEnvironment {
        workspace_id: &workspace_id,
        project_id: &project.id,
        name: "production",
        dek_wrapped: &[0; 48],
        dek_nonce: &[0; 24],
    };
    let environment = store.create_environment(&new, &row(Action::EnvironmentCreate)).await.unwrap();
    let empty = store.snapshot(&environment.id).await.unwrap().unwrap();
    assert_eq!((empty.version, empty.secrets.len()), (0, 0));

    let secret = SecretRow { key: "A".into(), nonce: vec![0; 24], ciphertext: vec![0; 16] };
    let audit = row(Action::SecretUpdate);
    let set = || store.upsert_secret(&workspace_id, &environment.id, &secret, &audit);
    assert_eq!(set().await.unwrap(), Change { version: 1, created: true });
    assert_eq!(set().await.unwrap(), Change { version: 2, created: false });
    assert_eq!(store.delete_secret(&environment.id, "A", &row(Action::SecretDelete)).await.unwrap(), 3);
    let gone = store.delete_secret(&environment.id, "A", &row(Action::SecretDelete)).await;
    assert!(matches!(gone, Err(StoreError::Missing)));
    assert_eq!(store.environment_version(&environment.id).await.unwrap(), Some(3));

    // Everything below goes with the project.
    assert_eq!(
        store.delete_project(&project.id, &row(Action::ProjectDelete)).await.unwrap(),
        std::slice::from_ref(&environment.id)
    );
    assert_eq!(store.environment_version(&environment.id).await.unwrap(), None);
    // As for a caller who looked the environment up before.
    let late = set().await;
    assert!(matches!(late, Err(StoreError::EnvironmentGone)), "{late:?}");
}

/// A workspace, a project and an environment in it, whose id is returned with that of the workspace.
async fn environment(store: &Store) -> (String, String) {
    let (workspace_id, _) = workspace(store).await;
    let project = store.create_project(&workspace_id, "backend", &row(Action::ProjectCreate)).await.unwrap();
    let new = NewEnvironment {
        workspace_id: &workspace_id,
        project_id: &project.id,
        name: "production",
        dek_wrapped: &[0; 48],
        dek_nonce: &[0; 24],
    };
    let environment = store.create_environment(&new, &row(Action::EnvironmentCreate)).await.unwrap();
    (workspace_id, environment.id)
}

fn secret(key: &str) -> SecretRow {
    SecretRow { key: key.into(), nonce: vec![0; 24], ciphertext: vec![0; 16] }
}

async fn texts_are_in_the_order_of_their_bytes(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    let audit = row(Action::SecretUpdate);
    for key in ["b", "\u{e9}", "a-c", "B", "_", "ab", "a.b"] {
        store.upsert_secret(&workspace_id, &environment_id, &secret(key), &audit).await.unwrap();
    }
    let listed = store.snapshot(&environment_id).await.unwrap().unwrap();
    let keys: Vec<&str> = listed.secrets.iter().map(|secret| secret.key.as_str()).collect();
    assert_eq!(keys, ["B", "_", "a-c", "a.b", "ab", "b", "\u{e9}"]);
}

async fn a_text_that_no_name_can_be_is_not_found(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    let found = store.secret(&environment_id, "A\0").await;
    assert!(matches!(found, Ok(None) | Err(StoreError::Missing)), "{:?}", found.map(|_| ()));
    let named =
        AuditRow { resource_id: "A\0B".into(), workspace_id: Some(workspace_id.clone()), ..row(Action::SecretRead) };
    store.record(&[AuditWrite::Row { id: new_id(), at: 7, row: Box::new(named) }]).await.unwrap();
    let filter =
        AuditFilter { workspace_id, action: Some(Action::SecretRead.as_str().to_owned()), ..AuditFilter::default() };
    let (entries, total) = store.audit_entries(&filter, 10, 0).await.unwrap();
    assert_eq!((entries[0].resource_id.as_str(), total), ("A\u{fffd}B", 1), "the attempt is on record");
}

fn many(set: &[&str], delete: &[&str], expected_tag: Option<&str>) -> SecretsChange {
    SecretsChange {
        expected_tag: expected_tag.map(str::to_owned),
        expected_version: None,
        set: set.iter().map(|key| secret(key)).collect(),
        delete: delete.iter().map(|key| (*key).to_owned()).collect(),
        manifest: expected_tag.map(|_| SealedManifest { nonce: vec![1; 24], ciphertext: vec![2; 16] }),
        new_dek: None,
        rollback_to: None,
    }
}

async fn state(store: &Store, environment_id: &str) -> EnvironmentState {
    store.environment_state(environment_id, Wanted::All, None).await.unwrap().unwrap()
}

async fn a_change_of_many_keys_is_one_change_or_none(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    let audit = row(Action::SecretUpdate);
    let change =
        async |change: SecretsChange| store.change_secrets(&workspace_id, &environment_id, &change, &audit).await;
    let made = change(many(&["B", "A"], &[], None)).await.unwrap();
    let before = state(&store, &environment_id).await;
    assert_eq!(made, Attempt::Done { version: 1, tag: before.tag.clone() });
    let rows = audit_count(&store).await;
    assert!(matches!(change(many(&["C"], &["A", "X"], None)).await, Err(StoreError::Missing)));
    assert_eq!(change(many(&["C"], &[], Some("other"))).await.unwrap(), Attempt::Outdated { version: 1 });
    assert_eq!((state(&store, &environment_id).await == before, audit_count(&store).await), (true, rows));

    change(many(&["C"], &["A"], Some(&before.tag))).await.unwrap();
    let after = state(&store, &environment_id).await;
    let content = after.content.unwrap();
    assert_eq!(content.secrets.iter().map(|secret| secret.key.as_str()).collect::<Vec<_>>(), ["B", "C"]);
    assert_eq!((after.version, content.manifest.is_some(), audit_count(&store).await), (2, true, rows + 2));
    let counts: (i64, i64) =
        sql::query_as("SELECT key_count, byte_count FROM environments").fetch_one(&store.readers).await.unwrap();
    assert_eq!(counts, (2, 32));
    let known = store.environment_state(&environment_id, Wanted::All, Some(&after.tag)).await.unwrap().unwrap();
    assert!(known.content.is_none() && known.tag == after.tag);
    let one = store.environment_state(&environment_id, Wanted::Key("C"), None).await.unwrap().unwrap();
    assert_eq!(one.content.unwrap().secrets.len(), 1);
    let names = store.environment_state(&environment_id, Wanted::WithoutCiphertexts, None).await.unwrap().unwrap();
    assert!(
        names.content.unwrap().secrets.iter().all(|secret| secret.ciphertext.is_empty() && secret.nonce.len() == 24)
    );
}

async fn a_new_key_comes_with_all_values(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    let audit = row(Action::SecretUpdate);
    let change = async |change: SecretsChange| {
        store.change_secrets(&workspace_id, &environment_id, &change, &audit).await.unwrap()
    };
    change(many(&["A", "B"], &[], None)).await;
    let before = state(&store, &environment_id).await;
    let rotate = |set: &[&str], delete: &[&str]| SecretsChange {
        new_dek: Some((vec![9; 48], vec![8; 24])),
        ..many(set, delete, None)
    };
    for (set, delete) in [
        (["A"].as_slice(), [].as_slice()),
        (&["A", "B", "C"], &[]),
        (&[], &[]),
        (&["A", "C"], &[]),
        (&["A", "C"], &["B"]),
        (&["A"], &["B"]),
    ] {
        assert_eq!(change(rotate(set, delete)).await, Attempt::NotAll, "{set:?} {delete:?}");
        assert!(state(&store, &environment_id).await == before);
    }
    assert!(matches!(change(rotate(&["A", "B"], &[])).await, Attempt::Done { version: 2, .. }));
    let after = state(&store, &environment_id).await.content.unwrap();
    assert_eq!((after.dek_wrapped, after.dek_nonce), (vec![9; 48], vec![8; 24]));
}

async fn of_two_changes_of_one_state_one_is_made(database: Database) {
    let (store, replica) = (database.open().await, database.open().await);
    let (workspace_id, environment_id) = environment(&store).await;
    let audit = row(Action::SecretUpdate);
    for round in 0..10 {
        let tag = state(&store, &environment_id).await.tag;
        let (here, there) = (many(&["A"], &[], Some(&tag)), many(&["B"], &[], Some(&tag)));
        let (here, there) = tokio::join!(
            store.change_secrets(&workspace_id, &environment_id, &here, &audit),
            replica.change_secrets(&workspace_id, &environment_id, &there, &audit),
        );
        let done = |attempt: &Attempt| matches!(attempt, Attempt::Done { .. });
        assert!(done(&here.unwrap()) != done(&there.unwrap()), "round {round}");
    }
    assert_eq!(state(&store, &environment_id).await.version, 10);
}

#[tokio::test]
async fn only_this_user_reads_the_file() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&Location::file(directory.path().join("zopp.db"))).await.unwrap();
    workspace(&store).await;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
    }
}

#[tokio::test]
async fn what_is_not_a_database_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    std::fs::write(&path, "not a database, and long enough to have no header of one ".repeat(100)).unwrap();
    let error = Store::open(&Location::file(path)).await.unwrap_err().to_string();
    assert!(error.contains("notes.txt") && error.contains("check that"), "{error}");
}
