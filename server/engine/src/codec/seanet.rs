//! The codec's convolutions: a sequence of convolutions, residual blocks and ELUs, all causal, each with its carry.

use crate::backend::{Backend, ConvShape, ConvTrShape, Done, Lanes};
use crate::config::{MimiConfig, SeanetConfig};
use crate::model::{BuildError, Loader};

/// The entries of one side, in the order of the published `Sequential`, whose indices are in the tensors' names.
pub(super) struct Sequence<B: Backend> {
    entries: Vec<Entry<B>>,
    inner: B::Buf,
    hidden: B::Buf,
}

enum Entry<B: Backend> {
    Conv(B::Conv, B::Carry),
    ConvTr(B::ConvTr, B::Carry),
    /// `x + narrow(elu(wide(elu(x))))`.
    Residual {
        wide: (B::Conv, B::Carry),
        narrow: (B::Conv, B::Carry),
    },
    Elu,
}

/// Builds entries one after the other; the index of the next one is the number of those there are.
struct Builder<'a, 'b, B: Backend> {
    loader: &'a mut Loader<'b, B>,
    side: &'static str,
    rows: usize,
    entries: Vec<Entry<B>>,
}

impl<B: Backend> Builder<'_, '_, B> {
    fn load_conv(
        &mut self,
        name: &str,
        shape: ConvShape,
    ) -> Result<(B::Conv, B::Carry), BuildError> {
        let weight = self.loader.values(&format!("{name}.conv.conv.weight"))?;
        let bias = self.loader.values(&format!("{name}.conv.conv.bias"))?;
        let conv = self.loader.backend.conv(shape, &weight, Some(&bias))?;
        let carry = self.loader.backend.carry(self.rows, &conv)?;
        Ok((conv, carry))
    }

    fn name(&self) -> String {
        format!("{}.model.{}", self.side, self.entries.len())
    }

    fn conv(
        &mut self,
        channels_in: usize,
        channels_out: usize,
        kernel: usize,
        stride: usize,
    ) -> Result<(), BuildError> {
        let shape = plain(channels_in, channels_out, kernel, stride);
        let (conv, carry) = self.load_conv(&self.name(), shape)?;
        self.entries.push(Entry::Conv(conv, carry));
        Ok(())
    }

    fn conv_tr(&mut self, channels_in: usize, stride: usize) -> Result<(), BuildError> {
        let shape = ConvTrShape {
            channels_in,
            channels_out: channels_in / 2,
            stride,
            depthwise: false,
        };
        let name = self.name();
        let weight = self
            .loader
            .values(&format!("{name}.convtr.convtr.weight"))?;
        let bias = self.loader.values(&format!("{name}.convtr.convtr.bias"))?;
        let conv = self.loader.backend.conv_tr(shape, &weight, Some(&bias))?;
        let carry = self.loader.backend.carry_tr(self.rows, &conv)?;
        self.entries.push(Entry::ConvTr(conv, carry));
        Ok(())
    }

    fn residuals(&mut self, seanet: &SeanetConfig, width: usize) -> Result<(), BuildError> {
        for number in 0..seanet.n_residual_layers {
            let hidden = width / seanet.compress;
            let dilation = seanet.dilation_base.pow(number as u32);
            let wide = ConvShape {
                dilation,
                ..plain(width, hidden, seanet.residual_kernel_size, 1)
            };
            let name = self.name();
            let wide = self.load_conv(&format!("{name}.block.1"), wide)?;
            let narrow = self.load_conv(&format!("{name}.block.3"), plain(hidden, width, 1, 1))?;
            self.entries.push(Entry::Residual { wide, narrow });
        }
        Ok(())
    }

    fn elu(&mut self) {
        self.entries.push(Entry::Elu);
    }

    fn done(self) -> Sequence<B> {
        Sequence {
            entries: self.entries,
            inner: B::Buf::default(),
            hidden: B::Buf::default(),
        }
    }
}

