//! The codec against topics `mimi`, `mimi_short`, `mimi_lanes`.

use slots::engine::EngineError;

use crate::backend::{Backend, Lanes};
use crate::codec::{Codec, CodecError, CodecTap};
use crate::model::{BuildError, Loader, RingRule};
use crate::weights::Checkpoint;

use super::goldens::{Golden, Goldens};
use super::{Report, VerifyError};

impl From<CodecError> for VerifyError {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Device(error) => error.into(),
            CodecError::CodeOutOfRange { .. } => VerifyError::Conversation {
                what: format!("recorded codes: {error}"),
            },
        }
    }
}

/// Largest differences by quantity. Source: the table of the recordings.
const TOLERANCES: [(&str, f64); 11] = [
    ("enc.layer", 4e-5),
    ("enc.seanet", 4e-5),
    ("enc.transformer", 8e-5),
    ("enc.latent", 4e-5),
    ("enc.proj_first", 4e-4),
    ("enc.proj_rest", 4e-4),
    ("dec.latent", 2e-5),
    ("dec.upsample", 2e-5),
    ("dec.transformer", 2e-5),
    ("dec.layer", 2e-5),
    ("dec.pcm", 1e-5),
];

fn tolerance(what: &str) -> f64 {
    let found = TOLERANCES
        .iter()
        .find(|(prefix, _)| what.starts_with(prefix));
    found.map_or(0.0, |(_, tolerance)| *tolerance)
}

/// The recording's name of a place, and whether it is recorded channels first.
fn name(tap: CodecTap) -> (String, bool) {
    let (name, channels_first) = match tap {
        CodecTap::EncoderEntry(entry) => return (format!("enc.layer.{entry:02}"), true),
        CodecTap::DecoderEntry(entry) => return (format!("dec.layer.{entry:02}"), true),
        CodecTap::EncoderConvs => ("enc.seanet", true),
        CodecTap::EncoderTransformer => ("enc.transformer", true),
        CodecTap::Latent => ("enc.latent", false),
        CodecTap::ProjFirst => ("enc.proj_first", false),
        CodecTap::ProjRest => ("enc.proj_rest", false),
        CodecTap::DecoderLatent => ("dec.latent", false),
        CodecTap::Upsampled => ("dec.upsample", true),
        CodecTap::DecoderTransformer => ("dec.transformer", true),
    };
    (name.into(), channels_first)
}

/// What the codec gave, quantity by quantity, in the recording's layout, frame after frame.
#[derive(Default)]
struct Found {
    values: Vec<(String, Vec<f32>)>,
    codes: Vec<i64>,
}

impl Found {
    fn add(&mut self, what: String, values: &[f32]) {
        match self.values.iter_mut().find(|(name, _)| *name == what) {
            Some((_, found)) => found.extend_from_slice(values),
            None => self.values.push((what, values.to_vec())),
        }
    }

    fn tapped(&mut self, golden: &Golden, tap: CodecTap, time_major: &[f32]) {
        let (what, channels_first) = name(tap);
        let Ok(shape) = golden.shape(&what) else {
            return;
        };
        // Single layers are recorded for the first frames only.
        let frames = shape[0] * shape[1];
        if self
            .values
            .iter()
            .any(|(name, found)| *name == what && found.len() >= len(shape, frames))
        {
            return;
        }
        if !channels_first {
            return self.add(what, time_major);
        }
        let (channels, columns) = (shape[2], shape[3]);
        let mut values = Vec::with_capacity(time_major.len());
        for lane in time_major.chunks_exact(channels * columns) {
            for channel in 0..channels {
                values.extend(lane.iter().skip(channel).step_by(channels));
            }
        }
        self.add(what, &values);
    }
}

fn len(shape: &[usize], frames: usize) -> usize {
    frames * shape[2..].iter().product::<usize>()
}

