//! Ways to show who one is and to know whom one talks to, each against a real server: TLS with certificates on both sides, an nkey,
//! a credentials file of an operator's server. What is wrong with them is told at the start.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "test code"
)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::{Server, configured, server};
use leasehold_nats::{NatsStore, Options, StartError, Target, Wish};
use leasehold_store::SystemClock;
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa};

async fn open(target: Target) -> Result<NatsStore, StartError> {
    let options = Options {
        make: Some(Wish {
            shards: Some(1),
            replicas: None,
        }),
        ..Options::new(target, "test", Arc::new(SystemClock))
    };
    NatsStore::open(options).await
}

async fn refusal(target: Target) -> StartError {
    match open(target).await {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error,
    }
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn authority() -> CertifiedIssuer<'static, rcgen::KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for this name and its key, both as PEM.
fn certificate(name: &str, by: &CertifiedIssuer<'static, rcgen::KeyPair>) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_spoken_with_certificates_on_both_sides_and_a_wrong_one_is_refused() {
    let ca = authority();
    let (cert, key) = certificate("localhost", &ca);
    let tls = r#"listen: $LEASEHOLD_NATS_LISTEN
        jetstream { store_dir: "STORE/js" }
        tls { cert_file: "STORE/server.pem", key_file: "STORE/server.key", ca_file: "STORE/ca.pem", verify: true }"#;
    let files = [
        ("nats.conf", tls),
        ("server.pem", cert.as_str()),
        ("server.key", key.as_str()),
        ("ca.pem", &ca.pem()),
    ];
    let server = configured(1, &files, &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certificate("client", &ca);
    let target = Target {
        tls_ca: Some(write(folder.path(), "ca.pem", &ca.pem())),
        tls_cert: Some(write(folder.path(), "client.pem", &cert)),
        tls_key: Some(write(folder.path(), "client.key", &key)),
        ..Target::at(server.url.replace("127.0.0.1", "localhost"))
    };
    open(target.clone()).await.unwrap();

    let stranger = write(folder.path(), "stranger.pem", &authority().pem());
    let distrusted = Target {
        tls_ca: Some(stranger),
        ..target.clone()
    };
    let error = refusal(distrusted).await;
    assert!(
        error.to_string().to_lowercase().contains("certificate"),
        "{error}"
    );

    let anonymous = Target {
        tls_cert: None,
        tls_key: None,
        ..target.clone()
    };
    refusal(anonymous).await;

    let missing = Target {
        tls_ca: Some(folder.path().join("none.pem")),
        ..target
    };
    let error = refusal(missing).await;
    assert!(error.to_string().contains("none.pem"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_nkey_opens_the_store_and_another_one_does_not() {
    let (known, other) = (KeyPair::new_user(), KeyPair::new_user());
    let config = format!(
        r#"jetstream {{ store_dir: "STORE/js" }}
        authorization {{ users: [ {{ nkey: "{}" }} ] }}"#,
        known.public_key()
    );
    let server = server(&config).await;
    let folder = tempfile::tempdir().unwrap();
    let with = |name: &str, pair: &KeyPair| Target {
        nkey: Some(write(
            folder.path(),
            name,
            &format!("{}\n", pair.seed().unwrap()),
        )),
        ..Target::at(server.url.clone())
    };
    open(with("known.nk", &known)).await.unwrap();
    let error = refusal(with("other.nk", &other)).await;
    assert!(matches!(error, StartError::Refused { .. }), "{error}");
}

/// Claims about `subject`, signed.
fn jwt(by: &KeyPair, subject: &KeyPair, nats: &serde_json::Value) -> String {
    let claims = serde_json::json!({
        "jti": subject.public_key(), "iat": 1, "name": "test",
        "iss": by.public_key(), "sub": subject.public_key(), "nats": nats,
    });
    let part = |value: &str| URL_SAFE_NO_PAD.encode(value.as_bytes());
    let signed = format!(
        "{}.{}",
        part(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#),
        part(&claims.to_string())
    );
    let signature = by.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn credentials(account: &KeyPair, user: &KeyPair) -> String {
    let claims =
        serde_json::json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
    format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        jwt(account, user, &claims),
        user.seed().unwrap()
    )
}

/// A server of an operator, with the account that may keep streams.
async fn of_an_operator(account: &KeyPair) -> Server {
    let (operator, system) = (KeyPair::new_operator(), KeyPair::new_account());
    let limits = |storage: i32| {
        serde_json::json!({"type": "account", "version": 2, "limits": {
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
            "mem_storage": storage, "disk_storage": storage, "streams": storage, "consumer": storage, "max_ack_pending": storage,
        }})
    };
    let itself = serde_json::json!({"type": "operator", "version": 2, "system_account": system.public_key()});
    let config = format!(
        r#"jetstream {{ store_dir: "STORE/js" }}
        operator: "{}"
        system_account: {}
        resolver: MEMORY
        resolver_preload: {{ {}: "{}", {}: "{}" }}"#,
        jwt(&operator, &operator, &itself),
        system.public_key(),
        system.public_key(),
        jwt(&operator, &system, &limits(0)),
        account.public_key(),
        jwt(&operator, account, &limits(-1)),
    );
    server(&config).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credentials_file_opens_the_store_and_one_of_another_account_does_not() {
    let account = KeyPair::new_account();
    let server = of_an_operator(&account).await;
    let folder = tempfile::tempdir().unwrap();
    let with = |name: &str, text: &str| Target {
        creds: Some(write(folder.path(), name, text)),
        ..Target::at(server.url.clone())
    };
    let good = credentials(&account, &KeyPair::new_user());
    open(with("good.creds", &good)).await.unwrap();

    let foreign = credentials(&KeyPair::new_account(), &KeyPair::new_user());
    let error = refusal(with("foreign.creds", &foreign)).await;
    assert!(matches!(error, StartError::Refused { .. }), "{error}");

    let error = refusal(with("empty.creds", "nothing of the kind")).await;
    assert!(error.to_string().contains("empty.creds"), "{error}");
}
