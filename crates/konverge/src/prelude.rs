//! The names that nearly every operator uses: `use konverge::prelude::*;`.

pub use std::{process::ExitCode, sync::Arc, time::Duration};

pub use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
pub use konverge_apply::{ApplyOutcome, conditions::Reason};
pub use konverge_runtime::{
    Action,
    cache::{Predicate, Selection},
    object::ObjectKey,
};
pub use kube::{
    CustomResource, Resource, ResourceExt,
    api::ObjectMeta,
    core::{DynamicObject, PartialObjectMeta},
    runtime::events::EventType,
};
pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};

pub use crate::{
    Cleanup, Context, Controller, CustomStatus, Error, Operator, Options, Reconcile, Status, reconcile_fn,
};
