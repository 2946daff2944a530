//! Deletion with a deadline: how long an object that is being deleted waits until an outside system is cleared.

use std::time::Duration;

use k8s_openapi::{api::core::v1::Namespace, jiff::Timestamp};
use konverge_core::error::in_one_line;
use kube::{Api, Client};

/// The longest time that a deletion waits. After it the object is released, and what was written for it is left behind.
/// It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletionDeadline {
    /// For most objects.
    pub limit: Duration,
    /// For an object whose namespace is being deleted, too. It may be shorter, because the whole namespace waits for the object.
    pub in_terminating_namespace: Duration,
}

impl DeletionDeadline {
    /// The shorter of the two.
    pub fn shortest(&self) -> Duration {
        self.limit.min(self.in_terminating_namespace)
    }

    /// Returns whether an object that has been [in deletion](deleting_for) for this long has waited long enough.
    ///
    /// The namespace is read only where its deletion decides. A namespace that cannot be read counts as one that stays.
    pub async fn is_over(&self, client: &Client, namespace: &str, waited: Duration) -> bool {
        if waited >= self.limit {
            return true;
        }
        if waited < self.in_terminating_namespace {
            return false;
        }
        match Api::<Namespace>::all(client.clone()).get_metadata_opt(namespace).await {
            Ok(found) => found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()),
            Err(error) => {
                tracing::debug!(namespace, "cannot look at the namespace: {}", in_one_line(&error));
                false
            }
        }
    }
}

/// Returns how long an object has been in deletion. Zero if it is not, and by a clock that is behind the clock of the API server.
pub fn deleting_for(since: Option<Timestamp>, now: Timestamp) -> Duration {
    since.and_then(|since| Duration::try_from(now.duration_since(since)).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_behind_lets_nothing_go_before_its_deadline() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (now, expected) in [(100, 0), (90, 0), (100 - 3600, 0), (101, 1), (1000, 900)] {
            assert_eq!(deleting_for(Some(at(100)), at(now)), Duration::from_secs(expected), "{now}");
        }
        assert_eq!(deleting_for(None, at(100)), Duration::ZERO);
    }
}
