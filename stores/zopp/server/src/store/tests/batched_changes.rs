//! On PostgreSQL, changes of one caller that wait for each other are made together.

use std::time::{Duration, Instant};

use tokio::{task::JoinSet, time::timeout};

use super::*;

const WAITING: usize = 6;
const MISSING: &str = "missing";

/// Waits until it is so.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = timeout(Duration::from_secs(30), async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    });
    waited.await.expect(what);
}

/// Sets keys, of which the first waits for a row that this test holds, and the others for the first. Then deletes a key in the same way, if one is given.
/// Returns the refusals, and in how many transactions the other changes were made.
async fn set_waiting(store: &Store, delete: Option<&'static str>) -> (Vec<StoreError>, i64) {
    let (workspace_id, environment_id) = environment(store).await;
    let mut holder = store.begin_apart().await.unwrap();
    let hold = sql::query("UPDATE environments SET updated_at = updated_at WHERE id = ?").bind(&environment_id);
    hold.execute(&mut *holder).await.unwrap();
    let mut changes = JoinSet::new();
    for number in 0..=WAITING {
        let (store, workspace_id, environment_id) = (store.clone(), workspace_id.clone(), environment_id.clone());
        let audit = AuditRow { signature: Some([number.try_into().unwrap(); 32]), ..row(Action::SecretUpdate) };
        changes.spawn(async move {
            let key = secret(&format!("K{number}"));
            store.upsert_secret(&workspace_id, &environment_id, &key, &audit).await.map(|change| change.version)
        });
    }
    if let Some(key) = delete {
        let (store, environment_id) = (store.clone(), environment_id.clone());
        changes.spawn(async move { store.delete_secret(&environment_id, key, &row(Action::SecretDelete)).await });
    }
    let waiting = WAITING + usize::from(delete.is_some());
    eventually("all others wait", async || store.batched.waiting() == waiting).await;
    holder.commit().await.unwrap();
    let (mut versions, mut refused) = (Vec::new(), Vec::new());
    for change in changes.join_all().await {
        match change {
            Ok(version) => versions.push(version),
            Err(error) => refused.push(error),
        }
    }
    versions.sort_unstable();
    let last = store.environment_version(&environment_id).await.unwrap().unwrap();
    assert!(versions.iter().copied().eq(1..=last), "each has a version of its own: {versions:?}");
    let made = "SELECT count(*), count(DISTINCT xmin::text) FROM audit_logs WHERE action LIKE 'secret.%'";
    let (rows, transactions): (i64, i64) = sql::query_as(made).fetch_one(&store.readers).await.unwrap();
    assert_eq!(rows, last, "each is recorded");
    // Deleting has none.
    let unsigned = usize::from(delete.is_some_and(|key| key != MISSING));
    assert_eq!(store.used_signatures(60).await.unwrap().len(), versions.len() - unsigned);
    assert_eq!(store.batched.waiting(), 0);
    (refused, transactions)
}

#[tokio::test]
async fn changes_that_wait_share_a_transaction() {
    let store = Database::postgres().await.open().await;
    let (refused, transactions) = set_waiting(&store, None).await;
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(transactions, 2, "that of the first, and that of all that waited for it");
    let store = Database::postgres().await.open().await;
    let (refused, transactions) = set_waiting(&store, Some("K0")).await;
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(transactions, 2, "deleting is one of them");
}

#[tokio::test]
async fn a_change_that_is_refused_takes_no_other_one_with_it() {
    let store = Database::postgres().await.open().await;
    let (refused, transactions) = set_waiting(&store, Some(MISSING)).await;
    assert!(matches!(refused[..], [StoreError::Missing]), "{refused:?}");
    assert_eq!(transactions, i64::try_from(WAITING).unwrap() + 1, "each is made alone");
    // Seven are set.
    let limits = Limits { environment_keys: 5, ..Limits::default() };
    let store = Database::postgres().await.open().await.with_limits(limits);
    let (refused, _) = set_waiting(&store, None).await;
    assert!(refused.iter().all(|error| matches!(error, StoreError::Limit(_))) && refused.len() == 2, "{refused:?}");
}

#[tokio::test]
async fn a_change_that_the_database_refuses_takes_no_other_one_with_it() {
    let store = Database::postgres().await.open().await;
    let Pool::Postgres(pool) = &store.writer else { unreachable!("as made") };
    let fails = "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a rule of somebody else'; END $$; \
                 CREATE TRIGGER fails BEFORE INSERT ON secrets FOR EACH ROW WHEN (NEW.key_name = 'K3') EXECUTE FUNCTION fails()";
    sqlx::raw_sql(fails).execute(pool).await.unwrap();
    let (refused, transactions) = set_waiting(&store, None).await;
    assert!(matches!(refused[..], [StoreError::Database(_)]), "{refused:?}");
    assert_eq!(transactions, i64::try_from(WAITING).unwrap(), "each other one is made alone");
}

#[tokio::test]
async fn a_change_waits_ten_seconds_for_those_before_it_and_then_its_outcome_is_unknown() {
    let store = Database::postgres().await.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    let Pool::Postgres(pool) = &store.writer else { unreachable!("as made") };
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(15); RETURN NEW; END $$; \
                CREATE TRIGGER slow BEFORE INSERT ON secrets FOR EACH ROW WHEN (NEW.key_name = 'SLOW') EXECUTE FUNCTION slow()";
    sqlx::raw_sql(slow).execute(pool).await.unwrap();
    let set = async |key: &str| {
        store.upsert_secret(&workspace_id, &environment_id, &secret(key), &row(Action::SecretUpdate)).await
    };
    let (before, waited) = tokio::join!(set("SLOW"), async {
        let sleeps =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
        eventually("the first is under way", async || {
            let (asleep,): (i64,) = sql::query_as(sleeps).fetch_one(&store.readers).await.unwrap();
            asleep == 1
        })
        .await;
        let began = Instant::now();
        (set("WAITS").await, began.elapsed())
    });
    let (given_up, elapsed) = waited;
    let Err(StoreError::Outage(cause)) = given_up else { panic!("{given_up:?}") };
    assert!(cause.to_string().contains("the calls before this one take too long"), "{cause}");
    assert!(elapsed >= Duration::from_secs(10), "{elapsed:?}");
    assert_eq!(before.unwrap().version, 1, "the one before it is made");
    assert_eq!(set("NEXT").await.unwrap().version, 2, "nobody makes what nobody waits for");
    assert!(store.secret(&environment_id, "WAITS").await.unwrap().is_none());
}
