//! Sound between bytes and frames, the same on both ends of the line: Ogg, Opus, and what recognises other containers.
//!
//! Lives here: the push parser and the writer of Ogg pages, the wrapper of libopus. Everything works on slices and is done
//! by whoever calls it; the server and the browser's side use the same code.
//! May not live here: sockets, tasks, queues, the tick, other sample rates.
//! Start reading at [`opus_read::OpusReader`] and [`opus_write::OpusWriter`].
#![warn(missing_docs)]

pub mod container;
pub mod ogg_read;
pub mod ogg_write;
pub mod opus_codec;
pub mod opus_read;
pub mod opus_write;
