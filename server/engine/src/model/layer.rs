//! One gated pre-norm transformer layer, as both the temporal transformer and the depformer have it.

use crate::backend::{Backend, Done, Query, WriteOrder};

/// The weights one layer uses in one step. Source: temporal layers and depformer steps have the same form.
pub(super) struct GatedLayer<'a, B: Backend> {
    pub norm1: &'a B::Vector,
    pub in_proj: &'a B::Weight,
    pub out_proj: &'a B::Weight,
    pub norm2: &'a B::Vector,
    pub linear_in: &'a B::Weight,
    pub linear_out: &'a B::Weight,
    pub hidden: usize,
    pub norm_eps: f32,
}

/// Activations between the operations of a layer.
pub(super) struct Scratch<B: Backend> {
    /// Residual stream `[n, dim]`.
    pub x: B::Buf,
    /// Normed `[n, dim]`.
    pub normed: B::Buf,
    qkv: B::Buf,
    attended: B::Buf,
    gate: B::Buf,
    gated: B::Buf,
}

impl<B: Backend> Default for Scratch<B> {
    fn default() -> Self {
        Self {
            x: B::Buf::default(),
            normed: B::Buf::default(),
            qkv: B::Buf::default(),
            attended: B::Buf::default(),
            gate: B::Buf::default(),
            gated: B::Buf::default(),
        }
    }
}

impl<B: Backend> GatedLayer<'_, B> {
    /// `x += attention(norm1(x))`, then `x += linear_out(silu(a) ⊙ b)` with `[a | b] = linear_in(norm2(x))`.
    pub(super) fn forward(
        &self,
        backend: &mut B,
        ring: &mut B::Ring,
        queries: &[Query],
        order: WriteOrder,
        s: &mut Scratch<B>,
    ) -> Done {
        backend.rms_norm(&s.x, self.norm1, self.norm_eps, &mut s.normed)?;
        backend.linear(self.in_proj, &s.normed, &mut s.qkv)?;
        backend.attend(ring, queries, order, &s.qkv, &mut s.attended)?;
        backend.linear_add(self.out_proj, &s.attended, None, &mut s.x)?;
        backend.rms_norm(&s.x, self.norm2, self.norm_eps, &mut s.normed)?;
        backend.linear(self.linear_in, &s.normed, &mut s.gate)?;
        backend.silu_gate(&s.gate, self.hidden, &mut s.gated)?;
        backend.linear_add(self.linear_out, &s.gated, None, &mut s.x)
    }
}
