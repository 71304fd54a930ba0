//! The model that is part of the program, used when no other is named.
//!
//! Lives here: the embedded files. What they are and how they were made: `demo/README.md` of this crate.

use crate::weights::{Checkpoint, LoadError, StaticFiles};

const FILES: StaticFiles = StaticFiles {
    name: "built-in demo model",
    config: include_bytes!("../demo/checkpoint/config.json"),
    lm: include_bytes!("../demo/checkpoint/model.safetensors"),
    codec: include_bytes!("../demo/checkpoint/tokenizer-e351c8d8-checkpoint125.safetensors"),
    tokenizer: include_bytes!("../demo/checkpoint/tokenizer_spm_32k_3.model"),
    voices: include_bytes!("../demo/checkpoint/voices.tgz"),
};

impl Checkpoint {
    /// The built-in demo model: greets, listens, answers; four personas and two voices.
    ///
    /// # Errors
    /// [`LoadError`] only if the embedded files were damaged when the program was built.
    pub fn demo() -> Result<Self, LoadError> {
        Self::from_static(&FILES)
    }
}
