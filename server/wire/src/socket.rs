//! The messages of `/api/chat`: one enum for each direction, and their byte form.
//!
//! A message is one binary WebSocket message: byte 0 is the kind, the rest is the payload.
//!
//! | kind | name | payload | sent by the server | from a client |
//! |---|---|---|---|---|
//! | 0x00 | ready | none here; Kyutai's servers send two u32 LE versions | once, when the caller is live | ignored |
//! | 0x01 | audio | a piece of one continuous Ogg-Opus stream | yes | yes |
//! | 0x02 | text | UTF-8 of one text piece | yes | ignored |
//! | 0x03 | control | 1 byte: 0 start, 1 end of turn, 2 pause, 3 restart | no | ignored |
//! | 0x04 | metadata | UTF-8 JSON, see [`crate::notice`] | only to clients that asked with `ext=1` | ignored |
//! | 0x05 | error | UTF-8 | yes | ignored |
//! | 0x06 | ping | none | while the caller waits | a sign of life |
//! | 0x07 to 0x09 | coloured text, image, codes | of other servers | no | ignored |
//!
//! Empty messages and unknown kinds are no errors: [`Uplink::Empty`] and [`Uplink::Unknown`].
//! May not live here: what Ogg, JSON or a caller is.

use std::fmt;

/// Kind 0x00, see the table at the head of this file.
pub const KIND_READY: u8 = 0x00;
/// Kind 0x01.
pub const KIND_AUDIO: u8 = 0x01;
/// Kind 0x02.
pub const KIND_TEXT: u8 = 0x02;
/// Kind 0x03.
pub const KIND_CONTROL: u8 = 0x03;
/// Kind 0x04.
pub const KIND_METADATA: u8 = 0x04;
/// Kind 0x05.
pub const KIND_ERROR: u8 = 0x05;
/// Kind 0x06.
pub const KIND_PING: u8 = 0x06;

/// Close code of a caller who takes its call up on another connection: the seat is kept, as for a line that broke. Any
/// other close message hangs up.
pub const CLOSE_LINE_LOST: u16 = 4000;

