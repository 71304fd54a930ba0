//! The pages in a real browser (headless Chromium), against the real program with the demo model.
//!
//! Without a browser every test here says loudly that it was left out, and how to get one; with
//! `VIVAVOCE_BROWSER=required` (as in CI) that is a failure. Screenshots of every page lie in `target/screenshots`.

mod chromium;
mod served;
mod ui_files;

use chromium::{Chromium, Window};
use served::Served;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_comes_without_an_error_in_the_console() {
    if !chromium::at_hand("the first page") {
        return;
    }
    let served = Served::start(&[]);
    let window = Chromium::open(Window::default()).await;
    window.goto(&served.page("/")).await;
    window.sees("vivavoce").await;
    window.screenshot("first").await;
    assert_eq!(window.console_errors().await, [""; 0]);
}
