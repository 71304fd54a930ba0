//! Opus by libopus (the pure Rust translation `unsafe-libopus`): one decoder, one encoder, 24 kHz, mono.
//!
//! Lives here: every unsafe call of the server's own code, behind two types that cannot be misused.
//! May not live here: containers, frames, what to do about a broken packet.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use slots::units::{FRAME_SAMPLES, SAMPLE_RATE_HZ};
use unsafe_libopus::{
    OPUS_APPLICATION_AUDIO, OPUS_GET_LOOKAHEAD_REQUEST, OPUS_OK, OPUS_RESET_STATE,
    OPUS_SET_BITRATE_REQUEST, OPUS_SET_COMPLEXITY_REQUEST, OPUS_SET_VBR_CONSTRAINT_REQUEST,
    OPUS_SET_VBR_REQUEST, OpusDecoder, OpusEncoder, opus_decode_float, opus_decoder_create,
    opus_decoder_ctl_impl, opus_decoder_destroy, opus_encode_float, opus_encoder_create,
    opus_encoder_ctl_impl, opus_encoder_destroy, varargs,
};

/// The longest packet Opus allows, 120 ms, in samples at 24 kHz.
pub const PACKET_SAMPLES_MAX: usize = SAMPLE_RATE_HZ as usize * 120 / 1_000;
/// The longest packet of 80 ms: four frames of 20 ms of at most 1,275 bytes, and their header.
pub const PACKET_BYTES_MAX: usize = 4 * 1_275 + 4;
/// Bits per second of what the agent says: transparent for speech, and 8 kB/s for a full house of 64 is little.
pub const BITRATE: i32 = 64_000;
/// 0 to 10. The highest with which one core carries 180 callers with a good margin for sockets. By `benches/opus.rs` a
/// tick costs one caller at complexity 3: 211 us to encode a frame and write its page and message, 90 us to read and
/// decode one; 267 sessions a core.
pub const COMPLEXITY: i32 = 3;
/// Samples at 48 kHz, the unit of Ogg-Opus, for one at 24 kHz.
pub const SAMPLES_48K: u64 = 48_000 / SAMPLE_RATE_HZ as u64;

/// What libopus answered, a negative number from its header file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpusError {
    /// The packet is not Opus, or damaged.
    #[error("not an Opus packet (libopus error {code})")]
    Packet {
        /// libopus's number.
        code: i32,
    },
    /// A frame could not be coded; never seen, since every argument is fixed.
    #[error("libopus could not encode (error {code})")]
    Encode {
        /// libopus's number.
        code: i32,
    },
    /// A coder could not be made: no memory.
    #[error("libopus could not start (error {code})")]
    Start {
        /// libopus's number.
        code: i32,
    },
}

/// Packets to PCM at 24 kHz mono, whatever the stream has.
pub struct Decoder {
    state: NonNull<OpusDecoder>,
}

// SAFETY: the state is plain memory owned by this value alone; libopus keeps no thread-local or global state.
unsafe impl Send for Decoder {}

impl Decoder {
    /// A decoder that has heard nothing.
    ///
    /// # Errors
    /// [`OpusError::Start`]: no memory.
    pub fn new() -> Result<Self, OpusError> {
        let mut code = OPUS_OK;
        // SAFETY: rate and channels are values libopus takes; `code` outlives the call.
        let state = unsafe { opus_decoder_create(SAMPLE_RATE_HZ as i32, 1, &mut code) };
        match NonNull::new(state) {
            Some(state) if code == OPUS_OK => Ok(Self { state }),
            _ => Err(OpusError::Start { code }),
        }
    }

    /// Decodes one packet of up to 120 ms into the front of `pcm` and returns how many samples that are.
    /// Stereo is mixed down. Nothing is cut off at the start of a stream. Samples may lie a little outside -1..=1.
    ///
    /// # Errors
    /// [`OpusError::Packet`]: the packet is empty, damaged or not Opus. The decoder can go on with the next one.
    pub fn decode(
        &mut self,
        packet: &[u8],
        pcm: &mut [f32; PACKET_SAMPLES_MAX],
    ) -> Result<usize, OpusError> {
        // An empty packet would mean "conceal a loss" to libopus.
        let len = match i32::try_from(packet.len()) {
            Ok(len) if len > 0 => len,
            _ => return Err(OpusError::Packet { code: 0 }),
        };
        // SAFETY: `state` is live and exclusively borrowed; `packet` has `len` readable bytes and `pcm` room for
        // PACKET_SAMPLES_MAX samples of one channel, which is the size that is passed.
        let samples = unsafe {
            opus_decode_float(
                self.state.as_ptr(),
                packet.as_ptr(),
                len,
                pcm.as_mut_ptr(),
                PACKET_SAMPLES_MAX as i32,
                0,
            )
        };
        usize::try_from(samples).map_err(|_| OpusError::Packet { code: samples })
    }

