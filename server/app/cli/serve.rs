//! `vivavoce serve`: the appliance.
//!
//! Lives here: arguments of the command; putting engine, stepper and web together.
//! May not live here: any of their work.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use engine::backend::Backend;
use engine::prepare::CallMaker;
use engine::voice_model::{VoiceCall, VoiceModel};
use engine::weights::Checkpoint;
use slots::call::{CallSpec, PrepareCall};
use slots::engine::{Engine, EngineError, Readiness};
use slots::units::SlotId;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::calibrate::{Calibration, Limited, calibrate};
use super::disk::make_data_dir;
use super::doctor::checks::bind_cure;
use super::engine::{
    WithBackend, call_maker, engine_options, gpu_hint, open_checkpoint, slots, with_backend,
};
use super::presets::presets;
use super::progress::Progress;
use super::{HUNG, Outcome, complain, door, facts};
use crate::config::flags::{EngineFlags, ServerFlags};
use crate::config::values::{LogFormat, SlotCount};
use crate::config::{Config, Flags};
use crate::stepper::board::SlotPhase;
use crate::stepper::handle::StepperHandle;
use crate::stepper::{self, Options, StartError, StepperThread};
use crate::store::Store;
use crate::telemetry;
use crate::web::access::Access;
use crate::web::desk::DeskFacts;
use crate::web::{self, AppState, WebSettings};

/// How long callers and running requests have for their last word.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);
/// Looks of the watchdog until a tick counts as hung.
const WATCHDOG_LOOKS: u32 = 20;

/// Serve callers until told to stop
///
/// Starts the engine and a web server. Nothing needs to be set up: without arguments the built-in demo answers on
/// http://localhost:8998. SIGTERM or Ctrl-C lets running calls finish (up to --drain-limit); a second one ends at once.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  vivavoce serve
      the demo, four callers, http://localhost:8998
  vivavoce serve --model nvidia/personaplex-7b-v1 --device cuda:0 --slots auto
      the published model on the first GPU, as many slots as fit into its memory and, measured at start, into 80 ms
  vivavoce serve --listen 0.0.0.0:8998 --tls self-signed
      let other machines in, with their microphones; the first start prints a password for the operator
  VIVAVOCE_SLOTS=8 vivavoce serve --data-dir /srv/vivavoce
      settings from environment and flags together")]
pub struct ServeArgs {
    /// How the engine computes.
    #[command(flatten)]
    pub engine: EngineFlags,
    /// How callers are served.
    #[command(flatten)]
    pub server: ServerFlags,
}

impl ServeArgs {
    /// The arguments that are settings.
    pub fn flags(&self) -> Flags {
        Flags {
            engine: self.engine.clone(),
            server: self.server.clone(),
            ..Flags::default()
        }
    }
}

