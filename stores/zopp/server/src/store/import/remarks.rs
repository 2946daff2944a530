//! Data of the original that today's rules refuse: taken as it is, and reported.

use std::collections::HashMap;

use konverge_zopp_crypto::{SigningPublic, X25519Public};

use super::schema::OriginalTable;
use crate::{
    store::{
        sql::{self, Connection},
        transfer::Cell,
    },
    validate,
};

/// Remarks of one kind; the others are counted.
const SHOWN: usize = 20;

/// The remarks so far, with what they compare.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    texts: Vec<String>,
    /// How many there are of a kind, by the words that follow the name of the thing.
    counts: HashMap<&'static str, usize>,
    /// The users of addresses, in their one spelling.
    emails: HashMap<String, String>,
    /// The principals of public keys.
    keys: HashMap<Vec<u8>, String>,
}

impl Remarks {
    /// Adds one.
    pub(super) fn add(&mut self, text: String) {
        self.texts.push(text);
    }

    pub(super) fn into_texts(mut self) -> Vec<String> {
        let mut more: Vec<(&str, usize)> = self
            .counts
            .into_iter()
            .filter(|(_, count)| *count > SHOWN)
            .map(|(kind, count)| (kind, count - SHOWN))
            .collect();
        more.sort_unstable();
        self.texts
            .extend(more.into_iter().map(|(kind, count)| format!("and {count} more of which the same holds: {kind}")));
        self.texts
    }

    fn add_kind(&mut self, thing: &str, kind: &'static str) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= SHOWN {
            self.texts.push(format!("{thing} {kind}"));
        }
    }

    /// Looks at a row on its way. Brings an e-mail address into the one spelling in which addresses are compared.
    pub(super) fn look(&mut self, table: &OriginalTable, cells: &mut [Cell]) {
        let id = text(table, cells, "id").unwrap_or_default().to_owned();
        match table.name {
            "users" => self.user(table, cells, &id),
            "principals" => self.principal(table, cells, &id),
            "workspaces" | "projects" | "environments" | "groups" => {
                let name = text(table, cells, "name").unwrap_or_default();
                let thing = format!("{} {name:?} ({id})", table.name.trim_end_matches('s'));
                if validate::name("name", name).is_err() {
                    self.add_kind(&thing, AMBIGUOUS);
                }
                if table.name == "environments" && !has_lengths(table, cells, ["dek_wrapped", "dek_nonce"]) {
                    self.add_kind(&thing, NO_KEY);
                }
            }
            "workspace_principals" if !has_lengths(table, cells, ["kek_wrapped", "kek_nonce"]) => {
                let place = text(table, cells, "workspace_id").unwrap_or_default();
                let holder = text(table, cells, "principal_id").unwrap_or_default();
                let thing = format!("the key of workspace {place} for principal {holder}");
                self.add_kind(&thing, NO_KEY);
            }
            "secrets" => {
                let key = text(table, cells, "key_name").unwrap_or_default();
                let thing = format!("key {key:?} in environment {}", text(table, cells, "env_id").unwrap_or_default());
                if validate::stored_key(key).is_err() {
                    self.add_kind(&thing, REFUSED_KEY);
                }
                let opens = bytes(table, cells, "nonce").is_some_and(|nonce| validate::nonce("nonce", nonce).is_ok())
                    && bytes(table, cells, "ciphertext").is_some_and(|bytes| validate::ciphertext(bytes).is_ok());
                if !opens {
                    self.add_kind(&thing, NO_VALUE);
                }
            }
            "principal_exports" if text(table, cells, "export_code").is_none() => {
                // Of the first form of that table, which no released client uses.
                if let Some(code) = table.position("export_code") {
                    cells[code] = Cell::Text(Some(format!("none:{id}")));
                }
                if let Some(salt) = table.position("verification_salt") {
                    cells[salt] = Cell::Bytes(Some(Vec::new()));
                }
                self.add_kind(&format!("export {id}"), NO_CODE);
            }
            _ => {}
        }
    }

    fn user(&mut self, table: &OriginalTable, cells: &mut [Cell], id: &str) {
        let Some(written) = text(table, cells, "email").map(ToOwned::to_owned) else { return };
        let Ok(email) = validate::email(&written) else {
            return self.add_kind(&format!("user {written:?} ({id})"), NO_ADDRESS);
        };
        if let Some(first) = self.emails.get(&email) {
            let thing =
                format!("user {written:?} ({id}) has the address of user {first}, which differs in case only, and");
            return self.add_kind(&thing, SAME_ADDRESS);
        }
        self.emails.insert(email.clone(), id.to_owned());
        if let Some(position) = table.position("email") {
            cells[position] = Cell::Text(Some(email));
        }
    }

    fn principal(&mut self, table: &OriginalTable, cells: &[Cell], id: &str) {
        let name = text(table, cells, "name").unwrap_or_default();
        let thing = format!("principal {name:?} ({id})");
        if validate::name("name", name).is_err() {
            self.add_kind(&thing, ODD_NAME);
        }
        let signing = bytes(table, cells, "public_key").unwrap_or_default();
        let exchange = bytes(table, cells, "x25519_public_key").unwrap_or_default();
        let is_strong = SigningPublic::from_slice(signing).and_then(|key| key.check_strength()).is_ok()
            && (exchange.is_empty() || X25519Public::from_slice(exchange).and_then(|key| key.check_strength()).is_ok());
        if !is_strong {
            self.add_kind(&thing, WEAK_KEY);
        }
        for key in [signing, exchange] {
            if key.is_empty() {
                continue;
            }
            match self.keys.get(key) {
                Some(other) => {
                    let thing = format!("{thing} and principal {other}");
                    return self.add_kind(&thing, SHARED_KEY);
                }
                None => {
                    self.keys.insert(key.to_vec(), id.to_owned());
                }
            }
        }
    }

    /// Members of the first generation had all rights; of today's, none without a role.
    pub(super) async fn add_members_without_roles(&mut self, target: &mut Connection) -> Result<(), sqlx::Error> {
        let rows: Vec<(String, String)> = sql::query_as(
            "SELECT w.name, u.email FROM workspace_members m JOIN workspaces w ON w.id = m.workspace_id \
             JOIN users u ON u.id = m.user_id WHERE w.owner_user_id <> u.id \
             AND NOT EXISTS (SELECT 1 FROM user_workspace_permissions p WHERE p.workspace_id = w.id AND p.user_id = u.id) \
             AND NOT EXISTS (SELECT 1 FROM user_project_permissions p JOIN projects r ON r.id = p.project_id \
                 WHERE r.workspace_id = w.id AND p.user_id = u.id) \
             AND NOT EXISTS (SELECT 1 FROM user_environment_permissions p JOIN environments e ON e.id = p.environment_id \
                 WHERE e.workspace_id = w.id AND p.user_id = u.id) \
             AND NOT EXISTS (SELECT 1 FROM group_members g JOIN groups o ON o.id = g.group_id \
                 WHERE o.workspace_id = w.id AND g.user_id = u.id) \
             ORDER BY w.name, u.email",
        )
        .fetch_all(target)
        .await?;
        for (workspace, email) in rows {
            self.add_kind(&format!("user {email} in workspace {workspace:?}"), NO_ROLE);
        }
        Ok(())
    }
}

