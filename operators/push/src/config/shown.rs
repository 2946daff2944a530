//! The settings in force, in one line for the log.

use std::{
    fmt::{self, Display},
    path::PathBuf,
};

use super::{AuthMethod, Config};

/// There is no secret among them: credentials are names of files or are not shown.
impl fmt::Display for Config {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Taken apart so that a new setting is not forgotten here.
        let Self {
            task,
            vault_addr,
            vault_role,
            vault_auth_path: _,
            vault_auth_method,
            vault_token_file,
            vault_role_id: _,
            vault_secret_id_file,
            vault_jwt_file,
            vault_timeout,
            vault_rate,
            vault_concurrency,
            cluster_name: _,
            instance,
            namespace,
            kinds,
            allow_path,
            default_deletion_policy,
            existing,
            binary,
            finalizer_deadline,
            terminating_namespace_deadline,
            workers,
            metrics_bind_address,
            enable_metrics_auth,
            metrics_cert_file,
            metrics_key_file: _,
            health_probe_bind_address,
            leader_elect,
            kubeconfig,
            log_format: _,
            zap_encoder: _,
            zap_devel: _,
            zap_log_level: _,
            zap_stacktrace_level: _,
            zap_time_encoding: _,
            version: _,
        } = self;
        let task = format!("{task:?}").to_lowercase();
        write!(formatter, "task={task} vault-addr={} ", without_user(vault_addr))?;
        write!(formatter, "vault-auth-method={} ", vault_auth_method.name())?;
        match vault_auth_method {
            AuthMethod::Token => write!(formatter, "vault-token-file={} ", path(vault_token_file.as_ref()))?,
            AuthMethod::AppRole => {
                let file = path(vault_secret_id_file.as_ref());
                write!(formatter, "vault-auth-path={} vault-secret-id-file={file} ", self.auth_path())?;
            }
            AuthMethod::Kubernetes | AuthMethod::Jwt | AuthMethod::Cert => {
                let file = path(vault_jwt_file.as_ref());
                write!(
                    formatter,
                    "vault-auth-path={} vault-role={vault_role} vault-jwt-file={file} ",
                    self.auth_path()
                )?;
            }
        }
        let rate = vault_rate.map_or("default".to_owned(), |rate| rate.to_string());
        write!(formatter, "vault-timeout={}s vault-rate={rate} ", vault_timeout.as_secs_f64())?;
        write!(formatter, "vault-concurrency={vault_concurrency} ")?;
        write!(
            formatter,
            "cluster-name={} instance={} ",
            self.cluster().unwrap_or("none"),
            instance.as_deref().unwrap_or("of the cluster")
        )?;
        write!(formatter, "namespace={} ", namespace.as_deref().unwrap_or("all"))?;
        write!(formatter, "kinds={} ", list(kinds.iter().map(|kind| kind.plural()), "none"))?;
        write!(formatter, "allow-path={} ", list(allow_path, "everything"))?;
        write!(formatter, "default-deletion-policy={default_deletion_policy} existing={existing} binary={binary} ")?;
        write!(formatter, "finalizer-deadline={}s ", finalizer_deadline.as_secs_f64())?;
        let deadline = terminating_namespace_deadline.as_secs_f64();
        write!(formatter, "terminating-namespace-deadline={deadline}s workers={workers} ")?;
        write!(formatter, "metrics-bind-address={metrics_bind_address} enable-metrics-auth={enable_metrics_auth} ")?;
        write!(formatter, "metrics-cert-file={} ", path(metrics_cert_file.as_ref()))?;
        write!(formatter, "health-probe-bind-address={health_probe_bind_address} leader-elect={leader_elect} ")?;
        let form = self.log_format().as_str();
        write!(formatter, "kubeconfig={} log-format={form}", path(kubeconfig.as_ref()))
    }
}

fn path(path: Option<&PathBuf>) -> String {
    path.map_or("default".to_owned(), |path| path.display().to_string())
}

fn list<T: Display>(items: impl IntoIterator<Item = T>, none: &str) -> String {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { none.to_owned() } else { items.join(",") }
}

/// An address may hold a user and a password, which are for nobody to read.
fn without_user(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rfind('@').map_or(rest, |at| &rest[at + 1..]);
    if scheme.is_empty() { host.to_owned() } else { format!("{scheme}://{host}") }
}