    /// Forgets all it has heard, as at the start of another stream.
    pub fn reset(&mut self) {
        // SAFETY: `state` is live and exclusively borrowed; this request takes no argument.
        unsafe { opus_decoder_ctl_impl(self.state.as_ptr(), OPUS_RESET_STATE, varargs!()) };
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: `state` came from opus_decoder_create and is not used again.
        unsafe { opus_decoder_destroy(self.state.as_ptr()) };
    }
}

/// Frames of 80 ms to packets: mono, application AUDIO, constrained variable bit rate.
pub struct Encoder {
    state: NonNull<OpusEncoder>,
    lookahead_samples: usize,
}

// SAFETY: the state is plain memory owned by this value alone; libopus keeps no thread-local or global state.
unsafe impl Send for Encoder {}

impl Encoder {
    /// An encoder with this server's settings.
    ///
    /// # Errors
    /// [`OpusError::Start`]: no memory.
    pub fn new() -> Result<Self, OpusError> {
        Self::with_complexity(COMPLEXITY)
    }

    /// The same with another complexity, 0 to 10; for measuring.
    ///
    /// # Errors
    /// [`OpusError::Start`]: no memory, or a complexity out of range.
    pub fn with_complexity(complexity: i32) -> Result<Self, OpusError> {
        let mut code = OPUS_OK;
        // SAFETY: rate, channels and application are values libopus takes; `code` outlives the call.
        let state = unsafe {
            opus_encoder_create(SAMPLE_RATE_HZ as i32, 1, OPUS_APPLICATION_AUDIO, &mut code)
        };
        let mut encoder = match NonNull::new(state) {
            Some(state) if code == OPUS_OK => Self {
                state,
                lookahead_samples: 0,
            },
            _ => return Err(OpusError::Start { code }),
        };
        let settings = [
            (OPUS_SET_BITRATE_REQUEST, BITRATE),
            (OPUS_SET_VBR_REQUEST, 1),
            (OPUS_SET_VBR_CONSTRAINT_REQUEST, 1),
            (OPUS_SET_COMPLEXITY_REQUEST, complexity),
        ];
        let state = encoder.state.as_ptr();
        for (request, value) in settings {
            // SAFETY: `state` is live; each of these requests takes one i32.
            let code = unsafe { opus_encoder_ctl_impl(state, request, varargs!(value)) };
            if code != OPUS_OK {
                return Err(OpusError::Start { code });
            }
        }
        let mut lookahead = 0i32;
        // SAFETY: `state` is live; this request takes a pointer to an i32, which outlives the call.
        let code = unsafe {
            opus_encoder_ctl_impl(state, OPUS_GET_LOOKAHEAD_REQUEST, varargs!(&mut lookahead))
        };
        match usize::try_from(lookahead) {
            Ok(samples) if code == OPUS_OK => encoder.lookahead_samples = samples,
            _ => return Err(OpusError::Start { code }),
        }
        Ok(encoder)
    }

    /// By how many samples at 24 kHz decoded sound lags behind what was put in: the pre-skip of the stream.
    pub fn lookahead_samples(&self) -> usize {
        self.lookahead_samples
    }

