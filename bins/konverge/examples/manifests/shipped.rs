//! The files, each with one operator.

use std::error::Error;

use serde_json::{Value, json};

use crate::{
    chart::Chart,
    document::{Labels, NAMED, Renaming, renamed},
};

/// A file with the objects of one part of the chart, under the names of the operator's original.
pub(crate) struct Manifest {
    pub(crate) file: &'static str,
    /// The comment at its head.
    pub(crate) about: &'static str,
    namespace: &'static str,
    /// The program, and the repository of its image.
    program: &'static str,
    account: &'static str,
    /// The name of the part in the values of the chart.
    part: &'static str,
    /// The values of the part.
    values: fn() -> Value,
    labels: Labels,
    objects: &'static [Object],
}

/// An object of a file.
struct Object {
    /// The template of the chart that renders it.
    template: &'static str,
    name: &'static str,
    renamings: &'static [Renaming],
}

impl Manifest {
    /// Renders the objects.
    pub(crate) fn documents(&self, chart: &Chart) -> Result<Vec<String>, Box<dyn Error>> {
        let mut values = json!({
            "fullnameOverride": NAMED,
            "image": { "repository": self.program },
            "serviceAccount": { "name": self.account },
            "roll": { "enabled": false },
        });
        values[self.part] = (self.values)();
        values[self.part]["enabled"] = Value::Bool(true);
        let object = |object: &Object| {
            let documents = chart.render(object.template, self.namespace, &values)?;
            let [document] = documents.as_slice() else {
                return Err(format!("{} has {} objects instead of one", object.template, documents.len()).into());
            };
            renamed(&self.labels.put(document), object.name, object.renamings)
        };
        self.objects.iter().map(object).collect()
    }
}

const DEPLOYMENTS: &str = "templates/deployments.yaml";
const SERVICES: &str = "templates/services.yaml";
const DRAIN: &str = "templates/drain.yaml";

pub(crate) const MANIFESTS: [Manifest; 5] = [PULL, PUSH, PUSH_DRAIN, ROLL, MANAGE];

const PULL: Manifest = Manifest {
    file: "zopp-operator.yaml",
    about: "\
zopp-operator in a cluster. It needs rbac/zopp-operator.yaml, an image of the program, and the credentials:

  kubectl create namespace konverge-system
  zopp principal create operator --service -w acme --credentials-file operator.json
  kubectl create secret generic zopp-operator-credentials -n konverge-system --from-file=config.json=operator.json
  kubectl apply -f deploy/rbac/zopp-operator.yaml -f deploy/zopp-operator.yaml

Change the image and --server. --allow says which namespaces may have which environments: here each namespace the projects of its own name.
Prometheus needs the ClusterRole for readers of metrics; see rbac/zopp-operator.yaml.",
    namespace: "konverge-system",
    program: "zopp-operator",
    account: "zopp-operator",
    part: "pull",
    values: || {
        json!({
            "server": { "address": "https://zopp.example.com" },
            "credentials": { "existingSecret": "zopp-operator-credentials" },
        })
    },
    labels: Labels {
        all: &[("app.kubernetes.io/name", "zopp-operator")],
        selecting: &[("app.kubernetes.io/name", "zopp-operator")],
    },
    objects: &[Object { template: DEPLOYMENTS, name: "zopp-operator", renamings: &[] }],
};

const PUSH: Manifest = Manifest {
    file: "vault-sync-operator.yaml",
    about: "\
vault-sync-operator in a cluster. It needs rbac/vault-sync-operator.yaml, an image of the program, and in Vault a policy
(vault-policy.hcl) and a role for the service account:

  kubectl create namespace vault-sync-operator-system
  vault policy write vault-sync-operator deploy/vault-policy.hcl
  vault auth enable kubernetes
  vault write auth/kubernetes/config kubernetes_host=https://kubernetes.default.svc disable_local_ca_jwt=true \\
    kubernetes_ca_cert=@ca.crt    # that of the cluster, from ConfigMap kube-root-ca.crt
  vault write auth/kubernetes/role/vault-sync-operator policies=vault-sync-operator ttl=1h \\
    bound_service_account_names=vault-sync-operator-controller-manager \\
    bound_service_account_namespaces=vault-sync-operator-system
  kubectl apply -f deploy/rbac/vault-sync-operator.yaml -f deploy/vault-sync-operator.yaml

Change the image and --vault-addr. If an authority of your own signed Vault's certificate, mount the authority's certificate and set VAULT_CACERT to its
file. --allow-path says which namespaces may write where. With --existing=refuse, push leaves paths alone that hold content without a mark of ownership.
To switch from the original, write --existing=adopt, as docs/migrate/vault-sync-operator.md says. The original's Secret
vault-sync-operator-controller-manager-token, a token without an end, is not needed: Vault asks the API server with the token that it is given.

Before it is removed, scale it to 0 and run vault-sync-operator-drain.yaml, or annotated objects cannot be deleted any more.",
    namespace: "vault-sync-operator-system",
    program: "vault-sync-operator",
    account: "vault-sync-operator-controller-manager",
    part: "push",
    values: || json!({ "vault": { "address": "https://vault.example.com:8200" } }),
    labels: Labels {
        all: &[("app.kubernetes.io/name", "vault-sync-operator"), ("control-plane", "controller-manager")],
        selecting: &[("control-plane", "controller-manager")],
    },
    objects: &[
        Object {
            template: DEPLOYMENTS,
            name: "vault-sync-operator-controller-manager",
            renamings: &[("- name: push\n", "- name: manager\n")],
        },
        Object {
            template: SERVICES,
            name: "vault-sync-operator-controller-manager-metrics-service",
            renamings: &[],
        },
    ],
};

