//! Barriers, shuffles, votes, fragments and other instructions of several threads.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA* 8.8, sections 9.7.9.6 ("shfl.sync"), 9.7.13 and 9.7.14.

use super::memory::{change, space};
use super::unknown::{Result, Unknown};
use super::words::Type;
use super::{Decoder, Text};
use crate::compute::fragment::{Fragment, FragmentOrder, Multiply, Role};
use crate::compute::program::{Operation, Register, Shuffle, Together, Vote};
use crate::number::Format;

impl<'a> Decoder<'a> {
    pub(super) fn collective(&mut self, text: Text<'_, 'a>) -> Result<()> {
        match text.words.name() {
            "bar" | "barrier" => self.barrier(text),
            // All writes are visible to all threads at once.
            "membar" | "fence" => {
                self.push(Operation::Nothing);
                Ok(())
            }
            "shfl" => self.shuffle(text),
            "vote" | "match" => self.vote(text),
            "redux" => self.reduce(text),
            "activemask" => {
                let [dest] = text.instruction.operands.as_slice() else { return Err(Unknown) };
                let dest = self.dest(dest)?;
                self.push(Operation::Active(dest));
                Ok(())
            }
            "elect" => self.elect(text),
            "wmma" => self.fragments(text),
            "mma" => self.multiply(text),
            _ => self.load_rows(text),
        }
    }

    fn together(&mut self, members: Register, what: Together) {
        self.push(Operation::Together { members, what });
    }

    /// An instruction that needs all threads of a warp.
    fn all_together(&mut self, what: Together) {
        let members = self.names.constant(0xffff_ffff);
        self.together(members, what);
    }

    fn barrier(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let words = &mut text.words;
        let is_warp = words.take("warp");
        words.ignore(&["cta", "aligned"]);
        if !words.take("sync") {
            return Err(Unknown);
        }
        words.finish()?;
        let operands = text.instruction.operands.as_slice();
        let [first, rest @ ..] = operands else { return Err(Unknown) };
        let first = self.source(first)?;
        if is_warp {
            self.together(first, Together::Wait);
            return Ok(());
        }
        let count = match rest {
            [] => None,
            [count] => Some(self.source(count)?),
            _ => return Err(Unknown),
        };
        self.push(Operation::Barrier { id: first, count });
        Ok(())
    }

    fn shuffle(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let words = &mut text.words;
        if !words.take("sync") {
            return Err(Unknown);
        }
        let mode = match words.one_of(&["up", "down", "bfly", "idx"]) {
            Some("up") => Shuffle::Up,
            Some("down") => Shuffle::Down,
            Some("bfly") => Shuffle::Butterfly,
            Some(_) => Shuffle::Index,
            None => return Err(Unknown),
        };
        if words.ty()? != Type::Bits(32) {
            return Err(Unknown);
        }
        words.finish()?;
        let operands = text.instruction.operands.as_slice();
        let [dest, value, by, clamp, members] = operands else { return Err(Unknown) };
        let (dest, is_valid) = dest.split_once('|').map_or((*dest, None), |(a, b)| (a, Some(b)));
        let dest = self.dest(dest)?;
        let is_valid = is_valid.map(|name| self.dest(name)).transpose()?;
        let (value, by, clamp) = (self.source(value)?, self.source(by)?, self.source(clamp)?);
        let members = self.source(members)?;
        self.together(members, Together::Shuffle { mode, dest, is_valid, value, by, clamp });
        Ok(())
    }

    fn vote(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let words = &mut text.words;
        if !words.take("sync") {
            return Err(Unknown);
        }
        let is_match = words.name() == "match";
        let mode = match words.one_of(&["all", "any", "uni", "ballot"]) {
            Some("any") if is_match => Vote::MatchAny,
            _ if is_match => return Err(Unknown),
            Some("all") => Vote::All,
            Some("any") => Vote::Any,
            Some("uni") => Vote::Uniform,
            Some(_) => Vote::Ballot,
            None => return Err(Unknown),
        };
        words.ty()?;
        words.finish()?;
        let operands = text.instruction.operands.as_slice();
        let [dest, predicate, members] = operands else { return Err(Unknown) };
        let dest = self.dest(dest)?;
        let (predicate, members) = (self.source(predicate)?, self.source(members)?);
        self.together(members, Together::Vote { mode, dest, predicate });
        Ok(())
    }

