//! Flags as clap reads them.

use std::{any::TypeId, collections::hash_map::Entry, sync::Arc};

use clap::{ArgMatches, Args, Command};

use super::{Flags, Value};

/// A group of flags.
#[derive(Clone, Copy)]
pub(super) struct Declared {
    id: fn() -> TypeId,
    augment: fn(Command) -> Command,
    read: fn(&ArgMatches) -> Result<Value, clap::Error>,
}

impl Flags {
    pub(crate) fn declare<F: Args + Send + Sync + 'static>(&mut self) {
        self.declared.push(Declared {
            id: TypeId::of::<F>,
            augment: |command| F::augment_args(command),
            read: |matches| Ok(Arc::new(F::from_arg_matches(matches)?)),
        });
    }

    /// Adds them to a command line.
    pub(crate) fn augment(&self, command: Command) -> Command {
        self.declared.iter().fold(command, |command, declared| (declared.augment)(command))
    }

    /// Takes their values from a command line.
    pub(crate) fn read(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for declared in &self.declared {
            self.values.insert((declared.id)(), (declared.read)(matches)?);
        }
        Ok(())
    }

    /// Gives those without values what they have where no flag is given: their defaults, or the variables of the environment.
    pub(crate) fn fill(&mut self) -> Result<(), clap::Error> {
        for declared in &self.declared {
            if let Entry::Vacant(entry) = self.values.entry((declared.id)()) {
                let command = (declared.augment)(Command::new("flags"));
                let matches = command.try_get_matches_from(["flags"])?;
                entry.insert((declared.read)(&matches)?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Operator;

    #[derive(clap::Args)]
    struct Required {
        /// Where the store is
        #[arg(long)]
        store: String,
    }

    #[test]
    fn a_required_flag_is_required_to_run_and_not_to_generate() {
        let command = || crate::operator::command(&Operator::new("test", "0").flags::<Required>());
        assert!(command().try_get_matches_from(["test"]).is_err());
        assert!(command().try_get_matches_from(["test", "generate"]).is_ok());
        let mut flags = crate::flags::Flags::default();
        flags.declare::<Required>();
        assert!(flags.fill().is_err(), "there is no default");
        flags.read(&command().try_get_matches_from(["test", "--store=here"]).unwrap()).unwrap();
        assert_eq!(flags.get::<Required>().unwrap().store, "here");
        assert!(flags.fill().is_ok(), "values are kept");
    }
}
