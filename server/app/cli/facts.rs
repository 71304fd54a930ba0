//! What pages show of this server: from the settings and from what `doctor` looks at.

use std::sync::{Arc, OnceLock};

use engine::device::{self, Resolved, Target};
use wire::api::system::{self, CheckState};

use super::calibrate::Calibration;
use super::doctor::checks::{self, Check, State};
use super::doctor::machine;
use super::engine::{device_choice, threads};
use crate::config::Config;
use crate::config::values::ModelName;
use crate::web::desk::{DeskFacts, DeviceMemory, Look};

/// Everything that pages show and that does not change. `calibrated` is filled when the engine is loaded, or never.
pub fn of(config: &Arc<Config>, calibrated: &Arc<OnceLock<Calibration>>) -> DeskFacts {
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
    let (device, device_memory) = device(config);
    let settings = config.settings.iter().map(|setting| system::Setting {
        name: setting.key.clone(),
        value: setting.value.clone(),
        source: setting.source.to_string(),
    });
    let (looking, calibrated) = (Arc::clone(config), Arc::clone(calibrated));
    DeskFacts {
        base: config.base_path.clone(),
        model: config.model.to_string(),
        device,
        device_memory,
        licences,
        settings: settings.collect(),
        look: Look(Arc::new(move || look(&looking, calibrated.get()))),
        ..DeskFacts::default()
    }
}

fn look(config: &Config, calibrated: Option<&Calibration>) -> Vec<system::Check> {
    let mut found = vec![machine::cpu(), machine::memory()];
    found.extend(checks::while_running(config));
    let mut found: Vec<_> = found.into_iter().map(wire_check).collect();
    found.extend(calibrated.map(|calibration| system::Check {
        name: "calibration".to_owned(),
        state: match calibration.in_time() {
            true => CheckState::Good,
            false => CheckState::Bad,
        },
        text: calibration.text(),
    }));
    found
}

/// What computes, and how its memory is asked for.
fn device(config: &Config) -> (String, Option<DeviceMemory>) {
    let Ok(Resolved {
        target: Target::Cuda(number),
        ..
    }) = device::resolve(device_choice(config))
    else {
        let cpu = machine::cpu_name();
        return (format!("{cpu}, {} threads", threads(config)), None);
    };
    let name = device::info(number).map_or_else(|_| format!("cuda:{number}"), |info| info.name);
    let memory = move || {
        let info = device::info(number).ok()?;
        let total = info.memory_total_bytes;
        Some((total.saturating_sub(info.memory_free_bytes), total))
    };
    (name, Some(DeviceMemory(Arc::new(memory))))
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
