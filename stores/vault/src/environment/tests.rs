//! Variables as manifests set them.

use super::*;
use crate::client::Vault;

/// The changes that flags make to the defaults.
type Change = fn(&mut Flags);

/// Nothing but the address is given.
fn usual(_: &mut Flags) {}

fn read(variables: &[(&str, &str)]) -> Result<VaultEnvironment, EnvironmentError> {
    VaultEnvironment::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
}

fn flags(change: Change) -> Flags {
    let mut flags = Flags {
        address: "https://vault".to_owned(),
        address_from: "--vault-addr",
        method: AuthMethod::Kubernetes,
        mount: "kubernetes".to_owned(),
        role: "operator".to_owned(),
        token_file: None,
        role_id: None,
        secret_id_file: None,
        jwt_file: None,
        timeout: Duration::from_mins(1),
        rate: None,
        concurrency: NonZeroUsize::MIN,
        follow_redirects: false,
    };
    change(&mut flags);
    flags
}

fn configured(variables: &[(&str, &str)], change: Change) -> Result<(VaultConfig, Vec<String>), EnvironmentError> {
    let access = read(variables)?.access(&flags(change))?;
    Ok((access.vault, access.warnings))
}

/// The only thing that is warned of.
#[track_caller]
fn warning(variables: &[(&str, &str)], change: Change) -> String {
    let (_, warnings) = configured(variables, change).unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    warnings[0].clone()
}

#[track_caller]
fn failure(variables: &[(&str, &str)], change: Change) -> String {
    konverge_core::error::in_one_line(&configured(variables, change).err().unwrap())
}

#[test]
fn nothing_set_is_nothing_to_tell() {
    for variables in [&[][..], &[("VAULT_CACERT", ""), ("VAULT_SKIP_VERIFY", " "), ("VAULT_NAMESPACE", "/")]] {
        let environment = read(variables).unwrap();
        assert_eq!(environment.tls, TlsSettings::default());
        assert!(environment.namespace.is_none() && environment.agent.is_none() && environment.proxy.is_none());
        assert_eq!(configured(variables, usual).unwrap().1, [""; 0]);
    }
}

#[test]
fn certificates() {
    let all = [("VAULT_CACERT", "/ca.crt"), ("VAULT_CACERT_BYTES", "pem"), ("VAULT_CAPATH", "/cas")];
    let only = |authorities: Option<&str>, text: Option<&str>| {
        TlsSettings::default().with(|tls| {
            tls.authorities = authorities.map(Into::into);
            tls.authorities_text = text.map(str::to_owned);
            tls.without_system = true;
        })
    };
    for (variables, expected, ignored) in [
        (&all[..], only(Some("/ca.crt"), None), &["VAULT_CACERT_BYTES", "VAULT_CAPATH"][..]),
        (&all[1..], only(None, Some("pem")), &["VAULT_CAPATH"]),
        (&all[2..], only(Some("/cas"), None), &[]),
    ] {
        let environment = read(variables).unwrap();
        assert_eq!(environment.tls, expected);
        let told: Vec<_> = environment.warnings.iter().filter_map(|warning| warning.split(' ').next()).collect();
        assert_eq!(told, ignored);
    }
    let pair =
        read(&[("VAULT_CLIENT_CERT", "/c"), ("VAULT_CLIENT_KEY", "/k"), ("VAULT_TLS_SERVER_NAME", "v")]).unwrap();
    assert_eq!(pair.tls.client, Some(("/c".into(), "/k".into())));
    assert_eq!((pair.tls.server_name.as_deref(), pair.tls.without_system), (Some("v"), false));
    for half in ["VAULT_CLIENT_CERT", "VAULT_CLIENT_KEY"] {
        assert!(failure(&[(half, "/x")], usual).contains(&format!("only {half} is set")));
    }
}

#[test]
fn what_is_dangerous_or_without_effect_is_told() {
    for (variable, value, told) in [
        ("VAULT_SKIP_VERIFY", "1", "not checked"),
        ("VAULT_AGENT_ADDR", "https://agent", "go there"),
        ("VAULT_AGENT_ADDR", "http://127.0.0.1:8100", "go there"),
        ("VAULT_MAX_RETRIES", "5", "VAULT_MAX_RETRIES has no effect"),
        ("VAULT_WRAP_TTL", "60s", "VAULT_WRAP_TTL has no effect"),
        ("VAULT_MFA", "x", "VAULT_MFA has no effect"),
        ("VAULT_SRV_LOOKUP", "true", "VAULT_SRV_LOOKUP has no effect"),
        ("VAULT_DISABLE_REDIRECTS", "true", "VAULT_DISABLE_REDIRECTS has no effect"),
        ("VAULT_RATE_LIMIT", "0.5", "rounded"),
        ("VAULT_TOKEN", "hunter2", "VAULT_TOKEN has no effect"),
    ] {
        let warning = warning(&[(variable, value)], usual);
        assert!(warning.contains(told) && !warning.contains("hunter2"), "{variable}: {warning}");
    }
    let plain = warning(&[], |flags| flags.address = "http://vault:8200".to_owned());
    assert!(plain.contains("--vault-addr is an address without TLS") && plain.contains("https://"), "{plain}");
    assert!(read(&[("VAULT_SKIP_VERIFY", "true")]).unwrap().tls.trust_anybody);
}