/// The largest message either side takes, in bytes. A client that held back a minute of audio at 128 kbit/s
/// and sends it at once stays below.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A message from a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uplink<'a> {
    /// A message without a single byte; ignored.
    Empty,
    /// 0x00 with whatever payload; servers have no use for it.
    Ready,
    /// 0x01: the next bytes of the caller's Ogg-Opus stream, cut anywhere.
    Audio(&'a [u8]),
    /// 0x02: text; the published clients never send it.
    Text(&'a str),
    /// 0x03.
    Control(Control),
    /// 0x04: JSON, not parsed here.
    Metadata(&'a str),
    /// 0x05: the caller complains.
    Error(&'a str),
    /// 0x06: a sign of life.
    Ping,
    /// 0x07 and above: of no meaning here, and no error.
    Unknown {
        /// Byte 0.
        kind: u8,
        /// The rest.
        payload: &'a [u8],
    },
}

/// A message to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downlink<'a> {
    /// A message without a single byte; ignored.
    Empty,
    /// 0x00: from here on both sides stream. This server sends the bare byte; others send versions.
    Ready(Option<Versions>),
    /// 0x01: the next bytes of the agent's Ogg-Opus stream; from this server exactly one Ogg page.
    Audio(&'a [u8]),
    /// 0x02: one piece of what the agent says.
    Text(&'a str),
    /// 0x03; no server sends it.
    Control(Control),
    /// 0x04: JSON, not parsed here.
    Metadata(&'a str),
    /// 0x05: what went wrong, one line for a person.
    Error(&'a str),
    /// 0x06: the server is alive, the caller's turn has not come yet.
    Ping,
    /// 0x07 and above: of other servers.
    Unknown {
        /// Byte 0.
        kind: u8,
        /// The rest.
        payload: &'a [u8],
    },
}

/// The payload of a ready message from Kyutai's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Of the protocol, 0 so far.
    pub protocol: u32,
    /// Of the model, 0 so far.
    pub model: u32,
}

/// The payload of a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Begin.
    Start,
    /// The caller has finished speaking.
    EndTurn,
    /// Stand still.
    Pause,
    /// Begin anew.
    Restart,
}

/// A message that is not what its kind promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// A payload that must be UTF-8 is not.
    NotUtf8 {
        /// Byte 0 of the message.
        kind: u8,
    },
    /// A control message must have one payload byte from 0 to 3.
    Control {
        /// How many payload bytes it has.
        payload_bytes: usize,
    },
    /// A ready message has no payload, or 8 bytes.
    Ready {
        /// How many payload bytes it has.
        payload_bytes: usize,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 { kind } => write!(f, "a message of kind 0x{kind:02x} must be UTF-8"),
            Self::Control { payload_bytes } => write!(
                f,
                "a control message (0x03) carries one byte from 0 to 3, this one has {payload_bytes} bytes"
            ),
            Self::Ready { payload_bytes } => write!(
                f,
                "a ready message (0x00) carries nothing or 8 bytes, this one has {payload_bytes}"
            ),
        }
    }
}

impl std::error::Error for ParseError {}

impl<'a> Uplink<'a> {
    /// Reads one binary message.
    ///
    /// # Errors
    /// [`ParseError`]: the payload is not what the kind promises. Unknown kinds and empty messages are no errors.
    pub fn parse(message: &'a [u8]) -> Result<Self, ParseError> {
        let Some((&kind, payload)) = message.split_first() else {
            return Ok(Self::Empty);
        };
        Ok(match kind {
            KIND_READY => Self::Ready,
            KIND_AUDIO => Self::Audio(payload),
            KIND_TEXT => Self::Text(text(kind, payload)?),
            KIND_CONTROL => Self::Control(Control::parse(payload)?),
            KIND_METADATA => Self::Metadata(text(kind, payload)?),
            KIND_ERROR => Self::Error(text(kind, payload)?),
            KIND_PING => Self::Ping,
            kind => Self::Unknown { kind, payload },
        })
    }

    /// The byte form. [`Uplink::parse`] gives the same value back.
    pub fn to_bytes(&self) -> Vec<u8> {
        match *self {
            Self::Empty => Vec::new(),
            Self::Ready => vec![KIND_READY],
            Self::Audio(ogg) => message(KIND_AUDIO, ogg),
            Self::Text(text) => message(KIND_TEXT, text.as_bytes()),
            Self::Control(control) => vec![KIND_CONTROL, control.byte()],
            Self::Metadata(json) => message(KIND_METADATA, json.as_bytes()),
            Self::Error(text) => message(KIND_ERROR, text.as_bytes()),
            Self::Ping => vec![KIND_PING],
            Self::Unknown { kind, payload } => message(kind, payload),
        }
    }
}

impl<'a> Downlink<'a> {
    /// Reads one binary message; both forms of the ready message are taken.
    ///
    /// # Errors
    /// [`ParseError`]: the payload is not what the kind promises. Unknown kinds and empty messages are no errors.
    pub fn parse(message: &'a [u8]) -> Result<Self, ParseError> {
        let Some((&kind, payload)) = message.split_first() else {
            return Ok(Self::Empty);
        };
        Ok(match kind {
            KIND_READY => Self::Ready(Versions::parse(payload)?),
            KIND_AUDIO => Self::Audio(payload),
            KIND_TEXT => Self::Text(text(kind, payload)?),
            KIND_CONTROL => Self::Control(Control::parse(payload)?),
            KIND_METADATA => Self::Metadata(text(kind, payload)?),
            KIND_ERROR => Self::Error(text(kind, payload)?),
            KIND_PING => Self::Ping,
            kind => Self::Unknown { kind, payload },
        })
    }

    /// The byte form. [`Downlink::parse`] gives the same value back.
    pub fn to_bytes(&self) -> Vec<u8> {
        match *self {
            Self::Empty => Vec::new(),
            Self::Ready(None) => vec![KIND_READY],
            Self::Ready(Some(versions)) => message(KIND_READY, &versions.bytes()),
            Self::Audio(ogg) => message(KIND_AUDIO, ogg),
            Self::Text(text) => message(KIND_TEXT, text.as_bytes()),
            Self::Control(control) => vec![KIND_CONTROL, control.byte()],
            Self::Metadata(json) => message(KIND_METADATA, json.as_bytes()),
            Self::Error(text) => message(KIND_ERROR, text.as_bytes()),
            Self::Ping => vec![KIND_PING],
            Self::Unknown { kind, payload } => message(kind, payload),
        }
    }
}

impl Control {
    fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        match payload {
            [0] => Ok(Self::Start),
            [1] => Ok(Self::EndTurn),
            [2] => Ok(Self::Pause),
            [3] => Ok(Self::Restart),
            _ => Err(ParseError::Control {
                payload_bytes: payload.len(),
            }),
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Start => 0,
            Self::EndTurn => 1,
            Self::Pause => 2,
            Self::Restart => 3,
        }
    }
}

impl Versions {
    fn parse(payload: &[u8]) -> Result<Option<Self>, ParseError> {
        match *payload {
            [] => Ok(None),
            [a, b, c, d, e, f, g, h] => Ok(Some(Self {
                protocol: u32::from_le_bytes([a, b, c, d]),
                model: u32::from_le_bytes([e, f, g, h]),
            })),
            _ => Err(ParseError::Ready {
                payload_bytes: payload.len(),
            }),
        }
    }

    fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.protocol.to_le_bytes());
        bytes[4..].copy_from_slice(&self.model.to_le_bytes());
        bytes
    }
}

