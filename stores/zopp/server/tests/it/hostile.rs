//! Requests of anything: each call gets bytes that are no message, and messages that make no sense, from a stranger and from an owner. The server
//! refuses them by name, never by a failure of its own, and goes on.

use konverge_zopp_crypto::{Profile, signature};
use konverge_zopp_testing::{CallTypes, calls};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use crate::harness::{Person, World, attach, now};

/// Requests of each call.
const REQUESTS: usize = 12;
const CALLS_OF_AN_OWNER: usize = 8;
/// No message has a field of a higher number.
const FIELDS: u32 = 12;

/// Bytes, as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let length = bytes::Buf::remaining(buffer);
        Ok(Some(bytes::Buf::copy_to_bytes(buffer, length).to_vec()))
    }
}

/// A field of a message: its number is added when it is written.
#[derive(Debug, Clone)]
enum Field {
    Bytes(Vec<u8>),
    Number(u64),
}

impl Field {
    fn write(&self, number: u32, message: &mut Vec<u8>) {
        let varint = |mut value: u64, message: &mut Vec<u8>| {
            while value >= 0x80 {
                message.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
                value >>= 7;
            }
            message.push(u8::try_from(value).unwrap());
        };
        let tag = u64::from(number) << 3;
        match self {
            Self::Bytes(bytes) => {
                varint(tag | 2, message);
                varint(bytes.len() as u64, message);
                message.extend_from_slice(bytes);
            }
            Self::Number(value) => {
                varint(tag, message);
                varint(*value, message);
            }
        }
    }
}

/// Names, keys, addresses and times: some exist, some could exist, and some cannot. `{laptop}` stands for the owner's principal.
fn fields() -> impl Strategy<Value = Vec<Field>> {
    let texts = [
        "",
        "acme",
        "backend",
        "production",
        "owner@example.com",
        "nobody@example.com",
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "{laptop}",
        "A:B",
        "A\0B",
        "\u{202e}\u{1b}[2J",
        "' OR 1=1 --",
        "%",
        "../..",
        "2026-01-01T00:00:00Z",
        "9999999999-01-01T00:00:00Z",
    ];
    let text = prop::sample::select(texts.to_vec()).prop_map(|text| text.as_bytes().to_vec());
    let long = (1_usize..70_000).prop_map(|length| vec![b'a'; length]);
    let key = prop::sample::select(vec![16_usize, 24, 31, 32, 33, 48, 64]).prop_map(|length| vec![7; length]);
    let number = prop::sample::select(vec![0, 1, 2, 3, 4, 1000, u64::from(u32::MAX), i64::MAX as u64, u64::MAX]);
    let field = prop_oneof![
        6 => text.prop_map(Field::Bytes),
        1 => long.prop_map(Field::Bytes),
        2 => key.prop_map(Field::Bytes),
        1 => any::<Vec<u8>>().prop_map(Field::Bytes),
        3 => number.prop_map(Field::Number),
    ];
    prop::collection::vec(field, (FIELDS as usize) * 3)
}

/// A message of this call out of the fields that suit: each of its numbers takes the first field that its type allows, or none.
fn message(call: &CallTypes, fields: &[Field], laptop: &str) -> Vec<u8> {
    let mut message = Vec::new();
    for (number, choices) in (1..).zip(fields.chunks(3)) {
        for choice in choices {
            let choice = match choice {
                Field::Bytes(bytes) if bytes == b"{laptop}" => Field::Bytes(laptop.as_bytes().to_vec()),
                other => other.clone(),
            };
            let mut longer = message.clone();
            choice.write(number, &mut longer);
            if (call.request)(&longer).is_some_and(|canonical| canonical.len() > message.len()) {
                message = longer;
                break;
            }
        }
    }
    (call.request)(&message).expect("each field was tried")
}

async fn send(world: &World, person: Option<&Person>, path: &str, body: Vec<u8>) -> Result<(), Status> {
    let mut request = Request::new(body);
    if let Some(person) = person {
        let signed = signature::sign(Profile::V2, &person.seed, path, request.get_ref(), now());
        attach(request.metadata_mut(), &person.principal_id, &signed);
    }
    send_raw(world, path, request).await
}

/// Makes a call with the bytes of its message.
pub(crate) async fn send_raw(world: &World, path: &str, request: Request<Vec<u8>>) -> Result<(), Status> {
    let mut client = Grpc::new(world.channel.clone());
    client.ready().await.unwrap();
    // Of an answer that streams, the first message is enough.
    client.server_streaming(request, path.parse().unwrap(), Raw).await.map(drop)
}

/// A refusal that names the request's fault, or an answer.
#[track_caller]
fn is_an_answer(call: &CallTypes, body: &[u8], answer: &Result<(), Status>) {
    if let Err(status) = answer {
        let own_failure = matches!(
            status.code(),
            Code::Internal | Code::Unknown | Code::DataLoss | Code::Unavailable | Code::DeadlineExceeded
        );
        assert!(!own_failure, "{}: {status}: {}", call.path, hex::encode(&body[..body.len().min(400)]));
        let text = status.message().to_lowercase();
        for word in ["sqlx", "sqlite", "postgres", "panicked", "src/"] {
            assert!(!text.contains(word), "{}: {status}", call.path);
        }
    }
}

/// The same choices in each run.
fn runner() -> TestRunner {
    TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[tokio::test]
async fn messages_without_sense_are_refused_by_name() {
    let mut runner = runner();
    let (mut answered, mut known) = (0, 0);
    // A call may cut the owner off, so few of them share one.
    for calls in calls().chunks(CALLS_OF_AN_OWNER) {
        let world = World::start().await;
        let owner = world.owner().await;
        for call in calls {
            for _ in 0..REQUESTS {
                let fields = fields().new_tree(&mut runner).unwrap().current();
                let body = message(call, &fields, &owner.principal_id);
                for person in [Some(&owner), None] {
                    let answer = send(&world, person, &call.path, body.clone()).await;
                    is_an_answer(call, &body, &answer);
                    answered += usize::from(answer.is_ok());
                    known += usize::from(answer.is_err_and(|status| status.code() != Code::Unauthenticated));
                }
            }
        }
        assert!(world.probe("/readyz").await.starts_with("200"), "it goes on");
        world.end().await;
    }
    // Not all of them ended at the door.
    assert!(answered > 50 && known > 300, "{answered} {known}");
}

#[tokio::test]
async fn bytes_that_are_no_message_are_refused() {
    let world = World::start().await;
    let owner = world.owner().await;
    let mut runner = runner();
    for call in calls() {
        let mut sent = 0;
        while sent < 4 {
            let body = prop::collection::vec(any::<u8>(), 1..200).new_tree(&mut runner).unwrap().current();
            if (call.request)(&body).is_some() {
                continue;
            }
            sent += 1;
            let Err(status) = send(&world, Some(&owner), &call.path, body.clone()).await else {
                panic!("{}: answered {}", call.path, hex::encode(&body));
            };
            // The library's own word for it.
            assert!(matches!(status.code(), Code::Internal | Code::InvalidArgument), "{}: {status}", call.path);
        }
    }
    assert!(world.probe("/readyz").await.starts_with("200"), "it goes on");
}
