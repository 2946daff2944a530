//! DNS zones and records.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use super::{AccountState, Outcome, Refusal, body::Body, refused};

/// The domain of the account's peers.
const PEERS: &str = "openzro.selfhosted";

pub(super) struct Zone {
    id: String,
    name: String,
    domain: String,
    enabled: bool,
    search: bool,
    groups: Vec<String>,
    records: Vec<Record>,
}

struct Record {
    id: String,
    name: String,
    kind: String,
    content: String,
    ttl: i64,
}

impl Record {
    fn shown(&self) -> Value {
        json!({ "id": self.id, "name": self.name, "type": self.kind, "content": self.content, "ttl": self.ttl })
    }
}

impl Zone {
    fn shown(&self) -> Value {
        let records: Vec<_> = self.records.iter().map(Record::shown).collect();
        json!({ "id": self.id, "name": self.name, "domain": self.domain, "enabled": self.enabled,
            "enable_search_domain": self.search, "distribution_groups": self.groups, "records": records })
    }

    /// The record of a request, whose id is `id`.
    fn record(&self, id: String, body: &Body) -> Result<Record, Refusal> {
        body.only(&["id", "name", "type", "content", "ttl"])?;
        let name = normal(&body.text("name")?);
        let (kind, content) = (body.text("type")?, body.text("content")?);
        let ttl = body.number("ttl")?;
        if name.is_empty() {
            return refused(422, "dns record name is required");
        }
        if !is_within(&name, &self.domain) {
            return refused(422, format!("dns record name \"{name}\" is not within zone domain \"{}\"", self.domain));
        }
        if let Some(ttl) = ttl.filter(|ttl| *ttl < 1) {
            return refused(
                422,
                format!("dns record ttl must be ≥ 1 (got {ttl}); omit the field to use the default (300)"),
            );
        }
        let content = match kind.as_str() {
            "A" if content.parse::<Ipv4Addr>().is_err() => {
                return refused(
                    422,
                    format!("a record content must be an ipv4 address; got \"{}\"", content.to_lowercase()),
                );
            }
            "AAAA" if content.parse::<Ipv6Addr>().is_err() => {
                let shown = content.to_lowercase();
                return refused(422, format!("aaaa record content must be an ipv6 address; got \"{shown}\""));
            }
            "CNAME" if content.parse::<IpAddr>().is_ok() => {
                return refused(422, format!("cname record content must be a hostname; got \"{content}\""));
            }
            "CNAME" if content.contains(char::is_whitespace) => {
                return refused(422, format!("cname record content has whitespace; got \"{content}\""));
            }
            "CNAME" => normal(&content),
            "A" | "AAAA" => content,
            other => {
                let shown = other.to_lowercase();
                return refused(
                    422,
                    format!("dns record type \"{shown}\" not supported in v1 (allowed: a, aaaa, cname)"),
                );
            }
        };
        let mut others = self.records.iter().filter(|record| record.id != id && record.name == name);
        if kind == "CNAME" && others.any(|record| record.kind != "CNAME") {
            return refused(
                422,
                format!("cannot add cname \"{name}\": an a or aaaa record already exists at the same name"),
            );
        }
        if kind != "CNAME" && others.any(|record| record.kind == "CNAME") {
            let kind = kind.to_lowercase();
            return refused(422, format!("cannot add {kind} \"{name}\": a cname already exists at the same name"));
        }
        Ok(Record { id, name, kind, content, ttl: ttl.unwrap_or(300) })
    }
}

fn normal(name: &str) -> String {
    name.trim_end_matches('.').to_lowercase()
}

