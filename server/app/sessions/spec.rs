//! From the query of `/api/chat` to the wish that an engine prepares.
//!
//! Lives here: defaults for what the query leaves out, the seed of a call that asked for none.
//! May not live here: parsing (`wire::query`), ranges (`slots::call`), the default persona (the engine's).

use slots::call::{CallSpec, Sampling, SamplingError};
use wire::query::ChatQuery;

/// The call `query` asks for. `drawn_seed` is used if it names no seed.
///
/// # Errors
/// [`SamplingError`] names the value that is out of range.
pub fn call_spec(query: &ChatQuery, drawn_seed: u64) -> Result<CallSpec, SamplingError> {
    let default = Sampling::default();
    let sampling = Sampling {
        text_temperature: query.text_temperature.unwrap_or(default.text_temperature),
        text_top_k: query.text_top_k.unwrap_or(default.text_top_k),
        audio_temperature: query.audio_temperature.unwrap_or(default.audio_temperature),
        audio_top_k: query.audio_top_k.unwrap_or(default.audio_top_k),
        repetition_penalty: query
            .repetition_penalty
            .unwrap_or(default.repetition_penalty),
        repetition_penalty_context: query
            .repetition_penalty_context
            .unwrap_or(default.repetition_penalty_context),
        seed: query.seed.unwrap_or(drawn_seed),
    };
    Ok(CallSpec {
        text_prompt: query.text_prompt.clone(),
        voice: query.voice.clone(),
        sampling: sampling.check()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(query: &str) -> Result<CallSpec, String> {
        let query = ChatQuery::parse(query).map_err(|error| error.to_string())?;
        call_spec(&query, 77).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_query_leaves_out_is_the_default() {
        let expected = Sampling {
            seed: 77,
            ..Sampling::default()
        };
        assert_eq!(spec("").unwrap().sampling, expected);
        let spec = spec("seed=5&audio_topk=10&voice_prompt=NATF1.pt&text_prompt=hi").unwrap();
        assert_eq!((spec.sampling.seed, spec.sampling.audio_top_k), (5, 10));
        assert_eq!(spec.voice.as_deref(), Some("NATF1"));
        assert_eq!(spec.text_prompt.as_deref(), Some("hi"));
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for query in [
            "text_temperature=-0.1",
            "audio_temperature=5.1",
            "text_topk=0",
            "audio_topk=2000000",
            "repetition_penalty=0.9",
            "repetition_penalty_context=501",
        ] {
            let error = spec(query).unwrap_err();
            assert!(
                error.starts_with(query.split('=').next().unwrap()),
                "{error}"
            );
        }
    }
}
