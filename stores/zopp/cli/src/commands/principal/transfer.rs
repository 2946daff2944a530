//! `zopp principal export` and `import`: the same principal on another device.
//!
//! This device encrypts the export, and the server stores it for a limited time. A person carries the code and the passphrase to the other
//! device. Nothing that either device sends helps the server to open the export: see [`konverge_zopp_crypto::export`].
//!
//! The published programs have another format, in which a lying server learns the key of the export. Reading and writing it takes a flag
//! that says so.

use std::{io::IsTerminal, time::Duration};

use clap::Args;
use konverge_zopp_client::{CallError, ConfigFile, Connection, config_file::Principal};
use konverge_zopp_crypto::{
    SigningSeed, X25519Private,
    export::{CodeSecret, ExportCode, ExportKey, ExportKeys, Passphrase, SALT_LENGTH, salt},
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
    file_key,
    output::{Answer, Document, Outcome, plain, time},
    wiped::Wiped,
};

/// The passphrase from scripts. Without it, an export generates words, and an import asks for them.
const PASSPHRASE_VARIABLE: &str = "ZOPP_EXPORT_PASSPHRASE";
const CODE_VARIABLE: &str = "ZOPP_EXPORT_CODE";
/// The version of an export's content.
const VERSION: u32 = 2;
/// The version in the published format.
const PUBLISHED_VERSION: u32 = 1;
const CANNOT_IMPORT: &str = "cannot import the principal";
/// Waits between the attempts to delete an export that was imported.
const CONSUME_AGAIN: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(200)];

pub(super) const EXPORT_EXAMPLES: &str = "\
Example:
  zopp principal export laptop --expires-hours 1
  zopp principal import                          on the other device: asks for code and passphrase

Both devices then are the same principal. For a device that can be cut off by itself, use
zopp principal create. Three wrong passphrases delete the export.

The last four groups of the code never reach the server, which would need them and the passphrase
to read the keys. ZOPP_EXPORT_PASSPHRASE replaces the drawn passphrase; a weak one is refused.

Published clients of zopp cannot read this format. --for-published-client writes theirs: a server
that lies at the import learns both private keys, and the import succeeds all the same.";

pub(super) const IMPORT_EXAMPLES: &str = "\
Examples:
  zopp principal import                          asks for code and passphrase
  ZOPP_EXPORT_CODE=exp_…-… ZOPP_EXPORT_PASSPHRASE=… zopp principal import

A code without the four last groups is that of a published client. --from-published-client reads
such an export. The server chooses the salts of that format. A server that lies thereby learns both
private keys, and with them reads everything that the principal may read.";

/// `zopp principal export`
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The principal's name
    name: String,
    /// For how many hours it can be imported
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=87_600))]
    expires_hours: u32,
    /// Write the format of published clients, in which a lying server learns both private keys
    #[arg(long)]
    for_published_client: bool,
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
    /// Read the export of a published client, from which a lying server learns both private keys
    #[arg(long)]
    from_published_client: bool,
}

/// The plaintext of an export. The fields are those of the original.
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
    code: Zeroizing<String>,
    passphrase: Passphrase,
    expires_at: i64,
}

impl Answer for Exported {
    fn text(&self, text: &mut Wiped) -> Result<(), Failure> {
        let Self { name, code, passphrase, expires_at } = self;
        text.push(format!("Principal '{name}' exported\n\nCode:\n  ").as_bytes());
        text.push(code.as_bytes());
        text.push(b"\n\nPassphrase:\n");
        text.push(passphrase.expose().as_bytes());
        text.push(
            format!("\n\nExpires: {}\nOn the other device: zopp principal import\n", time(*expires_at)).as_bytes(),
        );
        Ok(())
    }

