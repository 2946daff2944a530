//! Command lines of the original and of ours.

use std::{collections::BTreeMap, time::Duration};

use konverge_core::deletion_guard::DeletionBudget;
use konverge_runtime::telemetry::LogFormat;

use konverge_vault::{KvVersion, Mount, SecretPath};

use super::*;
use crate::{
    object::{Kind, ObjectRef},
    spec::{BinaryPolicy, DeletionPolicy, ExistingPolicy},
};

fn read(arguments: &[&str]) -> Result<Config, clap::Error> {
    let arguments = ["vault-sync-operator"].iter().chain(arguments).map(|&argument| argument.into());
    parse(arguments)
}

fn error(arguments: &[&str]) -> String {
    read(arguments).unwrap_err().to_string()
}

fn port(listen: Listen) -> Option<u16> {
    let Listen::At(address) = listen else { return None };
    Some(address.port())
}

#[test]
fn the_defaults_are_those_of_the_original() {
    let config = read(&[]).unwrap();
    assert_eq!(
        (config.vault.vault_addr.as_str(), config.vault.vault_role.as_str()),
        ("http://vault:8200", "vault-sync-operator")
    );
    assert_eq!(
        (config.vault.auth_path(), config.push.cluster(), config.push.instance.as_deref()),
        ("kubernetes", None, None)
    );
    assert_eq!(port(config.server.metrics_bind_address), Some(8080));
    assert_eq!(port(config.server.health_probe_bind_address), Some(8081));
    assert_eq!((config.server.enable_metrics_auth, config.server.leader_elect, config.version), (true, false, false));
    assert_eq!((config.server.kubeconfig, config.push.namespace), (None, None));
    assert_eq!(config.push.kinds, Kind::ALL);
}

#[test]
fn ours_have_the_defaults_that_are_stated() {
    let config = read(&[]).unwrap();
    assert_eq!((config.task, config.vault.vault_auth_method), (Task::Run, AuthMethod::Kubernetes));
    assert_eq!(config.push.default_deletion_policy, DeletionPolicy::Soft);
    assert_eq!((config.push.existing, config.push.binary), (ExistingPolicy::Adopt, BinaryPolicy::Base64));
    assert_eq!((config.push.deletion_grace, config.push.allow_deletes), (Duration::from_mins(5), false));
    assert_eq!(config.push.deletion_share, 10);
    assert_eq!(config.push.deletion_budget(), Some(DeletionBudget::default()));
    assert_eq!(config.push.finalizer_deadline, Duration::from_mins(15));
    assert_eq!(config.push.terminating_namespace_deadline, Duration::from_mins(1));
    assert_eq!((config.push.workers, config.vault.vault_concurrency.get(), config.vault.vault_rate), (16, 32, None));
    assert_eq!((config.vault.vault_timeout, config.push.allow_path.len()), (Duration::from_mins(1), 0));
    assert_eq!((config.log.format(), config.log.filter()), (LogFormat::Text, None));
}

#[test]
fn the_arguments_of_the_originals_assets() {
    let config = read(&[
        "--vault-addr=https://vault.example:8200",
        "-vault-role",
        "push",
        "--vault-auth-path=kubernetes-one",
        "-cluster-name=one",
        "--leader-elect",
        "--health-probe-bind-address=:8081",
        "--metrics-bind-address=0",
        "--enable-metrics-auth=false",
        "--zap-devel=false",
        "--zap-encoder=json",
        "--zap-log-level=info",
        "--zap-stacktrace-level=error",
        "--zap-time-encoding=iso8601",
        "-kubeconfig",
        "/tmp/config",
    ])
    .unwrap();
    assert_eq!(
        (config.vault.vault_addr.as_str(), config.vault.vault_role.as_str()),
        ("https://vault.example:8200", "push")
    );
    assert_eq!(
        (config.vault.auth_path(), config.push.cluster(), config.push.instance.as_deref()),
        ("kubernetes-one", Some("one"), None)
    );
    assert_eq!((config.server.leader_elect, config.server.enable_metrics_auth), (true, false));
    assert_eq!(
        (port(config.server.metrics_bind_address), port(config.server.health_probe_bind_address)),
        (None, Some(8081))
    );
    assert_eq!(config.log.format(), LogFormat::Json);
    assert!(config.log.filter().unwrap().starts_with("info,"));
    assert_eq!(config.server.kubeconfig, Some("/tmp/config".into()));
}

#[test]
fn switches_as_go_takes_them() {
    for (argument, expected) in [
        ("-leader-elect", Some(true)),
        ("--leader-elect=t", Some(true)),
        ("-leader-elect=TRUE", Some(true)),
        ("-leader-elect=1", Some(true)),
        ("--leader-elect=F", Some(false)),
        ("-leader-elect=0", Some(false)),
        ("-leader-elect=yes", None),
        ("-leader-elect=", None),
    ] {
        assert_eq!(read(&[argument]).ok().map(|config| config.server.leader_elect), expected, "{argument}");
    }
    assert!(!read(&["--leader-elect", "--leader-elect=false"]).unwrap().server.leader_elect, "the last one counts");
    assert_eq!(read(&["--vault-role=a", "-vault-role", "b"]).unwrap().vault.vault_role, "b");
    assert!(error(&["--leader-elect", "false"]).contains("false"), "a word of its own is no value of a switch");
}

