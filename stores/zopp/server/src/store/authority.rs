//! Rights that were decided upon before a change, checked again in the transaction that writes it.
//!
//! A handler looks a place up and asks for a role with one connection, and writes with another. In between, another call may take
//! the right away and be acknowledged. So [`Store::write`](super::Store::write) begins each transaction with a check of the
//! caller's rights, which its audit row carries. So every change obeys each revocation that was committed before it.
//!
//! A change that is one round trip cannot wait for a decision here. It depends on the facts by which the decision was made: if they are not what
//! they were, nothing is written, and the store decides again.

use super::{
    Scope, StoreError, grants, settings,
    sql::{self, Connection, Query, Row},
};
use crate::rbac::{Grants, Role};

/// A caller, and the rights by which its change was allowed. The default stands for a caller without an identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authority {
    /// Principal, and its user unless it is a service.
    caller: Option<(String, Option<String>)>,
    /// In the order in which they were found out. Each stands here once.
    needs: Vec<Need>,
}

/// One right of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// The workspace of this id is there for the caller's user, on this device.
    Member(String),
    /// The caller holds the key of the workspace of this id.
    KeyHolder(String),
    /// The caller has at least this role at this place, by these grants when it was looked at last.
    Role(Scope, Role, Grants),
    /// The key of the workspace of this ID is of this generation: the request carries something that was made of it.
    Generation(String, u32),
    /// The database was restored in this Unix second at last, if ever.
    Restored(Option<i64>),
}

/// Why a change was not written although it had been allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoked {
    /// The principal was disabled or removed.
    Principal,
    /// The workspace is not there for the principal any more.
    Workspace,
    /// The role is too low now.
    Role(Role),
    /// The workspace's key was replaced.
    Key,
    /// The database was restored.
    Restored,
}

impl Authority {
    /// The authority of a principal, which is enough for what concerns only the principal.
    pub fn of(principal_id: &str, user_id: Option<&str>) -> Self {
        Self { caller: Some((principal_id.to_owned(), user_id.map(str::to_owned))), needs: Vec::new() }
    }

    /// Adds a right.
    pub fn add(&mut self, need: Need) {
        // A stream asks for the same ones for as long as it lasts.
        if !self.needs.contains(&need) {
            self.needs.push(need);
        }
    }

    /// Are the grants by which the roles were looked at last enough for them? Only then may a change depend on these grants alone.
    pub(super) fn is_decided(&self) -> bool {
        self.needs.iter().all(|need| !matches!(need, Need::Role(_, role, seen) if !seen.allow(*role)))
    }

    /// Were the rights looked at for an earlier change? Then the caller of the store looks again if they are different.
    pub(super) fn is_remembered(&self) -> bool {
        self.needs.iter().any(|need| matches!(need, Need::Restored(_)))
    }

