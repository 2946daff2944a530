//! Authentication, roles and errors.

use http::Method;
use serde_json::{Value, json};

use crate::target::Session;

pub(super) async fn tokens_are_checked(session: &Session) {
    let admin = &session.account.tokens["admin"];
    let expired = &session.account.tokens["expired"];
    let mut wrong_checksum = admin.clone();
    wrong_checksum.replace_range(39.., if admin.ends_with('a') { "b" } else { "a" });
    for (what, authorization, expected) in [
        ("Token", Some(format!("Token {admin}")), 200),
        ("Bearer", Some(format!("Bearer {admin}")), 200),
        ("lower-case scheme", Some(format!("token {admin}")), 200),
        ("an expired token", Some(format!("Token {expired}")), 401),
        ("a wrong checksum", Some(format!("Token {wrong_checksum}")), 401),
        ("a malformed token", Some("Token x".to_owned()), 401),
        ("a malformed bearer", Some("Bearer nbp_x".to_owned()), 401),
        ("another bearer", Some("Bearer eyJhbGciOiJIUzI1NiJ9.e30.abc".to_owned()), 401),
        ("another scheme", Some("Basic abc".to_owned()), 401),
        ("no scheme", Some(admin.clone()), 401),
        ("no header", None, 401),
    ] {
        let reply = session.raw(what, Method::GET, "/groups", authorization.as_deref(), "").await;
        assert_eq!(reply.status, expected, "{what}");
        if expected == 401 {
            assert!(["token invalid", "no valid authentication provided"].contains(&reply.message()), "{reply:?}");
        }
    }
}

pub(super) async fn roles_decide_what_is_written(session: &Session) {
    let key = json!({ "name": "k", "type": "reusable", "expires_in": 0, "auto_groups": [] });
    let all = format!("{}-all", session.account.id);
    let rule = json!({ "name": "r", "enabled": true, "action": "accept", "protocol": "all", "sources": [all], "destinations": [all] });
    let policy = json!({ "name": "p", "enabled": true, "rules": [rule] });
    for (role, groups, keys, settings) in
        [("owner", 200, 200, 200), ("admin", 200, 200, 200), ("network_admin", 200, 403, 403), ("user", 403, 403, 403)]
    {
        for list in [
            "/groups",
            "/policies",
            "/setup-keys",
            "/networks",
            "/networks/resources",
            "/networks/routers",
            "/dns/zones",
            "/accounts",
            "/peers",
        ] {
            // Other roles' objects are in it, too; what counts is that it can be read.
            let authorization = format!("Token {}", session.account.tokens[role]);
            let reply = session.send(Method::GET, list, Some(&authorization), String::new()).await;
            assert!(reply.status == 200 && reply.body.is_array(), "{role} {list}: {reply:?}");
        }
        let call = async |method, path: &str, body| session.call(role, method, path, body).await;
        assert_eq!(call(Method::POST, "/groups", json!({ "name": role })).await.status, groups);
        let network = call(Method::POST, "/networks", json!({ "name": role })).await;
        assert_eq!(network.status, groups);
        if groups == 200 {
            let path = format!("/networks/{}/resources", network.id());
            let resource = json!({ "name": role, "address": "10.0.0.1", "enabled": true, "groups": [] });
            assert_eq!(call(Method::POST, &path, resource).await.status, 200);
        }
        let made = call(Method::POST, "/policies", policy.clone()).await;
        assert_eq!(made.status, groups);
        if groups == 200 {
            let path = format!("/policies/{}", made.id());
            assert_eq!(call(Method::PUT, &path, policy.clone()).await.status, 200);
            assert_eq!(call(Method::DELETE, &path, Value::Null).await.status, 200);
        }
        assert_eq!(call(Method::POST, "/setup-keys", key.clone()).await.status, keys);
        let account = call(Method::GET, "/accounts", Value::Null).await.body[0].clone();
        let path = format!("/accounts/{}", session.account.id);
        assert_eq!(call(Method::PUT, &path, json!({ "settings": account["settings"] })).await.status, settings);
    }
    for list in ["/groups", "/policies", "/networks", "/dns/zones", "/accounts"] {
        let reply = session.call("blocked", Method::GET, list, Value::Null).await;
        assert_eq!(reply.status, 403);
    }
    assert_eq!(session.call("blocked", Method::POST, "/groups", json!({ "name": "b" })).await.status, 403);
}

