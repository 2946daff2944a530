//! `zopp-server backup` and `restore`.

use std::{io::Write, path::Path};

use super::{AdminError, OPERATOR, time};
use crate::{
    audit::row::blank_row,
    store::{Action, AuditRow, BackupError, Location, Restored, Store},
};

/// Writes a backup of an open database into a new file.
///
/// # Errors
///
/// If the file exists, cannot be written, or the database fails.
pub async fn backup(store: &Store, file: &Path, out: &mut impl Write) -> Result<(), AdminError> {
    let rows = store.back_up(file).await?;
    writeln!(out, "{rows} rows written to {}", file.display()).map_err(AdminError::Print)
}

/// Reads the backup in `file` into a new database at `location`.
///
/// # Errors
///
/// If there is a database already, the file is no backup or is damaged, or the database fails.
pub async fn restore(file: &Path, location: &Location, out: &mut impl Write) -> Result<(), AdminError> {
    let restored = Store::restore(file, location, &row()).await?;
    writeln!(out, "{} rows restored to {location}", restored.rows).map_err(AdminError::Print)?;
    explain(restored, out)
}

/// Moves the versions in a database that was restored by other means, or that lost commits in a fail-over.
///
/// # Errors
///
/// If the database cannot be opened or fails.
pub async fn restored_in_place(location: Location, out: &mut impl Write) -> Result<(), AdminError> {
    let store = Store::open(&location.existing()).await?;
    let result = store.move_versions(&row()).await;
    store.close().await;
    explain(result?, out)
}

fn row() -> AuditRow {
    AuditRow { principal_id: OPERATOR.into(), ..blank_row(Action::DatabaseRestore, "database") }
}

/// Explains the consequences of a restore for clients and for people.
fn explain(restored: Restored, out: &mut impl Write) -> Result<(), AdminError> {
    let environments = restored.environments;
    let since = restored.changed_at.map_or_else(|| "the backup".to_owned(), time);
    writeln!(
        out,
        "Environments with a new version, which clients read again: {environments}\n\
         All changes after {since} are lost. Check what came back with it: disabled principals, removed members, revoked invites and roles\n\
         Clients refuse each protected environment until a member accepts it: zopp environment protect NAME --accept-changes"
    )
    .map_err(AdminError::Print)
}

impl From<BackupError> for AdminError {
    fn from(error: BackupError) -> Self {
        Self::Backup(Box::new(error))
    }
}
