//! What the queue tells about itself.

use metrics_exporter_prometheus::PrometheusBuilder;
use outboxd::config::QueueKind;

use super::{config, ids, messages, open_at, take_all};
use crate::support::redis::RedisServer;

// One thread: the recorder is installed for it alone, so tests do not see each other's figures.
#[tokio::test(flavor = "current_thread")]
async fn depth_in_flight_reclaimed_losses_and_garbage_are_shown_per_backend() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let shown = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    for (kind, name) in [(QueueKind::List, "list"), (QueueKind::Stream, "stream")] {
        let server = RedisServer::forgetful();
        let config = config(kind);
        let queue = open_at(&config, server.url()).await.unwrap();
        let key = format!("{{{}}}:v1:{name}", config.prefix);
        match kind {
            QueueKind::List => server.run::<()>(&format!("LPUSH {key} garbage")).await,
            _ => server.run::<()>(&format!("XADD {key} * m garbage")).await,
        }
        let seen = queue.push(&messages(0..5)).await.unwrap().counter;
        let mut dead = queue.consumer("dead").await.unwrap();
        assert_eq!(ids(&take_all(&mut dead, 2).await), [0, 1]);
        queue.depth().await.unwrap();
        let text = shown.render();
        let line = |metric: &str, value: u64| format!("{metric}{{backend=\"{name}\"}} {value}\n");
        assert!(text.contains(&line("outboxd_queue_depth", 3)), "{text}");
        assert!(text.contains(&line("outboxd_queue_in_flight", 2)), "{text}");
        assert!(text.contains(&line("outboxd_queue_garbage_total", 1)), "{text}");

        drop(dead);
        let mut alive = queue.consumer("alive").await.unwrap();
        take_all(&mut alive, 5).await;
        server.run::<()>("FLUSHALL").await;
        queue.check_loss(seen).await.unwrap().expect("a loss");
        let text = shown.render();
        assert!(text.contains(&line("outboxd_queue_reclaimed_total", 2)), "{text}");
        assert!(text.contains(&line("outboxd_queue_losses_total", 1)), "{text}");
    }
}
