//! Finding notifications: every filter, every order, cursors without gaps, and no request that takes long.

use std::time::{Duration, Instant};

use super::{Api, assert_problem, ids};
use crate::support::http::Answer;
use crate::support::sql::Sql;

/// Eight rows of each status but PROCESSING, of two topics in turns; ids 1 to 40 in the order of the statuses below.
/// Created a minute apart, the last now.
async fn fill(api: &Api) {
    let written = "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, dedup_key, created_at, send_at, finished_at, failed_at)
        SELECT CASE n % 2 WHEN 0 THEN 'even' ELSE 'odd' END, 'recipient-' || n % 5, jsonb_build_object('n', n), s.status::outboxd.notification_status,
               'key-' || n, now() - (40 - n) * interval '1 min', now() + n * interval '1 h',
               CASE WHEN s.status IN ('SENT', 'FAILED', 'CANCELED') THEN now() END, CASE WHEN s.status = 'FAILED' THEN now() - n * interval '1 s' END
          FROM generate_series(1, 40) n, LATERAL (SELECT (ARRAY['SENT', 'PENDING', 'FAILED', 'CANCELED', 'QUEUED'])[(n - 1) / 8 + 1]) s(status)
         ORDER BY n;
        SELECT outboxd.pause('even'), outboxd.pause('odd');
        INSERT INTO outboxd.outbox (id, topic) SELECT id, topic FROM outboxd.notification_log WHERE status = 'QUEUED'";
    api.client.run(written).await;
}

async fn find(api: &Api, query: &str) -> Answer {
    api.get(&format!("/v1/notifications?{query}"), &[]).await
}

