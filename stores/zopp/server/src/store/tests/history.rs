//! Earlier values: what is kept, for how long, and what is erased.

use super::*;

on_both! {
    each_version_is_kept_with_its_beginning_and_its_end,
    a_change_that_is_not_made_leaves_no_version,
    the_oldest_versions_of_a_key_are_erased,
    the_oldest_versions_of_an_environment_are_erased_beyond_its_bytes,
    few_changes_at_the_limit_of_bytes_erase_anything,
    without_versions_nothing_is_kept,
    lower_limits_erase_what_was_kept_before,
    a_new_key_ends_the_history,
    versions_are_forgotten_by_key,
}

fn by(principal_id: &str) -> AuditRow {
    AuditRow { principal_id: principal_id.into(), ..row(Action::SecretUpdate) }
}

fn limits(history_versions: u32, history_bytes: u32) -> Limits {
    Limits { history_versions, history_bytes, ..Limits::default() }
}

/// A value whose ciphertext tells it apart.
fn value(key: &str, byte: u8) -> SecretRow {
    SecretRow { ciphertext: vec![byte; 44], ..secret(key) }
}

async fn history(store: &Store, environment_id: &str, key: &str) -> Vec<VersionRow> {
    store.secret_history(environment_id, key, Extent::All).await.unwrap().unwrap().versions
}

/// The version and the first byte of each, newest first.
async fn kept(store: &Store, environment_id: &str, key: &str) -> Vec<(i64, u8)> {
    history(store, environment_id, key).await.iter().map(|row| (row.version, row.ciphertext[0])).collect()
}

/// Asserts that the environment counts the size of its earlier values correctly, and returns it.
async fn bytes(store: &Store) -> i64 {
    let counted: Vec<(i64, i64)> = sql::query_as(
        "SELECT history_bytes, (SELECT coalesce(sum(length(ciphertext) + 256), 0) FROM secret_versions WHERE env_id = environments.id) \
         FROM environments",
    )
    .fetch_all(&store.readers)
    .await
    .unwrap();
    assert!(counted.iter().all(|(counted, taken)| counted == taken), "{counted:?}");
    counted.iter().map(|(counted, _)| counted).sum()
}

async fn each_version_is_kept_with_its_beginning_and_its_end(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    let (laptop,): (String,) = sql::query_as("SELECT id FROM principals").fetch_one(&store.readers).await.unwrap();
    let set = async |byte, who: &str| {
        store.upsert_secret(&workspace_id, &environment_id, &value("A", byte), &by(who)).await.unwrap();
    };
    set(1, &laptop).await;
    set(2, "gone").await;
    store.delete_secret(&environment_id, "A", &by(&laptop)).await.unwrap();
    store.upsert_secret(&workspace_id, &environment_id, &value("B", 9), &by(&laptop)).await.unwrap();
    assert_eq!(kept(&store, &environment_id, "A").await, [(2, 2), (1, 1)], "also of a deleted key");
    set(3, &laptop).await;

    let versions = history(&store, &environment_id, "A").await;
    let (laptop, gone) = ((laptop.clone(), Some("laptop".to_owned())), ("gone".to_owned(), None));
    let shown: Vec<_> = versions
        .iter()
        .map(|row| {
            let end = row.end.as_ref().map(|end| (end.version, &end.by, end.deleted));
            (row.version, row.ciphertext[0], row.set_by.as_ref(), end)
        })
        .collect();
    assert_eq!(
        shown,
        [
            (5, 3, Some(&laptop), None),
            (2, 2, Some(&gone), Some((3, &laptop, true))),
            (1, 1, Some(&laptop), Some((2, &gone, false))),
        ]
    );
    assert_eq!(bytes(&store).await, 2 * (44 + 256));
    // One of them, and without ciphertexts.
    let state = store.secret_history(&environment_id, "A", Extent::One(2)).await.unwrap().unwrap();
    assert_eq!((state.versions.len(), state.versions[0].ciphertext[0], state.dek_wrapped.len()), (1, 2, 48));
    assert!(store.secret_history(&environment_id, "A", Extent::One(4)).await.unwrap().unwrap().versions.is_empty());
    let numbers = store.secret_history(&environment_id, "A", Extent::Numbers).await.unwrap().unwrap();
    assert!(numbers.versions.iter().all(|row| row.ciphertext.is_empty() && row.nonce.len() == 24));
    assert!(store.secret_history("other", "A", Extent::All).await.unwrap().is_none());
    // They go with the environment.
    store.delete_environment(&environment_id, &row(Action::EnvironmentDelete)).await.unwrap();
    let (rest,): (i64,) =
        sql::query_as("SELECT count(*) FROM secret_versions").fetch_one(&store.readers).await.unwrap();
    assert_eq!(rest, 0);
}

