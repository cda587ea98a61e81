//! LZ4 frames, as far as Kafka's readers look at them: a header, blocks with their sizes, an end mark.
//!
//! Rules of the file:
//!
//! - The rules of `formats/lz4_frame.py` and of `formats/codecs.py`; the comparison in the tests holds them together.
//! - The checksums of blocks and content are skipped, because the batch has its CRC. Kafka's reader compares those of blocks.

use std::ffi::{c_char, c_int};

use lz4_sys as _; // so that its library is linked

use crate::codecs::{Failure, Output};

/// How far back a linked block may refer.
const HISTORY_BYTES: usize = 64 << 10;
/// The densest byte lengthens a copy by 255 bytes, so no block inflates more.
const MAX_RATIO: usize = 255;
const MAGIC: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];
const MIN_HEADER_BYTES: usize = 7;
const STORED_BIT: u32 = 1 << 31;

struct Frame {
    header_bytes: usize,
    linked: bool,
    block_checksums: bool,
    content_checksum: bool,
    content_bytes: Option<u64>,
    max_block_bytes: usize,
}

fn uint32(data: &[u8], at: usize) -> Result<u32, Failure> {
    let bytes = data.get(at..at + 4).ok_or(Failure)?;
    Ok(u32::from_le_bytes(bytes.try_into().unwrap()))
}

fn frame_of(data: &[u8]) -> Result<Frame, Failure> {
    if data.len() < MIN_HEADER_BYTES || data[..4] != MAGIC {
        return Err(Failure);
    }
    let (flags, descriptor) = (data[4], data[5]);
    let has_size = flags & 0x08 != 0;
    let header_bytes = MIN_HEADER_BYTES + if has_size { 8 } else { 0 };
    // Two bits for the version, 01. Then linked, block checksums, size, content checksum, reserved, dictionary.
    if flags & 0xC3 != 0x40 || descriptor & 0x8F != 0 || descriptor < 0x40 || data.len() < header_bytes {
        return Err(Failure);
    }
    if (xxh32_short(&data[4..header_bytes - 1]) >> 8) as u8 != data[header_bytes - 1] {
        return Err(Failure);
    }
    Ok(Frame {
        header_bytes,
        linked: flags & 0x20 == 0,
        block_checksums: flags & 0x10 != 0,
        content_checksum: flags & 0x04 != 0,
        content_bytes: has_size.then(|| u64::from_le_bytes(data[6..14].try_into().unwrap())),
        max_block_bytes: 1 << (8 + 2 * (descriptor >> 4)),
    })
}

/// Decompress one frame. Bytes after it are ignored, as Kafka's reader ignores them.
pub fn decompress(data: &[u8], output: &mut Output) -> Result<(), Failure> {
    let frame = frame_of(data)?;
    let mut at = frame.header_bytes;
    loop {
        let word = uint32(data, at)?;
        at += 4;
        if word == 0 {
            break;
        }
        let size_bytes = (word & !STORED_BIT) as usize;
        if size_bytes > frame.max_block_bytes || size_bytes > data.len() - at {
            return Err(Failure);
        }
        let block = &data[at..at + size_bytes];
        if word & STORED_BIT != 0 {
            output.room(size_bytes)?[..size_bytes].copy_from_slice(block);
            output.used += size_bytes;
        } else {
            let most_bytes = frame.max_block_bytes.min(MAX_RATIO * size_bytes);
            output.room(most_bytes)?;
            let history_bytes = if frame.linked { output.used.min(HISTORY_BYTES) } else { 0 };
            let room = &mut output.memory[output.used - history_bytes..output.used + most_bytes];
            output.used += decompress_block(block, room, history_bytes)?;
        }
        output.check()?;
        at += size_bytes + if frame.block_checksums { 4 } else { 0 };
    }
    let trailer_bytes = if frame.content_checksum { 4 } else { 0 };
    let is_whole = frame.content_bytes.is_none_or(|bytes| bytes == output.used as u64);
    if at + trailer_bytes <= data.len() && is_whole { Ok(()) } else { Err(Failure) }
}

unsafe extern "C" {
    // Of the library that lz4-sys builds; its own list of functions lacks this one.
    fn LZ4_decompress_safe_usingDict(
        source: *const c_char,
        target: *mut c_char,
        source_bytes: c_int,
        target_bytes: c_int,
        history: *const c_char,
        history_bytes: c_int,
    ) -> c_int;
}

/// Decompress a block behind the first `history_bytes` of `room`, to which it may refer. Returns its size.
fn decompress_block(block: &[u8], room: &mut [u8], history_bytes: usize) -> Result<usize, Failure> {
    let (history, target) = room.split_at_mut(history_bytes);
    let sizes = (c_int::try_from(block.len()), c_int::try_from(target.len()));
    let (Ok(source_bytes), Ok(target_bytes)) = sizes else { return Err(Failure) };
    // SAFETY: the function reads `source_bytes` of the block and `history_bytes` before the target, and writes at most
    // `target_bytes`. Each slice has that many bytes, and the history ends where the target begins.
    let written_bytes = unsafe {
        LZ4_decompress_safe_usingDict(
            ptr_of(block),
            target.as_mut_ptr().cast(),
            source_bytes,
            target_bytes,
            ptr_of(history),
            history_bytes as c_int,
        )
    };
    usize::try_from(written_bytes).map_err(|_| Failure)
}

fn ptr_of(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

const PRIMES: [u32; 5] = [2_654_435_761, 2_246_822_519, 3_266_489_917, 668_265_263, 374_761_393];

/// XXH32 with seed 0 of fewer than 16 bytes: all that a frame header needs.
fn xxh32_short(data: &[u8]) -> u32 {
    let mut value = PRIMES[4].wrapping_add(data.len() as u32);
    let words = data.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let word = u32::from_le_bytes(word.try_into().unwrap());
        value = value.wrapping_add(word.wrapping_mul(PRIMES[2])).rotate_left(17).wrapping_mul(PRIMES[3]);
    }
    for &byte in rest {
        value = value.wrapping_add(u32::from(byte).wrapping_mul(PRIMES[4])).rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    value = (value ^ value >> 15).wrapping_mul(PRIMES[1]);
    value = (value ^ value >> 13).wrapping_mul(PRIMES[2]);
    value ^ value >> 16
}
