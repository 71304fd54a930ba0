//! Parts of the network alone, with random weights and every row at a full window: what a clock is held against.
//!
//! Lives here: [`Part`] (what can be stepped alone, and in which sizes) and [`Rig`] (one part on one backend).
//! May not live here: clocks, arguments, output.
//! Start reading at [`Rig::tick`].

mod codec;
mod lm;
mod noise;
mod window;

use slots::engine::EngineError;

use crate::backend::{Backend, Done};
use crate::config::ModelConfig;
use crate::model::BuildError;

use codec::CodecRig;
use lm::LmRig;

pub(crate) use noise::Noise;
pub(crate) use window::{codec_cells, temporal_cells};

/// A part of the network that can be stepped alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Codec in its published size, PCM to codes.
    MimiEncode,
    /// Codec in its published size, codes to PCM.
    MimiDecode,
    /// `mid`: embeddings, temporal transformer, text head, text token, depformer, codes.
    LmStep,
    /// `mid`: embeddings, temporal transformer, text head.
    LmTemporal,
    /// `mid`: depformer and codes.
    LmDepformer,
    /// One layer of the temporal transformer in its published size.
    TemporalLayer,
    /// The depformer in its published size, the steps that serving runs.
    Depformer,
}

/// A network that one or several parts belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The codec.
    Codec,
    /// Both transformers of the preset `mid`.
    Mid,
    /// One layer of the published temporal transformer.
    Layer,
    /// The published depformer.
    Depformer,
}

impl Part {
    /// The network it is a part of; parts of one network share a [`Rig`].
    pub fn network(self) -> Network {
        match self {
            Self::MimiEncode | Self::MimiDecode => Network::Codec,
            Self::LmStep | Self::LmTemporal | Self::LmDepformer => Network::Mid,
            Self::TemporalLayer => Network::Layer,
            Self::Depformer => Network::Depformer,
        }
    }
}

impl Network {
    /// Its sizes. What the parts do not use is left as it is or made small.
    pub fn config(self) -> ModelConfig {
        let published = ModelConfig::published();
        match self {
            Self::Codec => published,
            Self::Mid => ModelConfig::mid(),
            Self::Layer => {
                let mut config = published;
                config.lm.num_layers = 1;
                // Embeddings and head are no part of a layer.
                (config.lm.card, config.lm.text_card) = (1, 1);
                config.depformer.num_layers = 0;
                config
            }
            Self::Depformer => {
                let mut config = published;
                config.depformer.steps = config.codes();
                config.lm.num_layers = 0;
                config
            }
        }
    }
}

/// One network on one backend, with state of its own for every row.
pub struct Rig<B: Backend> {
    backend: B,
    network: Network,
    rows: usize,
    built: Built<B>,
}

enum Built<B: Backend> {
    Codec(Box<CodecRig<B>>),
    Lm(Box<LmRig<B>>),
}

impl<B: Backend> Rig<B> {
    /// Builds `network` in the sizes of `config` with random weights and `rows` rows, all at a full window.
    ///
    /// # Errors
    /// [`BuildError`]: the device refused.
    pub fn new(
        mut backend: B,
        network: Network,
        config: &ModelConfig,
        rows: usize,
    ) -> Result<Self, BuildError> {
        let built = match network {
            Network::Codec => Built::Codec(Box::new(CodecRig::new(&mut backend, config, rows)?)),
            network => Built::Lm(Box::new(LmRig::new(&mut backend, network, config, rows)?)),
        };
        Ok(Self {
            backend,
            network,
            rows,
            built,
        })
    }

    /// What it was built for.
    pub fn network(&self) -> Network {
        self.network
    }

    /// Whether it can be stepped with `batch` rows: a backend that pads always computes all rows, so there a smaller
    /// batch needs a rig of its own.
    pub fn takes(&self, batch: usize) -> bool {
        batch == self.rows || batch < self.rows && !self.backend.padded()
    }