const AMBIGUOUS: &str =
    "has a name that today's rules refuse; clients refuse it too where its encryption context is that of another";
const ODD_NAME: &str = "has a name that today's rules refuse; it keeps it until it is renamed";
const NO_KEY: &str = "has a wrapped key or a nonce of a wrong length; nobody can open it";
const REFUSED_KEY: &str = "is a key that today's rules refuse to set; it can be read and deleted";
const NO_VALUE: &str = "has a nonce or a ciphertext of a wrong length; nobody can open it";
const NO_CODE: &str = "has no code; nobody can fetch it";
const NO_ADDRESS: &str = "has no e-mail address; no call can name it";
const SAME_ADDRESS: &str = "keeps its spelling: its principals work, and no call can name it";
const WEAK_KEY: &str = "has a weak public key; replace it by a new principal";
const SHARED_KEY: &str = "share a public key; replace one of them by a new principal";
const NO_ROLE: &str = "has no role and can do nothing; grant one: zopp permission user-set";

fn text<'c>(table: &OriginalTable, cells: &'c [Cell], column: &str) -> Option<&'c str> {
    match cells.get(table.position(column)?)? {
        Cell::Text(text) => text.as_deref(),
        _ => None,
    }
}

fn bytes<'c>(table: &OriginalTable, cells: &'c [Cell], column: &str) -> Option<&'c [u8]> {
    match cells.get(table.position(column)?)? {
        Cell::Bytes(bytes) => bytes.as_deref(),
        _ => None,
    }
}

/// Do a wrapped key and its nonce have their lengths?
fn has_lengths(table: &OriginalTable, cells: &[Cell], [wrapped, nonce]: [&str; 2]) -> bool {
    bytes(table, cells, wrapped).is_some_and(|bytes| validate::wrapped_key(wrapped, bytes).is_ok())
        && bytes(table, cells, nonce).is_some_and(|bytes| validate::nonce(nonce, bytes).is_ok())
}
