//! One client's WebSocket: what it is sent, how it shows that it lives, how it ends.
//!
//! **Guarantee.** A client that is silent, sends without end or takes nothing is dropped in bounded time, and told why.
//! **Limit.** What it had not taken is lost to it until it comes back with its position.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use metrics::{counter, gauge};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{self, Message};
use tracing::{debug, warn};

use super::end::End;
use super::frame::{self, Frame};
use super::hub::{Joined, Listener};
use super::socket::{Socket, fragments};
use super::{Ends, Live, reader};
use crate::queue;
use crate::queue::events::{Feed, Mark};
use crate::server::share::Share;

/// Messages written together.
const TOGETHER_MAX: usize = 32;
/// How long one write may take.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a client may take to read our last word and to answer it.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);
/// What a client may send between two heartbeats: answers to pings, and pings of its own.
const RECEIVED_MAX: u32 = 64;

/// A topic that a client wants, and what it has of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub topic: Arc<str>,
    /// The last position that it has; `None`: only what comes from now on.
    pub after: Option<i64>,
}

/// A client that was let in.
pub(super) struct Session {
    pub live: Arc<Live>,
    pub feed: Arc<Feed>,
    pub wanted: Vec<Wanted>,
    pub listener: Listener,
    pub ends: Ends,
    pub room: Room,
}

