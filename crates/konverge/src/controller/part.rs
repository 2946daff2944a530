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
    finalizers::Finalizers,
    home::Home,
    inventory, owner_keys,
    part::{Held, Part},
    reconcile::Reconcile,
    run,
    setup::Setup,
    start_error::StartError,
};

impl<K: Object + Writable, R: Reconcile<K>> Part for Controller<K, R> {
    fn crd(&self) -> Option<&CustomResourceDefinition> {
        self.crd.as_ref()
    }

    fn held(&self) -> Option<Held> {
        let current = self.finalizers.iter().flat_map(Finalizers::names);
        let mut finalizers: Vec<_> = self.former_finalizers.iter().copied().chain(current).collect();
        finalizers.dedup();
        let held =
            Held { kind: ApiResource::erase::<K>(&self.kind), is_optional: self.caching.is_optional(), finalizers };
        (!held.finalizers.is_empty()).then_some(held)
    }

    fn reasons(&self) -> Vec<(&'static str, &'static str)> {
        self.reasons.clone()
    }

    fn describe(&self, registry: &mut Registry) {
        self.triggers.iter().for_each(|trigger| (trigger.describe)(registry));
    }

    fn access(&self, home: &Home<'_>, access: &mut Access, at_home: &mut Access) {
        if self.has_children() {
            owner_keys::declare(home.program, at_home);
        }
        self.formerly_owned.iter().for_each(|kind| inventory::declare(kind, access));
        access.to::<K>(&self.kind, &["list", "watch"]);
        if self.finalizers.is_some() {
            access.to::<K>(&self.kind, &["patch"]);
        }
        if self.report.is_some() {
            access.to_status::<K>(&self.kind, &["patch"]);
        }
        for child in &self.children {
            (child.declare)(access);
        }
        access.merge(&self.access);
    }

    fn install(self: Box<Self>, setup: &mut Setup) -> BoxFuture<'_, Result<(), StartError>> {
        std::future::ready(run::install(*self, setup)).boxed()
    }
}
