//! Backups of either database, restored into either.

use std::{os::unix::fs::PermissionsExt, path::PathBuf};

use super::*;
use crate::store::transfer;

on_both! {
    a_backup_holds_all_rows_of_one_moment_for_its_owner_alone,
    a_backup_is_restored_into_either_database,
    versions_are_moved_in_place,
}

/// The content of each table that is transferred, for comparison.
async fn contents(store: &Store, tables: &[transfer::Table]) -> Vec<(String, Vec<Vec<transfer::Cell>>)> {
    let mut contents = Vec::new();
    for table in tables {
        let names: Vec<String> = table.columns.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let order: Vec<String> = (1..=names.len()).map(|number| number.to_string()).collect();
        let select = format!("SELECT {} FROM \"{}\" ORDER BY {}", names.join(", "), table.name, order.join(", "));
        let rows = sql::query_made(select).fetch_all(&store.writer).await.unwrap();
        let cells = |row: &sql::Row| {
            let kinds = table.columns.iter().enumerate();
            kinds.map(|(index, (_, kind))| transfer::Cell::read(row, index, *kind).unwrap()).collect()
        };
        contents.push((table.name.clone(), rows.iter().map(cells).collect()));
    }
    contents
}

/// The tables of the newest schema, read out of a new file.
async fn tables() -> Vec<transfer::Table> {
    Database::sqlite().open().await.tables().await.unwrap()
}

/// A store with something in most tables, at version 3 of its one environment.
async fn filled(store: &Store) -> (String, String) {
    let (workspace_id, environment_id) = environment(store).await;
    let audit = row(Action::SecretUpdate);
    for key in ["A", "B", "A"] {
        store.upsert_secret(&workspace_id, &environment_id, &secret(key), &audit).await.unwrap();
    }
    let workspace_ids = [workspace_id.clone()];
    let invite = NewInvite {
        token: "token",
        workspace_ids: &workspace_ids,
        expires_at: i64::MAX,
        kek_encrypted: None,
        kek_nonce: None,
        max_uses: None,
    };
    store.create_invite(&invite, None).await.unwrap();
    let signed = AuditRow { signature: Some([7; 32]), ..audit };
    store.record(&[AuditWrite::Row { id: new_id(), at: 7, row: Box::new(signed) }]).await.unwrap();
    (workspace_id, environment_id)
}

fn new_file() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copy.db");
    (directory, path)
}

