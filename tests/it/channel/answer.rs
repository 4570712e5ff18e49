//! Providers that say no inside a 200, in the shapes that real ones use.

use std::time::Duration;

use outboxd::channel::{Cause, Channel, Outcome};
use outboxd::config::ChannelConfig;
use outboxd::retry::Failure;

use super::{Note, assert_sent, channel, config, failed};
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

/// NHN Cloud's KakaoTalk Bizmessage.
const NHN: &str = "{{ response.header.isSuccessful }}";
const NHN_YES: &str = r#"{"header": {"resultCode": 0, "resultMessage": "SUCCESS", "isSuccessful": true},
    "message": {"requestId": "20260131ABCDEF", "senderGroupingKey": null}}"#;
const NHN_NO: &str =
    r#"{"header": {"resultCode": -1000, "resultMessage": "유효하지 않은 앱키", "isSuccessful": false}}"#;
/// Resellers of Alimtalk: a code in every answer, some of which say to come back.
const CODES: &str =
    "{{ response.code == '0000' or ('transient' if response.code in ['9998', '9999'] else 'permanent') }}";
/// chat.postMessage, and an incoming webhook.
const SLACK: &str = "{{ response.ok or ('transient' if response.error == 'ratelimited') }}";
const SLACK_HOOK: &str = "{{ response.text|trim == 'ok' }}";
/// FCM HTTP v1.
const FCM: &str = "{{ response.name is defined }}";
const FCM_YES: &str = r#"{"name": "projects/shop/messages/0:1700000000000000%31bd1c9631bd1c96"}"#;

/// A channel at this provider that reads its answers so.
fn reading(provider: &Provider, accepted_when: &str) -> ChannelConfig {
    let mut config = config(&provider.url("/"));
    config.accepted_when = Some(accepted_when.to_owned());
    config
}

async fn answered(channel: &Channel, provider: &Provider, reply: Reply) -> Outcome {
    provider.script([reply]);
    channel.send(&Note::to("user-1").attempt(1)).await
}

