//! Where the page is, and small things a browser does.

use wasm_bindgen::{JsCast, JsValue};
use web_sys::{Blob, BlobPropertyBag, FocusOptions, HtmlAnchorElement, HtmlElement, Url, Window};

pub fn window() -> Window {
    web_sys::window().expect("a page has a window")
}

fn data(name: &str) -> String {
    let root = window()
        .document()
        .and_then(|document| document.document_element());
    root.and_then(|root| root.get_attribute(name))
        .unwrap_or_default()
}

thread_local! {
    /// Found once, while the page's address is still the one it came from.
    static ROOT: String = {
        let here = window().location().href().unwrap_or_default();
        let way = data("data-root");
        Url::new_with_base(&way, &here).map(|url| url.href()).unwrap_or(here)
    };
}

/// The address of the UI's root, with a slash at its end.
pub fn root() -> String {
    ROOT.with(Clone::clone)
}

/// The path of the root without a slash at its end: what the router puts before its routes.
pub fn base() -> String {
    let path = Url::new(&root())
        .map(|url| url.pathname())
        .unwrap_or_default();
    path.trim_end_matches('/').to_owned()
}

/// The file name of the script that started this page; empty if it has none.
pub fn script() -> String {
    let script = window().document().and_then(|document| {
        document
            .query_selector("script[type=module]")
            .ok()
            .flatten()
    });
    let way = script.and_then(|script| script.get_attribute("src"));
    let way = way.unwrap_or_default();
    way.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Loads the page anew.
pub fn reload() {
    // A browser that refuses leaves it to the person.
    let _ = window().location().reload();
}

/// The token of the share link that this page was opened by, if it was.
pub fn link() -> Option<String> {
    let path = window().location().pathname().ok()?;
    let token = path.strip_prefix(&base())?.strip_prefix("/talk/")?;
    Some(token.to_owned()).filter(|token| !token.is_empty())
}

/// `path` below the root.
pub fn address(path: &str) -> String {
    root() + path
}

/// The same for a WebSocket.
pub fn socket_address(path: &str) -> String {
    let address = address(path);
    match address.strip_prefix("http") {
        Some(rest) => format!("ws{rest}"),
        None => address,
    }
}

/// Address of a worklet's file, put into the page by the bundler.
pub fn worklet(name: &str) -> String {
    let here = window().location().href().unwrap_or_default();
    // The root was right when the page came; it is resolved against that place, not the present one.
    let way = data(&format!("data-{name}"));
    let file = way.rsplit("assets/").next().unwrap_or_default().to_owned();
    match file.is_empty() {
        true => here,
        false => address(&format!("assets/{file}")),
    }
}

/// The query of the page's address, with its question mark.
pub fn query() -> String {
    window().location().search().unwrap_or_default()
}

/// Puts another query (with its question mark, or empty) into the page's address, in place of the one that is there.
pub fn set_query(query: &str) {
    let path = window().location().pathname().unwrap_or_default();
    if let Ok(history) = window().history() {
        // A browser that refuses keeps the address as it is.
        let _ = history.replace_state_with_url(
            &history.state().unwrap_or(JsValue::NULL),
            "",
            Some(&format!("{path}{query}")),
        );
    }
}

/// Whether the browser gives this page a microphone at all.
pub fn is_secure() -> bool {
    window().is_secure_context()
}

/// Whether nobody sees the page: another tab is before it, or it is kept for the way back.
pub fn is_hidden() -> bool {
    window()
        .document()
        .is_some_and(|document| document.hidden())
}

/// Names the page for the browser's tab and history; empty: only the program.
pub fn set_title(name: &str) {
    if let Some(document) = window().document() {
        document.set_title(&match name {
            "" => "vivavoce".to_owned(),
            name => format!("{name} · vivavoce"),
        });
    }
}

/// Moves the keyboard's place to the element with this id, which has to take it.
pub fn go_to(id: &str) {
    let element = window()
        .document()
        .and_then(|document| document.get_element_by_id(id));
    if let Some(element) = element.and_then(|element| element.dyn_into::<HtmlElement>().ok()) {
        // Where the page stands is the router's matter.
        let stay = FocusOptions::new();
        stay.set_prevent_scroll(true);
        let _ = element.focus_with_options(&stay);
    }
}

/// Milliseconds since the page came.
pub fn now_ms() -> f64 {
    window()
        .performance()
        .map_or(0.0, |performance| performance.now())
}

/// Lets the person save `text` as a file.
pub fn save(name: &str, text: &str) -> Result<(), JsValue> {
    let parts = js_sys::Array::of1(&JsValue::from_str(text));
    let kind = BlobPropertyBag::new();
    kind.set_type("text/plain;charset=utf-8");
    let blob = Blob::new_with_str_sequence_and_options(&parts, &kind)?;
    let url = Url::create_object_url_with_blob(&blob)?;
    let document = window().document().ok_or(JsValue::NULL)?;
    let link: HtmlAnchorElement = document.create_element("a")?.unchecked_into();
    link.set_href(&url);
    link.set_download(name);
    link.click();
    Url::revoke_object_url(&url)
}

/// What the person chose before, on this browser.
pub fn recall(name: &str) -> Option<String> {
    window()
        .local_storage()
        .ok()
        .flatten()?
        .get_item(name)
        .ok()
        .flatten()
}

pub fn remember(name: &str, value: &str) {
    if let Ok(Some(storage)) = window().local_storage() {
        // A browser that keeps nothing is fine.
        let _ = storage.set_item(name, value);
    }
}

/// A time as this person's browser writes it.
pub fn local_time(at_ms: i64) -> String {
    let date = js_sys::Date::new(&JsValue::from_f64(at_ms as f64));
    String::from(date.to_locale_string("default", &JsValue::UNDEFINED))
}

/// When a day begins on this person's clock: `day` as a date field gives it. Days after it with `plus_days`.
pub fn day_ms(day: &str, plus_days: u32) -> Option<i64> {
    if day.is_empty() {
        return None;
    }
    // Without a zone a date with a time means the local one.
    let date = js_sys::Date::new(&JsValue::from_str(&format!("{day}T00:00:00")));
    date.set_date(date.get_date() + plus_days);
    Some(date.get_time())
        .filter(|ms| ms.is_finite())
        .map(|ms| ms as i64)
}

/// The text of a file that the person chose; empty if it cannot be read.
pub async fn text_of(file: &web_sys::File) -> String {
    let text = wasm_bindgen_futures::JsFuture::from(file.text()).await;
    text.ok()
        .and_then(|text| text.as_string())
        .unwrap_or_default()
}

pub fn forget(name: &str) {
    if let Ok(Some(storage)) = window().local_storage() {
        let _ = storage.remove_item(name);
    }
}
