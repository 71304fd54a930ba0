//! Comparison of this build and device with recorded outputs of an independent implementation, topic by topic.
//!
//! Lives here: which values are compared, how, and how far they may be apart. The tolerances and their reasons are
//! those that the recordings were published with.
//! May not live here: printing; the command line and the tests both read the [`Report`].
//! Start reading at [`verify`].

mod codec;
mod conversation;
mod depformer;
mod goldens;
mod kernels;
mod rows;
mod temporal;
mod text;
mod voice;

use std::path::Path;

use slots::engine::EngineError;

use crate::backend::Backend;
use crate::kernels::Dtype;
use crate::model::BuildError;
use crate::weights::Checkpoint;
use crate::weights::LoadError;

pub use goldens::GoldenError;
use goldens::Goldens;
pub use kernels::verify_kernels;
pub use rows::verify_rows;

/// One compared quantity.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The recorded file.
    pub topic: String,
    /// The quantity in it.
    pub what: String,
    /// How it is compared.
    pub measure: Measure,
    /// The worst found.
    pub worst: f64,
    /// The most allowed; `None`: reported, not judged.
    pub tolerance: Option<f64>,
}

/// How two arrays are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Largest absolute difference.
    Absolute,
    /// Root mean square of the differences relative to that of the recording.
    RelativeRms,
    /// Number of values that differ.
    Differing,
}

impl Check {
    /// Whether the worst is within the tolerance. A value that is not a number never is.
    pub fn passed(&self) -> bool {
        self.tolerance
            .is_none_or(|tolerance| self.worst <= tolerance)
    }
}

/// All comparisons.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of the topics.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether everything was within its tolerance, and anything was compared at all.
    pub fn passed(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(Check::passed)
    }

    fn absolute(&mut self, topic: &str, what: &str, found: &[f32], recorded: &[f32], most: f64) {
        let worst = if found.len() == recorded.len() {
            let apart = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs();
            // `max` would drop a NaN.
            found
                .iter()
                .zip(recorded)
                .map(apart)
                .fold(0.0, |worst: f64, apart| {
                    if apart > worst || apart.is_nan() {
                        apart
                    } else {
                        worst
                    }
                })
        } else {
            f64::NAN
        };
        self.push(topic, what, Measure::Absolute, worst, Some(most));
    }

    fn relative(
        &mut self,
        topic: &str,
        what: &str,
        found: &[f32],
        recorded: &[f32],
        most: Option<f64>,
    ) {
        let worst = if found.len() == recorded.len() {
            let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
            let apart = square(
                &mut found
                    .iter()
                    .zip(recorded)
                    .map(|(a, b)| f64::from(*a) - f64::from(*b)),
            );
            (apart / square(&mut recorded.iter().map(|&v| f64::from(v)))).sqrt()
        } else {
            f64::NAN
        };
        self.push(topic, what, Measure::RelativeRms, worst, most);
    }

    fn equal<T: PartialEq>(&mut self, topic: &str, what: &str, found: &[T], recorded: &[T]) {
        let missing = found.len().abs_diff(recorded.len());
        let differing = found.iter().zip(recorded).filter(|(a, b)| a != b).count() + missing;
        self.push(topic, what, Measure::Differing, differing as f64, Some(0.0));
    }

    fn push(
        &mut self,
        topic: &str,
        what: &str,
        measure: Measure,
        worst: f64,
        tolerance: Option<f64>,
    ) {
        let (topic, what) = (topic.to_owned(), what.to_owned());
        self.checks.push(Check {
            topic,
            what,
            measure,
            worst,
            tolerance,
        });
    }
}

/// A comparison that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The recorded folder is not what it should be.
    #[error(transparent)]
    Golden(#[from] GoldenError),
    /// The checkpoint beside it cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The network cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] EngineError),
    /// The recorded conversation cannot be seated.
    #[error("{what}")]
    Conversation {
        /// One line.
        what: String,
    },
}

/// Compares with every topic recorded in `dir`, which holds `checkpoint/` and `goldens/`.
///
/// `make` gives a backend for each part that is built. In `Dtype::F32` values are compared by their largest difference
/// and tokens must be equal; in the other types only topics whose inputs are all given are compared, by relative root
/// mean square: bf16 against twice the recorded figures, q8_0 without a judgement. `progress` hears each topic's name.
///
/// # Errors
/// [`VerifyError`]: something could not be compared; a difference is not an error but a failed [`Check`].
pub fn verify<B: Backend>(
    dir: &Path,
    dtype: Dtype,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, VerifyError> {
    let checkpoint = Checkpoint::open(&dir.join("checkpoint"))?;
    let goldens = Goldens::open(&dir.join("goldens"))?;
    let mut report = Report::default();
    if dtype == Dtype::F32 {
        text::tokenisation(&goldens, &checkpoint, &mut report, progress)?;
        text::sampling(&goldens, &mut report, progress)?;
        codec::compare(&goldens, &checkpoint, make, &mut report, progress)?;
        temporal::compare(&goldens, &checkpoint, make, &mut report, progress)?;
        depformer::compare(&goldens, &checkpoint, make, &mut report, progress)?;
        voice::compare(&goldens, &checkpoint, make, &mut report, progress)?;
        conversation::compare(&goldens, &checkpoint, make, &mut report, progress)?;
    } else {
        temporal::compare_half(&goldens, &checkpoint, dtype, make, &mut report, progress)?;
        depformer::compare_half(&goldens, &checkpoint, dtype, make, &mut report, progress)?;
    }
    Ok(report)
}
