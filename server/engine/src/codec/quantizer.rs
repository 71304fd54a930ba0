//! The split residual quantizer: one half for the first, semantic codes, one for the rest; both read the same latent.

use crate::backend::{Backend, Data, Done};
use crate::config::MimiConfig;
use crate::model::{BuildError, Loader};

use super::{CodecTap, Tap};

/// Where codes go.
pub(super) enum CodesTo<'a> {
    /// `[lanes, codes]`.
    Host(&'a mut Vec<u32>),
    /// To slots of the board from this one on, one for each code.
    Board(usize),
}

pub(super) struct Quantizer<B: Backend> {
    halves: [Half<B>; 2],
    ids: Vec<i32>,
    layer_codes: Vec<u32>,
    residual: B::Buf,
    sum: B::Buf,
}

struct Half<B: Backend> {
    input_proj: B::Weight,
    output_proj: B::Weight,
    books: Vec<B::Codebook>,
    entries: Vec<B::Table>,
    tap: CodecTap,
}

impl<B: Backend> Quantizer<B> {
    pub(super) fn load(loader: &mut Loader<'_, B>, mimi: &MimiConfig) -> Result<Self, BuildError> {
        let q = &mimi.quantizer;
        let mut half = |name: &str, layers: usize, tap| -> Result<Half<B>, BuildError> {
            let (mut books, mut entries) = (Vec::new(), Vec::new());
            for layer in 0..layers {
                let name = |part| format!("quantizer.{name}.vq.layers.{layer}._codebook.{part}");
                let mut sums = loader.values(&name("embedding_sum"))?;
                let usage = loader.values(&name("cluster_usage"))?;
                for (entry, usage) in sums.chunks_exact_mut(q.dimension).zip(usage) {
                    let usage = usage.max(q.usage_epsilon as f32);
                    entry.iter_mut().for_each(|value| *value /= usage);
                }
                books.push(loader.backend.codebook(q.bins, q.dimension, &sums)?);
                entries.push(loader.backend.table_f32(
                    q.bins,
                    q.dimension,
                    Data::F32(sums.into()),
                )?);
            }
            Ok(Half {
                input_proj: loader.codec_matrix(&format!("quantizer.{name}.input_proj.weight"))?,
                output_proj: loader
                    .codec_matrix(&format!("quantizer.{name}.output_proj.weight"))?,
                books,
                entries,
                tap,
            })
        };
        let semantic = q.n_q_semantic.min(q.n_q_used);
        Ok(Self {
            halves: [
                half("rvq_first", semantic, CodecTap::ProjFirst)?,
                half("rvq_rest", q.n_q_used - semantic, CodecTap::ProjRest)?,
            ],
            ids: Vec::new(),
            layer_codes: Vec::new(),
            residual: B::Buf::default(),
            sum: B::Buf::default(),
        })
    }

    fn codes(&self) -> usize {
        self.halves.iter().map(|half| half.books.len()).sum()
    }

    /// `latent` is `[lanes, dimension]`.
    pub(super) fn encode(
        &mut self,
        backend: &mut B,
        latent: &B::Buf,
        mut codes: CodesTo<'_>,
        tap: Tap<'_, B>,
    ) -> Done {
        let n_codes = self.codes();
        let mut index = 0;
        for half in &self.halves {
            backend.linear(&half.input_proj, latent, &mut self.residual)?;
            tap(backend, half.tap, &self.residual)?;
            for book in &half.books {
                match &mut codes {
                    CodesTo::Host(codes) => {
                        backend.quantize(book, &mut self.residual, &mut self.layer_codes)?;
                        codes.resize(self.layer_codes.len() * n_codes, 0);
                        for (lane, &code) in self.layer_codes.iter().enumerate() {
                            codes[lane * n_codes + index] = code;
                        }
                    }
                    CodesTo::Board(first) => {
                        backend.quantize_to(book, &mut self.residual, *first + index)?;
                    }
                }
                index += 1;
            }
        }
        Ok(())
    }

    /// `codes` is `[lanes, codes]`, all in range or on the board; `latent` becomes `[lanes, dimension]`.
    pub(super) fn decode(&mut self, backend: &mut B, codes: &[i32], latent: &mut B::Buf) -> Done {
        let n_codes = self.codes();
        let mut index = 0;
        for half in self.halves.iter().filter(|half| !half.entries.is_empty()) {
            let tables: Vec<&B::Table> = half.entries.iter().collect();
            self.ids.clear();
            for codes in codes.chunks_exact(n_codes) {
                self.ids
                    .extend_from_slice(&codes[index..index + tables.len()]);
            }
            backend.embed_sum(&tables, &self.ids, &mut self.sum)?;
            if index == 0 {
                backend.linear(&half.output_proj, &self.sum, latent)?;
            } else {
                backend.linear_add(&half.output_proj, &self.sum, None, latent)?;
            }
            index += tables.len();
        }
        Ok(())
    }
}
