//! The permissions that each job uses with given arguments.

use std::collections::BTreeMap;

use konverge_jobs::Settings;
use konverge_kubectl::{Operator, Permission};

/// Stands for the operator's own namespace.
pub(crate) const HOME: &str = "home";

pub(crate) fn pull(arguments: &[String]) -> Result<Vec<Permission>, clap::Error> {
    let config = konverge_pull::config::Config::of_container(arguments, &BTreeMap::new())?;
    Ok(konverge_pull::plugin::Pull.needed(&config, HOME))
}

pub(crate) fn push(arguments: &[String]) -> Result<Vec<Permission>, clap::Error> {
    let config = konverge_push::config::Config::of_container(arguments, &BTreeMap::new())?;
    Ok(konverge_push::plugin::Push.needed(&config, HOME))
}

pub(crate) fn roll(arguments: &[String]) -> Result<Vec<Permission>, clap::Error> {
    let config = konverge_roll::config::Config::of_container(arguments, &BTreeMap::new())?;
    Ok(konverge_roll::plugin::used(&config, HOME))
}