pub(super) async fn errors_have_one_form(session: &Session) {
    let token = format!("Token {}", session.account.tokens["admin"]);
    for (what, body, status) in [
        ("half", r#"{"name":"#, 400),
        ("nothing", "", 400),
        ("a list", "[]", 400),
        ("null", "null", 422),
        ("a number", r#"{"name":5}"#, 400),
    ] {
        let reply = session.raw(what, Method::POST, "/groups", Some(&token), body).await;
        assert_eq!((reply.status, reply.body["code"].as_u64()), (status, Some(u64::from(status))), "{what}");
        assert!(!reply.message().is_empty());
    }
    // Routes that do not exist are no errors of the API, and need no token.
    for token in [None, Some(&*token)] {
        let reply = session.raw("services", Method::GET, "/services", token, "").await;
        assert_eq!((reply.status, &reply.body), (404, &json!("404 page not found")));
    }
    assert_eq!(session.raw("trailing slash", Method::GET, "/groups/", Some(&token), "").await.status, 404);
    assert_eq!(session.raw("PATCH", Method::PATCH, "/groups", Some(&token), "{}").await.status, 405);
    assert_eq!(session.get("/groups?name=nothing").await.body.as_array().map(Vec::len), Some(1), "no filter");
    assert_eq!(session.get("/groups/nope").await.status, 404);
    assert_eq!(session.delete("/groups/nope").await.status, 400, "a missing group is a bad request");
}

pub(super) async fn personal_access_tokens_come_and_go(session: &Session) {
    let path = format!("/users/{}-admin/tokens", session.account.id);
    for days in [0, 366] {
        assert_eq!(session.post(&path, json!({ "name": "t", "expires_in": days })).await.status, 422);
    }
    assert_eq!(session.post(&path, json!({ "name": "", "expires_in": 1 })).await.status, 422);
    let made = session.post(&path, json!({ "name": "t", "expires_in": 365 })).await;
    let plain = format!("Token {}", made.body["plain_token"].as_str().unwrap_or_default());
    let id = made.body["personal_access_token"]["id"].as_str().unwrap_or_default().to_owned();
    let one = session.get(&format!("{path}/{id}")).await;
    assert!(one.status == 200 && one.body.get("plain_token").is_none(), "it is shown once");
    let works = async || session.raw("with the new token", Method::GET, "/groups", Some(&plain), "").await.status;
    assert_eq!((works().await, session.get("/groups").await.status), (200, 200), "both work");
    assert_eq!(session.delete(&format!("{path}/{id}")).await.status, 200);
    assert_eq!(works().await, 401, "a deleted token dies at once");
    assert_eq!(session.delete(&format!("{path}/{id}")).await.status, 404);
    let user = json!({ "role": "user", "auto_groups": [], "is_service_user": true, "name": "svc" });
    let user = session.post("/users", user).await.id();
    assert_eq!(session.get(&format!("/users/{user}/tokens")).await.body, Value::Null, "an empty list is null");
    let body = json!({ "role": "admin", "auto_groups": [], "is_blocked": false });
    assert_eq!(session.put(&format!("/users/{user}"), body).await.body["role"], "admin");
    assert_eq!(session.delete(&format!("/users/{user}")).await.body, json!({}));
    assert_eq!(session.delete(&format!("/users/{user}")).await.status, 404);
    assert_eq!(session.get("/users/current").await.status, 403, "not for service users");
}
