//! `zopp principal export` and `import`: the same principal on another device.
//!
//! The export is encrypted here with words that the server never sees, and lies on the server under a code for a time. The words
//! go from device to device by another way than the code, or by the person who owns both.

use std::{io::IsTerminal, time::Duration};

use clap::Args;
use konverge_zopp_client::{CallError, ConfigFile, Connection, config_file::Principal};
use konverge_zopp_crypto::{
    SigningSeed, X25519Private,
    export::{Passphrase, SALT_LENGTH, salt},
};
use konverge_zopp_proto::{
    ConsumePrincipalExportRequest, CreatePrincipalExportRequest, GetPrincipalExportRequest, GetPrincipalExportResponse,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tonic::Code;
use zeroize::Zeroizing;

use super::local::find;
use crate::{
    context::Context,
    failure::{Failure, failed},
    output::{Answer, Outcome, plain, time},
    wiped::Wiped,
};

/// Set by scripts; else words are drawn, or asked for.
const PASSPHRASE_VARIABLE: &str = "ZOPP_EXPORT_PASSPHRASE";
const CODE_VARIABLE: &str = "ZOPP_EXPORT_CODE";
/// The version of the export that is written and read.
const VERSION: u32 = 1;
/// Waits between the attempts to delete an export that was imported.
const CONSUME_AGAIN: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(200)];

pub(super) const EXPORT_EXAMPLES: &str = "\
Example:
  zopp principal export laptop --expires-hours 1
  zopp principal import                          on the other device: asks for code and passphrase

Both devices then are the same principal. For a device that can be cut off by itself, use
zopp principal create. Three wrong passphrases delete the export.";

/// `zopp principal export`
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The principal's name
    name: String,
    /// For how many hours it can be imported
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=87_600))]
    expires_hours: u32,
}

/// `zopp principal import`
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The code of the export [env: `ZOPP_EXPORT_CODE`; default: asked for]
    #[arg(short, long, help = "The code of the export [env: ZOPP_EXPORT_CODE; default: asked for]")]
    code: Option<String>,
    /// The passphrase, which other processes of this machine can read here.
    #[arg(short, long, hide = true)]
    passphrase: Option<String>,
}

/// The plaintext of an export. Field for field as the original writes it.
#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    server_url: String,
    /// Empty for a service.
    email: String,
    /// Empty for a service.
    user_id: String,
    principal: Keys,
}

#[derive(Serialize, Deserialize)]
struct Keys {
    id: String,
    name: String,
    private_key: KeyText,
    public_key: String,
    x25519_private_key: Option<KeyText>,
    x25519_public_key: Option<String>,
}

/// A private key in hexadecimal. Wiped on drop.
struct KeyText(Zeroizing<String>);

impl Serialize for KeyText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

/// `principal export`. Holds the passphrase, hence printed from here and not cloned into an object.
struct Exported {
    name: String,
    code: String,
    passphrase: Passphrase,
    expires_at: i64,
}

impl Answer for Exported {
    fn text(&self, text: &mut Wiped) -> Result<(), Failure> {
        let Self { name, code, passphrase, expires_at } = self;
        text.push(format!("Principal '{name}' exported\n\nCode:\n  {code}\n\nPassphrase:\n").as_bytes());
        text.push(passphrase.expose().as_bytes());
        text.push(
            format!("\n\nExpires: {}\nOn the other device: zopp principal import\n", time(*expires_at)).as_bytes(),
        );
        Ok(())
    }

    fn json(&self, text: &mut Wiped) -> serde_json::Result<()> {
        #[derive(Serialize)]
        struct Object<'a> {
            name: &'a str,
            code: &'a str,
            passphrase: &'a str,
            expires_at: String,
        }
        let Self { name, code, passphrase, expires_at } = self;
        let object = Object { name, code, passphrase: passphrase.expose(), expires_at: time(*expires_at) };
        serde_json::to_writer_pretty(text, &object)
    }
}

/// `principal import`
#[derive(Serialize)]
struct Imported {
    id: String,
    name: String,
    /// `null` for a service principal.
    email: Option<String>,
    user_id: Option<String>,
    current: bool,
}

