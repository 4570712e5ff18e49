//! Strangers: those behind a proxy that nobody told outboxd of, pages of other sites, and who guesses.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{idle, with_token};
use crate::support::http::{Answer, ask, get, post, post_bytes};
use crate::support::prometheus::Scrape;
use crate::support::sql::Sql;
use crate::support::{postgres, wait};

const TOKEN: &str = "Authorization: Bearer hunter2-hunter2-hunter2";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded";

#[tokio::test]
async fn without_tokens_what_came_through_a_proxy_is_refused_with_what_to_do() {
    let database = postgres::database().await;
    let mut instance = idle(&database).start().await;
    let addr = instance.http_addr().await;
    for header in [
        "Forwarded: for=192.0.2.1",
        "X-Forwarded-For: 192.0.2.1",
        "X-Forwarded-Proto: https",
        "x-forwarded-host: outboxd.example",
        "Via: 1.1 proxy",
        "X-Real-IP: 192.0.2.1",
    ] {
        for path in ["/", "/dead", "/live?page=/", "/metrics", "/livez", "/v1/health", "/v1/live?topic=a", "/nothing"] {
            let answer = get(addr, path, &[header]).await;
            assert_eq!(answer.status, 403, "{path} {header}: {answer:?}");
            assert!(answer.body.contains("urn:outboxd:problem:forwarded"), "{path} {header}: {answer:?}");
            assert!(answer.body.contains("http_token") && answer.body.contains("proxy"), "{path} {header}: {answer:?}");
        }
        let posted = post(addr, "/v1/notifications", &[header], r#"{"topic":"t","recipient":"r","payload":{}}"#).await;
        assert_eq!(posted.status, 403, "{header}: {posted:?}");
        assert_eq!(ask(addr, "POST", "/v1/topics/t/pause", &[header]).await.status, 403, "{header}");
    }
    assert_eq!(get(addr, "/metrics", &[]).await.status, 200);
    let client = database.connect().await;
    assert_eq!(client.count("audit").await, 0);
    let (_guarded, addr) = with_token().await;
    assert_eq!(get(addr, "/metrics", &[TOKEN, "X-Forwarded-For: 192.0.2.1", "Via: 1.1 proxy"]).await.status, 200);
}

#[tokio::test]
async fn without_tokens_a_strangers_page_loads_nothing_and_a_link_still_works() {
    let database = postgres::database().await;
    let mut instance = idle(&database).start().await;
    let addr = instance.http_addr().await;
    for (site, mode, status) in [
        ("cross-site", "no-cors", 403),
        ("cross-site", "cors", 403),
        ("same-site", "no-cors", 403),
        ("cross-site", "navigate", 200),
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
    ] {
        for path in ["/", "/v1/health", "/metrics"] {
            let given = [format!("Sec-Fetch-Site: {site}"), format!("Sec-Fetch-Mode: {mode}")];
            let answer = get(addr, path, &[&given[0], &given[1]]).await;
            assert_eq!(answer.status, status, "{path} {site} {mode}: {answer:?}");
        }
    }
    let listened = get(addr, "/live?page=/", &["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors"]).await;
    assert!(listened.status == 403 && listened.body.contains("urn:outboxd:problem:cross-origin"), "{listened:?}");
}

async fn guess(addr: std::net::SocketAddr, n: usize) -> Answer {
    get(addr, "/v1/health", &[&format!("Authorization: Bearer guess-number-{n:08}")]).await
}

#[tokio::test]
async fn guesses_are_counted_told_once_and_answered_ever_more_slowly() {
    let (mut instance, addr) = with_token().await;
    for n in 0..15 {
        assert_eq!(guess(addr, n).await.status, 401);
    }
    // The next answer comes after that of the right token from the same address.
    let asked_at = Instant::now();
    let wrong = async {
        assert_eq!(guess(addr, 99).await.status, 401);
        asked_at.elapsed()
    };
    let right = async {
        assert_eq!(get(addr, "/v1/health", &[TOKEN]).await.status, 200);
        asked_at.elapsed()
    };
    let (wrong, right) = tokio::join!(wrong, right);
    assert!(wrong >= Duration::from_secs(1), "{wrong:?}");
    assert!(right < wrong, "{right:?} {wrong:?}");
    let refused = post_bytes(addr, "/login", &[FORM], b"token=guess-guess-guess").await;
    assert_eq!(refused.status, 401);
    let scrape = get(addr, "/metrics", &[TOKEN]).await.body;
    assert!(scrape.contains("outboxd_http_wrong_tokens_total{by=\"bearer\"} 16\n"), "{scrape}");
    assert!(scrape.contains("outboxd_http_wrong_tokens_total{by=\"login\"} 1\n"), "{scrape}");
    let log = instance.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("wrong token")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("127.0.0.1") && !lines[0].contains("guess-number"), "{}", lines[0]);
    // A probe is no guess, whatever it carries.
    for probe in ["/livez", "/readyz"] {
        assert_eq!(get(addr, probe, &["Authorization: Bearer wrong-wrong-wrong"]).await.status, 200);
    }
    assert_eq!(instance.metric_with("outboxd_http_wrong_tokens_total", &[("by", "bearer")], &[TOKEN]).await, 16.0);
    // Any other page is one, also where nobody has to be known: this one leads on whoever is.
    assert_eq!(get(addr, "/login", &["Authorization: Bearer wrong-wrong-wrong"]).await.status, 200);
    assert_eq!(instance.metric_with("outboxd_http_wrong_tokens_total", &[("by", "bearer")], &[TOKEN]).await, 17.0);
}

