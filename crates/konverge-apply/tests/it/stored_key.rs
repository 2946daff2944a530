//! A key that is kept in a Secret.

use konverge_apply::stored_key::{StoredKeyError, get_or_create};
use kube::api::PostParams;

use super::*;

#[tokio::test]
async fn all_replicas_have_the_key_of_the_first_and_a_lost_one_is_made_again() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client, &namespace);
    let key = |byte: u8| Some(zeroize::Zeroizing::new([byte; 32]));
    assert!(get_or_create(&api, "key", None).await.unwrap().is_none(), "a dry run makes none");
    let (first, second) = tokio::join!(get_or_create(&api, "key", key(1)), get_or_create(&api, "key", key(2)));
    let first = first.unwrap().unwrap();
    assert_eq!(second.unwrap().as_ref(), Some(&first));
    assert_eq!(get_or_create(&api, "key", key(3)).await.unwrap(), Some(first.clone()));
    assert_eq!(get_or_create(&api, "key", None).await.unwrap(), Some(first.clone()));
    let stored = api.get("key").await.unwrap();
    assert_eq!((stored.immutable, &stored.data.unwrap()["key"].0[..]), (Some(true), &first[..]));
    api.delete("key", &kube::api::DeleteParams::default()).await.unwrap();
    assert_eq!(get_or_create(&api, "key", key(4)).await.unwrap(), key(4));
    // Data that is no key is left alone.
    api.create(&PostParams::default(), &secret("other", &[("key", "short")])).await.unwrap();
    let error = get_or_create(&api, "other", key(5)).await.expect_err("no key");
    assert!(matches!(error, StoredKeyError::Unusable), "{error}");
}
