//! A call to nobody: reads a prompt ahead of its first caller, and makes previews of voices.
//!
//! May not live here: who asks for it, where its audio goes.

use std::sync::Arc;

use slots::call::{CallSpec, PrepareCall};
use slots::units::{FRAME_SAMPLES, SessionKey};

use super::room::RehearseError;
use crate::sessions::random_key;
use crate::stepper::handle::{JoinError, JoinRequest, SeatEvent, StepperHandle};

/// See [`EngineRoom::rehearse`](super::room::EngineRoom::rehearse).
pub(super) async fn rehearse<P: PrepareCall>(
    prepare: &Arc<P>,
    stepper: &StepperHandle<P::Call>,
    spec: CallSpec,
    frames: usize,
) -> Result<Vec<f32>, RehearseError> {
    let ended = |what: String| RehearseError::Ended { what };
    let preparing = prepare.clone();
    let call = tokio::task::spawn_blocking(move || preparing.prepare(&spec))
        .await
        .map_err(|error| ended(error.to_string()))??;
    let request = JoinRequest {
        call,
        session: SessionKey(random_key().map_err(|error| ended(error.to_string()))?),
        generation: 0,
        may_wait: false,
    };
    let mut seat = stepper.join(request).await.map_err(|error| match error {
        JoinError::EngineStopped | JoinError::Stale { .. } => ended(error.to_string()),
        _ => RehearseError::NoSlot,
    })?;
    let mut pcm = Vec::with_capacity(frames * FRAME_SAMPLES);
    loop {
        seat.mic.sign_of_life();
        match seat.speaker.next().await {
            Some(SeatEvent::Live) if frames == 0 => return Ok(pcm),
            Some(SeatEvent::Frame(frame)) => {
                pcm.extend_from_slice(&frame.pcm);
                if pcm.len() >= frames * FRAME_SAMPLES {
                    return Ok(pcm);
                }
            }
            Some(SeatEvent::Ended(reason)) => return Err(ended(reason.to_string())),
            Some(_) => {}
            None => return Err(ended("the engine has stopped".to_owned())),
        }
    }
}
