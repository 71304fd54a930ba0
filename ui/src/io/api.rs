//! Requests to the server; errors as it words them.

use std::cell::RefCell;
use std::rc::Rc;

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

    pub(super) fn unreachable() -> Self {
        Self {
            status: 0,
            code: "unreachable".to_owned(),
            text: "The server cannot be reached.".to_owned(),
        }
    }

    pub(super) fn unreadable(status: u16, why: &str) -> Self {
        Self {
            status,
            code: "unreadable".to_owned(),
            text: format!("The server's answer cannot be read: {why}"),
        }
    }

    /// As the server worded it, if it did.
    pub(super) fn told(status: u16, body: Option<ErrorBody>) -> Self {
        match body.map(|body| body.error) {
            Some(error) => Self {
                status,
                code: error.code,
                text: match error.hint {
                    Some(hint) => format!("{} ({hint})", error.message),
                    None => error.message,
                },
            },
            None => Self {
                status,
                code: "unknown".to_owned(),
                text: format!("The server answered {status}."),
            },
        }
    }
}

pub type Answer<T> = Result<T, Problem>;

thread_local! {
    static TURNED_AWAY: RefCell<Option<Rc<dyn Fn()>>> = RefCell::default();
}

/// `then` is done whenever the server does not know any more who asks.
pub fn when_turned_away(then: impl Fn() + 'static) {
    TURNED_AWAY.with(|told| *told.borrow_mut() = Some(Rc::new(then)));
}

pub(super) fn turned_away() {
    if let Some(then) = TURNED_AWAY.with(|told| told.borrow().clone()) {
        then();
    }
}

fn request(method: Method, path: &str) -> RequestBuilder {
    RequestBuilder::new(&address(path)).method(method)
}

async fn checked(response: Result<Response, gloo_net::Error>) -> Answer<Response> {
    let response = response.map_err(|_| Problem::unreachable())?;
    if response.ok() {
        return Ok(response);
    }
    let status = response.status();
    let problem = Problem::told(status, response.json().await.ok());
    if problem.code == "sign_in_needed" {
        turned_away();
    }
    Err(problem)
}

async fn read<T: DeserializeOwned>(response: Response) -> Answer<T> {
    let status = response.status();
    let text = response.text().await;
    understood(status, &text.map_err(|_| Problem::unreachable())?)
}

fn understood<T: DeserializeOwned>(status: u16, text: &str) -> Answer<T> {
    serde_json::from_str(text).map_err(|error| Problem::unreadable(status, &error.to_string()))
}

pub async fn get<T: DeserializeOwned>(path: &str) -> Answer<T> {
    read(checked(Request::get(&address(path)).send().await).await?).await
}

/// As [`get`], but `None` when the answer is `known`, word for word; else what is to be known from now on.
pub async fn get_if_new<T: DeserializeOwned>(
    path: &str,
    known: Option<&str>,
) -> Option<(Answer<T>, Option<String>)> {
    let asked = async {
        let response = checked(Request::get(&address(path)).send().await).await?;
        let status = response.status();
        let text = response.text().await.map_err(|_| Problem::unreachable())?;
        Ok((status, text))
    };
    match asked.await {
        Ok((_, text)) if known == Some(&*text) => None,
        Ok((status, text)) => Some((understood(status, &text), Some(text))),
        Err(problem) => Some((Err(problem), None)),
    }
}

/// A GET whose answer is wanted by somebody else, once it is sure that there is one.
pub async fn reach(path: &str) -> Answer<()> {
    let answer = checked(Request::get(&address(path)).send().await).await?;
    answer
        .binary()
        .await
        .map(drop)
        .map_err(|_| Problem::unreachable())
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

pub async fn patch<B: Serialize, T: DeserializeOwned>(path: &str, body: &B) -> Answer<T> {
    send(Method::PATCH, path, None, body).await
}

pub async fn put<B: Serialize, T: DeserializeOwned>(
    path: &str,
    version: i64,
    body: &B,
) -> Answer<T> {
    send(Method::PUT, path, Some(version), body).await
}
