//! What a model folder holds, and what is made of it before any device is asked.
//!
//! Everything is compared with `fixtures/tiny2`, a recorded checkpoint with what a reference computed from it, with the
//! published list of tensors in `data`, and with the built-in demo model.

mod archives;
mod demo;
mod draws;
mod folders;
mod staging;
mod support;
mod tensors;
mod tokenisation;
mod voices;
