//! Small components; each does one thing and fits on a screen.

pub mod ask;
pub mod diff;
pub mod icons;
pub mod loaded;
pub mod once;
pub mod player;
pub mod theme;
pub mod ticks;
pub mod to;
pub mod waves;
