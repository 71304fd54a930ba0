//! The numbers of one call, from times and sample counts.
//!
//! Lives here: gaps, deficit, underruns, percentiles. Pure: times come in as arguments.
//! May not live here: sockets, clocks.

use std::time::Duration;

use serde::Serialize;
use slots::units::{FRAME_SAMPLES, SAMPLE_RATE_HZ};

/// How much audio the measured player holds back before it begins, and again after it has run dry.
pub const PLAYER_BUFFER: Duration = Duration::from_millis(100);

/// What arrives, as it arrives. Times count from the ready message.
#[derive(Debug, Default)]
pub struct Measure {
    samples: u64,
    first_audio: Option<Duration>,
    last_audio: Option<Duration>,
    gaps_ms: Vec<f64>,
    player: Player,
    send_late_ms: Vec<f64>,
}

/// A player that begins [`PLAYER_BUFFER`] after the first packet, plays on without a pause, and begins anew in the same
/// way after it has run dry.
#[derive(Debug, Default)]
struct Player {
    /// When everything that has arrived will have been played.
    dry_at: Option<Duration>,
    underruns: u64,
}

/// Three figures of a list of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Half of them are not above it.
    pub p50: f64,
    /// 99 of 100 are not above it.
    pub p99: f64,
    /// None is above it.
    pub max: f64,
}

/// The finished numbers of one call.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// From ready to the first packet with sound in it.
    pub first_audio_ms: Option<f64>,
    /// Frames that came.
    pub frames: u64,
    /// Frames due at the end and not delivered.
    pub deficit_frames: u64,
    /// Between one packet and the next.
    pub gap_ms: Spread,
    /// How often the player ran dry.
    pub underruns: u64,
    /// How late this program was in sending.
    pub send_late_ms: Spread,
}

impl Measure {
    /// `samples` samples (24 kHz) arrived at `at`.
    pub fn heard(&mut self, at: Duration, samples: u64) {
        if samples == 0 {
            return;
        }
        self.samples += samples;
        self.first_audio.get_or_insert(at);
        if let Some(last) = self.last_audio.replace(at) {
            self.gaps_ms.push(ms(at.saturating_sub(last)));
        }
        self.player.feed(at, samples);
    }

    /// A frame due at `due` was sent at `at`.
    pub fn sent(&mut self, due: Duration, at: Duration) {
        self.send_late_ms.push(ms(at.saturating_sub(due)));
    }

    /// The numbers at the end of a call in which `due_frames` were due.
    pub fn figures(mut self, due_frames: u64) -> Figures {
        let frames = self.samples / FRAME_SAMPLES as u64;
        Figures {
            first_audio_ms: self.first_audio.map(ms),
            frames,
            deficit_frames: due_frames.saturating_sub(frames),
            gap_ms: Spread::of(&mut self.gaps_ms),
            underruns: self.player.underruns,
            send_late_ms: Spread::of(&mut self.send_late_ms),
        }
    }
}

impl Player {
    fn feed(&mut self, at: Duration, samples: u64) {
        let dry_at = match self.dry_at {
            Some(dry_at) if at <= dry_at => dry_at,
            Some(_) => {
                self.underruns += 1;
                at + PLAYER_BUFFER
            }
            None => at + PLAYER_BUFFER,
        };
        let nanos = samples * 1_000_000_000 / u64::from(SAMPLE_RATE_HZ);
        self.dry_at = Some(dry_at + Duration::from_nanos(nanos));
    }
}

impl Spread {
    /// The figures of `values`, which it sorts; zeros if there are none.
    pub fn of(values: &mut [f64]) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * values.len() as f64).ceil() as usize;
            values
                .get(rank.saturating_sub(1))
                .copied()
                .unwrap_or_default()
        };
        Self {
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

/// Milliseconds, to a microsecond.
pub fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1_000.0
}

