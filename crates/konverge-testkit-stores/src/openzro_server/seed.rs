//! Accounts, users and tokens, as rows of the server's database. The server does not run meanwhile.

use std::{collections::BTreeMap, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};
use sqlx::{
    Connection,
    sqlite::{SqliteConnectOptions, SqliteConnection},
};

use super::{OpenZroAccount, token::personal_access_token};

const CREATED: &str = "2026-01-01 00:00:00+00:00";

/// Role of a token, role of its user, whether the user is blocked, and when the token expires.
const TOKENS: [(&str, &str, bool, &str); 6] = [
    ("owner", "owner", false, "2036-01-01 00:00:00+00:00"),
    ("admin", "admin", false, "2036-01-01 00:00:00+00:00"),
    ("network_admin", "network_admin", false, "2036-01-01 00:00:00+00:00"),
    ("user", "user", false, "2036-01-01 00:00:00+00:00"),
    ("blocked", "admin", true, "2036-01-01 00:00:00+00:00"),
    ("expired", "admin", false, "2026-01-02 00:00:00+00:00"),
];

/// Puts that many accounts into the database, each with the group `All` and a service user for each token.
pub(super) async fn accounts(database: &Path, number: usize) -> Result<Vec<OpenZroAccount>, sqlx::Error> {
    let mut connection = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(database)).await?;
    let mut transaction = connection.begin().await?;
    let mut accounts = Vec::new();
    for number in 0..number {
        accounts.push(account(&mut transaction, format!("account{number:03}")).await?);
    }
    transaction.commit().await?;
    connection.close().await?;
    Ok(accounts)
}

async fn account(database: &mut SqliteConnection, id: String) -> Result<OpenZroAccount, sqlx::Error> {
    sqlx::query(
        "INSERT INTO accounts (id, created_by, created_at, domain, domain_category, is_domain_primary_account, \
         network_identifier, network_net, network_dns, network_serial, dns_settings_disabled_management_groups, \
         settings_peer_login_expiration) VALUES (?, ?, ?, ?, 'private', 1, ?, \
         '{\"IP\":\"100.64.0.0\",\"Mask\":\"//8AAA==\"}', '', 0, '[]', 86400000000000)",
    )
    .bind(&id)
    .bind(format!("{id}-owner"))
    .bind(CREATED)
    .bind(format!("{id}.test"))
    .bind(format!("net{id}"))
    .execute(&mut *database)
    .await?;
    sqlx::query(
        "INSERT INTO groups (id, account_id, name, issued, peers, resources) VALUES (?, ?, 'All', 'api', '[]', '[]')",
    )
    .bind(format!("{id}-all"))
    .bind(&id)
    .execute(&mut *database)
    .await?;
    let mut tokens = BTreeMap::new();
    for (name, role, blocked, expires) in TOKENS {
        let user = format!("{id}-{name}");
        sqlx::query(
            "INSERT INTO users (id, account_id, role, is_service_user, service_user_name, auto_groups, blocked, issued, \
             created_at, non_deletable) VALUES (?, ?, ?, 1, ?, '[]', ?, 'api', ?, 0)",
        )
        .bind(&user)
        .bind(&id)
        .bind(role)
        .bind(name)
        .bind(blocked)
        .bind(CREATED)
        .execute(&mut *database)
        .await?;
        tokens.insert(name, token(database, &user, expires).await?);
    }
    Ok(OpenZroAccount { id, tokens })
}

/// Gives a user a token.
async fn token(database: &mut SqliteConnection, user: &str, expires: &str) -> Result<String, sqlx::Error> {
    // Any 30 characters of the alphabet are a secret; these are the same in each run.
    let secret: String = hex::encode(Sha256::digest(user.as_bytes())).chars().take(30).collect();
    let token = personal_access_token(&secret);
    sqlx::query(
        "INSERT INTO personal_access_tokens (id, user_id, name, hashed_token, expiration_date, created_by, created_at) \
         VALUES (?, ?, 'test', ?, ?, ?, ?)",
    )
    .bind(format!("token-{user}"))
    .bind(user)
    .bind(BASE64_STANDARD.encode(Sha256::digest(token.as_bytes())))
    .bind(expires)
    .bind(user)
    .bind(CREATED)
    .execute(database)
    .await?;
    Ok(token)
}
