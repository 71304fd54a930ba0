//! A language model of middle size, whose sizes measurements on small machines are stated in.
//!
//! Lives here: its numbers, as differences to the published ones. There are no weights of it.

use super::{DepformerConfig, LmConfig, ModelConfig};

impl ModelConfig {
    /// The preset `mid`: about 0.2 billion parameters, a window of one minute.
    pub fn mid() -> Self {
        let published = Self::published();
        Self {
            lm: LmConfig {
                dim: 1_024,
                num_heads: 8,
                num_layers: 8,
                ffn_dim: 2_816,
                context: 750,
                text_card: 8_000,
                ..published.lm
            },
            depformer: DepformerConfig {
                dim: 512,
                num_heads: 8,
                num_layers: 4,
                ffn_dim: 1_408,
                steps: 8,
                ..published.depformer
            },
            ..published
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_can_be_built_from_it() {
        ModelConfig::mid().check().expect("the sizes fit together");
    }
}
