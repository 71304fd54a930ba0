//! The browser's side of vivavoce: the talk page and the operator's pages.
//!
//! Lives here: `model` (what pages know and decide, tested on the host), `io` (the browser), `view` and `pages`.
#![allow(missing_docs)] // a program's inside: names and heads say what there is

pub mod model;
