//! Requests to the server; errors as it words them.

use gloo_net::http::{Method, Request, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::api::ErrorBody;

use super::page::address;

/// Why there is no answer, for people and for what decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// 0 when the server could not be reached.
    pub status: u16,
    pub code: String,
    pub text: String,
}

impl Problem {
    /// Something the page found out by itself.
    pub fn of_page(text: String) -> Self {
        Self {
            status: 0,
            code: "page".to_owned(),
            text,
        }
    }

    fn unreachable() -> Self {
        Self {
            status: 0,
            code: "unreachable".to_owned(),
            text: "The server cannot be reached.".to_owned(),
        }
    }
}

pub type Answer<T> = Result<T, Problem>;

fn request(method: Method, path: &str) -> RequestBuilder {
    RequestBuilder::new(&address(path)).method(method)
}

async fn checked(response: Result<Response, gloo_net::Error>) -> Answer<Response> {
    let response = response.map_err(|_| Problem::unreachable())?;
    if response.ok() {
        return Ok(response);
    }
    let status = response.status();
    let told = response
        .json::<ErrorBody>()
        .await
        .ok()
        .map(|body| body.error);
    Err(match told {
        Some(error) => Problem {
            status,
            code: error.code,
            text: match error.hint {
                Some(hint) => format!("{} ({hint})", error.message),
                None => error.message,
            },
        },
        None => Problem {
            status,
            code: "unknown".to_owned(),
            text: format!("The server answered {status}."),
        },
    })
}

async fn read<T: DeserializeOwned>(response: Response) -> Answer<T> {
    let status = response.status();
    response.json().await.map_err(|error| Problem {
        status,
        code: "unreadable".to_owned(),
        text: format!("The server's answer cannot be read: {error}"),
    })
}

pub async fn get<T: DeserializeOwned>(path: &str) -> Answer<T> {
    read(checked(Request::get(&address(path)).send().await).await?).await
}

pub async fn delete(path: &str) -> Answer<()> {
    checked(request(Method::DELETE, path).send().await)
        .await
        .map(drop)
}

/// A POST without a body whose answer is of no interest.
pub async fn post_empty(path: &str) -> Answer<()> {
    checked(request(Method::POST, path).send().await)
        .await
        .map(drop)
}

/// A body and, for a change, the version it is made to.
pub async fn send<B: Serialize, T: DeserializeOwned>(
    method: Method,
    path: &str,
    version: Option<i64>,
    body: &B,
) -> Answer<T> {
    let mut request = request(method, path);
    if let Some(version) = version {
        request = request.header("if-match", &format!("\"{version}\""));
    }
    let request = request.json(body).map_err(|_| Problem::unreachable())?;
    read(checked(request.send().await).await?).await
}

pub async fn post<B: Serialize, T: DeserializeOwned>(path: &str, body: &B) -> Answer<T> {
    send(Method::POST, path, None, body).await
}

pub async fn put<B: Serialize, T: DeserializeOwned>(
    path: &str,
    version: i64,
    body: &B,
) -> Answer<T> {
    send(Method::PUT, path, Some(version), body).await
}
