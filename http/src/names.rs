//! Which host names an interface answers to, and to which other origins (CORS).

use crate::Refusal;
use hyper::{Request, Version, header, http::uri::Authority};
use std::net::IpAddr;
use tower_http::cors::{AllowOrigin, CorsLayer};

/// Refuses a request unless it names exactly one host, and one that this interface is served under:
/// an IP address, `localhost`, or one of these names. HTTP/1.0 requests need not name a host.
///
/// This prevents DNS rebinding: a foreign page can make its visitor's browser send requests to an
/// address in the visitor's network by pointing its own host name there, and the browser then
/// treats the answer as coming from that site. But the browser sends the site's name as `Host`,
/// which is none of these. An IP address cannot be rebound.
///
/// An intermediary may use a different one of several `Host` fields than we do (RFC 9112, section
/// 3.2), and a name in the request's target takes precedence over the field.
pub(crate) fn check_host<B>(request: &Request<B>, names: &[String]) -> Result<(), Refusal> {
    let mut fields = request.headers().get_all(header::HOST).iter();
    let field = match (fields.next(), fields.next()) {
        (Some(field), None) => Some(field.to_str().map_err(|_| Refusal::UnknownHost)?),
        (None, None) if request.version() < Version::HTTP_11 => None,
        _ => return Err(Refusal::NoHost),
    };
    let target = request.uri().authority().map(Authority::as_str);
    match [field, target]
        .into_iter()
        .flatten()
        .all(|host| is_known(host, names))
    {
        true => Ok(()),
        false => Err(Refusal::UnknownHost),
    }
}

fn is_known(host: &str, names: &[String]) -> bool {
    let name = without_port(host);
    let literal = name.trim_start_matches('[').trim_end_matches(']');
    literal.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // Colons within brackets belong to an IPv6 address.
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

/// Response headers that let pages of these origins read answers; pages of all origins if one is
/// `*`. Without any origin, browsers give answers to no other site's pages.
pub(crate) fn cors(origins: &[String]) -> CorsLayer {
    let methods = [hyper::Method::GET, hyper::Method::HEAD, hyper::Method::POST];
    let layer = CorsLayer::new()
        .allow_methods(methods)
        .allow_headers([
            header::CONTENT_TYPE,
            header::IF_NONE_MATCH,
            header::HeaderName::from_static("last-event-id"),
        ])
        .expose_headers([header::ETAG, header::RETRY_AFTER]);
    if origins.iter().any(|origin| origin == "*") {
        return layer.allow_origin(AllowOrigin::any());
    }
    let origins = origins.iter().filter_map(|origin| origin.parse().ok());
    layer.allow_origin(AllowOrigin::list(origins))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: Version, target: &str, hosts: &[&str]) -> Result<(), Refusal> {
        let mut request = Request::builder().version(version).uri(target);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        let names = ["node.example.org".to_owned()];
        check_host(&request.body(()).unwrap(), &names)
    }

    #[test]
    fn addresses_localhost_and_configured_names_are_known_and_others_are_not() {
        for host in [
            "127.0.0.1:26601",
            "10.1.2.3",
            "[::1]:26601",
            "[2001:db8::1]",
            "localhost",
            "LOCALHOST:80",
            "node.example.org:26601",
            "Node.Example.org",
        ] {
            assert_eq!(check(Version::HTTP_11, "/", &[host]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:26601",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "sub.node.example.org",
            "",
            ":80",
        ] {
            let checked = check(Version::HTTP_11, "/", &[host]);
            assert_eq!(checked, Err(Refusal::UnknownHost), "{host}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let (new, old) = (Version::HTTP_11, Version::HTTP_10);
        assert_eq!(check(new, "/", &[]), Err(Refusal::NoHost));
        assert_eq!(check(old, "/", &[]), Ok(()));
        for second in ["localhost", "127.0.0.1", "evil.example"] {
            for version in [new, old] {
                let checked = check(version, "/", &["localhost", second]);
                assert_eq!(checked, Err(Refusal::NoHost), "{second}");
            }
        }
        let foreign = check(new, "http://evil.example/", &["localhost"]);
        assert_eq!(foreign, Err(Refusal::UnknownHost));
        assert_eq!(check(new, "http://localhost/", &["localhost"]), Ok(()));
    }
}
