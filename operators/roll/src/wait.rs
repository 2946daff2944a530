//! Waiting for a Kubernetes Secret into which another tool syncs a secret in Vault, and which the pods read. Pure.
//!
//! A change in Vault is held back until the Secret's content is another than it was when the workload was last rolled for that source, or noted.
//! The record of the workload holds the old content. So a restart of the operator does no harm, and a Secret that is quicker than the question to Vault does none either. It is not known whether a change of the Secret is that of Vault; one after which Vault was asked twice
//! and had nothing new is taken for another's, and counts no more.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]

use jiff::SignedDuration;
use konverge_workload::Keys;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    declarations::object_name,
    object::SourceName,
    schema as fields,
    time::{Time, span_of_field},
};

/// How long a Secret is waited for if it is not said: longer than those who sync Secrets take between two looks.
const TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

/// The prefix of an entry for a Secret that is waited for.
const AWAITED: &str = "Awaited/";

/// The same for one that had not followed when the workload was rolled all the same.
const LATE: &str = "Late/";

/// The part of a `spec` about a Secret that is synced from Vault.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitForSpec {
    /// The name of the Secret, in the namespace of each workload.
    #[schemars(schema_with = "fields::object_name")]
    pub secret: String,
    /// The keys of which a value must change. Default: all keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::keys")]
    pub keys: Option<Vec<String>>,
    /// The longest wait after the change in Vault, such as 90s. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::timeout")]
    pub timeout: Option<String>,
    /// The action after the timeout. Roll (the default): the workload is restarted now, and once more after the Secret has changed. Hold: the
    /// workload is restarted only after the Secret has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::on_timeout")]
    pub on_timeout: Option<String>,
}

/// The Secret that must change before a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitFor {
    /// The Secret.
    pub secret: SourceName,
    /// The keys of which a value must change.
    pub keys: Keys,
    /// The longest wait.
    pub timeout: SignedDuration,
    /// Whether the rollout waits for the Secret even after the timeout.
    pub holds: bool,
}

/// Why a source that has changed rolls nothing for the time being, whatever else changes. All but the last are about what is in Vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deferral {
    /// All who ask say that they want nothing now.
    Suspended,
    /// This Secret has not followed; until then it is waited for. Without a time it has not been read yet, and nothing is known.
    Awaited(SourceName, Option<Time>),
    /// It had not followed by then, and nothing is rolled without it.
    Overdue(SourceName, Time),
    /// It changes too often. Until then, if it is quiet.
    RanAway(Time),
}

impl Deferral {
    /// Until when it is waited for at the most.
    pub fn until(&self) -> Option<Time> {
        match self {
            Self::Awaited(_, until) => *until,
            Self::RanAway(until) => Some(*until),
            Self::Suspended | Self::Overdue(..) => None,
        }
    }

    /// Whether it is known, and nobody wants it so.
    pub fn is_told(&self) -> bool {
        matches!(self, Self::Awaited(_, Some(_)) | Self::Overdue(..) | Self::RanAway(_))
    }

    /// Whether those of later waves wait for it. Other users of a runaway source wait for it themselves.
    pub fn is_waited_for(&self) -> bool {
        !matches!(self, Self::Suspended | Self::RanAway(_))
    }
}

impl WaitFor {
    /// Reads what a spec says.
    pub fn read(spec: &WaitForSpec) -> Result<Self, String> {
        let secret = object_name(&spec.secret).map_err(|cause| format!("spec.waitFor.secret: {cause}"))?;
        let timeout = match &spec.timeout {
            None => TIMEOUT,
            Some(text) => span_of_field("spec.waitFor.timeout", text, "90s")?,
        };
        let holds = match spec.on_timeout.as_deref() {
            None | Some("Roll") => false,
            Some("Hold") => true,
            Some(other) => return Err(format!("spec.waitFor.onTimeout: {other:?} is neither Roll nor Hold")),
        };
        let keys = match spec.keys.as_deref() {
            None | Some([]) => Keys::All,
            Some(keys) => Keys::Some(keys.iter().cloned().collect()),
        };
        Ok(Self { secret: SourceName::secret(secret), keys, timeout, holds })
    }
}

/// Under which name a record has the content of a Secret that is waited for.
pub fn awaited(secret: &SourceName) -> String {
    format!("{AWAITED}{}", secret.name)
}

/// The same of one that had not followed.
pub fn late(secret: &SourceName) -> String {
    format!("{LATE}{}", secret.name)
}

/// The Secret that an entry of a record is about, if it is one that is waited for.
pub fn secret_of(text: &str) -> Option<SourceName> {
    text.strip_prefix(AWAITED).or_else(|| text.strip_prefix(LATE)).map(SourceName::secret)
}

/// Whether an entry of a record is only what to compare with: pods are not rolled for it by itself.
pub fn is_for_comparison(text: &str) -> bool {
    text.starts_with(AWAITED)
}

/// The Secret of an entry that had not followed.
pub fn late_secret_of(text: &str) -> Option<SourceName> {
    text.strip_prefix(LATE).map(SourceName::secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(timeout: Option<&str>, on_timeout: Option<&str>) -> Result<WaitFor, String> {
        WaitFor::read(&WaitForSpec {
            secret: "db".to_owned(),
            keys: None,
            timeout: timeout.map(str::to_owned),
            on_timeout: on_timeout.map(str::to_owned),
        })
    }

    #[test]
    fn a_timeout_is_a_second_or_more_and_is_refused_in_its_own_words() {
        for (text, expected) in [
            (None, TIMEOUT),
            (Some("1s"), SignedDuration::from_secs(1)),
            (Some(" 1m30s "), SignedDuration::from_secs(90)),
        ] {
            assert_eq!(read(text, None).unwrap().timeout, expected, "{text:?}");
        }
        for text in ["0s", "0.5s", "999ms", "-1m", "soon", "", "5"] {
            let cause = read(Some(text), None).unwrap_err();
            assert_eq!(
                cause,
                format!("spec.waitFor.timeout: {text:?} is no span of time of a second or more, such as 90s or 5m")
            );
        }
    }

    #[test]
    fn what_follows_the_timeout_is_one_of_two() {
        let holds = |text| read(None, text).map(|wait| wait.holds);
        assert_eq!([None, Some("Roll"), Some("Hold")].map(holds), [Ok(false), Ok(false), Ok(true)]);
        assert!(holds(Some("Wait")).unwrap_err().contains("spec.waitFor.onTimeout"));
    }
}
