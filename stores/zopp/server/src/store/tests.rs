use super::*;

mod migrations;
mod rollback;

async fn open(directory: &tempfile::TempDir) -> Store {
    let path = directory.path().join("zopp.db");
    Store::open(&Location { path, create: true }).await.unwrap()
}

fn row(action: Action) -> AuditRow {
    AuditRow {
        principal_id: "p".into(),
        user_id: None,
        action,
        resource_type: "test",
        resource_id: String::new(),
        workspace_id: None,
        project_id: None,
        environment_id: None,
        outcome: Outcome::Success,
        reason: None,
        details: None,
        client_ip: None,
        signature: None,
        authority: Authority::default(),
    }
}

async fn audit_count(store: &Store) -> i64 {
    let (count,): (i64,) = sqlx::query_as("SELECT count(*) FROM audit_logs").fetch_one(&store.readers).await.unwrap();
    count
}

async fn workspace(store: &Store) -> (String, String) {
    let principal = NewPrincipal { name: "laptop".into(), public_key: vec![1; 32], x25519_public_key: None };
    let Registration::Done { user_id, principal_id } =
        store.register("a@example.com", None, true, &principal, &row(Action::UserRegister)).await.unwrap()
    else {
        panic!("a new e-mail registers");
    };
    let wrap = KeyWrap { ephemeral_pub: vec![1; 32], kek_wrapped: vec![2; 48], kek_nonce: vec![3; 24] };
    let id = new_id();
    let new = NewWorkspace { id: &id, name: "acme", kdf_salt: [0; 32] };
    store.create_workspace(&new, &user_id, &principal_id, &wrap, &row(Action::WorkspaceCreate)).await.unwrap();
    (id, user_id)
}

#[tokio::test]
async fn a_refused_write_leaves_no_audit_row() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    let (workspace_id, _) = workspace(&store).await;
    store.create_project(&workspace_id, "backend", &row(Action::ProjectCreate)).await.unwrap();
    let before = audit_count(&store).await;

    let twice = store.create_project(&workspace_id, "backend", &row(Action::ProjectCreate)).await;
    assert!(matches!(twice, Err(StoreError::Duplicate)), "{twice:?}");
    assert_eq!(audit_count(&store).await, before);
}

#[tokio::test]
async fn every_change_counts_the_version_up_by_one_and_deleting_nothing_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
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
}

#[tokio::test]
async fn only_this_user_reads_the_file() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
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
    let error = Store::open(&Location { path, create: true }).await.unwrap_err().to_string();
    assert!(error.contains("notes.txt") && error.contains("check that"), "{error}");
}
