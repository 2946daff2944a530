//! The procedures of PostgreSQL: nobody else's is called.

use sqlx::{Connection as _, PgConnection};

use super::*;

/// Runs a statement as the superuser of the test's PostgreSQL.
async fn as_superuser(address: &str, statement: String) {
    let mut connection = PgConnection::connect(address).await.unwrap();
    // Safe: names of this test.
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
}

/// A server that is no superuser, on a database of its own: the address for the superuser, and that for the server's role.
async fn plain_role(role: &str) -> (String, Location) {
    let address = konverge_zopp_testing::postgres_database().await;
    let roles = format!("CREATE ROLE {role} LOGIN; CREATE ROLE {role}_other; GRANT CREATE ON SCHEMA public TO {role};");
    as_superuser(&address, roles).await;
    let location = Location::parse(&address.replace("zopp@", &format!("{role}@"))).unwrap();
    (address, location)
}

async fn set(
    store: &Store,
    (workspace_id, environment_id): &(String, String),
    key: &str,
) -> Result<Change, StoreError> {
    store.upsert_secret(workspace_id, environment_id, &secret(key), &row(Action::SecretUpdate)).await
}

#[tokio::test]
async fn a_procedure_of_another_role_is_not_called() {
    let (address, location) = plain_role("squatted").await;
    let store = Store::open(&location).await.unwrap();
    let place = environment(&store).await;
    set(&store, &place, "A").await.unwrap();
    let find = "SELECT proname::text FROM pg_proc WHERE proname LIKE 'zopp_change_%' ORDER BY oid";
    let (name,): (String,) = sql::query_as(find).fetch_one(&store.readers).await.unwrap();
    as_superuser(&address, format!("ALTER PROCEDURE {name} OWNER TO squatted_other")).await;

    // The server starts anew: it does not know the procedure.
    let store = Store::open(&location).await.unwrap();
    let refused = set(&store, &place, "B").await.unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, StoreError::Procedure { .. }), "{refused:?}");
    assert!(text.contains(&name) && text.contains("squatted_other") && text.contains("drop"), "{text}");
    assert!(store.secret(&place.1, "B").await.unwrap().is_none());
    as_superuser(&address, format!("DROP PROCEDURE {name}")).await;
    set(&store, &place, "B").await.unwrap();
}

#[tokio::test]
async fn a_role_that_may_not_make_procedures_is_told_so_and_a_dropped_one_is_made_again() {
    let (address, location) = plain_role("unable").await;
    let store = Store::open(&location).await.unwrap();
    let place = environment(&store).await;
    as_superuser(&address, "REVOKE CREATE ON SCHEMA public FROM unable".to_owned()).await;
    let text = set(&store, &place, "A").await.unwrap_err().to_string();
    assert!(text.contains("permission denied for schema public") && text.contains("schema of its own"), "{text}");
    as_superuser(&address, "GRANT CREATE ON SCHEMA public TO unable".to_owned()).await;
    set(&store, &place, "A").await.unwrap();
    let drop_all = "DO $$ DECLARE name TEXT; BEGIN FOR name IN SELECT proname FROM pg_proc WHERE proname LIKE 'zopp_change_%' \
                    LOOP EXECUTE format('DROP PROCEDURE %I', name); END LOOP; END $$";
    as_superuser(&address, drop_all.to_owned()).await;
    set(&store, &place, "B").await.unwrap();
}
