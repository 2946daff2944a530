//! `zopp-server import`: from the original's database to ours.

use std::io::Write;

use super::{AdminError, OPERATOR};
use crate::{
    audit::row::blank_row,
    store::{Action, AuditRow, Imported, Location, Store},
};

/// Reads the original's database at `from` into a new one at `to`.
///
/// # Errors
///
/// If there is a database at `to` already, the one at `from` is not a database of the original or has an invalid row, or a
/// database fails.
pub async fn import(from: &Location, to: &Location, out: &mut impl Write) -> Result<(), AdminError> {
    let row = AuditRow { principal_id: OPERATOR.into(), ..blank_row(Action::DatabaseImport, "database") };
    let imported = Store::import(from, to, &row).await.map_err(|error| AdminError::Import(Box::new(error)))?;
    print(&imported, to, out).map_err(AdminError::Print)
}

fn print(Imported { rows, remarks }: &Imported, to: &Location, out: &mut impl Write) -> std::io::Result<()> {
    for (table, count) in rows.iter().filter(|(_, count)| *count > 0) {
        writeln!(out, "{count:>8} {table}")?;
    }
    writeln!(out, "Imported into {to}")?;
    if !remarks.is_empty() {
        writeln!(out, "\nThese were taken as they are, and need a look:")?;
    }
    // Names in a foreign database may hold anything.
    remarks.iter().try_for_each(|remark| writeln!(out, "- {}", remark.replace(char::is_control, "?")))
}
