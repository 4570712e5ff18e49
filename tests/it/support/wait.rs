//! Waiting for what will come true, by asking: a minute at most.

use std::fmt::Debug;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Asks until it is so.
pub async fn until(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    until_ok(what, async || ask().await.then_some(()).ok_or("not yet")).await;
}

/// Asks until the answer is no error.
pub async fn until_ok<T, E: Debug>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}: {error:?}"),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