/// Every page, one after the other.
async fn all(api: &Api, query: &str) -> Vec<i64> {
    let (mut found, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = find(api, &format!("{query}{cursor}")).await;
        found.extend(ids(&page));
        pages += 1;
        assert!(pages < 1000, "it ends");
        match page.json()["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[tokio::test]
async fn each_status_is_found_in_its_order_page_by_page_without_a_gap() {
    let api = Api::open().await;
    fill(&api).await;
    let down = |from: i64, to: i64| (to..=from).rev().collect::<Vec<i64>>();
    for limit in [1, 3, 8, 50] {
        let find = async |query: &str| all(&api, &format!("{query}limit={limit}")).await;
        assert_eq!(find("").await, down(40, 1));
        assert_eq!(find("status=SENT&").await, down(8, 1));
        assert_eq!(find("status=CANCELED&").await, down(32, 25));
        assert_eq!(find("status=queued&").await, down(40, 33));
        assert_eq!(find("status=PROCESSING&").await, [0; 0]);
        // Last failed first: failed_at falls as n grows.
        assert_eq!(find("status=FAILED&").await, (17..=24).collect::<Vec<i64>>());
        assert_eq!(find("status=PENDING&").await, [10, 12, 14, 16, 9, 11, 13, 15]);
        assert_eq!(find("status=PENDING&topic=even&").await, [10, 12, 14, 16]);
        assert_eq!(find("status=PENDING&topic=odd&").await, [9, 11, 13, 15]);
        assert_eq!(find("status=FAILED&topic=odd&").await, [17, 19, 21, 23]);
        assert_eq!(find("topic=even&status=SENT&").await, [8, 6, 4, 2]);
        assert_eq!(find("recipient=recipient-0&").await, [40, 35, 30, 25, 20, 15, 10, 5]);
        for (status, found) in [("SENT", &[5][..]), ("PENDING", &[15, 10]), ("FAILED", &[20]), ("QUEUED", &[40, 35])] {
            assert_eq!(find(&format!("recipient=recipient-0&status={status}&")).await, found);
        }
        assert_eq!(find("recipient=recipient-0&status=PROCESSING&").await, [0; 0]);
    }
}

#[tokio::test]
async fn times_bound_a_search_on_both_sides() {
    let api = Api::open().await;
    fill(&api).await;
    let at = async |n: i32| {
        let iso = format!(
            "SELECT to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') FROM outboxd.notification_log WHERE id = {n}"
        );
        api.client.value::<String>(&iso).await
    };
    let (since, until) = (at(6).await, at(20).await);
    assert_eq!(all(&api, &format!("since={since}&until={until}&limit=4")).await, (6..=20).rev().collect::<Vec<i64>>());
    assert_eq!(all(&api, &format!("since={since}&until={until}&status=FAILED")).await, [17, 18, 19, 20]);
    assert_eq!(all(&api, &format!("until={until}&status=PENDING&topic=odd")).await, [9, 11, 13, 15]);
    assert_eq!(all(&api, &format!("since={}&status=QUEUED", at(38).await)).await, [40, 39, 38]);
    assert_eq!(all(&api, "until=0001-01-01T00:00:00Z").await, [0; 0]);
}

#[tokio::test]
async fn a_text_is_an_id_a_dedup_key_or_a_part_of_the_payload() {
    let api = Api::open().await;
    fill(&api).await;
    assert_eq!(all(&api, "q=7").await, [7]);
    assert_eq!(all(&api, "q=key-7").await, [7]);
    assert_eq!(all(&api, "q=key-7&topic=odd").await, [7]);
    assert_eq!(all(&api, "q=key-7&topic=even").await, [0; 0]);
    assert_eq!(all(&api, "q=7&status=FAILED").await, [0; 0]);
    assert_eq!(all(&api, "q=%7B%22n%22%3A+12%7D").await, [12]);
    assert_eq!(all(&api, "q=%7B%22n%22%3A+12%7D&status=PENDING").await, [12]);
    assert_eq!(all(&api, "q=nobody").await, [0; 0]);
    assert_problem(&find(&api, "q=%7Bno").await, 422, "invalid");
}

#[tokio::test]
async fn what_cannot_be_asked_is_said_to_be_so() {
    let api = Api::open().await;
    for query in [
        "status=LOST",
        "limit=0",
        "limit=201",
        "limit=x",
        "cursor=x",
        "cursor=e30",
        "since=yesterday",
        "colour=red",
        "topic=a&topic=b",
        "limit=99999999999999999999999",
    ] {
        assert_problem(&find(&api, query).await, 400, "bad-request");
    }
    assert_problem(&find(&api, "topic=%00").await, 422, "invalid");
    assert_problem(&find(&api, "q=%00").await, 422, "invalid");
    assert_problem(&api.get("/v1/notifications/99999999999999999999", &[]).await, 404, "not-found");
}

#[tokio::test]
async fn beside_a_long_history_a_search_that_finds_little_comes_back_soon_and_goes_on() {
    let api = Api::open().await;
    let written = "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, created_at, finished_at)
        SELECT 't', 'recipient-' || n, '{\"text\": \"hello\"}', 'SENT', now() - (300000 - n) * interval '1 s', now() FROM generate_series(1, 300000) n;
        UPDATE outboxd.notification_log SET recipient = 'wanted', payload = '{\"wanted\": true}', status = 'CANCELED' WHERE id = 5";
    api.client.run(written).await;
    api.client.run("VACUUM ANALYZE outboxd.notification_log").await;
    for query in ["recipient=wanted", "status=CANCELED", "q=%7B%22wanted%22%3Atrue%7D"] {
        let (mut cursor, mut slowest, mut asked) = (String::new(), Duration::ZERO, 0);
        let found = loop {
            let started = Instant::now();
            let page = find(&api, &format!("{query}{cursor}")).await;
            slowest = slowest.max(started.elapsed());
            asked += 1;
            let (json, found) = (page.json(), ids(&page));
            assert_eq!(json["scanned_to"].is_string(), json["next"].is_string(), "{json}");
            match json["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break found,
            }
        };
        assert_eq!(found, [5], "{query}");
        // A recipient has an index; payloads have none, so one scan would have no bound.
        match query.split('=').next() {
            Some("recipient") => assert_eq!(asked, 1, "{query}"),
            Some("q") => assert!(asked > 1, "{query}"),
            _ => {}
        }
        // Eight times what it takes alone: the machine is shared.
        assert!(slowest < Duration::from_secs(2), "{query}: {slowest:?}");
    }
    let until = api
        .client
        .value::<String>(
            "SELECT to_char(now() AT TIME ZONE 'UTC' - interval '299990 s', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')",
        )
        .await;
    let page = find(&api, &format!("until={until}&status=CANCELED")).await;
    assert_eq!((ids(&page), page.json()["next"].as_str()), (vec![5], None), "it begins where the time is");
}
