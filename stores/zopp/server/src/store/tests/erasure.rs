//! Ciphertexts that were replaced or deleted are nowhere in the file.

use sqlx::sqlite::SqliteConnectOptions;

use super::*;

/// Larger than a page, so that it has pages of its own, and smaller, so that it shares one.
const SIZES: [usize; 2] = [100_000, 100];
/// The byte of which it consists. Sixteen in a row are nowhere else.
const MARK: u8 = 0xA7;

/// Whether a marked ciphertext is in the file or in its log.
fn is_in(path: &std::path::Path) -> bool {
    let log = path.with_extension("db-wal");
    [path, &log].iter().any(|file| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes.windows(16).any(|window| window.iter().all(|byte| *byte == MARK))
    })
}

#[tokio::test]
async fn what_was_replaced_or_deleted_is_not_in_the_file() {
    let database = Database::sqlite();
    let Location::Sqlite { path, .. } = &database.location else { unreachable!("as made") };
    let store = database.open().await.with_limits(Limits { history_versions: 0, ..Limits::default() });
    let (workspace_id, environment_id) = environment(&store).await;
    let audit = row(Action::SecretUpdate);
    for size in SIZES {
        for key in ["A", "B"] {
            let marked = SecretRow { ciphertext: vec![MARK; size], ..secret(key) };
            store.upsert_secret(&workspace_id, &environment_id, &marked, &audit).await.unwrap();
        }
        assert!(is_in(path), "{size}: it was there");
        store.upsert_secret(&workspace_id, &environment_id, &secret("A"), &audit).await.unwrap();
        store.delete_secret(&environment_id, "B", &audit).await.unwrap();
        store.empty_log().await.unwrap();
        assert!(!is_in(path), "{size}");
    }
    // A reader of an earlier moment holds nobody up.
    let mut reading = store.read().await.unwrap();
    sql::query("SELECT 1 FROM users").fetch_optional(&mut *reading).await.unwrap();
    store.upsert_secret(&workspace_id, &environment_id, &secret("C"), &audit).await.unwrap();
    let began = std::time::Instant::now();
    store.empty_log().await.unwrap();
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    drop(reading);
    store.upsert_secret(&workspace_id, &environment_id, &secret("C"), &audit).await.unwrap();
}

#[tokio::test]
async fn an_earlier_value_that_is_not_kept_any_more_is_not_in_the_file() {
    let database = Database::sqlite();
    let Location::Sqlite { path, .. } = &database.location else { unreachable!("as made") };
    let store = database.open().await.with_limits(Limits { history_versions: 1, ..Limits::default() });
    let (workspace_id, environment_id) = environment(&store).await;
    let audit = row(Action::SecretUpdate);
    let set = async |value: &SecretRow| {
        store.upsert_secret(&workspace_id, &environment_id, value, &audit).await.unwrap();
    };
    for size in SIZES {
        let marked = SecretRow { ciphertext: vec![MARK; size], ..secret("A") };
        set(&marked).await;
        set(&secret("A")).await;
        store.empty_log().await.unwrap();
        assert!(is_in(path), "{size}: it is kept");
        set(&secret("A")).await;
        store.empty_log().await.unwrap();
        assert!(!is_in(path), "{size}: too old");
        set(&marked).await;
        store.delete_secret(&environment_id, "A", &audit).await.unwrap();
        store.forget_history(&environment_id, "A", &audit).await.unwrap();
        store.empty_log().await.unwrap();
        assert!(!is_in(path), "{size}: forgotten");
    }
}

#[tokio::test]
async fn what_an_earlier_version_deleted_is_removed_at_the_first_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zopp.db");
    migrations::file_of_version(&path, 5).await;
    let pool = sqlx::SqlitePool::connect_with(SqliteConnectOptions::new().filename(&path)).await.unwrap();
    for size in SIZES {
        let marked = vec![MARK; size];
        sqlx::query("UPDATE secrets SET ciphertext = ? WHERE id = 's'").bind(marked).execute(&pool).await.unwrap();
        sqlx::query("UPDATE secrets SET ciphertext = x'00' WHERE id = 's'").execute(&pool).await.unwrap();
    }
    pool.close().await;
    assert!(is_in(&path), "it was left in the file");
    let store = Store::open(&Location::file(&path)).await.unwrap();
    assert!(!is_in(&path));
    assert_eq!(store.snapshot("e").await.unwrap().unwrap().secrets.len(), 2);
}
