//! The finalizers of a controller: the one that it sets now, and those of earlier releases.

use kube::Resource;

/// The finalizers that a controller declares, in any order.
#[derive(Debug, Default)]
pub(crate) struct DeclaredFinalizers {
    current: Option<&'static str>,
    is_on_demand: bool,
    former: Vec<&'static str>,
}

impl DeclaredFinalizers {
    pub(crate) fn set(&mut self, name: &'static str, is_on_demand: bool) {
        (self.current, self.is_on_demand) = (Some(name), is_on_demand);
    }

    /// Adds one that an earlier release used.
    pub(crate) fn add_former(&mut self, name: &'static str) {
        self.former.push(name);
    }

    /// All names, also those of a controller that has no current one any more.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.former.iter().copied().chain(self.current).collect();
        names.dedup();
        names
    }

    /// How the controller holds objects; `None` if it holds none.
    pub(crate) fn in_force(&self) -> Option<Finalizers> {
        let (is_on_demand, former) = (self.is_on_demand, self.former.clone());
        self.current.map(|name| Finalizers { name, is_on_demand, former })
    }
}

/// How a controller holds objects that are being deleted.
#[derive(Debug, Clone)]
pub(crate) struct Finalizers {
    /// The finalizer that objects get.
    pub(crate) name: &'static str,
    /// Whether objects get it only when a run asks for it.
    pub(crate) is_on_demand: bool,
    /// Names that earlier releases used. They are removed.
    pub(crate) former: Vec<&'static str>,
}

impl Finalizers {
    /// Whether the object is held by any of them.
    pub(crate) fn hold<K: Resource>(&self, object: &K) -> bool {
        self.names().any(|name| has(object, name))
    }

    /// Whether a run begins by adding the finalizer. An object that an earlier release holds has something to clean up.
    pub(crate) fn is_due<K: Resource>(&self, object: &K) -> bool {
        !self.is_on_demand || self.former.iter().any(|name| has(object, name))
    }

    /// All names, the current one last: as long as it is there, the object stays.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.former.iter().copied().chain([self.name])
    }
}

fn has<K: Resource>(object: &K, name: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|found| found == name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn an_object_is_held_by_current_and_former_names_and_the_finalizer_is_due_when_there_is_something_to_clean_up() {
        let object = |finalizers: &[&str]| {
            let mut object = ConfigMap::default();
            object.metadata.finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
            object
        };
        let at_once = Finalizers { name: "new/x", is_on_demand: false, former: vec!["old/x"] };
        let on_demand = Finalizers { is_on_demand: true, ..at_once.clone() };
        for (finalizers, is_held, is_due) in [
            (&[][..], false, false),
            (&["other/x"], false, false),
            (&["new/x"], true, false),
            (&["other/x", "old/x"], true, true),
        ] {
            let object = object(finalizers);
            assert_eq!((on_demand.hold(&object), on_demand.is_due(&object)), (is_held, is_due), "{finalizers:?}");
            assert!(at_once.is_due(&object) && at_once.hold(&object) == is_held);
        }
        assert_eq!(at_once.names().collect::<Vec<_>>(), ["old/x", "new/x"]);
    }
}
