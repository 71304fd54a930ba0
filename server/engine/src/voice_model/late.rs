//! A row as after a long call, without the call: for clocks.

use crate::backend::{Backend, Done};
use crate::measure::{codec_cells, temporal_cells};

use super::VoiceModel;

impl<B: Backend> VoiceModel<B> {
    /// Puts every row far into its call: all windows are filled to `fill` (0 to 1), with noise. What is said afterwards
    /// means nothing, but it costs what it costs when calls are that long.
    ///
    /// # Errors
    /// The device failed.
    pub fn stand_late(&mut self, fill: f64) -> Done {
        let context = self.config.lm.context as f64;
        // Twice around, so that no prompt shortens a full one.
        let frames = if fill < 1.0 {
            fill * context
        } else {
            2.0 * context
        };
        let cells = codec_cells(&mut self.backend, &self.config)?;
        self.codec.stand_late(&mut self.backend, &cells)?;
        let cells = temporal_cells(&mut self.backend, &self.config)?;
        let cells = vec![cells; self.config.lm.num_layers];
        for (index, row) in self.rows.iter_mut().enumerate() {
            self.temporal.restore(&mut self.backend, index, &cells)?;
            row.staging.skip(frames as u64);
        }
        Ok(())
    }
}
