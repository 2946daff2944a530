//! A person's own way to openZro.

use std::env;

use konverge::apply::ledger::cluster_uid;
use konverge_core::error::in_one_line;
use konverge_kubectl::{Cluster, Failure, operator_of};
use konverge_version::variables;

use super::Manage;
use crate::{
    account::Account,
    config::{Config, PROGRAM},
    metrics::Metrics,
};

/// Names the management server for the plugin.
const ADDRESS: &str = "OPENZRO_MANAGEMENT_URL";

/// The account of the person's token, which counts as that of the namespace, and the settings of the operator, or the defaults if none is found.
pub(super) async fn own(cluster: &Cluster, namespace: Option<&str>) -> Result<(Account, Config), Failure> {
    let operator = operator_of(&Manage, cluster, &cluster.namespace).await.unwrap_or_else(|failure| {
        eprintln!("warning: the operator's settings count as the defaults: {failure}");
        None
    });
    let settings = operator.map(|operator| operator.config);
    let meanings = settings.as_ref().map(Config::settings);
    let scope = meanings.as_ref().map(|meanings| meanings.scope(namespace)).unwrap_or_default();
    let address = env::var(ADDRESS).ok().filter(|address| !address.trim().is_empty());
    let address = address.or_else(|| meanings.as_ref().map(|meanings| meanings.url(&scope).to_owned()));
    let Some(address) = address else {
        return Err(Failure::Failed(format!(
            "cannot ask openZro: no operator is installed whose address counts; set {ADDRESS} to that of the management server"
        )));
    };
    // The token comes from the variables of the operator, never from the command line.
    let line = [PROGRAM.to_owned(), format!("--openzro-management-url={address}")];
    let person: Config = variables::parse_from(line).map_err(|error| Failure::Usage(error.to_string()))?;
    let account = person.account(&Metrics::default()).map_err(|error| Failure::Failed(in_one_line(&error)))?;
    let account = account.ok_or_else(|| {
        let message = "cannot ask openZro: set OZ_API_KEY_FILE to a file with a personal access token, or OZ_API_KEY to the token";
        Failure::Failed(message.to_owned())
    })?;
    if meanings.is_some_and(|meanings| !meanings.accounts.is_empty()) {
        let whose = if scope.is_empty() { "the operator".to_owned() } else { format!("namespace {scope}") };
        eprintln!("note: {address} is asked as the account of {whose}; your token must be of that account");
    }
    Ok((account.within(&scope), settings.unwrap_or(person)))
}

/// The name of the cluster in marks: that of the operator's settings, or else the uid of its namespace `kube-system`.
pub(super) async fn cluster_name(cluster: &Cluster, config: &Config) -> Result<String, Failure> {
    if let Some(name) = &config.cluster_id {
        return Ok(name.clone());
    }
    let uid = cluster_uid(&cluster.client).await;
    uid.map_err(|error| Failure::of("get namespace kube-system, whose uid is in this cluster's marks", &error))
}
