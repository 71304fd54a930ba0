//! Sound on its way between bytes and frames: Ogg, Opus, other sample rates.
//!
//! Lives here: the push parser and the writer of Ogg pages, the wrapper of libopus, what recognises a wrong container,
//! offline resampling. Everything works on slices and is done by whoever calls it.
//! May not live here: sockets, tasks, queues, the tick.
//! Start reading at [`opus_read::OpusReader`] and [`opus_write::OpusWriter`].

pub mod container;
pub mod ogg_read;
pub mod ogg_write;
pub mod opus_codec;
pub mod opus_read;
pub mod opus_write;
pub mod resample;
