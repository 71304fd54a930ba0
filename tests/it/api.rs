//! The HTTP API as a program uses it.
//!
//! Lives here: [`Asking`], requests with JSON. Tests by resource stand in the modules below.

mod calls;
mod live;
mod log;
mod personas;
mod recordings;
mod safety;
mod system;
mod voices;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

use crate::support::TestApp;

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub etag: Option<String>,
    pub cookie: Option<String>,
    pub body: Value,
}

impl Answer {
    async fn of(response: Response) -> Self {
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let (etag, cookie) = (header("etag"), header("set-cookie"));
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        Self {
            status,
            etag,
            cookie,
            body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
        }
    }

    /// The error's code.
    pub fn code(&self) -> &str {
        self.body["error"]["code"]
            .as_str()
            .unwrap_or_else(|| panic!("{self:?}"))
    }

    /// The body of a success.
    pub fn good(self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.body
    }
}

/// Requests to one switchboard, with a cookie or token if there is one.
pub struct Asking<'a> {
    app: &'a TestApp,
    client: Client,
    pub headers: Vec<(&'static str, String)>,
}

impl<'a> Asking<'a> {
    pub fn of(app: &'a TestApp) -> Self {
        Self {
            app,
            client: Client::new(),
            headers: Vec::new(),
        }
    }

    pub fn with(app: &'a TestApp, name: &'static str, value: impl Into<String>) -> Self {
        let mut asking = Self::of(app);
        asking.headers.push((name, value.into()));
        asking
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, self.app.url(path));
        self.headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, value)
        })
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::DELETE, path).send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(
            self.request(Method::POST, path)
                .json(&body)
                .send()
                .await
                .unwrap(),
        )
        .await
    }

    /// A change to version `version`.
    pub async fn put(&self, path: &str, version: i64, body: Value) -> Answer {
        let request = self
            .request(Method::PUT, path)
            .header("if-match", format!("\"{version}\""));
        Answer::of(request.json(&body).send().await.unwrap()).await
    }
}
