//! What becomes of the pin of a workspace's key when a restarted program recalls its records, which come in any order.

use super::*;

fn fingerprint(byte: u8) -> Fingerprint {
    Fingerprint::of_principal(&[byte], &[])
}

/// A record of the key `key`, to which `generation - 1` replacements led from the key `root`.
fn memory(root: u8, key: u8, generation: u32) -> WorkspaceMemory {
    WorkspaceMemory { root: fingerprint(root), fingerprint: fingerprint(key), generation, is_first_use: false }
}

/// Returns what is known of the key after these records were recalled. The configuration file pins the key `pinned`, if any.
fn recalled(pinned: Option<u8>, records: &[WorkspaceMemory]) -> WorkspaceMemory {
    let mut file = ServerRecord::default();
    file.workspaces.extend(pinned.map(|key| ("acme".to_owned(), fingerprint(key))));
    let trust = Trust::new(file);
    for record in records {
        trust.recall_workspace("acme", *record);
    }
    trust.workspace_memory("acme").unwrap()
}

#[test]
fn the_newest_generation_is_recalled_in_whichever_order_the_records_come() {
    for (pinned, records, expected) in [
        // Nothing but the records pins the key.
        (None, vec![memory(1, 1, 1)], memory(1, 1, 1)),
        (None, vec![memory(1, 1, 1), memory(1, 2, 2)], memory(1, 2, 2)),
        (None, vec![memory(1, 1, 1), memory(1, 2, 2), memory(1, 3, 3)], memory(1, 3, 3)),
        // The file has the key with which the records began, as at the former start.
        (Some(1), vec![memory(1, 1, 1), memory(1, 2, 2)], memory(1, 2, 2)),
        (Some(1), vec![memory(1, 3, 3)], memory(1, 3, 3)),
        // A person has put another key into the file since the records were written.
        (Some(9), vec![memory(1, 1, 1), memory(1, 2, 2)], memory(9, 9, 0)),
        // A person has put the key of the newest record into the file, and the next start begins with it.
        (Some(2), vec![memory(1, 1, 1), memory(1, 2, 2)], memory(2, 2, 2)),
        (Some(2), vec![memory(1, 1, 1), memory(1, 2, 2), memory(2, 3, 3)], memory(2, 3, 3)),
    ] {
        let mut records = records;
        for _ in 0..records.len() {
            records.rotate_left(1);
            assert_eq!(recalled(pinned, &records), expected, "{pinned:?}: {records:?}");
        }
        records.reverse();
        assert_eq!(recalled(pinned, &records), expected, "{pinned:?}: {records:?}");
    }
}

#[test]
fn another_key_of_the_same_generation_replaces_no_recalled_key() {
    for known in [memory(1, 2, 2), memory(1, 2, 0)] {
        let other = WorkspaceMemory { fingerprint: fingerprint(3), ..known };
        assert_eq!(recalled(None, &[known, other]), known);
    }
}

#[test]
fn a_recalled_former_key_is_refused_afterwards() {
    let trust = Trust::default();
    trust.recall_workspace("acme", memory(1, 1, 1));
    trust.recall_workspace("acme", memory(1, 2, 2));
    assert!(trust.check_workspace("acme", fingerprint(1)).is_err());
    assert!(trust.check_workspace("acme", fingerprint(2)).is_ok());
}

#[test]
fn a_first_use_is_recalled_unless_the_key_is_pinned() {
    let believed = WorkspaceMemory { is_first_use: true, ..memory(1, 1, 1) };
    assert!(recalled(None, &[believed]).is_first_use);
    assert!(!recalled(Some(1), &[believed]).is_first_use);
}
