//! The WebSocket itself: messages out with a time limit, what its errors mean, the last words before it closes.
//!
//! May not live here: audio, seats.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use wire::notice::{EndReason, Notice};
use wire::socket::{Downlink, MESSAGE_BYTES_MAX};

use super::limits::{SessionLimits, WRITE_BUFFER_BYTES_MAX};
use super::link::Over;

/// The writing half.
pub(super) type Sink = SplitSink<WebSocket, Message>;
/// The reading half.
pub(super) type Stream = SplitStream<WebSocket>;

/// Read before a message over the limit is refused, so that the refusal can be heard; beyond that the line is cut.
const READ_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;
/// The longest reason a close message can carry. Source: RFC 6455, section 5.5.
const CLOSE_REASON_BYTES_MAX: usize = 123;
/// A caller sends little; the default of 128 kB for each would be most of a session's memory.
const READ_BUFFER_BYTES: usize = 8 * 1024;

/// Sets the limits of a connection that is about to be upgraded.
pub fn limited(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade
        .read_buffer_size(READ_BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BUFFER_BYTES_MAX)
        .max_message_size(READ_BYTES_MAX)
        .max_frame_size(READ_BYTES_MAX)
}

/// The WebSocket form of `downlink`.
pub(super) fn binary(downlink: Downlink<'_>) -> Message {
    Message::Binary(downlink.to_bytes().into())
}

/// The WebSocket form of `notice`.
pub(super) fn metadata(notice: &Notice) -> Message {
    // A notice is numbers and strings; only maps with odd keys can fail.
    let json = serde_json::to_string(notice).unwrap_or_default();
    binary(Downlink::Metadata(&json))
}

/// Sends `messages` and flushes once, so that nothing waits for company.
///
/// # Errors
/// The connection is over: broken, or the peer takes nothing for `within`.
pub(super) async fn send(
    sink: &mut Sink,
    messages: impl IntoIterator<Item = Message>,
    within: Duration,
) -> Result<(), Over> {
    let sending = async {
        for message in messages {
            sink.feed(message).await?;
        }
        sink.flush().await
    };
    match timeout(within, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(meaning(error)),
        Err(_) => Err(Over::Ended(
            EndReason::ListenerTooSlow,
            format!("nothing could be sent for {} s", within.as_secs_f32()),
        )),
    }
}

/// What an error of the socket means for the call.
pub(super) fn meaning(error: axum::Error) -> Over {
    let Ok(error) = error.into_inner().downcast::<SocketError>() else {
        return Over::Lost;
    };
    match *error {
        SocketError::ConnectionClosed => Over::HungUp,
        SocketError::Capacity(error) => Over::Ended(EndReason::MessageTooBig, error.to_string()),
        SocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Over::Lost,
        SocketError::Protocol(error) => Over::Ended(EndReason::BadMessages, error.to_string()),
        SocketError::Utf8(what) => Over::Ended(EndReason::BadMessages, what),
        _ => Over::Lost,
    }
}

/// Ends a connection: says why (0x05, with `ext` also as JSON), sends the close message and waits for its answer.
/// Best effort and within the limit: the peer may be gone, or may be why the call ends.
pub(super) async fn farewell(
    sink: &mut Sink,
    stream: &mut Stream,
    ext: bool,
    (reason, text): (EndReason, &str),
    limits: &SessionLimits,
) {
    let mut words = Vec::with_capacity(3);
    if reason != EndReason::HungUp {
        words.push(binary(Downlink::Error(text)));
    }
    if ext {
        words.push(metadata(&Notice::Ended {
            reason,
            message: text.to_owned(),
            redial: reason.redial(),
        }));
    }
    words.push(Message::Close(Some(CloseFrame {
        code: reason.close_code(),
        reason: shortened(text, CLOSE_REASON_BYTES_MAX).into(),
    })));
    let parting = async {
        let sent = send(sink, words, limits.close_within).await;
        // Reading on keeps the system from answering unread bytes with a reset, which would overtake our last words.
        while sent.is_ok() && matches!(stream.next().await, Some(Ok(_))) {}
    };
    let _ = timeout(limits.close_within, parting).await;
}

/// The answer to a peer's close message.
pub(super) async fn answer_close(sink: &mut Sink, limits: &SessionLimits) {
    let _ = timeout(limits.close_within, sink.close()).await;
}

/// The longest beginning of `text` that has at most `bytes` bytes.
fn shortened(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_reason_is_cut_between_characters() {
        assert_eq!(shortened("grüße", 3), "gr");
        assert_eq!(shortened("grüße", 4), "grü");
        assert_eq!(shortened("gr", 123), "gr");
    }
}