    fn object(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Object<'a> {
            name: &'a str,
            code: &'a str,
            passphrase: &'a str,
            expires_at: String,
        }
        let Self { name, code, passphrase, expires_at } = self;
        let object = Object { name, code, passphrase: passphrase.expose(), expires_at: time(*expires_at) };
        document.put(&object)
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
    let ExportArguments { name, expires_hours, for_published_client } = arguments;
    let config = Context::config_with_keys()?;
    let principal = &config.principals[find(&config, &name)?];
    let client = context.client()?;
    let what = || format!("cannot export principal '{name}'");
    let passphrase = match std::env::var(PASSPHRASE_VARIABLE) {
        Ok(words) if !words.trim().is_empty() => given_passphrase(words.trim().to_owned())?,
        _ => Passphrase::generate().map_err(|source| Failure::new(what()).because(source))?,
    };
    let expires_at = jiff::Timestamp::now().as_second().saturating_add(i64::from(expires_hours) * 3600);
    let failure = |source: Reason| Failure::new(what()).because(source);
    let plaintext = Content::of(principal, client.connection().server());
    let (request, secret) = if for_published_client {
        eprintln!(
            "Warning: in the format of published clients, a server that lies at the import learns both private keys"
        );
        (seal_published(plaintext, &passphrase, expires_at).map_err(failure)?, None)
    } else {
        let secret = CodeSecret::generate().map_err(|source| failure(source.into()))?;
        (seal(&plaintext, &passphrase, &secret, expires_at).map_err(failure)?, Some(secret))
    };
    let export_code = client.create_principal_export(request).await.map_err(failed(what(), None))?.export_code;
    if !is_server_code(&export_code) {
        return Err(Failure::new(what()).because("the server's answer is not the code of an export"));
    }
    let code = match &secret {
        Some(secret) => secret.to_code(&export_code),
        None => Zeroizing::new(export_code),
    };
    Ok(Box::new(Exported { name, code, passphrase, expires_at }))
}

/// Returns the passphrase that a person or a script chose.
fn given_passphrase(words: String) -> Result<Passphrase, Failure> {
    if file_key::is_weak(&words) {
        let next =
            format!("Without {PASSPHRASE_VARIABLE}, the export draws six random words. Or use 20 random characters.");
        return Err(file_key::weak(&format!("the passphrase in {PASSPHRASE_VARIABLE}"), &next));
    }
    Ok(Passphrase::new(words))
}

