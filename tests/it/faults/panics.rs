//! A panic in any task ends the process: what is half alive would keep its leases and beat, and send nothing.

use std::time::Duration;

use crate::support::http;
use crate::support::world::{Carrier, World};

/// One place in each kind of task: a call, a claim, the recorder, the reporter, the HTTP server, the relay.
const PLACES: [&str; 6] = ["before_call", "after_take", "after_call", "after_counts", "in_request", "after_reserve"];

#[tokio::test]
async fn a_panic_in_any_task_ends_the_process_and_the_next_one_finishes_its_work() {
    for place in PLACES {
        let world = World::new(Carrier::Stream).await;
        let mut first = world.setup.clone().failpoints(&format!("{place}=panic")).start().await;
        world.notify(5).await;
        if place == "in_request" {
            http::send(first.http_addr().await, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        }
        let ended = tokio::time::timeout(Duration::from_secs(10), first.exit_code()).await;
        assert_eq!(ended, Ok(1), "at {place}");
        assert!(first.log().contains(&format!("failpoint {place}")), "it says why:\n{}", first.log());
        let second = world.setup.start().await;
        world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
        assert_eq!(second.drain().await, 0);
    }
}
