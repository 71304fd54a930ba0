//! `vivavoce password`: sets the operator's password, also a forgotten one.

use std::io::{BufRead, IsTerminal};

use anyhow::{Context, bail};
use clap::Args;
use console::Term;

use super::disk::make_data_dir;
use super::{Outcome, tell};
use crate::config::Config;
use crate::store::Store;
use crate::web;

/// Set the operator's password
///
/// Asks for it on a terminal, without showing it; else reads the first line of the input. Every browser that is signed in
/// has to sign in again. The server of the same data folder has to be stopped for it.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  vivavoce password
      asks for it, twice
  vivavoce password --data-dir /srv/vivavoce < secret.txt
      takes the first line of a file")]
pub struct PasswordArgs {}

/// Sets it.
///
/// # Errors
/// One line: the database cannot be opened, or the password is too short.
pub fn run(_args: PasswordArgs, config: Config) -> anyhow::Result<Outcome> {
    make_data_dir(&config.data_dir)?;
    let input = std::io::stdin();
    let password = match input.is_terminal() {
        true => asked_twice()?,
        false => {
            let mut line = String::new();
            input.lock().read_line(&mut line).context("the input")?;
            line.trim_end_matches(['\r', '\n']).to_owned()
        }
    };
    if password.is_empty() {
        bail!("no password was given; nothing is changed");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let store = Store::open(&config.database()).await?;
        web::set_password(&store, password).await?;
        store.close().await;
        anyhow::Ok(())
    })?;
    tell("the password is set");
    Ok(Outcome::Done)
}

/// From a terminal, which shows nothing of it.
fn asked_twice() -> anyhow::Result<String> {
    let terminal = Term::stderr();
    let ask = |question: &str| -> anyhow::Result<String> {
        terminal.write_str(question)?;
        terminal.read_secure_line().context("the terminal")
    };
    let password = ask("the new password (nothing is shown as you type): ")?;
    if !password.is_empty() {
        web::check_password(&password)?;
        if ask("once more: ")? != password {
            bail!("the two differ; nothing is changed");
        }
    }
    Ok(password)
}
