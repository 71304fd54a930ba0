//! A bucket that fills with time and is emptied by use: how much of something a caller may do.
//!
//! May not live here: a clock; time comes in as an argument.

use std::time::Instant;

/// Grants `burst` at once and `per_s` a second for long.
#[derive(Debug)]
pub(crate) struct Bucket {
    burst: u32,
    per_s: f64,
    level: f64,
    since: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(burst: u32, per_s: f64, now: Instant) -> Self {
        Self {
            burst,
            per_s,
            level: burst.into(),
            since: now,
        }
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.since).as_secs_f64() * self.per_s;
        self.level = (self.level + gained).min(self.burst.into());
        self.since = self.since.max(now);
        if self.level < 1.0 {
            return false;
        }
        self.level -= 1.0;
        true
    }

    /// Puts back what was taken and not used.
    pub(crate) fn give_back(&mut self) {
        self.level = (self.level + 1.0).min(self.burst.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_grants_a_burst_and_then_a_steady_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(3, 2.0, start);
        let granted = |bucket: &mut Bucket, after_ms| {
            let now = start + Duration::from_millis(after_ms);
            std::iter::repeat_with(|| bucket.take(now))
                .take_while(|&taken| taken)
                .count()
        };
        let cases = [
            (0, 3),
            (0, 0),
            (400, 0),
            (500, 1),
            (1_500, 2),
            (60_000, 3),
            (59_000, 0),
        ];
        for (after_ms, expected) in cases {
            assert_eq!(
                granted(&mut bucket, after_ms),
                expected,
                "after {after_ms} ms"
            );
        }
    }
}
