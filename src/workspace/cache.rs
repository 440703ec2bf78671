//! What was made of files the last time: an unchanged file costs no more than a look at it.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::base::bounded::BoundedMap;
use crate::base::limits::{FILE_CLOCK_STEP, MAX_CACHED_FILES};
use crate::workspace::files::{Head, Identity, ReadError, read_head};

/// What was made of each file; clones share it.
#[derive(Clone, Debug)]
pub struct Cache<T> {
    kept: Arc<Mutex<Kept<T>>>,
}

/// By path, what a file was read as and what was made of it.
type Kept<T> = BoundedMap<Box<Path>, (Identity, T)>;

impl<T: Clone> Cache<T> {
    /// Makes of `file`, which is called `path`, what was made of it before if it is unchanged, else
    /// what `make` makes of its first `bound` bytes.
    ///
    /// A file that was changed around the time `now` may change again within one step of its clock:
    /// nothing is kept of it.
    pub fn make(
        &self,
        path: &Path,
        file: File,
        now: SystemTime,
        bound: usize,
        make: impl FnOnce(&Head) -> T,
    ) -> Result<T, ReadError> {
        let identity = Identity::of(&file)?;
        if let Some(made) = self.find(path, identity) {
            return Ok(made);
        }
        let head = read_head(file, bound)?;
        let made = make(&head);
        if let Some(identity) = head.identity
            && is_settled(&identity, now)
        {
            self.keep(path, identity, made.clone());
        }
        Ok(made)
    }

    fn find(&self, path: &Path, identity: Identity) -> Option<T> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, made) = kept.find(path)?;
        (*known == identity).then(|| made.clone())
    }

    fn keep(&self, path: &Path, identity: Identity, made: T) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = (identity, made);
        if let Err(full) = kept.try_insert(path.into(), entry.clone()) {
            // Files come and go: what is still there is soon back.
            *kept = BoundedMap::new(full.capacity);
            let _ = kept.try_insert(path.into(), entry);
        }
    }
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self {
            kept: Arc::new(Mutex::new(BoundedMap::new(MAX_CACHED_FILES))),
        }
    }
}

fn is_settled(identity: &Identity, now: SystemTime) -> bool {
    let seconds = u64::try_from(identity.last_change()).unwrap_or_default();
    let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    let age = changed.and_then(|changed| now.duration_since(changed).ok());
    age.is_some_and(|age| age >= FILE_CLOCK_STEP)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace::files::{Links, Root, to_text};

    #[test]
    fn unchanged_file_is_not_read_again_and_a_changed_one_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("SOUL.md");
        fs::write(&path, "one").unwrap();
        let root = Root::open(folder.path()).unwrap();
        let cache = Cache::default();
        let reads = std::cell::Cell::new(0);
        let read = |now| {
            let name = Path::new("SOUL.md");
            let file = root.file(name, Links::Inside).unwrap().unwrap();
            let made = cache.make(name, file, now, 16, |head| {
                reads.set(reads.get() + 1);
                to_text(head)
            });
            (made.unwrap(), reads.get())
        };
        let changed = fs::metadata(&path).unwrap().modified().unwrap();
        let (now, later) = (changed, changed + Duration::from_mins(1));
        assert_eq!(read(now), ("one".to_owned(), 1));
        assert_eq!(
            read(now),
            ("one".to_owned(), 2),
            "it may change within the step"
        );
        assert_eq!(read(later), ("one".to_owned(), 3));
        assert_eq!(read(later), ("one".to_owned(), 3));
        fs::write(&path, "two!").unwrap();
        assert_eq!(read(later), ("two!".to_owned(), 4));
    }
}