async fn a_change_that_is_not_made_leaves_no_version(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    let change =
        async |change: SecretsChange| store.change_secrets(&workspace_id, &environment_id, &change, &by("p")).await;
    change(many(&["A", "B"], &[], None)).await.unwrap();
    assert!(matches!(change(many(&["A"], &["X"], None)).await, Err(StoreError::Missing)));
    assert!(matches!(change(many(&["A"], &[], Some("other"))).await, Ok(Attempt::Outdated { .. })));
    assert_eq!((kept(&store, &environment_id, "A").await.len(), bytes(&store).await), (1, 0));
    change(many(&["A"], &["B"], None)).await.unwrap();
    assert_eq!(kept(&store, &environment_id, "A").await, [(2, 0), (1, 0)]);
    assert_eq!(kept(&store, &environment_id, "B").await, [(1, 0)]);
}

async fn the_oldest_versions_of_a_key_are_erased(database: Database) {
    let store = database.open().await.with_limits(limits(2, 1 << 20));
    let (workspace_id, environment_id) = environment(&store).await;
    for byte in 1..=5 {
        store.upsert_secret(&workspace_id, &environment_id, &value("A", byte), &by("p")).await.unwrap();
    }
    assert_eq!(kept(&store, &environment_id, "A").await, [(5, 5), (4, 4), (3, 3)]);
    store.delete_secret(&environment_id, "A", &by("p")).await.unwrap();
    assert_eq!(kept(&store, &environment_id, "A").await, [(5, 5), (4, 4)]);
    assert_eq!(bytes(&store).await, 2 * 300);
}

async fn the_oldest_versions_of_an_environment_are_erased_beyond_its_bytes(database: Database) {
    let store = database.open().await.with_limits(limits(10, 3 * 300));
    let (workspace_id, environment_id) = environment(&store).await;
    // Keys that are made and deleted leave no more than the limit either.
    for byte in 1..=150_u8 {
        let key = format!("K{byte}");
        store.upsert_secret(&workspace_id, &environment_id, &value(&key, byte), &by("p")).await.unwrap();
        store.delete_secret(&environment_id, &key, &by("p")).await.unwrap();
    }
    assert_eq!(bytes(&store).await, 2 * 300, "beyond three of them, one more than needed is erased");
    assert!(kept(&store, &environment_id, "K148").await.is_empty());
    assert_eq!(kept(&store, &environment_id, "K149").await, [(297, 149)]);
    // A value that does not fit at all is not kept, and no earlier one either: they are older.
    let large = SecretRow { ciphertext: vec![7; 1000], ..secret("L") };
    store.upsert_secret(&workspace_id, &environment_id, &large, &by("p")).await.unwrap();
    store.delete_secret(&environment_id, "L", &by("p")).await.unwrap();
    assert_eq!((kept(&store, &environment_id, "L").await.len(), bytes(&store).await), (0, 0));
}

async fn few_changes_at_the_limit_of_bytes_erase_anything(database: Database) {
    let store = database.open().await.with_limits(limits(1000, 80 * 300));
    let (workspace_id, environment_id) = environment(&store).await;
    let mut sizes = Vec::new();
    for number in 0..100_u8 {
        store.upsert_secret(&workspace_id, &environment_id, &value("A", number), &by("p")).await.unwrap();
        sizes.push(bytes(&store).await / 300);
    }
    assert!(sizes.iter().all(|size| *size <= 80), "{sizes:?}");
    assert_eq!(sizes.windows(2).filter(|pair| pair[1] < pair[0]).count(), 2, "{sizes:?}");
    assert_eq!(sizes.iter().skip(80).min(), Some(&70), "an eighth is free: {sizes:?}");
}