/// Returns `true` if `code` has the form in which servers name exports, so that it cannot stand for anything else in the printed code.
fn is_server_code(code: &str) -> bool {
    code.strip_prefix("exp_")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

type Reason = Box<dyn std::error::Error + Send + Sync>;

impl Content {
    fn of(principal: &Principal, server: &str) -> Self {
        Self {
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
        }
    }

    fn to_json(&self) -> serde_json::Result<Wiped> {
        let mut json = Wiped::default();
        serde_json::to_writer(&mut json, self)?;
        Ok(json)
    }
}

fn seal(
    content: &Content,
    passphrase: &Passphrase,
    secret: &CodeSecret,
    expires_at: i64,
) -> Result<CreatePrincipalExportRequest, Reason> {
    let ExportKeys { proof, key } = passphrase.export_keys(secret)?;
    let sealed = key.seal(content.to_json()?.bytes())?;
    let (verification_salt, salt) = secret.marks();
    Ok(CreatePrincipalExportRequest {
        token_hash: proof,
        verification_salt: verification_salt.to_vec(),
        encrypted_data: sealed.ciphertext,
        salt: salt.to_vec(),
        nonce: sealed.nonce.to_vec(),
        expires_at,
    })
}

fn seal_published(
    content: Content,
    passphrase: &Passphrase,
    expires_at: i64,
) -> Result<CreatePrincipalExportRequest, Reason> {
    let content = Content { version: PUBLISHED_VERSION, ..content };
    let (verification_salt, salt) = (salt()?, salt()?);
    let sealed = passphrase.published_key(&salt)?.seal(content.to_json()?.bytes())?;
    Ok(CreatePrincipalExportRequest {
        token_hash: passphrase.published_proof(&verification_salt)?,
        verification_salt: verification_salt.to_vec(),
        encrypted_data: sealed.ciphertext,
        salt: salt.to_vec(),
        nonce: sealed.nonce.to_vec(),
        expires_at,
    })
}

/// Looks the export up, fetches it with the proof, saves the principal, and then has the export deleted.
pub(super) async fn import(context: &Context, arguments: ImportArguments) -> Outcome {
    let code = given(arguments.code, CODE_VARIABLE, "code", || {
        eprint!("Code: ");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    })?;
    let code = ExportCode::parse(&code).map_err(|error| Failure::usage(error.to_string()))?;
    if matches!(code, ExportCode::Published { .. }) != arguments.from_published_client {
        return Err(other_format(arguments.from_published_client));
    }
    let words =
        given(arguments.passphrase, PASSPHRASE_VARIABLE, "passphrase", || rpassword::prompt_password("Passphrase: "))?;
    let passphrase = Passphrase::new(words.trim().to_owned());
    drop(words);
    // Before the export is fetched: without the passphrase of this device, nothing could be saved.
    file_key::of(&Context::config_or_empty()?)?;
    let connection = context.connection()?;
    let (exported, token_hash) = fetch(&connection, &code, &passphrase).await?;
    let imported = save(exported);
    let imported = if arguments.from_published_client { imported.map_err(after_published_proof) } else { imported }?;
    let (ExportCode::Bound { name: code, .. } | ExportCode::Published { name: code }) = code;
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

/// Returns the failure for a code of another format than the flag says.
fn other_format(from_published_client: bool) -> Failure {
    if from_published_client {
        return Failure::usage("the code is not that of a published client").next("Leave --from-published-client out.");
    }
    Failure::usage("the code is incomplete, or that of a published client").next(
        "Type all groups of the code (example: exp_ab12cd34-k7m2-q9xw-0h3d-7pte). If a published client made the export, export the \
         principal again with this version, or add --from-published-client: a server that lies then learns both private keys.",
    )
}

/// Returns the content of an export, and the proof by which it is deleted.
async fn fetch(
    connection: &Connection,
    code: &ExportCode,
    passphrase: &Passphrase,
) -> Result<(Content, String), Failure> {
    let (ExportCode::Bound { name, .. } | ExportCode::Published { name }) = code;
    let request = |token_hash: String| GetPrincipalExportRequest { export_code: name.clone(), token_hash };
    let first = connection.get_principal_export(request(String::new())).await.map_err(refused)?;
    match code {
        ExportCode::Bound { secret, .. } => {
            let marks = secret.marks();
            // Before the proof is sent. The proof tells the server nothing, but an altered export or a mistyped code is noticed here.
            if first.verification_salt != marks.0 {
                return Err(Failure::new(CANNOT_IMPORT)
                    .because("the server's answer does not belong to this code, so nothing more was sent")
                    .next("Check the code. If it is right, the server, or somebody who can write its database, altered the export."));
            }
            let ExportKeys { proof, key } = passphrase.export_keys(secret).map_err(|source| unusable(source.into()))?;
            let second = connection.get_principal_export(request(proof.clone())).await.map_err(refused)?;
            let content = open(&key, &second).map_err(unusable)?;
            checked(content, VERSION).map(|content| (content, proof))
        }
        ExportCode::Published { .. } => {
            let salt = &first.verification_salt;
            let proof = passphrase.published_proof(salt).map_err(|source| unusable(source.into()))?;
            let second = connection.get_principal_export(request(proof.clone())).await.map_err(refused);
            let content = second.and_then(|second| open_published(passphrase, salt, &second));
            content.map(|content| (content, proof)).map_err(after_published_proof)
        }
    }
}

/// Returns the content of an export in the published format. `salt` is that of the proof that was sent.
fn open_published(
    passphrase: &Passphrase,
    salt: &[u8],
    export: &GetPrincipalExportResponse,
) -> Result<Content, Failure> {
    if export.salt == salt || export.salt == export.verification_salt {
        return Err(unusable("the server gives one salt for the proof and for the key".into()));
    }
    if export.verification_salt != salt || export.salt.len() != SALT_LENGTH {
        return Err(unusable(
            "the server's answer has a different salt than before, or one of the wrong length".into(),
        ));
    }
    let key = passphrase.published_key(&export.salt).map_err(|source| unusable(source.into()))?;
    checked(open(&key, export).map_err(unusable)?, PUBLISHED_VERSION)
}

/// An export that cannot be imported, and why.
fn unusable(why: Reason) -> Failure {
    Failure::new(CANNOT_IMPORT).because(why)
}

/// Adds the next step after the proof of the published format was sent. A server that lies has the key of the export then, whatever it answers.
fn after_published_proof(failure: Failure) -> Failure {
    failure.and_next(
        "Nothing was imported. If the passphrase was right, the server may know both private keys now. Disable the principal (zopp principal \
         disable --rotate-keys), and change the values that it could read.",
    )
}

/// Refuses an export of another version, or with unusable keys.
fn checked(content: Content, version: u32) -> Result<Content, Failure> {
    if content.version != version {
        let what = format!("{CANNOT_IMPORT}: the export is of version {}", content.version);
        return Err(Failure::new(what).next("Use a newer zopp."));
    }
    check(&content.principal).map_err(|why| Failure::new(format!("{CANNOT_IMPORT}: {why}")))?;
    Ok(content)
}

fn open(key: &ExportKey, export: &GetPrincipalExportResponse) -> Result<Content, Reason> {
    let json = key.open(&export.nonce, &export.encrypted_data)?;
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

/// Saves the principal on this device.
fn save(exported: Content) -> Result<Imported, Failure> {
    let _lock = Context::lock()?;
    let mut config = Context::config_or_empty()?;
    let imported = add(&mut config, exported)?;
    Context::save(&config)?;
    Ok(imported)
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
        Code::PermissionDenied => Some("Check the code and the passphrase: six words, separated by blanks."),
        _ => None,
    };
    let failure = failed(CANNOT_IMPORT, None)(error);
    match next {
        Some(next) => failure.next(next),
        None => failure,
    }
}