fn text(kind: u8, payload: &[u8]) -> Result<&str, ParseError> {
    std::str::from_utf8(payload).map_err(|_| ParseError::NotUtf8 { kind })
}

fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + payload.len());
    bytes.push(kind);
    bytes.extend_from_slice(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_have_the_published_bytes() {
        let cases: [(Downlink<'_>, &[u8]); 7] = [
            (Downlink::Ready(None), &[0]),
            (
                Downlink::Ready(Some(Versions {
                    protocol: 0,
                    model: 1,
                })),
                &[0, 0, 0, 0, 0, 1, 0, 0, 0],
            ),
            (Downlink::Audio(b"OggS"), b"\x01OggS"),
            (Downlink::Text("grüß"), "\u{2}grüß".as_bytes()),
            (Downlink::Metadata("{}"), b"\x04{}"),
            (Downlink::Error("no"), b"\x05no"),
            (Downlink::Ping, &[6]),
        ];
        for (message, bytes) in cases {
            assert_eq!(message.to_bytes(), bytes, "{message:?}");
            assert_eq!(Downlink::parse(bytes), Ok(message));
        }
    }

    #[test]
    fn odd_messages_are_told_apart_from_broken_ones() {
        let unknown = |kind, payload| Ok(Uplink::Unknown { kind, payload });
        let cases: [(&[u8], Result<Uplink<'_>, ParseError>); 11] = [
            (&[], Ok(Uplink::Empty)),
            (&[0], Ok(Uplink::Ready)),
            (&[0, 9, 9], Ok(Uplink::Ready)),
            (&[1], Ok(Uplink::Audio(&[]))),
            (&[3, 2], Ok(Uplink::Control(Control::Pause))),
            (&[3], Err(ParseError::Control { payload_bytes: 0 })),
            (&[3, 4], Err(ParseError::Control { payload_bytes: 1 })),
            (&[2, 0xff], Err(ParseError::NotUtf8 { kind: 2 })),
            (&[7, 1], unknown(7, &[1])),
            (&[9], unknown(9, &[])),
            (&[0x7f, 1, 2], unknown(0x7f, &[1, 2])),
        ];
        for (bytes, expected) in cases {
            assert_eq!(Uplink::parse(bytes), expected, "{bytes:?}");
        }
        assert_eq!(
            Downlink::parse(&[0, 1]),
            Err(ParseError::Ready { payload_bytes: 1 })
        );
    }

    fn control() -> impl Strategy<Value = Control> {
        prop_oneof![
            Just(Control::Start),
            Just(Control::EndTurn),
            Just(Control::Pause),
            Just(Control::Restart)
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            variant in 0..9u8,
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            string in ".{0,80}",
            control in control(),
            versions in proptest::option::of((any::<u32>(), any::<u32>())),
            kind in 7..=255u8,
        ) {
            let uplink = match variant {
                0 => Uplink::Empty,
                1 => Uplink::Ready,
                2 => Uplink::Audio(&payload),
                3 => Uplink::Text(&string),
                4 => Uplink::Control(control),
                5 => Uplink::Metadata(&string),
                6 => Uplink::Error(&string),
                7 => Uplink::Ping,
                _ => Uplink::Unknown { kind, payload: &payload },
            };
            let bytes = uplink.to_bytes();
            prop_assert_eq!(Uplink::parse(&bytes), Ok(uplink));
            let versions = versions.map(|(protocol, model)| Versions { protocol, model });
            let downlink = match variant {
                0 => Downlink::Empty,
                1 => Downlink::Ready(versions),
                2 => Downlink::Audio(&payload),
                3 => Downlink::Text(&string),
                4 => Downlink::Control(control),
                5 => Downlink::Metadata(&string),
                6 => Downlink::Error(&string),
                7 => Downlink::Ping,
                _ => Downlink::Unknown { kind, payload: &payload },
            };
            let bytes = downlink.to_bytes();
            prop_assert_eq!(Downlink::parse(&bytes), Ok(downlink));
        }

        #[test]
        fn no_byte_string_panics_and_writing_what_was_read_changes_nothing(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            if let Ok(downlink) = Downlink::parse(&bytes) {
                let again = downlink.to_bytes();
                prop_assert_eq!(Downlink::parse(&again), Ok(downlink));
            }
            if let Ok(uplink) = Uplink::parse(&bytes) {
                let again = uplink.to_bytes();
                prop_assert_eq!(Uplink::parse(&again), Ok(uplink));
            }
        }
    }
}
