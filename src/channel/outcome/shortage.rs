//! What this process or its machine lacks to make a call.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::os::fd::AsFd as _;

use nix::errno::Errno;

/// The ports that connections are made from, and how many connections there are.
const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const SOCKETS: [&str; 2] = ["/proc/net/sockstat", "/proc/net/sockstat6"];

/// Why no call could be made, whoever was to be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shortage {
    /// The process has as many files open as it may.
    Files,
    /// The machine has.
    MachineFiles,
    /// The kernel has no buffers left for the network.
    Buffers,
    /// It has no memory left.
    Memory,
    /// Every port that a connection could be made from is in use.
    Ports,
    /// As many names are being looked up as may be.
    Lookups,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl StdError for Shortage {}

impl Shortage {
    /// The system's name, if it has one, used in SQL, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Shortage::Files => "EMFILE",
            Shortage::MachineFiles => "ENFILE",
            Shortage::Buffers => "ENOBUFS",
            Shortage::Memory => "ENOMEM",
            Shortage::Ports => "EADDRNOTAVAIL",
            Shortage::Lookups => "LOOKUPS",
        }
    }

    /// The shortage that led to this error, however deep it stands.
    pub(in crate::channel) fn of(error: &(dyn StdError + 'static)) -> Option<Shortage> {
        let mut cause = Some(error);
        while let Some(current) = cause {
            let found = current.downcast_ref::<Shortage>().copied();
            if let Some(found) = found.or_else(|| current.downcast_ref::<io::Error>().and_then(Shortage::of_io)) {
                return Some(found);
            }
            cause = current.source();
        }
        None
    }

    fn of_io(error: &io::Error) -> Option<Shortage> {
        if let Some(code) = error.raw_os_error() {
            return Shortage::of_code(code);
        }
        // An error that was wrapped in one of io stands beside its sources, not among them.
        error.get_ref().and_then(|inner| Shortage::of(inner))
    }

    fn of_code(code: i32) -> Option<Shortage> {
        match Errno::from_raw(code) {
            Errno::EMFILE => Some(Shortage::Files),
            Errno::ENFILE => Some(Shortage::MachineFiles),
            Errno::ENOBUFS => Some(Shortage::Buffers),
            Errno::ENOMEM => Some(Shortage::Memory),
            // Also said of an address that this machine cannot reach at all, as over IPv6 where it has none: that is
            // the notification's.
            Errno::EADDRNOTAVAIL if ports_are_used_up() => Some(Shortage::Ports),
            _ => None,
        }
    }

    /// A name that was not found while no file could be opened: the resolver does not say why.
    pub(in crate::channel) fn of_lookup(error: io::Error) -> io::Error {
        match io::stdin().as_fd().try_clone_to_owned() {
            Err(cause) if Shortage::of_io(&cause).is_some() => cause,
            _ => error,
        }
    }
}

fn ports_are_used_up() -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let sockets: Vec<String> = SOCKETS.iter().map(|path| read(path)).collect();
    ports(&read(PORT_RANGE)).is_some_and(|ports| connections(&sockets.concat()) >= ports)
}

/// Of `first last`.
fn ports(range: &str) -> Option<u64> {
    let mut ends = range.split_whitespace().map_while(|end| end.parse::<u64>().ok());
    let (first, last) = (ends.next()?, ends.next()?);
    Some(last.checked_sub(first)? + 1)
}

/// In use, or closed and not yet forgotten.
fn connections(sockets: &str) -> u64 {
    let tcp = sockets.lines().filter_map(|line| line.strip_prefix("TCP: ").or_else(|| line.strip_prefix("TCP6: ")));
    let counts = tcp.flat_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words
            .chunks(2)
            .filter(|pair| ["inuse", "tw"].contains(&pair[0]))
            .map(|pair| pair[1].parse().unwrap_or(0))
            .collect::<Vec<u64>>()
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("client error")
        }
    }

    impl StdError for Outer {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_shortage_is_found_however_deep_it_stands() {
        for (code, expected) in [
            (Errno::EMFILE, Some(Shortage::Files)),
            (Errno::ENFILE, Some(Shortage::MachineFiles)),
            (Errno::ENOBUFS, Some(Shortage::Buffers)),
            (Errno::ENOMEM, Some(Shortage::Memory)),
            (Errno::ECONNREFUSED, None),
            (Errno::EACCES, None),
        ] {
            let system = || io::Error::from_raw_os_error(code as i32);
            assert_eq!(Shortage::of(&system()), expected, "{code}");
            assert_eq!(Shortage::of(&Outer(system())), expected, "{code} behind another");
            assert_eq!(Shortage::of(&Outer(io::Error::other(Outer(system())))), expected, "{code} wrapped");
        }
    }

    #[test]
    fn an_address_that_cannot_be_reached_is_no_lack_of_ports() {
        assert_eq!(Shortage::of(&io::Error::from_raw_os_error(Errno::EADDRNOTAVAIL as i32)), None);
    }

    #[test]
    fn ports_are_used_up_when_there_are_as_many_connections() {
        assert_eq!(ports("32768\t60999\n"), Some(28_232));
        assert_eq!(ports("x"), None);
        let sockets =
            "sockets: used 33\nTCP: inuse 10 orphan 0 tw 398 alloc 10 mem 206\nUDP: inuse 7 mem 0\nTCP6: inuse 2\n";
        assert_eq!(connections(sockets), 410);
    }
}
