//! Tests of single instructions.

use super::bench::{Buffer, decode, play};
use crate::compute::Fault;

/// The result, in register number 9, of one instruction. Its operands are `%r5` to `%r8`, or registers of another kind
/// with these numbers.
fn result(instruction: &str, operands: [u64; 4]) -> u64 {
    let load = |(index, register): (usize, usize)| {
        let at = 8 * index;
        format!(
            "ld.global.u64 %rd{register}, [%rd1+{at}];\ncvt.u32.u64 %r{register}, %rd{register};\n\
             cvt.u16.u64 %rs{register}, %rd{register};\nmov.b32 %f{register}, %r{register};\n\
             mov.b64 %fd{register}, %rd{register};\nsetp.ne.s32 %p{register}, %r{register}, 0;\n"
        )
    };
    let loads = (5..9).enumerate().map(load).collect::<Vec<_>>().concat();
    let widened = [
        ("%rs9", "cvt.u64.u16 %rd9, %rs9;"),
        ("%r9", "cvt.u64.u32 %rd9, %r9;"),
        ("%f9", "mov.b32 %r9, %f9;\ncvt.u64.u32 %rd9, %r9;"),
        ("%fd9", "mov.b64 %rd9, %fd9;"),
        ("%p9", "selp.b64 %rd9, 1, 0, %p9;"),
        ("%rd9", ""),
    ];
    let (_, widen) = widened.iter().find(|(name, _)| instruction.contains(name)).expect("a result");
    let body = format!("{loads}{instruction};\n{widen}\nst.global.u64 [%rd1], %rd9;");
    let mut buffer = Buffer(operands.iter().flat_map(|word| word.to_le_bytes()).collect());
    play(&body, (1, 1), &mut buffer).expect(instruction);
    u64::from_le_bytes(buffer.0[..8].try_into().expect("eight bytes"))
}

