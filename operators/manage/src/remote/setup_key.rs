//! Setup keys.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
};

use konverge::remote::{Deletion, Failure, Mark, Remote};
use konverge_core::SecretValue;
use konverge_openzro::{Collection, types::SetupKey};
use serde_json::json;

use super::{differing, marked};
use crate::account::Account;

/// The setup keys of an account. The mark is a part of the name, which nothing else reads.
pub struct SetupKeys {
    account: Account,
    /// The keys that this process has created and not yet handed out, by scope and id. The server tells them once.
    secrets: Mutex<HashMap<(String, String), SecretValue>>,
}

impl SetupKeys {
    /// The setup keys of this account.
    pub fn new(account: Account) -> Self {
        Self { account, secrets: Mutex::default() }
    }

    /// Takes the secret of a key that this process has created. `None` for all others: nothing tells it any more.
    pub fn take_secret(&self, scope: &str, id: &str) -> Option<SecretValue> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).remove(&(scope.to_owned(), id.to_owned()))
    }
}

/// A setup key, without the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupKeyItem {
    id: String,
    /// The name, with the mark.
    full_name: String,
    name: String,
    /// The first five characters and stars.
    masked: String,
    state: String,
    ephemeral: bool,
    allow_extra_dns_labels: bool,
    auto_groups: BTreeSet<String>,
}

impl From<SetupKey> for SetupKeyItem {
    fn from(key: SetupKey) -> Self {
        // The mark is the last word. The name of an object may have one, too.
        let name = key.name.rsplit_once(" konverge=").map_or(key.name.as_str(), |(name, _)| name).to_owned();
        Self {
            id: key.id,
            name,
            full_name: key.name,
            masked: key.key,
            state: key.state,
            ephemeral: key.ephemeral,
            allow_extra_dns_labels: key.allow_extra_dns_labels,
            auto_groups: key.auto_groups.into_iter().collect(),
        }
    }
}

impl SetupKeyItem {
    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The ids of the groups that its peers join.
    pub fn auto_groups(&self) -> &BTreeSet<String> {
        &self.auto_groups
    }

    /// Why no peer can use the key any more, or why it is not the desired one although nothing can change it; `None` if it is fine.
    pub fn why_replaced(&self, desired: &DesiredSetupKey) -> Option<String> {
        match self.state.as_str() {
            "valid" => {}
            // A key for one peer has served its purpose.
            "overused" if !desired.is_reusable || (desired.is_own_limit && desired.usage_limit > 0) => {}
            state => return Some(format!("it is {state}")),
        }
        if self.ephemeral != desired.ephemeral {
            return Some(format!("ephemeral is to be {}", desired.ephemeral));
        }
        (self.allow_extra_dns_labels != desired.allow_extra_dns_labels)
            .then(|| format!("allowExtraDnsLabels is to be {}", desired.allow_extra_dns_labels))
    }

    /// Whether this text can be the key: the server shows the first characters.
    pub fn may_be(&self, secret: &str) -> bool {
        let shown = self.masked.trim_end_matches('*');
        !shown.is_empty() && secret.starts_with(shown)
    }
}

/// The desired content of a setup key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is true independently of the others")]
pub struct DesiredSetupKey {
    /// The name, without the mark.
    pub name: String,
    /// Whether several peers can use it.
    pub is_reusable: bool,
    /// How many peers a new key can serve; 0 for any number.
    pub usage_limit: i32,
    /// Whether the object sets that limit itself. A used-up key is not replaced then.
    pub is_own_limit: bool,
    /// Whether its peers are removed after they disconnect.
    pub ephemeral: bool,
    /// After how many seconds a new key expires; 0 for never.
    pub expires_in: u64,
    /// Ids of the groups that its peers join.
    pub auto_groups: BTreeSet<String>,
    /// Whether its peers may present extra DNS labels.
    pub allow_extra_dns_labels: bool,
}

impl Remote for SetupKeys {
    type Item = SetupKeyItem;
    type Desired = DesiredSetupKey;

    const NOUN: &'static str = "setup key";
    const NAMES_ARE_UNIQUE: bool = false;

    async fn list(&self, scope: &str) -> Result<Vec<SetupKeyItem>, Failure> {
        Ok(self
            .account
            .of(scope)?
            .list::<SetupKey>(&Collection::SetupKeys)
            .await?
            .into_iter()
            .map(Into::into)
            .collect())
    }

