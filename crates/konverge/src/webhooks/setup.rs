//! The declaration of a program's webhooks.

use konverge_admission::{Limits, Webhooks, certificates::Lifetimes};
use konverge_gen::Access;
use konverge_runtime::{
    cache::{Caching, Selection, Store},
    object::Object,
};
use kube::Resource;

use crate::setup::Setup;

/// The webhooks of a program, with the caches that their rules read and the limits of their server.
///
/// Every replica answers, whether it leads or not. [`Webhooks`] are one without caches and with the usual limits.
///
/// ```
/// use konverge::{
///     WebhookSetup,
///     admission::{Limits, Review, Verdict, Webhook, Webhooks, handler},
///     prelude::*,
///     runtime::object::ObjectKey,
/// };
/// # #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// # #[kube(group = "example.io", version = "v1", kind = "Team")]
/// # struct TeamSpec {}
/// # #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// # #[kube(group = "example.io", version = "v1", kind = "Project", namespaced, status = "Status")]
/// # struct ProjectSpec { team: String }
///
/// // A Project names a Team that exists.
/// let webhooks = WebhookSetup::reading(|caches| {
///     let teams = caches.of::<Team>();
///     let rules = handler::validator(move |review: &Review<Project>| {
///         let unknown = |project: &&Project| teams.get(&ObjectKey::cluster(&project.spec.team)).is_none();
///         let unknown = review.object.as_ref().filter(unknown);
///         Verdict::unless(unknown.map(|project| ("spec.team", format!("there is no Team {}", project.spec.team))))
///     });
///     Webhooks::new().validate(Webhook::of::<Project>(), rules)
/// });
/// let webhooks = webhooks.limits(Limits::default().with(|limits| limits.calls = 16));
/// # let _ = konverge::operator!().webhooks(webhooks);
/// ```
#[must_use = "webhooks answer only in a program; see Operator::webhooks"]
pub struct WebhookSetup {
    pub(super) declared: Webhooks,
    pub(super) access: Access,
    make: Option<Make>,
    pub(super) limits: Limits,
    pub(super) lifetimes: Lifetimes,
}

type Make = Box<dyn FnOnce(&mut WebhookCaches<'_>) -> Webhooks + Send>;

/// Whether the caches are complete, and which of them is not.
pub(super) type Synced = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The caches that webhooks read. They are those of the program: a kind that a controller watches, too, is held once.
///
/// A cache follows the API server and may be behind it by a moment, so a rule must not rely on seeing what was written just
/// before. A rule that must hold for certain belongs into the schema or a `ValidatingAdmissionPolicy`.
pub struct WebhookCaches<'a> {
    setup: Option<&'a mut Setup>,
    access: Access,
    caches: Vec<Synced>,
}

impl WebhookCaches<'_> {
    /// The cache of all objects of a kind, in the namespaces that the program looks at. The role allows to list and watch them.
    pub fn of<K: Object + Resource<DynamicType = ()>>(&mut self) -> Store<K> {
        self.with(Selection::default(), &Caching::default())
    }

    /// [`of`](Self::of) some objects of a kind, in a cache that is filled as `caching` says.
    pub fn with<K: Object + Resource<DynamicType = ()>>(
        &mut self,
        selection: Selection,
        caching: &Caching<K>,
    ) -> Store<K> {
        self.access.to::<K>(&(), &["list", "watch"]);
        let Some(setup) = &mut self.setup else { return Store::new("") };
        let selection = setup.within(selection);
        let cache = setup.caches.cache_as::<K>(&(), &selection, caching);
        let store = cache.store.clone();
        self.caches.push(Box::new(move || {
            if cache.is_synced() { Ok(()) } else { Err(format!("the cache of {} is not complete", K::plural(&()))) }
        }));
        store
    }
}

impl From<Webhooks> for WebhookSetup {
    fn from(declared: Webhooks) -> Self {
        Self {
            declared,
            access: Access::default(),
            make: None,
            limits: Limits::default(),
            lifetimes: Lifetimes::default(),
        }
    }
}

impl WebhookSetup {
    /// Webhooks whose rules read caches. Until these are complete, the program is not ready, and reviews are answered with 503, so that
    /// their failure policy decides.
    ///
    /// `make` is called twice: first with empty caches, for the manifests, and then for the server.
    pub fn reading(make: impl Fn(&mut WebhookCaches<'_>) -> Webhooks + Send + 'static) -> Self {
        let mut caches = WebhookCaches { setup: None, access: Access::default(), caches: Vec::new() };
        let declared = make(&mut caches);
        Self { access: caches.access, make: Some(Box::new(make)), ..Self::from(declared) }
    }

    /// Other bounds of the server than the usual ones. `linger` is up to `--webhook-drain`.
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Other times of the certificates that the program makes itself.
    pub fn lifetimes(self, lifetimes: Lifetimes) -> Self {
        Self { lifetimes, ..self }
    }

    /// The webhooks on the caches of a program that is about to run, and whether these are complete.
    pub(super) fn webhooks(self, setup: &mut Setup) -> (Webhooks, Synced) {
        let mut caches = WebhookCaches { setup: Some(setup), access: Access::default(), caches: Vec::new() };
        let webhooks = match self.make {
            Some(make) => make(&mut caches),
            None => self.declared,
        };
        let caches = caches.caches;
        (webhooks, Box::new(move || caches.iter().try_for_each(|is_synced| is_synced())))
    }
}