/// Edge cases of integers.
const NUMBERS: [u32; 9] = [0, 1, 2, 7, 31, 0x1234_5678, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

/// Compares an integer instruction with a function.
#[track_caller]
fn check(instruction: &str, expected: impl Fn(u32, u32, u32) -> u64) {
    for (a, b) in NUMBERS.iter().flat_map(|a| NUMBERS.iter().map(move |b| (*a, *b))) {
        let c = 0x0f0f_3210;
        let found = result(instruction, [u64::from(a), u64::from(b), c, 0]);
        assert_eq!(found, expected(a, b, c as u32), "{instruction}: {a:#x}, {b:#x}");
    }
}

fn low(value: i64) -> u64 {
    u64::from(value as u32)
}

#[test]
fn integers_are_those_of_the_processor() {
    let signed = |value: u32| value.cast_signed();
    let long = |value: u32| i64::from(value.cast_signed());
    check("add.s32 %r9, %r5, %r6", |a, b, _| a.wrapping_add(b).into());
    check("sub.s32 %r9, %r5, %r6", |a, b, _| a.wrapping_sub(b).into());
    check("mul.lo.s32 %r9, %r5, %r6", |a, b, _| a.wrapping_mul(b).into());
    check("mul.hi.u32 %r9, %r5, %r6", |a, b, _| (u64::from(a) * u64::from(b)) >> 32);
    check("mul.hi.s32 %r9, %r5, %r6", |a, b, _| low((long(a) * long(b)) >> 32));
    check("mul.wide.u32 %rd9, %r5, %r6", |a, b, _| u64::from(a) * u64::from(b));
    check("mul.wide.s32 %rd9, %r5, %r6", |a, b, _| (long(a) * long(b)).cast_unsigned());
    check("mad.lo.s32 %r9, %r5, %r6, %r7", |a, b, c| a.wrapping_mul(b).wrapping_add(c).into());
    check("min.s32 %r9, %r5, %r6", |a, b, _| low(signed(a).min(signed(b)).into()));
    check("max.u32 %r9, %r5, %r6", |a, b, _| a.max(b).into());
    check("div.u32 %r9, %r5, %r6", |a, b, _| a.checked_div(b).unwrap_or(u32::MAX).into());
    check("rem.s32 %r9, %r5, %r6", |a, b, _| {
        if b == 0 { 0xffff_ffff } else { low(signed(a).wrapping_rem(signed(b)).into()) }
    });
    check("and.b32 %r9, %r5, %r6", |a, b, _| (a & b).into());
    check("xor.b32 %r9, %r5, %r6", |a, b, _| (a ^ b).into());
    check("not.b32 %r9, %r5", |a, _, _| (!a).into());
    check("neg.s32 %r9, %r5", |a, _, _| a.wrapping_neg().into());
    check("abs.s32 %r9, %r5", |a, _, _| signed(a).unsigned_abs().into());
    check("shl.b32 %r9, %r5, %r6", |a, b, _| a.checked_shl(b).unwrap_or(0).into());
    check("shr.u32 %r9, %r5, %r6", |a, b, _| a.checked_shr(b).unwrap_or(0).into());
    check("shr.s32 %r9, %r5, %r6", |a, b, _| low((signed(a) >> b.min(31)).into()));
    check("popc.b32 %r9, %r5", |a, _, _| a.count_ones().into());
    check("clz.b32 %r9, %r5", |a, _, _| a.leading_zeros().into());
    check("brev.b32 %r9, %r5", |a, _, _| a.reverse_bits().into());
    check("lop3.b32 %r9, %r5, %r6, %r7, 0x96", |a, b, c| (a ^ b ^ c).into());
    check("lop3.b32 %r9, %r5, %r6, %r7, 0xe8", |a, b, c| (a & b | a & c | b & c).into());
    check("prmt.b32 %r9, %r5, %r6, 0x5410", |a, b, _| (a & 0xffff | b << 16).into());
    check("shf.l.wrap.b32 %r9, %r5, %r6, 8", |a, b, _| (b << 8 | a >> 24).into());
    check("bfe.u32 %r9, %r5, 4, 8", |a, _, _| (a >> 4 & 0xff).into());
    check("bfe.s32 %r9, %r5, 4, 8", |a, _, _| low(((a >> 4 & 0xff) as i8).into()));
    check("bfi.b32 %r9, %r5, %r6, 4, 8", |a, b, _| (b & !0xff0 | a << 4 & 0xff0).into());
    check("mov.b32 {%rs1, %rs2}, %r5;\nmov.b32 %r9, {%rs2, %rs1}", |a, _, _| {
        a.rotate_left(16).into()
    });
}

#[test]
fn comparisons_know_signs_and_predicates() {
    let signed = |value: u32| value.cast_signed();
    check("setp.lt.s32 %p9, %r5, %r6", |a, b, _| (signed(a) < signed(b)).into());
    check("setp.lt.u32 %p9, %r5, %r6", |a, b, _| (a < b).into());
    check("setp.hs.u32 %p9, %r5, %r6", |a, b, _| (a >= b).into());
    check("setp.eq.and.s32 %p9, %r5, %r6, %p5", |a, b, _| (a == b && a != 0).into());
    check("setp.eq.or.s32 %p9, %r5, %r6, !%p5", |a, b, _| (a == b || a == 0).into());
    check("setp.lt.u32 %p1|%p9, %r5, %r6", |a, b, _| (a >= b).into());
    check("set.lt.u32.u32 %r9, %r5, %r6", |a, b, _| if a < b { 0xffff_ffff } else { 0 });
    check("selp.b32 %r9, %r5, %r6, %p6", |a, b, _| (if b == 0 { b } else { a }).into());
    check("or.pred %p9, %p5, %p6", |a, b, _| (a != 0 || b != 0).into());
    check("mov.u32 %r9, 5;\n@!%p5 mov.u32 %r9, 7", |a, _, _| if a == 0 { 7 } else { 5 });
}

/// Compares a binary32 instruction with a function, for all pairs of some numbers.
#[track_caller]
fn check_f32(instruction: &str, expected: impl Fn(f32, f32, f32) -> f32) {
    let numbers = [0.0, -0.0, 1.0, -1.5, 3.25e-3, 7.0e20, f32::INFINITY, f32::NAN, 1e-41];
    for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b))) {
        let c = 0.1_f32;
        let operands = [a, b, c, 0.0].map(|value| u64::from(value.to_bits()));
        let found = f32::from_bits(result(instruction, operands) as u32);
        let wanted = expected(a, b, c);
        let is_same = found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan());
        assert!(is_same, "{instruction}: {a:e}, {b:e}: {found:e}, not {wanted:e}");
    }
}

