//! Tickets of the live feed: what an app's backend gives to its own clients, so that they may listen and nothing else.
//!
//! A browser cannot set headers on a WebSocket and must not hold the app's token. So a ticket says who asked for it,
//! which topics and key it is good for and until when, signed. Without tokens the key is made anew by each process, because a ticket also opens the door to pages of other origins.
//!
//! **Guarantee.** It is good for no more than its token. **Limit.** Nothing is kept, so one ticket cannot be taken back:
//! it ends by its time, or with all others when the token is changed.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::signature::now_s;
use super::{Access, Caller};
use crate::server::problem::{Kind, Problem};

/// What keys of tickets are made for.
pub(super) const PURPOSE: &str = "ticket";

/// What a ticket says. On the way it is `<JSON in base64>.<signature in base64>`.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::server) struct Ticket {
    /// The name of the token that asked for it.
    by: String,
    /// The topics that it is good for.
    pub(in crate::server) topics: Vec<String>,
    /// The only key of events that it shows; `None`: all.
    pub(in crate::server) key: Option<String>,
    /// Its end, in seconds since 1970.
    pub(in crate::server) until_s: u64,
}

impl Ticket {
    /// How long it is still good for.
    pub(in crate::server) fn left(&self) -> Duration {
        Duration::from_secs(self.until_s.saturating_sub(now_s()))
    }
}

impl Access {
    /// A ticket in the name of `caller`, and when it ends, in seconds since 1970.
    pub(in crate::server) fn issue(
        &self,
        caller: &Caller,
        topics: Vec<String>,
        key: Option<String>,
        ttl: Duration,
    ) -> Result<(String, u64), Problem> {
        let until_s = now_s().saturating_add(ttl.as_secs());
        let ticket = Ticket { by: caller.name().to_owned(), topics, key, until_s };
        let json = serde_json::to_vec(&ticket).expect("texts and a number are JSON");
        let known = self.tokens.iter().find(|token| token.caller.name() == ticket.by);
        let said = URL_SAFE_NO_PAD.encode(json);
        let signed = match known {
            Some(token) => self.key_of(token, PURPOSE)?.sign(&said),
            None => self.local_tickets.sign(&said),
        };
        Ok((signed, until_s))
    }

    /// Whose ticket this is and what it says; 401 if nobody here signed it, or if it is over.
    pub(in crate::server) fn redeem(&self, given: &str) -> Result<(Caller, Ticket), Problem> {
        let forged = || Problem::new(Kind::Unauthorized, "this is no ticket that this configuration signed");
        let (said, signature) = given.split_once('.').ok_or_else(forged)?;
        let json = URL_SAFE_NO_PAD.decode(said).map_err(|_| forged())?;
        let ticket: Ticket = serde_json::from_slice(&json).map_err(|_| forged())?;
        let known = self.tokens.iter().find(|token| token.caller.name() == ticket.by);
        let (is_ours, caller) = match known {
            Some(token) => (self.key_of(token, PURPOSE)?.has_signed(said, signature), &token.caller),
            None if self.is_open() => (self.local_tickets.has_signed(said, signature), &self.local),
            None => return Err(forged()),
        };
        if !is_ours {
            return Err(forged());
        }
        if ticket.left().is_zero() {
            return Err(Problem::new(Kind::Unauthorized, "this ticket is over; ask your backend for another"));
        }
        Ok((caller.clone(), ticket))
    }
}
