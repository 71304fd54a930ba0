//! Memory for weights and rings: zeroed, aligned to cache lines, on huge pages where it is large.

#![allow(unsafe_code)]

use memmap2::{MmapMut, MmapOptions};

/// From here on memory comes from its own mapping, so that huge pages can be asked for: walking gigabytes of weights
/// every tick over 4 KiB pages costs about a tenth of the bandwidth.
const MAPPED_BYTES_MIN: usize = 4 << 20;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

enum Storage {
    Mapped(MmapMut),
    Heap(Vec<Line>),
}

/// A fixed block of zeroed bytes whose address is a multiple of 64.
pub(super) struct Buffer {
    storage: Storage,
    len: usize,
}

impl Buffer {
    pub(super) fn zeroed(len: usize) -> Buffer {
        let mapped = (len >= MAPPED_BYTES_MIN)
            .then(|| MmapOptions::new().len(len).map_anon().ok())
            .flatten();
        let storage = match mapped {
            Some(map) => {
                // A refusal only costs speed.
                #[cfg(target_os = "linux")]
                let _ = map.advise(memmap2::Advice::HugePage);
                Storage::Mapped(map)
            }
            None => Storage::Heap(vec![Line([0; 64]); len.div_ceil(64)]),
        };
        Buffer { storage, len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_ptr(&self) -> *const u8 {
        match &self.storage {
            Storage::Mapped(map) => map.as_ptr(),
            Storage::Heap(lines) => lines.as_ptr().cast(),
        }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        match &mut self.storage {
            Storage::Mapped(map) => map.as_mut_ptr(),
            Storage::Heap(lines) => lines.as_mut_ptr().cast(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: both storages hold at least `len` initialised bytes, borrowed as long as `self`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_as_long_as_asked() {
        for len in [0, 1, 63, 64, 65, MAPPED_BYTES_MIN - 1, MAPPED_BYTES_MIN + 1] {
            let mut buffer = Buffer::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % 64, 0);
            assert!(buffer.bytes().iter().all(|byte| *byte == 0));
            buffer.bytes_mut().fill(7);
            assert_eq!(buffer.bytes().len(), len);
        }
    }
}
