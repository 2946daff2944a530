//! The recent decisions of the API server.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use konverge_core::digest::{ContentDigest, DigestKey};
use tokio::time::Instant;

use super::Verdict;

/// More than a cluster has scrapers. With more callers than this, the API server is asked more often, and nothing else happens.
const MOST: usize = 256;

/// Answers by question, each for a while. A question is a digest of token and path under a key of this process: who reads the memory
/// of the process later finds no token here.
pub(super) struct Answers {
    key: DigestKey,
    remembered: Duration,
    known: Mutex<HashMap<ContentDigest, (Verdict, Instant)>>,
}

impl Answers {
    pub(super) fn new(remembered: Duration) -> Self {
        Self { key: DigestKey::new(rand::random()), remembered, known: Mutex::default() }
    }

    pub(super) fn question(&self, token: &str, path: &str) -> ContentDigest {
        self.key.digest([("token", token.as_bytes()), ("path", path.as_bytes())])
    }

    pub(super) fn get(&self, question: &ContentDigest) -> Option<Verdict> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (verdict, since) = known.get(question)?;
        (since.elapsed() < self.remembered).then_some(*verdict)
    }

    pub(super) fn put(&self, question: ContentDigest, verdict: Verdict) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, (_, since)| since.elapsed() < self.remembered);
        }
        if known.len() < MOST {
            known.insert(question, (verdict, Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_of_one_token_and_path_and_of_a_while() {
        let answers = Answers::new(Duration::from_secs(10));
        let question = answers.question("a", "/metrics");
        answers.put(question, Verdict::Forbidden);
        assert_eq!(answers.get(&question), Some(Verdict::Forbidden));
        for (token, path) in [("b", "/metrics"), ("a", "/other"), ("a/metrics", "")] {
            assert_eq!(answers.get(&answers.question(token, path)), None, "{token} {path}");
        }
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(answers.get(&question), Some(Verdict::Forbidden));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(answers.get(&question), None);
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_never_too_many_and_old_ones_make_room() {
        let answers = Answers::new(Duration::from_secs(10));
        let question = |number: usize| answers.question(&number.to_string(), "/metrics");
        for number in 0..2 * MOST {
            answers.put(question(number), Verdict::Unknown);
        }
        assert_eq!(answers.known.lock().unwrap().len(), MOST);
        assert_eq!(answers.get(&question(2 * MOST - 1)), None, "no room");
        tokio::time::advance(Duration::from_secs(10)).await;
        answers.put(question(2 * MOST), Verdict::Allowed);
        assert_eq!(answers.get(&question(2 * MOST)), Some(Verdict::Allowed));
        assert_eq!(answers.known.lock().unwrap().len(), 1);
    }
}
