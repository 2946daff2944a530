//! The account, and what holds for all lists and writes.

use http::Method;
use serde_json::{Value, json};

use super::{group, keys, with};
use crate::target::Session;

pub(super) async fn settings_that_are_left_out_fall_to_zero(session: &Session) {
    let path = format!("/accounts/{}", session.account.id);
    let accounts = session.get("/accounts").await.body;
    assert_eq!(accounts.as_array().map(Vec::len), Some(1));
    let settings = accounts[0]["settings"].clone();
    session.note(&format!("settings: {:?}", keys(&settings)));
    let g = group(session, "g").await;
    let full = with(
        &settings,
        json!({ "admission_enforcement_enabled": true, "admission_exempt_groups": [g],
        "groups_propagation_enabled": true, "jwt_groups_enabled": true, "jwt_groups_claim_name": "groups",
        "jwt_allow_groups": ["x"], "lazy_connection_enabled": true, "mfa_enforce_local": true,
        "mfa_enforce_federated": true, "peer_login_expiration": 7200, "peer_login_expiration_enabled": true,
        "regular_users_view_blocked": true, "routing_peer_dns_resolution_enabled": true }),
    );
    let kept = session.put(&path, json!({ "settings": full, "konverge_unknown": 1 })).await;
    assert_eq!(kept.body["settings"], full, "what is sent is kept");
    assert_eq!(session.get("/accounts").await.body[0]["settings"], full);
    let whole = session.get("/accounts").await.body[0].clone();
    assert_eq!(session.put(&path, whole.clone()).await.body, whole, "what was read is kept");
    for body in [json!({}), json!({ "settings": {} })] {
        assert_eq!(session.put(&path, body).await.status, 422);
    }
    // Without `extra` the server would crash and serve nobody any more, so it is always sent.
    let little = json!({ "peer_login_expiration": 86400, "extra": settings["extra"] });
    let lost = session.put(&path, json!({ "settings": little })).await.body["settings"].clone();
    assert_eq!(lost["admission_exempt_groups"], json!([]));
    assert_eq!(
        (&lost["mfa_enforce_local"], &lost["mfa_enforce_federated"]),
        (&json!(true), &json!(true)),
        "these stay"
    );
    let unknown = with(&settings, json!({ "admission_exempt_groups": [g, "nope"] }));
    assert_eq!(session.put(&path, json!({ "settings": unknown })).await.status, 200);
    assert_eq!(session.put("/accounts/nope", json!({ "settings": settings })).await.status, 403);
    let short = with(&settings, json!({ "peer_login_expiration": 1 }));
    assert_eq!(session.put(&path, json!({ "settings": short })).await.status, 422);
}

pub(super) async fn lists_show_writes_at_once(session: &Session) {
    for list in ["/groups", "/policies", "/setup-keys", "/networks", "/dns/zones"] {
        let before = session.get(list).await.body;
        let a = group(session, &format!("for {list}")).await;
        let body = match list {
            "/groups" => json!({ "name": "g" }),
            "/policies" => {
                json!({ "name": "p", "enabled": true, "rules": [{ "name": "r", "enabled": true, "action": "accept",
                "protocol": "all", "sources": [a], "destinations": [a] }] })
            }
            "/setup-keys" => json!({ "name": "k", "type": "reusable", "auto_groups": [] }),
            "/networks" => json!({ "name": "n" }),
            _ => json!({ "name": "z", "domain": "lists.test", "distribution_groups": [a] }),
        };
        let id = session.post(list, body).await.id();
        let holds = |reply: &Value| reply.as_array().into_iter().flatten().any(|object| object["id"] == id.as_str());
        let after = session.get(list).await.body;
        assert!(before.is_array() && !holds(&before) && holds(&after), "{list}");
        session.delete(&format!("{list}/{id}")).await;
        assert!(!holds(&session.get(list).await.body), "{list}");
    }
}

pub(super) async fn writes_make_audit_events(session: &Session) {
    let id = group(session, "audited").await;
    session.put(&format!("/groups/{id}"), json!({ "name": "audited" })).await;
    session.put(&format!("/groups/{id}"), json!({ "name": "renamed" })).await;
    session.delete(&format!("/groups/{id}")).await;
    let network = session.post("/networks", json!({ "name": "audited" })).await.id();
    session.put(&format!("/networks/{network}"), json!({ "name": "renamed" })).await;
    session.delete(&format!("/networks/{network}")).await;
    let token = format!("Token {}", session.account.tokens["admin"]);
    let admin = format!("{}-admin", session.account.id);
    // Events are written after the answer.
    for _ in 0..100 {
        let events = session.send(Method::GET, "/events/audit", Some(&token), String::new()).await.body;
        if events.as_array().is_some_and(|events| events.iter().any(|event| event["activity_code"] == "network.delete"))
        {
            for event in events.as_array().into_iter().flatten() {
                assert_eq!(event["initiator_id"], admin.as_str());
                session.note(&format!("{} {} {:?}", event["activity_code"], event["target_id"], keys(event)));
            }
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    // The event of the last write is missing, which the transcript shows, too.
    session.note("no event of the last write");
}

pub(super) async fn parallel_writes_succeed(session: &Session) {
    let token = format!("Token {}", session.account.tokens["admin"]);
    let posts = (0..20).map(|number| {
        let body = json!({ "name": format!("g{number}") }).to_string();
        session.send(Method::POST, "/groups", Some(&token), body)
    });
    let mut posts: Vec<_> = posts.map(Box::pin).collect();
    let mut all = Vec::new();
    while let Some(post) = posts.pop() {
        // Two at a time are enough to meet each other.
        match posts.pop() {
            Some(other) => {
                let (one, two) = tokio::join!(post, other);
                all.extend([one.status, two.status]);
            }
            None => all.push(post.await.status),
        }
    }
    assert_eq!(all, vec![200; 20]);
    // The order in which they were made is not the same in each run.
    let groups = session.send(Method::GET, "/groups", Some(&token), String::new()).await.body;
    assert_eq!(groups.as_array().map(Vec::len), Some(21));
}

pub(super) async fn peers_are_absent(session: &Session) {
    assert_eq!(session.get("/peers").await.body, json!([]));
    assert_eq!(session.get("/peers/nope").await.status, 404);
    assert_eq!(session.get("/peers/nope/accessible-peers").await.body, json!([]));
}
