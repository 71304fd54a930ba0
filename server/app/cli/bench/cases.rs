//! Parts of the network alone, with random weights.
//!
//! Lives here: one line for each part, batch size and number format. May not live here: which of them go together
//! (`pairs.rs`), the parts (`engine::measure`).

use engine::backend::Backend;
use engine::config::ModelConfig;
use engine::device::Sizing;
use engine::kernels::Dtype as WeightDtype;
use engine::measure::{Network, Part, Rig};
use engine::weights::Checkpoint;
use serde::Serialize;
use slots::engine::EngineError;

use super::BenchArgs;
use super::pairs::{Pair, dtype_name, pairs};
use super::process::Boost;
use super::timing::{Timing, rounded};
use crate::cli::disk::bytes_text;
use crate::cli::engine::{WithBackend, sizing, threads, with_backend};
use crate::cli::{Outcome, tell};
use crate::config::Config;
use crate::config::values::Dtype;

/// One line of output; the fields are those of its JSON.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    case: &'static str,
    preset: &'static str,
    batch: usize,
    dtype: &'static str,
    threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boost: Option<String>,
    #[serde(flatten)]
    result: Measured,
}

/// Times, or why there are none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Measured {
    Times {
        ticks: usize,
        cores_got: Option<f64>,
        ms_per_tick: MsPerTick,
    },
    Unsupported {
        unsupported: String,
    },
}

#[derive(Debug, Serialize)]
struct MsPerTick {
    median: f64,
    min: f64,
    p90: f64,
}

impl Measured {
    fn times(timing: &Timing) -> Self {
        Self::Times {
            ticks: timing.ticks(),
            cores_got: timing.cores_got().map(rounded),
            ms_per_tick: MsPerTick {
                median: rounded(timing.median_ms()),
                min: rounded(timing.min_ms()),
                p90: rounded(timing.percentile_ms(90)),
            },
        }
    }
}

impl Line {
    fn new(
        pair: &Pair,
        batch: usize,
        dtype: &'static str,
        threads: usize,
        result: Measured,
    ) -> Self {
        Self {
            name: format!("{}/{}/b{batch}/{dtype}", pair.case, pair.preset),
            case: pair.case,
            preset: pair.preset,
            batch,
            dtype,
            threads,
            device: None,
            boost: None,
            result,
        }
    }

    fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            tell(serde_json::to_string(self)?);
            return Ok(());
        }
        let head = format!(
            "{:<15} {:<5} {:>4}  {:<5}",
            self.case, self.preset, self.batch, self.dtype
        );
        match &self.result {
            Measured::Times {
                ticks,
                cores_got,
                ms_per_tick: ms,
            } => {
                let boost = match &self.boost {
                    Some(boost) => format!("  real-time scheduling {boost}"),
                    None => String::new(),
                };
                let cores = cores_got.map_or("-".into(), |cores| format!("{cores:.2}"));
                tell(format!(
                    "{head} {:>9.3} {:>9.3} {:>9.3}  {ticks:>6}  {cores:>5}{boost}",
                    ms.median, ms.min, ms.p90
                ));
            }
            Measured::Unsupported { unsupported } => {
                tell(format!("{head} unsupported: {unsupported}"));
            }
        }
        Ok(())
    }
}

/// Measures every case and prints.
///
/// # Errors
/// One line: the device cannot be used or failed.
pub fn run(args: &BenchArgs, config: &Config) -> anyhow::Result<Outcome> {
    if !args.json {
        tell("case            preset   B  dtype ms median       min       p90   ticks  cores");
    }
    for group in pairs(&args.cases, args.preset) {
        for &dtype in args.dtypes() {
            group_with_dtype(args, config, &group, dtype)?;
        }
    }
    Ok(Outcome::Done)
}

