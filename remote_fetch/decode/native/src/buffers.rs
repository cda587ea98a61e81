//! Read-only buffers of Python's as slices.
//!
//! Rules of the file: the items are cells, because code of Python's runs between two reads, and who owns the memory may
//! be wrong about its being read only.

use std::slice;

use pyo3::buffer::{Element, PyBuffer, ReadOnlyCell};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// Items of one type, contiguous, aligned and read only.
pub struct Buffer<T: Element>(PyBuffer<T>);

impl<T: Element> FromPyObject<'_, '_> for Buffer<T> {
    type Error = PyErr;

    /// Raises BufferError for items of another type, and unless they are contiguous, aligned and read only.
    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<T>::get(&object)?;
        if !buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("messages are made of contiguous memory that is read only"));
        }
        Ok(Self(buffer))
    }
}

impl<T: Element> Buffer<T> {
    pub fn len(&self) -> usize {
        self.0.len_bytes() / size_of::<T>()
    }

    /// The items. The interpreter's lock is held as long as they are used.
    pub fn cells<'a>(&'a self, _py: Python<'a>) -> &'a [ReadOnlyCell<T>] {
        let len = self.len();
        if len == 0 {
            return &[];
        }
        // SAFETY: `get` has checked type, size and alignment of the items, and `extract` that they are contiguous, so
        // `len` of them begin at `buf_ptr`. The buffer keeps them alive until it is dropped, with `self`. A cell is laid
        // out as its item, and may change.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), len) }
    }
}
