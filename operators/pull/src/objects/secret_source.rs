//! `SecretSource` and `ClusterSecretSource`, the custom resources that are connections to stores.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]
#![allow(rustdoc::bare_urls, reason = "descriptions are read in `kubectl explain`, where angle brackets are noise")]

use std::collections::BTreeMap;

use konverge::Status;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::secret_pull::interval;

/// A connection to one store, with an identity of this namespace.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "konverge.dev",
    version = "v1alpha1",
    kind = "SecretSource",
    plural = "secretsources",
    shortname = "ssrc",
    category = "konverge",
    namespaced,
    status = "Status",
    doc = "A connection to zopp, Vault or OpenBao with credentials of this namespace. A SecretPull of the namespace names it.",
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.vault) != has(self.zopp)").message("give either vault or zopp"))]
pub struct SecretSourceSpec {
    /// Vault or OpenBao.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault: Option<VaultSpec>,
    /// A zopp server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zopp: Option<ZoppSpec>,
}

/// A connection to one store for several namespaces, with an identity of the platform.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "konverge.dev",
    version = "v1alpha1",
    kind = "ClusterSecretSource",
    plural = "clustersecretsources",
    shortname = "cssrc",
    category = "konverge",
    status = "Status",
    doc = "A connection to zopp, Vault or OpenBao with credentials of the platform. A SecretPull of the selected namespaces names it.",
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.vault) != has(self.zopp)").message("give either vault or zopp"))]
#[x_kube(validation = Rule::new("has(self.namespaces) || has(self.namespaceSelector)")
    .message("say who may use it: give namespaces, namespaceSelector or both; namespaces: ['*'] admits all"))]
pub struct ClusterSecretSourceSpec {
    /// The names of the namespaces whose SecretPulls may use it. A * in a name matches any characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub namespaces: Option<Vec<String>>,
    /// Further namespaces that may use it, by their labels. Looked at each minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<NamespaceSelector>,
    /// The namespace of the Secrets and ServiceAccounts that are named below.
    #[schemars(length(min = 1, max = 63))]
    pub credentials_namespace: String,
    /// Vault or OpenBao.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault: Option<VaultSpec>,
    /// A zopp server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zopp: Option<ZoppSpec>,
}

/// Namespaces by their labels.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// The labels that a namespace must have, each with this value.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 32))]
    pub match_labels: BTreeMap<String, String>,
}

/// Vault or OpenBao, and how to log in to it.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.caBundle) && has(self.caSecret))").message("give either caBundle or caSecret"))]
pub struct VaultSpec {
    /// The address, such as https://vault.vault.svc:8200.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://[^/@]+/?$"))]
    pub address: String,
    /// The namespace of Vault Enterprise or OpenBao to log in to and to read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub namespace: Option<String>,
    /// The authorities that have signed the certificate of the server, in PEM, besides those of the operator's system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 262_144))]
    pub ca_bundle: Option<String>,
    /// The same in a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<SecretKey>,
    /// The HTTP or SOCKS 5 proxy, such as http://proxy:3128. Default: that of the operator's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub proxy: Option<String>,
    /// The interval between two requests for one path, such as 30s. It is at least 10s. A change reaches the Secret within this time and a second. Default: 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "interval")]
    pub interval: Option<String>,
    /// How to log in.
    pub login: LoginSpec,
}

/// How to log in to Vault.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.kubernetes), has(self.jwt), has(self.appRole), has(self.certificate), has(self.token)].filter(given, given).size() == 1")
    .message("give exactly one of kubernetes, jwt, appRole, certificate and token"))]
pub struct LoginSpec {
    /// By a ServiceAccount, whose token Vault reviews at the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesLogin>,
    /// By a ServiceAccount, whose token Vault checks by the keys of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt: Option<JwtLogin>,
    /// By the ID of a role and a secret ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_role: Option<AppRoleLogin>,
    /// By a client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateLogin>,
    /// With a token in a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretKey>,
}

/// A login by a ServiceAccount. The operator requests a token of 10 minutes for it at each login.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesLogin {
    /// The ServiceAccount.
    #[schemars(length(min = 1, max = 253))]
    pub service_account: String,
    /// The role in Vault.
    #[schemars(length(min = 1, max = 512))]
    pub role: String,
    /// Where the method is mounted in Vault, without auth/. Default: kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub mount: Option<String>,
    /// The audiences of the token. Default: those of the API server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub audiences: Vec<String>,
}

/// A login by a ServiceAccount. The operator requests a token of 10 minutes for it at each login.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwtLogin {
    /// The ServiceAccount.
    #[schemars(length(min = 1, max = 253))]
    pub service_account: String,
    /// The role in Vault. Default: the default role of the method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub role: Option<String>,
    /// Where the method is mounted in Vault, without auth/. Default: jwt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub mount: Option<String>,
    /// The audiences of the token. Default: those of the API server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub audiences: Vec<String>,
}

/// A login by the ID of a role and a secret ID.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppRoleLogin {
    /// The ID of the role.
    #[schemars(length(min = 1, max = 512))]
    pub role_id: String,
    /// The secret ID.
    pub secret_id: SecretKey,
    /// Where the method is mounted in Vault, without auth/. Default: approle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub mount: Option<String>,
}

/// A login by a client certificate.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateLogin {
    /// The Secret with the certificate in tls.crt and its key in tls.key.
    #[schemars(length(min = 1, max = 253))]
    pub secret: String,
    /// The role in Vault. Default: any that the certificate fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub role: Option<String>,
    /// Where the method is mounted in Vault, without auth/. Default: cert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub mount: Option<String>,
}

/// A zopp server, and the principal that reads from it.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.caBundle) && has(self.caSecret))").message("give either caBundle or caSecret"))]
pub struct ZoppSpec {
    /// The address, such as https://zopp.zopp.svc:50051.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://[^/@]+/?$"))]
    pub address: String,
    /// The credentials file of a principal, as zopp keeps it in ~/.zopp/config.json. Its private keys must not be encrypted.
    pub credentials: SecretKey,
    /// The authorities that have signed the certificate of the server, in PEM, instead of those of the operator's system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 262_144))]
    pub ca_bundle: Option<String>,
    /// The same in a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<SecretKey>,
    /// The fingerprints of workspaces' keys, by the names of the workspaces, as zopp workspace fingerprint shows them. They precede those of the
    /// credentials file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub workspace_fingerprints: BTreeMap<String, String>,
    /// Whether the operator trusts the first key that the server sends for a workspace without a pin.
    #[serde(default)]
    pub trust_first_key: bool,
    /// Whether an environment without a manifest is refused.
    #[serde(default)]
    pub require_manifest: bool,
}

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// The Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}
