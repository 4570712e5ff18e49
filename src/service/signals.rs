//! SIGTERM and Ctrl-C: the first asks for a drain, the second ends at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::systemd;

/// A token that the first signal cancels. The second ends the process with the code of an interrupted program.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = token.clone();
    // Lives as long as the process: there is nothing to join.
    tokio::spawn(async move {
        let name = tokio::select! { _ = terminate.recv() => "SIGTERM", _ = interrupt.recv() => "SIGINT" };
        info!(signal = name, "draining; a second signal ends at once");
        systemd::notify("STOPPING=1");
        stop.cancel();
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        warn!("ended at once; calls under way are left to their leases");
        std::process::exit(130);
    });
    Ok(token)
}
