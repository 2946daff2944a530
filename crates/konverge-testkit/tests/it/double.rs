use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_testkit::double::{Answer, ApiDouble, RequestMatcher, WatchScript};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

fn map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "resourceVersion": "5" } })
}

fn maps(server: &ApiDouble) -> Api<ConfigMap> {
    Api::namespaced(server.client(), "shop")
}

#[tokio::test]
async fn a_write_is_matched_by_query_and_body_and_recorded() {
    let server = ApiDouble::default();
    let write =
        RequestMatcher::patch(format!("{MAPS}/colours")).query("fieldManager", "painter").query("force", "true");
    server.expect(write.body(json!({ "data": { "sky": "blue" } })).answer(Answer::object(&map("colours"))));
    let conflict = Answer::status(409, "Conflict", "somebody else was faster").header("Retry-After", "1");
    server.expect(RequestMatcher::update(format!("{MAPS}/*")).answer(conflict));

    let patch =
        Patch::Apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "sky": "blue", "sea": "green" } }));
    maps(&server).patch("colours", &PatchParams::apply("painter").force(), &patch).await.unwrap();
    let colours = serde_json::from_value(map("colours")).unwrap();
    let refused = maps(&server).replace("colours", &PostParams::default(), &colours).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("{refused:?}") };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));

    server.finish().unwrap();
    let asked: Vec<String> = server.requests().iter().map(ToString::to_string).collect();
    let first = "patch /api/v1/namespaces/shop/configmaps/colours?force=true&fieldManager=painter";
    assert_eq!(
        asked,
        [first, "update /api/v1/namespaces/shop/configmaps/colours?"].map(|said| said.trim_end_matches('?'))
    );
    assert_eq!(server.requests()[0].body["data"]["sea"], "green");
}

#[tokio::test]
async fn row_38_what_was_not_expected_fails_at_once_and_at_the_end() {
    let server = ApiDouble::default();
    server.expect(RequestMatcher::list(MAPS).answer(Answer::list("v1", "ConfigMapList", "7", &[map("a")])));
    let refused = maps(&server).get("a").await.unwrap_err();
    assert!(std::error::Error::source(&refused).is_some_and(|source| source.to_string().contains("expected: list")));

    let listed = maps(&server).list(&kube::api::ListParams::default()).await.unwrap();
    assert_eq!((listed.items.len(), listed.metadata.resource_version.as_deref()), (1, Some("7")));
    let said = server.finish().unwrap_err().to_string();
    assert!(said.starts_with("unexpected request get /api/v1/namespaces/shop/configmaps/a; expected: list"), "{said}");

    let server = ApiDouble::default();
    server.expect(RequestMatcher::delete(format!("{MAPS}/a")).answer(Answer::connection_error()).times(1..));
    let said = server.finish().unwrap_err().to_string();
    assert_eq!(said, "never met: delete /api/v1/namespaces/shop/configmaps/a (came 0 of at least 1 times)");
}

#[tokio::test(start_paused = true)]
async fn delays_hangs_and_broken_connections_need_no_real_time() {
    let server = ApiDouble::default();
    let late = Answer::object(&map("a")).after(Duration::from_secs(3600));
    server.expect(RequestMatcher::get(format!("{MAPS}/late")).answer(late));
    server.expect(RequestMatcher::get(format!("{MAPS}/never")).answer(Answer::hang()).any_time());
    server.expect(RequestMatcher::get(format!("{MAPS}/broken")).answer(Answer::connection_error()).any_time());

    let broken = maps(&server).get("broken").await.unwrap_err();
    assert!(matches!(broken, kube::Error::Service(_)), "{broken:?}");
    let begun = Instant::now();
    maps(&server).get("late").await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(3600));
    timeout(Duration::from_secs(86_400), maps(&server).get("never")).await.unwrap_err();
    server.finish().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_says_what_the_script_says_and_stays_open_until_told() {
    let server = ApiDouble::default();
    let script = WatchScript::default();
    server.expect(RequestMatcher::watch(MAPS).query("resourceVersion", "7").answer(Answer::watch(&script)).times(2));
    script.added(&map("a"));
    let mut events = maps(&server).watch(&WatchParams::default(), "7").await.unwrap().boxed();
    assert!(matches!(events.next().await.unwrap().unwrap(), WatchEvent::Added(_)));
    timeout(Duration::from_secs(3600), events.next()).await.unwrap_err();

    script.deleted(&map("a"));
    script.bookmark("v1", "ConfigMap", "12");
    script.raw(r#"{"type":"MODIFIED","#);
    script.raw(format!("\"object\":{}}}\n", map("a")));
    script.expired();
    script.end();
    let rest: Vec<_> = events.try_collect().await.unwrap();
    assert!(
        matches!(
            rest.as_slice(),
            [WatchEvent::Deleted(_), WatchEvent::Bookmark(_), WatchEvent::Modified(_), WatchEvent::Error(status)]
                if status.code == 410
        ),
        "{rest:?}"
    );

    // Another watch is told the same from the beginning.
    let again = maps(&server).watch(&WatchParams::default(), "7").await.unwrap();
    assert_eq!(again.try_collect::<Vec<_>>().await.unwrap().len(), 5);
    server.finish().unwrap();
}

#[tokio::test]
async fn a_watch_breaks_in_the_middle() {
    let server = ApiDouble::default();
    let script = WatchScript::default();
    server.expect(RequestMatcher::watch(MAPS).answer(Answer::watch(&script)));
    script.raw(r#"{"type":"ADDED","object":{"meta"#);
    script.break_off();
    let events = maps(&server).watch(&WatchParams::default(), "7").await.unwrap();
    assert!(events.try_collect::<Vec<_>>().await.is_err());
}