    /// The question that finds a row if the caller has all the rights, by the same grants as when they were looked at.
    pub(super) fn question(&self) -> Option<Query<'_>> {
        let (principal_id, user_id) = self.caller.as_ref()?;
        let is_owner_of = |workspace_id: &str| {
            user_id.is_some() && self.needs.iter().any(|need| {
                matches!(need, Need::Role(scope, _, seen) if seen.owner && !seen.barred && scope.workspace_id == workspace_id)
            })
        };
        // The question for an owner finds out as much.
        let asked = |need: &&Need| !matches!(need, Need::Member(workspace_id) if is_owner_of(workspace_id));
        let questions = self.needs.iter().filter(asked).map(|need| match need {
            Need::Role(scope, _, seen) => grants::same(principal_id, user_id.as_deref(), scope, *seen),
            need => need.question(principal_id, user_id.as_deref()),
        });
        Some(Query::all_find(std::iter::once(is_enabled(principal_id)).chain(questions).collect()))
    }

    /// Fails unless the caller has all the rights right now. Returns the same rights with the grants of now.
    pub(super) async fn check(&self, connection: &mut Connection) -> Result<Self, StoreError> {
        let mut now = self.clone();
        let Some((principal_id, user_id)) = &self.caller else { return Ok(now) };
        let needs = self.needs.iter().map(|need| {
            let columns = if matches!(need, Need::Role(..)) { GRANTS } else { FOUND };
            (columns, need.question(principal_id, user_id.as_deref()))
        });
        // One question for all, because each takes a round trip. The number of the right is in each row of its answer.
        let questions = std::iter::once((FOUND, is_enabled(principal_id))).chain(needs).enumerate();
        let questions = questions.map(|(number, (columns, query))| (format!("{number} AS number, {columns}"), query));
        let rows = Query::union_all(questions.collect()).fetch_all(connection).await?;
        let mut answers: Vec<Vec<&Row>> = vec![Vec::new(); self.needs.len() + 1];
        for row in &rows {
            let answer = usize::try_from(row.try_get::<i64>("number")?).ok().and_then(|number| answers.get_mut(number));
            answer.ok_or(StoreError::Corrupt("number of a right"))?.push(row);
        }
        if answers[0].is_empty() {
            return Err(StoreError::Revoked(Revoked::Principal));
        }
        for (need, answer) in now.needs.iter_mut().zip(&answers[1..]) {
            let (fulfilled, revoked) = match need {
                Need::Member(_) | Need::KeyHolder(_) => (!answer.is_empty(), Revoked::Workspace),
                Need::Role(_, role, seen) => {
                    *seen = grants::from_rows(answer.iter().copied(), user_id.is_some())?;
                    (seen.allow(*role), Revoked::Role(*role))
                }
                Need::Generation(..) => (!answer.is_empty(), Revoked::Key),
                Need::Restored(_) => (!answer.is_empty(), Revoked::Restored),
            };
            if !fulfilled {
                return Err(StoreError::Revoked(revoked));
            }
        }
        Ok(now)
    }
}

impl Need {
    fn question<'q>(&'q self, principal_id: &'q str, user_id: Option<&'q str>) -> Query<'q> {
        match (self, user_id) {
            (Self::Member(workspace_id), Some(user_id)) => is_member(workspace_id, user_id, principal_id),
            (Self::Member(workspace_id) | Self::KeyHolder(workspace_id), _) => holds_key(workspace_id, principal_id),
            (Self::Role(scope, ..), user_id) => grants::question(principal_id, user_id, scope),
            (Self::Generation(workspace_id, generation), _) => is_of_generation(workspace_id, *generation),
            (Self::Restored(at), _) => settings::was_restored(*at),
        }
    }
}

/// The columns of a question that is answered by finding a row.
const FOUND: &str = "CAST(NULL AS TEXT) AS kind, 0 AS level, CAST(NULL AS TEXT) AS role";
/// The columns of the question for grants.
const GRANTS: &str = "kind, level, role";

fn is_enabled(principal_id: &str) -> Query<'_> {
    sql::query("SELECT 1 FROM principals WHERE id = ? AND disabled_at IS NULL").bind(principal_id)
}

fn is_member<'q>(workspace_id: &'q str, user_id: &'q str, principal_id: &'q str) -> Query<'q> {
    let query = "SELECT 1 FROM workspaces WHERE id = ?1 AND (owner_user_id = ?2 \
                 OR id IN (SELECT workspace_id FROM workspace_members WHERE user_id = ?2)) \
                 AND id NOT IN (SELECT workspace_id FROM workspace_bars WHERE principal_id = ?3)";
    sql::query(query).bind(workspace_id).bind(user_id).bind(principal_id)
}

fn holds_key<'q>(workspace_id: &'q str, principal_id: &'q str) -> Query<'q> {
    let query = "SELECT 1 FROM workspace_principals WHERE workspace_id = ? AND principal_id = ?";
    sql::query(query).bind(workspace_id).bind(principal_id)
}

fn is_of_generation(workspace_id: &str, generation: u32) -> Query<'_> {
    let query = "SELECT 1 FROM workspaces WHERE id = ? AND key_generation = ?";
    sql::query(query).bind(workspace_id).bind(generation)
}
