//! Transaction markers (KIP-98): what the record of a control batch says.
//!
//! Rules of the file:
//!
//! - The checks are those of `formats/control.py`. They read the key of the first record, and no more.

const KEY_BYTES: usize = 4;
const MAX_VARINT_BYTES: usize = 5;
const MAX_VARLONG_BYTES: usize = 10;

#[derive(PartialEq, Eq)]
pub enum Marker {
    Abort,
    Commit,
    /// A control record that ends no transaction.
    Other,
}

/// What the first record says. `None`: it is malformed.
pub fn of(records: &[u8]) -> Option<Marker> {
    let mut left = records;
    let length = usize::try_from(number(&mut left, MAX_VARINT_BYTES)?).ok()?;
    let mut record = left.get(1..length)?; // behind the attributes, of which no bit has a meaning yet
    number(&mut record, MAX_VARLONG_BYTES)?; // the delta of the timestamp
    number(&mut record, MAX_VARINT_BYTES)?; // the delta of the offset
    let key_length = usize::try_from(number(&mut record, MAX_VARINT_BYTES)?).ok()?;
    let key = record.get(..key_length)?.get(..KEY_BYTES)?;
    if i16::from_be_bytes([key[0], key[1]]) < 0 {
        return None; // the version of the key
    }
    Some(match i16::from_be_bytes([key[2], key[3]]) {
        0 => Marker::Abort,
        1 => Marker::Commit,
        _ => Marker::Other,
    })
}

/// The zigzag number at the front, which is taken away. `None`: it is cut off or too long.
fn number(bytes: &mut &[u8], max_bytes: usize) -> Option<i64> {
    let mut raw = 0u64;
    for (at, &byte) in bytes.iter().take(max_bytes).enumerate() {
        raw |= u64::from(byte & 0x7F) << (7 * at);
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some((raw >> 1) as i64 ^ -((raw & 1) as i64));
        }
    }
    None
}
