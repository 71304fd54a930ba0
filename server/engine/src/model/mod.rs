//! The two transformers over tokens: the temporal one, a position a frame, and the depformer, a step a code.
//!
//! Lives here: layers, embeddings and heads, written once against [`crate::backend::Backend`].
//! May not live here: sampling, delays, prompts, the codec's transformers (`codec/transformer.rs`).

mod depformer;
mod layer;
mod loader;
mod temporal;
mod window;

pub use depformer::{Depformer, StepChoice};
pub use loader::{BuildError, Loader};
pub use temporal::Temporal;
pub use window::{RingRule, Window};
