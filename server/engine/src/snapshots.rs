//! Snapshots: the state of a row right after its prompt was read, kept so that the next call with that prompt is live
//! at once.
//!
//! Lives here: the bounded cache, least recently used out first. May not live here: how a row is saved or restored.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// One saved row and the bytes it takes.
struct Entry<V> {
    value: Arc<V>,
    bytes: usize,
    used: u64,
}

/// A cache of saved rows, bounded in bytes.
pub struct Snapshots<K, V> {
    entries: HashMap<K, Entry<V>>,
    bytes: usize,
    bytes_max: usize,
    clock: u64,
}

impl<K: Eq + Hash + Clone, V> Snapshots<K, V> {
    /// An empty cache of at most `bytes_max`; 0 keeps nothing.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            bytes: 0,
            bytes_max,
            clock: 0,
        }
    }

    /// The saved row under `key`, which counts as used now.
    pub fn get(&mut self, key: &K) -> Option<Arc<V>> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(Arc::clone(&entry.value))
    }

    /// Keeps `value`, which takes `bytes`, and drops the least recently used ones until all fit. A value larger than the
    /// whole cache is not kept.
    pub fn insert(&mut self, key: K, value: V, bytes: usize) {
        if bytes > self.bytes_max {
            return;
        }
        self.clock += 1;
        let entry = Entry {
            value: Arc::new(value),
            bytes,
            used: self.clock,
        };
        if let Some(old) = self.entries.insert(key, entry) {
            self.bytes -= old.bytes;
        }
        self.bytes += bytes;
        while self.bytes > self.bytes_max {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let key = oldest
                .map(|(key, _)| key.clone())
                .expect("bytes above 0 means an entry");
            let entry = self.entries.remove(&key).expect("the key was just seen");
            self.bytes -= entry.bytes;
        }
    }

    /// Bytes of all saved rows.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_snapshot_goes_first() {
        let mut cache = Snapshots::new(10);
        cache.insert("a", 1, 4);
        cache.insert("b", 2, 4);
        assert!(cache.get(&"a").is_some(), "a is used again");
        cache.insert("c", 3, 4);
        assert!(cache.get(&"b").is_none());
        assert_eq!(
            (cache.get(&"a").as_deref(), cache.get(&"c").as_deref()),
            (Some(&1), Some(&3))
        );
        assert_eq!(cache.bytes(), 8);
    }

    #[test]
    fn a_snapshot_larger_than_the_cache_is_not_kept_and_drives_nothing_out() {
        let mut cache = Snapshots::new(10);
        cache.insert("a", 1, 10);
        cache.insert("b", 2, 11);
        assert_eq!(
            (cache.get(&"a").is_some(), cache.get(&"b").is_some()),
            (true, false)
        );
    }

    #[test]
    fn replacing_a_snapshot_counts_its_bytes_once() {
        let mut cache = Snapshots::new(10);
        cache.insert("a", 1, 6);
        cache.insert("a", 2, 8);
        assert_eq!((cache.bytes(), cache.get(&"a").as_deref()), (8, Some(&2)));
    }
}
