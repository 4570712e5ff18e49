//! What is signed: sessions and tickets. The key is made from the installation's, which is in Postgres for the daemon's
//! login alone, and from the token.
//!
//! **Guarantee.** Every instance of the installation with the same token takes what another signed, and so does a
//! restarted one; a changed token ends it all. What was signed for one purpose or token proves nothing for another, and
//! without the installation's key nobody can try guesses of the token on it. **Limit.** What is signed can be read by
//! whoever holds it.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use sha2::Sha256;

/// Signs for one purpose.
pub(super) struct Key(Hmac<Sha256>);

impl Key {
    /// Of the token of this name.
    pub(super) fn of_token(name: &str, token: &SecretString) -> Key {
        Key::from_bytes(token.expose_secret().as_bytes()).derive(name.as_bytes())
    }

    /// For this purpose in this installation.
    pub(super) fn in_installation(&self, installation: &SecretSlice<u8>, purpose: &str) -> Key {
        let of_both = self.derive(installation.expose_secret());
        of_both.derive(format!("outboxd {purpose}").as_bytes())
    }

    fn derive(&self, from: &[u8]) -> Key {
        Key::from_bytes(&self.mac(from).finalize().into_bytes())
    }

    /// Of this process alone.
    pub(super) fn random() -> Key {
        Key::from_bytes(&rand::random::<[u8; 32]>())
    }

    fn from_bytes(key: &[u8]) -> Key {
        Key(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    pub(super) fn mac(&self, text: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(text);
        mac
    }

    /// `<said>.<signature in base64>`, which fits a URL and a header if `said` does.
    pub(super) fn sign(&self, said: &str) -> String {
        format!("{said}.{}", URL_SAFE_NO_PAD.encode(self.mac(said.as_bytes()).finalize().into_bytes()))
    }

    /// Whether this key signed it; compared in constant time.
    pub(super) fn has_signed(&self, said: &str, signature: &str) -> bool {
        let signature = URL_SAFE_NO_PAD.decode(signature);
        signature.is_ok_and(|signature| self.mac(said.as_bytes()).verify_slice(&signature).is_ok())
    }
}

/// Seconds since 1970, by this machine's clock.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |since| since.as_secs())
}
