//! The status of a `VaultPush`, which is where its record stands: what annotations keep in `vault-sync.io/status`, in the form that tools
//! for custom resources read.

use std::collections::BTreeSet;

use jiff::Timestamp;
use konverge_apply::conditions::{Conditions, Moment, READY, Reason};
use konverge_core::names::few;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    reasons,
    record::{PENDING, Record, SYNCED, Written},
    spec::DeletionPolicy,
};

/// The state of a `VaultPush`. Only the operator writes it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VaultPushStatus {
    /// The generation of the object that the operator processed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The uid of the object. The operator ignores a status with another uid, because it was copied from another object.
    pub uid: String,
    /// The last value of the annotation vault-sync.io/sync-now that the operator has processed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<String>,
    /// When all paths were last verified in Vault, as of the last write of the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::time")]
    pub last_verified_time: Option<Timestamp>,
    /// How the paths are cleared once they are no longer requested.
    #[serde(skip_serializing_if = "Option::is_none", with = "super::pascal_case")]
    #[schemars(schema_with = "super::schema::deletion_policy")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// The number of paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_paths: Option<u32>,
    /// The number of paths that are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_paths: Option<u32>,
    /// All paths that were written and not yet cleared. A path is listed here before its first write.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["location"]))]
    pub paths: Vec<PathStatus>,
    /// The condition Ready and, while the object is not ready, Reconciling or Stalled.
    pub conditions: Conditions,
}

/// The state of a path.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PathStatus {
    /// The path in Vault's API.
    pub location: String,
    /// The mount path of the engine.
    pub mount: String,
    /// The version of the engine.
    pub kv: u8,
    /// Whether the path was written. If not, its first write may be in progress.
    pub written: bool,
    /// The earliest time at which its first version may have been written, until Vault confirms a version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub begun: Option<Timestamp>,
    /// The version in Vault that has the content desired last. 0 before the first attempt to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Since when the object no longer requests the path, which the operator clears after a grace period.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub unwanted: Option<Timestamp>,
    /// Whether the path has another owner, so that the operator does not write it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
    /// The written keys, with updatePolicy Merge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<BTreeSet<String>>,
    /// The keys about to be written, with updatePolicy Merge.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub pending: BTreeSet<String>,
}

/// The message of a condition without one.
const UNKNOWN: Reason = Reason::new("Unknown");

/// The reasons that only a change of the object, of the path's holder or of a value can end. All else is worked on.
const STALLED: [&str; 9] = [
    reasons::INVALID_PATH,
    reasons::INVALID_SPEC,
    reasons::INVALID_TEMPLATE,
    reasons::NOT_ALLOWED,
    reasons::OWNED_BY_ANOTHER,
    reasons::EXISTS_ALREADY,
    reasons::BINARY_VALUE,
    reasons::NEEDS_VERSION_TWO,
    reasons::PAUSED,
];

impl From<VaultPushStatus> for Record {
    fn from(status: VaultPushStatus) -> Self {
        let ready = status.conditions.get(READY);
        let is_ready = ready.is_some_and(|ready| ready.status == "True");
        let message = ready.map(|ready| ready.message.clone());
        Self {
            uid: status.uid,
            state: ready.map_or_else(|| PENDING.to_owned(), |ready| ready.reason.clone()),
            since: ready.map_or(Timestamp::UNIX_EPOCH, |ready| ready.last_transition_time.0),
            verified: status.last_verified_time,
            message: message.filter(|message| !is_ready && !message.is_empty()),
            answered: status.answered,
            deletion: status.deletion_policy.unwrap_or(DeletionPolicy::Soft),
            generation: Some(status.observed_generation.unwrap_or_default()),
            paths: status.paths.into_iter().map(|path| (path.location.clone(), path.into())).collect(),
        }
    }
}

impl From<&Record> for VaultPushStatus {
    fn from(record: &Record) -> Self {
        let written = record.paths.values().filter(|path| path.written).count();
        let mut conditions = Conditions::default();
        let moment = Moment { generation: record.generation, now: record.since };
        let reason = Reason::parse(&record.state).unwrap_or(UNKNOWN);
        let message = record.message.as_deref().unwrap_or_default();
        match &*record.state {
            SYNCED => conditions.ready(&reason, &synced_message(record, written), moment),
            state if STALLED.contains(&state) => conditions.stalled(&reason, message, moment),
            _ => conditions.reconciling(&reason, message, moment),
        }
        Self {
            observed_generation: record.generation,
            uid: record.uid.clone(),
            answered: record.answered.clone(),
            last_verified_time: record.verified,
            deletion_policy: Some(record.deletion),
            total_paths: u32::try_from(record.paths.len()).ok(),
            written_paths: u32::try_from(written).ok(),
            paths: record.paths.iter().map(|(location, path)| PathStatus::new(location, path)).collect(),
            conditions,
        }
    }
}

