//! How loud a caller is: what counts as quiet in whatever room the microphone stands.
//!
//! Lives here: the mean square of samples, the estimate of a room's noise.
//! May not live here: what is done with quiet sound (`backlog`, `cut`).

/// Mean square below which sound is quiet anywhere: -50 dB below full scale.
pub const QUIET_POWER: f32 = 1e-5;
/// Mean square above which no sound is quiet, however loud the room: -35 dB.
const QUIET_POWER_MAX: f32 = 3e-4;
/// Sound up to 6 dB above the room's noise is quiet.
pub const QUIET_OVER_NOISE: f32 = 4.0;
/// By which the estimate of the room's noise rises a frame (a factor of 2 in 3 s); it falls at once.
const NOISE_RISE: f32 = 1.02;

/// A running estimate of the noise around one microphone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    noise_power: f32,
}

impl Room {
    /// A quiet one, until something is heard.
    pub fn unknown() -> Self {
        Self {
            noise_power: QUIET_POWER,
        }
    }

    /// A frame of `power` (mean square) was heard.
    pub fn heard(&mut self, power: f32) {
        self.noise_power = power.min(self.noise_power * NOISE_RISE);
        // A digital zero must not hold the estimate down for a minute.
        self.noise_power = self.noise_power.max(QUIET_POWER / 100.0);
    }

    /// The mean square up to which sound is quiet here.
    pub fn quiet_power(&self) -> f32 {
        (self.noise_power * QUIET_OVER_NOISE).clamp(QUIET_POWER, QUIET_POWER_MAX)
    }
}

/// Mean square of `samples`; 0 for none, not finite if one of them is not. Summed in lanes, so that it vectorises.
pub fn mean_square(samples: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0.0f32; LANES];
    let chunks = samples.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().map(|x| x * x).sum();
    for chunk in chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += x * x;
        }
    }
    (sums.iter().sum::<f32>() + rest) / samples.len().max(1) as f32
}

/// What 0 stands for on the scale of levels, in decibels below full scale.
const QUIETEST_DB: f32 = -60.0;

/// A mean square as a level: 0 at 60 dB below full scale, 255 at full scale.
pub fn level(mean_square: f32) -> u8 {
    if mean_square.is_nan() || mean_square <= 0.0 {
        return 0;
    }
    let db = 10.0 * mean_square.log10();
    ((db - QUIETEST_DB) / -QUIETEST_DB * 255.0).clamp(0.0, 255.0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_square_counts_every_sample_and_shows_what_is_no_number() {
        assert_eq!(mean_square(&[]), 0.0);
        assert_eq!(mean_square(&[2.0; 16]), 4.0);
        let mut samples = vec![0.0; 37];
        samples[36] = 37f32.sqrt();
        assert!((mean_square(&samples) - 1.0).abs() < 1e-5);
        samples[3] = f32::NAN;
        assert!(mean_square(&samples).is_nan());
    }

    #[test]
    fn what_counts_as_quiet_follows_the_room_within_limits() {
        let mut room = Room::unknown();
        let after = |room: &mut Room, power: f32| {
            (0..400).for_each(|_| room.heard(power));
            room.quiet_power()
        };
        assert_eq!(after(&mut room, 0.0), QUIET_POWER, "digital zeros");
        assert_eq!(after(&mut room, 2e-5), 8e-5, "a fan");
        assert_eq!(after(&mut room, 1.0), QUIET_POWER_MAX, "a crowd");
        room.heard(1e-7);
        assert_eq!(room.quiet_power(), QUIET_POWER, "the crowd stops");
    }

    #[test]
    fn levels_are_decibels() {
        let cases = [
            (0.0, 0),
            (f32::NAN, 0),
            (1e-9, 0),
            (1e-3, 127),
            (1.0, 255),
            (4.0, 255),
        ];
        for (power, expected) in cases {
            assert_eq!(level(power), expected, "{power}");
        }
    }
}
