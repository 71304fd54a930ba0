//! `vivavoce load`
use super::Outcome;
use crate::config::Config;
use clap::Args;
/// x
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {}
/// x
pub fn run(_args: LoadArgs, _config: Config) -> anyhow::Result<Outcome> {
    anyhow::bail!("x")
}
