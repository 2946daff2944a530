//! A controller as a part of an operator: its definition, its permissions, and how it is installed.

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_apply::Writable;
use konverge_gen::Access;
use konverge_runtime::object::Object;
use kube::core::ApiResource;
use prometheus_client::registry::Registry;

use super::Controller;
use crate::{
    home::Home,
    part::{Held, Part},
    reconcile::Reconcile,
    run,
    setup::Setup,
    start_error::StartError,
    watch::Watch,
};

impl<K: Object + Writable, R: Reconcile<K>> Part for Controller<K, R> {
    fn crd(&self) -> Option<&CustomResourceDefinition> {
        self.generated.crd.as_ref()
    }

    fn held(&self) -> Option<Held> {
        let Watch { kind, caching, .. } = &self.watch;
        let finalizers = self.finalizers.names();
        let held = Held { kind: ApiResource::erase::<K>(kind), is_optional: caching.is_optional(), finalizers };
        (!held.finalizers.is_empty()).then_some(held)
    }

    fn reasons(&self) -> Vec<(&'static str, &'static str)> {
        self.generated.reasons.clone()
    }

    fn describe(&self, registry: &mut Registry) {
        self.wakes.triggers.iter().for_each(|trigger| (trigger.describe)(registry));
    }

    fn access(&self, home: &Home<'_>, access: &mut Access, at_home: &mut Access) {
        let kind = &self.watch.kind;
        self.owned.declare(home.program, access, at_home);
        access.to::<K>(kind, &["list", "watch"]);
        if self.finalizers.in_force().is_some() {
            access.to::<K>(kind, &["patch"]);
        }
        if self.report.is_some() {
            access.to_status::<K>(kind, &["patch"]);
        }
        access.merge(&self.generated.access);
    }

    fn install(self: Box<Self>, setup: &mut Setup) -> BoxFuture<'_, Result<(), StartError>> {
        std::future::ready(run::install(*self, setup)).boxed()
    }
}