    async fn get(&self, scope: &str, id: &str) -> Result<Option<SetupKeyItem>, Failure> {
        Ok(self.account.of(scope)?.find::<SetupKey>(&Collection::SetupKeys.place(id)).await?.map(Into::into))
    }

    async fn create(&self, scope: &str, desired: &DesiredSetupKey, mark: &Mark) -> Result<SetupKeyItem, Failure> {
        let fields = json!({
            "name": marked(&desired.name, mark),
            "type": if desired.is_reusable { "reusable" } else { "one-off" },
            "expires_in": desired.expires_in,
            "auto_groups": desired.auto_groups,
            "usage_limit": desired.usage_limit,
            "ephemeral": desired.ephemeral,
            "allow_extra_dns_labels": desired.allow_extra_dns_labels,
        });
        let (key, secret) = self.account.of(scope)?.create::<SetupKey>(&Collection::SetupKeys, fields).await?;
        if let Some(secret) = secret {
            let place = (scope.to_owned(), key.id.clone());
            self.secrets.lock().unwrap_or_else(PoisonError::into_inner).insert(place, secret);
        }
        Ok(key.into())
    }

    async fn update(
        &self,
        scope: &str,
        item: &SetupKeyItem,
        desired: &DesiredSetupKey,
        _: &Mark,
    ) -> Result<SetupKeyItem, Failure> {
        let place = Collection::SetupKeys.place(&item.id);
        let set =
            self.account.of(scope)?.set::<SetupKey>(&place, json!({ "auto_groups": desired.auto_groups })).await?;
        Ok(set.into())
    }

    async fn delete(&self, scope: &str, item: &SetupKeyItem) -> Result<Deletion, Failure> {
        let deleted = self.account.of(scope)?.delete(&Collection::SetupKeys.place(&item.id)).await?;
        drop(self.take_secret(scope, &item.id));
        Ok(deleted)
    }

    fn id(item: &SetupKeyItem) -> &str {
        &item.id
    }

    fn name(item: &SetupKeyItem) -> &str {
        &item.name
    }

    fn mark(item: &SetupKeyItem) -> Option<Mark> {
        Mark::find_in(&item.full_name)
    }

    fn differences(item: &SetupKeyItem, desired: &DesiredSetupKey, _: &Mark) -> Result<Vec<&'static str>, Failure> {
        // Neither the name nor anything else can change.
        Ok(differing([("auto_groups", item.auto_groups == desired.auto_groups)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w32_a_key_is_replaced_when_it_cannot_serve_any_more_and_a_short_secret_is_no_panic() {
        let desired = |ephemeral, allow_extra_dns_labels| DesiredSetupKey {
            name: "k".to_owned(),
            is_reusable: true,
            usage_limit: 0,
            is_own_limit: false,
            ephemeral,
            expires_in: 0,
            auto_groups: BTreeSet::new(),
            allow_extra_dns_labels,
        };
        let item = |state: &str| {
            let key =
                json!({ "id": "1", "name": "k konverge=c/u", "key": "ABCDE****", "state": state, "ephemeral": true });
            SetupKeyItem::from(serde_json::from_value::<SetupKey>(key).unwrap())
        };
        assert_eq!(item("valid").why_replaced(&desired(true, false)), None);
        for (state, ephemeral, labels, why) in [
            ("revoked", true, false, "it is revoked"),
            ("expired", true, false, "it is expired"),
            ("overused", true, false, "it is overused"),
            ("valid", false, false, "ephemeral is to be false"),
            ("valid", true, true, "allowExtraDnsLabels is to be true"),
        ] {
            assert_eq!(item(state).why_replaced(&desired(ephemeral, labels)).as_deref(), Some(why));
        }
        for (secret, may_be) in [("ABCDE-1", true), ("ABCD", false), ("", false), ("ABCDF-1", false)] {
            assert_eq!(item("valid").may_be(secret), may_be, "{secret}");
        }
        assert_eq!(
            (SetupKeys::name(&item("valid")), SetupKeys::mark(&item("valid"))),
            ("k", Some(Mark::new("c", "u", "")))
        );
    }
}
