//! Columns as Arrow's C data interface: the memory of a `Vec` becomes the memory of an array, without a copy.
//!
//! Rules of the file:
//!
//! - All `unsafe` of the way out is here. https://arrow.apache.org/docs/format/CDataInterface.html has the contract.
//! - A structure owns all to which it points. `release` gives that back, once, and never panics. `spare` may keep the
//!   memory for the next columns.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem;
use std::ptr;
use std::sync::Arc;

use crate::join;
use crate::spare::Spare;

const NULLABLE: i64 = 2;

/// One buffer of an array.
pub enum Buffer {
    None,
    Bytes(Vec<u8>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
}

/// Room that a buffer may have beyond twice its content.
const SLACK_ITEMS: usize = 8 << 10;

/// A buffer takes the room that the last unit needed. One that needs far less gives it back, for Arrow may keep it long.
fn trim<T>(values: &mut Vec<T>) {
    if values.capacity() > 2 * values.len() + SLACK_ITEMS {
        values.shrink_to_fit();
    }
}

impl Buffer {
    fn trimmed(mut self) -> Self {
        match &mut self {
            Self::None => {}
            Self::Bytes(values) => trim(values),
            Self::Int32(values) => trim(values),
            Self::Int64(values) => trim(values),
        }
        self
    }

    fn give_back(self, spare: &Spare) {
        match self {
            Self::None => {}
            Self::Bytes(values) => spare.give_back(values),
            Self::Int32(values) => spare.give_back(values),
            Self::Int64(values) => spare.give_back(values),
        }
    }

    fn size_bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Bytes(values) => values.len(),
            Self::Int32(values) => 4 * values.len(),
            Self::Int64(values) => 8 * values.len(),
        }
    }

    /// The items, none if they are of another type.
    pub fn bytes(&self) -> &[u8] {
        if let Self::Bytes(values) = self { values } else { &[] }
    }

    pub fn int32(&self) -> &[i32] {
        if let Self::Int32(values) = self { values } else { &[] }
    }

    pub fn int64(&self) -> &[i64] {
        if let Self::Int64(values) = self { values } else { &[] }
    }

    fn as_ptr(&self) -> *const c_void {
        match self {
            Self::None => ptr::null(),
            Self::Bytes(values) => values.as_ptr().cast(),
            Self::Int32(values) => values.as_ptr().cast(),
            Self::Int64(values) => values.as_ptr().cast(),
        }
    }
}

/// An array and its field: `format` is the type in the words of the C data interface.
pub struct Node {
    pub name: &'static str,
    pub format: &'static CStr,
    pub length: usize,
    pub null_count: usize,
    pub buffers: Vec<Buffer>,
    pub children: Vec<Node>,
}

impl Node {
    pub fn fixed(name: &'static str, format: &'static CStr, length: usize, values: Buffer) -> Self {
        Self { name, format, length, null_count: 0, buffers: vec![Buffer::None, values], children: Vec::new() }
    }

    pub fn group(name: &'static str, length: usize, children: Vec<Node>) -> Self {
        Self { name, format: c"+s", length, null_count: 0, buffers: vec![Buffer::None], children }
    }

    /// The same without room that is not needed.
    pub fn trimmed(mut self) -> Self {
        self.buffers = self.buffers.into_iter().map(Buffer::trimmed).collect();
        self.children = self.children.into_iter().map(Node::trimmed).collect();
        self
    }

    /// The bytes of all buffers, without the room that they may have beyond.
    pub fn size_bytes(&self) -> usize {
        let own: usize = self.buffers.iter().map(Buffer::size_bytes).sum();
        own + self.children.iter().map(Node::size_bytes).sum::<usize>()
    }

    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    fn export(self, spare: &Arc<Spare>) -> (ArrowSchema, ArrowArray) {
        let (schemas, arrays): (Vec<_>, Vec<_>) = self.children.into_iter().map(|child| child.export(spare)).unzip();
        let schema = ArrowSchema::new(self.format, self.name, schemas);
        (schema, ArrowArray::new(self.length, self.null_count, self.buffers, arrays, spare))
    }

    fn give_back(self, spare: &Spare) {
        self.buffers.into_iter().for_each(|buffer| buffer.give_back(spare));
        self.children.into_iter().for_each(|child| child.give_back(spare));
    }
}

/// The columns of a run. `spare` gets the memory when they, or the arrays made of them, are not needed any more.
pub struct Owned {
    node: Node,
    spare: Arc<Spare>,
}

impl Owned {
    pub fn new(node: Node, spare: &Arc<Spare>) -> Self {
        Self { node, spare: Arc::clone(spare) }
    }

