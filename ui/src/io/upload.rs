//! Sending a form with a file, with the progress that only the older of the browser's two ways tells.

use serde::de::DeserializeOwned;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use wasm_bindgen_futures::JsFuture;
use web_sys::{FormData, ProgressEvent, XmlHttpRequest};

use super::api::{Answer, Problem};
use super::page::address;

/// Posts `form`; `progress` hears from 0 to 1 how much of it is on its way.
pub async fn post_form<T: DeserializeOwned>(
    path: &str,
    form: &FormData,
    progress: impl Fn(f64) + 'static,
) -> Answer<T> {
    let unreachable = |_| Problem::unreachable();
    let request = XmlHttpRequest::new().map_err(unreachable)?;
    request
        .open_with_async("POST", &address(path), true)
        .map_err(unreachable)?;
    let sent = Closure::<dyn Fn(ProgressEvent)>::new(move |event: ProgressEvent| {
        if event.length_computable() && event.total() > 0.0 {
            progress(event.loaded() / event.total());
        }
    });
    if let Ok(upload) = request.upload() {
        upload.set_onprogress(Some(sent.as_ref().unchecked_ref()));
    }
    // Comes once, whatever the end: answered, failed, broken off.
    let ended = js_sys::Promise::new(&mut |resolve, _| request.set_onloadend(Some(&resolve)));
    request
        .send_with_opt_form_data(Some(form))
        .map_err(unreachable)?;
    let _ = JsFuture::from(ended).await;
    let status = request.status().unwrap_or(0);
    let text = request.response_text().ok().flatten().unwrap_or_default();
    match status {
        0 => Err(Problem::unreachable()),
        200..300 => serde_json::from_str(&text)
            .map_err(|error| Problem::unreadable(status, &error.to_string())),
        _ => Err(Problem::told(status, serde_json::from_str(&text).ok())),
    }
}