/// The export belongs to the current principal at the server, also if it holds another one of this device.
pub(super) async fn export(context: &Context, arguments: ExportArguments) -> Outcome {
    let ExportArguments { name, expires_hours } = arguments;
    let config = Context::config()?;
    let principal = &config.principals[find(&config, &name)?];
    let client = context.client()?;
    let what = || format!("cannot export principal '{name}'");
    let passphrase = match std::env::var(PASSPHRASE_VARIABLE) {
        Ok(words) if !words.trim().is_empty() => Passphrase::new(words.trim().to_owned()),
        _ => Passphrase::generate().map_err(|source| Failure::new(what()).because(source))?,
    };
    let expires_at = jiff::Timestamp::now().as_second().saturating_add(i64::from(expires_hours) * 3600);
    let request = seal(principal, client.connection().server(), &passphrase, expires_at)
        .map_err(|source| Failure::new(what()).because(source))?;
    let code = client.create_principal_export(request).await.map_err(failed(what(), None))?.export_code;
    Ok(Box::new(Exported { name, code, passphrase, expires_at }))
}

fn seal(
    principal: &Principal,
    server: &str,
    passphrase: &Passphrase,
    expires_at: i64,
) -> Result<CreatePrincipalExportRequest, Box<dyn std::error::Error + Send + Sync>> {
    let content = Content {
        version: VERSION,
        server_url: server.to_owned(),
        email: principal.email.clone().unwrap_or_default(),
        user_id: principal.user_id.clone().unwrap_or_default(),
        principal: Keys {
            id: principal.id.clone(),
            name: principal.name.clone(),
            private_key: KeyText(principal.private_key.clone()),
            public_key: principal.public_key.clone(),
            x25519_private_key: principal.x25519_private_key.clone().map(KeyText),
            x25519_public_key: principal.x25519_public_key.clone(),
        },
    };
    let mut json = Wiped::default();
    serde_json::to_writer(&mut json, &content)?;
    let (verification_salt, salt) = (salt()?, salt()?);
    let sealed = passphrase.export_key(&salt)?.seal(json.bytes())?;
    Ok(CreatePrincipalExportRequest {
        token_hash: passphrase.token_hash(&verification_salt)?,
        verification_salt: verification_salt.to_vec(),
        encrypted_data: sealed.ciphertext,
        salt: salt.to_vec(),
        nonce: sealed.nonce.to_vec(),
        expires_at,
    })
}

/// Asks for the salt with the code, then for the rest with what the passphrase derives; saves; then has the export deleted.
pub(super) async fn import(context: &Context, arguments: ImportArguments) -> Outcome {
    let code = given(arguments.code, CODE_VARIABLE, "code", || {
        eprint!("Code: ");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    })?;
    let code = code.trim().to_owned();
    let words =
        given(arguments.passphrase, PASSPHRASE_VARIABLE, "passphrase", || rpassword::prompt_password("Passphrase: "))?;
    let passphrase = Passphrase::new(words.trim().to_owned());
    drop(words);
    let connection = context.connection()?;
    let (exported, token_hash) = fetch(&connection, &code, &passphrase).await?;

    let lock = Context::lock()?;
    let mut config = Context::config_or_empty()?;
    let imported = add(&mut config, exported)?;
    Context::save(&config)?;
    drop(lock);
    let is_deleted = consume(&connection, &code, &token_hash).await;

    let identity = imported.email.as_deref().unwrap_or("service principal");
    let mut text = format!("Imported principal '{}' (ID: {}, User: {identity})", imported.name, imported.id);
    if !imported.current {
        text.push_str("\nTo use it: zopp principal use ");
        text.push_str(&imported.name);
    }
    if !is_deleted {
        text.push_str("\nThe export could not be deleted from the server; it is there until it expires.");
    }
    Ok(plain(imported, text))
}

/// From the command line, else the variable, else a prompt.
fn given(
    argument: Option<String>,
    variable: &str,
    what: &str,
    prompt: impl FnOnce() -> std::io::Result<String>,
) -> Result<Zeroizing<String>, Failure> {
    let value = argument.or_else(|| std::env::var(variable).ok()).filter(|value| !value.is_empty());
    match value {
        Some(value) => Ok(Zeroizing::new(value)),
        None if std::io::stdin().is_terminal() => prompt()
            .map(Zeroizing::new)
            .map_err(|source| Failure::new(format!("the {what} cannot be asked for")).because(source)),
        None => Err(Failure::usage(format!("no {what} is given"))
            .next(format!("Set {variable}, or run the command in a terminal, which asks for it."))),
    }
}

