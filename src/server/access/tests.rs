//! Who a request is taken for.

use std::time::Duration;

use axum::http::header::{COOKIE, HOST, HeaderValue, SET_COOKIE};

use super::*;

fn access(tokens: &[(&str, &str, Scope)]) -> Access {
    let hasher = Key::random();
    let one = |(name, secret, scope): &(&str, &str, Scope)| {
        Token::new(&hasher, &SecretString::from(*secret), rights(name, *scope, None))
    };
    let tokens = tokens.iter().map(one).collect();
    let installation = SigningKey::default();
    installation.set(vec![7; 32].into()).unwrap();
    let local = caller(LOCAL, Scope::Operate, None);
    Access {
        tokens,
        hasher,
        local,
        local_tickets: Key::random(),
        installation,
        guesses: Guesses::default(),
        ended: Default::default(),
    }
}

fn rights(name: &str, scope: Scope, topics: Option<&[&str]>) -> Rights {
    let topics = topics.map(|topics| topics.iter().map(|topic| (*topic).to_owned()).collect());
    Rights { name: name.to_owned(), scope, topics, payloads: false }
}

fn caller(name: &str, scope: Scope, topics: Option<&[&str]>) -> Caller {
    Caller(Arc::new(rights(name, scope, topics)))
}

fn headers(given: &[(axum::http::HeaderName, &str)]) -> HeaderMap {
    given.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
}

fn name_of(access: &Access, given: &[(axum::http::HeaderName, &str)]) -> Option<String> {
    access.caller(&headers(given)).map(|(caller, ..)| caller.name().to_owned())
}

#[test]
fn only_the_whole_token_is_its_name() {
    let access = access(&[("a", "first", Scope::Read), ("b", "second", Scope::Operate)]);
    for (value, wanted) in [
        ("Bearer first", Some("a")),
        ("bearer  second ", Some("b")),
        ("Bearer firs", None),
        ("Bearer firstt", None),
        ("Bearer First", None),
        ("Bearer ", None),
        ("Bearer", None),
        ("Basic first", None),
        ("", None),
    ] {
        assert_eq!(name_of(&access, &[(AUTHORIZATION, value)]).as_deref(), wanted, "{value:?}");
    }
    assert_eq!(name_of(&access, &[]), None);
}

#[test]
fn without_tokens_everybody_is_local_and_may_do_everything() {
    let (caller, proof, _) = access(&[]).caller(&HeaderMap::new()).unwrap();
    assert_eq!((caller.name(), caller.scope(), proof), ("local", Scope::Operate, Proof::None));
}

#[test]
fn a_cookie_is_the_token_it_was_made_with_and_a_wrong_bearer_is_not_saved_by_it() {
    let access = access(&[("a", "first", Scope::Read)]);
    let local = headers(&[(HOST, "localhost:8080")]);
    for (origin, name) in [("http://localhost:8080", "outboxd="), ("https://localhost:8080", "__Host-outboxd=")] {
        let transport = session::Transport::of(&local, Some(origin));
        let set = session::begin("a", &access.key_of(&access.tokens[0], session::PURPOSE).unwrap(), transport);
        let cookie = set.to_str().unwrap().split(';').next().unwrap().to_owned();
        assert!(cookie.starts_with(name), "{cookie}");
        let found = access.caller(&headers(&[(HOST, "localhost:8080"), (COOKIE, &format!("x=y; {cookie}"))])).unwrap();
        assert_eq!((found.0.name(), found.1), ("a", Proof::Cookie));
        let elsewhere = name_of(&access, &[(HOST, "ops.example"), (COOKIE, &cookie)]);
        assert_eq!(elsewhere.is_some(), name == "__Host-outboxd=", "the plain name counts on loopback alone");
        let both = [(HOST, "localhost"), (COOKIE, cookie.as_str()), (AUTHORIZATION, "Bearer wrong")];
        assert_eq!(name_of(&access, &both), None);
    }
    assert_eq!(SET_COOKIE.as_str(), "set-cookie");
}

#[test]
fn operate_covers_everything_and_the_others_only_themselves() {
    for (has, read, write, operate) in
        [(Scope::Read, true, false, false), (Scope::Write, false, true, false), (Scope::Operate, true, true, true)]
    {
        let caller = caller("c", has, None);
        let may = [Scope::Read, Scope::Write, Scope::Operate].map(|needed| caller.check(needed).is_ok());
        assert_eq!(may, [read, write, operate], "{has:?}");
    }
}

#[test]
fn topics_are_names_or_beginnings_of_names() {
    let some = caller("c", Scope::Write, Some(&["quiz", "order.*"]));
    for (topic, may) in [("quiz", true), ("quiz2", false), ("order.paid", true), ("order", false), ("", false)] {
        assert_eq!(some.may_use_topic(topic), may, "{topic}");
    }
    assert!(caller("c", Scope::Write, None).may_use_topic("anything"));
}

#[test]
fn a_ticket_is_good_for_every_instance_with_the_token_until_it_ends() {
    let ours = [("shop", "first", Scope::Write), ("other", "second", Scope::Write)];
    let (first, second) = (access(&ours), access(&ours));
    let shop = first.by_token(b"first").unwrap().caller.clone();
    let issue =
        |ttl| first.issue(&shop, vec!["order".to_owned()], Some("k1".to_owned()), Duration::from_secs(ttl)).unwrap().0;
    let given = issue(60);
    let (caller, ticket) = second.redeem(&given).unwrap();
    assert_eq!((caller.name(), &*ticket.topics[0], ticket.key.as_deref()), ("shop", "order", Some("k1")));
    assert!(given.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{given}");
    assert!(second.redeem(&issue(0)).is_err(), "it is over");
    assert!(access(&[("shop", "changed", Scope::Write)]).redeem(&given).is_err(), "the token was changed");
    assert!(access(&[("other", "first", Scope::Write)]).redeem(&given).is_err(), "the token is gone");
    assert!(access(&[]).redeem(&given).is_err(), "there are no tokens any more");
    let (said, signature) = given.split_once('.').unwrap();
    for forged in ["", ".", "x", said, &format!("{said}."), &format!("{said}.AAAA"), &format!("A{said}.{signature}")] {
        assert!(second.redeem(forged).is_err(), "{forged}");
    }
    let cookie =
        session::begin("shop", &first.key_of(&first.tokens[0], session::PURPOSE).unwrap(), session::Transport::Secure);
    let cookie = cookie.to_str().unwrap().split(['=', ';']).nth(1).unwrap().to_owned();
    assert!(second.redeem(&cookie).is_err(), "a session is no ticket");
}

#[test]
fn without_tokens_a_ticket_is_good_for_the_process_that_made_it() {
    let (first, second) = (access(&[]), access(&[]));
    let (given, _) = first.issue(&first.local, vec!["order".to_owned()], None, Duration::from_secs(60)).unwrap();
    assert_eq!(first.redeem(&given).unwrap().0.name(), "local");
    assert!(second.redeem(&given).is_err());
}
