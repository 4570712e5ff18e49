//! A provider: a real HTTP/1.1 server on a loopback port that writes each request into a ledger BEFORE it answers, and
//! answers, or misbehaves, as it is told.
//!
//! It speaks HTTP itself, byte by byte, because the faults under test (a reset after the full request, a body that never
//! ends) are what a proper server library prevents. All providers of a process share one thread of their own, so what is
//! busy elsewhere cannot slow them down, their cost can be told apart, and programs without a runtime can use them too.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

mod reply;

pub use reply::Reply;

/// The thread's name; at most 15 characters.
pub const THREAD: &str = "providers";

/// One request as it arrived, whole.
#[derive(Debug, Clone)]
pub struct Call {
    /// 0 for the provider's first request.
    pub order: usize,
    /// When it had arrived.
    pub at: Instant,
    /// Which connection brought it; 1 for the first.
    pub connection: u64,
    /// Empty if the request had none.
    pub webhook_id: String,
    pub method: String,
    pub path: String,
    pub body: Vec<u8>,
    head: String,
}

impl Call {
    /// The first request in the buffer, once all of it is there, and its length.
    fn read(buffer: &[u8]) -> Option<(usize, Call)> {
        let head_end = buffer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
        let mut request = head.split(' ');
        let (method, path) = (request.next()?.to_owned(), request.next()?.to_owned());
        let (webhook_id, body) = (String::new(), Vec::new());
        let mut call = Call { order: 0, at: Instant::now(), connection: 0, webhook_id, method, path, body, head };
        let length = call.header("content-length").map_or(0, |text| text.parse().expect("a content-length"));
        call.body = buffer.get(head_end..head_end + length)?.to_vec();
        call.webhook_id = call.header("webhook-id").unwrap_or_default().to_owned();
        Some((head_end + length, call))
    }

    /// Names and values.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        pairs.map(|(name, value)| (name.trim(), value.trim()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    /// The standard envelope's recipient.
    pub fn recipient(&self) -> String {
        self.json()["recipient"].as_str().expect("an envelope with a recipient").to_owned()
    }
}

type Rule = Box<dyn FnMut(&Call) -> Reply + Send>;

/// A call and the status that it was answered with, if it was.
type Line = (Call, Option<u16>);

struct Ledger {
    lines: Vec<Line>,
    script: VecDeque<Reply>,
    rule: Rule,
    /// Requests that wait for their answer, and the most that ever did at once.
    waiting: usize,
    most_at_once: usize,
}

struct Shared {
    ledger: Mutex<Ledger>,
    keeps: bool,
    written: watch::Sender<usize>,
    connections: AtomicU64,
    open: watch::Sender<usize>,
    streamed: AtomicU64,
}

/// A running provider; it stops when dropped.
pub struct Provider {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Provider").field(&self.addr).finish()
    }
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).thread_name(THREAD).enable_all().build().expect("a runtime for the providers")
    })
}

impl Provider {
    /// Starts one that answers 200 to everything.
    pub fn start() -> Provider {
        Provider::start_at("127.0.0.1:0".parse().expect("an address")).expect("a free loopback port")
    }

    /// The same, on this address.
    pub fn start_at(addr: SocketAddr) -> std::io::Result<Provider> {
        Provider::listen(addr, true, Box::new(|_| Reply::ok()))
    }

    /// Starts one whose `rule` is the ledger: it writes down what it wants of a request, and says what comes of it.
    /// Nothing else is kept.
    pub fn with_ledger(rule: impl FnMut(&Call) -> Reply + Send + 'static) -> std::io::Result<Provider> {
        Provider::listen(([127, 0, 0, 1], 0).into(), false, Box::new(rule))
    }

    fn listen(addr: SocketAddr, keeps: bool, rule: Rule) -> std::io::Result<Provider> {
        let listener = std::net::TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let (lines, script) = (Vec::new(), VecDeque::new());
        let shared = Arc::new(Shared {
            ledger: Mutex::new(Ledger { lines, script, rule, waiting: 0, most_at_once: 0 }),
            keeps,
            written: watch::Sender::new(0),
            connections: AtomicU64::new(0),
            open: watch::Sender::new(0),
            streamed: AtomicU64::new(0),
        });
        let stop = CancellationToken::new();
        let serving = accept(listener, Arc::clone(&shared), stop.clone());
        runtime().spawn(stop.clone().run_until_cancelled_owned(serving));
        Ok(Provider { addr, shared, _stop: stop.drop_guard() })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:PORT` and `path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// From now on every request is answered like this.
    pub fn answer(&self, reply: Reply) {
        self.answer_with(move |_| reply.clone());
    }

    /// From now on every request is answered as `rule` says.
    pub fn answer_with(&self, rule: impl FnMut(&Call) -> Reply + Send + 'static) {
        self.shared.lock().rule = Box::new(rule);
    }

    /// The next requests are answered like this, one each, before the rule applies again.
    pub fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.lock().script.extend(replies);
    }

