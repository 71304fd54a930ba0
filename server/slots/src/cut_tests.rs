//! Played against clients with all lengths of packets: what moves, what never does, and that no tick loses a frame.

use proptest::prelude::*;

use super::*;
use crate::units::{FRAME_MS, TICK_US};

const LOUD: f32 = 1e-2;
const QUIET: f32 = 1e-7;
const SAMPLES_PER_MS: usize = FRAME_SAMPLES / FRAME_MS as usize;

/// Sends packets of one length at a steady pace; what has come is cut into frames as a session does.
struct Client {
    cut: Cut,
    packet_us: u64,
    /// When the first packet comes.
    first_us: u64,
    /// By how much packets come later than their pace, in turn.
    jitter_us: Vec<u64>,
    sent: u64,
    resyncs: u64,
    standing: usize,
    frames: usize,
    dropped: Vec<usize>,
    /// When each frame was whole.
    whole_us: Vec<u64>,
}

impl Client {
    fn new(packet_us: u64, first_us: u64) -> Self {
        Self {
            cut: Cut::default(),
            packet_us,
            first_us,
            jitter_us: vec![0],
            sent: 0,
            resyncs: 0,
            standing: 0,
            frames: 0,
            dropped: Vec::new(),
            whole_us: Vec::new(),
        }
    }

    /// One with packets of 20 ms whose first frames are whole `wait_us` before the tick.
    fn waiting(wait_us: u64) -> Self {
        Self::new(20_000, 2 * TICK_US - 60_000 - wait_us)
    }

    /// Plays `ticks` ticks' worth of packets at this loudness.
    fn play(&mut self, ticks: u64, power: f32) {
        for _ in 0..ticks * TICK_US / self.packet_us {
            let late_us = self.jitter_us[self.sent as usize % self.jitter_us.len()];
            let now_us = self.first_us + self.sent * self.packet_us + late_us;
            self.sent += 1;
            self.standing += self.packet_us as usize * SAMPLES_PER_MS / 1_000;
            let finished = self.standing >= FRAME_SAMPLES;
            while self.standing >= FRAME_SAMPLES {
                self.standing -= FRAME_SAMPLES;
                self.frames += 1;
                self.whole_us.push(now_us);
                self.cut.heard(power);
            }
            self.cut.saw(Sight {
                ticks: now_us / TICK_US,
                resyncs: self.resyncs,
                wait_us: TICK_US - now_us % TICK_US,
                finished,
                standing_samples: self.standing,
            });
            let drop = self.cut.samples_to_drop(self.standing, power);
            if drop > 0 {
                assert!(drop <= self.standing && drop < FRAME_SAMPLES);
                self.standing -= drop;
                self.dropped.push(drop);
            }
        }
    }

    fn dropped_ms(&self) -> usize {
        self.dropped.iter().sum::<usize>() / SAMPLES_PER_MS
    }

    /// Frames that are whole at each tick.
    fn whole_at_ticks(&self, ticks: u64) -> Vec<usize> {
        let whole_by = |tick: u64| {
            self.whole_us
                .partition_point(|&whole_us| whole_us < tick * TICK_US)
        };
        (0..ticks).map(whole_by).collect()
    }
}

#[test]
fn a_quiet_call_is_led_to_just_before_the_tick_and_one_that_is_there_is_left_alone() {
    // Packet length, when the first one comes after a tick, what is dropped in ms.
    let cases = [
        ("20 ms, frames wait 70 ms", 20_000, 30_000, 60),
        ("20 ms, frames wait 65 ms", 20_000, 35_000, 40),
        ("20 ms, the next packet is too late", 20_000, 75_000, 0),
        ("20 ms, frames wait 20 ms", 20_000, 0, 0),
        ("20 ms, frames wait 15 ms", 20_000, 5_000, 0),
        ("20 ms, frames wait 5 ms", 20_000, 15_000, 0),
        ("10 ms, frames wait 70 ms", 10_000, 20_000, 60),
        ("10 ms, frames wait 21 ms", 10_000, 69_000, 10),
        ("2.5 ms, frames wait 80 ms", 2_500, 2_500, 70),
        ("40 ms, frames wait 60 ms", 40_000, 60_000, 40),
        ("40 ms, frames wait 30 ms", 40_000, 10_000, 0),
        ("60 ms, which does not divide 80", 60_000, 70_000, 20),
        ("80 ms, frames wait 79 ms", 80_000, 1_000, 0),
        ("80 ms, frames wait 40 ms", 80_000, 40_000, 0),
        ("120 ms", 120_000, 10_000, 0),
    ];
    for (name, packet_us, first_us, dropped_ms) in cases {
        let mut client = Client::new(packet_us, first_us);
        client.play(10 * u64::from(WATCHED_TICKS), QUIET);
        assert_eq!(client.dropped_ms(), dropped_ms, "{name}");
        assert!(client.dropped.len() <= 1, "{name}: once a call at most");
    }
}