#[tokio::test]
async fn a_no_inside_a_200_is_taken_for_what_the_provider_means() {
    let provider = Provider::start();
    let permanent = Some(Failure::Permanent);
    for (accepted_when, body, expected) in [
        (NHN, NHN_YES, None),
        (NHN, NHN_NO, permanent),
        (CODES, r#"{"code": "0000", "uid": "2601311200"}"#, None),
        (CODES, r#"{"code": "3018", "message": "메시지를 전송할 수 없음"}"#, permanent),
        (CODES, r#"{"code": "9999", "message": "시스템 오류"}"#, Some(Failure::Transient)),
        (SLACK, r#"{"ok": true, "channel": "C024BE91L", "ts": "1401383885.000061"}"#, None),
        (SLACK, r#"{"ok": false, "error": "channel_not_found"}"#, permanent),
        (SLACK, r#"{"ok": false, "error": "ratelimited"}"#, Some(Failure::Transient)),
        (SLACK_HOOK, "ok", None),
        (SLACK_HOOK, "no_service", permanent),
        (FCM, FCM_YES, None),
        (FCM, "{}", permanent),
        ("{{ response.body[0].accepted }}", r#"[{"accepted": true}]"#, None),
        ("true", "", None),
    ] {
        let channel = channel(&reading(&provider, accepted_when));
        match (answered(&channel, &provider, Reply::ok().body(body)).await, expected) {
            (Outcome::Sent { status: 200, .. }, None) => {}
            (Outcome::Failed(failed), Some(failure)) => {
                assert_eq!(
                    (failed.failure, failed.cause, failed.status),
                    (failure, Cause::Answer, Some(200)),
                    "{body}"
                );
                assert_eq!(failed.excerpt.as_deref(), Some(body), "what the provider said is kept");
                assert!(failed.error.starts_with("status 200 OK, not accepted"), "{}", failed.error);
            }
            (outcome, _) => panic!("{accepted_when} of {body}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn where_the_template_does_not_say_why_the_error_quotes_the_answer_in_bounds() {
    let provider = Provider::start();
    for (accepted_when, body, said) in [
        (NHN, NHN_NO, format!("not accepted: {NHN_NO}")),
        (CODES, r#"{"code": "9999"}"#, r#"not accepted: transient: {"code": "9999"}"#.to_owned()),
        (SLACK_HOOK, "no\r\n\tteam\u{1b}[2J ", "not accepted: no team [2J".to_owned()),
        (SLACK_HOOK, "", "not accepted".to_owned()),
        (SLACK_HOOK, &"가".repeat(300), format!("not accepted: {}", "가".repeat(200))),
        ("{{ 'permanent: why' }}", NHN_NO, "not accepted: why".to_owned()),
        ("{{ 'transient: why' }}", NHN_NO, "not accepted: why".to_owned()),
    ] {
        let channel = channel(&reading(&provider, accepted_when));
        let failed = failed(answered(&channel, &provider, Reply::ok().body(body)).await);
        assert_eq!(failed.error, format!("status 200 OK, {said}"));
    }
}

#[tokio::test]
async fn only_a_2xx_is_read_and_a_plain_channel_reads_none() {
    let provider = Provider::start();
    let strict = channel(&reading(&provider, NHN));
    let failed = failed(answered(&strict, &provider, Reply::status(503).body(NHN_YES)).await);
    assert_eq!((failed.failure, failed.cause), (Failure::Transient, Cause::Status));
    let plain = channel(&config(&provider.url("/")));
    assert_sent(&answered(&plain, &provider, Reply::ok().body(NHN_NO)).await);
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_given_up_and_never_repeated() {
    let provider = Provider::start();
    let long = "x".repeat(70_000);
    for (accepted_when, body, reason) in [
        (NHN, "<html>maintenance</html>", "`response.header` is undefined"),
        (NHN, r#"{"header": {}}"#, "`response.header.isSuccessful` is undefined"),
        ("{{ response.code }}", r#"{"code": "0000"}"#, "`0000` is no verdict"),
        ("{{ response.ok }}", r#"{"ok": null}"#, "`none` is no verdict"),
        (
            "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}",
            "{}",
            "more than 1000000 steps",
        ),
        ("{% for a in range(10000) %}true{% endfor %}", "{}", "more than 1024 bytes"),
        (SLACK_HOOK, long.as_str(), "more than 65536 bytes (response_bytes_max)"),
    ] {
        let channel = channel(&reading(&provider, accepted_when));
        let failed = failed(answered(&channel, &provider, Reply::ok().body(body)).await);
        assert_eq!((failed.failure, failed.cause), (Failure::Unreadable, Cause::Answer), "{}", failed.error);
        assert!(failed.error.contains(reason), "{}", failed.error);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_unknown_and_may_be_asked_for_again() {
    let provider = Provider::start();
    let mut config = reading(&provider, NHN);
    config.timeout = Duration::from_millis(300);
    let channel = channel(&config);
    for reply in [Reply::drip(200), Reply::raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"header\"")] {
        let failed = failed(answered(&channel, &provider, reply).await);
        assert_eq!((failed.failure, failed.cause), (Failure::Ambiguous, Cause::Answer), "{}", failed.error);
    }
}

#[tokio::test]
async fn fields_of_the_body_do_not_hide_status_headers_and_text() {
    let provider = Provider::start();
    let body = r#"{"status": "ACCEPTED", "headers": {"a": "1"}, "text": "t", "body": "b", "n": 7}"#;
    let accepted_when = "{{ response.status == 202 and response.headers['x-request-id'] == 'r1, r2' and response.n == 7
        and response.text|length > 20 and response.body.status == 'ACCEPTED' and response.body.headers.a == '1'
        and response.body.text == 't' and response.body.body == 'b' }}";
    let channel = channel(&reading(&provider, accepted_when));
    let reply = Reply::status(202).header("X-Request-Id", "r1").header("x-request-id", "r2").body(body);
    assert_sent(&answered(&channel, &provider, reply).await);
}

#[tokio::test]
async fn the_providers_own_id_is_kept_if_it_gave_one_and_no_reason_to_fail() {
    let provider = Provider::start();
    let long = format!(r#"{{"name": "{}"}}"#, "x".repeat(600));
    for (template, body, expected) in [
        ("{{ response.name }}", FCM_YES, Some("projects/shop/messages/0:1700000000000000%31bd1c9631bd1c96")),
        ("{{ response.headers['x-request-id'] }}", "", Some("r1")),
        ("{{ response.n }}", r#"{"n": 18446744073709551615}"#, Some("18446744073709551615")),
        ("{{ response.name }}", r#"{"name": " a\u0000b\n"}"#, Some("a\u{fffd}b")),
        ("{{ response.name }}", r#"{"name": null}"#, None),
        ("{{ response.name }}", r#"{"name": ""}"#, None),
        ("{{ response.name }}", "not JSON", None),
        ("{{ response.name }}", long.as_str(), None),
    ] {
        let mut config = config(&provider.url("/"));
        config.provider_id = Some(template.to_owned());
        let reply = Reply::ok().header("x-request-id", "r1").body(body);
        match answered(&channel(&config), &provider, reply).await {
            Outcome::Sent { provider_id, .. } => assert_eq!(provider_id.as_deref(), expected, "{template} of {body}"),
            outcome => panic!("{outcome:?}"),
        }
    }
    let mut config = reading(&provider, NHN);
    config.provider_id = Some("{{ response.header.resultCode }}".to_owned());
    let failed = failed(answered(&channel(&config), &provider, Reply::ok().body(NHN_NO)).await);
    assert_eq!(failed.provider_id.as_deref(), Some("-1000"), "a refusal may have an id too");
}

#[test]
fn what_an_answer_does_not_have_is_refused_at_start() {
    let mut config = config("https://a.example/");
    config.accepted_when = Some("{{ respons.ok }}".to_owned());
    let error = Channel::new("push", &config).unwrap_err().to_string();
    assert!(
        error.contains("template accepted_when: there is no variable `respons`; did you mean \"response\"?"),
        "{error}"
    );
}

/// Alimtalk says no to `r1` inside a 200, so that SMS delivers it; what it says to `r2` cannot be read.
#[tokio::test]
async fn the_record_tells_the_providers_ids_and_why_one_was_given_up() {
    let world = World::new(Carrier::Memory).await;
    world.provider.answer_with(|call| match (call.path.as_str(), call.recipient().as_str()) {
        ("/alimtalk", "r1") => Reply::ok().body(r#"{"header": {"isSuccessful": false}, "id": "kakao-1"}"#),
        ("/alimtalk", "r2") => Reply::ok().body("<html>"),
        (_, recipient) => {
            Reply::ok().body(format!(r#"{{"header": {{"isSuccessful": true}}, "id": "sms-{recipient}"}}"#))
        }
    });
    let read = "accepted_when = '{{ response.header.isSuccessful }}'\nprovider_id = '{{ response.id }}'\n";
    let channels = ["alimtalk", "sms"]
        .map(|name| format!("[channels.{name}]\nurl = \"{}\"\n{read}", world.provider.url(&format!("/{name}"))));
    let routes = "[routes.orders]\nchannels = [\"alimtalk\", \"sms\"]\n";
    let _instance = world.setup.clone().toml(&channels.concat()).toml(routes).start().await;
    world.notify(3).await;
    world.until_ended().await.assert_nothing_lost();
    let shown = "SELECT concat_ws(' | ', recipient, status, channel, http_status, provider_id, error) FROM outboxd.notifications ORDER BY id";
    assert_eq!(
        world.values::<String>(shown).await,
        [
            "r1 | SENT | sms | 200 | sms-r1",
            "r2 | FAILED | alimtalk | 200 | status 200 OK, whether it was accepted cannot be told: template accepted_when: `response.header` is undefined (line 1)",
            "r3 | SENT | alimtalk | 200 | sms-r3",
        ]
    );
    let attempts = "SELECT concat_ws(' | ', notification_id, channel, outcome, http_status, provider_id, response) FROM outboxd.attempts ORDER BY 1";
    assert_eq!(
        world.values::<String>(attempts).await,
        [
            r#"1 | alimtalk | failed | 200 | kakao-1 | {"header": {"isSuccessful": false}, "id": "kakao-1"}"#,
            "2 | alimtalk | unknown | 200 | <html>",
        ]
    );
    assert_eq!(world.provider.count(), 4, "nobody was asked twice");
    world.run("SELECT outboxd.retry(2)").await;
    assert!(world.value::<bool>("SELECT provider_id IS NULL FROM outboxd.notification_log WHERE id = 2").await);
}