    /// One line for logs: device and storage types.
    pub fn describe(&self) -> String {
        self.backend.describe()
    }

    /// Steps `part` once for the rows `0..batch` and waits until the device is done.
    ///
    /// # Errors
    /// The device failed, the random weights gave a number that is not finite, or `part` is of another network.
    pub fn tick(&mut self, part: Part, batch: usize) -> Done {
        if part.network() != self.network || !self.takes(batch) {
            let what = format!(
                "{part:?} of {batch} rows asked of a rig for {:?}",
                self.network
            );
            return Err(EngineError { what });
        }
        match &mut self.built {
            Built::Codec(codec) => codec.tick(&mut self.backend, part, batch)?,
            Built::Lm(lm) => lm.tick(&mut self.backend, part, batch)?,
        }
        self.backend.synchronize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::KvDtype;
    use crate::kernels::Dtype;
    use crate::native::Native;

    /// The shape of everything, in sizes that a test has time for.
    fn tiny(network: Network) -> ModelConfig {
        let mut config = network.config();
        let lm = &mut config.lm;
        (lm.dim, lm.num_heads, lm.ffn_dim, lm.context) = (64, 2, 96, 20);
        (lm.num_layers, lm.card, lm.text_card) = (lm.num_layers.min(2), 32, 40);
        let depformer = &mut config.depformer;
        (depformer.dim, depformer.num_heads, depformer.ffn_dim) = (32, 2, 64);
        depformer.num_layers = 2;
        let mimi = &mut config.mimi;
        (mimi.seanet.n_filters, mimi.seanet.dimension) = (4, 32);
        (mimi.transformer.dim, mimi.transformer.num_heads) = (32, 2);
        (mimi.transformer.num_layers, mimi.transformer.ffn_dim) = (1, 64);
        (mimi.transformer.context, mimi.quantizer.dimension) = (30, 16);
        mimi.quantizer.bins = 32;
        config
    }

    #[test]
    fn every_part_steps_any_number_of_its_rows_in_every_number_format() {
        use Part::*;
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::Q8_0] {
            for parts in [
                &[MimiEncode, MimiDecode][..],
                &[LmStep, LmTemporal, LmDepformer],
                &[TemporalLayer],
                &[Depformer],
            ] {
                let network = parts[0].network();
                let backend = Native::new(dtype, KvDtype::F32, 1);
                let mut rig = Rig::new(backend, network, &tiny(network), 3).expect("it is built");
                for &part in parts {
                    for batch in [1, 3, 2] {
                        rig.tick(part, batch).unwrap_or_else(|error| {
                            panic!("{part:?} {dtype:?}, {batch} rows: {error}")
                        });
                    }
                }
                assert!(rig.tick(parts[0], 4).is_err(), "there are 3 rows");
            }
        }
    }

    #[test]
    fn a_rig_steps_no_part_of_another_network() {
        let backend = Native::new(Dtype::F32, KvDtype::F32, 1);
        let network = Network::Depformer;
        let mut rig = Rig::new(backend, network, &tiny(network), 1).expect("it is built");
        assert!(rig.tick(Part::LmDepformer, 1).is_err());
    }

    #[test]
    fn the_networks_have_the_sizes_they_are_named_after() {
        let layer = Network::Layer.config();
        let found = (
            layer.lm.dim,
            layer.lm.ffn_dim,
            layer.lm.context,
            layer.lm.num_layers,
        );
        assert_eq!(found, (4_096, 11_264, 3_000, 1));
        let depformer = Network::Depformer.config().depformer;
        let found = (
            depformer.dim,
            depformer.num_layers,
            depformer.ffn_dim,
            depformer.steps,
        );
        assert_eq!(found, (1_024, 6, 2_816, 8));
        let mid = Network::Mid.config();
        assert_eq!((mid.lm.audio_streams, mid.lm.card), (16, 2_048));
    }
}