    pub fn child(&self, name: &str) -> Option<&Node> {
        self.node.child(name)
    }

    pub fn size_bytes(&self) -> usize {
        self.node.size_bytes()
    }

    /// The rows of all parts, one after the other, in memory without spare room. None: a column would have 2 GiB.
    pub fn joined(mut parts: Vec<Self>) -> Option<Self> {
        let spare = parts.first().map(|part| Arc::clone(&part.spare)).unwrap_or_default();
        let nodes: Vec<&Node> = parts.iter().map(|part| &part.node).collect();
        let node = join::joined(&nodes)?;
        parts.clear();
        Some(Self { node, spare })
    }

    /// The two structures, in the order of `__arrow_c_array__`.
    pub fn export(mut self) -> (ArrowSchema, ArrowArray) {
        self.take().export(&self.spare)
    }

    fn take(&mut self) -> Node {
        mem::replace(&mut self.node, Node::group("", 0, Vec::new()))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.take().give_back(&self.spare);
    }
}

/// `struct ArrowSchema` of the C data interface.
#[repr(C)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray` of the C data interface.
#[repr(C)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

// SAFETY: a structure owns all to which it points, and nothing of that belongs to a thread.
unsafe impl Send for ArrowSchema {}
// SAFETY: as above.
unsafe impl Send for ArrowArray {}

struct SchemaMemory {
    _name: CString,
    children: Vec<*mut ArrowSchema>,
}

impl Drop for SchemaMemory {
    fn drop(&mut self) {
        for &child in &self.children {
            // SAFETY: each pointer came from `Box::into_raw` in `new`, and this is its only owner.
            drop(unsafe { Box::from_raw(child) });
        }
    }
}

struct ArrayMemory {
    owned: Vec<Buffer>,
    spare: Arc<Spare>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

impl Drop for ArrayMemory {
    fn drop(&mut self) {
        for buffer in self.owned.drain(..) {
            buffer.give_back(&self.spare);
        }
        for &child in &self.children {
            // SAFETY: each pointer came from `Box::into_raw` in `new`, and this is its only owner.
            drop(unsafe { Box::from_raw(child) });
        }
    }
}

impl ArrowSchema {
    fn new(format: &'static CStr, name: &str, children: Vec<ArrowSchema>) -> Self {
        let mut memory = Box::new(SchemaMemory {
            _name: CString::new(name).unwrap_or_default(),
            children: children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect(),
        });
        Self {
            format: format.as_ptr(),
            name: memory._name.as_ptr(),
            metadata: ptr::null(),
            flags: NULLABLE,
            n_children: memory.children.len() as i64,
            children: memory.children.as_mut_ptr(),
            dictionary: ptr::null_mut(),
            release: Some(release_schema),
            private_data: Box::into_raw(memory).cast(),
        }
    }
}

impl ArrowArray {
    fn new(
        length: usize,
        null_count: usize,
        owned: Vec<Buffer>,
        children: Vec<ArrowArray>,
        spare: &Arc<Spare>,
    ) -> Self {
        let mut memory = Box::new(ArrayMemory {
            buffers: owned.iter().map(Buffer::as_ptr).collect(),
            owned,
            spare: Arc::clone(spare),
            children: children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect(),
        });
        Self {
            length: length as i64,
            null_count: null_count as i64,
            offset: 0,
            n_buffers: memory.buffers.len() as i64,
            n_children: memory.children.len() as i64,
            buffers: memory.buffers.as_mut_ptr(),
            children: memory.children.as_mut_ptr(),
            dictionary: ptr::null_mut(),
            release: Some(release_array),
            private_data: Box::into_raw(memory).cast(),
        }
    }
}

impl Drop for ArrowSchema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: `release` is of this structure, and whoever moved it away has set it to null.
            unsafe { release(self) }
        }
    }
}

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as for the schema.
            unsafe { release(self) }
        }
    }
}

/// # Safety
///
/// `schema` was made by `ArrowSchema::new` and is not released.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the caller's promise; `private_data` came from `Box::into_raw` in `new`.
    unsafe {
        (*schema).release = None;
        drop(Box::from_raw((*schema).private_data.cast::<SchemaMemory>()));
    }
}

/// # Safety
///
/// `array` was made by `ArrowArray::new` and is not released.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the caller's promise; `private_data` came from `Box::into_raw` in `new`.
    unsafe {
        (*array).release = None;
        drop(Box::from_raw((*array).private_data.cast::<ArrayMemory>()));
    }
}
