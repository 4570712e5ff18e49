//! A provider that prints what it is sent. Now and then it is busy (503), so that a retry can be seen.
//!
//! `LISTEN`: its address (default 127.0.0.1:8090).

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};

/// One request of so many is refused.
const BUSY_EVERY: u64 = 10;

static REQUESTS: AtomicU64 = AtomicU64::new(0);

async fn receive(headers: HeaderMap, body: Bytes) -> StatusCode {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned();
    let status = match (REQUESTS.fetch_add(1, Ordering::Relaxed) + 1) % BUSY_EVERY {
        0 => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::OK,
    };
    let (id, attempt) = (header("webhook-id"), header("outboxd-attempt"));
    println!("{} {id} attempt {attempt}: {}", status.as_u16(), String::from_utf8_lossy(&body));
    status
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let addr = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8090".to_owned());
    let listener = tokio::net::TcpListener::bind(addr).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, Router::new().fallback(receive)).await?;
    Ok(())
}
