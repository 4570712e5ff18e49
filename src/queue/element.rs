//! A message as Redis sees it: `id:epoch:route_step:n:topic`, where n counts how often it was delivered and given back.
//! The topic stands last: it may contain anything.

use std::sync::Arc;

use super::Message;

/// A message and how often it had been delivered before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Element {
    pub message: Message,
    pub deliveries_before: u32,
}

/// The element of a message that nobody has taken yet.
pub(super) fn encode(message: &Message) -> String {
    format!("{}:{}:{}:0:{}", message.id, message.epoch, message.route_step, message.topic)
}

/// `None` for anything we never wrote.
pub(super) fn decode(raw: &[u8]) -> Option<Element> {
    let mut parts = std::str::from_utf8(raw).ok()?.splitn(5, ':');
    let id = parts.next()?.parse().ok()?;
    let epoch = parts.next()?.parse().ok()?;
    let route_step = parts.next()?.parse().ok()?;
    let deliveries_before = parts.next()?.parse().ok()?;
    let topic = parts.next().filter(|topic| !topic.is_empty())?;
    Some(Element { message: Message { id, epoch, route_step, topic: Arc::from(topic) }, deliveries_before })
}

/// Lua: raises the count in an element. Garbage passes through for the taker to drop.
pub(super) const LUA_GIVEN_BACK: &str = r"
local function given_back(element)
  local head, n, topic = string.match(element, '^(%-?%d+:%-?%d+:%-?%d+:)(%d+)(:.*)$')
  if head then return head .. (tonumber(n) + 1) .. topic end
  return element
end
";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(id: i64, epoch: i32, route_step: i16, topic: &str) -> Message {
        Message { id, epoch, route_step, topic: Arc::from(topic) }
    }

    #[test]
    fn what_is_encoded_decodes_to_itself() {
        for message in [
            message(1, 1, 0, "order.paid"),
            message(i64::MAX, i32::MAX, i16::MAX, "a:b:c"),
            message(-4, 0, -1, "결제\n완료"),
        ] {
            assert_eq!(decode(encode(&message).as_bytes()), Some(Element { message, deliveries_before: 0 }));
        }
        assert_eq!(decode(b"7:2:1:3:quiz"), Some(Element { message: message(7, 2, 1, "quiz"), deliveries_before: 3 }));
    }

    #[test]
    fn garbage_is_not_a_message() {
        for raw in [
            &b""[..],
            b"7",
            b"7:1",
            b"7:1:0:0",
            b"7:1:0:0:",
            b":1:0:0:t",
            b"7:1:x:0:t",
            b"7:1:0:-1:t",
            b"a:b:c:d:e",
            b"7:1:0:0:\xff\xfe",
            b"99999999999999999999:1:0:0:t",
        ] {
            assert_eq!(decode(raw), None, "{raw:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_stands_in_redis_is_a_message_of_ours_or_none(
            raw in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..60),
                "-?[0-9]{0,20}:-?[0-9]{0,11}:-?[0-9]{0,6}:-?[0-9]{0,11}:\\PC{0,10}".prop_map(String::into_bytes),
            ],
        ) {
            if let Some(Element { message, .. }) = decode(&raw) {
                prop_assert!(!message.topic.is_empty());
                let encoded = encode(&message);
                prop_assert_eq!(decode(encoded.as_bytes()), Some(Element { message, deliveries_before: 0 }));
            }
        }

        #[test]
        fn every_message_decodes_to_itself(id in any::<i64>(), epoch in any::<i32>(), step in any::<i16>(), topic in "(?s).{1,40}") {
            let message = message(id, epoch, step, &topic);
            prop_assert_eq!(decode(encode(&message).as_bytes()), Some(Element { message, deliveries_before: 0 }));
        }
    }
}
