//! What is not Vault's own answer, to the calls that a client makes with its token: look-up, renewal and revocation.

use std::time::{Duration, Instant};

use futures::future::join_all;
use konverge_core::error::{Classify, ErrorClass};
use konverge_testkit::eventually;
use konverge_vault::{Found, Login, Vault, VaultConfig};

use crate::{
    double::{FOREIGN, LIVE, Script, location, serve},
    support::SOON,
};

const LOOK_UP: &str = "auth/token/lookup-self";
const RENEW: &str = "auth/token/renew-self";
const REVOKE: &str = "auth/token/revoke-self";

/// Foreign answers, and those with a part of Vault's form that say nothing about a token.
fn foreign() -> impl Iterator<Item = (u16, &'static str)> {
    FOREIGN.into_iter().chain([
        (200, r#"{"data":{}}"#),
        (200, r#"{"auth":{}}"#),
        (200, r#"{"auth":{"client_token":"x"}}"#),
    ])
}

/// A token that is due for renewal after a second or two.
const GRANTED: &str = r#"{"auth":{"client_token":"t","lease_duration":3,"renewable":true}}"#;

#[tokio::test]
async fn a_foreign_answer_to_the_look_up_at_a_start_is_an_outage() {
    let started = foreign().map(|(status, body)| async move {
        let script = Script::default();
        script.then(200, &[], LIVE);
        script.of_token(LOOK_UP, status, body);
        let (_, vault) = serve(&script).await;
        for error in [vault.log_in().await.err(), vault.read(&location()).await.err()] {
            let error = error.unwrap_or_else(|| panic!("{status} {body} was taken for Vault's answer"));
            assert!(error.is_outage() && error.class() != ErrorClass::Permanent, "{status} {body}: {error}");
        }
        script.of_token(LOOK_UP, 200, r#"{"data":{"ttl":0,"expire_time":null,"renewable":false}}"#);
        let read = eventually(SOON, || async { vault.read(&location()).await.ok() });
        assert!(matches!(read.await, Ok(Found::Live(_))), "{status} {body}: it does not catch up");
    });
    join_all(started).await;
}

#[tokio::test]
async fn a_foreign_answer_to_a_login_gives_no_token() {
    let logins = foreign().map(|(status, body)| async move {
        let script = Script::default();
        script.then(status, &[], body);
        let (address, _) = serve(&script).await;
        let login = Login::Certificate { mount: "cert".to_owned(), role: None };
        let vault = Vault::new(&VaultConfig::new(&address, login).unwrap());
        for error in [vault.log_in().await.err(), vault.read(&location()).await.err()] {
            let error = error.unwrap_or_else(|| panic!("{status} {body} was taken for Vault's answer"));
            assert!(error.is_outage() && error.class() != ErrorClass::Permanent, "{status} {body}: {error}");
        }
        script.answers_all(GRANTED);
        let logged_in = eventually(SOON, || async { vault.log_in().await.ok() });
        assert!(logged_in.await.is_ok(), "{status} {body}: it does not catch up");
    });
    join_all(logins).await;
}

/// Vault answers so for a token without the default policy. A gateway may refuse in the same words. The token is kept in either case, and each
/// request with it has an answer of its own.
#[tokio::test]
async fn a_refused_look_up_says_nothing_about_the_token() {
    for refusal in
        [r#"{"errors":["permission denied"]}"#, r#"{"errors":["1 error occurred:\n\t* permission denied\n\n"]}"#]
    {
        let script = Script::default();
        script.of_token(LOOK_UP, 403, refusal);
        script.then(403, &[], refusal);
        let (_, vault) = serve(&script).await;
        vault.log_in().await.unwrap();
        assert!(vault.read(&location()).await.is_err_and(|error| error.is_refusal()), "{refusal}");
        script.answers_all(LIVE);
        assert!(matches!(vault.read(&location()).await, Ok(Found::Live(_))), "{refusal}");
    }
}

#[tokio::test]
async fn a_foreign_answer_to_a_renewal_costs_no_read_while_the_token_lives() {
    let renewed = foreign().map(|(status, body)| async move {
        let script = Script::default();
        script.then(200, &[], GRANTED);
        script.then(200, &[], LIVE);
        script.of_token(RENEW, status, body);
        let (address, _) = serve(&script).await;
        let login = Login::Certificate { mount: "cert".to_owned(), role: None };
        let vault = Vault::new(&VaultConfig::new(&address, login).unwrap());
        let is_renewed = async || {
            assert!(matches!(vault.read(&location()).await, Ok(Found::Live(_))), "{status} {body}");
            script.requests().iter().any(|request| request.contains(RENEW)).then_some(())
        };
        eventually(SOON, is_renewed).await.unwrap();
        assert!(matches!(vault.read(&location()).await, Ok(Found::Live(_))), "{status} {body}");
        assert_eq!(vault.login_counts().renewed, 0, "{status} {body} was taken for a renewal");
        // Vault is back, and the next login gives a token for which the read is answered as before.
        script.answers_all(GRANTED);
        eventually(SOON, async || (vault.login_counts().succeeded > 1).then_some(())).await.unwrap();
    });
    join_all(renewed).await;
}

#[tokio::test]
async fn a_foreign_answer_to_a_revocation_delays_no_end() {
    for (status, body) in foreign() {
        let script = Script::default();
        script.then(200, &[], GRANTED);
        script.of_token(REVOKE, status, body);
        let (address, _) = serve(&script).await;
        let login = Login::Certificate { mount: "cert".to_owned(), role: None };
        let vault = Vault::new(&VaultConfig::new(&address, login).unwrap());
        vault.log_in().await.unwrap();
        let began = Instant::now();
        vault.close().await;
        assert!(began.elapsed() < Duration::from_secs(2), "{status} {body}: {:?}", began.elapsed());
        let revoked = script.requests().iter().filter(|request| request.contains(REVOKE)).count();
        assert_eq!(revoked, 1, "{status} {body}");
    }
}
