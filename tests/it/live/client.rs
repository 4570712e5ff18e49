//! A WebSocket client, as an app's would be.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// Longer than anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Client {
    socket: WebSocketStream<TcpStream>,
    /// The subprotocol that was chosen.
    pub protocol: Option<String>,
}

/// An answer that is no upgrade.
#[derive(Debug)]
pub struct Refused {
    pub status: u16,
    pub retry_after: Option<String>,
    pub problem: Value,
}

/// Their places in the stream.
pub fn positions<'a>(events: impl IntoIterator<Item = &'a Value>) -> Vec<i64> {
    events.into_iter().map(|event| event["position"].as_i64().expect("a position")).collect()
}

impl Client {
    pub async fn connect(addr: SocketAddr, query: &str, headers: &[(&str, &str)]) -> Result<Client, Refused> {
        let stream = TcpStream::connect(addr).await.expect("somebody listens");
        Client::over(stream, addr, query, headers).await
    }

    /// The same over a connection that is there.
    pub async fn over(
        stream: TcpStream,
        addr: SocketAddr,
        query: &str,
        headers: &[(&str, &str)],
    ) -> Result<Client, Refused> {
        let mut request = format!("ws://{addr}/v1/live?{query}").into_client_request().expect("a good address");
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a header's name");
            request.headers_mut().insert(name, HeaderValue::from_str(value).expect("a header's value"));
        }
        match tokio::time::timeout(PATIENCE, client_async(request, stream)).await.expect("an answer in time") {
            Ok((socket, response)) => {
                let protocol = response.headers().get("sec-websocket-protocol");
                let protocol = protocol.map(|name| name.to_str().expect("text").to_owned());
                Ok(Client { socket, protocol })
            }
            Err(Error::Http(response)) => Err(Refused {
                status: response.status().as_u16(),
                retry_after: response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned()),
                problem: serde_json::from_slice(response.body().as_deref().unwrap_or_default()).unwrap_or_default(),
            }),
            Err(error) => panic!("{error}"),
        }
    }

    async fn next(&mut self) -> Option<Result<Message, Error>> {
        tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("word in time")
    }

    /// The next message that is no ping.
    pub async fn message(&mut self) -> Value {
        loop {
            match self.next().await {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).expect("JSON"),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("{other:?} instead of a message"),
            }
        }
    }

    /// Whether it is served; else it is closed at once.
    pub async fn is_served(&mut self) -> bool {
        matches!(self.next().await, Some(Ok(Message::Text(_))))
    }

    /// So many messages that are events, and nothing between them.
    pub async fn events(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            let message = self.message().await;
            assert_eq!(message["type"], "event", "{message} after {} events", events.len());
            events.push(message);
        }
        events
    }

    /// The next message, which says that what follows is new.
    pub async fn ready(&mut self) -> Value {
        let message = self.message().await;
        assert_eq!(message["type"], "ready", "{message}");
        message
    }

    /// Reads until the other side closes; its code and reason, and how many messages came before.
    pub async fn closed(&mut self) -> (u16, String, usize) {
        let mut messages = 0;
        loop {
            match self.next().await {
                Some(Ok(Message::Close(Some(frame)))) => {
                    return (frame.code.into(), frame.reason.to_string(), messages);
                }
                Some(Ok(Message::Text(_))) => messages += 1,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("{other:?} instead of a reason, after {messages} messages"),
            }
        }
    }

    /// Waits for so many pings, answering them as clients do.
    pub async fn pinged(&mut self, times: usize) {
        let mut pings = 0;
        while pings < times {
            pings += usize::from(matches!(self.next().await, Some(Ok(Message::Ping(_)))));
        }
    }

    pub async fn send(&mut self, message: Message) -> Result<(), Error> {
        self.socket.send(message).await
    }

    /// The socket itself, for who does not behave as a client does.
    pub fn stream(&mut self) -> &mut TcpStream {
        self.socket.get_mut()
    }
}
