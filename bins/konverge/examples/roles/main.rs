//! Writes the roles in `deploy/rbac` from the permissions that each operator's code names. With `--check` it writes nothing, and fails if a file differs.
//! `cargo xtask generate` runs it.

mod manifest;
mod purposes;
#[path = "../chart/uses.rs"]
mod uses;

use std::error::Error;

use clap::Parser;
use konverge_gen::{Files, files::Destination};

use manifest::{Grants, Manifest, Metrics, Names};
use purposes::{OF_PULL, OF_PUSH, OF_ROLL};

fn main() -> Result<(), Box<dyn Error>> {
    let destination = Destination::parse();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let pull = uses::pull(&words("--leader-elect --enable-metrics-auth"))?;
    let push = uses::push(&words("--leader-elect --enable-metrics-auth=true"))?;
    let roll = uses::roll(&words("--leader-elect --enable-metrics-auth --vault-addr=https://vault"))?;
    let mut files = Files::default();
    for manifest in [
        Manifest { names: PULL, grants: vec![Grants::new(&pull, &OF_PULL)] },
        Manifest { names: PUSH, grants: vec![Grants::new(&push, &OF_PUSH)] },
        Manifest { names: ROLL, grants: vec![Grants::new(&roll, &OF_ROLL)] },
        Manifest {
            names: ALL,
            // The manifests of the single operators explain the rules.
            grants: [("pull", &pull, PULL), ("push", &push, PUSH), ("roll", &roll, ROLL)]
                .map(|(job, uses, names)| Grants::of_job(job, names.program, uses))
                .into(),
        },
    ] {
        files.text(format!("{}.yaml", manifest.names.program), manifest.text()?);
    }
    Ok(destination.put(&files)?)
}

const PULL: Names = Names {
    program: "zopp-operator",
    about: "The permissions of zopp-operator, and nothing more. A test runs every scenario under exactly this.",
    confined: "To confine it to one namespace, make the ClusterRole a Role and the ClusterRoleBinding a RoleBinding there, and start the\n\
               operator with --namespace.",
    namespace: "konverge-system",
    account: "zopp-operator",
    everywhere: "zopp-operator",
    tokens: Some("zopp-operator-auth"),
    metrics: Some(Metrics { role: "zopp-operator-metrics-reader", url: "/metrics" }),
    at_home: "zopp-operator-leader-election",
    home: "Only used with --leader-elect; in the namespace the operator runs in.",
};

const PUSH: Names = Names {
    program: "vault-sync-operator",
    about: "The permissions of vault-sync-operator, and nothing more. Names are those of danieldonoghue/vault-sync-operator, so a login role in Vault\n\
            that is bound to its service account goes on working.",
    confined: "To confine it to one namespace, make the first ClusterRole a Role and its binding a RoleBinding there, and start the operator\n\
               with --namespace. Besides create and delete it needs list on Secrets in its own namespace, then.",
    namespace: "vault-sync-operator-system",
    account: "vault-sync-operator-controller-manager",
    everywhere: "vault-sync-operator-manager-role",
    tokens: Some("vault-sync-operator-auth-role"),
    metrics: Some(Metrics { role: "vault-sync-operator-metrics-reader", url: "/metrics" }),
    at_home: "vault-sync-operator-own-namespace",
    home: "In the namespace the operator runs in.",
};

const ROLL: Names = Names {
    program: "vault-rollout-operator",
    about: "The permissions of vault-rollout-operator, and nothing more.",
    confined: "To confine it to one namespace, make the ClusterRole a Role and its binding a RoleBinding there, and start the operator\n\
               with --namespace.",
    namespace: "vault-rollout-operator-system",
    account: "vault-rollout-operator",
    everywhere: "vault-rollout-operator",
    tokens: Some("vault-rollout-operator-auth"),
    metrics: Some(Metrics { role: "vault-rollout-operator-metrics-reader", url: "/metrics" }),
    at_home: "vault-rollout-operator",
    home: "In the namespace the operator runs in.",
};

const ALL: Names = Names {
    program: "konverge",
    about: "The permissions of `konverge run` with the jobs pull, push and roll: those of the three programs, and nothing more.",
    confined: "A job that does not run needs nothing: leave out the rules beneath its name. To confine all to one namespace, make the first ClusterRole\n\
               a Role and its binding a RoleBinding there, and give each job --namespace; rbac/vault-sync-operator.yaml says what push needs besides.",
    namespace: "konverge-system",
    account: "konverge",
    everywhere: "konverge",
    tokens: Some("konverge-auth"),
    metrics: Some(Metrics { role: "konverge-metrics-reader", url: "/metrics/*" }),
    at_home: "konverge",
    home: "In the namespace that the process runs in.",
};
