//! DNS records of the zones of an account.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use konverge::remote::{Deletion, Failure, Mark, Remote};
use konverge_openzro::{
    Collection,
    types::{Record, Zone},
};
use serde_json::{Value, json};

use super::differing;
use crate::{account::Account, reasons};

/// The records of all zones. They have no field for a mark, and are found by their content.
pub struct Records {
    account: Account,
    /// The zones of the last list of each scope.
    zones: Mutex<BTreeMap<String, Arc<Vec<Zone>>>>,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordItem {
    id: String,
    /// The id of the zone.
    zone: String,
    /// The name without the domain of the zone, such as `web.shop`.
    host: String,
    /// Name, type and content.
    full_name: String,
    ttl: i64,
}

impl RecordItem {
    pub(crate) fn new(record: Record, zone: &str, domain: &str) -> Self {
        let full_name = full_name(&record.name, &record.r#type, &record.content);
        let host = record.name.strip_suffix(domain.trim_end_matches('.')).and_then(|host| host.strip_suffix('.'));
        let host = host.unwrap_or_default().to_owned();
        Self { id: record.id, zone: zone.to_owned(), host, full_name, ttl: record.ttl }
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The id of the zone.
    pub fn zone(&self) -> &str {
        &self.zone
    }
}

/// The desired content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredRecord {
    /// The id of the zone.
    pub zone: String,
    /// The domain of the zone.
    pub domain: String,
    /// The name without the domain.
    pub host: String,
    /// `A` or `AAAA`.
    pub kind: &'static str,
    /// The address.
    pub content: String,
}

impl DesiredRecord {
    /// Returns the name that distinguishes the record from all others.
    pub fn full_name(&self) -> String {
        full_name(&self.name(), self.kind, &self.content)
    }

    fn name(&self) -> String {
        format!("{}.{}", self.host, self.domain.trim_end_matches('.'))
    }
}

/// The time to live of the original.
const TTL: i64 = 300;

fn full_name(name: &str, kind: &str, content: &str) -> String {
    format!("{name} {kind} {content}")
}

fn fields(desired: &DesiredRecord) -> Value {
    json!({ "name": desired.name(), "type": desired.kind, "content": desired.content, "ttl": TTL })
}

fn collection(zone: &str) -> Collection {
    Collection::Records { zone: zone.to_owned() }
}

impl Records {
    /// The records of this account.
    pub fn new(account: Account) -> Self {
        Self { account, zones: Mutex::default() }
    }

    async fn read(&self, scope: &str) -> Result<Arc<Vec<Zone>>, Failure> {
        let zones: Arc<Vec<Zone>> = Arc::new(self.account.of(scope)?.list(&Collection::Zones).await?);
        let mut known = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(scope.to_owned(), Arc::clone(&zones));
        Ok(zones)
    }

    /// Returns the id and the domain of the zone that a name means. Lists the zones again if the last list does not have it.
    pub async fn zone(&self, scope: &str, name: &str) -> Result<Option<(String, String)>, Failure> {
        let known = self.zones.lock().unwrap_or_else(PoisonError::into_inner).get(scope).cloned().unwrap_or_default();
        match meant(&known, name) {
            Some(zone) => Ok(Some(zone)),
            None => Ok(meant(&self.read(scope).await?, name)),
        }
    }
}

/// The zone of this domain, or else the only one of this display name.
fn meant(zones: &[Zone], name: &str) -> Option<(String, String)> {
    let wanted = name.trim_end_matches('.');
    let mut by_name = zones.iter().filter(|zone| zone.name == name);
    let only = by_name.next().filter(|_| by_name.next().is_none());
    let zone = zones.iter().find(|zone| zone.domain.trim_end_matches('.') == wanted).or(only)?;
    Some((zone.id.clone(), zone.domain.clone()))
}

impl Remote for Records {
    type Item = RecordItem;
    type Desired = DesiredRecord;

    const NOUN: &'static str = "DNS record";
    const IS_MARKED: bool = false;

    async fn list(&self, scope: &str) -> Result<Vec<RecordItem>, Failure> {
        let zones = self.read(scope).await?;
        let items = |zone: &Zone| {
            let records = zone.records.iter().cloned();
            records.map(|record| RecordItem::new(record, &zone.id, &zone.domain)).collect::<Vec<_>>()
        };
        Ok(zones.iter().flat_map(items).collect())
    }

    async fn get(&self, scope: &str, id: &str) -> Result<Option<RecordItem>, Failure> {
        Ok(self.list(scope).await?.into_iter().find(|record| record.id == id))
    }

    async fn create(&self, scope: &str, desired: &DesiredRecord, _: &Mark) -> Result<RecordItem, Failure> {
        let made = self.account.of(scope)?.create::<Record>(&collection(&desired.zone), fields(desired)).await?;
        Ok(RecordItem::new(made.0, &desired.zone, &desired.domain))
    }

    async fn update(
        &self,
        scope: &str,
        item: &RecordItem,
        desired: &DesiredRecord,
        _: &Mark,
    ) -> Result<RecordItem, Failure> {
        let place = collection(&item.zone).place(&item.id);
        Ok(RecordItem::new(self.account.of(scope)?.set(&place, fields(desired)).await?, &item.zone, &desired.domain))
    }

    async fn delete(&self, scope: &str, item: &RecordItem) -> Result<Deletion, Failure> {
        self.account.of(scope)?.delete(&collection(&item.zone).place(&item.id)).await
    }

    fn id(item: &RecordItem) -> &str {
        &item.id
    }

    fn name(item: &RecordItem) -> &str {
        &item.full_name
    }

    fn name_for_rules(item: &RecordItem) -> &str {
        &item.host
    }

    fn mark(_: &RecordItem) -> Option<Mark> {
        None
    }

    fn differences(item: &RecordItem, desired: &DesiredRecord, _: &Mark) -> Result<Vec<&'static str>, Failure> {
        if item.zone != desired.zone {
            let message = format!("the record {} is in another zone", item.full_name);
            return Err(Failure::refused(reasons::IN_OTHER_ZONE, message));
        }
        Ok(differing([("content", item.full_name == desired.full_name()), ("ttl", item.ttl == TTL)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w10_a_zone_is_found_by_its_domain_before_its_display_name() {
        let zone = |id: &str, name: &str, domain: &str| {
            serde_json::from_value::<Zone>(json!({ "id": id, "name": name, "domain": domain })).unwrap()
        };
        let zones = [
            zone("1", "prod", "a.example"),
            zone("2", "a.example", "b.example"),
            zone("3", "x", "c.example"),
            zone("4", "x", "d.example"),
        ];
        for (name, expected) in [
            ("a.example", Some(("1", "a.example"))),
            ("a.example.", Some(("1", "a.example"))),
            ("prod", Some(("1", "a.example"))),
            ("x", None),
            ("y", None),
        ] {
            let found = meant(&zones, name);
            assert_eq!(found.as_ref().map(|(id, domain)| (id.as_str(), domain.as_str())), expected, "{name}");
        }
    }
}
