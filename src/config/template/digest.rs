//! Filters by which templates sign a request: digests, codes over them with a key, and their texts.
//!
//! `hmac_sha256(key)`, `hmac_sha1(key)`, `sha256` and `md5` give bytes; `hex`, `base64` and `base64url` make a text of
//! bytes or of another text. SHA-1 and MD5 are here because providers ask for them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use minijinja::{Environment, Error, ErrorKind, Value};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The names of the filters.
pub(super) const FILTERS: [&str; 7] = ["hmac_sha256", "hmac_sha1", "sha256", "md5", "hex", "base64", "base64url"];

/// Makes them known to the engine.
pub(super) fn add(engine: &mut Environment<'static>) {
    engine.add_filter("hmac_sha256", |value: &Value, key: &Value| code::<Hmac<Sha256>>(value, key));
    engine.add_filter("hmac_sha1", |value: &Value, key: &Value| code::<Hmac<Sha1>>(value, key));
    engine.add_filter("sha256", |value: &Value| {
        Ok::<_, Error>(Value::from_bytes(Sha256::digest(bytes(value)?).to_vec()))
    });
    engine.add_filter("md5", |value: &Value| Ok::<_, Error>(Value::from_bytes(Md5::digest(bytes(value)?).to_vec())));
    engine.add_filter("hex", |value: &Value| Ok::<_, Error>(hex(bytes(value)?)));
    engine.add_filter("base64", |value: &Value| Ok::<_, Error>(STANDARD.encode(bytes(value)?)));
    engine.add_filter("base64url", |value: &Value| Ok::<_, Error>(URL_SAFE_NO_PAD.encode(bytes(value)?)));
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn code<M: Mac + KeyInit>(value: &Value, key: &Value) -> Result<Value, Error> {
    let mut mac = <M as KeyInit>::new_from_slice(bytes(key)?)
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "the key is empty"))?;
    mac.update(bytes(value)?);
    Ok(Value::from_bytes(mac.finalize().into_bytes().to_vec()))
}

/// Of a text its UTF-8. What it is stays unsaid in the error: it may be a secret.
fn bytes(value: &Value) -> Result<&[u8], Error> {
    let value = super::defined(value)?;
    value
        .as_str()
        .map(str::as_bytes)
        .or_else(|| value.as_bytes())
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "a text is wanted; write |string before it"))
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    fn render(source: &str) -> Result<String, minijinja::Error> {
        super::super::engine()
            .render_str(source, context! { key => "key", text => "The quick brown fox jumps over the lazy dog" })
    }

    #[test]
    fn digests_are_those_that_the_standards_print() {
        for (source, expected) in [
            ("{{ text|hmac_sha256(key)|hex }}", "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"),
            ("{{ text|hmac_sha1(key)|hex }}", "de7c9b85b8b78aa6bc8a7a36f70a90701c9db4d9"),
            ("{{ text|sha256|hex }}", "d7a8fbb307d7809469ca9abcb0082e4f8d5651e46d3cdb762d02d0bf37c9e592"),
            ("{{ text|md5|hex }}", "9e107d9d372bb6826bd81d3542a419d6"),
            ("{{ text|hmac_sha1(key)|base64 }}", "3nybhbi3iqa8ino29wqQcBydtNk="),
            (
                "{{ text|sha256|hex|length }} {{ 'q6'|sha256|base64url }}",
                "64 d-xnatggCsHchl9GtKbSemwI1J-IW_9QQ4sEX4vtMrA",
            ),
            ("{{ 'a'|base64 }} {{ 'a'|hmac_sha256('k'|sha256)|hex|length }}", "YQ== 64"),
        ] {
            assert_eq!(render(source).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_and_not_repeated() {
        for source in
            ["{{ 4711|sha256|hex }}", "{{ [1]|hex }}", "{{ text|hmac_sha256(4711)|hex }}", "{{ text|hmac_sha256 }}"]
        {
            let error = super::super::reason(&render(source).unwrap_err());
            assert!(!error.contains("4711"), "{source}: {error}");
        }
    }
}
