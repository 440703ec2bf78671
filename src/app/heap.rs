//! How the allocator treats large blocks.

/// Large blocks are given back to the system as soon as they are freed.
///
/// glibc raises the size from which it maps a block of its own to that of the largest block freed:
/// after one message of 32 MiB all others would come from arenas, which keep what they once had, and
/// the process would stay at its peak. Where the allocator is another, nothing is asked.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn give_back_large_blocks() {
    // SAFETY: mallopt(3) is called before there is a second thread, with a documented parameter.
    let set = unsafe { nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    debug_assert_eq!(set, 1, "mallopt takes a threshold of 256 KiB");
}

/// Asks for nothing: this allocator isn't glibc's.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn give_back_large_blocks() {}

/// From here on a block has pages of its own; setting it also fixes it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BYTES: nix::libc::c_int = 256 * 1024;
