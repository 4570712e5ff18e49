//! Who a request is taken for.

use axum::http::header::{COOKIE, HOST, HeaderValue, SET_COOKIE};

use super::*;

fn access(tokens: &[(&str, &str, Scope)]) -> Access {
    let hasher = Hmac::<Sha256>::new_from_slice(b"key").unwrap();
    let one = |(name, secret, scope): &(&str, &str, Scope)| Token {
        hash: hash(&hasher, secret.as_bytes()).finalize().into_bytes().into(),
        session_key: session::Key::new(name, &SecretString::from(*secret)),
        caller: caller(name, *scope, None),
    };
    Access {
        tokens: tokens.iter().map(one).collect(),
        hasher: hasher.clone(),
        local: caller(LOCAL, Scope::Operate, None),
    }
}

fn caller(name: &str, scope: Scope, topics: Option<&[&str]>) -> Caller {
    let topics = topics.map(|topics| topics.iter().map(|topic| (*topic).to_owned()).collect());
    Caller(Arc::new(Rights { name: name.to_owned(), scope, topics, payloads: false }))
}

fn headers(given: &[(axum::http::HeaderName, &str)]) -> HeaderMap {
    given.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
}

fn name_of(access: &Access, given: &[(axum::http::HeaderName, &str)]) -> Option<String> {
    access.caller(&headers(given)).map(|(caller, _)| caller.name().to_owned())
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
    let (caller, proof) = access(&[]).caller(&HeaderMap::new()).unwrap();
    assert_eq!((caller.name(), caller.scope(), proof), ("local", Scope::Operate, Proof::None));
}

#[test]
fn a_cookie_is_the_token_it_was_made_with_and_a_wrong_bearer_is_not_saved_by_it() {
    let access = access(&[("a", "first", Scope::Read)]);
    let local = headers(&[(HOST, "localhost:8080")]);
    for (origin, name) in [("http://localhost:8080", "outboxd="), ("https://localhost:8080", "__Host-outboxd=")] {
        let transport = session::Transport::of(&local, Some(origin));
        let set = session::begin("a", &access.tokens[0].session_key, transport);
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
