//! Parameters of kernels.

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Param {
    /// Size in bytes.
    pub bytes: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// True where memory is read through it.
    pub reads: bool,
    /// True where memory is written through it.
    pub writes: bool,
    /// Bytes of the widest read or write through it; zero if unknown.
    pub width: u64,
}

impl Param {
    /// Returns whether it can be an address.
    pub fn is_address(&self) -> bool {
        self.bytes == 8 && self.align == 8
    }

    /// Parses `.param .u64 name` or `.param .align 8 .b8 name[16]`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().strip_prefix(".param")?;
        let mut words = text.split_whitespace();
        let (mut align, mut size, mut is_pointed) = (None, 0, false);
        while let Some(word) = words.next() {
            match word {
                // The memory at which a pointer points may have another alignment.
                ".ptr" => is_pointed = true,
                ".align" => {
                    let value = words.next().and_then(|value| value.parse().ok());
                    align = if is_pointed { align } else { value };
                }
                _ => size = size.max(type_bytes(word)),
            }
        }
        let count = text.split_once('[').and_then(|(_, rest)| rest.split(']').next());
        let bytes = size * count.map_or(1, |count| count.parse().unwrap_or(1));
        let is_array = count.is_some();
        let align = align.unwrap_or(if is_array { 1 } else { size });
        Some(Self { bytes, align, ..Self::default() })
    }
}

/// Bytes of a value of a type such as `.u32`; zero if the word is not a type.
pub(crate) fn type_bytes(word: &str) -> usize {
    let word = word.trim_start_matches('.');
    let is_type = word.starts_with(['b', 'u', 's', 'f', 'e', 't']);
    let digits: String = word.chars().skip_while(|c| !c.is_ascii_digit()).collect();
    let (digits, count) = match digits.split_once('x') {
        Some((digits, count)) => (digits.to_owned(), count.parse().unwrap_or(1)),
        None => (digits, 1),
    };
    match digits.parse::<usize>() {
        Ok(bits @ (8 | 16 | 32 | 64 | 128)) if is_type => bits / 8 * count,
        _ => 0,
    }
}
