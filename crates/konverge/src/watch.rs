//! The kinds that a controller watches besides its own.

use konverge_runtime::{
    cache::{Caching, Predicate, Selection},
    object::Object,
};
use kube::Resource;

/// Which objects of a kind a controller watches, how they are cached, and which of their changes wake it.
///
/// ```
/// use konverge::{Watch, prelude::*};
///
/// // The metadata of Secrets with a label: payloads never enter the process, and only a change of annotations wakes the controller.
/// let secrets = Watch::<PartialObjectMeta<Secret>>::new().label_selector("team=a").predicate(Predicate::annotations());
/// # let _ = secrets;
/// ```
#[must_use]
pub struct Watch<O: Object> {
    pub(crate) kind: O::DynamicType,
    pub(crate) selection: Selection,
    pub(crate) caching: Caching<O>,
    pub(crate) predicate: Predicate<O>,
}

impl<O: Object + Resource<DynamicType = ()>> Watch<O> {
    /// All objects of the kind in the namespaces of the program, and all their changes.
    pub fn new() -> Self {
        Self::of(())
    }
}

impl<O: Object + Resource<DynamicType = ()>> Default for Watch<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O: Object + Resource<DynamicType = ()>> From<Selection> for Watch<O> {
    fn from(selection: Selection) -> Self {
        Self { selection, ..Self::new() }
    }
}

impl<O: Object> Watch<O> {
    /// [`new`](Self::new) for a kind that is known only at run time.
    pub fn of(kind: O::DynamicType) -> Self {
        let (selection, caching) = (Selection::default(), Caching::default());
        Self { kind, selection, caching, predicate: Predicate::always() }
    }

    /// Only objects with these labels, in the syntax of `kubectl --selector`.
    pub fn label_selector(mut self, selector: impl Into<String>) -> Self {
        self.selection.label_selector = Some(selector.into());
        self
    }

    /// Only objects with these fields, in the syntax of `kubectl --field-selector`.
    pub fn field_selector(mut self, selector: impl Into<String>) -> Self {
        self.selection.field_selector = Some(selector.into());
        self
    }

    /// Only objects in these namespaces, whatever namespaces the program looks at.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.selection.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// How the cache is filled, what it keeps, and its indexes.
    pub fn caching(mut self, change: impl FnOnce(Caching<O>) -> Caching<O>) -> Self {
        self.caching = change(self.caching);
        self
    }

    /// The kind may be missing, such as `ServiceMonitor` in a cluster without the Prometheus operator. The program is ready without it, and watches
    /// it once its definition is installed; `/readyz?verbose` says that it is missing. Until then [children](crate::Context::children) of the kind
    /// are skipped: the run does not fail, and it is repeated once the kind is there.
    pub fn optional(mut self) -> Self {
        self.caching = self.caching.optional();
        self
    }

    /// Which updates wake the controller, given the object before and after. A new, a deleted or a recreated object always wakes it.
    pub fn predicate(mut self, predicate: Predicate<O>) -> Self {
        self.predicate = predicate;
        self
    }
}