#[test]
fn numbers_with_a_point_are_those_of_the_processor() {
    check_f32("add.f32 %f9, %f5, %f6", |a, b, _| a + b);
    check_f32("sub.f32 %f9, %f5, %f6", |a, b, _| a - b);
    check_f32("mul.f32 %f9, %f5, %f6", |a, b, _| a * b);
    check_f32("fma.rn.f32 %f9, %f5, %f6, %f7", f32::mul_add);
    check_f32("div.rn.f32 %f9, %f5, %f6", |a, b, _| a / b);
    check_f32("div.full.f32 %f9, %f5, %f6", |a, b, _| a / b);
    check_f32("rcp.rn.f32 %f9, %f5", |a, _, _| 1.0 / a);
    check_f32("sqrt.rn.f32 %f9, %f5", |a, _, _| a.sqrt());
    check_f32("neg.f32 %f9, %f5", |a, _, _| -a);
    check_f32("abs.f32 %f9, %f5", |a, _, _| a.abs());
    check_f32("copysign.f32 %f9, %f5, %f6", |a, b, _| b.copysign(a));
    check_f32("ex2.approx.f32 %f9, %f5", |a, _, _| f64::from(a).exp2() as f32);
    check_f32("lg2.approx.f32 %f9, %f5", |a, _, _| f64::from(a).log2() as f32);
    check_f32("rsqrt.approx.f32 %f9, %f5", |a, _, _| (1.0 / f64::from(a).sqrt()) as f32);
    check_f32("tanh.approx.f32 %f9, %f5", |a, _, _| f64::from(a).tanh() as f32);
    check_f32(
        "add.ftz.f32 %f9, %f5, 0f00000000",
        |a, _, _| {
            if a.is_subnormal() { 0.0 } else { a + 0.0 }
        },
    );
    check_f32("add.sat.f32 %f9, %f5, %f6", |a, b, _| {
        if (a + b).is_nan() { 0.0 } else { (a + b).clamp(0.0, 1.0) + 0.0 }
    });
    check_f32(
        "cvt.sat.f32.f32 %f9, %f5",
        |a, _, _| {
            if a.is_nan() { 0.0 } else { a.clamp(0.0, 1.0) + 0.0 }
        },
    );
    check_f32("cvt.rmi.f32.f32 %f9, %f5", |a, _, _| a.floor());
}

#[test]
fn the_lesser_number_is_the_one_that_is_a_number() {
    let min = |a: f32, b: f32| {
        let operands = [a, b, 0.0, 0.0].map(|value| u64::from(value.to_bits()));
        f32::from_bits(result("min.f32 %f9, %f5, %f6", operands) as u32)
    };
    assert_eq!(min(f32::NAN, 2.0).to_bits(), 2_f32.to_bits());
    assert_eq!(min(2.0, f32::NAN).to_bits(), 2_f32.to_bits());
    assert_eq!(min(0.0, -0.0).to_bits(), (-0_f32).to_bits());
    let max = "max.NaN.f32 %f9, %f5, %f6";
    let nan = u64::from(f32::NAN.to_bits());
    assert!(f32::from_bits(result(max, [nan, 0, 0, 0]) as u32).is_nan());
}

#[track_caller]
fn check_one(instruction: &str, operands: [u64; 2], expected: u64) {
    let [a, b] = operands;
    let found = result(instruction, [a, b, 0, 0]);
    assert_eq!(found, expected, "{instruction}: {found:#x}, not {expected:#x}");
}