pub(super) fn compare<B: Backend>(
    goldens: &Goldens,
    checkpoint: &Checkpoint,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<(), VerifyError> {
    let Some(full) = goldens.topic("mimi")? else {
        return Ok(());
    };
    progress("mimi");
    topic(&full, &full, checkpoint, RingRule::Full, make, report)?;
    if let Some(short) = goldens.topic("mimi_short")? {
        progress("mimi_short");
        topic(&full, &short, checkpoint, RingRule::Short, make, report)?;
    }
    if let Some(golden) = goldens.topic("mimi_lanes")? {
        progress("mimi_lanes");
        lanes(&golden, checkpoint, make, report)?;
    }
    Ok(())
}

fn build<B: Backend>(
    checkpoint: &Checkpoint,
    rule: RingRule,
    rows: usize,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
) -> Result<(B, Codec<B>), VerifyError> {
    let mut backend = make().map_err(BuildError::from)?;
    let mut loader = Loader {
        backend: &mut backend,
        tensors: checkpoint.codec_tensors(),
    };
    let codec = Codec::load(&mut loader, checkpoint.config(), rule, rows)?;
    Ok((backend, codec))
}

/// Encodes the recorded PCM and decodes the recorded codes, all lanes together.
fn topic<B: Backend>(
    inputs: &Golden,
    golden: &Golden,
    checkpoint: &Checkpoint,
    rule: RingRule,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    report: &mut Report,
) -> Result<(), VerifyError> {
    let shape = inputs.shape("pcm")?.to_vec();
    let (frames, rows, samples) = (shape[0], shape[1], shape[2]);
    let pcm = inputs.f32s("pcm")?;
    let recorded_codes = golden.i64s("enc.codes")?;
    let (mut backend, mut codec) = build(checkpoint, rule, rows, make)?;
    let mut lanes = Lanes::default();
    let all: Vec<usize> = (0..rows).collect();
    lanes.set(&all, rows, backend.padded());
    let mut found = Found::default();
    let (mut codes, mut out) = (Vec::new(), Vec::new());
    let mut values = Vec::new();
    let n_codes = rows * codec.codes();
    for frame in 0..frames {
        let input = &pcm[frame * rows * samples..][..rows * samples];
        codec.encode(&mut backend, &lanes, input, &mut codes, &mut |b, tap, x| {
            b.download(x, &mut values)?;
            found.tapped(golden, tap, &values);
            Ok(())
        })?;
        found
            .codes
            .extend(codes.iter().map(|&code| i64::from(code)));
        let given: Vec<u32> = recorded_codes[frame * n_codes..][..n_codes]
            .iter()
            .map(|&code| code as u32)
            .collect();
        codec.decode(&mut backend, &lanes, &given, &mut out, &mut |b, tap, x| {
            b.download(x, &mut values)?;
            found.tapped(golden, tap, &values);
            Ok(())
        })?;
        found.add("dec.pcm".into(), &out);
    }
    report.equal(golden.topic(), "enc.codes", &found.codes, &recorded_codes);
    for (what, values) in &found.values {
        report.absolute(
            golden.topic(),
            what,
            values,
            &golden.f32s(what)?,
            tolerance(what),
        );
    }
    Ok(())
}

/// Three lanes that are reset and stand still each on its own.
fn lanes<B: Backend>(
    golden: &Golden,
    checkpoint: &Checkpoint,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    report: &mut Report,
) -> Result<(), VerifyError> {
    let shape = golden.shape("pcm")?.to_vec();
    let (frames, rows, samples) = (shape[0], shape[1], shape[2]);
    let pcm = golden.f32s("pcm")?;
    let (run, reset) = (golden.u8s("run")?, golden.u8s("reset")?);
    let recorded_codes = golden.i64s("enc.codes")?;
    let width = golden.shape("enc.latent")?[2];
    let (mut backend, mut codec) = build(checkpoint, RingRule::Full, rows, make)?;
    let n_codes = codec.codes();
    let mut codes = vec![0i64; recorded_codes.len()];
    let mut latent = vec![0.0; frames * rows * width];
    let mut out = vec![0.0; pcm.len()];
    let mut lanes = Lanes::default();
    for frame in 0..frames {
        for row in (0..rows).filter(|row| reset[frame * rows + row] != 0) {
            codec.reset(&mut backend, row)?;
        }
        let live: Vec<usize> = (0..rows)
            .filter(|row| run[frame * rows + row] != 0)
            .collect();
        if live.is_empty() {
            continue;
        }
        lanes.set(&live, rows, backend.padded());
        let mut input = Vec::new();
        for &row in &lanes.rows {
            input.extend_from_slice(&pcm[(frame * rows + row) * samples..][..samples]);
        }
        let mut found = Vec::new();
        let mut latents = Vec::new();
        codec.encode(
            &mut backend,
            &lanes,
            &input,
            &mut found,
            &mut |b, tap, x| match tap {
                CodecTap::Latent => b.download(x, &mut latents),
                _ => Ok(()),
            },
        )?;
        let mut given = Vec::new();
        for &row in &lanes.rows {
            let recorded = &recorded_codes[(frame * rows + row) * n_codes..][..n_codes];
            given.extend(recorded.iter().map(|&code| code as u32));
        }
        let mut pcm_out = Vec::new();
        codec.decode(
            &mut backend,
            &lanes,
            &given,
            &mut pcm_out,
            &mut |_, _, _| Ok(()),
        )?;
        for (lane, &row) in lanes
            .rows
            .iter()
            .enumerate()
            .filter(|(lane, _)| lanes.active[*lane])
        {
            let at = frame * rows + row;
            for (to, &code) in codes[at * n_codes..]
                .iter_mut()
                .zip(&found[lane * n_codes..][..n_codes])
            {
                *to = i64::from(code);
            }
            latent[at * width..][..width].copy_from_slice(&latents[lane * width..][..width]);
            out[at * samples..][..samples].copy_from_slice(&pcm_out[lane * samples..][..samples]);
        }
    }
    let topic = golden.topic();
    report.equal(topic, "enc.codes", &codes, &recorded_codes);
    report.absolute(
        topic,
        "enc.latent",
        &latent,
        &golden.f32s("enc.latent")?,
        tolerance("enc.latent"),
    );
    report.absolute(
        topic,
        "dec.pcm",
        &out,
        &golden.f32s("dec.pcm")?,
        tolerance("dec.pcm"),
    );
    Ok(())
}
