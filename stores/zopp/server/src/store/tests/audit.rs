//! Rows of the audit log that belong to no change.

use super::*;

on_both! {
    rows_are_written_whatever_their_number,
}

/// Some of each length that is inserted at once.
const ROWS: u8 = 2 * 64 + 16 + 3 * 4 + 3;

async fn rows_are_written_whatever_their_number(database: Database) {
    let store = database.open().await;
    let write = |number: u8| {
        // As a refused change that had been signed.
        let signature = number.is_multiple_of(2).then_some([number; 32]);
        let row = AuditRow { resource_id: format!("K{number}"), signature, ..row(Action::SecretRead) };
        AuditWrite::Row { id: format!("{number:03}"), at: number.into(), row: Box::new(row) }
    };
    let mut writes: Vec<AuditWrite> = (0..ROWS).map(write).collect();
    writes.push(AuditWrite::Count { id: "001".into(), repeated: 3, last: 9 });
    store.record(&writes).await.unwrap();

    let select = "SELECT id, timestamp, resource_id FROM audit_logs ORDER BY id";
    let rows: Vec<(String, i64, String)> = sql::query_as(select).fetch_all(&store.readers).await.unwrap();
    let expected = (0..ROWS).map(|number| (format!("{number:03}"), i64::from(number), format!("K{number}")));
    assert!(rows.iter().cloned().eq(expected), "{rows:?}");
    let counted = "SELECT id, details FROM audit_logs WHERE details IS NOT NULL";
    let counted: Vec<(String, String)> = sql::query_as(counted).fetch_all(&store.readers).await.unwrap();
    let [(id, details)] = counted.as_slice() else { panic!("{counted:?}") };
    assert!(id == "001" && details.contains("\"repeated\":3"), "{details}");
    assert_eq!(store.used_signatures(60).await.unwrap().len(), usize::from(ROWS.div_ceil(2)));
}
