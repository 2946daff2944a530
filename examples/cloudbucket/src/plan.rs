//! The decision about one bucket, as a pure function of what is wanted and what the cloud shows.

use crate::{
    BucketSpec,
    cloud::{Phase, Settings, Shown},
};

/// What to do about a bucket.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The bucket is as it should be.
    Nothing,
    /// There is no bucket of ours: create it.
    Create(Settings),
    /// The settings differ: these were changed by hand or in the spec.
    Update {
        /// The settings to set.
        settings: Settings,
        /// The names of the settings that differ.
        differing: Vec<&'static str>,
    },
    /// The object names another bucket than the one that it stands for.
    RefuseRename {
        /// The name of the bucket in the cloud.
        is: String,
    },
    /// The cloud still deletes the bucket. Its name is free only afterwards.
    WaitForDeletion,
}

/// Returns the settings that `spec` asks for.
pub fn wanted(spec: &BucketSpec) -> Settings {
    Settings { versioning: spec.versioning, retention_days: spec.retention_days }
}

/// Decides what to do. `shown` is the bucket as the cloud shows it, `None` if the cloud has none with our tag.
pub fn plan(spec: &BucketSpec, shown: Option<&Shown>) -> Step {
    let wanted = wanted(spec);
    let Some(shown) = shown else { return Step::Create(wanted) };
    if shown.phase == Phase::Deleting {
        return Step::WaitForDeletion;
    }
    if shown.name != spec.bucket_name {
        return Step::RefuseRename { is: shown.name.clone() };
    }
    let mut differing = Vec::new();
    if shown.settings.versioning != wanted.versioning {
        differing.push("versioning");
    }
    if shown.settings.retention_days != wanted.retention_days {
        differing.push("retentionDays");
    }
    if differing.is_empty() { Step::Nothing } else { Step::Update { settings: wanted, differing } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_follows_from_what_is_wanted_and_what_is_shown() {
        let spec = BucketSpec {
            bucket_name: "backups".to_owned(),
            versioning: true,
            retention_days: Some(7),
            deletion_policy: crate::DeletionPolicy::Delete,
        };
        let settings = |versioning, retention_days| Settings { versioning, retention_days };
        let shown = |settings, phase| Shown { id: "b-1".to_owned(), name: "backups".to_owned(), settings, phase };
        let update = |differing: &[&'static str]| Step::Update {
            settings: settings(true, Some(7)),
            differing: differing.to_vec(),
        };
        for (found, expected) in [
            (None, Step::Create(settings(true, Some(7)))),
            (Some(shown(settings(true, Some(7)), Phase::Active)), Step::Nothing),
            (Some(shown(settings(false, Some(7)), Phase::Active)), update(&["versioning"])),
            (Some(shown(settings(false, None), Phase::Active)), update(&["versioning", "retentionDays"])),
            (Some(shown(settings(true, Some(7)), Phase::Deleting)), Step::WaitForDeletion),
        ] {
            assert_eq!(plan(&spec, found.as_ref()), expected, "{found:?}");
        }
        let other = Shown { name: "other".to_owned(), ..shown(settings(true, Some(7)), Phase::Active) };
        assert_eq!(plan(&spec, Some(&other)), Step::RefuseRename { is: "other".to_owned() });
    }
}
