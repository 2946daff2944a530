//! The steps from an empty file to today's schema, compiled in. A step once released never changes: its checksum is kept in
//! the database.

use sqlx::{
    SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

pub(super) fn migrator() -> Migrator {
    Migrator::with_migrations(steps())
}

/// All steps, in their order.
pub(super) fn steps() -> Vec<Migration> {
    let step = |number, name: &'static str, sql: &'static str| {
        Migration::new(number, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    vec![
        step(1, "initial", include_str!("migrations/0001_initial.sql")),
        step(2, "signatures", include_str!("migrations/0002_signatures.sql")),
        step(3, "identity", include_str!("migrations/0003_identity.sql")),
        step(4, "limits", include_str!("migrations/0004_limits.sql")),
    ]
}
