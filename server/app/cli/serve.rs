//! `vivavoce serve`: the appliance.
//!
//! Lives here: arguments of the command; putting engine, stepper and web together.
//! May not live here: any of their work.

use clap::Args;

use super::Outcome;
use crate::config::flags::{EngineFlags, ServerFlags};
use crate::config::{Config, Flags};

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
      the published model on the first GPU, as many callers as it can serve in real time
  vivavoce serve --listen 0.0.0.0:8998 --insecure-open
      let other machines in; there are no passwords yet, so only where everybody may talk
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
pub fn run(_args: ServeArgs, _config: Config) -> anyhow::Result<Outcome> {
    anyhow::bail!("`serve` is not built into this version yet")
}