#[test]
fn forms_of_the_log() {
    for (arguments, expected) in [
        (&["--zap-devel=true"][..], LogFormat::Text),
        (&["--zap-devel=false"], LogFormat::Json),
        (&["--zap-devel=false", "--zap-encoder=console"], LogFormat::Text),
        (&["--zap-encoder=json"], LogFormat::Json),
        (&["--zap-devel=false", "--log-format=text"], LogFormat::Text),
        (&["--log-format=json"], LogFormat::Json),
    ] {
        assert_eq!(read(arguments).unwrap().log.format(), expected, "{arguments:?}");
    }
}

#[test]
fn each_login_method_has_what_it_needs() {
    assert!(error(&["--vault-auth-method=approle"]).contains("--vault-role-id"));
    assert!(error(&["--vault-auth-method=token"]).contains("--vault-token-file"));
    let token = read(&["--vault-auth-method=token", "--vault-token-file=/token"]).unwrap();
    assert_eq!(token.vault.vault_token_file, Some("/token".into()));
    let role = read(&["--vault-auth-method=approle", "--vault-role-id=id"]).unwrap();
    assert_eq!(role.vault.auth_path(), "approle");
    assert_eq!(read(&["--vault-auth-method=jwt", "--vault-auth-path=oidc"]).unwrap().vault.auth_path(), "oidc");
    assert_eq!(read(&["--vault-auth-method=cert", "--vault-auth-path="]).unwrap().vault.auth_path(), "cert");
    assert!(error(&["--metrics-cert-file=/c"]).contains("--metrics-key-file"));
}

#[test]
fn lists_are_repeated_or_separated_by_commas() {
    let arguments =
        ["--allow-path", "a=secret/data/x,*=kv/{namespace}/*", "-allow-path=c=kv/*", "--kinds=jobs,secrets"];
    let config = read(&arguments).unwrap();
    assert_eq!((config.push.allow_path.len(), config.push.kinds.as_slice()), (3, &[Kind::Job, Kind::Secret][..]));
    let shown = config.to_string();
    assert!(shown.contains("allow-path=a=secret/data/x,*=kv/{namespace}/*,c=kv/* "), "{shown}");
    assert!(shown.contains("kinds=jobs,secrets "), "{shown}");
    assert!(error(&["--allow-path=team-a"]).contains("<namespace>=<path>"));
    assert!(error(&["--kinds=pods"]).contains("deployments"));
}

#[test]
fn the_task_may_stand_anywhere() {
    for arguments in [&["drain", "--leader-elect"][..], &["--leader-elect", "drain"], &["-vault-role", "x", "drain"]] {
        assert_eq!(read(arguments).unwrap().task, Task::Drain, "{arguments:?}");
    }
    assert!(error(&["undo"]).contains("drain"));
}

#[test]
fn the_version_is_printed_as_the_original_does() {
    let line = version_line();
    let rest = line.strip_prefix("vault-sync-operator version ").unwrap();
    assert!(rest.contains(" (commit: ") && rest.contains(", built: ") && rest.ends_with(')'), "{line}");
    assert!(read(&["-version"]).unwrap().version);
    assert!(!read(&["--version=false"]).unwrap().version);
    assert!(error(&["--versions"]).contains("--versions"));
}

#[test]
fn no_password_is_shown() {
    let secrets =
        ["--vault-addr=https://me:hunter2@vault:8200/v1?x@y", "--vault-auth-method=approle", "--vault-role-id=hunter2"];
    let shown = read(&secrets).unwrap().to_string();
    assert!(!shown.contains("hunter2") && shown.contains("vault-addr=https://vault:8200/v1?x@y "), "{shown}");
}

#[test]
fn every_flag_of_ours_has_a_variable() {
    for argument in Config::command().get_arguments().filter(|argument| !argument.is_positional()) {
        let name = argument.get_long().unwrap();
        let expected = !name.starts_with("zap-") && name != "version";
        assert_eq!(argument.get_env().is_some(), expected, "--{name}");
    }
}

fn of_job(line: &str) -> Result<Config, String> {
    Config::of_job("push", line.split(' ').map(OsString::from).collect()).map_err(|error| error.to_string())
}

#[test]
fn among_other_jobs_it_serves_nowhere_unless_it_is_told_to() {
    let config = of_job("push -vault-addr https://vault -leader-elect").unwrap();
    assert_eq!(
        (&*config.vault.vault_addr, config.server.leader_elect, config.server.enable_metrics_auth),
        ("https://vault", true, true)
    );
    assert_eq!(
        (config.server.metrics_bind_address, config.server.health_probe_bind_address),
        (Listen::Nowhere, Listen::Nowhere)
    );
    let config = of_job("push -metrics-bind-address=127.0.0.1:9000").unwrap();
    assert_eq!(
        (port(config.server.metrics_bind_address), config.server.health_probe_bind_address),
        (Some(9000), Listen::Nowhere)
    );
}

