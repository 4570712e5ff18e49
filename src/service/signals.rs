//! SIGTERM and Ctrl-C: the first asks for a drain, the second ends at once. SIGHUP never ends the process.

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::systemd;

/// Keeps SIGHUP waiting, in this thread and in those that it starts, until [`on_signals`] can take it: before anything
/// else, because without a handler it ends the process.
pub fn hold_hangup() -> nix::Result<()> {
    SigSet::from(Number::SIGHUP).thread_block()
}

/// Lets it come to this thread.
pub fn release_hangup() -> nix::Result<()> {
    SigSet::from(Number::SIGHUP).thread_unblock()
}

/// A token that the first signal cancels. The second ends the process with the code of an interrupted program.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let hangup = signal(SignalKind::hangup())?;
    release_hangup()?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = token.clone();
    // Both live as long as the process: there is nothing to join.
    tokio::spawn(outlast(hangup));
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

/// The configuration is read once, at the start.
async fn outlast(mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        info!("SIGHUP changes nothing: restart outboxd to have it read a changed configuration");
    }
}