/// The names in a folder.
fn names(directory: &tempfile::TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(directory.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn a_backup_holds_all_rows_of_one_moment_for_its_owner_alone(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = filled(&store).await;
    let tables = tables().await;
    let (directory, path) = new_file();
    // Changes go on meanwhile.
    let audit = row(Action::SecretUpdate);
    let changing = async {
        for _ in 0..30 {
            store.upsert_secret(&workspace_id, &environment_id, &secret("C"), &audit).await.unwrap();
        }
    };
    let (rows, ()) = tokio::join!(store.back_up(&path), changing);
    assert_eq!(names(&directory), ["copy.db"], "one file, and nothing half-written beside it");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let copy = Store::open(&Location::file(&path)).await.unwrap();
    let copied = contents(&copy, &tables).await;
    assert_eq!(copied.iter().map(|(_, rows)| rows.len() as u64).sum::<u64>(), rows.unwrap());
    let version = copy.environment_version(&environment_id).await.unwrap().unwrap();
    // Each change is one version and one row of the record: those of one moment.
    let (recorded,): (i64,) =
        sql::query_as("SELECT count(*) FROM audit_logs WHERE action IN ('secret.create', 'secret.update')")
            .fetch_one(&copy.readers)
            .await
            .unwrap();
    assert_eq!(recorded, version + 1, "with the one that was recorded by hand");
    let again = store.back_up(&path).await.unwrap_err();
    assert!(matches!(again, BackupError::Exists(_)), "{again}");
}

async fn a_backup_is_restored_into_either_database(database: Database) {
    let store = database.open().await;
    let (_, environment_id) = filled(&store).await;
    let tables = tables().await;
    let (_directory, backup) = new_file();
    store.back_up(&backup).await.unwrap();
    // Later changes are lost.
    let before = contents(&store, &tables).await;
    store.delete_secret(&environment_id, "A", &row(Action::SecretDelete)).await.unwrap();
    let announced = store.environment_version(&environment_id).await.unwrap().unwrap();

    let (_other, path) = new_file();
    let postgres = Database::postgres().await;
    for location in [Location::file(&path), postgres.location.clone()] {
        let restored = Store::restore(&backup, &location, &row(Action::DatabaseRestore)).await.unwrap();
        assert_eq!(restored.rows, before.iter().map(|(_, rows)| rows.len() as u64).sum::<u64>(), "{location}");
        assert_eq!(restored.environments, 1);
        let copy = Store::open(&location).await.unwrap();
        let version = copy.environment_version(&environment_id).await.unwrap().unwrap();
        assert!(version > announced + 1_000_000, "{version} is past all that were announced");
        for ((name, rows), (_, expected)) in contents(&copy, &tables).await.into_iter().zip(&before) {
            match name.as_str() {
                // They differ in the version and in the row of the restore.
                "environments" => assert_eq!(rows.len(), expected.len()),
                // The second has the moment of the restore.
                "audit_logs" | "settings" => assert_eq!(rows.len(), expected.len() + 1),
                _ => assert_eq!(&rows, expected, "{name} in {location}"),
            }
        }
        let again = Store::restore(&backup, &location, &row(Action::DatabaseRestore)).await.unwrap_err();
        assert!(matches!(again, BackupError::Exists(_) | BackupError::NotEmpty(_)), "{again}");
        copy.close().await;
    }
}

async fn versions_are_moved_in_place(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = filled(&store).await;
    let mut last = store.environment_version(&environment_id).await.unwrap().unwrap();
    for _ in 0..2 {
        let moved = store.move_versions(&row(Action::DatabaseRestore)).await.unwrap();
        assert_eq!((moved.environments, moved.rows), (1, 0));
        let change =
            store.upsert_secret(&workspace_id, &environment_id, &secret("A"), &row(Action::SecretUpdate)).await;
        let version = change.unwrap().version;
        assert!(version > last + 1, "{version} after {last}");
        last = version;
    }
    // Data of tomorrow: this machine's clock cannot be right.
    sql::query("UPDATE environments SET updated_at = ?")
        .bind(clock::now() + 86_400)
        .execute(&store.writer)
        .await
        .unwrap();
    let refused = store.move_versions(&row(Action::DatabaseRestore)).await.unwrap_err();
    assert!(matches!(refused, BackupError::Clock { .. }), "{refused}");
    assert_eq!(store.environment_version(&environment_id).await.unwrap(), Some(last));
}

#[tokio::test]
async fn a_restore_refuses_by_name_and_leaves_nothing_behind() {
    let database = Database::sqlite();
    let store = database.open().await;
    filled(&store).await;
    let (directory, backup) = new_file();
    store.back_up(&backup).await.unwrap();
    let file = |name: &str| directory.path().join(name);
    std::fs::write(file("notes.txt"), "not a database, and long enough to have no header of one ".repeat(100)).unwrap();
    std::fs::write(file("empty.db"), "").unwrap();
    let mut damaged = std::fs::read(&backup).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle..].fill(0x55);
    std::fs::write(file("damaged.db"), damaged).unwrap();
    std::fs::write(file("stale.db-wal"), "of an earlier database").unwrap();
    let before = names(&directory).len();
    for (from, to, expected) in [
        ("gone.db", "new.db", "gone.db"),
        ("notes.txt", "new.db", "not a backup"),
        ("empty.db", "new.db", "not a backup"),
        ("damaged.db", "new.db", "use another backup"),
        ("copy.db", "empty.db", "exists already"),
        ("copy.db", "stale.db", "left of an earlier database"),
    ] {
        let refused = Store::restore(&file(from), &Location::file(file(to)), &row(Action::DatabaseRestore)).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(expected), "{from}: {refused}");
        assert_eq!(names(&directory).len(), before, "{from}: {:?}", names(&directory));
    }
}

/// A backup of which bytes were altered or lost, at so many places.
const DAMAGES: usize = 60;

#[tokio::test]
async fn a_damaged_backup_is_refused_or_restored_whole() {
    let database = Database::sqlite();
    let store = database.open().await;
    filled(&store).await;
    let (directory, backup) = new_file();
    store.back_up(&backup).await.unwrap();
    let whole = std::fs::read(&backup).unwrap();
    let tables = tables().await;
    let rows: usize = contents(&store, &tables).await.iter().map(|(_, rows)| rows.len()).sum();
    let damaged = directory.path().join("damaged.db");
    let mut refused = 0;
    for number in 0..DAMAGES {
        let mut bytes = whole.clone();
        // Spread over the file, of which the first page matters most.
        let at = if number % 3 == 0 { number * 5 } else { whole.len() / DAMAGES * number + number };
        match number % 4 {
            0 => bytes[at] ^= 0xff,
            1 => bytes[at..at + 16].fill(0),
            2 => bytes.truncate(at),
            _ => drop(bytes.drain(at..=at)),
        }
        std::fs::write(&damaged, bytes).unwrap();
        let to = Database::sqlite();
        match Store::restore(&damaged, &to.location, &row(Action::DatabaseRestore)).await {
            Ok(_) => {
                let restored = to.open().await;
                let there: usize = contents(&restored, &tables).await.iter().map(|(_, rows)| rows.len()).sum();
                assert_eq!(
                    there,
                    rows + 2,
                    "damage {number} at {at}: all rows, and the moment and the record of the restore"
                );
            }
            Err(error) => {
                refused += 1;
                assert_eq!(names(&to.directory), [""; 0], "damage {number} at {at}: {error}");
            }
        }
    }
    assert!(refused > DAMAGES / 3, "{refused}");
}