/// Asks for this on a connection of its own.
async fn asked(addr: std::net::SocketAddr, path: &str, header: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    ask_on(&mut stream, path, header).await;
    stream
}

async fn ask_on(stream: &mut TcpStream, path: &str, header: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
}

/// The status of the answer.
async fn status(stream: &mut TcpStream) -> String {
    let mut buffer = [0; 4096];
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut buffer)).await.expect("in time").unwrap();
    String::from_utf8_lossy(&buffer[..read])[9..12].to_owned()
}

#[tokio::test]
async fn guesses_in_parallel_by_who_hangs_up_are_as_slow_and_keep_out_nobody_known() {
    let (_instance, addr) = with_token().await;
    let cookie = format!("Cookie: {}", log_in(addr).await);
    let mut known = asked(addr, "/version", TOKEN).await;
    assert_eq!(status(&mut known).await, "200");
    let counted = async || {
        let labels = [("by", "bearer")];
        Scrape::parse(&get(addr, "/metrics", &[&cookie]).await.body).value("outboxd_http_wrong_tokens_total", &labels)
    };
    for n in 0..15 {
        assert_eq!(guess(addr, n).await.status, 401);
    }
    let wrong = |n: usize| format!("Authorization: Bearer guess-number-{n:08}");
    let (began, held) = (Instant::now(), Duration::from_secs(2));
    let _guessing = join_all((100..108).map(async |n| asked(addr, "/version", &wrong(n)).await)).await;
    wait::until("each turn is taken", async || counted().await == Some(23.0)).await;
    // What is right is not told at once any more: what is not answered at once would be wrong.
    let mut stranger = asked(addr, "/version", TOKEN).await;
    let waits = tokio::spawn(async move { (status(&mut stranger).await, began.elapsed()) });
    ask_on(&mut known, "/version", TOKEN).await;
    assert_eq!(status(&mut known).await, "200", "it was shown on this connection before");
    for (path, header) in [("/version", &*cookie), ("/livez", TOKEN), ("/livez", "Authorization: Bearer wrong")] {
        assert_eq!(status(&mut asked(addr, path, header).await).await, "200", "{path} {header}");
    }
    assert!(!waits.is_finished(), "all these are answered before");
    let (answer, after) = waits.await.unwrap();
    assert!(answer == "200" && after >= held, "{answer} {after:?}");
    // Who hangs up has had its turn, and no other comes before its time.
    let (before, began) = (counted().await.unwrap(), Instant::now());
    let guesser = async |from: usize| {
        for n in from..from + 40 {
            let mut stream = asked(addr, "/version", &wrong(n)).await;
            let _hung_up = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut [0; 64])).await;
        }
    };
    join_all((0..10).map(|n| guesser(1_000 + n * 40))).await;
    let (judged, most) = (counted().await.unwrap() - before, 8 * (1 + began.elapsed().as_secs() / held.as_secs()));
    assert!(judged >= 8.0 && judged <= most as f64, "{judged} of 400 within {:?}", began.elapsed());
    assert_eq!(get(addr, "/version", &[TOKEN]).await.status, 200, "once they stop, everybody has a turn");
}

/// The session cookie, as `name=value`.
async fn log_in(addr: std::net::SocketAddr) -> String {
    let answer = post_bytes(addr, "/login", &[FORM], b"token=hunter2-hunter2-hunter2").await;
    answer.header("set-cookie").expect("a cookie").split(';').next().unwrap().to_owned()
}

