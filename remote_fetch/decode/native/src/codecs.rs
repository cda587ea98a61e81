//! Decompression of record areas: Kafka's four codecs, with a bound on the output.
//!
//! Rules of the file:
//!
//! - The rules of `formats/codecs.py`: a stream is taken here if and only if it is taken there.
//! - The output is bounded before memory is taken for it. A declared size counts only as far as the stream's structure
//!   can produce it, and the output is counted piece by piece.
//! - Plain Python says what is wrong with a stream.

use flate2::{Decompress, FlushDecompress, Status as Flate};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::deflate::WholeMember;
use crate::lz4;

/// A stream that breaks its format, ends early or inflates to too much.
#[derive(Debug)]
pub struct Failure;

/// Larger memory is freed after use. Batches have at most 1 MiB unless a topic is configured otherwise.
const KEPT_BYTES: usize = 4 << 20;
const PART_BYTES: usize = 1 << 20;

/// Memory for the output of one batch: `used` bytes of it are filled. It grows as far as a codec asks.
#[derive(Default)]
pub struct Output {
    pub memory: Vec<u8>,
    pub used: usize,
    max_bytes: usize,
}

impl Output {
    /// At least `size_bytes` behind those that are used.
    pub fn room(&mut self, size_bytes: usize) -> Result<&mut [u8], Failure> {
        let needed_bytes = self.used.checked_add(size_bytes).ok_or(Failure)?;
        if needed_bytes > self.memory.len() {
            let grown_bytes = needed_bytes.max(self.memory.len() + self.memory.len() / 4);
            self.memory.resize(grown_bytes, 0);
        }
        Ok(&mut self.memory[self.used..])
    }

    pub fn check(&self) -> Result<(), Failure> {
        if self.used > self.max_bytes { Err(Failure) } else { Ok(()) }
    }
}

/// Decompressors with their memory, reused from batch to batch.
pub struct Codecs {
    output: Output,
    zstd: DCtx<'static>,
    /// Whether `zstd` may have memory for a window, which may be as large as a frame wants.
    has_window: bool,
    whole_gzip: WholeMember,
    snappy: snap::raw::Decoder,
}

impl Codecs {
    pub fn new(max_bytes: usize) -> Self {
        Self {
            output: Output { max_bytes, ..Output::default() },
            zstd: zstd_context(),
            has_window: false,
            whole_gzip: WholeMember::new(),
            snappy: snap::raw::Decoder::new(),
        }
    }

    /// The same for a decoder with another bound.
    pub fn within(mut self, max_bytes: usize) -> Self {
        self.output.max_bytes = max_bytes;
        self
    }

    /// The same with no more memory than batches of the usual size need.
    pub fn trimmed(mut self) -> Self {
        self.trim();
        if self.has_window {
            (self.zstd, self.has_window) = (zstd_context(), false);
        }
        self
    }

    fn trim(&mut self) {
        if self.output.memory.len() > KEPT_BYTES {
            self.output.memory = Vec::new();
        }
    }

    /// The decompressed record area; `data` itself for codec 0. The codec is 0 to 4.
    pub fn decompress<'a>(&'a mut self, codec: u8, data: &'a [u8]) -> Result<&'a [u8], Failure> {
        if codec == 0 {
            return Ok(data);
        }
        self.trim();
        self.output.used = 0;
        match codec {
            1 => self.gunzip(data)?,
            2 => self.unsnappy(data)?,
            3 => lz4::decompress(data, &mut self.output)?,
            _ => self.unzstd(data)?,
        }
        self.output.check()?;
        Ok(&self.output.memory[..self.output.used])
    }

