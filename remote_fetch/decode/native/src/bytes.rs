//! The caller's bytes: contiguous, and read only.

use std::slice;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// Bytes of the caller that do not change.
pub struct Bytes(PyBuffer<u8>);

impl Bytes {
    pub fn of(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<u8>::get(data)?;
        if !buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("a run is decoded from contiguous bytes that are read only"));
        }
        Ok(Self(buffer))
    }

    pub fn as_slice(&self) -> &[u8] {
        let size_bytes = self.0.len_bytes();
        if size_bytes == 0 {
            return &[];
        }
        // SAFETY: the buffer keeps `size_bytes` alive until it is dropped, with `self`. It is read only.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), size_bytes) }
    }
}
