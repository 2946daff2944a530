//! From an annotation to an entry of the list, through bad days, and back to nothing.

use axum::http::{Method, StatusCode};
use konverge::serde_json::json;
use konverge_testkit::{NextCall, RoleUse};

use crate::stage::{LIMIT, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_follows_the_labels_of_its_deployment_from_beginning_to_end() {
    let stage = Stage::set().await;
    stage.create("plain", None).await;
    let mut operator = stage.start().await;
    stage.create("web", Some("shop-web")).await;
    stage.lists(&[("shop-web", "shop")]).await;
    stage.told("web", "Created").await;
    assert!(stage.is_held("web").await);

    // The labels change, a person changes the entry, and the annotation names another entry.
    stage.change("web", json!({"labels": {"team": "search"}})).await;
    stage.lists(&[("shop-web", "search")]).await;
    stage.list.edit("shop-web", &[("team", "nobody")]);
    stage.lists(&[("shop-web", "search")]).await;
    stage.request("web", Some("search-web")).await;
    stage.lists(&[("search-web", "search")]).await;

    // An annotation that comes later counts, and one that goes takes the entry with it.
    stage.request("plain", Some("plain")).await;
    stage.lists(&[("plain", "shop"), ("search-web", "search")]).await;
    stage.request("plain", None).await;
    stage.lists(&[("search-web", "search")]).await;
    stage.released("plain").await;

    stage.delete("web").await;
    stage.gone("web").await;
    stage.lists(&[]).await;

    operator.terminate(LIMIT).await.unwrap();
    let rules = labelcopy_operator::operator().grant("operator").everywhere;
    let requests = stage.requests().await;
    assert_eq!(RoleUse::of(&requests, &rules), RoleUse::default(), "no refusal, and no verb unused");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_days_lose_no_entry_and_make_no_second_one() {
    let stage = Stage::set().await;
    let operator = stage.start().await;

    // The list has created the entry, and the reply is lost. The operator dies before it tries again.
    stage.list.server.fail(Method::POST, NextCall::LosesItsReply);
    stage.create("web", Some("web")).await;
    stage.lists(&[("web", "shop")]).await;
    drop(operator);
    let _operator = stage.start().await;
    stage.change("web", json!({"labels": {"team": "search"}})).await;
    stage.lists(&[("web", "search")]).await;
    assert_eq!(stage.list.server.calls(&Method::POST), 1, "the entry was found by its mark");

    // While a proxy answers in place of the list, the entry stays, and the operator catches up afterwards.
    stage.list.server.go_away(StatusCode::NOT_FOUND, "<html>no such page</html>");
    stage.change("web", json!({"labels": {"team": "shop"}})).await;
    stage.told("web", "ApiFailed").await;
    stage.list.server.come_back();
    stage.lists(&[("web", "shop")]).await;
    assert_eq!((stage.list.server.calls(&Method::POST), stage.list.server.calls(&Method::DELETE)), (1, 0));

    // An entry that a person made is neither taken over nor deleted, and nothing holds the Deployment.
    stage.list.create_by_hand("theirs", &[("team", "theirs")]);
    stage.create("theirs", Some("theirs")).await;
    stage.told("theirs", "NameTaken").await;
    stage.delete("theirs").await;
    stage.gone("theirs").await;
    stage.lists(&[("theirs", "theirs"), ("web", "shop")]).await;
}
