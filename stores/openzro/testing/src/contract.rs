//! The properties of the API.

mod account;
mod auth;
mod dns;
mod groups;
mod networks;
mod policies;

use std::pin::Pin;

use serde_json::{Map, Value};

use crate::target::Session;

/// A property that runs.
pub type Running<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A rule of the API.
pub struct Property {
    /// Its name, which is that of its transcript, too.
    pub name: &'static str,
    /// Runs it. It panics where a client would be wrong about the API.
    pub run: fn(&Session) -> Running<'_>,
}

macro_rules! properties {
    ($($module:ident::$name:ident,)*) => {
        /// All properties.
        pub const PROPERTIES: &[Property] =
            &[$(Property { name: stringify!($name), run: |session| Box::pin($module::$name(session)) },)*];
    };
}

properties! {
    auth::tokens_are_checked,
    auth::roles_decide_what_is_written,
    auth::errors_have_one_form,
    auth::personal_access_tokens_come_and_go,
    groups::names_are_unique_only_when_created,
    groups::a_put_replaces_members,
    groups::the_group_all_stays,
    groups::a_linked_group_stays,
    groups::parallel_creations_of_one_name_make_one_group,
    policies::a_policy_lives_and_dies,
    policies::a_put_replaces_a_policy,
    policies::values_of_rules_are_checked,
    policies::several_rules_share_an_id_and_hide_groups,
    policies::setup_keys_live_and_die,
    policies::values_of_setup_keys_are_checked,
    networks::a_network_takes_its_parts_along,
    networks::resource_names_are_unique_and_addresses_canonical,
    networks::a_put_replaces_a_resource,
    networks::the_network_in_a_path_moves_what_is_put,
    networks::a_router_is_upserted,
    networks::another_accounts_objects_are_not_found,
    dns::zones_do_not_overlap,
    dns::a_put_of_a_zone_keeps_records,
    dns::records_are_checked,
    account::settings_that_are_left_out_fall_to_zero,
    account::lists_show_writes_at_once,
    account::writes_make_audit_events,
    account::parallel_writes_succeed,
    account::peers_are_absent,
}

/// The object with some keys replaced; [`Value::Null`] takes a key out.
#[expect(clippy::needless_pass_by_value, reason = "all callers make it for this call")]
fn with(object: &Value, changes: Value) -> Value {
    let mut map = object.as_object().cloned().unwrap_or_default();
    for (key, value) in changes.as_object().cloned().unwrap_or_default() {
        if value.is_null() {
            map.remove(&key);
        } else {
            map.insert(key, value);
        }
    }
    Value::Object(map)
}

/// The names of an object's keys.
fn keys(object: &Value) -> Vec<&str> {
    object.as_object().map(Map::keys).into_iter().flatten().map(String::as_str).collect()
}

/// Makes a group and returns its id.
async fn group(session: &Session, name: &str) -> String {
    session.post("/groups", serde_json::json!({ "name": name })).await.id()
}
