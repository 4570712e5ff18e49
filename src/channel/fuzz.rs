//! Whatever stands in configuration or data, a channel answers with a request or a reason. `PROPTEST_CASES` says how
//! often each is tried.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use chrono::DateTime;
use minijinja::Value;
use proptest::prelude::*;
use serde_json::value::RawValue;
use standardwebhooks::Webhook;
use url::Url;

use super::address::{self, Range};
use super::sign::Signer;
use super::template::{Templates, Text};
use super::{Cause, Channel, Outgoing, retry_after};
use crate::config::{self, template};
use crate::notification::NotificationId;

/// A channel with these settings.
fn channel(settings: &[(&str, &str)]) -> Channel {
    let mut overrides: Vec<(String, String)> = [
        ("database_url", "postgres://app@127.0.0.1/app"),
        ("channels.push.url", "https://push.example/"),
        ("routes.default.channels", "push"),
    ]
    .into_iter()
    .chain(settings.iter().copied())
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    overrides.dedup_by(|later, earlier| later.0 == earlier.0);
    let sources = config::Sources { file: Some(PathBuf::from("/dev/null")), overrides, ..Default::default() };
    let loaded = config::load(&sources).unwrap_or_else(|errors| panic!("{errors}"));
    Channel::new("push", &loaded.config.channels["push"]).expect("a channel")
}

fn outgoing<'a>(recipient: &'a str, payload: &'a RawValue, headers: Option<&'a RawValue>) -> Outgoing<'a> {
    Outgoing {
        id: NotificationId(7),
        webhook_id: "ntf-test-7-1700000000000000",
        topic: "quiz",
        recipient,
        payload,
        headers,
        traceparent: None,
        created_at: DateTime::UNIX_EPOCH,
        attempt: 1,
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("JSON")
}

/// A number as somebody may write it in an address.
fn number(n: u32, form: u8) -> String {
    match form % 6 {
        0 => format!("{n}"),
        1 => format!("0{n:o}"),
        2 => format!("0x{n:x}"),
        3 => format!("0X{n:X}"),
        4 => format!("000000{n:o}"),
        _ => format!("0x0000{n:x}"),
    }
}

/// An IPv4 address in one of its odd forms: one, two, three or four numbers, each written in its own way.
fn odd_v4(ip: Ipv4Addr, forms: [u8; 4], parts: u8, disguise: u8) -> String {
    let [a, b, c, d] = ip.octets().map(u32::from);
    let numbers = match parts % 4 {
        0 => vec![u32::from(ip)],
        1 => vec![a, u32::from(ip) & 0xff_ffff],
        2 => vec![a, b, u32::from(ip) & 0xffff],
        _ => vec![a, b, c, d],
    };
    let written: Vec<String> = numbers.iter().zip(forms).map(|(n, form)| number(*n, form)).collect();
    match disguise % 8 {
        0 => written.join("."),
        1 => format!("{}.", written.join(".")),
        2 => written.join("%2e"),
        3 => written.join("\u{3002}"),
        4 => written.join("\u{ff0e}"),
        // Digits of full width.
        5 => written.join(".").chars().map(|c| wide(c).unwrap_or(c)).collect(),
        6 => written.join(".").bytes().map(|byte| format!("%{byte:02x}")).collect(),
        _ => written.join("\u{ff61}"),
    }
}

fn wide(c: char) -> Option<char> {
    c.to_digit(10).and_then(|digit| char::from_u32(0xff10 + digit))
}

/// An IPv4 address in an IPv6 one, in brackets.
fn odd_v6(ip: Ipv4Addr, wrapping: u8) -> String {
    let [a, b, c, d] = ip.octets();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    match wrapping % 8 {
        0 => format!("[::ffff:{ip}]"),
        1 => format!("[::FFFF:{high:x}:{low:x}]"),
        2 => format!("[0:0:0:0:0:ffff:{high:04X}:{low:04X}]"),
        3 => format!("[64:ff9b::{ip}]"),
        4 => format!("[64:ff9b:1::{high:x}:{low:x}]"),
        5 => format!("[2002:{high:x}:{low:x}::1]"),
        6 => format!("[2001:0:1:2:3:4:{:x}:{:x}]", !high, !low),
        _ => format!("[::{ip}]"),
    }
}

