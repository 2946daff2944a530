//! Selectors that our parser accepts, compared with those that the API server accepts.

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_runtime::watch::label_selector;
use kube::{Api, api::ListParams};

use super::control_plane;

#[tokio::test]
async fn a_label_selector_is_what_the_api_server_takes_for_one() {
    let control_plane = control_plane().await;
    let namespace = control_plane.namespace("selector").await.unwrap();
    let api = Api::<ConfigMap>::namespaced(control_plane.admin_client().await.unwrap(), &namespace);
    let (long, too_long) = ("a".repeat(63), "a".repeat(64));
    for (text, is_good) in [
        ("", true),
        (" ", true),
        ("a", true),
        ("!a", true),
        ("! a", true),
        ("a=b", true),
        (" a = b , c ", true),
        ("a==b,a!=c", true),
        ("a=", true),
        ("a=,b", true),
        ("example.io/a_B.c=D-e_f.g", true),
        ("a in (b,c),d notin (e)", true),
        ("a in(b)", true),
        ("a in ()", true),
        ("a in (,)", true),
        ("a in (,b)", true),
        ("a in (b,,c)", true),
        ("in in (in,notin)", true),
        ("notin=in", true),
        ("a>1,a<2", true),
        (&long, true),
        (&format!("a={long}"), true),
        ("===", false),
        ("=", false),
        (",", false),
        ("a,", false),
        (",a", false),
        ("a,,b", false),
        ("!!a", false),
        ("!a=b", false),
        ("a=b=c", false),
        ("a===b", false),
        ("a b", false),
        ("a=b c=d", false),
        ("a in", false),
        ("a in b", false),
        ("a in (b", false),
        ("a in (b c)", false),
        ("a in (b)c", false),
        ("a>b", false),
        ("a>-1", false),
        ("a>", false),
        ("a>=1", false),
        ("-a", false),
        ("a=b-", false),
        ("a=ä", false),
        ("A.b/c", false),
        ("/a", false),
        ("a/", false),
        ("a/b/c", false),
        (&too_long, false),
        (&format!("a={too_long}"), false),
    ] {
        assert_eq!(label_selector(text).is_ok(), is_good, "{text:?}: {:?}", label_selector(text));
        match api.list(&ListParams::default().labels(text)).await {
            Ok(_) => assert!(is_good, "the API server takes {text:?}"),
            Err(kube::Error::Api(status)) if status.code == 400 => assert!(!is_good, "{text:?}: {status}"),
            Err(error) => panic!("{text:?}: {error}"),
        }
    }
}
