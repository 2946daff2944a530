//! The notices between replicas through PostgreSQL: the original's channels and payloads, and our own.

use serde::{Deserialize, Serialize};

use super::Event;

/// The channel of what the original does not tell: ends of environments, changes of several keys at once, and losses of principals.
pub(crate) const OWN_CHANNEL: &str = "konverge_zopp";
/// The prefix of the original's channels. The id of the environment follows, with `_` for `-`.
const PREFIX: &str = "zopp_env_";
/// Ids in one payload at most: PostgreSQL takes no payload beyond 8,000 bytes.
const IDS: usize = 100;

/// A payload and its channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) channel: String,
    pub(crate) payload: String,
}

/// A received notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReceivedNotice {
    /// Something happened in the environment of this id.
    Event(String, Event),
    /// These principals lost something.
    Lost(Vec<String>),
}

#[derive(Serialize, Deserialize)]
struct Change {
    event_type: ChangeType,
    key: String,
    version: i64,
    timestamp: i64,
}

#[derive(Serialize, Deserialize)]
enum ChangeType {
    Created,
    Updated,
    Deleted,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Own {
    EnvironmentDeleted(String),
    SeveralChanged(String, i64),
    Lost(Vec<String>),
}

/// The channel of an environment.
pub(crate) fn channel(environment_id: &str) -> String {
    format!("{PREFIX}{}", environment_id.replace('-', "_"))
}

/// The notice of an event; `None` for what is not told to others.
pub(crate) fn of_event(environment_id: &str, event: &Event) -> Option<Notice> {
    match event {
        Event::Changed { key, version, deleted, timestamp } => {
            let event_type = if *deleted { ChangeType::Deleted } else { ChangeType::Updated };
            let change = Change { event_type, key: key.clone(), version: *version, timestamp: *timestamp };
            Some(Notice { channel: channel(environment_id), payload: json(&change) })
        }
        Event::SeveralChanged { version } => Some(own(&Own::SeveralChanged(environment_id.to_owned(), *version))),
        Event::EnvironmentDeleted => Some(own(&Own::EnvironmentDeleted(environment_id.to_owned()))),
        Event::Missed => None,
    }
}

/// The channel of a changed key, and the payload before and after the version of the environment.
pub(crate) fn around_version(environment_id: &str, key: &str, deleted: bool, timestamp: i64) -> (String, [String; 2]) {
    let event_type = if deleted { ChangeType::Deleted } else { ChangeType::Updated };
    let (event_type, key) = (json(&event_type), json(&key));
    let before = format!(r#"{{"event_type":{event_type},"key":{key},"version":"#);
    (channel(environment_id), [before, format!(r#","timestamp":{timestamp}}}"#)])
}

/// The notices of losses.
pub(crate) fn of_losses(principal_ids: &[String]) -> impl Iterator<Item = Notice> + '_ {
    principal_ids.chunks(IDS).map(|ids| own(&Own::Lost(ids.to_vec())))
}

/// Parses a notice. Returns `None` if this version does not know it.
pub(crate) fn parse(channel: &str, payload: &str) -> Option<ReceivedNotice> {
    if channel == OWN_CHANNEL {
        return Some(match serde_json::from_str(payload).ok()? {
            Own::SeveralChanged(id, version) => ReceivedNotice::Event(id, Event::SeveralChanged { version }),
            Own::EnvironmentDeleted(id) => ReceivedNotice::Event(id, Event::EnvironmentDeleted),
            Own::Lost(ids) => ReceivedNotice::Lost(ids),
        });
    }
    let environment_id = channel.strip_prefix(PREFIX)?.replace('_', "-");
    let Change { event_type, key, version, timestamp } = serde_json::from_str(payload).ok()?;
    let deleted = matches!(event_type, ChangeType::Deleted);
    Some(ReceivedNotice::Event(environment_id, Event::Changed { key, version, deleted, timestamp }))
}

fn own(own: &Own) -> Notice {
    Notice { channel: OWN_CHANNEL.into(), payload: json(own) }
}

#[expect(clippy::expect_used, reason = "structs of texts and numbers are always JSON")]
fn json(payload: &impl Serialize) -> String {
    serde_json::to_string(payload).expect("texts and numbers")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn changes_are_told_as_the_original_tells_them() {
        let event = Event::Changed { key: "A".into(), version: 7, deleted: true, timestamp: 9 };
        let notice = of_event(ID, &event).unwrap();
        assert_eq!(notice.channel, "zopp_env_01890a5d_ac96_774b_bcce_b302099a8057");
        assert_eq!(notice.payload, r#"{"event_type":"Deleted","key":"A","version":7,"timestamp":9}"#);
        assert_eq!(parse(&notice.channel, &notice.payload), Some(ReceivedNotice::Event(ID.into(), event)));
        let created = r#"{"event_type":"Created","key":"A","version":1,"timestamp":9}"#;
        let heard = Event::Changed { key: "A".into(), version: 1, deleted: false, timestamp: 9 };
        assert_eq!(parse(&notice.channel, created), Some(ReceivedNotice::Event(ID.into(), heard)));
    }

    #[test]
    fn ends_and_losses_have_a_channel_of_their_own() {
        let notice = of_event(ID, &Event::EnvironmentDeleted).unwrap();
        assert_eq!(notice.channel, OWN_CHANNEL);
        assert_eq!(
            parse(OWN_CHANNEL, &notice.payload),
            Some(ReceivedNotice::Event(ID.into(), Event::EnvironmentDeleted))
        );
        let several = Event::SeveralChanged { version: 7 };
        let notice = of_event(ID, &several).unwrap();
        assert_eq!(parse(OWN_CHANNEL, &notice.payload), Some(ReceivedNotice::Event(ID.into(), several)));
        let ids: Vec<String> = (0..250).map(|number| format!("{number:036}")).collect();
        let notices: Vec<Notice> = of_losses(&ids).collect();
        assert!(notices.iter().all(|notice| notice.payload.len() < 8000), "as PostgreSQL limits it");
        let heard: Vec<String> = notices
            .iter()
            .flat_map(|notice| match parse(OWN_CHANNEL, &notice.payload) {
                Some(ReceivedNotice::Lost(ids)) => ids,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(heard, ids);
    }

    #[test]
    fn what_is_not_understood_is_nothing() {
        for (channel, payload) in [
            (OWN_CHANNEL, "{}"),
            ("zopp_env_x", "not JSON"),
            ("zopp_env_x", r#"{"event_type":"Renamed","key":"A","version":1,"timestamp":9}"#),
            ("other", r#"{"event_type":"Created","key":"A","version":1,"timestamp":9}"#),
        ] {
            assert_eq!(parse(channel, payload), None, "{channel} {payload}");
        }
    }

    proptest! {
        #[test]
        fn any_payload_is_a_notice_or_nothing(channel in "(zopp_env_|konverge_zopp)?.{0,40}", payload in ".*") {
            let _ = parse(&channel, &payload);
        }

        #[test]
        fn a_change_is_heard_as_it_was_told(key in ".*", version: i64, timestamp: i64, deleted: bool) {
            let event = Event::Changed { key, version, deleted, timestamp };
            let notice = of_event(ID, &event).unwrap();
            let Event::Changed { key, .. } = &event else { unreachable!() };
            let (channel, [before, after]) = around_version(ID, key, deleted, timestamp);
            prop_assert_eq!((&channel, format!("{before}{version}{after}")), (&notice.channel, notice.payload.clone()));
            prop_assert_eq!(parse(&notice.channel, &notice.payload), Some(ReceivedNotice::Event(ID.into(), event)));
        }
    }
}