    /// One member or several. One of ordinary form goes a faster way. What follows the last one and begins no other is
    /// ignored, as Java's reader ignores it.
    fn gunzip(&mut self, data: &[u8]) -> Result<(), Failure> {
        let output = &mut self.output;
        if data.len() >= GZIP_MIN_BYTES {
            // The size that the last member declares is a guess, if the data can inflate to it.
            let declared_bytes = u32::from_le_bytes(data[data.len() - 4..].try_into().unwrap()) as usize;
            if declared_bytes <= output.max_bytes.min(DEFLATE_MAX_RATIO * data.len()) {
                let room = &mut output.room(declared_bytes)?[..declared_bytes];
                if self.whole_gzip.inflate(data, room) {
                    output.used = declared_bytes;
                    return Ok(());
                }
            }
        }
        let mut left = data;
        let mut gzip = Decompress::new_gzip(GZIP_WINDOW_BITS);
        loop {
            let (read_before, written_before) = (gzip.total_in(), gzip.total_out());
            let room = &mut output.memory[output.used..];
            let status = gzip.decompress(left, room, FlushDecompress::None).map_err(|_| Failure)?;
            left = &left[(gzip.total_in() - read_before) as usize..];
            let written_bytes = (gzip.total_out() - written_before) as usize;
            output.used += written_bytes;
            output.check()?;
            if status == Flate::StreamEnd {
                if left.is_empty() || !GZIP_MAGIC.starts_with(&left[..left.len().min(GZIP_MAGIC.len())]) {
                    return Ok(());
                }
                gzip = Decompress::new_gzip(GZIP_WINDOW_BITS);
            } else if output.used == output.memory.len() {
                let most_bytes = output.max_bytes - output.used + 1;
                output.room(most_bytes.min(PART_BYTES.max(output.used / 4)))?;
            } else if left.is_empty() || written_bytes == 0 {
                return Err(Failure);
            }
        }
    }

    /// One raw block, or the xerial framing of several, in one stream or more.
    fn unsnappy(&mut self, data: &[u8]) -> Result<(), Failure> {
        if !data.starts_with(XERIAL_MAGIC) {
            return self.unsnappy_block(data);
        }
        let mut left = data;
        loop {
            if left.starts_with(XERIAL_MAGIC) {
                left = left.get(XERIAL_HEADER_BYTES..).ok_or(Failure)?;
                continue;
            }
            let Some((length, rest)) = left.split_first_chunk::<4>() else { break };
            let size_bytes = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| Failure)?;
            let (block, rest) = rest.split_at_checked(size_bytes).ok_or(Failure)?;
            if block.is_empty() {
                return Err(Failure);
            }
            self.unsnappy_block(block)?;
            left = rest;
        }
        if left.is_empty() { Ok(()) } else { Err(Failure) }
    }

    fn unsnappy_block(&mut self, block: &[u8]) -> Result<(), Failure> {
        let size_bytes = snap::raw::decompress_len(block).map_err(|_| Failure)?;
        let left_bytes = self.output.max_bytes - self.output.used;
        if size_bytes > (SNAPPY_MAX_RATIO * block.len()).min(left_bytes) {
            return Err(Failure);
        }
        let room = &mut self.output.room(size_bytes)?[..size_bytes];
        self.output.used += self.snappy.decompress(block, room).map_err(|_| Failure)?;
        Ok(())
    }

    /// One frame or several, and frames to skip, up to the end of the data.
    fn unzstd(&mut self, data: &[u8]) -> Result<(), Failure> {
        let mut at = 0;
        while at < data.len() || at == 0 {
            let left = &data[at..];
            if left.len() >= 8 && left[1..4] == ZSTD_SKIPPABLE && left[0] & 0xF0 == 0x50 {
                at += 8 + u32::from_le_bytes(left[4..8].try_into().unwrap()) as usize;
                continue;
            }
            let (size_bytes, most_bytes) = zstd_frame(left)?;
            self.unzstd_frame(&left[..size_bytes], most_bytes)?;
            self.output.check()?;
            at += size_bytes;
        }
        if at > data.len() { Err(Failure) } else { Ok(()) }
    }

    fn unzstd_frame(&mut self, frame: &[u8], most_bytes: usize) -> Result<(), Failure> {
        let output = &mut self.output;
        let usual_bytes = most_bytes.min(ZSTD_USUAL_RATIO * frame.len());
        let size_bytes = if usual_bytes <= ZSTD_ONE_PIECE_BYTES {
            output.room(usual_bytes)?;
            let room = &mut output.memory[output.used..];
            let room_bytes = room.len().min(most_bytes);
            match self.zstd.decompress(&mut room[..room_bytes], frame) {
                Ok(size_bytes) => Some(size_bytes),
                Err(_) if room_bytes == most_bytes => return Err(Failure),
                Err(_) => None,
            }
        } else {
            None
        };
        match size_bytes {
            Some(size_bytes) => output.used += size_bytes,
            None => self.unzstd_by_parts(frame)?,
        }
        Ok(())
    }

    /// A frame that is large, or that its headers allow to be.
    fn unzstd_by_parts(&mut self, frame: &[u8]) -> Result<(), Failure> {
        let output = &mut self.output;
        self.has_window = true;
        self.zstd.init().map_err(|_| Failure)?;
        let mut input = InBuffer::around(frame);
        loop {
            let room_bytes = (output.max_bytes - output.used + 1).min(PART_BYTES);
            let mut target = OutBuffer::around(&mut output.room(room_bytes)?[..room_bytes]);
            let hint = self.zstd.decompress_stream(&mut target, &mut input).map_err(|_| Failure)?;
            let written_bytes = target.pos();
            output.used += written_bytes;
            output.check()?;
            if hint == 0 {
                return if input.pos == frame.len() { Ok(()) } else { Err(Failure) };
            }
            if input.pos == frame.len() && written_bytes < room_bytes {
                return Err(Failure);
            }
        }
    }
}

