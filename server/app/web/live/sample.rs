//! Looks at the board for all open pages: four times a second while there are any, and once a second for the ring of the
//! last ten minutes.

use std::time::Duration;

use tokio::sync::broadcast::error::TryRecvError;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use wire::api::HealthState;
use wire::api::live::{
    Board, CallView, Changed, DeviceView, LiveEvent, PromptCache, SlotPhase, SlotView, TickSecond,
    Totals,
};

use crate::journal::LiveCall;
use crate::stepper::board::{self, Loss};
use crate::store::now_ms;
use crate::web::desk::Desk;
use crate::web::health;

/// Looks a second.
const LOOKS: u32 = 4;
/// Seconds between two questions to the device about its memory.
const DEVICE_SECONDS: u32 = 5;

/// Runs until the desk is gone.
pub(in crate::web) async fn sample(desk: impl Fn() -> Option<Desk>) {
    let mut pace = interval(Duration::from_secs(1) / LOOKS);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let Some((mut news, mut log)) = desk().map(|desk| (desk.news(), desk.journal().changes()))
    else {
        return;
    };
    let mut last = Last::default();
    let mut looks = 0;
    loop {
        pace.tick().await;
        let Some(desk) = desk() else { return };
        let feed = desk.feed();
        looks += 1;
        if looks == LOOKS {
            looks = 0;
            let second = last.second(&desk);
            feed.keep(second);
            if feed.pages() > 0 {
                feed.tell(&LiveEvent::Second(second));
                last.ask_device(&desk);
            }
        }
        if feed.pages() > 0 {
            feed.tell(&board_event(&desk));
        }
        // Told once it can be read, however short the call was.
        if log.has_changed().unwrap_or(false) {
            log.mark_unchanged();
            feed.tell(&LiveEvent::Changed {
                what: Changed::Sessions,
            });
        }
        loop {
            match news.try_recv() {
                Ok(what) => feed.tell(&LiveEvent::Changed { what }),
                Err(TryRecvError::Lagged(_)) => feed.tell_everything_changed(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
    }
}

/// What was there at the last look.
#[derive(Default)]
struct Last {
    steps: u64,
    sum_us: u64,
    late: u64,
    device_asked: u32,
}

impl Last {
    fn second(&mut self, desk: &Desk) -> TickSecond {
        let at_s = now_ms() / 1_000;
        let Ok(room) = desk.room() else {
            return TickSecond {
                at_s,
                ..TickSecond::default()
            };
        };
        let board = room.board();
        let (steps, sum_us) = (board.steps(), board.tick_sum_us());
        let late = board.losses().get(Loss::LateTick);
        let second = TickSecond {
            at_s,
            mean_us: short((sum_us - self.sum_us) / (steps - self.steps).max(1)),
            max_us: short(board.take_tick_max_us()),
            live: board.slots_in(board::SlotPhase::Live) as u16,
            late: (late - self.late).min(u16::MAX.into()) as u16,
        };
        (self.steps, self.sum_us, self.late) = (steps, sum_us, late);
        second
    }

    /// Asks the device about its memory now and then, aside.
    fn ask_device(&mut self, desk: &Desk) {
        let due = self.device_asked.is_multiple_of(DEVICE_SECONDS);
        self.device_asked = self.device_asked.wrapping_add(1);
        if let Some(memory) = desk.facts().device_memory.clone().filter(|_| due) {
            let desk = desk.clone();
            spawn_blocking(move || {
                let bytes = (memory.0)();
                desk.feed().set_device_bytes(bytes);
            });
        }
    }
}

/// Everything that moves, now.
pub(super) fn board_event(desk: &Desk) -> LiveEvent {
    let facts = desk.facts();
    let device = DeviceView {
        name: facts.device.clone(),
        model: facts.model.clone(),
        process_bytes: process_bytes(),
        device_bytes: desk.feed().device_bytes(),
    };
    let Ok(room) = desk.room() else {
        return LiveEvent::Board(Board {
            at_ms: now_ms(),
            state: HealthState::Loading,
            admission_open: false,
            waiting: 0,
            slots: Vec::new(),
            tick_p50_us: 0,
            tick_p99_us: 0,
            totals: Totals::default(),
            prompt_cache: PromptCache::default(),
            device,
        });
    };
    let board = room.board();
    let calls = desk.journal().live().all();
    let now_ms = now_ms();
    let slots = board
        .slot_phases()
        .enumerate()
        .map(|(row, phase)| SlotView {
            row: row as u32,
            phase: match phase {
                board::SlotPhase::Free => SlotPhase::Free,
                board::SlotPhase::Queued => SlotPhase::Queued,
                board::SlotPhase::Prefill => SlotPhase::Prefill,
                board::SlotPhase::Live => SlotPhase::Live,
                board::SlotPhase::Closing => SlotPhase::Closing,
            },
            call: calls
                .iter()
                .rfind(|call| call.row() == Some(row))
                .map(|call| call_view(call, now_ms)),
        });
    let losses = board.losses();
    let drops = [Loss::MicFull, Loss::MicBacklog, Loss::MicQuiet];
    let engine = board.engine();
    LiveEvent::Board(Board {
        at_ms: now_ms,
        state: health::state_of(board),
        admission_open: board.admission_open(),
        waiting: board.waiting() as u32,
        slots: slots.collect(),
        tick_p50_us: short(board.tick_p50_us()),
        tick_p99_us: short(board.tick_p99_us()),
        totals: Totals {
            joined: board.joined(),
            refused: board.refused(),
            frames: board.frames_sent(),
            deficit: losses.get(Loss::Deficit),
            drops: drops.into_iter().map(|loss| losses.get(loss)).sum(),
            late_ticks: losses.get(Loss::LateTick),
            up_s: desk.began().elapsed().as_secs(),
        },
        prompt_cache: PromptCache {
            hits: engine.prompt_cache_hits,
            misses: engine.prompt_cache_misses,
            bytes: engine.prompt_cache_bytes,
        },
        device,
    })
}

fn call_view(call: &LiveCall, now_ms: i64) -> CallView {
    let (caller_level, agent_level) = call.levels();
    let elapsed_ms = call
        .live_at_ms()
        .map_or(0, |live_at_ms| now_ms - live_at_ms);
    CallView {
        session: call.session,
        caller: call.caller.clone(),
        persona: call.persona.clone(),
        voice: call.voice.clone(),
        elapsed_ms: u32::try_from(elapsed_ms).unwrap_or(0),
        caller_level,
        agent_level,
        deficit: call.deficit(),
        drops: call.drops(),
        mic_wait_us: call.mic_wait_us(),
        words: call.words(),
        listeners: call.listeners(),
        recorded: call.recorded(),
    }
}

fn short(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Memory of this process. Source: Linux, proc(5): the line `VmRSS` of `status`.
fn process_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}
