//! The steps from an empty file to today's schema, compiled in. A step once released never changes: its checksum is kept in
//! the database.

use sqlx::{
    SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

pub(super) fn migrator() -> Migrator {
    Migrator::with_migrations(vec![Migration::new(
        1,
        "initial".into(),
        MigrationType::Simple,
        include_str!("migrations/0001_initial.sql").into_sql_str(),
        false,
    )])
}
