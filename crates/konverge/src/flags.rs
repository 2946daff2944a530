//! The flags that an author adds to a program, and the way of their values to its parts.

#[cfg(feature = "cli")]
mod declared;

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::Arc,
};

#[cfg(feature = "cli")]
pub(crate) use clap::Args;
// In a build without a command line, settings are plain structs.
#[cfg(not(feature = "cli"))]
pub(crate) use konverge_macros::NoArgs as Args;

/// The declared flags of a program, and their values once the command line is read.
#[derive(Clone, Default)]
pub(crate) struct Flags {
    #[cfg(feature = "cli")]
    declared: Vec<declared::Declared>,
    values: HashMap<TypeId, Value>,
}

type Value = Arc<dyn Any + Send + Sync>;

impl Flags {
    pub(crate) fn set<F: Send + Sync + 'static>(&mut self, values: F) {
        self.values.insert(TypeId::of::<F>(), Arc::new(values));
    }

    pub(crate) fn get<F: 'static>(&self) -> Option<&F> {
        self.values.get(&TypeId::of::<F>())?.downcast_ref()
    }
}
