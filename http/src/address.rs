//! What counts as one client.

use hyper::HeaderMap;
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// Maximum number of addresses of `X-Forwarded-For` that are read, starting from the last.
const MAX_FORWARDED: usize = 16;

/// An IPv4 address, or an IPv6 network of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(IpAddr);

impl Address {
    /// The client with this address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from(network))
            }
            v4 => v4,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

/// The client of a trusted proxy's request: the last address in `X-Forwarded-For` that is not a
/// trusted proxy's. `None` if the header does not say. Anything before that address could have been
/// forged.
pub(crate) fn forwarded_for(headers: &HeaderMap, trusted: &[IpAddr]) -> Option<IpAddr> {
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    let parts = lines.flat_map(|line| line.to_str().unwrap_or("?").rsplit(','));
    for part in parts.take(MAX_FORWARDED) {
        let address: IpAddr = part.trim().parse().ok()?;
        if !trusted.contains(&address.to_canonical()) {
            return Some(address);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_64_bits_is_one_client_and_so_is_an_address_of_v4() {
        let of = |text: &str| Address::of(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(of("2001:db8:1:2::1"), "2001:db8:1:2::/64");
        assert_ne!(of("2001:db8:1:3::1"), "2001:db8:1:2::/64");
        assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
        assert_ne!(of("192.0.2.7"), of("192.0.2.8"));
    }

    #[test]
    fn only_what_a_trusted_proxy_has_added_counts() {
        let proxy: IpAddr = "10.0.0.1".parse().unwrap();
        let said = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-forwarded-for", line.parse().unwrap());
            }
            forwarded_for(&headers, &[proxy]).map(|address| address.to_string())
        };
        assert_eq!(said(&[]), None);
        assert_eq!(said(&["192.0.2.1"]).as_deref(), Some("192.0.2.1"));
        // The first address was written by the client itself.
        assert_eq!(said(&["1.1.1.1, 192.0.2.1"]).as_deref(), Some("192.0.2.1"));
        assert_eq!(said(&["192.0.2.1,10.0.0.1"]).as_deref(), Some("192.0.2.1"));
        assert_eq!(
            said(&["1.1.1.1", "192.0.2.1"]).as_deref(),
            Some("192.0.2.1")
        );
        assert_eq!(said(&["192.0.2.1, nonsense"]), None);
        assert_eq!(said(&["10.0.0.1"]), None);
    }
}