/// Times the parts of one network, which is built once for all of them.
fn group_with_dtype(
    args: &BenchArgs,
    config: &Config,
    group: &[Pair],
    dtype: Dtype,
) -> anyhow::Result<()> {
    let threads = threads(config);
    let (mut parts, mut network) = (Vec::new(), None);
    for pair in group {
        match pair.part(dtype) {
            Ok((part, weights)) => {
                network = Some((part.network(), weights));
                parts.push((*pair, part));
            }
            Err(reason) => {
                for batch in args.batches() {
                    let unsupported = reason.clone();
                    let result = Measured::Unsupported { unsupported };
                    Line::new(pair, batch, dtype_name(pair, dtype), threads, result)
                        .print(args.json)?;
                }
            }
        }
    }
    let Some((network, weights)) = network else {
        return Ok(());
    };
    let model = network.config();
    let settings = Config {
        dtype: setting(weights),
        ..config.clone()
    };
    // It only stands for a model that the settings could ask about; its number format is settled, and none of its
    // numbers is ever drawn.
    let checkpoint = Checkpoint::random(ModelConfig::published(), 0)?;
    let (sizing, free_bytes) = sizing(&settings, &checkpoint)?;
    let mut batches = Vec::new();
    for batch in args.batches() {
        match no_room(&sizing, free_bytes, network, &model, batch) {
            None => batches.push(batch),
            Some(reason) => {
                for (pair, _) in &parts {
                    let unsupported = reason.clone();
                    let result = Measured::Unsupported { unsupported };
                    Line::new(pair, batch, dtype_name(pair, dtype), threads, result)
                        .print(args.json)?;
                }
            }
        }
    }
    let measure = Measure {
        args,
        network,
        model,
        parts,
        batches,
        threads,
        dtype: dtype_name(&group[0], setting(weights)),
    };
    with_backend(&settings, &checkpoint, measure)?
}

fn setting(weights: WeightDtype) -> Dtype {
    match weights {
        WeightDtype::F32 => Dtype::F32,
        WeightDtype::Bf16 => Dtype::Bf16,
        WeightDtype::Q8_0 => Dtype::Q8_0,
    }
}

/// Why `batch` rows of `network` do not fit, if they do not.
fn no_room(
    sizing: &Sizing,
    free_bytes: u64,
    network: Network,
    model: &ModelConfig,
    batch: usize,
) -> Option<String> {
    let all = sizing.bytes_needed(model, batch);
    let needed = all.workspace
        + match network {
            Network::Codec => all.codec_weights + all.codec_state,
            _ => all.weights + all.kv,
        };
    (free_bytes < needed).then(|| {
        format!(
            "{batch} rows need {}, {} are free",
            bytes_text(needed),
            bytes_text(free_bytes)
        )
    })
}

/// The parts of one network in one number format, once the backend is chosen.
struct Measure<'a> {
    args: &'a BenchArgs,
    network: Network,
    model: ModelConfig,
    parts: Vec<(Pair, Part)>,
    batches: Vec<usize>,
    threads: usize,
    dtype: &'static str,
}

impl WithBackend for Measure<'_> {
    type Output = anyhow::Result<()>;

    fn with<B: Backend>(
        self,
        make: impl Fn() -> Result<B, EngineError> + Send + Sync + 'static,
    ) -> Self::Output {
        let most = self.batches.iter().copied().max().unwrap_or(0);
        let mut rig: Option<Rig<B>> = None;
        for &batch in &self.batches {
            if !rig.as_ref().is_some_and(|rig| rig.takes(batch)) {
                // The old one goes first: both at once may not fit.
                drop(rig.take());
                let backend = make()?;
                let rows = if backend.padded() { batch } else { most };
                rig = Some(Rig::new(backend, self.network, &self.model, rows)?);
            }
            let Some(rig) = &mut rig else { continue };
            for (pair, part) in &self.parts {
                let boosted = self.args.boost == 1;
                let (timing, boost) = self.args.plan().run(
                    || boosted.then(Boost::start),
                    || Ok(rig.tick(*part, batch)?),
                )?;
                let boost = boost.map(|boost| super::boost_text(&boost));
                let line = Line {
                    device: Some(rig.describe()),
                    boost,
                    ..Line::new(
                        pair,
                        batch,
                        self.dtype,
                        self.threads,
                        Measured::times(&timing),
                    )
                };
                line.print(self.args.json)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bench::Case;

    fn keys(result: Measured) -> Vec<String> {
        let pair = pairs(&[Case::MimiEncode], None)[0][0];
        let line = Line::new(&pair, 4, "f32", 2, result);
        let value = serde_json::to_value(&line).expect("plain data");
        value
            .as_object()
            .expect("one object")
            .keys()
            .cloned()
            .collect()
    }

    #[test]
    fn a_line_has_the_agreed_fields_and_a_reason_takes_the_place_of_times() {
        let plan = super::super::timing::Plan {
            ticks: 2,
            warmup: 0,
            limit: None,
        };
        let (timing, ()) = plan.run(|| (), || Ok(())).expect("nothing fails");
        let mut expected = vec![
            "name",
            "case",
            "preset",
            "batch",
            "dtype",
            "threads",
            "ticks",
            "cores_got",
            "ms_per_tick",
        ];
        let mut found = keys(Measured::times(&timing));
        found.sort();
        expected.sort_unstable();
        assert_eq!(found, expected);
        let unsupported = String::from("no");
        let found = keys(Measured::Unsupported { unsupported });
        assert!(found.contains(&"unsupported".into()) && !found.contains(&"ms_per_tick".into()));
    }
}