    fn reduce(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let words = &mut text.words;
        if !words.take("sync") {
            return Err(Unknown);
        }
        let name = words.one_of(&["add", "min", "max", "and", "or", "xor"]).ok_or(Unknown)?;
        let change = change(name, words.ty()?)?;
        words.finish()?;
        let operands = text.instruction.operands.as_slice();
        let [dest, value, members] = operands else { return Err(Unknown) };
        let dest = self.dest(dest)?;
        let (value, members) = (self.source(value)?, self.source(members)?);
        self.together(members, Together::Reduce { change, dest, value });
        Ok(())
    }

    fn elect(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        if !text.words.take("sync") {
            return Err(Unknown);
        }
        text.words.finish()?;
        let [dests, members] = text.instruction.operands.as_slice() else { return Err(Unknown) };
        let (dest, is_elected) = dests.split_once('|').ok_or(Unknown)?;
        let dest = if dest == "_" { None } else { Some(self.dest(dest)?) };
        let (is_elected, members) = (self.dest(is_elected)?, self.source(members)?);
        self.together(members, Together::Elect { dest, is_elected });
        Ok(())
    }

    /// `wmma.load`, `wmma.store` and `wmma.mma`.
    fn fragments(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let words = &mut text.words;
        let what = words.one_of(&["load", "store", "mma"]).ok_or(Unknown)?;
        if !words.take("sync") || !words.take("aligned") {
            return Err(Unknown);
        }
        if what == "mma" {
            return self.multiply(text);
        }
        let role = match words.one_of(&["a", "b", "c", "d"]).ok_or(Unknown)? {
            "a" => Role::A,
            "b" => Role::B,
            _ => Role::Sum,
        };
        let is_by_rows = words.one_of(&["row", "col"]).ok_or(Unknown)? == "row";
        let space = space(words)?;
        let dims = dims(words.next()?)?;
        let Type::Float(element) = words.ty()? else { return Err(Unknown) };
        words.finish()?;
        let fragment = own(role, dims, element, is_by_rows)?;
        let operands = text.instruction.operands.as_slice();
        let stride = operands.get(2).map(|operand| self.source(operand)).transpose()?;
        // Without a stride, rows or columns are contiguous.
        let length = if is_by_rows { fragment.columns } else { fragment.rows };
        let stride = stride.unwrap_or_else(|| self.names.constant(length as u64));
        let [first, second, ..] = operands else { return Err(Unknown) };
        let registers = fragment.per_lane * element.bytes() / 4;
        if what == "load" {
            let (dests, at) = (self.dests(first)?, self.address(second)?);
            expect(&dests, registers)?;
            self.all_together(Together::LoadFragment { fragment, space, dests, at, stride });
        } else {
            let (at, sources) = (self.address(first)?, self.sources(second)?);
            expect(&sources, registers)?;
            self.all_together(Together::StoreFragment { fragment, space, sources, at, stride });
        }
        Ok(())
    }

    /// `wmma.mma` and `mma`, whose types stand in the order D, A, B, C, or D and C alone.
    fn multiply(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let words = &mut text.words;
        let is_own = words.name() == "wmma";
        let is_known = is_own || words.take("sync") && words.take("aligned");
        if !is_known {
            return Err(Unknown);
        }
        // Layouts were used when the fragments were loaded.
        let is_by_rows = words.one_of(&["row", "col"]).ok_or(Unknown)? == "row";
        let dims = if is_own {
            words.one_of(&["row", "col"]);
            dims(words.next()?)?
        } else {
            let shape = dims(words.next()?)?;
            if !is_by_rows || !words.take("col") {
                return Err(Unknown);
            }
            shape
        };
        let mut formats = Vec::new();
        while let Ok(ty) = words.ty() {
            let Type::Float(format) = ty else { return Err(Unknown) };
            formats.push(format);
        }
        words.finish()?;
        let (d, a, b, c) = match formats.as_slice() {
            [d, a, b, c] => (*d, *a, *b, *c),
            [d, c] if is_own => (*d, Format::F16, Format::F16, *c),
            _ => return Err(Unknown),
        };
        let fragment = |role, element| {
            if is_own { own(role, dims, element, true) } else { documented(role, dims, element) }
        };
        let what = Multiply {
            a: fragment(Role::A, a)?,
            b: fragment(Role::B, b)?,
            c: fragment(Role::Sum, c)?,
            d: fragment(Role::Sum, d)?,
        };
        let operands = text.instruction.operands.as_slice();
        let [d, a, b, c] = operands else { return Err(Unknown) };
        let (d, a, b, c) = (self.dests(d)?, self.sources(a)?, self.sources(b)?, self.sources(c)?);
        for (list, fragment) in [(&d, what.d), (&a, what.a), (&b, what.b), (&c, what.c)] {
            expect(list, fragment.per_lane * fragment.element.bytes() / 4)?;
        }
        self.all_together(Together::Multiply { what, d, a, b, c });
        Ok(())
    }

