//! Small components; each does one thing and fits on a screen.

pub mod loaded;
pub mod ticks;
pub mod waves;
