//! Standard Webhooks signatures: HMAC-SHA256 over `id.timestamp.body`, one per secret, so that a receiver
//! accepts the old and the new secret while they are being rotated.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

/// Secrets are handed around with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Signs bodies with every secret of a channel. The keys are set up once.
pub(super) struct Signer {
    keys: Vec<Hmac<Sha256>>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({} keys)", self.keys.len())
    }
}

/// A secret that is not `whsec_` and base64. Says which, never what.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadSecret {
    /// 1 for the first.
    pub position: usize,
}

impl Signer {
    pub(super) fn new(secrets: &[SecretString]) -> Result<Signer, BadSecret> {
        let keys = secrets.iter().enumerate().map(|(index, secret)| {
            let bad = || BadSecret { position: index + 1 };
            let text = secret.expose_secret().trim();
            let key = BASE64.decode(text.strip_prefix("whsec_").ok_or_else(bad)?).map_err(|_| bad())?;
            if key.is_empty() {
                return Err(bad());
            }
            Hmac::new_from_slice(&key).map_err(|_| bad())
        });
        Ok(Signer { keys: keys.collect::<Result<_, _>>()? })
    }

    /// The value of `webhook-signature`: `v1,…` per secret, separated by spaces. None without secrets.
    pub(super) fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> Option<String> {
        if self.keys.is_empty() {
            return None;
        }
        // "v1," and 44 characters of base64, and the space before the next.
        let mut value = String::with_capacity(self.keys.len() * 48);
        for key in &self.keys {
            if !value.is_empty() {
                value.push(' ');
            }
            let mut mac = key.clone();
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                mac.update(part);
            }
            value.push_str("v1,");
            BASE64.encode_string(mac.finalize().into_bytes(), &mut value);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use standardwebhooks::Webhook;

    use super::*;

    const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    #[test]
    fn each_secret_signs_as_the_standard_says() {
        let signer = Signer::new(&[NEW.into(), OLD.into()]).unwrap();
        let signed = signer.sign("ntf-1", "1614265330", b"{\"test\": 2432232314}").unwrap();
        let expected = [NEW, OLD].map(|secret| {
            Webhook::new(secret).unwrap().sign("ntf-1", 1_614_265_330, b"{\"test\": 2432232314}").unwrap()
        });
        assert_eq!(signed.split(' ').collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_bad_secret_is_named_by_its_position_only() {
        for bad in ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_not base64"] {
            let error = Signer::new(&[OLD.into(), bad.into()]).err().unwrap();
            assert_eq!(error, BadSecret { position: 2 }, "{bad}");
        }
    }

    #[test]
    fn without_secrets_nothing_is_signed() {
        assert_eq!(Signer::new(&[]).unwrap().sign("ntf-1", "1", b""), None);
    }
}