    fn load_rows(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let words = &mut text.words;
        let is_known = words.take("sync") && words.take("aligned") && words.take("m8n8");
        let count = words.one_of(&["x1", "x2", "x4"]).ok_or(Unknown)?[1..].parse();
        let is_transposed = words.take("trans");
        let space = space(words)?;
        if !is_known || words.ty()? != Type::Bits(16) {
            return Err(Unknown);
        }
        words.finish()?;
        let [dests, at] = text.instruction.operands.as_slice() else { return Err(Unknown) };
        let (dests, at) = (self.dests(dests)?, self.address(at)?);
        expect(&dests, count.map_err(|_| Unknown)?)?;
        self.all_together(Together::LoadRows { space, is_transposed, dests, at });
        Ok(())
    }
}

fn expect(registers: &[Register], count: usize) -> Result<()> {
    if registers.len() == count { Ok(()) } else { Err(Unknown) }
}

/// The sizes in `m16n8k16`: rows, columns and inner size.
fn dims(word: &str) -> Result<[usize; 3]> {
    let parse = || -> Option<[usize; 3]> {
        let (rows, rest) = word.strip_prefix('m')?.split_once('n')?;
        let (columns, inner) = rest.split_once('k')?;
        Some([rows.parse().ok()?, columns.parse().ok()?, inner.parse().ok()?])
    };
    parse().ok_or(Unknown)
}

/// Rows and columns of a product's matrix.
fn shape(role: Role, [m, n, k]: [usize; 3]) -> (usize, usize) {
    match role {
        Role::A => (m, k),
        Role::B => (k, n),
        Role::Sum => (m, n),
    }
}

/// A fragment of `wmma`, with the number of registers that CUDA documents.
fn own(role: Role, dims: [usize; 3], element: Format, is_by_rows: bool) -> Result<Fragment> {
    let is_known = match element {
        Format::F16 | Format::Bf16 => [[16, 16, 16], [32, 8, 16], [8, 32, 16]].contains(&dims),
        Format::Tf32 => dims == [16, 16, 8],
        // For A and B, FP32 stands for exact TF32.
        Format::F32 => role == Role::Sum || dims == [16, 16, 8],
        Format::F64 => false,
    };
    if !is_known || (role == Role::Sum && ![Format::F16, Format::F32].contains(&element)) {
        return Err(Unknown);
    }
    let (rows, columns) = shape(role, dims);
    let per_lane = match (role, element) {
        // Each element is held twice, or more often.
        (Role::A | Role::B, Format::F16) => 16,
        _ => rows * columns / 32,
    };
    Ok(Fragment { rows, columns, element, per_lane, order: FragmentOrder::Own, is_by_rows })
}

/// A fragment of `mma`.
fn documented(role: Role, dims: [usize; 3], element: Format) -> Result<Fragment> {
    let is_known = match element {
        Format::F16 | Format::Bf16 => [[16, 8, 8], [16, 8, 16]].contains(&dims),
        Format::Tf32 => [[16, 8, 4], [16, 8, 8]].contains(&dims),
        Format::F32 => role == Role::Sum || [[16, 8, 4], [16, 8, 8]].contains(&dims),
        Format::F64 => false,
    };
    if !is_known {
        return Err(Unknown);
    }
    let (rows, columns) = shape(role, dims);
    let per_lane = rows * columns / 32;
    let order = FragmentOrder::Documented(role);
    Ok(Fragment { rows, columns, element, per_lane, order, is_by_rows: true })
}
