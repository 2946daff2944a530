//! Which limits were reached lately: a caller that goes on all the same writes one row a minute.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::store::Action;

/// How long a refusal by a limit stands for those that follow.
const PERIOD: Duration = Duration::from_mins(1);
/// Pairs of principal and action that are remembered. Hits for which there is no room are recorded each time.
const CAPACITY: usize = 10_000;

/// Which limits were reached lately, by whom and at what.
#[derive(Debug, Default)]
pub(crate) struct LimitHits {
    recorded: Mutex<HashMap<(String, Action), Instant>>,
}

impl LimitHits {
    /// Is this to be recorded? It is not if the same was within the last minute.
    pub(crate) fn is_news(&self, principal_id: &str, action: Action) -> bool {
        let now = Instant::now();
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.len() >= CAPACITY {
            recorded.retain(|_, at| now.duration_since(*at) < PERIOD);
        }
        let key = (principal_id.to_owned(), action);
        if recorded.get(&key).is_some_and(|at| now.duration_since(*at) < PERIOD) {
            return false;
        }
        if recorded.len() < CAPACITY {
            recorded.insert(key, now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_a_minute_for_each_caller_and_action() {
        let hits = LimitHits::default();
        assert!(hits.is_news("p", Action::SecretUpdate));
        assert!(!hits.is_news("p", Action::SecretUpdate));
        assert!(hits.is_news("q", Action::SecretUpdate) && hits.is_news("p", Action::SecretDelete));
        tokio::time::advance(PERIOD).await;
        assert!(hits.is_news("p", Action::SecretUpdate));
    }
}
