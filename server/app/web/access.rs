//! Who is let in: while no password is set a browser or program on this machine, and nobody through it; else whoever has
//! a cookie, a token or a link.
//!
//! Lives here: the rules for `Host`, forwarding headers and `Origin`, and the guard around all routes.
//! May not live here: how cookies, tokens and links are recognised (`identity`), what an asker may do (handlers), what
//! pages of other sites are told (`cors`).

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::cors::{self, Origins};
use super::desk::Desk;
use super::error::ApiError;
use super::identity::{Asker, recognise};

/// How far the door is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only requests that name this machine as their host and were not forwarded. A page of another site cannot get in
    /// by pointing its own name at 127.0.0.1. A proxy is noticed by the headers it adds; one that adds none and rewrites
    /// the host looks like a program on this machine.
    Loopback,
    /// Whoever reaches the port has to be recognised. Calls and changes must not come from pages of other sites.
    Open,
}

/// Headers that a proxy adds.
const FORWARDING_HEADERS: [&str; 14] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-original-host",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "cf-ray",
];

/// Why a request is turned away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The request names another host, or none.
    #[error("this server only answers to localhost, 127.0.0.1 and [::1], not to {host:?}")]
    Host {
        /// What it names.
        host: String,
    },
    /// The request came through a proxy.
    #[error("this server takes no forwarded requests while it has no password (header {header:?})")]
    Forwarded {
        /// The header that shows it.
        header: &'static str,
    },
    /// A page of another site opens a WebSocket or changes something; without a password, whatever it asks.
    #[error("pages of {origin:?} may not open a call here or change anything")]
    Origin {
        /// The page's origin.
        origin: String,
    },
}

impl AccessError {
    /// A browser says that it comes from another site, not from which.
    fn elsewhere() -> Self {
        Self::Origin {
            origin: "another site".to_owned(),
        }
    }

    /// The code for the error body.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Host { .. } => "host_refused",
            Self::Forwarded { .. } => "forwarded_refused",
            Self::Origin { .. } => "origin_refused",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Host { .. } => {
                "open http://localhost with the server's port on the same machine, or set a password (System page, or `vivavoce password`): then other names work too"
            }
            Self::Forwarded { .. } => {
                "set a password first (System page, or `vivavoce password`), or connect without the proxy"
            }
            Self::Origin { .. } => {
                "open the page that this server serves at /; a proxy before it has to pass `Host` on unchanged; a front end of your own on another site is let in with --allow-origin"
            }
        }
    }
}

/// Who is let in, and how askers are recognised.
#[derive(Clone)]
pub struct Door {
    /// How far it is open.
    pub access: Access,
    /// Anybody may call, without a link or a token.
    pub open_calls: bool,
    /// Other sites whose pages may ask.
    pub origins: Origins,
    /// Where passwords, tokens and links are looked up.
    pub desk: Desk,
}

