//! Reading one file below a root: a regular file, no way out, a bound on what is read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::base::limits::MAX_FILE_BYTES;

/// Why a file is left out.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It has another name elsewhere, which may lie outside the root.
    #[error("has more than one hard link")]
    HardLink,
    /// The system says no.
    #[error("can't be read")]
    Io(#[source] io::Error),
    /// It is a folder, a pipe, a device or a symbolic link.
    #[error("is not a regular file")]
    NotRegular,
    /// It is over the bound.
    #[error("is longer than {MAX_FILE_BYTES} bytes")]
    TooLong,
}

/// Reads `name` below `root`; `None` where there is no such file.
///
/// Bytes that aren't UTF-8 become replacement characters.
pub fn read_below(root: &Path, name: &str) -> Result<Option<String>, ReadError> {
    // Without following a link, and without waiting for the other end of a pipe.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags((nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK).bits())
        .open(root.join(name));
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32) => {
            return Err(ReadError::NotRegular);
        }
        Err(error) => return Err(ReadError::Io(error)),
    };
    read_bounded(file).map(Some)
}

fn read_bounded(file: File) -> Result<String, ReadError> {
    let metadata = file.metadata().map_err(ReadError::Io)?;
    if !metadata.is_file() {
        return Err(ReadError::NotRegular);
    }
    if metadata.nlink() > 1 {
        return Err(ReadError::HardLink);
    }
    let bound = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    file.take(bound + 1)
        .read_to_end(&mut bytes)
        .map_err(ReadError::Io)?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(ReadError::TooLong);
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_of_the_root_are_read() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        symlink(outside.path().join("secret"), root.path().join("link")).unwrap();
        fs::hard_link(outside.path().join("secret"), root.path().join("hard")).unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();
        nix::unistd::mkfifo(&root.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::write(root.path().join("plain"), b"a\xffb").unwrap();
        let read = |name| read_below(root.path(), name);
        assert!(matches!(read("absent"), Ok(None)));
        assert!(matches!(read("link"), Err(ReadError::NotRegular)));
        assert!(matches!(read("hard"), Err(ReadError::HardLink)));
        assert!(matches!(read("folder"), Err(ReadError::NotRegular)));
        assert!(matches!(read("pipe"), Err(ReadError::NotRegular)));
        assert_eq!(read("plain").unwrap().as_deref(), Some("a\u{fffd}b"));
    }

    #[test]
    fn file_at_the_bound_is_read_and_one_above_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("at"), vec![b'x'; MAX_FILE_BYTES]).unwrap();
        fs::write(root.path().join("above"), vec![b'x'; MAX_FILE_BYTES + 1]).unwrap();
        assert_eq!(
            read_below(root.path(), "at").unwrap().map(|t| t.len()),
            Some(MAX_FILE_BYTES)
        );
        assert!(matches!(
            read_below(root.path(), "above"),
            Err(ReadError::TooLong)
        ));
    }
}
