//! The steps from an empty file to today's schema, compiled in. A step once released never changes: its checksum is kept in
//! the database.

use sqlx::{
    SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

pub(super) fn migrator() -> Migrator {
    let step = |number, name: &'static str, sql: &'static str| {
        Migration::new(number, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(vec![
        step(1, "initial", include_str!("migrations/0001_initial.sql")),
        step(2, "signatures", include_str!("migrations/0002_signatures.sql")),
    ])
}
