//! Reading files below a root: regular files, no way out, a bound on what is read.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

/// Why a file is left out.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It has another name elsewhere, which may lie outside the root.
    #[error("has more than one hard link")]
    HardLink,
    /// The system says no.
    #[error("can't be read: {0}")]
    Io(#[source] io::Error),
    /// A symbolic link on the way to it leads out of the root, or may not be followed.
    #[error("is reached by a symbolic link that may not be followed")]
    Link,
    /// It is a folder, a pipe or a device.
    #[error("is not a regular file")]
    NotRegular,
}

/// Whether symbolic links count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Those that stay below the root do, where the system can see to it.
    Inside,
    /// None does.
    Never,
}

/// An open folder that nothing leads out of.
#[derive(Debug)]
pub struct Root(File);

/// What tells whether a file is the same as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device and number of the file.
    pub file: (u64, u64),
    size: u64,
    changed: [(i64, i64); 2],
}

/// The head of a file.
#[derive(Debug)]
pub struct Head {
    /// Its bytes, up to the bound.
    pub bytes: Vec<u8>,
    /// How many more there are.
    pub unread: usize,
    /// What it was read as; nothing if it kept changing meanwhile.
    pub identity: Option<Identity>,
}

impl Root {
    /// Opens the folder at `path`, which may be a symbolic link itself.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY.bits();
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        Ok(Self(folder))
    }

    /// Device and number of the folder.
    pub fn identity(&self) -> Option<(u64, u64)> {
        self.0.metadata().ok().map(|it| (it.dev(), it.ino()))
    }

    /// The names in the folder `path`, at most `most` of them, and whether there are more; nothing
    /// where there is no such folder.
    pub fn names(
        &self,
        path: &Path,
        most: usize,
    ) -> Result<Option<(Vec<String>, bool)>, ReadError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let Some(folder) = self.find(path, flags, Links::Inside)? else {
            return Ok(None);
        };
        let mut names = Vec::new();
        for entry in Dir::from_fd(folder).map_err(to_error)? {
            let name = entry.map_err(to_error)?.file_name().to_owned();
            // A name that isn't a line of text can't be told to the model.
            let Ok(name) = name.into_string() else {
                continue;
            };
            if name.starts_with('.') || name.contains(char::is_control) {
                continue;
            }
            if names.len() == most {
                return Ok(Some((names, true)));
            }
            names.push(name);
        }
        names.sort();
        Ok(Some((names, false)))
    }

    /// Opens the regular file at `path`; nothing where there is no such file.
    pub fn file(&self, path: &Path, links: Links) -> Result<Option<File>, ReadError> {
        // Without waiting for the other end of a pipe.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        let Some(file) = self.find(path, flags, links)? else {
            return Ok(None);
        };
        let file = File::from(file);
        let metadata = file.metadata().map_err(ReadError::Io)?;
        if !metadata.is_file() {
            return Err(ReadError::NotRegular);
        }
        if metadata.nlink() > 1 {
            return Err(ReadError::HardLink);
        }
        Ok(Some(file))
    }

    fn find(&self, path: &Path, flags: OFlag, links: Links) -> Result<Option<OwnedFd>, ReadError> {
        match self.resolve(path, flags | OFlag::O_CLOEXEC, links) {
            Ok(found) => Ok(Some(found)),
            // Something else stands where the folder would be.
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(Errno::ELOOP | Errno::EXDEV) => Err(ReadError::Link),
            Err(error) => Err(to_error(error)),
        }
    }

    /// Has the system itself see to it that the way stays below the root.
    #[cfg(target_os = "linux")]
    fn resolve(&self, path: &Path, flags: OFlag, links: Links) -> Result<OwnedFd, Errno> {
        use nix::fcntl::{OpenHow, ResolveFlag, openat2};
        let mut resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        if links == Links::Never {
            resolve |= ResolveFlag::RESOLVE_NO_SYMLINKS;
        }
        let how = OpenHow::new().flags(flags).resolve(resolve);
        for _ in 0..OPEN_TRIES {
            match openat2(&self.0, path, how) {
                // Something was renamed on the way.
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                // Kernels before 5.6, and sandboxes that don't know the call.
                Err(Errno::ENOSYS | Errno::EPERM) => return self.walk(path, flags),
                done => return done,
            }
        }
        Err(Errno::EAGAIN)
    }

    #[cfg(not(target_os = "linux"))]
    fn resolve(&self, path: &Path, flags: OFlag, _links: Links) -> Result<OwnedFd, Errno> {
        self.walk(path, flags)
    }

    /// Opens folder by folder and follows no link at all.
    fn walk(&self, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
        let folder_flags =
            OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut folder: OwnedFd = self.0.try_clone().map_err(|_| Errno::EMFILE)?.into();
        let mut steps = path.components().peekable();
        while let Some(step) = steps.next() {
            let Component::Normal(name) = step else {
                return Err(Errno::EXDEV);
            };
            let is_last = steps.peek().is_none();
            let flags = if is_last {
                flags | OFlag::O_NOFOLLOW
            } else {
                folder_flags
            };
            folder = openat(&folder, name, flags, Mode::empty())?;
        }
        Ok(folder)
    }
}

impl Identity {
    /// Reads it off an open file.
    pub fn of(file: &File) -> Result<Self, ReadError> {
        file.metadata()
            .map(|it| Self::from(&it))
            .map_err(ReadError::Io)
    }

    /// Seconds since the epoch of the last change, of content or of anything else.
    pub fn last_change(&self) -> i64 {
        let seconds = self.changed.iter().map(|(seconds, _)| *seconds);
        seconds.max().unwrap_or_default()
    }
}

impl From<&Metadata> for Identity {
    fn from(it: &Metadata) -> Self {
        Self {
            file: (it.dev(), it.ino()),
            size: it.size(),
            changed: [(it.mtime(), it.mtime_nsec()), (it.ctime(), it.ctime_nsec())],
        }
    }
}

/// Reads at most `bound` bytes of `file`, again if it changes meanwhile.
pub fn read_head(mut file: File, bound: usize) -> Result<Head, ReadError> {
    let mut before = Identity::of(&file)?;
    let mut tries = 0;
    loop {
        tries += 1;
        let mut bytes = Vec::new();
        let limit = u64::try_from(bound).unwrap_or(u64::MAX);
        (&file)
            .take(limit)
            .read_to_end(&mut bytes)
            .map_err(ReadError::Io)?;
        let after = Identity::of(&file)?;
        let identity = (after == before).then_some(after);
        if identity.is_some() || tries == READ_TRIES {
            let size = usize::try_from(after.size).unwrap_or(usize::MAX);
            let unread = if bytes.len() == bound {
                size.saturating_sub(bound)
            } else {
                0
            };
            return Ok(Head {
                bytes,
                unread,
                identity,
            });
        }
        before = after;
        file.rewind().map_err(ReadError::Io)?;
    }
}

/// Bytes as text: what isn't UTF-8 becomes replacement characters.
///
/// A character that the bound cut in two is left out.
pub fn to_text(head: &Head) -> String {
    let mut bytes = head.bytes.as_slice();
    if head.unread > 0
        && let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
    {
        bytes = bytes.get(..error.valid_up_to()).unwrap_or(bytes);
    }
    String::from_utf8_lossy(bytes).into_owned()
}

fn to_error(error: Errno) -> ReadError {
    ReadError::Io(error.into())
}

/// A file that is written to all the time must not hold a turn up.
const READ_TRIES: u32 = 3;

/// Whoever renames folders all the time must not hold a turn up.
#[cfg(target_os = "linux")]
const OPEN_TRIES: u32 = 16;

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
