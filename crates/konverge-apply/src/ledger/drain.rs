//! Draining: before an uninstall, every object is released from the operator. The systems outside stay as they are.

use std::{error::Error, time::Duration};

use konverge_core::{error::in_one_line, names::few};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};
use tokio::time::{Instant, sleep_until};

use crate::{Applier, ApplyError, read::pick};

type Cause = Box<dyn Error + Send + Sync>;

/// An object of any kind, as a drain sees it.
pub type DrainedObject = PartialObjectMeta<DynamicObject>;

/// How long after the last release the objects are looked at once more. An operator that still runs has seen the release by then, and has put its
/// finalizer back.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(3);

/// How often the finalizers of one object are removed anew because other actors change them at the same time.
const ATTEMPTS: usize = 5;

/// An incomplete drain. Released objects stay released, and the drain can be repeated.
#[derive(Debug, thiserror::Error)]
#[error("{}; run it again", few(.0.iter().map(|left| in_one_line(&**left))))]
pub struct DrainError(Vec<Cause>);

/// An object or a kind that a drain could not release.
#[derive(Debug, thiserror::Error)]
enum Left {
    /// The objects of a kind are not known; those of the others are released.
    #[error("cannot list {kind}: {source}; nothing of that kind was released")]
    List {
        /// The kind.
        kind: String,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// An object keeps its finalizer.
    #[error("{object} keeps its finalizer: {source}")]
    Release {
        /// The object.
        object: String,
        /// The cause.
        source: Cause,
    },
    /// Whether an operator has taken up objects again is not known.
    #[error(
        "cannot list {kind} once more: {source}; whether the operator has taken up objects of that kind again is unknown"
    )]
    Look {
        /// The kind.
        kind: String,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// An operator has taken up an object again after its release.
    #[error("{object} was released, and the operator has taken it up again: it still runs, so stop it")]
    TakenUp {
        /// The object.
        object: String,
    },
}

/// The objects of a kind that were released.
struct Released<'a> {
    resource: ApiResource,
    is_ours: Box<dyn Fn(&DrainedObject) -> bool + Send + Sync + 'a>,
    /// The uids of those that could not be.
    kept: Vec<Option<String>>,
}

/// A drain that is under way. The operator has to be stopped before, or it would put its finalizers back. `lease::stand_in` of `konverge-runtime`
/// waits until an operator that elects a leader has stopped. If an operator elects none, the [end](Self::end) finds it.
///
/// An object that cannot be released, or a kind that cannot be listed, keeps no other object from being released. It is logged, and causes an
/// error at the end.
pub struct Drain<'a> {
    client: &'a Client,
    /// The only namespaces. None means all.
    namespaces: Vec<&'a str>,
    /// Kinds that this role does not allow to list.
    left_out: Vec<String>,
    left: Vec<Cause>,
    released: Vec<Released<'a>>,
    /// When the last object was released.
    last: Option<Instant>,
}

impl<'a> Drain<'a> {
    /// A drain of these namespaces. If there are none, of the whole cluster.
    pub fn new(client: &'a Client, namespaces: impl IntoIterator<Item = &'a str>) -> Self {
        let namespaces = namespaces.into_iter().collect();
        let (left_out, left, released) = (Vec::new(), Vec::new(), Vec::new());
        Self { client, namespaces, left_out, left, released, last: None }
    }

