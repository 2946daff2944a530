//! `zopp-server audit export`: the whole record, also what belongs to no workspace, such as requests whose signature is wrong.

use std::io::{self, Write};

use super::AdminError;
use crate::{args::AuditCommand, store::Store};

/// Entries read at once.
const PAGE: u32 = 1000;

/// Does one command and prints to `out`.
pub async fn audit(store: &Store, command: &AuditCommand, out: &mut impl Write) -> Result<(), AdminError> {
    let AuditCommand::Export { from, to } = command;
    let period = (from.map(jiff::Timestamp::as_millisecond), to.map(jiff::Timestamp::as_millisecond));
    let mut after = None;
    loop {
        let page = store.audit_lines(period, after.as_ref(), PAGE).await?;
        let Some((time, id, _)) = page.last() else { break };
        after = Some((*time, id.clone()));
        for (_, _, line) in &page {
            match writeln!(out, "{line}") {
                // The reader has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                result => result.map_err(AdminError::Print)?,
            }
        }
    }
    out.flush().map_err(AdminError::Print)
}
