//! What pages show of this server: from the settings and from what `doctor` looks at.

use std::sync::Arc;

use wire::api::system::{self, CheckState};

use super::doctor::checks::{self, Check, State};
use super::doctor::machine;
use crate::config::Config;
use crate::config::values::{DeviceChoice, ModelName};
use crate::web::desk::{DeskFacts, Look};

/// Checks that only mean something before the server runs: it holds the port itself.
const BEFORE_START: [&str; 1] = ["port"];

/// Everything that pages show and that does not change.
pub fn of(config: &Arc<Config>) -> DeskFacts {
    let mut licences = vec!["vivavoce: MIT or Apache-2.0, at your option".to_owned()];
    licences.push(match &config.model {
        ModelName::Demo => "demo model: made for this program, same licences".to_owned(),
        ModelName::Random => "random weights: nobody's".to_owned(),
        ModelName::Folder(_) | ModelName::Hub(_) => {
            "model: as its publisher says; for personaplex-7b-v1 the NVIDIA Open Model License, and CC-BY-4.0 for \
             what it is built on"
                .to_owned()
        }
    });
    let device = match config.device {
        DeviceChoice::Auto | DeviceChoice::Cpu => machine::cpu().finding,
        _ => config.device.to_string(),
    };
    let settings = config.settings.iter().map(|setting| system::Setting {
        name: setting.key.clone(),
        value: setting.value.clone(),
        source: setting.source.to_string(),
    });
    let looking = Arc::clone(config);
    DeskFacts {
        model: config.model.to_string(),
        device,
        licences,
        settings: settings.collect(),
        look: Look(Arc::new(move || look(&looking))),
        ..DeskFacts::default()
    }
}

fn look(config: &Config) -> Vec<system::Check> {
    let mut found = vec![machine::cpu(), machine::memory()];
    found.extend(checks::all(config));
    let now = found
        .into_iter()
        .filter(|check| !BEFORE_START.contains(&check.name));
    now.map(wire_check).collect()
}

fn wire_check(check: Check) -> system::Check {
    system::Check {
        name: check.name.to_owned(),
        state: match check.state {
            State::Ok => CheckState::Good,
            State::Note => CheckState::Note,
            State::Fail => CheckState::Bad,
        },
        text: match check.cure {
            Some(cure) => format!("{} -> {cure}", check.finding),
            None => check.finding,
        },
    }
}