fn zstd_context() -> DCtx<'static> {
    let mut zstd = DCtx::create();
    // The largest window that zstd's readers accept by default. Kafka's brokers keep the default.
    let _ = zstd.set_parameter(DParameter::WindowLogMax(ZSTD_MAX_WINDOW_BYTES.ilog2()));
    zstd
}

const GZIP_WINDOW_BITS: u8 = 15;
const GZIP_MAGIC: &[u8] = &[0x1F, 0x8B, 0x08];
const GZIP_MIN_BYTES: usize = 18;
const DEFLATE_MAX_RATIO: usize = 1032;

const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\0";
const XERIAL_HEADER_BYTES: usize = 16;
/// The densest element is a copy of 64 bytes, written in 3.
const SNAPPY_MAX_RATIO: usize = 22;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const ZSTD_SKIPPABLE: [u8; 3] = [0x2A, 0x4D, 0x18];
const ZSTD_MAX_WINDOW_BYTES: u64 = 128 << 20;
const ZSTD_MAX_BLOCK_BYTES: u64 = 128 << 10;
/// What is taken in one piece, because so much memory is taken anyway.
const ZSTD_ONE_PIECE_BYTES: usize = 4 << 20;
/// Few frames inflate to more. Those that do are read again, by parts.
const ZSTD_USUAL_RATIO: usize = 64;

/// The size of the frame at the beginning of `data`, and the most bytes it can inflate to, by its block headers.
fn zstd_frame(data: &[u8]) -> Result<(usize, usize), Failure> {
    let byte = |at: usize| data.get(at).copied().map(u64::from).ok_or(Failure);
    if !data.starts_with(&ZSTD_MAGIC) {
        return Err(Failure);
    }
    // Section 3.1.1.1 of RFC 8878: a descriptor, the window, the dictionary, the content size.
    let descriptor = byte(4)?;
    let is_single_segment = descriptor & 0x20 != 0;
    let mut at = 5;
    let mut window_bytes = 0;
    if !is_single_segment {
        let window = byte(at)?;
        let base = 1u64 << (10 + (window >> 3));
        window_bytes = base + (base >> 3) * (window & 7);
        at += 1;
    }
    at += [0, 1, 2, 4][(descriptor & 3) as usize];
    let size_field_bytes = match descriptor >> 6 {
        0 => usize::from(is_single_segment),
        power => 1 << power,
    };
    let mut content_bytes = 0;
    for place in (0..size_field_bytes).rev() {
        content_bytes = content_bytes << 8 | byte(at + place)?;
    }
    if size_field_bytes == 2 {
        content_bytes += 256;
    }
    at += size_field_bytes;
    if is_single_segment {
        window_bytes = content_bytes;
    }
    if window_bytes > ZSTD_MAX_WINDOW_BYTES {
        return Err(Failure);
    }
    let max_block_bytes = window_bytes.min(ZSTD_MAX_BLOCK_BYTES);
    let mut most_bytes = 0;
    loop {
        let header = byte(at)? | byte(at + 1)? << 8 | byte(at + 2)? << 16;
        let (kind, size_bytes) = (header >> 1 & 3, header >> 3);
        if kind == 3 || size_bytes > max_block_bytes {
            return Err(Failure);
        }
        most_bytes += if kind == 2 { max_block_bytes } else { size_bytes };
        at += 3 + if kind == 1 { 1 } else { size_bytes as usize };
        if header & 1 != 0 {
            break;
        }
    }
    at += if descriptor & 0x04 != 0 { 4 } else { 0 };
    let declares_size = size_field_bytes > 0;
    if at > data.len() || (declares_size && content_bytes > most_bytes) {
        return Err(Failure);
    }
    let most_bytes = if declares_size { content_bytes } else { most_bytes };
    Ok((at, usize::try_from(most_bytes).map_err(|_| Failure)?))
}
