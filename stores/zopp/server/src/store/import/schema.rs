//! The tables of both generations of the original, and what becomes of their columns.

use crate::store::transfer;

/// A table of the original, in ours of the same name.
#[derive(Debug)]
pub(super) struct OriginalTable {
    pub(super) name: &'static str,
    /// The first one is the id, or a part of it.
    pub(super) columns: &'static [Column],
    /// The columns by which its rows are ordered.
    pub(super) order: &'static [&'static str],
}

/// A column of the original's, and its name in ours.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) source: &'static str,
    pub(super) target: &'static str,
    pub(super) kind: OriginalType,
}

/// How a column is kept there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OriginalType {
    /// Text, a UUID, or JSON.
    Text,
    /// The name of a role.
    Role,
    Bytes,
    Integer,
    Flag,
    /// A time, which becomes Unix seconds.
    Seconds,
    /// A time, which becomes Unix milliseconds.
    Milliseconds,
    /// The token of an invite, which becomes its hash.
    Token,
    /// The token hash of an export, which becomes the hash of that.
    Proof,
}

impl OriginalType {
    /// The type as which it is read.
    pub(super) const fn read_as(self) -> transfer::ColumnType {
        match self {
            Self::Text | Self::Role | Self::Seconds | Self::Milliseconds | Self::Token | Self::Proof => {
                transfer::ColumnType::Text
            }
            Self::Bytes => transfer::ColumnType::Bytes,
            Self::Integer | Self::Flag => transfer::ColumnType::Integer,
        }
    }
}

impl OriginalTable {
    /// The place of a column of ours.
    pub(super) fn position(&self, target: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.target == target)
    }
}

const fn column(name: &'static str, kind: OriginalType) -> Column {
    Column { source: name, target: name, kind }
}

const fn renamed(source: &'static str, target: &'static str, kind: OriginalType) -> Column {
    Column { source, target, kind }
}

/// A table of grants: the place, the holder, the role.
macro_rules! grants {
    ($name:literal, $place:literal, $holder:literal) => {
        OriginalTable {
            name: $name,
            columns: &[
                column($place, Text),
                column($holder, Text),
                column("role", Role),
                column("created_at", Seconds),
                column("updated_at", Seconds),
            ],
            order: &[$place, $holder],
        }
    };
}

use OriginalType::{Bytes, Flag, Integer, Milliseconds, Proof, Role, Seconds, Text, Token};

