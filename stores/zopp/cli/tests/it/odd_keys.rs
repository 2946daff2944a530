//! Keys such as `KEY=value`. A server must not see the value, but an older client may have stored a secret with such a key.

use konverge_zopp_proto::secrets::{
    EncryptedSecret, ReadEnvironmentRequest, ReadEnvironmentResponse, ReadSecretHistoryRequest,
    ReadSecretHistoryResponse,
};
use tonic::Status;

use crate::lying_server::lying_world;

const READ_ENVIRONMENT: &str = "/konverge.zopp.secrets.v1.Secrets/ReadEnvironment";
const READ_SECRET: &str = "/konverge.zopp.secrets.v1.Secrets/ReadSecret";
const READ_HISTORY: &str = "/konverge.zopp.secrets.v1.Secrets/ReadSecretHistory";
const FORGET_HISTORY: &str = "/konverge.zopp.secrets.v1.Secrets/ForgetSecretHistory";

/// The commands that take the key of an existing secret, and the calls that carry it.
const COMMANDS: [(&str, &str); 4] =
    [("get", READ_SECRET), ("history", READ_HISTORY), ("forget", FORGET_HISTORY), ("delete", CHANGE_SECRETS)];
const CHANGE_SECRETS: &str = "/konverge.zopp.secrets.v1.Secrets/ChangeSecrets";

#[test]
fn a_key_with_an_equals_sign_is_sent_only_if_the_server_has_it() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    alice.ok("environment create shared --unprotected");
    alice.ok("secret set DB_PASSWORD hunter2 -e shared");
    let paths = || liar.take_seen().into_iter().map(|call| call.path).collect::<Vec<_>>();
    paths();
    for (verb, _) in COMMANDS {
        let stderr = alice.fails(&format!("secret {verb} DB_PASSWORD=hunter2 -e shared"), 2);
        assert!(!stderr.contains("hunter2") && stderr.contains(&format!("zopp secret {verb} KEY")), "{stderr}");
        assert_eq!(paths(), [READ_ENVIRONMENT], "{verb}");
    }
    for line in ["secret edit DB_PASSWORD=hunter2", "secret rollback DB_PASSWORD=hunter2 --to 1"] {
        let stderr = alice.fails(&format!("{line} -e shared"), 2);
        assert!(!stderr.contains("hunter2") && stderr.contains("nothing was sent"), "{stderr}");
        assert_eq!(paths(), [""; 0], "{line}");
    }

    // A server with a secret that an older client stored.
    liar.lie(READ_ENVIRONMENT, |_: ReadEnvironmentRequest, answer: Result<ReadEnvironmentResponse, Status>| {
        let mut answer = answer?;
        let odd = EncryptedSecret { key: "OLD=1".into(), nonce: vec![0; 12], ciphertext: vec![0; 17] };
        answer.secrets.push(odd);
        Ok(answer)
    });
    liar.lie(READ_HISTORY, |request: ReadSecretHistoryRequest, _: Result<ReadSecretHistoryResponse, Status>| {
        Err::<ReadSecretHistoryResponse, _>(Status::not_found(request.key))
    });
    for (verb, call) in COMMANDS {
        let ended = alice.run(&format!("secret {verb} OLD=1 -e shared"));
        assert!(!ended.stderr.contains("was not sent"), "{verb}: {}", ended.stderr);
        assert!(paths().iter().any(|path| path == call), "{verb}: {}", ended.stderr);
    }
}