/// Runs the server until it is stopped.
///
/// # Errors
/// One line that says why it could not start, or why it ended.
pub fn run(_args: ServeArgs, config: Config) -> anyhow::Result<Outcome> {
    telemetry::start_log(config.log_format == LogFormat::Json);
    for variable in &config.unknown_variables {
        tracing::warn!(%variable, "no setting has this name");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(serve(Arc::new(config)));
    // A file that is still being read, from a disk that does not answer, must not keep a stopped server alive.
    runtime.shutdown_background();
    outcome
}

/// What can be known at once is checked first: the data folder, the device, the model's files, whether its slots fit. Then the port opens,
/// before the weights are read, so that whoever asks meanwhile hears that the model is being loaded.
async fn serve(config: Arc<Config>) -> anyhow::Result<Outcome> {
    let mut signals = Signals::new()?;
    let began = Instant::now();
    make_data_dir(&config.data_dir)?;
    let opening = Arc::clone(&config);
    let found = tokio::select! {
        found = tokio::task::spawn_blocking(move || Found::look(&opening)) => found??,
        () = signals.next() => {
            tracing::info!("stopping while the model is being opened");
            return Ok(Outcome::Done);
        }
    };
    let access = match config.is_local() {
        true => Access::Loopback,
        false => Access::Open,
    };
    let calibrated = Arc::new(OnceLock::new());
    let certificates = door::certificates(&config).await?;
    let settings = WebSettings {
        access,
        open_calls: config.open_calls,
        origins: config.allow_origin.clone(),
        watchdog: config.watchdog,
        facts: DeskFacts {
            certificates: certificates.clone(),
            ..facts::of(&config, &calibrated)
        },
        recordings: Some(config.data_dir.join("recordings")),
        ..WebSettings::default()
    };
    let store = Store::open(&config.database()).await?;
    store.install_presets(&presets(&config)).await?;
    let new_password = door::first_password(&config, &store).await?;
    let app = AppState::<CallMaker>::open(settings, store).await?;
    let listener = web::bind(config.listen).map_err(|err| {
        anyhow!(
            "cannot listen on {}: {err}; {}",
            config.listen,
            bind_cure(&err)
        )
    })?;
    let address = listener.local_addr()?;
    let (close, closed) = watch::channel(false);
    let router = web::router(app.clone());
    let server = match &certificates {
        Some(certificates) => {
            tokio::spawn(certificates.keep_fresh());
            let acceptor = certificates.acceptor()?;
            tokio::spawn(web::serve_tls(
                listener,
                router,
                acceptor,
                has_become_true(closed),
            ))
        }
        None => tokio::spawn(web::serve(listener, router, has_become_true(closed))),
    };
    let scheme = match &certificates {
        Some(_) => "https",
        None => "http",
    };
    tracing::info!("listening on {scheme}://{address}");
    if let Some(certificates) = &certificates {
        door::say_certificate(&certificates.state());
    }
    if let Some(password) = new_password {
        door::say_password(&password, scheme, address);
    }

    let outcome = tokio::select! {
        outcome = load_and_tick(&config, found, &app, calibrated, began) => outcome.map(Some),
        () = signals.next() => {
            tracing::info!("stopping while the model is being loaded");
            Ok(None)
        }
    };
    let outcome = match outcome? {
        Some(running) => until_stopped(running, &app, &mut signals).await,
        None => Outcome::Done,
    };
    // Whoever is still being told why the call is over gets a moment; a peer that does not read gets no more.
    let told = tokio::time::timeout(FAREWELL_LIMIT, app.calls_ended()).await;
    if told.is_err() {
        tracing::warn!("some callers could not be told that the server stops");
    }
    app.desk().journal().finish().await;
    app.desk().close_pages();
    close.send_replace(true);
    // Requests that are still being answered end with the process.
    let _ = tokio::time::timeout(FAREWELL_LIMIT, server).await;
    tracing::info!("stopped");
    Ok(outcome)
}

/// The model, looked through but not read, and how many slots of it the device takes.
struct Found {
    checkpoint: Arc<Checkpoint>,
    slots: usize,
}

impl Found {
    fn look(config: &Config) -> anyhow::Result<Self> {
        let checkpoint = open_checkpoint(config)?;
        let slots = slots(config, &checkpoint)?;
        Ok(Self { checkpoint, slots })
    }
}

/// The ticking engine.
struct Running {
    handle: StepperHandle<VoiceCall>,
    thread: StepperThread,
}

/// Loads the model and starts the tick.
async fn load_and_tick(
    config: &Arc<Config>,
    found: Found,
    app: &AppState<CallMaker>,
    calibrated: Arc<OnceLock<Calibration>>,
    began: Instant,
) -> anyhow::Result<Running> {
    let Found { checkpoint, slots } = found;
    tracing::info!(model = %config.model, "loading the model");
    for broken in checkpoint.voices().broken() {
        tracing::warn!("{broken}");
    }
    if checkpoint.voices().is_empty() {
        let source = match checkpoint.voices().source() {
            "" => config.model.to_string(),
            source => source.to_owned(),
        };
        tracing::warn!("0 voices found in {source}: callers get no voice prompt");
    }
    if let Some(hint) = gpu_hint(config) {
        tracing::info!("{hint}");
    }
    let maker = Arc::new(call_maker(config, &checkpoint));
    let start = Start {
        config: Arc::clone(config),
        checkpoint: Arc::clone(&checkpoint),
        maker: Arc::clone(&maker),
        slots,
        calibrated,
    };
    let (handle, mut thread) = with_backend(config, &checkpoint, start)??;
    thread.ready().await?;
    web::load_voices(app.desk().store(), &*maker).await?;
    let voices = maker.voice_facts().len();
    app.set_loaded(handle.clone(), maker)?;
    tracing::info!(
        slots = handle.board().capacity(),
        voices,
        seconds = (began.elapsed().as_secs_f64() * 100.0).round() / 100.0,
        "ready"
    );
    Ok(Running { handle, thread })
}

/// Starts the tick on the chosen backend.
struct Start {
    config: Arc<Config>,
    checkpoint: Arc<Checkpoint>,
    maker: Arc<CallMaker>,
    /// The most; `--slots auto` may find that fewer are in time.
    slots: usize,
    calibrated: Arc<OnceLock<Calibration>>,
}

impl WithBackend for Start {
    type Output = Result<(StepperHandle<VoiceCall>, StepperThread), StartError>;

    fn with<B: Backend>(
        self,
        make: impl Fn() -> Result<B, EngineError> + Send + Sync + 'static,
    ) -> Self::Output {
        let Start {
            config,
            checkpoint,
            maker,
            slots,
            calibrated,
        } = self;
        let options = Options {
            admission: config.admission,
            drain_limit: config.drain_limit,
            watchdog_period: config.watchdog / WATCHDOG_LOOKS,
            on_hang: Box::new(|tick| {
                complain(&format!("tick {tick} does not end; the device hangs"));
                std::process::exit(i32::from(HUNG));
            }),
            ..Options::new(slots)
        };
        let load = move || {
            let options = engine_options(&config, checkpoint.config(), slots);
            let parts = Cell::new(None);
            let model = VoiceModel::load(make()?, &checkpoint, options, &mut |done, total| {
                let progress = parts
                    .take()
                    .unwrap_or_else(|| Progress::new(total as u64, "loading"));
                progress.add(1);
                if done == total {
                    progress.done()
                } else {
                    parts.set(Some(progress))
                }
            });
            let mut model = model.map_err(|error| EngineError {
                what: error.to_string(),
            })?;
            tracing::info!("{}", model.describe());
            let mut slots = slots;
            if config.slots == SlotCount::Auto && config.admission {
                let found = in_time(&mut model, &maker)?;
                slots = found.slots;
                let _ = calibrated.set(found);
            }
            read_presets(&mut model, &maker)?;
            Ok(Limited {
                engine: model,
                slots,
            })
        };
        #[cfg(debug_assertions)]
        let load = move || Ok(super::fault::Faulty::planned(load()?));
        stepper::spawn(load, options)
    }
}

/// How many of the engine's rows stay in time.
fn in_time<B: Backend>(
    model: &mut VoiceModel<B>,
    maker: &CallMaker,
) -> Result<Calibration, EngineError> {
    let call = maker.prepare(&CallSpec::default());
    let call = call.map_err(|error| EngineError {
        what: format!("it cannot be measured: {error}"),
    })?;
    let found = calibrate(model, &call)?;
    let text = found.text();
    match found.in_time() {
        true => tracing::info!("{text}"),
        false => tracing::warn!("{text}: callers will hear gaps"),
    }
    Ok(found)
}

/// Reads the prompts of the known personas once, so that their callers are live at once.
fn read_presets<B: Backend>(
    model: &mut VoiceModel<B>,
    maker: &CallMaker,
) -> Result<(), EngineError> {
    let Some(slot) = SlotId::new(0) else {
        return Ok(());
    };
    for spec in maker.presets() {
        let seated = maker.prepare(&spec).map(|call| model.seat(slot, call));
        let mut ready = match seated {
            Ok(Ok(ready)) => ready,
            // A persona that does not fit this model is told to the caller that asks for it.
            Ok(Err(error)) => {
                tracing::warn!(%error, "a persona was not prepared");
                continue;
            }
            Err(error) => {
                tracing::warn!(%error, "a persona was not prepared");
                continue;
            }
        };
        while let Readiness::Prefill { .. } = ready {
            ready = model.prefill(slot)?;
        }
        model.vacate(slot);
    }
    Ok(())
}

/// Waits for the end: a signal drains, a second one stops at once, a failing device ends everything.
async fn until_stopped(
    mut running: Running,
    app: &AppState<CallMaker>,
    signals: &mut Signals,
) -> Outcome {
    let mut asked = false;
    loop {
        tokio::select! {
            stopped = running.thread.stopped() => {
                return match stopped {
                    Ok(()) => Outcome::Done,
                    Err(error) => {
                        complain(&error.to_string());
                        Outcome::DeviceFailed
                    }
                };
            }
            () = signals.next() => {
                if asked {
                    tracing::info!("stopping at once");
                    running.handle.stop();
                } else {
                    let board = running.handle.board();
                    let free = board.slots_in(SlotPhase::Free);
                    match (board.capacity() - free) as u64 + board.waiting() {
                        0 => tracing::info!("stopping"),
                        callers => tracing::info!(
                            callers,
                            "no new callers; running calls may finish; a second signal ends them"
                        ),
                    }
                    running.handle.drain();
                }
                asked = true;
            }
            // All callers are gone after a drain: nothing is left to wait for.
            () = app.calls_ended(), if asked => {
                running.handle.stop();
                let _ = running.thread.stopped().await;
                return Outcome::Done;
            }
        }
    }
}

/// SIGINT and SIGTERM, whichever comes.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        Ok(Self {
            interrupt: signal(interrupt)?,
            terminate: signal(terminate)?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

async fn has_become_true(mut flag: watch::Receiver<bool>) {
    // A sender that is gone means the end as well.
    let _ = flag.wait_for(|&flag| flag).await;
}
