//! Deleting exactly the object that was seen.

use http::StatusCode;
use kube::{
    Resource,
    api::{DeleteParams, Preconditions, PropagationPolicy},
};
use serde_json::Value;

use crate::{
    applier::Applier,
    call::send,
    error::ApplyError,
    object::{Target, Writable, metadata_string},
};

/// The effect of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Deletion {
    /// The object is gone.
    Deleted,
    /// The object is marked as deleted and stays until its finalizers are removed or its grace period is over.
    Terminating,
    /// There was no such object.
    Absent,
}

impl Applier {
    /// Deletes the object that the caller saw: with its uid and its resource version as preconditions, as far as it has them. One of
    /// the same name that was made since is not touched. The garbage collector deletes its dependents afterwards.
    ///
    /// [`ApplyError::OutOfDate`] means that it has changed since it was seen, or was made anew, and is not deleted.
    pub async fn delete<K>(&self, object: &K) -> Result<Deletion, ApplyError>
    where
        K: Writable + Resource<DynamicType: Default>,
    {
        self.delete_with(object, &K::DynamicType::default()).await
    }

    /// [`delete`](Self::delete) for kinds that are known at run time only.
    pub async fn delete_with<K: Writable>(&self, object: &K, kind: &K::DynamicType) -> Result<Deletion, ApplyError> {
        let target = Target::of(object, kind)?;
        let metadata = object.meta();
        let (uid, version) = (metadata.uid.clone(), metadata.resource_version.clone());
        self.delete_target(&target, uid, version, PropagationPolicy::Background).await
    }

    pub(crate) async fn delete_target(
        &self,
        target: &Target,
        uid: Option<String>,
        resource_version: Option<String>,
        policy: PropagationPolicy,
    ) -> Result<Deletion, ApplyError> {
        let parameters = DeleteParams {
            dry_run: self.is_dry_run(),
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions { uid: uid.clone(), resource_version }),
            ..DeleteParams::default()
        };
        let writing = self.begin(target);
        let request = target.requests().delete(target.name(), &parameters);
        let answer = send(self.client(), &target.object, target.asking(request)).await?;
        match answer.code {
            StatusCode::NOT_FOUND => {
                if let Some(writing) = writing {
                    writing.deleted(None);
                }
                Ok(Deletion::Absent)
            }
            StatusCode::CONFLICT => Err(target.out_of_date()),
            _ => {
                let after: Value = answer.success(&target.object)?.decode(&target.object)?;
                // An object that is gone is answered with a status, or with its last state.
                if metadata_string(&after, "deletionTimestamp").is_some() {
                    if let Some(writing) = writing {
                        writing.wrote(&after);
                    }
                    return Ok(Deletion::Terminating);
                }
                if let Some(writing) = writing {
                    writing.deleted(uid.as_deref());
                }
                Ok(Deletion::Deleted)
            }
        }
    }
}