/// What bounds the sockets that there are.
pub(super) enum Room {
    /// A place among the sessions.
    Held(Share),
    /// None: its ticket or token has as many sessions as it may. A page sees why only if it is told after the upgrade.
    None(#[expect(dead_code, reason = "others are refused while it is held")] OwnedSemaphorePermit),
    /// A place among those that have ended.
    Left(#[expect(dead_code, reason = "others keep their places while it is held")] OwnedSemaphorePermit),
}

/// What a session waits for.
enum Event {
    Arrived,
    Received(Option<Result<Message, tungstenite::Error>>),
    Time,
    Shutdown,
    TakenAway,
}

/// Signs of life, ours and the client's.
struct Pulse {
    heard_at: Instant,
    ping_at: Instant,
    received: u32,
}

impl Session {
    /// Serves until either side ends it.
    pub(super) async fn run(mut self, mut socket: Socket) {
        gauge!("outboxd_live_sessions").increment(1.0);
        let end = tokio::select! {
            biased;
            // Whatever it does meanwhile: a busy topic, or a client that takes little, does not keep it.
            () = self.ends.over() => End::Expired,
            end = self.serve(&mut socket) => end,
        };
        self.live.hub.leave(self.wanted.iter().map(|wanted| Arc::clone(&wanted.topic)), &self.listener);
        gauge!("outboxd_live_sessions").decrement(1.0);
        counter!("outboxd_live_closed_total", "reason" => end.name()).increment(1);
        debug!(session = self.listener.number, end = end.name(), "a live session ended");
        // Others may have its place while it is told why. If too many are told already, it keeps what it has.
        if let (Room::Held(_), Ok(left)) = (&self.room, Arc::clone(&self.live.ended).try_acquire_owned()) {
            self.room = Room::Left(left);
        }
        close(&mut socket, end, if self.has_room() { CLOSE_TIME_MAX } else { Duration::ZERO }).await;
    }

    async fn serve(&self, socket: &mut Socket) -> End {
        let mut skipped = match self.begin(socket).await {
            Ok(skipped) => skipped,
            Err(end) => return end,
        };
        let now = Instant::now();
        let mut pulse = Pulse { heard_at: now, ping_at: now + self.live.config.heartbeat, received: 0 };
        loop {
            let event = tokio::select! {
                biased;
                () = self.live.closing.cancelled() => Event::Shutdown,
                () = self.taken_away() => Event::TakenAway,
                () = sleep_until(pulse.ping_at) => Event::Time,
                received = socket.next() => Event::Received(received),
                () = self.listener.mailbox.arrived() => Event::Arrived,
            };
            let gone_on = match event {
                Event::Arrived => self.pass_on(socket, &mut skipped).await,
                Event::Received(received) => pulse.hear(received.as_ref()),
                Event::Time => self.beat(socket, &mut pulse).await,
                Event::Shutdown => Err(End::Shutdown),
                Event::TakenAway => Err(End::Crowded),
            };
            if let Err(end) = gone_on {
                return end;
            }
        }
    }

    /// Joins the topics and sends what the client lacks. Returns up to where it has what is still to come.
    async fn begin(&self, socket: &mut Socket) -> Result<HashMap<Arc<str>, i64>, End> {
        if let Room::None(_) = self.room {
            return Err(End::TooManySessions);
        }
        let (mut positions, mut skipped) = (BTreeMap::new(), HashMap::new());
        for Wanted { topic, after } in &self.wanted {
            let mark = self.join(topic).await?;
            let mut position = mark.position;
            if let Some(after) = *after
                && self.replay(socket, topic, after, &mark).await?
            {
                skipped.insert(Arc::clone(topic), after);
                position = after;
            }
            positions.insert(&**topic, position);
        }
        self.write(socket, fragments(frame::ready(&positions)).collect()).await?;
        Ok(skipped)
    }

    async fn join(&self, topic: &Arc<str>) -> Result<Mark, End> {
        let hub = &self.live.hub;
        let mut joined = hub.join(topic, &self.listener, None);
        if joined == Joined::Unknown {
            let end = self.or_end(reader::end(&self.feed, topic).await)?;
            joined = hub.join(topic, &self.listener, Some(end));
        }
        match joined {
            Joined::After(mark) => Ok(mark),
            Joined::Unknown | Joined::Full => Err(End::TooManyTopics),
        }
    }

    /// What Redis said, or the end of the session.
    pub(super) fn or_end<T>(&self, said: queue::Result<T>) -> Result<T, End> {
        said.map_err(|error| {
            warn!(%error, session = self.listener.number, "a live session ends without Redis");
            End::Unavailable
        })
    }

    async fn pass_on(&self, socket: &mut Socket, skipped: &mut HashMap<Arc<str>, i64>) -> Result<(), End> {
        let frames = self.listener.mailbox.take(TOGETHER_MAX).ok_or(End::Slow)?;
        let wanted: Vec<&Arc<Frame>> = frames.iter().filter(|frame| is_wanted(frame, skipped)).collect();
        let events = wanted.iter().filter(|frame| frame.position.is_some()).count();
        self.write(socket, wanted.iter().flat_map(|frame| fragments(frame.text.clone())).collect()).await?;
        counter!("outboxd_live_events_sent_total").increment(events as u64);
        Ok(())
    }

    async fn beat(&self, socket: &mut Socket, pulse: &mut Pulse) -> Result<(), End> {
        let (now, every) = (Instant::now(), self.live.config.heartbeat);
        if now.duration_since(pulse.heard_at) >= every * 2 {
            return Err(End::Silent);
        }
        pulse.ping_at = now + every;
        pulse.received = 0;
        self.write(socket, vec![Message::Ping(Default::default())]).await?;
        // Who sees one key only would fall behind the stream without knowing, and be told of a gap that is none.
        if self.listener.key.is_some() {
            let topics = self.wanted.iter().map(|wanted| &*wanted.topic);
            let positions = topics.filter_map(|topic| Some((topic, self.live.hub.position(topic)?))).collect();
            if self.listener.mailbox.is_empty() {
                self.write(socket, fragments(frame::position(&positions)).collect()).await?;
            }
        }
        Ok(())
    }

    /// Waits until its place is given to another.
    async fn taken_away(&self) {
        match &self.room {
            Room::Held(share) => share.taken_away.cancelled().await,
            Room::None(_) | Room::Left(_) => std::future::pending().await,
        }
    }

    /// Whether its socket is counted anywhere.
    fn has_room(&self) -> bool {
        !matches!(&self.room, Room::Held(share) if share.taken_away.is_cancelled())
    }

    /// Writes, and tells the mailbox while the client's socket takes no more.
    pub(super) async fn write(&self, socket: &mut Socket, messages: Vec<Message>) -> Result<(), End> {
        let mailbox = &self.listener.mailbox;
        let mut writing = pin!(async {
            for message in messages {
                socket.feed(message).await?;
            }
            socket.flush().await
        });
        let watched = poll_fn(|context| {
            let polled = writing.as_mut().poll(context);
            // Without budget the task merely had its turn.
            mailbox.set_blocked(polled.is_pending() && has_budget_remaining());
            polled
        });
        tokio::select! {
            biased;
            written = timeout(WRITE_TIME_MAX, watched) => match written {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(End::Gone),
                Err(_) => Err(End::Slow),
            },
            () = mailbox.overflowed() => Err(End::Slow),
            () = self.taken_away() => Err(End::Crowded),
            () = self.live.closing.cancelled() => Err(End::Shutdown),
        }
    }
}

impl Pulse {
    fn hear(&mut self, received: Option<&Result<Message, tungstenite::Error>>) -> Result<(), End> {
        match received {
            None | Some(Ok(Message::Close(_))) => return Err(End::Client),
            Some(Err(_)) => return Err(End::Gone),
            Some(Ok(_)) => {}
        }
        self.heard_at = Instant::now();
        self.received += 1;
        if self.received > RECEIVED_MAX { Err(End::Noisy) } else { Ok(()) }
    }
}

/// A client that has come further than this instance had when it joined has the next ones already.
fn is_wanted(frame: &Frame, skipped: &mut HashMap<Arc<str>, i64>) -> bool {
    if skipped.is_empty() {
        return true;
    }
    match frame.position {
        Some(position) => skipped.get(&frame.topic).is_none_or(|had| position > *had),
        // Positions may begin again after a gap.
        None => {
            skipped.remove(&frame.topic);
            true
        }
    }
}

async fn close(socket: &mut Socket, end: End, time_max: Duration) {
    let close = CloseFrame { code: end.code(), reason: end.reason().into() };
    let closing = async {
        if socket.send(Message::Close(Some(close))).await.is_ok() {
            // Closing before the client has read our last word may take it away.
            while let Some(Ok(_)) = socket.next().await {}
        }
    };
    // Who does not answer is left without an answer.
    let _ = timeout(time_max, closing).await;
}
