//! `vivavoce fetch`: a model from the hub into the data folder.
//!
//! Lives here: arguments of the command, the order of the steps, what is said about each.
//! May not live here: requests (`hub.rs`), bytes on their way to the disk (`download.rs`).
//!
//! hf-hub gives addresses, requests, metadata and the layout of the hub's cache. Its own download is not used: it waits
//! for ever on a silent connection, checks no sums, and lays out a file of full length before it has the bytes.

pub mod download;
pub mod error;
pub mod hub;
pub mod place;
pub mod progress;

use std::path::Path;

use clap::Args;

use self::download::Download;
use self::error::FetchError;
use self::hub::{Hub, RemoteFile};
use self::place::Place;
use self::progress::Progress;
use super::disk::{bytes_text, free_bytes};
use super::model_files::ModelFiles;
use super::{Outcome, tell};
use crate::config::Config;
use crate::config::values::is_hub_name;

/// Download a model from the hub
///
/// The files go to models/NAME in the data folder, where `--model NAME` finds them. An interrupted download goes on where
/// it stopped when the same command is given again. A file that the hub's cache of this machine already holds is linked,
/// not fetched: hard where both are on one disk, so that the cache may be cleared; else by a symbolic link. Every
/// file is compared with the hub's SHA-256 before it takes its name.
///
/// Some models are gated: accept the licence on the model's page while logged in, make a token there, and pass it as
/// HF_TOKEN, as a file named by HF_TOKEN_PATH, or by the hub's own login tool. HF_ENDPOINT names a mirror, HF_HOME the
/// hub's home (cache and token), HF_HUB_OFFLINE=1 or --offline forbids the network.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  HF_TOKEN=hf_... vivavoce fetch nvidia/personaplex-7b-v1
      17 GB; needs the licence accepted at https://huggingface.co/nvidia/personaplex-7b-v1
  vivavoce fetch nvidia/personaplex-7b-v1 --data-dir /srv/vivavoce
      somewhere else; serve with the same --data-dir
  HF_ENDPOINT=https://mirror.example vivavoce fetch owner/name --revision v1.0
      a mirror, and a certain revision")]
pub struct FetchArgs {
    /// The model as the hub names it: owner/name
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub name: String,
    /// Branch, tag or commit
    #[arg(long, value_name = "REV", default_value = "main", value_parser = parse_revision)]
    pub revision: String,
    /// How often to try a download again when its connection fails, 0 to 20; counted anew whenever bytes arrive
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub retries: u32,
}

fn parse_name(text: &str) -> Result<String, String> {
    match is_hub_name(text) {
        true => Ok(text.to_owned()),
        false => Err("it must be owner/name, as in nvidia/personaplex-7b-v1".to_owned()),
    }
}

fn parse_revision(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    match !text.is_empty()
        && text.len() <= 200
        && text.chars().all(is_plain)
        && !text.contains("..")
    {
        true => Ok(text.to_owned()),
        false => Err("it must be a branch, tag or commit".to_owned()),
    }
}

/// Fetches the model.
///
/// # Errors
/// One line that says what is in the way and what to do about it.
pub fn run(args: FetchArgs, config: Config) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        tokio::select! {
            done = fetch(&args, &config) => done,
            _ = tokio::signal::ctrl_c() => Err(FetchError::Interrupted),
        }
    })?;
    Ok(Outcome::Done)
}

async fn fetch(args: &FetchArgs, config: &Config) -> Result<(), FetchError> {
    let name = &args.name;
    let mut place = Place::open(config.hub_model_dir(name))?;
    if config.offline {
        return from_cache_only(args, config, &mut place);
    }
    let filled = fill(args, config, &mut place).await;
    filled.map_err(|err| err.keeping(place.kept_bytes()))?;
    place.finish()?;
    report(name, place.dir())
}

/// Gets every file that is not here.
async fn fill(args: &FetchArgs, config: &Config, place: &mut Place) -> Result<(), FetchError> {
    let hub = Hub::connect(&config.hub, &args.name, &args.revision).await?;
    let mut wanted = Vec::new();
    for remote in hub.model_files().await? {
        if place.has(&remote)? || place.take_from_cache(&hub, &remote)? {
            tell(format_args!(
                "{}: is here ({})",
                remote.name,
                bytes_text(remote.bytes)
            ));
        } else {
            wanted.push(remote);
        }
    }
    check_space(place, &wanted)?;
    for remote in wanted {
        place.begin()?;
        let mut progress = Progress::start(&remote.name, remote.bytes);
        let download = Download {
            hub: &hub,
            remote: &remote,
            part: place.part_file(&remote),
            retries: args.retries,
        };
        download.run(&mut progress).await?;
        place.accept(&remote)?;
        progress.finish();
    }
    Ok(())
}

/// Refuses to start what cannot end well.
fn check_space(place: &Place, wanted: &[RemoteFile]) -> Result<(), FetchError> {
    let needed: u64 = wanted
        .iter()
        .map(|r| r.bytes.saturating_sub(place.part_bytes(r)))
        .sum();
    match free_bytes(place.dir()) {
        Some(free) if free < needed => Err(FetchError::DiskFull {
            dir: place.dir().to_owned(),
            needed_bytes: needed,
            free_bytes: free,
        }),
        _ => Ok(()),
    }
}

fn from_cache_only(args: &FetchArgs, config: &Config, place: &mut Place) -> Result<(), FetchError> {
    let is_complete = |place: &Place| ModelFiles::inspect(place.dir()).problems.is_empty();
    if !is_complete(place) {
        let cached = hub::cached_files(&config.hub, &args.name, &args.revision);
        for (name, path) in cached {
            place.link(&path, &name)?;
        }
    }
    if !is_complete(place) {
        let problem = ModelFiles::inspect(place.dir())
            .problems
            .first()
            .map(|p| p.to_string());
        return Err(FetchError::Offline {
            name: args.name.clone(),
            problem: problem.unwrap_or_default(),
        });
    }
    report(&args.name, place.dir())
}

fn report(name: &str, dir: &Path) -> Result<(), FetchError> {
    let found = ModelFiles::inspect(dir);
    if let Some(problem) = found.problems.into_iter().next() {
        return Err(FetchError::Incomplete(problem));
    }
    tell(format_args!("{name} is complete in {}", dir.display()));
    tell(format_args!("serve it with: vivavoce serve --model {name}"));
    Ok(())
}
