//! The page's program. On the host there is nothing to run.

#[cfg(target_arch = "wasm32")]
mod io;
#[cfg(target_arch = "wasm32")]
mod pages;
#[cfg(target_arch = "wasm32")]
mod view;

#[cfg(target_arch = "wasm32")]
fn main() {
    console_error_panic_hook::set_once();
    leptos::mount::mount_to_body(pages::App);
}

#[cfg(not(target_arch = "wasm32"))]
fn main() {}
