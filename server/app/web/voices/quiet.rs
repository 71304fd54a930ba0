//! A thread of low priority for work of some seconds, so that the tick and the sessions go first.

#![allow(unsafe_code)]

use tokio::sync::oneshot;

/// The lowest priority a thread can have and still be served on a busy machine.
#[cfg(target_os = "linux")]
const NICEST: libc::c_int = 19;

/// What `work` gives; `None`: it panicked, or the system has no thread for it.
pub(super) async fn quietly<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, result) = oneshot::channel();
    let spawned = std::thread::Builder::new()
        .name("voice-maker".to_owned())
        .spawn(move || {
            step_back();
            // Nobody may be waiting any more.
            let _ = done.send(work());
        });
    match spawned {
        Ok(_) => result.await.ok(),
        Err(error) => {
            tracing::error!(%error, "no thread for a voice");
            None
        }
    }
}

/// Lets every other thread go first. On Linux a priority belongs to a thread; elsewhere it would be the process's.
fn step_back() {
    #[cfg(target_os = "linux")]
    // SAFETY: takes three numbers and touches no memory. 0 is the calling thread.
    let failed = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICEST) } != 0;
    #[cfg(target_os = "linux")]
    if failed {
        tracing::debug!("a thread kept its priority");
    }
}
