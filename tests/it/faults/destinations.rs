//! Many destinations behind one channel: one that swallows everything must not slow the others down.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::instance::{Instance, Setup};
use crate::support::postgres;
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;

const SOON: Duration = Duration::from_secs(20);
const DESTINATIONS: usize = 100;
/// Each brings one row for every destination.
const ROUNDS: usize = 20;
/// Below this a figure says more about a busy machine than about us. A row that has to wait for a permit that the dead
/// destination holds waits for its timeout, 5 s.
const NOISE: Duration = Duration::from_millis(250);

#[tokio::test]
async fn one_black_holed_destination_of_a_hundred_leaves_the_others_p99_within_twice() {
    // Side by side, so that whatever else the machine is doing slows both down.
    let (healthy, holed) = (Hundred::start().await, Hundred::start().await);
    tokio::join!(healthy.round("warm-up", 1), holed.round("warm-up", 1));
    holed.providers[0].answer(Reply::hang());
    holed.pile_up(64).await;
    holed.providers[0].wait_for(1 + 4, SOON).await;
    for number in 1..=ROUNDS {
        tokio::join!(healthy.round("measured", number), holed.round("measured", number));
    }
    let (without, with) = tokio::join!(healthy.p99(), holed.p99());
    println!("p99 of {} destinations: {without:?}; beside one that is black-holed: {with:?}", DESTINATIONS - 1);
    assert!(with <= 2 * without.max(NOISE), "{without:?} became {with:?}");
}

/// An instance that sends to a hundred destinations, each with an origin of its own.
struct Hundred {
    app: Client,
    providers: Vec<Provider>,
    urls: Vec<String>,
    _instance: Instance,
}

impl Hundred {
    async fn start() -> Hundred {
        let database = postgres::database().await;
        let providers: Vec<Provider> = (0..DESTINATIONS).map(|_| Provider::start()).collect();
        let setup = Setup::new(&database.url()).set("worker.concurrency", 16).toml(
            "[channels.webhook]\nurl = \"{{ recipient }}\"\ntimeout = \"5s\"\nallow_private = true\nmax_in_flight_per_origin = 4\n\
             [routes.default]\nchannels = [\"webhook\"]\n",
        );
        let urls = providers.iter().map(|provider| provider.url("/hook")).collect();
        Hundred { app: database.connect().await, providers, urls, _instance: setup.start().await }
    }

    /// More rows for the first destination than there are permits.
    async fn pile_up(&self, rows: i32) {
        let notify = "SELECT outboxd.notify('piled up', $1, '{}') FROM generate_series(1, $2)";
        self.app.execute(notify, &[&self.urls[0], &rows]).await.unwrap();
    }

    /// One row for each destination; waits until all but the first have had theirs.
    async fn round(&self, topic: &str, number: usize) {
        let notify = "SELECT outboxd.notify($1, url, '{}') FROM unnest($2::text[]) url";
        self.app.execute(notify, &[&topic, &self.urls]).await.unwrap();
        let sent = number * (DESTINATIONS - 1);
        let others = format!("topic = '{topic}' AND recipient <> '{}' AND status = 'SENT'", self.urls[0]);
        self.app.until_count(sent, &format!("notification_log WHERE {others}")).await;
    }

    /// From commit to SENT by the database's clock, over all destinations but the first.
    async fn p99(&self) -> Duration {
        let p99 = format!(
            "SELECT extract(epoch FROM percentile_disc(0.99) WITHIN GROUP (ORDER BY finished_at - created_at))::float8
               FROM outboxd.notification_log WHERE topic = 'measured' AND recipient <> '{}'",
            self.urls[0]
        );
        Duration::from_secs_f64(self.app.value(&p99).await)
    }
}