    /// Every request so far, in order of arrival.
    pub fn ledger(&self) -> Vec<Call> {
        self.lines().into_iter().map(|(call, _)| call).collect()
    }

    /// The same, each with the status that it was answered with, if it was.
    pub fn lines(&self) -> Vec<Line> {
        self.shared.lock().lines.clone()
    }

    /// The requests so far that carried this `webhook-id`.
    pub fn calls_of(&self, webhook_id: &str) -> Vec<Call> {
        self.ledger().into_iter().filter(|call| call.webhook_id == webhook_id).collect()
    }

    /// How many requests have arrived.
    pub fn count(&self) -> usize {
        *self.shared.written.borrow()
    }

    /// The most requests that ever waited for their answer at once.
    pub fn most_at_once(&self) -> usize {
        self.shared.lock().most_at_once
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Bytes written so far as parts of endless bodies.
    pub fn streamed(&self) -> u64 {
        self.shared.streamed.load(Ordering::SeqCst)
    }

    /// Waits until no connection is open; panics after `limit`.
    pub async fn wait_until_closed(&self, limit: Duration) {
        wait(&self.shared.open, |open| *open == 0, limit, "connections open").await;
    }

    /// Waits until `count` requests have arrived; panics after `limit`.
    pub async fn wait_for(&self, count: usize, limit: Duration) {
        wait(&self.shared.written, |written| *written >= count, limit, "requests arrived").await;
    }
}

async fn wait(counter: &watch::Sender<usize>, enough: impl FnMut(&usize) -> bool, limit: Duration, what: &str) {
    let mut counter = counter.subscribe();
    let waited = tokio::time::timeout(limit, counter.wait_for(enough)).await.is_ok();
    assert!(waited, "{} {what} after {limit:?}", *counter.borrow());
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no rule panicked")
    }

    /// Writes it down and says what to do with it.
    fn receive(&self, mut call: Call) -> Reply {
        let mut ledger = self.lock();
        call.order = *self.written.borrow();
        ledger.waiting += 1;
        ledger.most_at_once = ledger.most_at_once.max(ledger.waiting);
        let scripted = ledger.script.pop_front();
        let reply = scripted.unwrap_or_else(|| (ledger.rule)(&call));
        let written = call.order + 1;
        if self.keeps {
            ledger.lines.push((call, reply.answers()));
        }
        self.written.send_replace(written);
        reply
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let listener = TcpListener::from_std(listener).expect("the listener joins the runtime");
    while let Ok((stream, _)) = listener.accept().await {
        let connection = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
        let shared = Arc::clone(&shared);
        let serving = async move {
            shared.open.send_modify(|open| *open += 1);
            // A client that goes away ends its connection.
            let _ = serve(stream, connection, &shared).await;
            shared.open.send_modify(|open| *open -= 1);
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
    }
}

/// Serves one connection until either side ends it.
async fn serve(mut stream: TcpStream, connection: u64, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let Some((length, mut call)) = Call::read(&buffer) else {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            continue;
        };
        buffer.drain(..length);
        call.connection = connection;
        let reply = shared.receive(call);
        reply.wait().await;
        // Before the answer: whoever has it may ask again.
        shared.lock().waiting -= usize::from(reply.is_answer());
        if !reply.act(&mut stream, &shared.streamed).await? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_once_it_is_whole() {
        let request = b"POST /push HTTP/1.1\r\nWebhook-Id: ntf-a-7-99\r\ncontent-Length: 9\r\n\r\n{\"id\":42}GET";
        let whole = request.len() - 3;
        assert!(Call::read(&request[..whole - 1]).is_none());
        let (length, call) = Call::read(request).unwrap();
        assert_eq!((length, call.path.as_str(), call.webhook_id.as_str()), (whole, "/push", "ntf-a-7-99"));
        assert_eq!((call.json()["id"].as_i64(), call.header("Content-Length")), (Some(42), Some("9")));
    }
}
