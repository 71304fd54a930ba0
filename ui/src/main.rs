//! The browser's side: talk page and operator pages.
fn main() {}
