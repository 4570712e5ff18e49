//! A message as Redis sees it: `id:epoch`, or `id:epoch:n` once it has been handed out n times and given back.

use super::Message;

/// A message and how often it had been handed out before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    pub message: Message,
    pub deliveries_before: u32,
}

/// The element of a message that nobody has taken yet.
pub(super) fn encode(message: &Message) -> String {
    format!("{}:{}", message.id, message.epoch)
}

/// `None` for anything we never wrote.
pub(super) fn decode(raw: &[u8]) -> Option<Element> {
    let mut parts = std::str::from_utf8(raw).ok()?.split(':');
    let id = parts.next()?.parse().ok()?;
    let epoch = parts.next()?.parse().ok()?;
    let deliveries_before = parts.next().map_or(Ok(0), str::parse).ok()?;
    parts.next().is_none().then_some(Element { message: Message { id, epoch }, deliveries_before })
}

/// Lua: raises the count at the end of an element. Garbage passes through for the taker to drop.
pub(super) const LUA_GIVEN_BACK: &str = r"
local function given_back(element)
  local head, n = string.match(element, '^(%-?%d+:%-?%d+):(%d+)$')
  if head then return head .. ':' .. (tonumber(n) + 1) end
  return element .. ':1'
end
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_decodes_to_itself() {
        for (id, epoch) in [(1, 1), (i64::MAX, i32::MAX), (-4, 0)] {
            let message = Message { id, epoch };
            assert_eq!(decode(encode(&message).as_bytes()), Some(Element { message, deliveries_before: 0 }));
        }
        assert_eq!(decode(b"7:2:3"), Some(Element { message: Message { id: 7, epoch: 2 }, deliveries_before: 3 }));
    }

    #[test]
    fn garbage_is_not_a_message() {
        for raw in
            [&b""[..], b"7", b"7:", b":1", b"7:1:", b"7:1:2:3", b"a:b", b"7:1 ", b"\xff\xfe", b"99999999999999999999:1"]
        {
            assert_eq!(decode(raw), None, "{raw:?}");
        }
    }
}