/// 1 + 2^-8 lies between two numbers of bf16; 2^24 + 1 between two of binary32.
#[test]
fn conversions_round_as_they_are_told() {
    let single = |value: f32| u64::from(value.to_bits());
    let between = single(1.0 + 1.0 / 256.0);
    check_one("cvt.rn.bf16.f32 %rs9, %f5", [between, 0], 0x3f80);
    check_one("cvt.rn.bf16x2.f32 %r9, %f5, %f6", [single(2.0), between], 0x4000_3f80);
    check_one("cvt.f32.bf16 %f9, %rs5", [0x3f81, 0], 0x3f81_0000);
    check_one("cvt.rn.f16.f32 %rs9, %f5", [single(65_520.0), 0], 0x7c00);
    check_one("cvt.rz.f16.f32 %rs9, %f5", [single(65_520.0), 0], 0x7bff);
    check_one("cvt.f32.f16 %f9, %rs5", [0x3c00, 0], single(1.0));
    check_one("cvt.rna.tf32.f32 %r9, %f5", [0x3f80_1000, 0], 0x3f80_2000);
    check_one("cvt.rn.f32.s32 %f9, %r5", [0xffff_ffff, 0], single(-1.0));
    check_one("cvt.rn.f32.u32 %f9, %r5", [0x0100_0001, 0], single(16_777_216.0));
    check_one("cvt.rp.f32.u32 %f9, %r5", [0x0100_0001, 0], single(16_777_218.0));
    check_one("cvt.rn.bf16.s32 %rs9, %r5", [0x101, 0], 0x4380);
    check_one("cvt.rzi.s32.f32 %r9, %f5", [single(-2.75), 0], 0xffff_fffe);
    check_one("cvt.rni.u32.f32 %r9, %f5", [single(-2.75), 0], 0);
    check_one("cvt.rzi.s32.f32 %r9, %f5", [single(3e9), 0], 0x7fff_ffff);
    check_one("cvt.rzi.s32.f32 %r9, %f5", [single(f32::NAN), 0], 0);
    check_one("cvt.f64.f32 %fd9, %f5", [single(0.5), 0], 0.5_f64.to_bits());
    check_one("cvt.rn.f32.f64 %f9, %fd5", [0.1_f64.to_bits(), 0], single(0.1));
    check_one("cvt.s64.s32 %rd9, %r5", [0x8000_0000, 0], 0xffff_ffff_8000_0000);
    check_one("cvt.u64.u32 %rd9, %r5", [0x8000_0000, 0], 0x8000_0000);
    check_one("cvt.u16.u8 %rs9, %rs5", [0x1ff, 0], 0xff);
    check_one("fma.rm.f32 %f9, %f5, %f5, %f6", [single(1.0), single(-1e-30)], 0x3f7f_ffff);
}

#[test]
fn pairs_of_short_numbers_are_two_numbers() {
    // 1 and 2, 3 and 256.
    check_one("add.bf16x2 %r9, %r5, %r6", [0x4000_3f80, 0x4380_4040], 0x4381_4080);
    check_one("add.bf16 %rs9, %rs5, %rs6", [0x3f80, 0x4380], 0x4380);
    check_one("mul.f16x2 %r9, %r5, %r6", [0x3c00_4000, 0x4000_4200], 0x4000_4600);
    check_one("fma.rn.bf16x2 %r9, %r5, %r6, %r5", [0x4000_3f80, 0x3f80_3f80], 0x4080_4000);
    check_one("fma.rn.bf16 %rs9, %rs5, %rs6, %rs5", [0x4000, 0x3f80], 0x4080);
    check_one("neg.bf16 %rs9, %rs5", [0x3f80, 0], 0xbf80);
    check_one("max.f16 %rs9, %rs5, %rs6", [0x3c00, 0x4000], 0x4000);
    check_one("setp.gt.bf16 %p9, %rs5, %rs6", [0x4000, 0x3f80], 1);
}

#[test]
fn doubles_are_doubles() {
    let bits = f64::to_bits;
    check_one("add.f64 %fd9, %fd5, %fd6", [bits(0.1), bits(0.2)], bits(0.1 + 0.2));
    check_one(
        "fma.rn.f64 %fd9, %fd5, %fd6, %fd5",
        [bits(3.0), bits(0.1)],
        bits(3_f64.mul_add(0.1, 3.0)),
    );
    check_one("setp.neu.f64 %p9, %fd5, %fd6", [bits(f64::NAN), bits(f64::NAN)], 1);
    check_one("setp.ne.f64 %p9, %fd5, %fd6", [bits(f64::NAN), bits(1.0)], 0);
    check_one("add.f64 %fd9, %fd5, 0d3FF0000000000000", [bits(2.0), 0], bits(3.0));
}

/// The error contains the instruction's text.
#[test]
fn what_is_not_known_is_told() {
    for text in [
        "frobnicate.b32 %r9, %r5",
        "add.frob.s32 %r9, %r5, %r6",
        "add.s32 %r9, %r5",
        "ld.frob.u32 %r9, [%rd1]",
        "mov.u32 %r9, %frob",
        "cvt.rn.frob.f32 %r9, %f5",
        "wmma.load.a.sync.aligned.row.m3n3k3.f16 {%r9}, [%rd1]",
        "call.uni (retval0), helper, (%rd1)",
    ] {
        let Err(fault) = decode(&format!("{text};")) else { panic!("{text} is known") };
        assert_eq!(fault, Fault::Unknown(text.to_owned()));
    }
}
