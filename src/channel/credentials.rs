//! A digest of what a channel calls with, so that a start with another token, secret or URL is noticed.
//!
//! **Guarantee.** It is keyed by the installation's key and shortened: from the digest alone no guess of a secret can be
//! tried. **Limit.** What templates take from notifications is not in it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretSlice};
use sha2::Sha256;

use crate::config::{ChannelConfig, Method};

/// Bytes of a digest: two configurations hardly share one.
const DIGEST_BYTES: usize = 8;

/// One digest for each channel.
pub fn digests(channels: &BTreeMap<String, ChannelConfig>, key: &SecretSlice<u8>) -> BTreeMap<String, String> {
    channels.iter().map(|(name, config)| (name.clone(), digest(config, key))).collect()
}

fn digest(config: &ChannelConfig, key: &SecretSlice<u8>) -> String {
    // HMAC takes keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key.expose_secret()).expect("HMAC takes keys of any length");
    let mut add = |part: &str| {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    };
    add("what a channel calls with");
    add(match config.method {
        Method::Post => "POST",
        Method::Put => "PUT",
    });
    add(&config.url);
    add(config.body.as_deref().unwrap_or_default());
    add(config.proxy.as_ref().map_or("", |proxy| proxy.expose_secret()));
    for (name, value) in &config.headers {
        add(name);
        add(value.expose_secret());
    }
    for secret in &config.secret {
        add(secret.expose_secret());
    }
    let bytes = mac.finalize().into_bytes();
    bytes[..DIGEST_BYTES].iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}