fn plain(channels_in: usize, channels_out: usize, kernel: usize, stride: usize) -> ConvShape {
    ConvShape {
        channels_in,
        channels_out,
        kernel,
        stride,
        dilation: 1,
        replicate: false,
    }
}

impl<B: Backend> Sequence<B> {
    /// PCM to the transformer's width.
    pub(super) fn encoder(
        loader: &mut Loader<'_, B>,
        mimi: &MimiConfig,
        rows: usize,
    ) -> Result<Self, BuildError> {
        let seanet = &mimi.seanet;
        let mut b = Builder {
            loader,
            side: "encoder",
            rows,
            entries: Vec::new(),
        };
        let mut width = seanet.n_filters;
        b.conv(mimi.channels, width, seanet.kernel_size, 1)?;
        for &ratio in seanet.ratios.iter().rev() {
            b.residuals(seanet, width)?;
            b.elu();
            b.conv(width, 2 * width, 2 * ratio, ratio)?;
            width *= 2;
        }
        b.elu();
        b.conv(width, seanet.dimension, seanet.last_kernel_size, 1)?;
        Ok(b.done())
    }

    /// The transformer's width to PCM.
    pub(super) fn decoder(
        loader: &mut Loader<'_, B>,
        mimi: &MimiConfig,
        rows: usize,
    ) -> Result<Self, BuildError> {
        let seanet = &mimi.seanet;
        let mut b = Builder {
            loader,
            side: "decoder",
            rows,
            entries: Vec::new(),
        };
        let mut width = seanet.n_filters << seanet.ratios.len();
        b.conv(seanet.dimension, width, seanet.kernel_size, 1)?;
        for &ratio in &seanet.ratios {
            b.elu();
            b.conv_tr(width, ratio)?;
            width /= 2;
            b.residuals(seanet, width)?;
        }
        b.elu();
        b.conv(width, mimi.channels, seanet.last_kernel_size, 1)?;
        Ok(b.done())
    }

    pub(super) fn reset(&mut self, backend: &mut B, row: usize) -> Done {
        for entry in &mut self.entries {
            match entry {
                Entry::Conv(_, carry) | Entry::ConvTr(_, carry) => {
                    backend.carry_reset(carry, row)?;
                }
                Entry::Residual { wide, narrow } => {
                    backend.carry_reset(&mut wide.1, row)?;
                    backend.carry_reset(&mut narrow.1, row)?;
                }
                Entry::Elu => {}
            }
        }
        Ok(())
    }

    /// Runs all entries on `x`, which becomes the output; `y` is lent. `tap` sees the output of each entry.
    pub(super) fn forward(
        &mut self,
        backend: &mut B,
        lanes: &Lanes,
        x: &mut B::Buf,
        y: &mut B::Buf,
        tap: &mut dyn FnMut(&mut B, usize, &B::Buf) -> Done,
    ) -> Done {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            match entry {
                Entry::Conv(conv, carry) => {
                    backend.conv_step(conv, carry, lanes, x, y, false)?;
                    std::mem::swap(x, y);
                }
                Entry::ConvTr(conv, carry) => {
                    backend.conv_tr_step(conv, carry, lanes, x, y)?;
                    std::mem::swap(x, y);
                }
                Entry::Residual { wide, narrow } => {
                    backend.copy(x, &mut self.inner)?;
                    backend.elu(&mut self.inner)?;
                    let (conv, carry) = wide;
                    let (inner, hidden) = (&self.inner, &mut self.hidden);
                    backend.conv_step(conv, carry, lanes, inner, hidden, false)?;
                    backend.elu(hidden)?;
                    let (conv, carry) = narrow;
                    backend.conv_step(conv, carry, lanes, hidden, x, true)?;
                }
                Entry::Elu => backend.elu(x)?,
            }
            tap(backend, index, x)?;
        }
        Ok(())
    }
}