/// Returns the message of an object in sync, with the paths whose deletion is pending.
fn synced_message(record: &Record, written: usize) -> String {
    let unwanted = |(location, path): (&String, &Written)| Some(format!("{location} (since {:.0})", path.unwanted?));
    let pending: Vec<_> = record.paths.iter().filter_map(unwanted).collect();
    let mut message = format!("{written} of {} paths are as they should be", record.paths.len());
    if !pending.is_empty() {
        message = format!("{message}; no longer requested, and deleted after the grace period: {}", few(&pending));
    }
    message
}

impl PathStatus {
    fn new(location: &str, path: &Written) -> Self {
        let Written { mount, kv, written, begun, version, unwanted, left, keys, pending } = path.clone();
        Self { location: location.to_owned(), mount, kv, written, begun, version, unwanted, left, keys, pending }
    }
}

impl From<PathStatus> for Written {
    fn from(path: PathStatus) -> Self {
        let PathStatus { location: _, mount, kv, written, begun, version, unwanted, left, keys, pending } = path;
        Self { mount, kv, written, begun, version, unwanted, left, keys, pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let mut record = Record::new("1", Timestamp::from_second(5).unwrap());
        record.generation = Some(3);
        record.verified = Timestamp::from_second(4).ok();
        record.deletion = DeletionPolicy::Keep;
        let keys = Some(BTreeSet::from(["a".to_owned()]));
        let path =
            Written { mount: "secret".to_owned(), kv: 2, written: true, version: Some(7), keys, ..Written::default() };
        let pending = BTreeSet::from(["b".to_owned()]);
        record
            .paths
            .insert("secret/data/x".to_owned(), Written { written: false, left: true, pending, ..path.clone() });
        let begun = Some(Timestamp::new(7, 123_456_789).unwrap());
        record.paths.insert(
            "secret/data/z".to_owned(),
            Written { begun, mount: "secret".to_owned(), kv: 2, ..Written::default() },
        );
        record.paths.insert("secret/data/y".to_owned(), path);
        record
    }

    #[test]
    fn a_record_survives_the_way_through_the_status() {
        let mut record = record();
        let there_and_back = |record: &Record| {
            let json = serde_json::to_string(&VaultPushStatus::from(record)).unwrap();
            Record::from(serde_json::from_str::<VaultPushStatus>(&json).unwrap())
        };
        assert_eq!(there_and_back(&record), record, "before the first word");
        let at = |second| Timestamp::from_second(second).unwrap();
        for (second, state, message) in
            [(6, "VaultSealed", Some("why")), (7, SYNCED, None), (8, reasons::NOT_ALLOWED, Some("why"))]
        {
            record.say(state, message.map(str::to_owned), at(second));
            record.answered = Some(second.to_string());
            let read = there_and_back(&record);
            assert_eq!((&read, read.text()), (&record, record.text()), "{state}");
        }
    }

    #[test]
    fn the_condition_names_paths_whose_deletion_is_pending() {
        let mut record = record();
        record.say(SYNCED, None, Timestamp::UNIX_EPOCH);
        let message = |record: &Record| VaultPushStatus::from(record).conditions.get(READY).unwrap().message.clone();
        assert_eq!(message(&record), "1 of 3 paths are as they should be");
        record.paths.get_mut("secret/data/y").unwrap().unwanted = Timestamp::from_second(60).ok();
        let pending = "deleted after the grace period: secret/data/y (since 1970-01-01T00:01:00Z)";
        assert!(message(&record).ends_with(pending), "{}", message(&record));
    }

    #[test]
    fn conditions_tell_who_has_to_do_something() {
        for (state, expected) in [
            (SYNCED, [Some("True"), None, None]),
            ("Pending", [Some("False"), Some("True"), None]),
            ("VaultSealed", [Some("False"), Some("True"), None]),
            (reasons::SECRET_NOT_FOUND, [Some("False"), Some("True"), None]),
            (reasons::NOT_ALLOWED, [Some("False"), None, Some("True")]),
            ("no word", [Some("False"), Some("True"), None]),
        ] {
            let mut record = record();
            record.say(state, None, Timestamp::UNIX_EPOCH);
            let status = VaultPushStatus::from(&record);
            let said = ["Ready", "Reconciling", "Stalled"]
                .map(|kind| status.conditions.get(kind).map(|condition| condition.status.as_str()));
            assert_eq!(said, expected, "{state}");
            assert_eq!((status.written_paths, status.total_paths), (Some(1), Some(3)));
        }
    }
}
