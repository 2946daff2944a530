//! The account on the openZro server, as the collections of remote objects use it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use konverge::remote::{self, Failure};
use konverge_core::{
    SecretValue,
    error::{Classify, ErrorClass},
};
use konverge_openzro::{
    Cause, Collection, Created, Deletion, Effect, Fields, Modified, Object, OpenZro, OpenZroError, Place,
    types::{self, Network},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

use crate::{annotations::ACCOUNT, reasons};

/// The name of the server in error classes: one object finds out when it answers again.
const ENDPOINT: &str = "openzro";
/// How soon an object is tried again that something on the server stands against, such as a link. Nothing tells when it goes.
const REFUSED_RETRY: Duration = Duration::from_secs(30);
/// How long one list of networks serves all collections that need it: that of the networks, and those that need to know which network an item belongs
/// to. Own writes end it sooner. So a list of networks may have begun earlier than its collection asked for it, by at most this.
pub(crate) const NETWORKS_COUNT: Duration = Duration::from_secs(2);

/// One account on the server. Clones share its client, and with it limits and breaker.
#[derive(Clone)]
pub struct Account(Arc<Inner>);

struct Inner {
    client: OpenZro,
    /// The accounts of other scopes.
    others: BTreeMap<String, Account>,
    networks: Mutex<Option<(Instant, Arc<Vec<Network>>)>>,
}

impl Account {
    /// The account of this client's token.
    pub fn new(client: OpenZro) -> Self {
        Self::with_others(client, BTreeMap::new())
    }

    /// The account of this client's token, and those of other scopes. The token of one account is never sent for an object of another scope.
    pub fn with_others(client: OpenZro, others: BTreeMap<String, Self>) -> Self {
        Self(Arc::new(Inner { client, others, networks: Mutex::default() }))
    }

    /// The same account for a scope: that of a person who has one token.
    pub(crate) fn within(self, scope: &str) -> Self {
        if scope.is_empty() {
            return self;
        }
        Self::with_others(self.0.client.clone(), BTreeMap::from([(scope.to_owned(), self)]))
    }

    /// The account of a scope. A scope without an account has none, and never that of another one.
    pub(crate) fn of(&self, scope: &str) -> Result<&Self, Failure> {
        if scope.is_empty() {
            return Ok(self);
        }
        self.0.others.get(scope).ok_or_else(|| {
            let message = format!(
                "there is no account for {scope:?}; name it with --account, or correct the annotation {ACCOUNT}"
            );
            Failure::permanent(reasons::NO_ACCOUNT, message)
        })
    }

    pub(crate) async fn list<T: DeserializeOwned>(&self, collection: &Collection) -> Result<Vec<T>, Failure> {
        self.0.client.list_as(collection).await.map_err(|error| failure(&error))
    }

    /// Returns the object, or `None` if the API itself says that there is none.
    pub(crate) async fn find<T: DeserializeOwned>(&self, place: &Place) -> Result<Option<T>, Failure> {
        self.0.client.find(place).await.map_err(|error| failure(&error))?.as_ref().map(read).transpose()
    }

    pub(crate) async fn create<T: DeserializeOwned>(
        &self,
        collection: &Collection,
        fields: Value,
    ) -> Result<(T, Option<SecretValue>), Failure> {
        let Created { object, secret } =
            self.0.client.create(collection, &map(fields)).await.map_err(|error| failure_of_create(&error))?;
        Ok((read(&object).map_err(Failure::may_have_effect)?, secret))
    }

    /// Sets these fields of the object and keeps all others, also those that we do not know.
    pub(crate) async fn set<T: DeserializeOwned>(&self, place: &Place, fields: Value) -> Result<T, Failure> {
        self.modify(place, |body| body.extend(map(fields))).await
    }

    pub(crate) async fn modify<T: DeserializeOwned>(
        &self,
        place: &Place,
        change: impl FnOnce(&mut Fields),
    ) -> Result<T, Failure> {
        match self.0.client.modify(place, change).await.map_err(|error| failure(&error))? {
            Modified::Unchanged(object) | Modified::Written(object) => read(&object),
        }
    }

    /// Sets these fields of the object and moves it to another collection of the same kind, such as the resources of another network.
    pub(crate) async fn relocate<T: DeserializeOwned>(
        &self,
        from: &Place,
        to: &Collection,
        fields: Value,
    ) -> Result<T, Failure> {
        let mut body = self.0.client.get(from).await.map_err(|error| failure(&error))?.writable();
        body.extend(map(fields));
        let moved = self.0.client.replace(&to.place(from.id.clone()), &body).await.map_err(|error| failure(&error))?;
        read(&moved)
    }

    pub(crate) async fn delete(&self, place: &Place) -> Result<remote::Deletion, Failure> {
        match self.0.client.delete(place).await.map_err(|error| failure(&error))? {
            Deletion::Deleted | Deletion::Absent => Ok(remote::Deletion::Gone),
        }
    }

    /// Returns the place of the account, and whether the admission checks leave the group out.
    pub(crate) async fn exemption(&self, group: &str) -> Result<(Place, bool), Failure> {
        let account = self.own().await?;
        let is_exempt = is_exempt(&account, group);
        Ok((Collection::Accounts.place(account.id), is_exempt))
    }

    /// Puts a group into the groups that the admission checks of the account leave out, or takes it out. All other settings stay as they are. Reads
    /// again afterwards, because the API has no lock against another writer.
    pub(crate) async fn set_exempt(&self, place: &Place, group: &str, is_wanted: bool) -> Result<(), Failure> {
        let edit = |body: &mut Fields| set_exempt(body, group, is_wanted);
        self.0.client.modify(place, edit).await.map_err(|error| failure(&error))?;
        if is_exempt(&self.own().await?, group) == is_wanted {
            return Ok(());
        }
        let message = "another client wrote the settings of the account at the same time; they are written again";
        Err(Failure::new(ErrorClass::Transient, reasons::SETTINGS_OVERWRITTEN, message))
    }

    /// The account of the token.
    async fn own(&self) -> Result<types::Account, Failure> {
        let accounts = self.list::<types::Account>(&Collection::Accounts).await?;
        accounts.into_iter().next().ok_or_else(|| {
            Failure::refused(
                reasons::NO_ACCOUNT,
                "openZro shows the token no account; use the token of an administrator",
            )
        })
    }

    /// Returns all networks, from a list that is at most [`NETWORKS_COUNT`] old.
    pub(crate) async fn networks(&self) -> Result<Arc<Vec<Network>>, Failure> {
        // Held during the call, so that the collections that need the networks at the same time share it.
        let mut known = self.0.networks.lock().await;
        if let Some((begun, networks)) = &*known
            && begun.elapsed() < NETWORKS_COUNT
        {
            return Ok(Arc::clone(networks));
        }
        let begun = Instant::now();
        let networks: Arc<Vec<Network>> = Arc::new(self.list(&Collection::Networks).await?);
        // An empty list may be wrong. A collection that had items asks again.
        *known = (!networks.is_empty()).then(|| (begun, Arc::clone(&networks)));
        Ok(networks)
    }

    /// Returns the ids of the networks of these items, such as of its routers: `inside` are those of a network. An item that no network has is newer than
    /// the list of networks, which is then read again.
    pub(crate) async fn networks_of<T: Sync>(
        &self,
        items: &[T],
        id: fn(&T) -> &str,
        inside: fn(&Network) -> &[String],
    ) -> Result<HashMap<String, String>, Failure> {
        let known = by_item(&self.networks().await?, inside);
        if items.iter().all(|item| known.contains_key(id(item))) {
            return Ok(known);
        }
        self.forget_networks().await;
        Ok(by_item(&self.networks().await?, inside))
    }

    /// Forgets the networks, because something has changed in them.
    pub(crate) async fn forget_networks(&self) {
        *self.0.networks.lock().await = None;
    }
}

/// The ids of networks by the ids of what is inside them.
fn by_item(networks: &[Network], inside: fn(&Network) -> &[String]) -> HashMap<String, String> {
    let mut ids = HashMap::new();
    for network in networks {
        ids.extend(inside(network).iter().map(|item| (item.clone(), network.id.clone())));
    }
    ids
}

/// The setting with the groups that the admission checks leave out.
const EXEMPT: &str = "admission_exempt_groups";

fn is_exempt(account: &types::Account, group: &str) -> bool {
    let groups = account.settings.get(EXEMPT).and_then(Value::as_array);
    groups.into_iter().flatten().any(|known| known == group)
}

fn set_exempt(account: &mut Fields, group: &str, is_wanted: bool) {
    let Some(settings) = account.get_mut("settings").and_then(Value::as_object_mut) else { return };
    let groups = settings.get(EXEMPT).and_then(Value::as_array).cloned().unwrap_or_default();
    let others = groups.into_iter().filter(|known| known != group);
    settings.insert(EXEMPT.to_owned(), others.chain(is_wanted.then(|| group.into())).collect());
}

fn map(fields: Value) -> Fields {
    match fields {
        Value::Object(fields) => fields,
        _ => Fields::new(),
    }
}

fn read<T: DeserializeOwned>(object: &Object) -> Result<T, Failure> {
    object.read().map_err(|error| failure(&error))
}

/// The failure of a call, with the class that decides when the object is tried again.
fn failure(error: &OpenZroError) -> Failure {
    let class = match &error.cause {
        Cause::Limited { .. } | Cause::Foreign { retry_after: Some(_), .. } => error.class(),
        _ if error.concerns_every_request() => ErrorClass::Unavailable(ENDPOINT),
        Cause::Linked { .. } => ErrorClass::After(REFUSED_RETRY),
        Cause::Failed { .. } | Cause::Unreadable(_) => ErrorClass::Transient,
        _ => ErrorClass::Refused,
    };
    let failure = Failure::new(class, error.reason(), error.to_string());
    if error.effect() == Effect::Unknown { failure.may_have_effect() } else { failure }
}

/// The failure of a create. An item of that name that the list does not show yet will be there in the next list.
fn failure_of_create(error: &OpenZroError) -> Failure {
    match &error.cause {
        Cause::Exists { .. } => Failure::after(REFUSED_RETRY, error.reason(), error.to_string()),
        _ => failure(error),
    }
}

#[cfg(test)]
mod tests {
    use konverge::remote::{Mark, Remote};
    use konverge_openzro::{Credential, OpenZroConfig};
    use konverge_openzro_testing::Double;
    use konverge_testkit_stores::HttpFront;
    use serde_json::json;

    use super::*;
    use crate::remote::{DesiredNetwork, Networks, Routers};

    #[tokio::test]
    async fn a_list_of_networks_serves_all_collections_until_one_of_them_writes() {
        let double = Double::start().await.unwrap();
        let front = HttpFront::start(double.url()).await.unwrap();
        let token = Credential::value(SecretValue::from(double.account().tokens["admin"].clone()));
        let account = Account::new(OpenZro::new(&OpenZroConfig::new(&front.url(), token).unwrap()));
        let (networks, routers) = (Networks::new(account.clone()), Routers::new(account));
        let lists =
            || front.journal().iter().filter(|seen| seen.path == "/api/networks" && seen.method == "GET").count();
        let create = async |name: &str| {
            let desired = DesiredNetwork { name: name.to_owned() };
            networks.create("", &desired, &Mark::new("cluster", name, "")).await.unwrap()
        };
        // An empty list serves nobody else: it may be wrong.
        assert_eq!(routers.list("").await.unwrap(), []);
        assert_eq!(networks.list("").await.unwrap(), []);
        assert_eq!(lists(), 2);
        let one = create("one").await;
        assert_eq!(routers.list("").await.unwrap(), []);
        assert_eq!(networks.list("").await.unwrap(), std::slice::from_ref(&one));
        assert_eq!(lists(), 3);
        let two = create("two").await;
        let mut found = networks.list("").await.unwrap();
        found.sort_by(|one, other| Networks::name(one).cmp(Networks::name(other)));
        assert_eq!(found, [one, two]);
        assert_eq!(lists(), 4);
    }

    #[test]
    fn w9_only_the_group_is_put_into_the_settings_or_taken_out() {
        let account = |groups: Value| map(json!({ "id": "a", "settings": { EXEMPT: groups, "unknown": { "x": 1 } } }));
        for (before, is_wanted, after) in [
            (json!(null), true, json!(["g"])),
            (json!(["h"]), true, json!(["h", "g"])),
            (json!(["g", "h"]), true, json!(["h", "g"])),
            (json!(["g", "h"]), false, json!(["h"])),
            (json!(null), false, json!([])),
        ] {
            let mut body = account(before);
            set_exempt(&mut body, "g", is_wanted);
            assert_eq!(body, account(after));
        }
    }

    #[test]
    fn the_answer_decides_when_an_object_is_tried_again_and_whether_the_call_may_have_taken_effect() {
        let message = || "why".to_owned();
        let pause = Duration::from_secs(7);
        for (cause, class) in [
            (Cause::Unauthenticated { message: message() }, ErrorClass::Unavailable(ENDPOINT)),
            (Cause::Timeout { address: "a".into(), limit: pause }, ErrorClass::Unavailable(ENDPOINT)),
            (Cause::Paused { address: "a".into(), cause: "c".into(), after: pause }, ErrorClass::Unavailable(ENDPOINT)),
            (Cause::Limited { retry_after: Some(pause) }, ErrorClass::After(pause)),
            (Cause::Forbidden { message: message() }, ErrorClass::Refused),
            (Cause::Invalid { status: 422, message: message() }, ErrorClass::Refused),
            (Cause::Linked { kind: message(), name: message() }, ErrorClass::After(REFUSED_RETRY)),
            (Cause::Failed { status: 500, message: message() }, ErrorClass::Transient),
            (Cause::Unsupported { route: "/dns/zones" }, ErrorClass::Refused),
        ] {
            let mut error = OpenZroError { what: "do it".to_owned(), effect: Effect::None, cause };
            assert_eq!(failure(&error).class(), class, "{error}");
            assert!(!failure(&error).may_have_taken_effect(), "{error}");
            error.effect = Effect::Unknown;
            assert!(failure(&error).may_have_taken_effect(), "{error}");
        }
    }
}
