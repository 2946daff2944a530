//! Buckets as the framework sees them: the calls, and how to read and compare them.

use konverge::remote::{Deletion, Failure, Life, Mark, Remote};

use crate::{
    BucketSpec,
    cloud::{Cloud, CloudError, Listed, Phase, Settings},
};

impl From<CloudError> for Failure {
    fn from(error: CloudError) -> Self {
        let message = error.to_string();
        match error {
            CloudError::Unavailable(_) => Failure::unavailable("cloud", "CloudUnavailable", message),
            CloudError::TooManyRequests(pause) => Failure::after(pause, "CloudBusy", message),
            CloudError::NameTaken(_) => Failure::permanent("NameTaken", message),
            CloudError::Refused { .. } => Failure::permanent("CloudRefuses", message),
        }
    }
}

/// Returns the settings that `spec` asks for.
fn wanted(spec: &BucketSpec) -> Settings {
    Settings { versioning: spec.versioning, retention_days: spec.retention_days }
}

impl Remote for Cloud {
    type Item = Listed;
    type Desired = BucketSpec;

    const NOUN: &'static str = "bucket";

    async fn list(&self, _account: &str) -> Result<Vec<Listed>, Failure> {
        Ok(self.list().await?)
    }

    async fn get(&self, _account: &str, id: &str) -> Result<Option<Listed>, Failure> {
        Ok(self.get(id).await?)
    }

    async fn create(&self, _account: &str, spec: &BucketSpec, mark: &Mark) -> Result<Listed, Failure> {
        Ok(self.create(&spec.bucket_name, &mark.to_string(), &wanted(spec)).await?)
    }

    async fn update(&self, _account: &str, item: &Listed, spec: &BucketSpec, _: &Mark) -> Result<Listed, Failure> {
        let mut after = item.clone();
        after.observed.settings = wanted(spec);
        self.update(&item.observed.id, &after.observed.settings).await?;
        Ok(after)
    }

    async fn delete(&self, _account: &str, item: &Listed) -> Result<Deletion, Failure> {
        Ok(if self.delete(&item.observed.id).await? { Deletion::Gone } else { Deletion::Begun })
    }

    fn id(item: &Listed) -> &str {
        &item.observed.id
    }

    fn name(item: &Listed) -> &str {
        &item.observed.name
    }

    fn mark(item: &Listed) -> Option<Mark> {
        Mark::find_in(&item.tag)
    }

    fn life(item: &Listed) -> Life {
        if item.observed.phase == Phase::Deleting { Life::Deleting } else { Life::Active }
    }

    fn differences(item: &Listed, spec: &BucketSpec, _: &Mark) -> Result<Vec<&'static str>, Failure> {
        let (is, wanted, name) = (&item.observed.settings, wanted(spec), &spec.bucket_name);
        if item.observed.name != *name {
            let is = &item.observed.name;
            let message = format!("spec.bucketName cannot change from {is} to {name}; create another Bucket");
            return Err(Failure::permanent("BucketRenamed", message));
        }
        let versioning = (is.versioning != wanted.versioning).then_some("versioning");
        let retention = (is.retention_days != wanted.retention_days).then_some("retentionDays");
        Ok(versioning.into_iter().chain(retention).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeletionPolicy, cloud::ObservedBucket};

    #[test]
    fn a_bucket_differs_in_its_settings_and_never_changes_its_name() {
        let spec = BucketSpec {
            bucket_name: "backups".to_owned(),
            versioning: true,
            retention_days: Some(7),
            deletion_policy: DeletionPolicy::Delete,
        };
        let mark = Mark::new("cluster", "uid", "");
        let listed = |name: &str, versioning, retention_days| Listed {
            tag: mark.to_string(),
            observed: ObservedBucket {
                id: "b-1".to_owned(),
                name: name.to_owned(),
                settings: Settings { versioning, retention_days },
                phase: Phase::Active,
            },
        };
        for (versioning, retention_days, expected) in [
            (true, Some(7), &[][..]),
            (false, Some(7), &["versioning"]),
            (false, None, &["versioning", "retentionDays"]),
        ] {
            let found = Cloud::differences(&listed("backups", versioning, retention_days), &spec, &mark);
            assert_eq!(found.as_deref(), Ok(expected));
        }
        assert!(Cloud::differences(&listed("other", true, Some(7)), &spec, &mark).is_err());
    }
}