/// Samples at 24 kHz that an Opus packet decodes to; 0 for header packets and what is no Opus.
///
/// Source: RFC 6716, section 3.1 (frame sizes by configuration) and 3.2 (frame counts).
pub fn packet_samples(packet: &[u8]) -> u64 {
    if packet.starts_with(b"OpusHead") || packet.starts_with(b"OpusTags") {
        return 0;
    }
    let Some((&toc, rest)) = packet.split_first() else {
        return 0;
    };
    let configuration = usize::from(toc >> 3);
    let frame_us: u64 = match configuration {
        0..12 => [10_000, 20_000, 40_000, 60_000][configuration % 4],
        12..16 => [10_000, 20_000][configuration % 2],
        _ => [2_500, 5_000, 10_000, 20_000][configuration % 4],
    };
    let frames = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => rest.first().map_or(0, |count| u64::from(count & 63)),
    };
    frames * frame_us * u64::from(SAMPLE_RATE_HZ) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: u64 = FRAME_SAMPLES as u64;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn after(arrivals_ms: &[u64], due: u64) -> Figures {
        let mut measure = Measure::default();
        for arrival in arrivals_ms {
            measure.heard(at(*arrival), FRAME);
        }
        measure.figures(due)
    }

    #[test]
    fn a_player_runs_dry_when_a_packet_is_later_than_its_buffer() {
        let cases: [(&str, &[u64], u64); 5] = [
            ("in time", &[0, 80, 160, 240], 0),
            ("late by less than the buffer", &[0, 80, 260, 330], 0),
            ("late by exactly the buffer", &[0, 180], 0),
            ("late by more", &[0, 181], 1),
            (
                "one stall is one underrun, then it holds its buffer again",
                &[0, 80, 600, 680, 760, 850],
                1,
            ),
        ];
        for (name, arrivals, underruns) in cases {
            assert_eq!(after(arrivals, 0).underruns, underruns, "{name}");
        }
    }

    #[test]
    fn the_deficit_is_what_was_due_and_did_not_come() {
        for (arrivals, due, deficit) in [(3, 3, 0), (3, 4, 1), (3, 2, 0), (0, 375, 375)] {
            let arrivals: Vec<u64> = (0..arrivals).map(|index| index * 80).collect();
            assert_eq!(after(&arrivals, due).deficit_frames, deficit);
        }
    }

    #[test]
    fn gaps_are_between_packets_with_sound() {
        let mut measure = Measure::default();
        for (time, samples) in [(10, 0), (30, FRAME), (35, 0), (110, FRAME), (200, FRAME)] {
            measure.heard(at(time), samples);
        }
        let figures = measure.figures(0);
        assert_eq!(figures.first_audio_ms, Some(30.0));
        assert_eq!(
            figures.gap_ms,
            Spread {
                p50: 80.0,
                p99: 90.0,
                max: 90.0
            }
        );
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(
            Spread::of(&mut hundred),
            Spread {
                p50: 50.0,
                p99: 99.0,
                max: 100.0
            }
        );
        assert_eq!(
            Spread::of(&mut [7.0]),
            Spread {
                p50: 7.0,
                p99: 7.0,
                max: 7.0
            }
        );
        assert_eq!(Spread::of(&mut []), Spread::default());
    }

    #[test]
    fn a_packet_tells_its_length_without_being_decoded() {
        let cases: [(&[u8], u64); 9] = [
            (b"OpusHead\x01", 0),
            (b"OpusTags", 0),
            (b"", 0),
            (&[31 << 3], 480),            // CELT 20 ms, one frame
            (&[(31 << 3) | 1, 0], 960),   // two of them
            (&[(31 << 3) | 3, 4], 1_920), // four
            (&[3 << 3], 1_440),           // SILK 60 ms
            (&[15 << 3], 480),            // hybrid 20 ms
            (&[(16 << 3) | 3], 0),        // count missing
        ];
        for (packet, samples) in cases {
            assert_eq!(packet_samples(packet), samples, "{packet:?}");
        }
    }
}