async fn fetch(connection: &Connection, code: &str, passphrase: &Passphrase) -> Result<(Content, String), Failure> {
    let what = "cannot import the principal";
    let request = |token_hash: String| GetPrincipalExportRequest { export_code: code.to_owned(), token_hash };
    let first = connection.get_principal_export(request(String::new())).await.map_err(refused)?;
    let unusable = |why: Box<dyn std::error::Error + Send + Sync>| Failure::new(what).because(why);
    let token_hash = passphrase.token_hash(&first.verification_salt).map_err(|source| unusable(source.into()))?;
    let second = connection.get_principal_export(request(token_hash.clone())).await.map_err(refused)?;
    let content = open(&second, passphrase).map_err(unusable)?;
    if content.version != VERSION {
        return Err(
            Failure::new(format!("{what}: the export is of version {}", content.version)).next("Use a newer zopp.")
        );
    }
    check(&content.principal).map_err(|why| Failure::new(format!("{what}: {why}")))?;
    Ok((content, token_hash))
}

fn open(
    export: &GetPrincipalExportResponse,
    passphrase: &Passphrase,
) -> Result<Content, Box<dyn std::error::Error + Send + Sync>> {
    if export.salt.len() != SALT_LENGTH {
        return Err("the server's answer has a salt of another length".into());
    }
    let json = passphrase.export_key(&export.salt)?.open(&export.nonce, &export.encrypted_data)?;
    // The reason would quote what it could not read, which may be a key.
    serde_json::from_slice(&json).map_err(|_| "the export is not of the expected form".into())
}

/// Refuses keys that would make the whole file unusable, or that do not belong together.
fn check(keys: &Keys) -> Result<(), &'static str> {
    uuid::Uuid::try_parse(&keys.id).map_err(|_| "the principal's ID is not a UUID")?;
    let seed = SigningSeed::from_hex(&keys.private_key.0).map_err(|_| "the private key is not a key")?;
    if !keys.public_key.eq_ignore_ascii_case(&hex::encode(seed.public().to_bytes())) {
        return Err("the public key does not belong to the private key");
    }
    if let Some(key) = &keys.x25519_private_key {
        let key = X25519Private::from_hex(&key.0).map_err(|_| "the X25519 private key is not a key")?;
        let public = hex::encode(key.public().to_bytes());
        if keys.x25519_public_key.as_ref().is_some_and(|given| !given.eq_ignore_ascii_case(&public)) {
            return Err("the X25519 public key does not belong to the private key");
        }
    }
    Ok(())
}

/// Adds the principal under its own name, or one like it that is free. It is used from now on if it is the only one.
fn add(config: &mut ConfigFile, content: Content) -> Result<Imported, Failure> {
    let Content { email, user_id, principal: keys, .. } = content;
    if let Some(present) = config.principals.iter().find(|principal| principal.id == keys.id) {
        return Err(Failure::new(format!("this device has the principal already, as '{}'", present.name)));
    }
    let name = free_name(config, &keys.name);
    let present = |text: String| (!text.is_empty()).then_some(text);
    let (email, user_id) = (present(email), present(user_id));
    config.principals.push(Principal {
        id: keys.id.clone(),
        name: name.clone(),
        user_id: user_id.clone(),
        email: email.clone(),
        private_key: keys.private_key.0,
        public_key: keys.public_key,
        x25519_private_key: keys.x25519_private_key.map(|key| key.0),
        x25519_public_key: keys.x25519_public_key,
        other: serde_json::Map::new(),
    });
    let current = config.principals.len() == 1;
    if current {
        config.current_principal = Some(name.clone());
    }
    Ok(Imported { id: keys.id, name, email, user_id, current })
}

fn free_name(config: &ConfigFile, name: &str) -> String {
    let is_free = |name: &String| config.principals.iter().all(|principal| principal.name != *name);
    let numbered = (2_u64..).map(|number| format!("{name}-imported-{number}"));
    [name.to_owned(), format!("{name}-imported")].into_iter().chain(numbered).find(is_free).unwrap_or_default()
}

/// Returns whether the export is gone.
async fn consume(connection: &Connection, code: &str, token_hash: &str) -> bool {
    let request = || ConsumePrincipalExportRequest { export_code: code.to_owned(), token_hash: token_hash.to_owned() };
    let mut waits = CONSUME_AGAIN.into_iter();
    loop {
        match connection.consume_principal_export(request()).await {
            Ok(_) => return true,
            // Deleted by an attempt whose answer was lost.
            Err(error) if error.code() == Code::NotFound => return true,
            Err(_) => {}
        }
        let Some(wait) = waits.next() else { return false };
        tokio::time::sleep(wait).await;
    }
}

fn refused(error: CallError) -> Failure {
    let next = match error.code() {
        Code::NotFound => Some("Check the code and the server's address, or export the principal again."),
        Code::PermissionDenied => Some("Check the passphrase: six words, separated by blanks."),
        _ => None,
    };
    let failure = failed("cannot import the principal", None)(error);
    match next {
        Some(next) => failure.next(next),
        None => failure,
    }
}
