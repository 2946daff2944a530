//! A rollout that was asked for and of which the answer was lost: it may have been done, and nothing else than this process knows why. Pure.

use crate::{object::SourceName, time::Time};

/// The rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnacknowledgedRollout {
    /// The version of the workload that it was to be done upon, and no other.
    pub version: String,
    /// The stamp that the pod template was to get. It is none that stood there.
    pub stamp: String,
    /// Why it was to be rolled.
    pub why: String,
    /// For which sources.
    pub changed: Vec<SourceName>,
    /// When the last of those changed, as far as that was seen.
    pub seen: Option<Time>,
}

/// The result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was not, or somebody has set the pod template back since.
    Undone,
    /// The event is from before the rollout.
    Unknown,
}

impl UnacknowledgedRollout {
    /// Returns the result, by the workload as it is shown.
    pub fn outcome(&self, version: &str, stamp: Option<&str>) -> Outcome {
        if stamp == Some(&self.stamp) {
            Outcome::Done
        } else if version == self.version {
            Outcome::Unknown
        } else {
            Outcome::Undone
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_tells_whether_it_was_done() {
        let asked = UnacknowledgedRollout {
            version: "5".to_owned(),
            stamp: "new".to_owned(),
            why: String::new(),
            changed: Vec::new(),
            seen: None,
        };
        for (what, version, stamp, expected) in [
            ("from before", "5", None, Outcome::Unknown),
            ("from before, with the stamp of an earlier one", "5", Some("old"), Outcome::Unknown),
            ("it was done", "6", Some("new"), Outcome::Done),
            ("and somebody has changed something else since", "7", Some("new"), Outcome::Done),
            ("somebody else was quicker", "6", Some("old"), Outcome::Undone),
            ("and there was no stamp", "6", None, Outcome::Undone),
        ] {
            assert_eq!(asked.outcome(version, stamp), expected, "{what}");
        }
    }
}
