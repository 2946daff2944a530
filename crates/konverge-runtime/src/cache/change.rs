//! A change of one object, and predicates that choose changes.

use std::sync::Arc;

use kube::Resource;

/// A change of one object, as a cache shows it. At least one of the two sides is there.
#[derive(Debug)]
#[non_exhaustive]
pub struct Change<K> {
    /// The object before, or `None` if the cache did not have it.
    pub old: Option<Arc<K>>,
    /// The object now, or `None` if it is gone.
    pub new: Option<Arc<K>>,
    /// Whether a list showed the change, and not an event of a watch. So it is for the end of an object that could not be decoded: in both cases
    /// `old` may not be its last state.
    pub listed: bool,
}

// Derived, it would ask for `K: Clone`.
impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        Self { old: self.old.clone(), new: self.new.clone(), listed: self.listed }
    }
}

/// A predicate that chooses the updates that cause a run. A new object, a deletion and its beginning always do.
pub struct Predicate<K>(Arc<Matters<K>>);

/// Given the object before and after.
type Matters<K> = dyn Fn(&K, &K) -> bool + Send + Sync;

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Predicate<K> {
    /// Chooses the updates for which `matters` returns true, given the object before and after.
    pub fn new(matters: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(matters))
    }

    /// Chooses every update.
    pub fn always() -> Self {
        Self::new(|_, _| true)
    }

    /// Chooses the updates that both predicates choose.
    #[must_use]
    pub fn and(self, other: Self) -> Self
    where
        K: 'static,
    {
        Self::new(move |old, new| (self.0)(old, new) && (other.0)(old, new))
    }

    /// Chooses the updates that at least one of both predicates chooses.
    #[must_use]
    pub fn or(self, other: Self) -> Self
    where
        K: 'static,
    {
        Self::new(move |old, new| (self.0)(old, new) || (other.0)(old, new))
    }

    /// Chooses the updates that `self` does not choose.
    #[must_use]
    pub fn negated(self) -> Self
    where
        K: 'static,
    {
        Self::new(move |old, new| !(self.0)(old, new))
    }
}

impl<K: Resource> Predicate<K> {
    /// Chooses updates of the generation, which counts changes of the spec. Where a kind has no generations, chooses every update.
    pub fn generation() -> Self {
        Self::new(|old, new| match (old.meta().generation, new.meta().generation) {
            (Some(before), Some(after)) => before != after,
            _ => old.meta().resource_version != new.meta().resource_version,
        })
    }

    /// Chooses updates of labels.
    pub fn labels() -> Self {
        Self::new(|old, new| old.meta().labels != new.meta().labels)
    }

    /// Chooses updates of annotations.
    pub fn annotations() -> Self {
        Self::new(|old, new| old.meta().annotations != new.meta().annotations)
    }

    /// Chooses updates of finalizers.
    pub fn finalizers() -> Self {
        Self::new(|old, new| old.meta().finalizers != new.meta().finalizers)
    }
}

impl<K: Resource + 'static> Predicate<K> {
    /// Chooses every update except of the status alone: the default of a controller for its own kind.
    pub fn meaningful() -> Self {
        Self::generation().or(Self::labels()).or(Self::annotations()).or(Self::finalizers())
    }

    /// Returns whether this change causes a run.
    pub fn admits(&self, change: &Change<K>) -> bool {
        let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
        let (before, after) = (old.meta(), new.meta());
        before.uid != after.uid || before.deletion_timestamp != after.deletion_timestamp || (self.0)(old, new)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    use super::*;

    fn object(change: impl FnOnce(&mut ConfigMap)) -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.uid = Some("1".to_owned());
        object.metadata.generation = Some(1);
        object.metadata.resource_version = Some("1".to_owned());
        change(&mut object);
        Arc::new(object)
    }

    fn update(change: impl FnOnce(&mut ConfigMap)) -> Change<ConfigMap> {
        Change { old: Some(object(|_| {})), new: Some(object(change)), listed: false }
    }

    #[test]
    fn a_change_of_the_status_alone_does_not_matter() {
        let meaningful = Predicate::meaningful();
        let status = update(|object| object.metadata.resource_version = Some("2".to_owned()));
        assert!(!meaningful.admits(&status));
        assert!(Predicate::always().admits(&status));
        assert!(meaningful.admits(&update(|object| object.metadata.generation = Some(2))));
        assert!(meaningful.admits(&update(|object| object.metadata.labels = Some([].into()))));
        assert!(meaningful.admits(&update(|object| object.metadata.annotations = Some([].into()))));
        assert!(meaningful.admits(&update(|object| object.metadata.finalizers = Some(vec![]))));
        assert!(meaningful.admits(&update(|object| {
            object.metadata.generation = None;
            object.metadata.resource_version = Some("2".to_owned());
        })));
    }

    #[test]
    fn coming_and_going_always_matter() {
        let never = Predicate::always().negated();
        assert!(never.admits(&Change { old: None, new: Some(object(|_| {})), listed: true }));
        assert!(never.admits(&Change { old: Some(object(|_| {})), new: None, listed: false }));
        assert!(never.admits(&update(|object| object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)))));
        assert!(never.admits(&update(|object| object.metadata.uid = Some("2".to_owned()))));
        assert!(!never.admits(&update(|_| {})));
    }

    #[test]
    fn predicates_are_put_together() {
        let (yes, no) = (Predicate::<ConfigMap>::always, || Predicate::always().negated());
        let change = update(|_| {});
        for (expected, predicate) in
            [(true, yes().and(yes())), (false, yes().and(no())), (true, no().or(yes())), (false, no().or(no()))]
        {
            assert_eq!(predicate.admits(&change), expected);
        }
    }
}