#[test]
fn what_cannot_be_understood_is_an_error() {
    for (variable, value) in [
        ("VAULT_SKIP_VERIFY", "yes"),
        ("VAULT_SRV_LOOKUP", "yes"),
        ("VAULT_DISABLE_REDIRECTS", "2"),
        ("VAULT_RATE_LIMIT", "many"),
        ("VAULT_NAMESPACE", "a/../b"),
        ("VAULT_PROXY_ADDR", "proxy:3128"),
        ("VAULT_HTTP_PROXY", "socks4://proxy"),
        ("VAULT_AGENT_ADDR", "unix:///run/agent.sock"),
    ] {
        assert!(failure(&[(variable, value)], usual).contains(variable), "{variable}");
    }
    assert!(failure(&[], |flags| flags.address = "vault:8200".to_owned()).contains("--vault-addr"));
    assert!(failure(&[], |flags| flags.mount = "a/../b".to_owned()).contains("--vault-auth-path"));
    let password = failure(&[("VAULT_PROXY_ADDR", "socks4://me:hunter2@proxy")], usual);
    assert!(!password.contains("hunter2"), "{password}");
}

#[test]
fn logins() {
    assert!(failure(&[], |flags| flags.method = AuthMethod::Cert).contains("VAULT_CLIENT_CERT"));
    let pair = [("VAULT_CLIENT_CERT", "/c"), ("VAULT_CLIENT_KEY", "/k")];
    assert_eq!(configured(&pair, |flags| flags.method = AuthMethod::Cert).unwrap().1, [""; 0]);
    assert!(failure(&[], |flags| flags.method = AuthMethod::Token).contains("VAULT_TOKEN"));
    assert_eq!(configured(&[("VAULT_TOKEN", "t")], |flags| flags.method = AuthMethod::Token).unwrap().1, [""; 0]);
    let file: Change = |flags| {
        flags.method = AuthMethod::Token;
        flags.token_file = Some("/t".into());
    };
    assert_eq!(configured(&[], file).unwrap().1, [""; 0]);
    assert!(warning(&[("VAULT_TOKEN", "t")], file).contains("VAULT_TOKEN has no effect"));
    assert!(failure(&[], |flags| flags.method = AuthMethod::AppRole).contains("--vault-role-id"));
    let role: Change = |flags| {
        flags.method = AuthMethod::AppRole;
        flags.role_id = Some("id".to_owned());
    };
    configured(&[], role).unwrap();
    configured(&[], |flags| flags.method = AuthMethod::Jwt).unwrap();
    for method in AuthMethod::ALL {
        assert_eq!(method.name().parse(), Ok(method));
    }
    assert!("oidc".parse::<AuthMethod>().unwrap_err().contains("kubernetes, token"));
}

#[tokio::test]
async fn limits() {
    let limit = |variables: &[(&str, &str)], change: Change| {
        let limits = *Vault::new(&configured(variables, change).unwrap().0).limits();
        (limits.rate.map(NonZeroU32::get), limits.burst.get())
    };
    assert_eq!(limit(&[], usual), (Some(DEFAULT_RATE), DEFAULT_RATE));
    assert_eq!(limit(&[], |flags| flags.rate = Some(0)), (None, 1));
    assert_eq!(limit(&[("VAULT_RATE_LIMIT", "10:20")], usual), (Some(10), 20));
    assert_eq!(limit(&[("VAULT_RATE_LIMIT", "10:20")], |flags| flags.rate = Some(30)), (Some(30), 30));
    let told = warning(&[("VAULT_RATE_LIMIT", "10:20")], |flags| flags.rate = Some(30));
    assert!(told.contains("VAULT_RATE_LIMIT has no effect"), "{told}");
    let narrow: Change = |flags| {
        flags.timeout = Duration::from_secs(2);
        flags.concurrency = NonZeroUsize::new(3).unwrap();
    };
    let (config, _) = configured(&[], narrow).unwrap();
    let limits = *Vault::new(&config).limits();
    assert_eq!((limits.deadline.as_secs(), limits.connect.as_secs(), limits.concurrency.get()), (2, 2, 3));
}

#[test]
fn what_is_exposed_is_told_as_long_as_it_is_so() {
    let exposed = |variables: &[(&str, &str)], address: &str| {
        let flags = Flags { address: address.to_owned(), ..flags(usual) };
        let access = read(variables).unwrap().access(&flags).unwrap();
        assert_eq!(access.warnings.len(), usize::from(access.exposed.is_some() || !variables.is_empty()));
        access.exposed
    };
    assert!(exposed(&[], "http://vault:8200").unwrap().contains("VAULT_CACERT"));
    assert!(exposed(&[("VAULT_SKIP_VERIFY", "1")], "https://vault").unwrap().contains("not checked"));
    let agent = [("VAULT_AGENT_ADDR", "http://127.0.0.1:8100")];
    assert_eq!(exposed(&agent, "http://vault:8200"), None, "the agent is asked");
    assert_eq!(exposed(&[], "https://vault"), None);
    assert_eq!(exposed(&[], "http://localhost:8200"), None);
}
