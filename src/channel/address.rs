//! Which kind of network an IP address belongs to. Pure; after the IANA special-purpose registries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Range {
    /// Somewhere on the internet.
    Public,
    /// This machine or its network; `allow_private` permits it.
    Private(&'static str),
    /// No provider can be there; only the allow list permits it.
    Special(&'static str),
}

/// The kind of `ip`.
pub(super) fn range(ip: IpAddr) -> Range {
    match ip {
        IpAddr::V4(ip) => range_v4(ip),
        IpAddr::V6(ip) => range_v6(ip),
    }
}

/// The IPv4 address that an IPv6 one leads to: mapped, compatible, NAT64, 6to4, Teredo.
pub(super) fn carried_ipv4(ip: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(ip) = ip else { return None };
    let [a, b, c, d, e, f, g, h] = ip.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0 | 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] | [0x64, 0xff9b, 1, _, _, _] => Some(v4(g, h)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        [0x2001, 0, ..] => Some(v4(!g, !h)),
        _ => None,
    }
}

fn range_v4(ip: Ipv4Addr) -> Range {
    use Range::{Private, Public, Special};
    match ip.octets() {
        [127, ..] => Private("a loopback address"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Private("a private address"),
        [169, 254, ..] => Private("a link-local address"),
        [100, 64..=127, ..] => Private("a carrier-grade NAT address"),
        [0, ..] => Special("an address of this network"),
        [192, 0, 0, _] => Special("a protocol assignment"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Special("a documentation address"),
        [192, 88, 99, _] => Special("a 6to4 relay"),
        [198, 18..=19, ..] => Special("a benchmarking address"),
        [224..=239, ..] => Special("a multicast address"),
        [255, 255, 255, 255] => Special("the broadcast address"),
        [240..=255, ..] => Special("a reserved address"),
        _ => Public,
    }
}

fn range_v6(ip: Ipv6Addr) -> Range {
    use Range::{Private, Public, Special};
    let segments = ip.segments();
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => Private("a loopback address"),
        // Mapped addresses are connected to over IPv4; a NAT64 gateway does the same on our behalf, and on
        // networks without IPv4 every public name resolves to one.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            range_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
        }
        [0, 0, 0, 0, 0, 0, _, _] => Special("an unspecified or IPv4-compatible address"),
        [0x64, 0xff9b, 1, ..] => Private("a local NAT64 address"),
        [0xfc00..=0xfdff, ..] => Private("a unique local address"),
        [0xfe80..=0xfebf, ..] => Private("a link-local address"),
        [0xfec0..=0xfeff, ..] => Private("a site-local address"),
        [0xff00..=0xffff, ..] => Special("a multicast address"),
        [0x2001, 0, ..] => Special("a Teredo address"),
        [0x2001, 0..=0x1ff, ..] => Special("a protocol assignment"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Special("a documentation address"),
        [0x2002, ..] => Special("a 6to4 address"),
        [0x2000..=0x3fff, ..] => Public,
        _ => Special("a reserved address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_internet_is_public() {
        let inside = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "64:ff9b:1::808:808",
            "100::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:2::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ];
        for text in inside {
            assert_ne!(range(text.parse().unwrap()), Range::Public, "{text}");
        }
    }

    #[test]
    fn the_neighbours_of_special_ranges_are_public() {
        let outside = [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ];
        for text in outside {
            assert_eq!(range(text.parse().unwrap()), Range::Public, "{text}");
        }
    }

    #[test]
    fn an_ipv4_address_is_found_in_every_wrapping() {
        let wrapped = [
            "::ffff:10.1.2.3",
            "::10.1.2.3",
            "64:ff9b::10.1.2.3",
            "64:ff9b:1::10.1.2.3",
            "2002:a01:203::1",
            "2001::f5fe:fdfc",
        ];
        for text in wrapped {
            assert_eq!(carried_ipv4(text.parse().unwrap()), Some(Ipv4Addr::new(10, 1, 2, 3)), "{text}");
        }
        assert_eq!(carried_ipv4("2606:4700::1111".parse().unwrap()), None);
    }
}