/// All tables, each after those that it refers to.
pub(super) const TABLES: &[OriginalTable] = &[
    OriginalTable {
        name: "users",
        columns: &[
            column("id", Text),
            column("email", Text),
            column("created_at", Seconds),
            column("updated_at", Seconds),
        ],
        order: &["created_at", "id"],
    },
    OriginalTable {
        name: "principals",
        columns: &[
            column("id", Text),
            column("user_id", Text),
            column("name", Text),
            column("public_key", Bytes),
            column("x25519_public_key", Bytes),
            column("created_at", Seconds),
            column("updated_at", Seconds),
        ],
        order: &["created_at", "id"],
    },
    OriginalTable {
        name: "workspaces",
        columns: &[
            column("id", Text),
            column("name", Text),
            column("owner_user_id", Text),
            column("kdf_salt", Bytes),
            column("kdf_m_cost_kib", Integer),
            column("kdf_t_cost", Integer),
            column("kdf_p_cost", Integer),
            column("created_at", Seconds),
            column("updated_at", Seconds),
        ],
        order: &["created_at", "id"],
    },
    OriginalTable {
        name: "workspace_members",
        columns: &[column("workspace_id", Text), column("user_id", Text), column("created_at", Seconds)],
        order: &["workspace_id", "user_id"],
    },
    OriginalTable {
        name: "workspace_principals",
        columns: &[
            column("workspace_id", Text),
            column("principal_id", Text),
            column("ephemeral_pub", Bytes),
            column("kek_wrapped", Bytes),
            column("kek_nonce", Bytes),
            column("created_at", Seconds),
        ],
        order: &["workspace_id", "principal_id"],
    },
    OriginalTable {
        name: "invites",
        columns: &[
            column("id", Text),
            renamed("token", "token_hash", Token),
            column("kek_encrypted", Bytes),
            column("kek_nonce", Bytes),
            column("expires_at", Seconds),
            column("created_by_user_id", Text),
            column("revoked", Flag),
            column("created_at", Seconds),
            column("updated_at", Seconds),
        ],
        order: &["created_at", "id"],
    },
    OriginalTable {
        name: "invite_workspaces",
        // The original keeps no order, so that of their creation has to do.
        columns: &[column("invite_id", Text), column("workspace_id", Text), column("position", Integer)],
        order: &["invite_id", "created_at", "workspace_id"],
    },
    OriginalTable {
        name: "projects",
        columns: &[
            column("id", Text),
            column("workspace_id", Text),
            column("name", Text),
            column("created_at", Seconds),
            column("updated_at", Seconds),
        ],
        order: &["created_at", "id"],
    },
    OriginalTable {
        name: "environments",
        columns: &[
            column("id", Text),
            column("workspace_id", Text),
            column("project_id", Text),
            column("name", Text),
            column("dek_wrapped", Bytes),
            column("dek_nonce", Bytes),
            column("version", Integer),
            column("created_at", Seconds),
            column("updated_at", Seconds),
        ],
        order: &["created_at", "id"],
    },
    OriginalTable {
        name: "secrets",
        columns: &[
            column("id", Text),
            column("workspace_id", Text),
            column("env_id", Text),
            column("key_name", Text),
            column("nonce", Bytes),
            column("ciphertext", Bytes),
            column("created_at", Seconds),
            column("updated_at", Seconds),
        ],
        order: &["created_at", "id"],
    },
    OriginalTable {
        name: "groups",
        columns: &[
            column("id", Text),
            column("workspace_id", Text),
            column("name", Text),
            column("description", Text),
            column("created_at", Seconds),
            column("updated_at", Seconds),
        ],
        order: &["created_at", "id"],
    },
    OriginalTable {
        name: "group_members",
        columns: &[column("group_id", Text), column("user_id", Text), column("created_at", Seconds)],
        order: &["group_id", "user_id"],
    },
    grants!("workspace_permissions", "workspace_id", "principal_id"),
    grants!("project_permissions", "project_id", "principal_id"),
    grants!("environment_permissions", "environment_id", "principal_id"),
    grants!("user_workspace_permissions", "workspace_id", "user_id"),
    grants!("user_project_permissions", "project_id", "user_id"),
    grants!("user_environment_permissions", "environment_id", "user_id"),
    grants!("group_workspace_permissions", "workspace_id", "group_id"),
    grants!("group_project_permissions", "project_id", "group_id"),
    grants!("group_environment_permissions", "environment_id", "group_id"),
    OriginalTable {
        name: "audit_logs",
        columns: &[
            column("id", Text),
            column("timestamp", Milliseconds),
            column("principal_id", Text),
            column("user_id", Text),
            column("action", Text),
            column("resource_type", Text),
            column("resource_id", Text),
            column("workspace_id", Text),
            column("project_id", Text),
            column("environment_id", Text),
            column("result", Text),
            column("reason", Text),
            column("details", Text),
            column("client_ip", Text),
        ],
        order: &["timestamp", "id"],
    },
    OriginalTable {
        name: "principal_exports",
        columns: &[
            column("id", Text),
            column("export_code", Text),
            column("token_hash", Proof),
            column("verification_salt", Bytes),
            column("user_id", Text),
            column("principal_id", Text),
            column("encrypted_data", Bytes),
            column("salt", Bytes),
            column("nonce", Bytes),
            column("expires_at", Seconds),
            column("consumed", Flag),
            column("failed_attempts", Integer),
            column("created_at", Seconds),
            renamed("created_at", "updated_at", Seconds),
        ],
        order: &["created_at", "id"],
    },
];

/// Reads a time as SQLite, PostgreSQL and the original's library write it: with `T` or a space, with or without an offset, which is then UTC.
pub(super) fn time(text: &str) -> Option<jiff::Timestamp> {
    let text = text.trim();
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    let civil: jiff::civil::DateTime = text.replacen(' ', "T", 1).parse().ok()?;
    civil.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_understood_in_each_spelling() {
        for (text, expected) in [
            ("2026-01-05 12:34:56", Some(1_767_616_496_000)),
            ("2026-01-05 12:34:56.789", Some(1_767_616_496_789)),
            ("2026-01-05T12:34:56.789123+00:00", Some(1_767_616_496_789)),
            ("2026-01-05T12:34:56Z", Some(1_767_616_496_000)),
            ("2026-01-05T13:34:56+01:00", Some(1_767_616_496_000)),
            ("2026-01-05 12:34:56.789123456 UTC", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(time(text).map(jiff::Timestamp::as_millisecond), expected, "{text}");
        }
    }

    #[test]
    fn each_table_is_read_after_those_it_refers_to_and_has_an_order() {
        for table in TABLES {
            assert!(!table.order.is_empty() && table.columns.len() > 2, "{}", table.name);
        }
        let place = |name| TABLES.iter().position(|table| table.name == name).unwrap();
        for (first, then) in [("users", "principals"), ("invites", "invite_workspaces"), ("groups", "group_members")] {
            assert!(place(first) < place(then), "{then}");
        }
    }
}
