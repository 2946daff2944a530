//! The steps from an empty database to today's schema, compiled in. A step once released never changes: its checksum is kept in
//! the database. Both databases take the same steps; PostgreSQL gets them with its own types.

use sqlx::{
    AssertSqlSafe, SqlSafeStr, SqlStr,
    migrate::{Migration, MigrationType, Migrator},
};

use super::sql::postgres_schema;

const STEPS: [(i64, &str, &str); 13] = [
    (1, "initial", include_str!("migrations/0001_initial.sql")),
    (2, "signatures", include_str!("migrations/0002_signatures.sql")),
    (3, "identity", include_str!("migrations/0003_identity.sql")),
    (4, "limits", include_str!("migrations/0004_limits.sql")),
    (5, "used_signatures", include_str!("migrations/0005_used_signatures.sql")),
    (6, "readiness", include_str!("migrations/0006_readiness.sql")),
    (7, "settings", include_str!("migrations/0007_settings.sql")),
    (8, "manifests", include_str!("migrations/0008_manifests.sql")),
    (9, "key_generations", include_str!("migrations/0009_key_generations.sql")),
    (10, "secret_history", include_str!("migrations/0010_secret_history.sql")),
    (11, "audit_indexes", include_str!("migrations/0011_audit_indexes.sql")),
    (12, "invite_reads", include_str!("migrations/0012_invite_reads.sql")),
    (13, "key_administrators", include_str!("migrations/0013_key_administrators.sql")),
];

pub(super) fn sqlite() -> Migrator {
    Migrator::with_migrations(steps(SqlSafeStr::into_sql_str))
}

pub(super) fn postgres() -> Migrator {
    Migrator::with_migrations(postgres_steps())
}

/// All steps in the words of PostgreSQL.
pub(super) fn postgres_steps() -> Vec<Migration> {
    // Safe: made of constants.
    steps(|sql| AssertSqlSafe(postgres_schema(sql)).into_sql_str())
}

/// All steps, in their order.
pub(super) fn steps(translate: impl Fn(&'static str) -> SqlStr) -> Vec<Migration> {
    let steps = STEPS
        .into_iter()
        .map(|(number, name, sql)| Migration::new(number, name.into(), MigrationType::Simple, translate(sql), false));
    steps.collect()
}
