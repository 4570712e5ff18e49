//! Names of hosts, looked up by the system's resolver: few at a time over all channels, and shared by topics.
//!
//! A lookup holds a thread until the name server has answered or was given up, some ten seconds later, whether or not
//! its call still waits. So a permit is held for as long as the lookup, and topics share the permits as they share calls
//! ([`super::share`]): names whose server is silent leave some to the others, and threads and files to the process.
//!
//! Whose call it is stands beside the call: a resolver is told of the name alone.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Notify;

use super::outcome::Shortage;
use super::share::Parts;

/// Lookups at a time.
pub const LOOKUPS_MAX: usize = 64;

tokio::task_local! {
    static TOPIC: Arc<str>;
}

/// Makes a call for a topic: a name that it has looked up is of that topic.
pub async fn of_topic<T>(topic: &Arc<str>, call: impl Future<Output = T>) -> T {
    TOPIC.scope(Arc::clone(topic), call).await
}

/// How a name is looked up; waits for it.
type Find = fn(&str) -> io::Result<Vec<SocketAddr>>;

/// The lookups of one process.
#[derive(Debug)]
pub(super) struct Lookups {
    under_way: Mutex<Parts>,
    ended: Notify,
    find: Find,
}

/// One of them; dropping it lets the next begin.
struct Lookup {
    lookups: Arc<Lookups>,
    topic: Arc<str>,
}

impl Default for Lookups {
    fn default() -> Lookups {
        Lookups::by(|name| Ok((name, 0).to_socket_addrs()?.collect()))
    }
}

impl Lookups {
    fn by(find: Find) -> Lookups {
        Lookups { under_way: Mutex::default(), ended: Notify::new(), find }
    }

    async fn begin(self: Arc<Self>, topic: Arc<str>) -> Lookup {
        loop {
            // Before it is asked, so that nothing is missed in between.
            let ended = self.ended.notified();
            let may_begin = {
                let mut under_way = self.lock();
                let has_room = under_way.has_room(&topic, LOOKUPS_MAX);
                if has_room {
                    under_way.take(&topic);
                }
                has_room
            };
            if may_begin {
                return Lookup { lookups: Arc::clone(&self), topic };
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.lookups.lock().give_back(&self.topic);
        self.lookups.ended.notify_waiters();
    }
}

/// The system's resolver.
pub(super) struct System {
    lookups: Arc<Lookups>,
    /// How long a call waits for its turn.
    patience: Duration,
}

impl System {
    /// For calls that give up connecting after so long: the lookup has half of that.
    pub(super) fn new(lookups: &Arc<Lookups>, connect_timeout: Duration) -> System {
        System { lookups: Arc::clone(lookups), patience: connect_timeout / 2 }
    }
}

impl Resolve for System {
    fn resolve(&self, name: Name) -> Resolving {
        let topic = TOPIC.try_with(Arc::clone).unwrap_or_else(|_| Arc::from(""));
        let (turn, find) = (Arc::clone(&self.lookups).begin(topic), self.lookups.find);
        let turn = tokio::time::timeout(self.patience, turn);
        Box::pin(async move {
            let lookup = turn.await.map_err(|_| Shortage::Lookups)?;
            let find = move || {
                let found = find(name.as_str());
                drop(lookup);
                found
            };
            let found = tokio::task::spawn_blocking(find).await?.map_err(Shortage::of_lookup)?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::time::Instant;

    use futures_util::future::join_all;

    use super::*;

    static ARE_OVER: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    fn find(name: &str) -> io::Result<Vec<SocketAddr>> {
        if name.starts_with("silent") {
            let (are_over, told) = &ARE_OVER;
            drop(told.wait_while(are_over.lock().unwrap(), |are_over| !*are_over).unwrap());
        }
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))])
    }

    async fn look_up(system: &System, topic: &str, name: String) -> Result<usize, Option<Shortage>> {
        let found = of_topic(&Arc::from(topic), async { system.resolve(name.parse().unwrap()).await }).await;
        found.map(Iterator::count).map_err(|error| Shortage::of(&*error))
    }

    #[tokio::test]
    async fn lookups_that_hang_hold_their_permits_and_leave_some_to_other_topics() {
        let lookups = Arc::new(Lookups::by(find));
        let system = System::new(&lookups, Duration::from_millis(400));
        let silent = join_all((0..100).map(|n| look_up(&system, "evil", format!("silent-{n}.test"))));
        // Their calls are given up; the name servers are still waited for.
        assert!(tokio::time::timeout(Duration::from_millis(300), silent).await.is_err());
        let refused = look_up(&system, "evil", "another.test".to_owned()).await;
        assert_eq!(refused, Err(Some(Shortage::Lookups)), "it was nobody's failure");
        let began = Instant::now();
        for n in 0..50 {
            assert_eq!(look_up(&system, "honest", format!("{n}.test")).await, Ok(1));
        }
        assert!(began.elapsed() < Duration::from_secs(1));
        *ARE_OVER.0.lock().unwrap() = true;
        ARE_OVER.1.notify_all();
        while look_up(&system, "evil", "another.test".to_owned()).await != Ok(1) {}
    }
}
