//! From the bytes of a file to samples. The content says what it is, never the name.
//!
//! May not live here: what is done with the samples.

use std::io::Cursor;

use audio::opus_read::{AudioError, OpusReader};
use symphonia::core::codecs::audio::AudioDecoderOptions;
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;

use crate::resample::{RATE_HZ_MAX, RATE_HZ_MIN};

/// Rate that Opus is decoded to.
const OPUS_RATE_HZ: u32 = 24_000;
/// Bytes handed to the Opus reader at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// Packets in a row that cannot be decoded before the file is given up.
const BAD_PACKETS_MAX: u32 = 25;
/// Bytes in which the head of an Opus stream stands, if it is one.
const HEAD_BYTES: usize = 4 * 1024;

/// A file that gives no sound.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Of no known format.
    #[error("this is no recording that can be read: wav, flac, ogg (Vorbis or Opus) and mp3 are")]
    Unknown,
    /// Known, and damaged.
    #[error("the recording is damaged: {what}")]
    Damaged {
        /// What the decoder said.
        what: String,
    },
    /// Not one or two channels.
    #[error("the recording has {channels} channels, one or two are taken")]
    Channels {
        /// How many.
        channels: usize,
    },
    /// Outside of what can be resampled.
    #[error(
        "the recording has {rate_hz} samples a second, {RATE_HZ_MIN} to {RATE_HZ_MAX} are taken"
    )]
    Rate {
        /// How many.
        rate_hz: u32,
    },
    /// Not decoded any further.
    #[error("the recording is longer than {seconds_max} s")]
    TooLong {
        /// The limit.
        seconds_max: u32,
    },
}

/// A whole recording.
#[derive(Debug)]
pub(super) struct Decoded {
    /// One or two, each as long as the others.
    pub(super) channels: Vec<Vec<f32>>,
    /// Samples a second.
    pub(super) rate_hz: u32,
}

/// Decodes `file`, and stops as soon as it turns out longer than `seconds_max`.
pub(super) fn decode(file: Vec<u8>, seconds_max: u32) -> Result<Decoded, DecodeError> {
    let head = &file[..file.len().min(HEAD_BYTES)];
    let is_opus = head.starts_with(b"OggS") && head.windows(8).any(|part| part == b"OpusHead");
    match is_opus {
        true => decode_opus(&file, seconds_max),
        false => decode_other(file, seconds_max),
    }
}

fn decode_opus(file: &[u8], seconds_max: u32) -> Result<Decoded, DecodeError> {
    let damaged = |error: AudioError| DecodeError::Damaged {
        what: error.to_string(),
    };
    let mut reader = OpusReader::begin().map_err(|error| DecodeError::Damaged {
        what: error.to_string(),
    })?;
    let samples_max = (seconds_max * OPUS_RATE_HZ) as usize;
    let mut pcm = Vec::new();
    for chunk in file.chunks(CHUNK_BYTES) {
        reader.push(chunk);
        while let Some(frame) = reader.next_frame().map_err(damaged)? {
            pcm.extend_from_slice(frame);
            if pcm.len() > samples_max {
                return Err(DecodeError::TooLong { seconds_max });
            }
        }
    }
    pcm.extend_from_slice(reader.standing());
    Ok(Decoded {
        channels: vec![pcm],
        rate_hz: OPUS_RATE_HZ,
    })
}

fn decode_other(file: Vec<u8>, seconds_max: u32) -> Result<Decoded, DecodeError> {
    let damaged = |error: Error| DecodeError::Damaged {
        what: error.to_string(),
    };
    let stream = MediaSourceStream::new(
        Box::new(Cursor::new(file)),
        MediaSourceStreamOptions::default(),
    );
    let mut format = symphonia::default::get_probe()
        .probe(
            &Hint::new(),
            stream,
            FormatOptions::default(),
            MetadataOptions::default(),
        )
        .map_err(|_| DecodeError::Unknown)?;
    let track = format
        .default_track(TrackType::Audio)
        .ok_or(DecodeError::Unknown)?;
    let track_id = track.id;
    let parameters = track.codec_params.as_ref();
    let parameters = parameters
        .and_then(|parameters| parameters.audio())
        .ok_or(DecodeError::Unknown)?;
    let mut decoder = symphonia::default::get_codecs()
        .make_audio_decoder(parameters, &AudioDecoderOptions::default())
        .map_err(|_| DecodeError::Unknown)?;
    let mut channels: Vec<Vec<f32>> = Vec::new();
    let mut part: Vec<Vec<f32>> = Vec::new();
    let (mut rate_hz, mut bad_in_a_row) = (0, 0);
    loop {
        let packet = match format.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            // A file that ends too early is as long as it is.
            Err(Error::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                break;
            }
            Err(error) => return Err(damaged(error)),
        };
        if packet.track_id != track_id {
            continue;
        }
        let decoded = match decoder.decode(&packet) {
            Ok(decoded) => decoded,
            Err(Error::DecodeError(what)) => {
                bad_in_a_row += 1;
                if bad_in_a_row > BAD_PACKETS_MAX {
                    let what = what.to_owned();
                    return Err(DecodeError::Damaged { what });
                }
                continue;
            }
            Err(error) => return Err(damaged(error)),
        };
        bad_in_a_row = 0;
        let found = (decoded.spec().rate(), decoded.num_planes());
        if channels.is_empty() {
            rate_hz = check(found)?;
            channels.resize_with(found.1, Vec::new);
        } else if found != (rate_hz, channels.len()) {
            let what = "its rate or its channels change on the way".to_owned();
            return Err(DecodeError::Damaged { what });
        }
        decoded.copy_to_vecs_planar(&mut part);
        for (channel, part) in channels.iter_mut().zip(&part) {
            let finite = |&sample: &f32| if sample.is_finite() { sample } else { 0.0 };
            channel.extend(part.iter().map(finite));
        }
        if channels[0].len() as u64 > u64::from(seconds_max) * u64::from(rate_hz) {
            return Err(DecodeError::TooLong { seconds_max });
        }
    }
    match channels.is_empty() {
        true => Err(DecodeError::Damaged {
            what: "there is no sound in it".to_owned(),
        }),
        false => Ok(Decoded { channels, rate_hz }),
    }
}

fn check((rate_hz, channels): (u32, usize)) -> Result<u32, DecodeError> {
    if !(1..=2).contains(&channels) {
        return Err(DecodeError::Channels { channels });
    }
    match (RATE_HZ_MIN..=RATE_HZ_MAX).contains(&rate_hz) {
        true => Ok(rate_hz),
        false => Err(DecodeError::Rate { rate_hz }),
    }
}