/// Not on the internet.
fn inside() -> impl Strategy<Value = Ipv4Addr> {
    let within = |base: u32, bits: u32| (0..1u32 << bits).prop_map(move |low| Ipv4Addr::from(base | low));
    prop_oneof![
        within(0x7f00_0000, 24),
        within(0x0a00_0000, 24),
        within(0xac10_0000, 20),
        within(0xc0a8_0000, 16),
        within(0xa9fe_0000, 16),
        within(0x6440_0000, 22),
        within(0x0000_0000, 24),
        Just(Ipv4Addr::new(169, 254, 169, 254)),
        Just(Ipv4Addr::LOCALHOST),
    ]
}

fn is_public(ip: IpAddr) -> bool {
    address::range(ip) == Range::Public
}

/// What a client would connect to without asking a resolver.
fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']');
    host.parse::<Ipv6Addr>().map(IpAddr::V6).or_else(|_| host.parse::<Ipv4Addr>().map(IpAddr::V4)).ok()
}

static FROM_DATA: LazyLock<Channel> = LazyLock::new(|| channel(&[("channels.push.url", "{{ recipient }}")]));
static WITH_PATH: LazyLock<Channel> =
    LazyLock::new(|| channel(&[("channels.push.url", "https://push.example/v1/{{ recipient }}/send")]));
static FORWARDING: LazyLock<Channel> = LazyLock::new(|| channel(&[("channels.push.forward_headers", "x-*,tenant")]));

