//! `vivavoce load`: many paced callers on a running server, and what each of them gets.
//!
//! Lives here: arguments of the command, starting the callers, the verdict.
//! May not live here: one call (`caller.rs`), its numbers (`measure.rs`), what is said (`speech.rs`), printing
//! (`report.rs`).

pub mod caller;
pub mod measure;
pub mod report;
pub mod speech;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueHint};
use slots::units::FRAME_MS;

use self::caller::{Call, Target};
use self::report::Report;
use self::speech::Speech;
use super::Outcome;
use crate::config::Config;
use crate::config::values::Secret;

/// A session may be this many frames behind at the end: what is on its way, and a little of the network's.
pub const DEFICIT_FRAMES_MAX: u64 = 4;

/// Put many paced callers on a running server and measure what they get
///
/// Each caller dials /api/chat, waits until the server is ready, sends one frame of Opus audio every 80 ms and times what
/// comes back. Per session: time to ready, first audio, frames due and not delivered (deficit), gaps between packets,
/// underruns of a player with 100 ms of buffer, and how late this program itself was in sending (large numbers there mean
/// that the measuring machine is too slow). Refused sessions are shown with the server's reason.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  vivavoce load --url http://127.0.0.1:8998 --sessions 4 --frames 375
      four callers for 30 s
  vivavoce load --url http://127.0.0.1:8998 --sessions 4 --frames 750 --input question.wav --json
      a real question, asked again and again, as JSON
  vivavoce load --url http://10.0.0.5:8998 --any-host --sessions 16 --frames 375
      against another machine, which is yours

Exit codes: 0 every session stayed within a deficit of 4 frames, 1 one or more did not, or were refused (also where \
there are more sessions than free slots, without --ext).")]
pub struct LoadArgs {
    /// The server: http://HOST:PORT, with a path if it is served under one
    #[arg(long, value_name = "http://HOST:PORT", value_hint = ValueHint::Url)]
    pub url: Target,
    /// How many callers, 1 to 4096
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub sessions: u16,
    /// How long each call lasts, in frames of 80 ms, 1 to 1000000
    #[arg(long, value_name = "N", default_value_t = 375, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub frames: u32,
    /// What callers say, again and again: a WAV file, any rate, mono or stereo (mixed) [default: a built-in signal
    /// with the rhythm and formants of speech]
    #[arg(long, value_name = "FILE.wav", value_hint = ValueHint::FilePath)]
    pub input: Option<PathBuf>,
    /// The agent's voice, by name [default: the server's]
    #[arg(long, value_name = "NAME")]
    pub voice: Option<String>,
    /// The agent's role [default: the server's]
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Sent as `Authorization: Bearer TOKEN`
    #[arg(
        long,
        value_name = "TOKEN",
        env = "VIVAVOCE_LOAD_TOKEN",
        hide_env_values = true
    )]
    pub token: Option<Secret>,
    /// Be a caller that understands waiting places (ext=1): wait for a slot instead of being refused
    #[arg(long)]
    pub ext: bool,
    /// Give up on a session that is not ready after this many seconds, 1 to 3600
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub ready_within: u32,
    /// Allow an address that is not this machine; load what is yours only
    #[arg(long)]
    pub any_host: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs all calls and prints what they got.
///
/// # Errors
/// One line: an address that is not this machine's, or an input that cannot be read.
pub fn run(args: LoadArgs, _config: Config) -> anyhow::Result<Outcome> {
    if !args.any_host && !args.url.is_loopback() {
        anyhow::bail!(
            "--url {} is not this machine; add --any-host if that server is yours to load",
            args.url
        );
    }
    let speech = match &args.input {
        Some(file) => Speech::from_wav(file)?,
        None => Speech::built_in()?,
    };
    let call = Arc::new(Call {
        target: args.url.clone(),
        query: query(&args),
        token: args.token.clone(),
        frames: args.frames,
        ready_within: Duration::from_secs(args.ready_within.into()),
        speech,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let sessions = runtime.block_on(async {
        let calls = (0..args.sessions).map(|index| {
            // Spread over one frame, as callers who know nothing of each other are.
            let wait = Duration::from_millis(FRAME_MS.into()) * u32::from(index)
                / u32::from(args.sessions);
            let call = Arc::clone(&call);
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                call.run().await
            })
        });
        let calls: Vec<_> = calls.collect();
        let mut sessions = Vec::new();
        for call in calls {
            sessions.push(call.await?);
        }
        Ok::<_, tokio::task::JoinError>(sessions)
    })?;
    let report = Report::new(args.url.to_string(), args.frames, sessions);
    match args.json {
        true => super::tell(serde_json::to_string_pretty(&report)?),
        false => super::tell(&report),
    }
    Ok(match report.complaint() {
        None => Outcome::Done,
        Some(complaint) => {
            super::complain(&complaint);
            Outcome::Refused
        }
    })
}

/// The query of `/api/chat`.
fn query(args: &LoadArgs) -> String {
    let pairs = [
        ("text_prompt", args.prompt.as_deref()),
        ("voice_prompt", args.voice.as_deref()),
        ("ext", args.ext.then_some("1")),
    ];
    let given = pairs
        .iter()
        .filter_map(|(name, value)| Some((name, (*value)?)));
    given
        .map(|(name, value)| format!("{name}={}", percent_encoded(value)))
        .collect::<Vec<_>>()
        .join("&")
}

/// `text` with everything but letters, digits and `-._~` as `%XX`.
fn percent_encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encoded = text.bytes().map(|byte| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    encoded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_survives_the_query() {
        let cases = [
            ("", ""),
            ("a-Z_0.~", "a-Z_0.~"),
            ("ä & b=c?", "%C3%A4%20%26%20b%3Dc%3F"),
        ];
        for (text, encoded) in cases {
            assert_eq!(percent_encoded(text), encoded);
        }
    }
}