    /// Encodes 80 ms into one packet at the front of `packet` and returns its length. Values outside -1..=1 are
    /// clipped, values that are not numbers become silence.
    ///
    /// # Errors
    /// [`OpusError::Encode`]: `frame` has another length than [`FRAME_SAMPLES`], or libopus refused.
    pub fn encode(
        &mut self,
        frame: &[f32],
        packet: &mut [u8; PACKET_BYTES_MAX],
    ) -> Result<usize, OpusError> {
        if frame.len() != FRAME_SAMPLES {
            return Err(OpusError::Encode { code: 0 });
        }
        let mut tame = [0.0; FRAME_SAMPLES];
        for (tame, &sample) in tame.iter_mut().zip(frame) {
            *tame = tamed(sample);
        }
        // SAFETY: `state` is live and exclusively borrowed; `tame` has FRAME_SAMPLES samples of one channel and
        // `packet` room for PACKET_BYTES_MAX bytes, which are the sizes that are passed.
        let bytes = unsafe {
            opus_encode_float(
                self.state.as_ptr(),
                tame.as_ptr(),
                FRAME_SAMPLES as i32,
                packet.as_mut_ptr(),
                PACKET_BYTES_MAX as i32,
            )
        };
        usize::try_from(bytes).map_err(|_| OpusError::Encode { code: bytes })
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: `state` came from opus_encoder_create and is not used again.
        unsafe { opus_encoder_destroy(self.state.as_ptr()) };
    }
}

/// A sample that can do no harm: within -1..=1, and silence where it was no number.
pub fn tamed(sample: f32) -> f32 {
    if sample.is_nan() {
        0.0
    } else {
        sample.clamp(-1.0, 1.0)
    }
}

/// An encoder with other rates, channels and packet lengths than the server's own: what clients may send.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(crate) struct AnyEncoder(NonNull<OpusEncoder>);

    impl AnyEncoder {
        pub(crate) fn new(rate_hz: i32, channels: i32) -> Self {
            let mut code = OPUS_OK;
            // SAFETY: `code` outlives the call; a wrong rate gives null, which is caught.
            let state = unsafe {
                opus_encoder_create(rate_hz, channels, OPUS_APPLICATION_AUDIO, &mut code)
            };
            Self(NonNull::new(state).expect("rates and channels in tests are valid"))
        }

        /// One packet of `samples` samples per channel; `pcm` is interleaved.
        pub(crate) fn encode(&mut self, pcm: &[f32], samples: usize) -> Vec<u8> {
            assert!(pcm.len() >= samples);
            let mut packet = vec![0; 8_000];
            // SAFETY: the state is live; tests pass `samples` samples for each of their channels, and `packet` has
            // the room that is passed.
            let bytes = unsafe {
                let (pcm, out) = (pcm.as_ptr(), packet.as_mut_ptr());
                opus_encode_float(self.0.as_ptr(), pcm, samples as i32, out, 8_000)
            };
            packet.truncate(usize::try_from(bytes).expect("packet lengths in tests are valid"));
            packet
        }
    }

    impl Drop for AnyEncoder {
        fn drop(&mut self) {
            // SAFETY: the state came from opus_encoder_create and is not used again.
            unsafe { opus_encoder_destroy(self.0.as_ptr()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn no_packet_panics_and_none_decodes_to_more_than_120_ms(
            packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..6),
        ) {
            let mut decoder = Decoder::new().unwrap();
            let mut pcm = [0.0; PACKET_SAMPLES_MAX];
            for packet in packets {
                if let Ok(samples) = decoder.decode(&packet, &mut pcm) {
                    prop_assert!((1..=PACKET_SAMPLES_MAX).contains(&samples));
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_none_do_not_reach_the_listener() {
        let mut encoder = Encoder::new().unwrap();
        let mut decoder = Decoder::new().unwrap();
        let mut packet = [0; PACKET_BYTES_MAX];
        let mut pcm = [0.0; PACKET_SAMPLES_MAX];
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -3.0] {
            let bytes = encoder.encode(&[bad; FRAME_SAMPLES], &mut packet).unwrap();
            let samples = decoder.decode(&packet[..bytes], &mut pcm).unwrap();
            assert_eq!(samples, FRAME_SAMPLES);
            // A jump from one limit to the other overshoots when it is decoded.
            assert!(
                pcm[..samples].iter().all(|sample| sample.abs() < 3.0),
                "{bad}"
            );
        }
    }

    #[test]
    fn wrong_sizes_are_errors() {
        let mut encoder = Encoder::new().unwrap();
        let mut packet = [0; PACKET_BYTES_MAX];
        assert!(encoder.encode(&[0.0; 100], &mut packet).is_err());
        let mut pcm = [0.0; PACKET_SAMPLES_MAX];
        let empty = Decoder::new().unwrap().decode(&[], &mut pcm);
        assert_eq!(empty, Err(OpusError::Packet { code: 0 }));
    }
}
