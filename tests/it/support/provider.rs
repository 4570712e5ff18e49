//! A provider: a real HTTP/1.1 server on a loopback port that writes each request into a ledger BEFORE it
//! answers, and answers, or misbehaves, as it is told.
//!
//! It speaks HTTP itself, byte by byte, because the faults under test (a reset after the full request, a body
//! that never ends) are what a proper server library prevents. All providers of a test run share one thread of
//! their own, so a busy test cannot slow its provider down, and tests without a runtime can use it too.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

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
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Call {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    /// The standard envelope's recipient.
    pub fn recipient(&self) -> String {
        self.json()["recipient"].as_str().expect("an envelope with a recipient").to_owned()
    }
}

/// What the provider does with a request that it has written down.
#[derive(Debug, Clone)]
pub struct Reply {
    delay: Duration,
    act: Act,
}

#[derive(Debug, Clone)]
enum Act {
    Answer { status: u16, headers: Vec<(String, String)>, body: Vec<u8>, then_close: bool },
    Hang,
    Reset,
    Close,
    Drip { status: u16 },
    Endless { status: u16 },
    Raw(Vec<u8>),
}

impl Reply {
    fn new(act: Act) -> Reply {
        Reply { delay: Duration::ZERO, act }
    }

    /// An answer with this status and no body.
    pub fn status(status: u16) -> Reply {
        Reply::new(Act::Answer { status, headers: Vec::new(), body: Vec::new(), then_close: false })
    }

    /// 200.
    pub fn ok() -> Reply {
        Reply::status(200)
    }

    /// A redirect to somewhere else.
    pub fn redirect(status: u16, to: &str) -> Reply {
        Reply::status(status).header("location", to)
    }

    /// 64 KiB of gzip that unpack to 10 MB of zeros.
    pub fn gzip_bomb(status: u16) -> Reply {
        Reply::status(status).header("content-encoding", "gzip").body(gzip_of_zeros(40_000))
    }

    /// Reads everything, answers nothing, keeps the connection.
    pub fn hang() -> Reply {
        Reply::new(Act::Hang)
    }

    /// Reads everything, then resets the connection (RST).
    pub fn reset() -> Reply {
        Reply::new(Act::Reset)
    }

    /// Reads everything, then closes the connection (FIN) without an answer.
    pub fn close() -> Reply {
        Reply::new(Act::Close)
    }

    /// Answers with a body of one byte per second, a thousand of them.
    pub fn drip(status: u16) -> Reply {
        Reply::new(Act::Drip { status })
    }

    /// Answers with a body that never ends, as fast as it is read.
    pub fn endless(status: u16) -> Reply {
        Reply::new(Act::Endless { status })
    }

    /// Writes these bytes and closes.
    pub fn raw(bytes: &[u8]) -> Reply {
        Reply::new(Act::Raw(bytes.to_vec()))
    }

    /// Waits first.
    pub fn after(self, delay: Duration) -> Reply {
        Reply { delay, ..self }
    }

    pub fn header(mut self, name: &str, value: &str) -> Reply {
        if let Act::Answer { headers, .. } = &mut self.act {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Reply {
        if let Act::Answer { body, .. } = &mut self.act {
            *body = bytes.into();
        }
        self
    }

    /// Closes the connection after the answer without having said so: the next request on it meets a FIN.
    pub fn then_close(mut self) -> Reply {
        if let Act::Answer { then_close, .. } = &mut self.act {
            *then_close = true;
        }
        self
    }
}

type Rule = Box<dyn Fn(&Call) -> Reply + Send>;

struct Shared {
    ledger: Mutex<Vec<Call>>,
    written: watch::Sender<usize>,
    script: Mutex<VecDeque<Reply>>,
    rule: Mutex<Rule>,
    connections: AtomicU64,
    open: watch::Sender<usize>,
    streamed: AtomicU64,
    at_once: Mutex<AtOnce>,
}

/// Requests that wait for their answer.
#[derive(Debug, Default)]
struct AtOnce {
    now: usize,
    most: usize,
}

/// A running provider; it stops when dropped.
pub struct Provider {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("providers")
            .enable_all()
            .build()
            .expect("a runtime for the providers")
    })
}

impl Provider {
    /// Starts one that answers 200 to everything.
    pub fn start() -> Provider {
        Provider::start_at("127.0.0.1:0".parse().expect("an address")).expect("a free loopback port")
    }

    /// The same, on this address.
    pub fn start_at(addr: SocketAddr) -> std::io::Result<Provider> {
        let listener = std::net::TcpListener::bind(addr)?;
        listener.set_nonblocking(true).expect("a nonblocking listener");
        let addr = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            ledger: Mutex::default(),
            written: watch::Sender::new(0),
            script: Mutex::default(),
            rule: Mutex::new(Box::new(|_| Reply::ok())),
            connections: AtomicU64::new(0),
            open: watch::Sender::new(0),
            streamed: AtomicU64::new(0),
            at_once: Mutex::default(),
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
    pub fn answer_with(&self, rule: impl Fn(&Call) -> Reply + Send + 'static) {
        *self.shared.rule.lock().unwrap() = Box::new(rule);
    }

    /// The next requests are answered like this, one each, before the rule applies again.
    pub fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.script.lock().unwrap().extend(replies);
    }