async fn without_versions_nothing_is_kept(database: Database) {
    let store = database.open().await.with_limits(limits(0, 1 << 20));
    let (workspace_id, environment_id) = environment(&store).await;
    for byte in 1..=2 {
        store.upsert_secret(&workspace_id, &environment_id, &value("A", byte), &by("p")).await.unwrap();
    }
    assert_eq!((kept(&store, &environment_id, "A").await, bytes(&store).await), (vec![(2, 2)], 0));
    store.delete_secret(&environment_id, "A", &by("p")).await.unwrap();
    assert!(kept(&store, &environment_id, "A").await.is_empty());
}

async fn lower_limits_erase_what_was_kept_before(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    for byte in 1..=4 {
        for key in ["A", "B"] {
            store.upsert_secret(&workspace_id, &environment_id, &value(key, byte), &by("p")).await.unwrap();
        }
    }
    store.trim_histories().await.unwrap();
    assert_eq!(bytes(&store).await, 6 * 300, "all of it is within the limits");
    store.clone().with_limits(limits(2, 1 << 20)).trim_histories().await.unwrap();
    assert_eq!(kept(&store, &environment_id, "A").await, [(7, 4), (5, 3), (3, 2)]);
    assert_eq!(bytes(&store).await, 4 * 300);
    store.clone().with_limits(limits(10, 300)).trim_histories().await.unwrap();
    assert_eq!(bytes(&store).await, 300);
    assert_eq!(kept(&store, &environment_id, "B").await, [(8, 4), (6, 3)], "the newest of all is left");
    store.clone().with_limits(limits(0, 300)).trim_histories().await.unwrap();
    assert_eq!((kept(&store, &environment_id, "B").await, bytes(&store).await), (vec![(8, 4)], 0));
}

async fn a_new_key_ends_the_history(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    let change = async |change: SecretsChange| {
        store.change_secrets(&workspace_id, &environment_id, &change, &by("p")).await.unwrap()
    };
    change(many(&["A", "B"], &[], None)).await;
    change(many(&["A"], &["B"], None)).await;
    let new_dek = Some((vec![9; 48], vec![8; 24]));
    let refused = change(SecretsChange { new_dek: new_dek.clone(), ..many(&[], &[], None) }).await;
    assert_eq!((refused, bytes(&store).await), (Attempt::NotAll, 2 * (16 + 256)));
    change(SecretsChange { new_dek, ..many(&["A"], &[], None) }).await;
    assert_eq!((kept(&store, &environment_id, "A").await, bytes(&store).await), (vec![(3, 0)], 0));
    assert!(kept(&store, &environment_id, "B").await.is_empty());
}

async fn versions_are_forgotten_by_key(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    for byte in 1..=3 {
        for key in ["A", "B"] {
            store.upsert_secret(&workspace_id, &environment_id, &value(key, byte), &by("p")).await.unwrap();
        }
    }
    let before = store.environment_version(&environment_id).await.unwrap();
    let rows = audit_count(&store).await;
    let forget = row(Action::SecretForget);
    assert_eq!(store.forget_history(&environment_id, "A", &forget).await.unwrap(), 2);
    assert_eq!(store.forget_history(&environment_id, "A", &forget).await.unwrap(), 0);
    assert_eq!(audit_count(&store).await, rows + 2);
    assert_eq!((kept(&store, &environment_id, "A").await, bytes(&store).await), (vec![(5, 3)], 2 * 300));
    assert_eq!(kept(&store, &environment_id, "B").await.len(), 3);
    assert_eq!(store.environment_version(&environment_id).await.unwrap(), before, "nothing changed for readers");
    assert!(matches!(store.forget_history("other", "A", &forget).await, Err(StoreError::Missing)));
}
