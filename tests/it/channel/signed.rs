//! Requests that are signed by their templates: date, nonce, constants, digests, and the request itself.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use outboxd::channel::credentials::digests;
use outboxd::config::{ChannelConfig, Method};
use sha2::Sha256;

use super::{Note, assert_sent, channel, config, failed};
use crate::support::provider::{Call, Provider};

const SECRET: &str = "s3cret-of-the-account";

fn signing(provider: &Provider, headers: &[(&str, &str)]) -> ChannelConfig {
    let mut config = config(&provider.url("/v1/{{ topic }}/send?dry={{ payload.dry }}&salt={{ nonce(4) }}"));
    config.body =
        Some(r#"{"to": {{ recipient|tojson }}, "salt": "{{ nonce(4) }}", "at": {{ now.unix_ms }}}"#.to_owned());
    config.with = [("key", "K1"), ("secret", SECRET)].map(|(name, value)| (name.to_owned(), value.into())).into();
    config.headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    config
}

fn code(text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn body(call: &Call) -> serde_json::Value {
    serde_json::from_slice(&call.body).unwrap()
}

#[tokio::test]
async fn a_header_signs_method_path_time_and_body_as_they_are_sent() {
    let provider = Provider::start();
    let signature = "{{ [request.method ~ ' ' ~ request.path, now.unix_ms, with.key, request.body]|join('\n')|hmac_sha256(with.secret)|base64 }}";
    let channel = channel(&signing(
        &provider,
        &[("X-Signature", signature), ("X-Time", "{{ now.unix_ms }}"), ("X-Key", "{{ with.key }}")],
    ));
    assert_sent(&channel.send(&Note::to("카페").payload(r#"{"dry": "a b"}"#).attempt(1)).await);
    let call = &provider.ledger()[0];
    let (time, sent) = (call.header("x-time").unwrap(), std::str::from_utf8(&call.body).unwrap());
    assert!(call.path.starts_with("/v1/quiz/send?dry=a%20b&salt="), "{}", call.path);
    let text = format!("POST {}\n{time}\nK1\n{sent}", call.path);
    assert_eq!(call.header("x-signature"), Some(STANDARD.encode(code(&text)).as_str()));
    assert_eq!(body(call)["at"].to_string(), time);
}

#[tokio::test]
async fn one_attempt_has_one_instant_and_one_nonce_and_the_next_has_others() {
    let provider = Provider::start();
    let authorization = "HMAC-SHA256 apiKey={{ with.key }}, date={{ now.rfc3339 }}, salt={{ nonce(16) }}, signature={{ (now.rfc3339 ~ nonce(16))|hmac_sha256(with.secret)|hex }}";
    let channel = channel(&signing(&provider, &[("Authorization", authorization), ("X-Salt", "{{ nonce(4) }}")]));
    for attempt in [1, 2] {
        assert_sent(&channel.send(&Note::to("r").payload(r#"{"dry": 1}"#).attempt(attempt)).await);
    }
    let mut salts = Vec::new();
    for call in provider.ledger() {
        let salt = call.header("x-salt").unwrap().to_owned();
        assert!(salt.len() == 8 && call.path.ends_with(&format!("salt={salt}")), "{} {salt}", call.path);
        assert_eq!(body(&call)["salt"], salt);
        let authorization = call.header("authorization").unwrap();
        let part = |name: &str| authorization.split([' ', ',']).find_map(|part| part.strip_prefix(name)).unwrap();
        let (date, long) = (part("date="), part("salt="));
        assert!(chrono::DateTime::parse_from_rfc3339(date).is_ok() && long.starts_with(&salt), "{authorization}");
        let expected: String = code(&format!("{date}{long}")).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(part("signature="), expected);
        salts.push(salt);
    }
    assert_ne!(salts[0], salts[1]);
}

#[tokio::test]
async fn what_cannot_be_signed_fails_before_the_call_and_tells_no_secret() {
    let provider = Provider::start();
    for (header, said) in [
        ("{{ payload.n|hmac_sha256(with.secret)|hex }}", "invalid operation"),
        ("{{ nonce(100) }}", "invalid operation"),
        ("{{ payload.missing|sha256|hex }}", "payload.missing"),
    ] {
        let channel = channel(&signing(&provider, &[("X-Signature", header)]));
        let failed = failed(channel.send(&Note::to("r").payload(r#"{"dry": 1, "n": 4711}"#).attempt(1)).await);
        assert!(failed.error.contains(said) && failed.error.contains("headers.X-Signature"), "{}", failed.error);
        assert!(!failed.error.contains(SECRET) && !format!("{channel:?}").contains(SECRET), "{}", failed.error);
    }
    assert_eq!(provider.count(), 0);
}

#[test]
fn wherever_a_request_carries_a_credential_another_one_has_another_digest() {
    let changes: [fn(&mut ChannelConfig); 9] = [
        |_| {},
        |config| config.method = Method::Put,
        |config| config.url = "https://a.example/key".to_owned(),
        |config| config.body = Some("key".to_owned()),
        |config| config.content_type = "text/plain; key".to_owned(),
        |config| config.proxy = Some("key".into()),
        |config| config.headers = [("a".to_owned(), "key".into())].into(),
        |config| config.with = [("a".to_owned(), "key".into())].into(),
        |config| config.secrets = ["a".into(), "key".into()].into(),
    ];
    let channel = |change: &fn(&mut ChannelConfig)| {
        let mut config = config("https://a.example/");
        change(&mut config);
        config
    };
    let channels: BTreeMap<String, ChannelConfig> =
        changes.iter().enumerate().map(|(n, change)| (n.to_string(), channel(change))).collect();
    let different: BTreeSet<String> = digests(&channels, &b"installation".to_vec().into()).into_values().collect();
    assert_eq!(different.len(), changes.len());
}