    /// Every request so far, in order of arrival.
    pub fn ledger(&self) -> Vec<Call> {
        self.shared.ledger.lock().unwrap().clone()
    }

    /// The requests so far that carried this `webhook-id`.
    pub fn calls_of(&self, webhook_id: &str) -> Vec<Call> {
        self.shared.ledger.lock().unwrap().iter().filter(|call| call.webhook_id == webhook_id).cloned().collect()
    }

    /// How many requests have arrived.
    pub fn count(&self) -> usize {
        self.shared.ledger.lock().unwrap().len()
    }

    /// The most requests that ever waited for their answer at once.
    pub fn most_at_once(&self) -> usize {
        self.shared.at_once.lock().unwrap().most
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

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let listener = TcpListener::from_std(listener).expect("the listener joins the runtime");
    while let Ok((stream, _)) = listener.accept().await {
        let connection = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
        let shared = Arc::clone(&shared);
        let serving = async move {
            shared.open.send_modify(|open| *open += 1);
            serve(stream, connection, &shared).await;
            shared.open.send_modify(|open| *open -= 1);
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
    }
}

/// Serves one connection until either side ends it.
async fn serve(mut stream: TcpStream, connection: u64, shared: &Shared) {
    stream.set_nodelay(true).expect("no delay");
    let mut buffer = Vec::new();
    while let Some(mut call) = read_request(&mut stream, &mut buffer).await {
        call.connection = connection;
        let reply = {
            let mut ledger = shared.ledger.lock().unwrap();
            call.order = ledger.len();
            ledger.push(call.clone());
            shared.written.send_replace(ledger.len());
            let mut at_once = shared.at_once.lock().unwrap();
            at_once.now += 1;
            at_once.most = at_once.most.max(at_once.now);
            let scripted = shared.script.lock().unwrap().pop_front();
            scripted.unwrap_or_else(|| shared.rule.lock().unwrap()(&call))
        };
        if !reply.delay.is_zero() {
            tokio::time::sleep(reply.delay).await;
        }
        // Before the answer: whoever has it may ask again.
        if matches!(reply.act, Act::Answer { .. }) {
            shared.at_once.lock().unwrap().now -= 1;
        }
        if !act(&mut stream, reply, shared).await.unwrap_or(false) {
            return;
        }
    }
}

/// Reads one whole request; None when the client is gone.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Call> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut request = lines.next()?.split(' ');
    let (method, path) = (request.next()?.to_owned(), request.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let find = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
    let length: usize = find("content-length").map_or(0, |text| text.parse().expect("a content-length"));
    while buffer.len() < head_end + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = buffer[head_end..head_end + length].to_vec();
    buffer.drain(..head_end + length);
    let webhook_id = find("webhook-id").unwrap_or_default();
    Some(Call { order: 0, at: Instant::now(), connection: 0, webhook_id, method, path, headers, body })
}

/// Does what was asked; true if the connection goes on.
async fn act(stream: &mut TcpStream, reply: Reply, shared: &Shared) -> std::io::Result<bool> {
    match reply.act {
        Act::Answer { status, headers, body, then_close } => {
            let mut bytes = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len()).into_bytes();
            for (name, value) in headers {
                bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
            bytes.extend_from_slice(b"\r\n");
            bytes.extend_from_slice(&body);
            stream.write_all(&bytes).await?;
            return Ok(!then_close);
        }
        Act::Hang => std::future::pending().await,
        Act::Reset => stream.set_zero_linger()?,
        Act::Close => {}
        Act::Drip { status } => {
            stream.write_all(format!("HTTP/1.1 {status} X\r\ncontent-length: 1000\r\n\r\n").as_bytes()).await?;
            for _ in 0..1000 {
                stream.write_all(b"x").await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        Act::Endless { status } => {
            stream.write_all(format!("HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\n\r\n").as_bytes()).await?;
            let chunk = [b"4000\r\n".as_slice(), &[b'x'; 0x4000], b"\r\n"].concat();
            loop {
                stream.write_all(&chunk).await?;
                shared.streamed.fetch_add(chunk.len() as u64, Ordering::SeqCst);
            }
        }
        Act::Raw(bytes) => stream.write_all(&bytes).await?,
    }
    Ok(false)
}

/// A gzip stream of one zero and then `matches` times "258 bytes as the last one", 13 bits each.
fn gzip_of_zeros(matches: usize) -> Vec<u8> {
    let fixed_block = "110";
    let literal_zero = "00110000";
    let length_258_distance_1 = "1100010100000";
    let end = "0000000";
    let bits: Vec<u8> = [fixed_block, literal_zero, &length_258_distance_1.repeat(matches), end].concat().into_bytes();
    let mut bytes = b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec();
    bytes.extend(
        bits.chunks(8).map(|bits| bits.iter().enumerate().fold(0, |byte, (place, bit)| byte | (bit - b'0') << place)),
    );
    bytes
}