fn is_within(name: &str, domain: &str) -> bool {
    name == domain || name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

fn missing<T>(kind: &str, id: &str) -> Result<T, Refusal> {
    refused(404, format!("dns {kind}: {id} not found"))
}

impl AccountState {
    pub(super) fn route_zones(&mut self, method: &str, segments: &[&str], body: &[u8], id: String) -> Outcome {
        let parsed = || Body::parse(body);
        match (method, segments) {
            ("GET", []) => return Ok(self.zones.iter().map(Zone::shown).collect()),
            ("POST", []) => return self.create_zone(&parsed()?, &id),
            ("PUT", [zone]) => return self.put_zone(zone, &parsed()?),
            _ => {}
        }
        let zone_id = segments.first().copied().unwrap_or_default();
        let Some(position) = self.zones.iter().position(|zone| zone.id == zone_id) else {
            return match segments {
                [_] | [_, "records"] => missing("zone", zone_id),
                _ => Err(Refusal::Unproven("a record of a missing zone".to_owned())),
            };
        };
        let zone = &mut self.zones[position];
        let record = segments.get(2).map(|id| zone.records.iter().position(|record| record.id == *id).ok_or(*id));
        let outcome = match (method, segments, record) {
            ("GET", [_], _) => return Ok(zone.shown()),
            ("GET", [_, "records"], _) => return Ok(zone.records.iter().map(Record::shown).collect()),
            (_, [_, "records", _], Some(Err(id))) => return missing("record", id),
            ("GET", [_, "records", _], Some(Ok(record))) => return Ok(zone.records[record].shown()),
            ("DELETE", [_], _) => {
                self.zones.remove(position);
                json!({})
            }
            ("POST", [_, "records"], _) => {
                let record = zone.record(id, &parsed()?)?;
                let shown = record.shown();
                zone.records.push(record);
                shown
            }
            ("PUT", [_, "records", id], Some(Ok(record))) => {
                zone.records[record] = zone.record((*id).to_owned(), &parsed()?)?;
                zone.records[record].shown()
            }
            ("DELETE", [_, "records", _], Some(Ok(record))) => {
                zone.records.remove(record);
                json!({})
            }
            _ => return Err(Refusal::Unproven("the route".to_owned())),
        };
        self.unproven_event();
        Ok(outcome)
    }

    fn zone_content(body: &Body, id: &str) -> Result<Zone, Refusal> {
        body.only(&["id", "name", "domain", "enabled", "enable_search_domain", "distribution_groups", "records"])?;
        let zone = Zone {
            id: id.to_owned(),
            name: body.text("name")?,
            domain: normal(&body.text("domain")?),
            enabled: body.flag("enabled")?.unwrap_or(true),
            search: body.flag("enable_search_domain")?.unwrap_or_default(),
            groups: body.texts("distribution_groups")?.unwrap_or_default(),
            records: Vec::new(),
        };
        if !(1..=255).contains(&zone.name.len()) {
            return refused(422, "dns zone name length must be in [1, 255]");
        }
        Ok(zone)
    }

    fn check_distribution(&self, groups: &[String]) -> Result<(), Refusal> {
        if groups.is_empty() {
            return refused(422, "dns zone requires at least one distribution group");
        }
        for (position, id) in groups.iter().enumerate() {
            if self.group(id).is_none() {
                return refused(422, format!("dns zone distribution group \"{id}\" not found in account"));
            }
            if groups[..position].contains(id) {
                return refused(422, format!("dns zone distribution group \"{id}\" appears more than once"));
            }
        }
        Ok(())
    }

    fn create_zone(&mut self, body: &Body, id: &str) -> Outcome {
        let zone = Self::zone_content(body, id)?;
        let domain = &zone.domain;
        if domain.is_empty() {
            return refused(422, "dns zone domain is required");
        }
        self.check_distribution(&zone.groups)?;
        let overlaps = |other: &str| is_within(domain, other) || is_within(other, domain);
        let advice = "pick a non-overlapping namespace";
        if overlaps(PEERS) {
            return refused(
                422,
                format!("dns zone domain \"{domain}\" overlaps with the peer dns domain \"{PEERS}\"; {advice}"),
            );
        }
        if let Some(other) = self.zones.iter().find(|other| overlaps(&other.domain)) {
            let other = &other.domain;
            return refused(
                422,
                format!("dns zone domain \"{domain}\" overlaps with existing zone \"{other}\"; {advice}"),
            );
        }
        let shown = zone.shown();
        self.zones.push(zone);
        self.unproven_event();
        Ok(shown)
    }

    fn put_zone(&mut self, id: &str, body: &Body) -> Outcome {
        let Some(position) = self.zones.iter().position(|zone| zone.id == id) else { return missing("zone", id) };
        let new = Self::zone_content(body, id)?;
        if new.domain != self.zones[position].domain {
            return refused(422, "dns zone domain is immutable; create a new zone instead");
        }
        self.check_distribution(&new.groups)?;
        let zone = &mut self.zones[position];
        let records = std::mem::take(&mut zone.records);
        *zone = Zone { records, ..new };
        let shown = zone.shown();
        self.unproven_event();
        Ok(shown)
    }
}