/// Middleware around everything: refuses what is forbidden to everybody, and finds out who is asking.
pub async fn guard(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let (uri, headers) = (request.uri().clone(), request.headers().clone());
    let changes = !request.method().is_safe();
    let origin = door.origins.allowed_in(&headers).cloned();
    let mut response = match door.asker(changes, &uri, &headers).await {
        Ok(_) if origin.is_some() && cors::is_preflight(&request) => cors::preflight(),
        Ok(asker) => {
            request.extensions_mut().insert(asker);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    door.origins.mark(&mut response, origin);
    response
}

impl Door {
    async fn asker(
        &self,
        changes: bool,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Asker, ApiError> {
        let password_set = self.desk.password_set().await?;
        // A password, once set, counts everywhere, and then a proxy may stand before this machine.
        let access = match password_set {
            true => Access::Open,
            false => self.access,
        };
        check(access, &self.origins, changes, uri, headers)?;
        if access == Access::Loopback {
            return Ok(Asker::local());
        }
        recognise(&self.desk, self.open_calls, uri, headers).await
    }
}

/// The rules.
///
/// # Errors
/// [`AccessError`] says which rule was broken.
pub fn check(
    access: Access,
    origins: &Origins,
    changes: bool,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), AccessError> {
    let text = |name: &str| {
        // Two of them name no host and no origin: joined they match nothing.
        let values = headers.get_all(name).iter();
        let values: Vec<_> = values
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    };
    let host = uri
        .authority()
        .map(|authority| authority.to_string())
        .or_else(|| text(header::HOST.as_str()))
        .unwrap_or_default();
    if access == Access::Loopback {
        if !is_loopback(&host) {
            return Err(AccessError::Host { host });
        }
        let forwarded = FORWARDING_HEADERS
            .iter()
            .find(|name| headers.contains_key(**name));
        if let Some(header) = forwarded {
            return Err(AccessError::Forwarded { header });
        }
    }
    // Without a password every page in a browser of this machine could ask as its operator: reading is refused to it by
    // the browser, but asking alone can have this server compute. Following a link is harmless.
    let asks_as_operator =
        access == Access::Loopback && text("sec-fetch-mode").as_deref() != Some("navigate");
    if !changes && !asks_as_operator && !headers.contains_key(header::SEC_WEBSOCKET_KEY) {
        return Ok(());
    }
    let Some(origin) = text(header::ORIGIN.as_str()) else {
        // Programs send none, and browsers always do, but for requests that say where they come from.
        return match text("sec-fetch-site").as_deref() {
            Some("cross-site") => Err(AccessError::elsewhere()),
            // Another port of this machine.
            Some("same-site") if changes || access != Access::Loopback => {
                Err(AccessError::elsewhere())
            }
            _ => Ok(()),
        };
    };
    let page_host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    match page_host {
        Some(page_host) if page_host.eq_ignore_ascii_case(&host) => Ok(()),
        // Another port of this machine: a page that is being developed, say.
        Some(page_host) if access == Access::Loopback && is_loopback(page_host) => Ok(()),
        _ if origins.contains(&origin) => Ok(()),
        _ => Err(AccessError::Origin { origin }),
    }
}

/// Whether `host`, with or without a port, is a name of this machine that cannot be pointed elsewhere.
fn is_loopback(host: &str) -> bool {
    let names = ["localhost", "127.0.0.1", "[::1]"];
    let rest = names.iter().find_map(|name| {
        let (head, rest) = host.split_at_checked(name.len())?;
        head.eq_ignore_ascii_case(name).then_some(rest)
    });
    match rest {
        Some("") => true,
        Some(port) => port
            .strip_prefix(':')
            .is_some_and(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(access: Access, headers: &[(&'static str, &str)]) -> Result<(), &'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let origins: Origins = "https://desk.example".parse().unwrap();
        let uri = Uri::from_static("/api/chat");
        check(access, &origins, false, &uri, &map).map_err(|error| error.code())
    }

    #[test]
    fn without_a_password_only_this_machine_is_let_in() {
        let host = Err("host_refused");
        let forwarded = Err("forwarded_refused");
        let cases: [(&[(&str, &str)], _); 18] = [
            (&[("host", "localhost:8998")], Ok(())),
            (&[("host", "LOCALHOST")], Ok(())),
            (&[("host", "127.0.0.1:80")], Ok(())),
            (&[("host", "[::1]:8998")], Ok(())),
            (&[], host),
            (&[("host", "")], host),
            (&[("host", "box.example:8998")], host),
            (&[("host", "localhost.evil.example")], host),
            (&[("host", "localhost:8998.evil.example")], host),
            (&[("host", "localhost:")], host),
            (&[("host", "127.0.0.1.nip.io")], host),
            (&[("host", "192.168.0.7:8998")], host),
            (&[("host", "évil")], host),
            (
                &[("host", "localhost"), ("x-forwarded-for", "1.2.3.4")],
                forwarded,
            ),
            (
                &[("host", "localhost"), ("forwarded", "for=1.2.3.4")],
                forwarded,
            ),
            (&[("host", "localhost"), ("via", "1.1 proxy")], forwarded),
            (&[("host", "localhost"), ("cf-ray", "1")], forwarded),
            (&[("host", "localhost"), ("host", "evil.example")], host),
        ];
        for (headers, expected) in cases {
            assert_eq!(asked(Access::Loopback, headers), expected, "{headers:?}");
            assert_eq!(asked(Access::Open, headers), Ok(()), "{headers:?}");
        }
    }

    #[test]
    fn pages_of_other_sites_cannot_open_a_call() {
        let refused = Err("origin_refused");
        let cases = [
            (
                Access::Loopback,
                "localhost:8998",
                "http://localhost:8998",
                Ok(()),
            ),
            (
                Access::Loopback,
                "localhost:8998",
                "http://127.0.0.1:5173",
                Ok(()),
            ),
            (
                Access::Loopback,
                "localhost:8998",
                "https://evil.example",
                refused,
            ),
            (Access::Loopback, "localhost:8998", "null", refused),
            (Access::Open, "box.example", "https://box.example", Ok(())),
            (
                Access::Open,
                "box.example",
                "https://box.example:8443",
                refused,
            ),
            (
                Access::Open,
                "box.example",
                "http://localhost:5173",
                refused,
            ),
            (Access::Open, "box.example", "https://evil.example", refused),
            (Access::Open, "box.example", "https://desk.example", Ok(())),
            (Access::Open, "box.example", "http://desk.example", refused),
            (
                Access::Loopback,
                "localhost:8998",
                "https://desk.example",
                Ok(()),
            ),
        ];
        for (access, host, origin, expected) in cases {
            let headers = [
                ("host", host),
                ("origin", origin),
                ("sec-websocket-key", "x"),
            ];
            assert_eq!(asked(access, &headers), expected, "{access:?} {headers:?}");
            let reading = asked(access, &headers[..2]);
            match access {
                Access::Open => assert_eq!(reading, Ok(()), "{headers:?}"),
                Access::Loopback => assert_eq!(reading, expected, "{headers:?}"),
            }
        }
    }

    #[test]
    fn without_a_password_other_sites_cannot_even_ask_but_links_work() {
        let cases: [(&[(&str, &str)], _); 5] = [
            (&[("sec-fetch-site", "cross-site")], Err("origin_refused")),
            (
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "no-cors"),
                ],
                Err("origin_refused"),
            ),
            (
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "navigate"),
                ],
                Ok(()),
            ),
            (&[("sec-fetch-site", "same-origin")], Ok(())),
            (&[("sec-fetch-site", "none")], Ok(())),
        ];
        for (headers, expected) in cases {
            let headers = [&[("host", "localhost:8998")], headers].concat();
            assert_eq!(asked(Access::Loopback, &headers), expected, "{headers:?}");
        }
    }
}
