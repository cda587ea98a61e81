//! Columns of several runs as one: small runs would take more memory and time than their rows.
//!
//! Rules of the file: all parts have the same columns, because one reader has made them.

use crate::arrow::{Buffer, Node};

/// The items of all parts, one after the other. None: offsets of 32 bits do not reach.
pub fn joined(parts: &[&Node]) -> Option<Node> {
    let first = parts.first()?;
    let length = parts.iter().map(|part| part.length).sum();
    let null_count = parts.iter().map(|part| part.null_count).sum();
    let buffers = match first.format.to_bytes() {
        b"z" | b"u" => vec![validity(parts, length, null_count), ends(parts)?, bytes(parts)],
        b"+l" => vec![Buffer::None, ends(parts)?],
        b"+s" => vec![Buffer::None],
        _ => vec![Buffer::None, numbers(parts)],
    };
    let children = (0..first.children.len()).map(|at| {
        let children: Vec<&Node> = parts.iter().map(|part| &part.children[at]).collect();
        joined(&children)
    });
    let children = children.collect::<Option<Vec<Node>>>()?;
    Some(Node { name: first.name, format: first.format, length, null_count, buffers, children })
}

/// The bits of all items, if any item is null.
fn validity(parts: &[&Node], length: usize, null_count: usize) -> Buffer {
    if null_count == 0 {
        return Buffer::None;
    }
    let mut bits = vec![0; length.div_ceil(8)];
    let mut at = 0;
    for part in parts {
        let own = part.buffers[0].bytes();
        for item in 0..part.length {
            let is_valid = own.is_empty() || own[item / 8] >> (item % 8) & 1 == 1;
            bits[at / 8] |= u8::from(is_valid) << (at % 8);
            at += 1;
        }
    }
    Buffer::Bytes(bits)
}

/// The offsets of all items, each counted from the first item of all.
fn ends(parts: &[&Node]) -> Option<Buffer> {
    let count: usize = parts.iter().map(|part| part.length).sum();
    let mut ends = Vec::with_capacity(count + 1);
    ends.push(0);
    let mut before = 0_i32;
    for part in parts {
        let own = part.buffers[1].int32();
        for end in own.get(1..).unwrap_or_default() {
            ends.push(before.checked_add(*end)?);
        }
        before = *ends.last()?;
    }
    Some(Buffer::Int32(ends))
}

fn bytes(parts: &[&Node]) -> Buffer {
    Buffer::Bytes(parts.iter().map(|part| part.buffers[2].bytes()).collect::<Vec<_>>().concat())
}

fn numbers(parts: &[&Node]) -> Buffer {
    match parts[0].buffers[1] {
        Buffer::Int32(_) => {
            Buffer::Int32(parts.iter().map(|part| part.buffers[1].int32()).collect::<Vec<_>>().concat())
        }
        _ => Buffer::Int64(parts.iter().map(|part| part.buffers[1].int64()).collect::<Vec<_>>().concat()),
    }
}
