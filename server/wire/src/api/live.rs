//! What the Live page shows. The server sends it as server-sent events at `/api/events`.

use serde::{Deserialize, Serialize};

/// One event of the stream; the event's name is the variant's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LiveEvent {
    /// Four times a second: everything that moves.
    Board(Board),
    /// Once at the beginning: the last ten minutes of ticks, oldest first.
    History {
        /// One for each second, without gaps in time but for a pause of the process.
        seconds: Vec<TickSecond>,
    },
    /// Once a second after that.
    Second(TickSecond),
    /// A list has changed and should be asked for again.
    Changed {
        /// Which one.
        what: Changed,
    },
}

/// A list that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    /// `/api/personas`.
    Personas,
    /// `/api/voices`.
    Voices,
    /// `/api/sessions`.
    Sessions,
    /// Settings, tokens, password.
    System,
}

impl Changed {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Personas, Self::Voices, Self::Sessions, Self::System];
}

/// The switchboard now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Board {
    /// Unix milliseconds.
    pub at_ms: i64,
    /// In one word.
    pub state: super::HealthState,
    /// Whether new callers are taken as far as time goes: closed while the p99 tick is above 72 ms.
    pub admission_open: bool,
    /// Callers without a slot, by place.
    pub waiting: u32,
    /// One for each slot.
    pub slots: Vec<SlotView>,
    /// Median tick of the last 60 s, in microseconds; 0 when no row was stepped.
    pub tick_p50_us: u32,
    /// 99th percentile of the last 60 s.
    pub tick_p99_us: u32,
    /// Since the start.
    pub totals: Totals,
    /// Snapshots of prompts.
    pub prompt_cache: PromptCache,
    /// What computes.
    pub device: DeviceView,
}

/// One slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SlotView {
    /// From 0.
    pub row: u32,
    /// What it is doing.
    pub phase: SlotPhase,
    /// Who holds it; absent when it is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallView>,
}

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SlotPhase {
    /// Nobody holds it.
    Free,
    /// Held; the prompt is not begun.
    Queued,
    /// The prompt is being read.
    Prefill,
    /// Full duplex.
    Live,
    /// Over; free with the next tick.
    Closing,
}

/// A call that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CallView {
    /// Its session, also for hanging up and listening in.
    pub session: i64,
    /// As in the log.
    pub caller: String,
    /// Name of the persona.
    pub persona: String,
    /// Name of the voice.
    pub voice: String,
    /// Since the ready byte, in milliseconds.
    pub elapsed_ms: u32,
    /// Loudness of the caller's newest frame.
    pub caller_level: u8,
    /// Loudness of the agent's newest frame.
    pub agent_level: u8,
    /// Frames due and not delivered.
    pub deficit: u32,
    /// Frames of the caller that were dropped.
    pub drops: u32,
    /// How long the caller's frames wait for the tick, in microseconds.
    pub mic_wait_us: u32,
    /// The last words of the agent, up to 120 characters.
    pub words: String,
    /// Operators who listen in.
    pub listeners: u32,
    /// Whether it is being recorded.
    pub recorded: bool,
}

/// One second of ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TickSecond {
    /// Unix seconds.
    pub at_s: i64,
    /// Mean of the second's ticks that stepped a row, in microseconds; 0 without any.
    pub mean_us: u32,
    /// The longest.
    pub max_us: u32,
    /// Slots that were live.
    pub live: u16,
    /// Ticks that ended after the next one was due.
    pub late: u16,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Totals {
    /// Callers who got a slot or a waiting place.
    pub joined: u64,
    /// Callers who were refused.
    pub refused: u64,
    /// Frames handed to listeners.
    pub frames: u64,
    /// Frames due and not delivered.
    pub deficit: u64,
    /// Frames of callers that were dropped.
    pub drops: u64,
    /// Ticks that ended after the next one was due.
    pub late_ticks: u64,
    /// Since the process began, in seconds.
    pub up_s: u64,
}

/// Snapshots of prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PromptCache {
    /// Calls whose prompt was known.
    pub hits: u64,
    /// Calls whose prompt had to be read.
    pub misses: u64,
    /// Memory in use.
    pub bytes: u64,
}

/// What computes, and how much memory it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceView {
    /// For people: `CPU, 2 threads`, `NVIDIA H200`.
    pub name: String,
    /// Name of the model.
    pub model: String,
    /// Memory of this process, in bytes; absent where the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_bytes: Option<u64>,
    /// Memory of the device in use and in all; absent on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<(u64, u64)>,
}
