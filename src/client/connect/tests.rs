//! Names with several addresses.

use std::sync::Mutex;

use tokio::net::TcpSocket;

use super::super::Client;
use super::super::tests::{TEN_BYTES, Then, call, place, server};
use super::*;

/// A DNS that always gives the same answer.
struct Always(Vec<SocketAddr>, Mutex<usize>);

#[async_trait]
impl Resolve for Always {
    async fn resolve(&self, _: &str) -> Resolved {
        *self.1.lock().unwrap() += 1;
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn addresses_are_tried_in_turn_and_one_that_is_dead_leaves_time_for_the_next() {
    let (listening, seen) = server(&[TEN_BYTES], Then::Next).await;
    let port = listening.port();
    // A listener that never accepts and whose backlog is full: connecting hangs.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 3], port))).unwrap();
    let deaf = socket.listen(1).unwrap();
    let dead = deaf.local_addr().unwrap();
    let mut fillers = Vec::new();
    while let Ok(Ok(stream)) = timeout(Duration::from_millis(300), TcpStream::connect(dead)).await {
        fillers.push(stream);
    }
    let [refused, dead, alive] = [[127, 0, 0, 2], [127, 0, 0, 3], [127, 0, 0, 1]].map(|ip| SocketAddr::from((ip, 0)));
    let place = place(&format!("http://a.example:{port}/"));
    let dial = |addresses: &[SocketAddr]| {
        let resolver = Arc::new(Always(addresses.to_vec(), Mutex::new(0)));
        let tls = crate::tls::client_config().unwrap();
        (Client::new(tls, Arc::clone(&resolver) as Arc<dyn Resolve>, Duration::from_millis(900)), resolver)
    };
    let (client, resolver) = dial(&[refused, dead, alive]);
    for _ in 0..2 {
        assert_eq!(call(&client, &place).await.unwrap().len(), 10);
    }
    assert_eq!((seen.connections(), *resolver.1.lock().unwrap()), (1, 1), "asked once for each connection");
    assert!(matches!(call(&dial(&[refused, dead]).0, &place).await, Err(Error::ConnectTimeout)));
    let error = call(&dial(&[dead, refused]).0, &place).await.unwrap_err();
    assert!(matches!(&error, Error::Connect(cause) if cause.to_string().contains("refused")), "{error:?}");
    let error = call(&dial(&[]).0, &place).await.unwrap_err();
    assert!(matches!(&error, Error::Connect(cause) if cause.to_string() == "the name has no address"), "{error:?}");
}
