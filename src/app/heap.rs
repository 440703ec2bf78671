//! How the allocator treats what is freed.

/// Large blocks are given back to the system as soon as they are freed, and what is left at the end
/// of the heap beyond what the next requests need.
///
/// glibc raises the size from which it maps a block of its own to that of the largest block freed:
/// after one message of 32 MiB all others would come from arenas, which keep what they once had, and
/// the process would stay at its peak. On the other hand every buffer of a connection would be given
/// back and cleared by the kernel again, which takes longer than what it holds takes to pass: some
/// stay. Two arenas for all threads: blocks may be freed by another thread than asked for them, but the
/// loops of two threads need not wait for each other. Where the allocator is another, nothing is asked.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn tune() {
    use nix::libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, mallopt};

    for (parameter, value) in [
        (M_MMAP_THRESHOLD, LARGE_BYTES),
        (M_TRIM_THRESHOLD, KEPT_BYTES),
        (M_ARENA_MAX, 2),
    ] {
        // SAFETY: mallopt(3) is called before there is a second thread, with documented parameters.
        let set = unsafe { mallopt(parameter, value) };
        debug_assert_eq!(set, 1, "mallopt takes parameter {parameter}");
    }
}

/// Asks for nothing: this allocator isn't glibc's.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn tune() {}

/// Gives free memory back to the system that [`tune`] leaves here: between blocks that are in use, not
/// at the end of the heap.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn give_back() {
    // SAFETY: malloc_trim(3) takes the allocator's own locks, and touches nothing that is in use.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Nothing: this allocator isn't glibc's.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn give_back() {}

/// From here on a block has pages of its own; setting it also fixes it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BYTES: nix::libc::c_int = 1280 * 1024;

/// What stays free at the end of the heap.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: nix::libc::c_int = 1536 * 1024;
