//! Whether the server still has the program that runs in this page: it may have been replaced by a newer one meanwhile.

use std::cell::RefCell;
use std::rc::Rc;

use gloo_net::http::Request;
use leptos::task::spawn_local;

use super::page;

thread_local! {
    static OTHER: RefCell<Option<Rc<dyn Fn()>>> = RefCell::default();
}

/// `then` is done when the server's page is found to be another one.
pub fn when_other(then: impl Fn() + 'static) {
    OTHER.with(|told| *told.borrow_mut() = Some(Rc::new(then)));
}

/// Looks once. To be called when a broken line stands again: that is when servers are replaced.
pub(super) fn look() {
    let Some(then) = OTHER.with(|told| told.borrow().clone()) else {
        return;
    };
    // Files are named by their content, so the first script stands for all.
    let own = page::script();
    spawn_local(async move {
        let Ok(answer) = Request::get(&page::root()).send().await else {
            return;
        };
        let served = answer.text().await.unwrap_or_default();
        // Anything else is a proxy that has no server yet.
        let is_page = answer.ok() && served.contains("data-root");
        if is_page && !own.is_empty() && !served.contains(&own) {
            then();
        }
    });
}