#[test]
fn among_other_jobs_some_flags_make_no_sense() {
    for (line, part) in [
        ("push -zap-encoder=json", "--zap-encoder is of the whole process"),
        ("push --log-format json", "--log-format is of the whole process"),
        ("push drain", "run vault-sync-operator drain"),
        ("push --metrics-cert-file a --metrics-key-file b", "needs --metrics-bind-address"),
        ("push --vault-auth-method=approle", "needs --vault-role-id"),
    ] {
        let told = of_job(line).unwrap_err();
        assert!(told.contains(part), "{told}");
    }
    of_job("push --metrics-cert-file a --metrics-key-file b --metrics-bind-address :1").unwrap();
}

#[test]
fn flags_of_a_container_count_before_its_variables() {
    let variables = BTreeMap::from(
        [("VAULT_SYNC_CLUSTER_NAME", "one"), ("VAULT_SYNC_BINARY", "refuse"), ("VAULT_SYNC_ALLOW_PATH", "*=a/*,b=c")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let arguments = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let config = Config::of_container(&arguments("-cluster-name two -leader-elect"), &variables).unwrap();
    assert_eq!(config.push.cluster(), Some("two"));
    assert!(config.server.leader_elect);
    assert_eq!(config.push.binary, BinaryPolicy::Refuse);
    assert_eq!(config.push.allow_path.iter().map(ToString::to_string).collect::<Vec<_>>(), ["*=a/*", "b=c"]);
    let config = Config::of_container(&arguments("--allow-path=x=y"), &variables).unwrap();
    assert_eq!(config.push.allow_path.iter().map(ToString::to_string).collect::<Vec<_>>(), ["x=y"]);
    assert!(Config::of_container(&arguments("--no-such-flag"), &variables).is_err());
}

#[test]
fn a_start_that_the_original_could_not_make_confines_each_namespace() {
    let rules = |config: &Config| config.push.allow_path.iter().map(ToString::to_string).collect::<Vec<_>>();
    let own = ["*=secret/data/{namespace}/*", "*=clusters/{cluster}/secret/data/{namespace}/*"];
    let token = ["--vault-auth-method=token", "--vault-token-file=/token"];
    for (arguments, expected, open) in [
        (&[][..], &[][..], 1),
        (&["--vault-addr=http://vault:8200", "--cluster-name=one", "--existing=adopt"], &[], 1),
        (&token, &own, 0),
        (&["-vault-auth-method", "kubernetes"], &[], 1),
        (&["-vault-auth-method", "jwt"], &own, 0),
        (&["--vault-auth-method=cert", "--allow-path=a=b"], &["a=b"], 0),
        (&["--vault-auth-method=cert", "--allow-path=*=*"], &["*=*"], 0),
    ] {
        let config = read(arguments).unwrap();
        assert_eq!(rules(&config), expected, "{arguments:?}");
        let told = config.push.open().into_iter().filter(|told| told.contains("--allow-path")).count();
        assert_eq!(told, open, "{arguments:?}");
    }
    let container = |variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        rules(&Config::of_container(&[], &variables.collect()).unwrap())
    };
    assert_eq!(container(&[("VAULT_SYNC_VAULT_AUTH_METHOD", "cert")]), own);
    assert_eq!(container(&[("VAULT_SYNC_VAULT_AUTH_METHOD", "")]), [""; 0]);
    assert_eq!(container(&[("VAULT_SYNC_VAULT_AUTH_METHOD", "cert"), ("VAULT_SYNC_ALLOW_PATH", "a=b")]), ["a=b"]);
}

#[test]
fn the_native_rules_allow_the_folder_of_the_namespace_with_and_without_a_cluster() {
    let key = ObjectRef { kind: Kind::Secret, namespace: "shop".to_owned(), name: "db".to_owned() };
    for (cluster, path, expected) in [
        ("", "secret/data/shop/db", true),
        ("", "secret/data/other/db", false),
        ("", "clusters/one/secret/data/shop/db", false),
        ("one", "clusters/one/secret/data/shop/db", true),
        ("one", "clusters/one/secret/data/other/db", false),
        ("one", "clusters/two/secret/data/shop/db", false),
    ] {
        let cluster_name = format!("--cluster-name={cluster}");
        let config = read(&["--vault-auth-method=cert", &cluster_name]).unwrap();
        let mount = path.split("/data/").next().unwrap();
        let location = Mount::new(mount, KvVersion::Two).location(&SecretPath::parse(path).unwrap()).unwrap();
        assert_eq!(config.push.allows(&key, &location), expected, "{cluster} {path}");
    }
}