/// Made from the token alone, they would be taken wherever that token is, and guesses could be tried on them.
#[tokio::test]
async fn neither_a_session_nor_a_ticket_is_good_without_the_installations_key() {
    let database = postgres::database().await;
    let setup = idle(&database).env("OUTBOXD_HTTP_TOKEN", "hunter2-hunter2-hunter2");
    let mut first = setup.start().await;
    let addr = first.http_addr().await;
    let cookie = format!("Cookie: {}", log_in(addr).await);
    let ticket = post(addr, "/v1/live/tickets", &[TOKEN], r#"{"topics": ["order"]}"#).await;
    let live = format!("/v1/live?topic=order&ticket={}", ticket.json()["ticket"].as_str().unwrap());
    assert_eq!(first.drain().await, 0);
    let admin = database.connect().await;
    admin.run("CREATE TABLE public.kept AS SELECT signing_key FROM outboxd.setting").await;
    // Whoever is let in is told next that there is no Redis.
    for (key, taken) in [("DEFAULT", (401, 401)), ("(SELECT signing_key FROM public.kept)", (200, 501))] {
        admin.run(&format!("UPDATE outboxd.setting SET signing_key = {key}")).await;
        let mut instance = setup.start().await;
        let addr = instance.http_addr().await;
        assert_eq!(get(addr, "/version", &[TOKEN]).await.status, 200, "the token is the same");
        let (session, ticket) = (get(addr, "/version", &[&cookie]).await, get(addr, &live, &[]).await);
        assert_eq!((session.status, ticket.status), taken, "with the key {key}: {ticket:?}");
    }
}

#[tokio::test]
async fn instances_of_one_installation_take_each_others_sessions_and_no_others() {
    let database = postgres::database().await;
    let setup = idle(&database).env("OUTBOXD_HTTP_TOKEN", "hunter2-hunter2-hunter2");
    let mut first = setup.start().await;
    let cookie = format!("Cookie: {}", log_in(first.http_addr().await).await);
    assert_eq!(first.drain().await, 0);
    let mut second = setup.start().await;
    assert_eq!(get(second.http_addr().await, "/v1/health", &[&cookie]).await.status, 200);
    let changed = idle(&database).env("OUTBOXD_HTTP_TOKEN", "hunter3-hunter3-hunter3");
    let mut third = changed.start().await;
    assert_eq!(get(third.http_addr().await, "/v1/health", &[&cookie]).await.status, 401, "the token was changed");
    let admin = database.connect().await;
    admin.run("UPDATE outboxd.setting SET signing_key = DEFAULT").await;
    let mut fourth = setup.start().await;
    assert_eq!(get(fourth.http_addr().await, "/v1/health", &[&cookie]).await.status, 401, "the key was changed");
    let readers = "SELECT string_agg(r, ',' ORDER BY r) FROM unnest(ARRAY['outboxd_app', 'outboxd_operator', 'outboxd_reader', 'outboxd_audience', 'outboxd_service']) r
                    WHERE has_column_privilege(r, 'outboxd.setting', 'signing_key', 'SELECT')";
    assert_eq!(admin.value::<String>(readers).await, "outboxd_service");
}

#[tokio::test]
async fn a_logout_ends_its_session_and_the_streams_of_it() {
    let (_instance, addr) = with_token().await;
    let (ours, other) = (log_in(addr).await, log_in(addr).await);
    assert_ne!(ours, other, "each login is a session of its own");
    let cookie = format!("Cookie: {ours}");
    let stays = format!("Cookie: {other}");
    let listening = tokio::spawn(async move { get(addr, "/live?page=/", &[&cookie]).await });
    let goes_on = tokio::spawn(async move { get(addr, "/live?page=/", &[&stays]).await });
    let cookie = format!("Cookie: {ours}");
    assert_eq!(get(addr, "/v1/health", &[&cookie]).await.status, 200);
    let out = post_bytes(addr, "/logout", &[&cookie, "Sec-Fetch-Site: same-origin"], b"").await;
    assert_eq!(out.status, 204, "{out:?}");
    assert_eq!(get(addr, "/v1/health", &[&cookie]).await.status, 401, "a copy of the cookie is good for nothing");
    let ended = listening.await.expect("it ends within the time for an answer");
    assert!(ended.body.is_empty() || ended.body.contains("event: "), "{ended:?}");
    assert!(!goes_on.is_finished(), "another session of the same token goes on");
    assert_eq!(get(addr, "/v1/health", &[&format!("Cookie: {other}")]).await.status, 200);
    goes_on.abort();
}

#[tokio::test]
async fn one_token_does_not_take_all_live_pages() {
    let database = postgres::database().await;
    let tokens = "[tokens.wall]\ntoken = \"k3Rz8vQm1LxT5yWd\"\nscope = \"read\"\n[tokens.ops]\ntoken = \"p9Bn4cJf7HsG2aXe\"\nscope = \"operate\"\n";
    let mut instance = idle(&database).toml(tokens).start().await;
    let addr = instance.http_addr().await;
    let listen = |token: &str| {
        let request = format!("GET /live?page=/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut head = [0; 12];
            stream.read_exact(&mut head).await.unwrap();
            (stream, String::from_utf8_lossy(&head[9..]).into_owned())
        }
    };
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(listen("k3Rz8vQm1LxT5yWd").await);
    }
    assert_eq!(held.iter().filter(|(_, status)| status == "200").count(), 64, "alone it may have all");
    let (_stream, status) = listen("p9Bn4cJf7HsG2aXe").await;
    assert_eq!(status, "200");
}
