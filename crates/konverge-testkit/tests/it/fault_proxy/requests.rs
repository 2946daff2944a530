use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use konverge_testkit::fault_proxy::{Plan, Reached};
use kube::api::{DeleteParams, ListParams, PostParams};
use tokio::time::{Instant, timeout};

use super::{Rig, SOON, code, map};

#[tokio::test]
async fn without_a_plan_it_changes_nothing_and_keeps_a_journal() {
    let rig = Rig::new().await;
    let created = rig.proxied.create(&PostParams::default(), &map("a")).await.unwrap();
    assert_eq!(rig.proxied.get("a").await.unwrap(), rig.direct.get("a").await.unwrap());
    assert_eq!(rig.proxied.list(&ListParams::default()).await.unwrap().items, [created]);
    let again = rig.proxied.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert_eq!(code(&again), Some(409));
    rig.proxied.delete("a", &DeleteParams::default()).await.unwrap();

    let journal = rig.proxy.journal();
    let of = |name: &str| format!("{}/{name}", rig.namespace);
    let said: Vec<_> = journal.iter().map(|entry| (entry.request.to_string(), entry.mutation, entry.code)).collect();
    assert_eq!(
        said,
        [
            (format!("create configmaps {}", of("a")), Some(1), Some(201)),
            (format!("get configmaps {}", of("a")), None, Some(200)),
            (format!("list configmaps {}", of("")), None, Some(200)),
            (format!("create configmaps {}", of("a")), Some(2), Some(409)),
            (format!("delete configmaps {}", of("a")), Some(3), Some(200)),
        ]
    );
    assert!(journal.iter().all(|entry| entry.reached == Reached::Client && entry.client_code == entry.code));
    let flags: Vec<_> = journal.iter().map(|entry| (entry.is_committed(), entry.created(), entry.deleted())).collect();
    let nothing = (false, false, false);
    assert_eq!(flags, [(true, true, false), nothing, nothing, nothing, (true, false, true)]);
}

#[tokio::test]
async fn a_dropped_request_never_reaches_the_server() {
    let rig = Rig::new().await;
    rig.plan("- { when: { verbs: [create], resources: [configmaps], name: a }, then: drop }");
    let lost = rig.proxied.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert_eq!(code(&lost), None, "{lost:?}");
    assert!(!rig.exists("a").await);
    assert_eq!((rig.last().reached, rig.last().code, rig.last().client_code), (Reached::Proxy, None, None));
    assert_eq!(rig.last().faults, ["rule 1, before: drop"]);
    rig.proxied.create(&PostParams::default(), &map("b")).await.unwrap();
}

#[tokio::test]
async fn a_reply_dropped_after_commit_leaves_the_object() {
    let rig = Rig::new().await;
    rig.plan("- { when: { phase: after, mutating: true, nth: 1 }, then: drop }");
    let lost = rig.proxied.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert_eq!(code(&lost), None, "{lost:?}");
    assert!(rig.exists("a").await);
    assert_eq!((rig.last().reached, rig.last().code, rig.last().client_code), (Reached::Answered, Some(201), None));
    assert!(rig.last().is_committed());
    assert_eq!(rig.proxy.fired(), [1]);
    // A retry meets its own success.
    let again = rig.proxied.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert_eq!(code(&again), Some(409));
}

#[tokio::test]
async fn a_status_stands_for_the_answer() {
    let rig = Rig::new().await;
    for status in [403, 409, 410, 429, 500, 503] {
        rig.plan(&format!(
            "- {{ when: {{ verbs: [create] }}, then: {{ status: {{ code: {status}, retry_after: 7 }} }} }}"
        ));
        let refused = rig.proxied.create(&PostParams::default(), &map("a")).await.unwrap_err();
        assert_eq!(code(&refused), Some(status));
        assert_eq!((rig.last().code, rig.last().client_code), (None, Some(status)));
    }
    assert!(!rig.exists("a").await);

    // The API server has said yes, and the client hears no.
    rig.plan("- { when: { phase: after, verbs: [create] }, then: { status: { code: 504, reason: Slow } } }");
    let refused = rig.proxied.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.reason == "Slow"), "{refused:?}");
    assert!(rig.exists("a").await);
    assert_eq!((rig.last().code, rig.last().client_code), (Some(201), Some(504)));
}

