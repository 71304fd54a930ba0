//! The voices that can be called now: the model's own but those taken out, and those added while the server runs.
//!
//! May not live here: where added voices are kept, prompts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{BUNDLES_MAX, LIBRARY_BYTES_MAX, VoiceBundle, VoiceLibrary, stem};

/// A voice that cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShelfError {
    /// Names of the model's folder stay what they are.
    #[error("the model has a voice named {name} of its own")]
    ModelsName {
        /// That voice.
        name: String,
    },
    /// All are held in memory.
    #[error("there are too many voices: {BUNDLES_MAX} or {} MiB are the limit", LIBRARY_BYTES_MAX >> 20)]
    Full,
}

/// Which voices there are. Shared by everybody who prepares calls.
#[derive(Debug, Default)]
pub struct Shelf {
    library: Arc<VoiceLibrary>,
    /// Locked for a look or a change, by threads that prepare calls and handlers of requests; never by the tick.
    changes: RwLock<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    added: BTreeMap<String, Arc<VoiceBundle>>,
    /// Names of the model's folder that are not to be called.
    taken_out: BTreeSet<String>,
}

/// A voice with its name.
pub type NamedVoice = (String, Arc<VoiceBundle>);

impl Shelf {
    /// All voices of `library`.
    pub fn new(library: Arc<VoiceLibrary>) -> Self {
        Self {
            library,
            changes: RwLock::default(),
        }
    }

    /// The voice of that name, with or without `.pt` or `.safetensors`.
    pub fn get(&self, name: &str) -> Option<NamedVoice> {
        let changes = self.read();
        let added = |name: &str| {
            let found = changes.added.get_key_value(name);
            found.map(|(name, bundle)| (name.clone(), Arc::clone(bundle)))
        };
        let found = added(name).or_else(|| added(stem(name)?));
        found.or_else(|| {
            let (name, bundle) = self.library.get(name)?;
            let present = !changes.taken_out.contains(name);
            present.then(|| (name.to_owned(), Arc::clone(bundle)))
        })
    }

    /// All that can be called, sorted by name.
    pub fn all(&self) -> Vec<NamedVoice> {
        let changes = self.read();
        let own = self.library.names().filter_map(|name| {
            let present = !changes.taken_out.contains(name);
            let (name, bundle) = present.then(|| self.library.get(name)).flatten()?;
            Some((name.to_owned(), Arc::clone(bundle)))
        });
        let added = changes.added.iter();
        let added = added.map(|(name, bundle)| (name.clone(), Arc::clone(bundle)));
        let mut all: Vec<NamedVoice> = own.chain(added).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// Adds a voice, or puts it in the place of an added one of that name.
    ///
    /// # Errors
    /// [`ShelfError`]; nothing changes.
    pub fn add(&self, name: &str, bundle: VoiceBundle) -> Result<(), ShelfError> {
        let same = |own: &&str| own.eq_ignore_ascii_case(name);
        if let Some(own) = self.library.names().find(same) {
            return Err(ShelfError::ModelsName {
                name: own.to_owned(),
            });
        }
        let mut changes = self.write();
        let others = changes.added.iter().filter(|(other, _)| *other != name);
        let bytes = |bundle: &VoiceBundle| size_of_val(&bundle.embeddings[..]) as u64;
        let held: u64 = others.clone().map(|(_, other)| bytes(other)).sum();
        if others.count() >= BUNDLES_MAX || held + bytes(&bundle) > LIBRARY_BYTES_MAX {
            return Err(ShelfError::Full);
        }
        changes.added.insert(name.to_owned(), Arc::new(bundle));
        Ok(())
    }

    /// From now on no call finds it.
    pub fn remove(&self, name: &str) {
        let mut changes = self.write();
        if changes.added.remove(name).is_none()
            && let Some((own, _)) = self.library.get(name)
        {
            changes.taken_out.insert(own.to_owned());
        }
    }

    /// Calls find a voice of the model's folder again. Whether it is one.
    pub fn put_back(&self, name: &str) -> bool {
        self.write().taken_out.remove(name);
        self.library.get(name).is_some()
    }

    // A thread that panicked while it held the lock left one whole change or none.
    fn read(&self) -> RwLockReadGuard<'_, Changes> {
        self.changes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Changes> {
        self.changes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::Checkpoint;

    fn names(shelf: &Shelf) -> Vec<String> {
        shelf.all().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn voices_come_and_go_and_the_models_own_keep_their_names() {
        let demo = Checkpoint::demo().expect("the demo is part of the program");
        let shelf = Shelf::new(Arc::clone(demo.voices()));
        let (_, bundle) = shelf.get("NATF0.pt").expect("a voice of the demo");
        shelf.add("Ada", (*bundle).clone()).expect("a free name");
        assert_eq!(names(&shelf), ["Ada", "NATF0", "NATM0"]);
        assert_eq!(shelf.get("Ada.safetensors").expect("added").0, "Ada");
        let taken = shelf.add("natf0", (*bundle).clone());
        let name = "NATF0".to_owned();
        assert_eq!(taken, Err(ShelfError::ModelsName { name }));
        for name in ["Ada", "NATF0", "nobody", "../NATM0"] {
            shelf.remove(name);
        }
        assert_eq!(names(&shelf), ["NATM0"]);
        assert!(shelf.get("NATF0").is_none());
        assert!(shelf.put_back("NATF0") && !shelf.put_back("Ada"));
        assert_eq!(names(&shelf), ["NATF0", "NATM0"]);
    }
}