    /// Releases the objects of a kind that carry something of the operator.
    ///
    /// The cluster need not know the kind. An `is_optional` kind that may not be listed causes only a warning: under this role the operator
    /// leaves such a kind out, too, so it has written on none of its objects.
    pub async fn kind<E: Into<Cause>>(
        &mut self,
        resource: &ApiResource,
        is_optional: bool,
        is_ours: impl Fn(&DrainedObject) -> bool + Send + Sync + 'a,
        release: impl AsyncFn(DrainedObject) -> Result<(), E>,
    ) {
        let kind = &resource.plural;
        let found = match self.find(resource, &is_ours).await {
            Ok(found) => found,
            // A kind that the cluster does not know has no objects.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(kube::Error::Api(status)) if status.code == 403 && is_optional => {
                self.left_out.push(kind.clone());
                return;
            }
            Err(source) => return self.remains(Left::List { kind: kind.clone(), source: Box::new(source) }),
        };
        let (mut released, mut kept) = (0, Vec::new());
        for object in found {
            let (named, uid) = (named(resource, &object), object.uid());
            match release(object).await {
                Ok(()) => released += 1,
                Err(source) => {
                    kept.push(uid);
                    self.remains(Left::Release { object: named, source: source.into() });
                }
            }
        }
        tracing::info!(kind, released, "released");
        if released > 0 {
            self.last = Some(Instant::now());
            self.released.push(Released { resource: resource.clone(), is_ours: Box::new(is_ours), kept });
        }
    }

    /// Releases the objects of a kind from these finalizers. All others stay.
    pub async fn finalizers(
        &mut self,
        applier: &Applier,
        resource: &ApiResource,
        is_optional: bool,
        finalizers: &[&'static str],
    ) {
        let ours = finalizers.to_vec();
        let is_ours = move |object: &DrainedObject| object.finalizers().iter().any(|known| ours.contains(&&**known));
        let client = self.client;
        let release = async |object: DrainedObject| {
            let api = api(client, resource, object.metadata.namespace.as_deref());
            remove(&api, applier, resource, object, finalizers).await
        };
        self.kind(resource, is_optional, is_ours, release).await;
        if applier.is_dry_run() {
            // Nothing was released, so nothing can be taken up again.
            self.released.clear();
        }
    }

    /// A step of the drain besides objects has ended like this.
    pub fn step<E: Into<Cause>>(&mut self, ended: Result<(), E>) {
        if let Err(error) = ended {
            self.remains(error);
        }
    }

    /// Ends the drain. A moment after the last release it looks at the released kinds once more, because an operator that still runs puts its finalizers
    /// back.
    ///
    /// # Errors
    ///
    /// Returns an error that names what is not released, or was taken up again.
    pub async fn end(mut self) -> Result<(), DrainError> {
        for Released { resource, is_ours, kept } in std::mem::take(&mut self.released) {
            if let Some(last) = self.last.take() {
                sleep_until(last + TAKEN_UP_WITHIN).await;
            }
            match self.find(&resource, is_ours).await {
                Ok(found) => {
                    let again = found.iter().filter(|object| !kept.contains(&object.uid()));
                    again.for_each(|object| self.remains(Left::TakenUp { object: named(&resource, object) }));
                }
                Err(source) => self.remains(Left::Look { kind: resource.plural, source: Box::new(source) }),
            }
        }
        if !self.left_out.is_empty() {
            tracing::warn!(
                "not looked at, because they may not be listed: {}. Under this role the operator has written on none of them; if it had \
                 a wider one before, run this again with that",
                self.left_out.join(", ")
            );
        }
        if self.left.is_empty() { Ok(()) } else { Err(DrainError(self.left)) }
    }

    async fn find(
        &self,
        resource: &ApiResource,
        is_ours: impl Fn(&DrainedObject) -> bool,
    ) -> kube::Result<Vec<DrainedObject>> {
        let everywhere = self.namespaces.is_empty().then_some(None);
        let mut found = Vec::new();
        for namespace in self.namespaces.iter().copied().map(Some).chain(everywhere) {
            let api = api(self.client, resource, namespace);
            found.extend(pick(&api, &ListParams::default(), |object| Some(object).filter(&is_ours)).await?);
        }
        Ok(found)
    }

    fn remains(&mut self, left: impl Into<Cause>) {
        let left = left.into();
        tracing::error!("{}", in_one_line(&*left));
        self.left.push(left);
    }
}

fn named(resource: &ApiResource, object: &DrainedObject) -> String {
    let namespace = object.namespace().map_or_else(String::new, |namespace| namespace + "/");
    format!("{} {namespace}{}", resource.kind, object.name_any())
}

fn api(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// Removes these finalizers from the object, unless it is gone.
async fn remove(
    api: &Api<DynamicObject>,
    applier: &Applier,
    resource: &ApiResource,
    mut object: DrainedObject,
    finalizers: &[&'static str],
) -> Result<(), Cause> {
    let mut attempt = 1;
    loop {
        match remove_once(applier, resource, object.clone(), finalizers).await {
            Err(ApplyError::OutOfDate { .. }) if attempt < ATTEMPTS => attempt += 1,
            removed => return Ok(removed?),
        }
        let now = api.get_metadata_opt(&object.name_any()).await?;
        match now.filter(|now| now.metadata.uid == object.metadata.uid) {
            Some(now) => object = now,
            None => return Ok(()),
        }
    }
}

async fn remove_once(
    applier: &Applier,
    resource: &ApiResource,
    mut object: DrainedObject,
    finalizers: &[&'static str],
) -> Result<(), ApplyError> {
    for finalizer in finalizers {
        object = applier.remove_finalizer_with(&object, finalizer, resource).await?.unwrap_or(object);
    }
    Ok(())
}