#[test]
fn nothing_is_cut_out_of_speech_or_its_pauses() {
    let mut client = Client::waiting(70_000);
    client.play(3 * u64::from(WATCHED_TICKS), LOUD);
    for _ in 0..20 {
        client.play(u64::from(QUIET_FRAMES) - 1, QUIET);
        client.play(5, LOUD);
    }
    assert_eq!(client.dropped, []);
    client.play(10, QUIET);
    assert_eq!(client.dropped_ms(), 60);
}

#[test]
fn the_noise_of_a_room_counts_as_quiet() {
    let mut client = Client::waiting(70_000);
    client.play(3 * u64::from(WATCHED_TICKS), 5e-5);
    assert_eq!(client.dropped_ms(), 60);
}

#[test]
fn what_was_seen_before_a_gap_or_another_schedule_is_forgotten() {
    let watched = u64::from(WATCHED_TICKS);
    let mut client = Client::waiting(70_000);
    client.play(watched + 10, LOUD);
    // The client was away, and came back just before the tick.
    client.first_us += 20 * TICK_US + 55_000;
    client.play(2 * watched, QUIET);
    assert_eq!(client.dropped, [], "after a gap");

    let mut client = Client::waiting(70_000);
    client.play(watched + 10, LOUD);
    client.resyncs = 1;
    client.play(watched - 10, QUIET);
    assert_eq!(client.dropped, [], "the schedule began anew");
    client.play(20, QUIET);
    assert_eq!(client.dropped_ms(), 60);
}

#[test]
fn a_network_that_is_late_now_and_then_is_believed() {
    let mut client = Client::waiting(70_000);
    // One packet in fifty comes 45 ms late, and those behind it with it.
    client.jitter_us = (0..50)
        .map(|at| [45_000, 25_000, 5_000].get(at).copied().unwrap_or(0))
        .collect();
    client.play(5 * u64::from(WATCHED_TICKS), QUIET);
    assert!(client.dropped_ms() <= 20, "{:?}", client.dropped);
}

proptest! {
    #[test]
    fn no_tick_ever_finds_fewer_frames_than_without_the_cut(
        packet_us in prop::sample::select(vec![2_500u64, 5_000, 10_000, 20_000, 40_000, 60_000, 80_000, 120_000]),
        first_us in 0..TICK_US,
        // 25 packets repeat within what is watched, whatever their length.
        jitter_us in proptest::collection::vec(0..2_500u64, 25),
        jitter_times in 1..30u64,
        loud_ticks in 0..200u64,
    ) {
        let mut jitter_us: Vec<u64> = jitter_us.into_iter().map(|us| us * jitter_times).collect();
        // Nothing overtakes on one connection.
        for _ in 0..2 {
            for at in 0..25 {
                let before = jitter_us[(at + 24) % 25];
                jitter_us[at] = jitter_us[at].max(before.saturating_sub(packet_us));
            }
        }
        let ticks = 6 * u64::from(WATCHED_TICKS);
        let mut moved = Client::new(packet_us, first_us);
        moved.jitter_us = jitter_us.clone();
        moved.play(loud_ticks, LOUD);
        moved.play(ticks - loud_ticks, QUIET);
        let mut plain = Client::new(packet_us, first_us);
        plain.jitter_us = jitter_us;
        plain.play(ticks, LOUD);
        prop_assert!(plain.dropped.is_empty() && moved.dropped.len() <= 1);
        // The last packets are cut off by the end of the play.
        let end = ticks - 4;
        prop_assert_eq!(moved.whole_at_ticks(end), plain.whole_at_ticks(end));
    }
}
