//! After the play: the operators' views, and what to try next.

use anyhow::Result;
use tokio_postgres::Client;

use super::stage::{Stage, table};
use super::{Theatre, shop};

const QUEUE_STATE: &str = "SELECT topic, status, count, date_trunc('milliseconds', oldest_age) AS oldest_age
    FROM outboxd.queue_state ORDER BY 1, 2";
const INSTANCES: &str =
    "SELECT worker, pid, queue, state, in_flight, date_trunc('milliseconds', heartbeat_age) AS heartbeat_age
    FROM outboxd.instances ORDER BY 1";
const ATTEMPTS: &str =
    "SELECT channel, outcome, http_status, count(*), count(DISTINCT notification_id) AS notifications,
    min(left(error, 48)) AS error FROM outboxd.attempts GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
const NOTIFICATIONS: &str = "SELECT id, recipient, status, channel, attempts,
    date_trunc('milliseconds', finished_at - created_at) AS took FROM (
        SELECT *, row_number() OVER (PARTITION BY channel ORDER BY attempts DESC, id) AS place FROM outboxd.notifications
    ) n WHERE place <= 2 ORDER BY attempts DESC, id LIMIT 6";

/// The views while an instance had just been killed.
#[derive(Debug)]
pub(super) struct Snapshot {
    queue_state: String,
}

impl Snapshot {
    /// Looks now.
    pub(super) async fn take(client: &Client) -> Result<Snapshot> {
        Ok(Snapshot { queue_state: table(client, QUEUE_STATE).await? })
    }
}

/// Shows what an operator would look at.
pub(super) async fn show_views(stage: &Stage, client: &Client, snapshot: &Snapshot) -> Result<()> {
    stage.heading("outboxd.queue_state, just after the kill")?;
    stage.say(&snapshot.queue_state)?;
    stage.show(client, "outboxd.queue_state, now: empty when nothing waits", QUEUE_STATE).await?;
    stage.show(client, "outboxd.instances", INSTANCES).await?;
    stage.show(client, "outboxd.attempts: every one that was not a plain success, grouped", ATTEMPTS).await?;
    stage.show(client, "outboxd.notifications: those with the most attempts, by channel", NOTIFICATIONS).await
}

/// Tells how to look around and shows what arrives, until the demo is interrupted.
pub(super) async fn wait(theatre: &Theatre, stage: &Stage) -> Result<()> {
    let url = theatre.postgres.url(shop::DATABASE);
    let topic = shop::TOPIC;
    stage.heading("Try it yourself; Ctrl-C ends it all")?;
    stage.say(&format!("  {}\n", stage.strong(&format!("psql {url}"))))?;
    for statement in [
        format!("SELECT outboxd.notify('{topic}', '010-0000-0001', '{{\"text\": \"hello\"}}');"),
        "SELECT id, status, channel, attempts FROM outboxd.notifications ORDER BY id DESC LIMIT 5;".into(),
        format!("SELECT outboxd.pause('{topic}');  -- notify() again, see outboxd.queue_state, then resume('{topic}')"),
        "SELECT outboxd.resend(max(id)) FROM outboxd.notifications WHERE status = 'SENT';".into(),
        "SELECT count(*) AS lost FROM shop.orders o WHERE NOT EXISTS (\n    \
             SELECT FROM shop.provider_call c WHERE c.order_id = o.id AND c.status < 300);"
            .into(),
    ] {
        stage.say(&format!("  {statement}"))?;
    }
    let http = &theatre.dashboard_url;
    stage.say(&format!(
        "\n  DATABASE_URL={url} outboxd send {topic} 010-0000-0002 '{{\"text\": \"hi\"}}' --wait\n  \
         {http}    # the dashboard; metrics are at {http}metrics\n"
    ))?;
    let mut seen = theatre.providers.calls().len();
    loop {
        for call in theatre.providers.calls_after(seen).await {
            seen += 1;
            let (time, channel) = (call.at().format("%H:%M:%S%.3f"), &call.arrival.channel);
            stage.say(&format!("  {time} UTC  {channel:<8} answered {} for {}", call.status, call.recipient))?;
        }
    }
}
