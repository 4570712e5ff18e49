//! Tells systemd how far we are (`Type=notify`): a datagram to the socket that `NOTIFY_SOCKET` names.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::warn;

/// Tells a state such as `READY=1`. Without systemd there is nobody to tell; a manager that does not hear us is told in
/// the log, because it will give up on us sooner or later.
pub fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, state) {
        warn!(%error, state, "systemd could not be told");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let addr = match socket.as_bytes().strip_prefix(b"@") {
        // A name in the abstract namespace, which no file system shows.
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &addr).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(listener: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        let length = listener.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn a_socket_in_the_file_system_hears_the_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        assert_eq!(heard(&listener), "READY=1");
    }

    #[test]
    fn an_abstract_socket_hears_the_state() {
        let name = format!("outboxd-test-{}", std::process::id());
        let listener = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
        assert_eq!(heard(&listener), "STOPPING=1");
    }

    #[test]
    fn a_socket_that_is_not_there_is_an_error() {
        assert!(send(OsStr::new("/no/such/socket"), "READY=1").is_err());
    }
}