#[tokio::test]
async fn the_continue_token_of_a_list_expires() {
    let rig = Rig::new().await;
    rig.create("a").await;
    rig.create("b").await;
    rig.plan("- { when: { verbs: [list], query: { continue: '*' }, times: 1 }, then: { status: { code: 410 } } }");
    let page = ListParams::default().limit(1);
    let first = rig.proxied.list(&page).await.unwrap();
    let page = page.continue_token(&first.metadata.continue_.unwrap());
    assert_eq!(code(&rig.proxied.list(&page).await.unwrap_err()), Some(410));
    assert_eq!(rig.proxied.list(&page).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn retry_after_is_a_header() {
    let rig = Rig::new().await;
    rig.plan("- { then: { status: { code: 429, retry_after: 7 } } }");
    let request = http::Request::get("/version").body(kube::client::Body::empty()).unwrap();
    let response = rig.client.send(request).await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"7".parse().unwrap()));
}

#[tokio::test]
async fn a_delay_passes_and_other_faults_follow_it() {
    let rig = Rig::new().await;
    rig.plan("- { when: { verbs: [get] }, then: { delay: 300ms } }\n- { when: { every: 2 }, then: drop }");
    let begun = Instant::now();
    assert!(rig.proxied.get_opt("a").await.unwrap().is_none());
    assert!(begun.elapsed() >= Duration::from_millis(300));
    rig.proxied.get_opt("a").await.unwrap_err();
    assert_eq!(rig.last().faults, ["rule 1, before: delay 300ms", "rule 2, before: drop"]);
}

#[tokio::test]
async fn a_frozen_request_is_not_answered_until_the_release_breaks_it() {
    let rig = Rig::new().await;
    rig.plan("- { when: { phase: after, verbs: [create] }, then: freeze }");
    let post = PostParams::default();
    let frozen = map("a");
    let mut create = rig.proxied.create(&post, &frozen).boxed();
    timeout(Duration::from_millis(300), &mut create).await.unwrap_err();
    assert!(rig.exists("a").await);
    rig.proxy.release();
    timeout(SOON, create).await.unwrap().unwrap_err();
    rig.proxied.create(&PostParams::default(), &map("b")).await.unwrap();
}

#[tokio::test]
async fn a_body_is_cut_short_or_stands_still() {
    let rig = Rig::new().await;
    rig.create("a").await;
    for fault in ["truncate", "drop"] {
        rig.plan(&format!("- {{ when: {{ phase: body, verbs: [list] }}, then: {fault} }}"));
        let cut = rig.proxied.list(&ListParams::default()).await.unwrap_err();
        assert_eq!(code(&cut), None, "{fault}: {cut:?}");
        assert_eq!(rig.last().client_code, Some(200));
    }
    rig.plan("- { when: { phase: body, verbs: [list] }, then: freeze }");
    let list = ListParams::default();
    let mut list = rig.proxied.list(&list).boxed();
    timeout(Duration::from_millis(300), &mut list).await.unwrap_err();
    rig.proxy.clear();
    timeout(SOON, list).await.unwrap().unwrap_err();
    assert_eq!(rig.proxied.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_plan_may_kill_only_whom_the_proxy_knows() {
    let rig = Rig::new().await;
    let plan = || Plan::parse("rules: [{ when: { mutating: true }, then: { kill: operator } }]").unwrap();
    let said = rig.proxy.set(plan()).unwrap_err().to_string();
    assert!(said.contains("rule 1") && said.contains("operator") && said.contains("on_kill"), "{said}");
    let killed = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counts = Arc::clone(&killed);
    rig.proxy.on_kill("operator", move || {
        counts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    rig.proxy.set(plan()).unwrap();
    rig.proxied.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert_eq!(killed.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert!(!rig.exists("a").await);
}