proptest! {
    #[test]
    fn no_form_of_an_inside_address_passes_the_guard(
        ip in inside(), forms in any::<[u8; 4]>(), parts in any::<u8>(), disguise in any::<u8>(), wrapping in any::<u8>(),
        is_v6 in any::<bool>(), before in "(|[a-z]{1,5}@|[a-z]{1,5}:[a-z]{0,5}@)", after in "(|:80|:8080|/|/x\\?y#z|\\\\x)",
    ) {
        let host = if is_v6 { odd_v6(ip, wrapping) } else { odd_v4(ip, forms, parts, disguise) };
        let recipient = format!("http://{before}{host}{after}");
        match FROM_DATA.target(&outgoing(&recipient, &raw("{}"), None)) {
            Err(failed) => prop_assert!(matches!(failed.cause, Cause::Guard | Cause::Template), "{:?}", failed.cause),
            // A name: whatever it resolves to passes the guard where it is resolved.
            Ok(target) => prop_assert!(literal(&target.url).is_none(), "{recipient} leads to {}", target.url),
        }
    }

    #[test]
    fn whatever_stands_for_a_url_is_a_target_or_a_reason(
        recipient in prop_oneof![any::<String>(), "https?:[/\\\\]{0,3}\\PC{0,40}", "https?://[\\[\\]0-9a-fA-Fx:.%@]{1,40}.{0,10}"],
    ) {
        if let Ok(target) = FROM_DATA.target(&outgoing(&recipient, &raw("{}"), None)) {
            prop_assert!(matches!(target.url.scheme(), "http" | "https") && target.url.username().is_empty());
            prop_assert!(literal(&target.url).is_none_or(is_public), "{recipient} leads to {}", target.url);
            prop_assert!(target.origin().starts_with(target.url.scheme()));
        }
    }

    #[test]
    fn data_in_a_path_leads_nowhere_else(recipient in prop_oneof![any::<String>(), "[./\\\\%2eE@:#?]{0,20}\\PC{0,10}"]) {
        if let Ok(target) = WITH_PATH.target(&outgoing(&recipient, &raw("{}"), None)) {
            prop_assert_eq!(target.url.host_str(), Some("push.example"));
            prop_assert!(target.url.path().starts_with("/v1/"), "{}", target.url);
        }
    }

    #[test]
    fn every_ipv6_that_carries_an_inside_address_is_inside(ip in inside(), wrapping in any::<u8>()) {
        let text = odd_v6(ip, wrapping);
        let wrapped: Ipv6Addr = text[1..text.len() - 1].parse().expect("an address");
        prop_assert!(!is_public(IpAddr::V6(wrapped)), "{text}");
    }

    #[test]
    fn retry_after_is_a_bounded_wait_or_nothing(
        value in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            "[0-9]{0,30}".prop_map(String::into_bytes),
            "(Sun|Mon|Xxx), [0-9]{1,3} (Nov|Feb|Xyz) [0-9]{1,6} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT".prop_map(String::into_bytes),
        ],
        now_s in 0u64..1 << 40, max_ms in any::<u64>(),
    ) {
        let (now, max) = (UNIX_EPOCH + Duration::from_secs(now_s), Duration::from_millis(max_ms));
        prop_assert!(retry_after::parse(&value, now, max).is_none_or(|wait| wait <= max));
    }

    #[test]
    fn a_signature_is_the_standards_and_no_other_bodys(
        id in "\\PC{1,40}", timestamp in 0i64..1 << 40, body in "(?s).{0,100}",
        key in prop::collection::vec(any::<u8>(), 1..64), changed in any::<prop::sample::Index>(),
    ) {
        let webhook = Webhook::from_bytes(key.clone()).expect("a key");
        let secret = format!("whsec_{}", base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &key));
        let signer = Signer::new(&[secret.into()]).expect("a secret");
        let signed = signer.sign(&id, &timestamp.to_string(), body.as_bytes());
        prop_assert_eq!(&signed, &webhook.sign(&id, timestamp, body.as_bytes()).ok());
        let mut other = body.into_bytes();
        if let Some(byte) = (!other.is_empty()).then(|| changed.index(other.len())) {
            other[byte] ^= 1;
            prop_assert_ne!(signed, signer.sign(&id, &timestamp.to_string(), &other));
        }
    }

    #[test]
    fn a_secret_is_a_key_or_a_reason(secret in prop_oneof![any::<String>(), "whsec_[A-Za-z0-9+/=]{0,60}"]) {
        if let Ok(signer) = Signer::new(&[secret.into()]) {
            prop_assert!(signer.sign("id", "1", b"").is_some_and(|signature| signature.starts_with("v1,")));
        }
    }

    #[test]
    fn a_template_is_refused_or_renders_within_its_bounds(
        source in prop::collection::vec(prop_oneof![
            prop::sample::select(vec![
                "{{ ", " }}", "{% ", " %}", "{#", "#}", "payload", "payload.text", "recipient", "headers.x", "|tojson", "|urlencode",
                "for n in range(99999)", "endfor", "if ", "endif", "loop.index", "[", "]", "(", ")", "'", "\"", "~", "*", "999999999",
                "|default('-')", "{% raw %}", "{% endraw %}", "macro m()", "endmacro", "set x = ", " is defined", "namespace()", ".", "-1",
            ]).prop_map(str::to_owned),
            "\\PC{0,6}",
        ], 0..14),
        text in any::<String>(),
    ) {
        let mut templates = Templates::new(template::REQUEST);
        if let Ok(Text::Template(name)) = templates.add("body", &source.concat()) {
            let payload = serde_json::json!({ "text": text }).to_string();
            let (payload, headers) = (raw(&payload), raw(r#"{"x": "y"}"#));
            let context = templates.context(&outgoing(&text, &payload, Some(&headers))).expect("JSON");
            if let Ok(rendered) = templates.render(&name, &context.unwrap_or(Value::UNDEFINED), 1000) {
                prop_assert!(rendered.len() <= 1000);
            }
        }
    }

    #[test]
    fn headers_of_a_row_are_sent_whole_or_refused(
        headers in prop_oneof![
            prop::collection::btree_map("(x-[a-z]{1,6}|tenant|host|traceparent|webhook-id|\\PC{0,8})", any::<String>(), 0..4)
                .prop_map(|map| serde_json::to_string(&map).expect("JSON")),
            any::<i64>().prop_map(|n| format!("[{n}, {{\"x-a\": null}}]")),
            prop::collection::btree_map("x-[a-z]", any::<bool>(), 0..3).prop_map(|map| serde_json::to_string(&map).expect("JSON")),
        ],
    ) {
        let (payload, row) = (raw("{}"), raw(&headers));
        let outgoing = outgoing("r", &payload, Some(&row));
        let target = FORWARDING.target(&outgoing).expect("a fixed URL");
        if let Ok((map, _)) = FORWARDING.parts(&target, &outgoing) {
            prop_assert_eq!(map.get("webhook-id").map(|id| id.as_bytes()), Some(outgoing.webhook_id.as_bytes()));
            prop_assert!(!map.contains_key("host"));
            let given: std::collections::BTreeMap<String, String> = serde_json::from_str(&headers).expect("an object of strings");
            for (name, value) in given.iter().filter(|(name, _)| name.starts_with("x-") || *name == "tenant") {
                prop_assert_eq!(map.get(name.as_str()).map(|sent| sent.as_bytes()), Some(value.as_bytes()));
            }
        }
    }
}