const PUSH_DRAIN: Manifest = Manifest {
    file: "vault-sync-operator-drain.yaml",
    about: "\
Takes the finalizer off every object, before vault-sync-operator is removed. The content of Vault stays: drain does not call Vault, so its address
need not be changed here. It waits for the lease of an operator that still runs, up to two minutes, and fails with the name of the pod.

  kubectl scale deployment/vault-sync-operator-controller-manager -n vault-sync-operator-system --replicas=0
  kubectl apply -f deploy/vault-sync-operator-drain.yaml
  kubectl wait job/vault-sync-operator-drain -n vault-sync-operator-system --for=condition=Complete --timeout=180s",
    values: || json!({ "vault": { "address": "https://vault.example.com:8200" }, "drain": true }),
    labels: Labels {
        // Without the label by which the Deployment and the Service select their pods.
        all: &[("app.kubernetes.io/name", "vault-sync-operator")],
        selecting: &[],
    },
    objects: &[Object { template: DRAIN, name: "vault-sync-operator-drain", renamings: &[] }],
    ..PUSH
};

const ROLL: Manifest = Manifest {
    file: "vault-rollout-operator.yaml",
    about: "\
vault-rollout-operator in a cluster. It needs rbac/vault-rollout-operator.yaml and an image of the program:

  kubectl create namespace vault-rollout-operator-system
  kubectl apply -f deploy/rbac/vault-rollout-operator.yaml -f deploy/vault-rollout-operator.yaml

Change the image. --max-concurrent-rollouts and --max-rollouts-per-minute change the budget over all workloads. With --reloader-annotations and
--wave-annotations the operator follows the annotations of those tools. For objects of the kinds VaultSyncStatus and VaultRollout add --vault-addr;
the operator then logs in to Vault by its service account. --allow-path says which namespaces' objects may name which secrets in Vault.
docs/migrate/vaultsyncstatus.md has a patch that keeps the token of the VaultSyncStatus handler. Prometheus needs the ClusterRole for readers of
metrics; see rbac/vault-rollout-operator.yaml. Nothing is to be done before it is removed: it keeps no object from being deleted.",
    namespace: "vault-rollout-operator-system",
    program: "vault-rollout-operator",
    account: "vault-rollout-operator",
    part: "roll",
    // The chart writes this rule only with an address of Vault.
    values: || json!({ "extraArgs": ["--allow-path=*=secret/data/{namespace}/*"] }),
    labels: Labels {
        all: &[("app.kubernetes.io/name", "vault-rollout-operator")],
        selecting: &[("app.kubernetes.io/name", "vault-rollout-operator")],
    },
    objects: &[
        Object {
            template: DEPLOYMENTS,
            name: "vault-rollout-operator",
            renamings: &[("- name: roll\n", "- name: manager\n")],
        },
        Object {
            template: SERVICES,
            name: "vault-rollout-operator-metrics",
            renamings: &[("- name: http\n", "- name: metrics\n")],
        },
    ],
};

const MANAGE: Manifest = Manifest {
    file: "openzro-operator.yaml",
    about: "\
openzro-operator in a cluster. It needs the definitions, the role and the webhooks in openzro/, an image of the program, and a personal access token:

  kubectl create namespace openzro
  kubectl create secret generic openzro-mgmt-api-key -n openzro --from-file=OZ_API_KEY=token.txt
  kubectl apply --server-side -f deploy/openzro/crds.yaml
  kubectl apply -f deploy/openzro/role.yaml -f deploy/openzro/webhooks.yaml -f deploy/openzro-operator.yaml

Change the image and the address of the management server. The token is that of a service user with the role admin. A new token in the Secret is used
without a restart. Before the operator is removed, scale it to 0 and run `openzro-operator drain --runtime-namespace openzro`, or its objects cannot
be deleted any more.",
    namespace: "openzro",
    program: "openzro-operator",
    account: "openzro-operator",
    part: "manage",
    values: || json!({ "managementURL": "https://openzro.example.com" }),
    labels: Labels {
        all: &[("app.kubernetes.io/name", "openzro-operator")],
        selecting: &[("app.kubernetes.io/name", "openzro-operator")],
    },
    objects: &[Object {
        template: DEPLOYMENTS,
        name: "openzro-operator",
        renamings: &[("- name: manage\n", "- name: operator\n")],
    }],
};
