//! A gzip stream of one member, inflated in one step by libdeflate, which is faster than zlib.
//!
//! Rules of the file:
//!
//! - Only an ordinary member is taken: one that ends where the data ends and inflates to the size that it declares. The
//!   caller's other way decides about all others.

use std::ptr::NonNull;

use libdeflate_sys::{libdeflate_decompressor, libdeflate_gzip_decompress_ex, libdeflate_result_LIBDEFLATE_SUCCESS};

const FLAGS_AT: usize = 3;
/// A checksum of the header, which zlib checks and libdeflate skips.
const HEADER_CRC_BIT: u8 = 0x02;

pub struct WholeMember(Option<NonNull<libdeflate_decompressor>>);

// SAFETY: a decompressor is memory that belongs to no thread.
unsafe impl Send for WholeMember {}

impl WholeMember {
    pub fn new() -> Self {
        // SAFETY: the function takes nothing, and returns null if there is no memory.
        Self(NonNull::new(unsafe { libdeflate_sys::libdeflate_alloc_decompressor() }))
    }

    /// Whether `data` is one ordinary member whose content fills `room`. If not, `room` holds anything.
    pub fn inflate(&mut self, data: &[u8], room: &mut [u8]) -> bool {
        let Some(decompressor) = self.0 else { return false };
        if data.get(FLAGS_AT).is_none_or(|flags| flags & HEADER_CRC_BIT != 0) {
            return false;
        }
        let (mut read_bytes, mut written_bytes) = (0, 0);
        // SAFETY: the library reads at most `data.len()` bytes and writes at most `room.len()`; both slices have them. The
        // decompressor lives until `drop`, and `&mut self` keeps other threads away.
        let result = unsafe {
            libdeflate_gzip_decompress_ex(
                decompressor.as_ptr(),
                data.as_ptr().cast(),
                data.len(),
                room.as_mut_ptr().cast(),
                room.len(),
                &mut read_bytes,
                &mut written_bytes,
            )
        };
        result == libdeflate_result_LIBDEFLATE_SUCCESS && (read_bytes, written_bytes) == (data.len(), room.len())
    }
}

impl Drop for WholeMember {
    fn drop(&mut self) {
        if let Some(decompressor) = self.0 {
            // SAFETY: it came from `libdeflate_alloc_decompressor`, and nothing uses it any more.
            unsafe { libdeflate_sys::libdeflate_free_decompressor(decompressor.as_ptr()) }
        }
    }
}
