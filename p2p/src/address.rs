//! A peer's address: an IP address, or a host name that is resolved again while there is no link.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// Maximum length of a host name, in bytes (RFC 1035).
const MAX_HOST_BYTES: usize = 253;

/// Maximum length of a label of a host name, in bytes.
const MAX_LABEL_BYTES: usize = 63;

/// A peer's address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerAddress {
    Ip(SocketAddr),
    Name { host: String, port: u16 },
}

/// Why an address is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("it has no port")]
    NoPort,
    /// The port is not a number from 1 to 65535.
    #[error("its port is not a number from 1 to 65535")]
    Port,
    /// It is the unspecified address.
    #[error(
        "it is the address on which a machine listens on all of its interfaces, not one to reach it at"
    )]
    Unspecified,
    /// It is a multicast or broadcast address.
    #[error("it is a multicast or broadcast address, not one machine's")]
    Many,
    #[error("its host is neither an IP address nor a host name")]
    Host,
}

impl PeerAddress {
    pub const fn port(&self) -> u16 {
        match self {
            Self::Ip(address) => address.port(),
            Self::Name { port, .. } => *port,
        }
    }

    /// The IP address and port, unless it is a host name.
    pub const fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Name { .. } => None,
        }
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl FromStr for PeerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            let ip = address.ip().to_canonical();
            return match ip {
                _ if address.port() == 0 => Err(AddressError::Port),
                _ if ip.is_unspecified() => Err(AddressError::Unspecified),
                _ if ip.is_multicast() => Err(AddressError::Many),
                IpAddr::V4(ip) if ip.is_broadcast() => Err(AddressError::Many),
                _ => Ok(Self::Ip(SocketAddr::new(ip, address.port()))),
            };
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
            _ => return Err(AddressError::NoPort),
        };
        let is_ip = format!("{host}:1").parse::<SocketAddr>().is_ok();
        if !is_ip && !is_host_name(host) {
            return Err(AddressError::Host);
        }
        match port.parse() {
            _ if is_ip => Err(AddressError::Port),
            Ok(0) | Err(_) => Err(AddressError::Port),
            Ok(port) => Ok(Self::Name {
                host: host.to_ascii_lowercase(),
                port,
            }),
        }
    }
}

/// Whether this is a valid host name (RFC 1123, plus underscores, which container names have). A
/// name that ends in a number is a mistyped IP address.
fn is_host_name(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = host.rsplit('.').next().unwrap_or(host);
    host.len() <= MAX_HOST_BYTES
        && host.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_read_and_written() {
        for text in [
            "127.0.0.1:9000",
            "[2001:db8::1]:9000",
            "validator-2.example.org:9000",
            "node_1:1",
            "localhost:65535",
        ] {
            let address: PeerAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        let upper: PeerAddress = "Example.ORG:7".parse().expect("a name");
        assert_eq!(upper.to_string(), "example.org:7");
        let mapped: PeerAddress = "[::ffff:10.0.0.1]:7".parse().expect("an address");
        assert_eq!(mapped.to_string(), "10.0.0.1:7", "as connections show it");
    }

    #[test]
    fn what_nobody_can_be_reached_at_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", AddressError::NoPort),
            ("example.org", AddressError::NoPort),
            ("2001:db8::1", AddressError::NoPort),
            ("[2001:db8::1]", AddressError::NoPort),
            ("example.org:", AddressError::Port),
            ("example.org:0", AddressError::Port),
            ("example.org:65536", AddressError::Port),
            ("10.0.0.1:0", AddressError::Port),
            ("0.0.0.0:9000", AddressError::Unspecified),
            ("[::]:9000", AddressError::Unspecified),
            ("224.0.0.1:9000", AddressError::Many),
            ("[ff02::1]:9000", AddressError::Many),
            ("255.255.255.255:9000", AddressError::Many),
            ("10.0.0:9000", AddressError::Host),
            ("10.0.0.256:9000", AddressError::Host),
            ("10.0.0.1.:9000", AddressError::Host),
            (":9000", AddressError::Host),
            ("-a.org:9000", AddressError::Host),
            ("a..org:9000", AddressError::Host),
            ("http://a.org:9000", AddressError::NoPort),
            ("a/b:9000", AddressError::Host),
            ("a b:9000", AddressError::Host),
        ] {
            assert_eq!(text.parse::<PeerAddress>(), Err(reason), "{text:?}");
        }
        let long = format!("{}:1", ["a"; 127].join("."));
        assert!(long.parse::<PeerAddress>().is_ok());
        assert!(format!("a.{long}").parse::<PeerAddress>().is_err());
        assert!(
            format!("{}:1", "a".repeat(64))
                .parse::<PeerAddress>()
                .is_err()
        );
    }
}
