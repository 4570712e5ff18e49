//! The HTTP API: who may do what, writing, finding, acting, and that nothing that is asked breaks it.

use std::net::SocketAddr;

use tokio_postgres::Client;

use crate::support::http::{self, Answer};
use crate::support::instance::{Instance, Setup};
use crate::support::postgres::{self, Database};

mod access;
mod actions;
mod examples;
mod input;
mod post;
mod reach;
mod search;

const OPS: &str = "Authorization: Bearer operate-operate-operate";
const PAGE: &str = "Authorization: Bearer read-read-read-read";
const SHOP: &str = "Authorization: Bearer write-write-write";

/// An instance whose only channel leads nowhere, and a session beside it.
struct Api {
    addr: SocketAddr,
    client: Client,
    database: Database,
    instance: Instance,
}

impl Api {
    /// Everybody on loopback may do everything.
    async fn open() -> Api {
        Api::start(|setup| setup).await
    }

    /// `ops` operates, `page` reads, `shop` writes to `order.*`.
    async fn guarded() -> Api {
        Api::start(|setup| {
            setup
                .set("tokens.ops.token", "operate-operate-operate")
                .set("tokens.ops.scope", "operate")
                .set("tokens.page.token", "read-read-read-read")
                .set("tokens.page.scope", "read")
                .set("tokens.shop.token", "write-write-write")
                .set("tokens.shop.scope", "write")
                .set("tokens.shop.topics", vec!["order.*"])
        })
        .await
    }

    async fn start(change: impl FnOnce(Setup) -> Setup) -> Api {
        Api::on(postgres::database().await, change).await
    }

    async fn on(database: Database, change: impl FnOnce(Setup) -> Setup) -> Api {
        let setup = Setup::new(&database.url()).webhook("http://127.0.0.1:9/").set("routes.default.backoff.base", "1h");
        let setup = setup.set("routes.default.backoff.max", "2h").set("routes.quiz.channels", vec!["webhook"]);
        let mut instance = change(setup).start().await;
        let addr = instance.http_addr().await;
        Api { addr, client: database.connect().await, database, instance }
    }

    async fn get(&self, path: &str, headers: &[&str]) -> Answer {
        http::get(self.addr, path, headers).await
    }

    async fn post(&self, path: &str, headers: &[&str], body: &str) -> Answer {
        http::post(self.addr, path, headers, body).await
    }

    /// A POST without a body.
    async fn act(&self, path: &str, headers: &[&str]) -> Answer {
        http::post_bytes(self.addr, path, headers, b"").await
    }
}

/// A problem of this type.
fn assert_problem(answer: &Answer, status: u16, name: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    let problem = answer.json();
    assert_eq!(problem["type"], format!("urn:outboxd:problem:{name}"), "{answer:?}");
    assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{answer:?}");
}

fn ids(answer: &Answer) -> Vec<i64> {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["notifications"].as_array().unwrap().iter().map(|found| found["id"].as_i64().unwrap()).collect()
}
