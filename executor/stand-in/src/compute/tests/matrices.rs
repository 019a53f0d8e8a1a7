//! Tests of matrix products of a warp.

use super::bench::{Buffer, play};
use crate::number::{Format, Rounding};

/// A small number for each position.
fn number(row: usize, column: usize) -> f64 {
    (7 * row + 3 * column) as f64 % 11.0 - 4.0
}

fn bytes(format: Format, value: f64) -> Vec<u8> {
    format.write(value, Rounding::NearestEven).to_le_bytes()[..format.bytes()].to_vec()
}

/// Offsets of B and of D.
const B: usize = 2048;
const D: usize = 4096;

/// A by rows, then B by rows or columns.
fn operands(format: Format, [m, n, k]: [usize; 3], is_b_by_rows: bool) -> Buffer {
    let mut memory = vec![0; D + 4 * m * n];
    let bytes_of = format.bytes();
    for (place, index) in (0..m * k).enumerate() {
        let value = bytes(format, number(index / k, index % k));
        memory[place * bytes_of..][..bytes_of].copy_from_slice(&value);
    }
    for place in 0..k * n {
        let (row, column) =
            if is_b_by_rows { (place / n, place % n) } else { (place % k, place / k) };
        let value = bytes(format, number(row + 1, column));
        memory[B + place * bytes_of..][..bytes_of].copy_from_slice(&value);
    }
    Buffer(memory)
}

/// Compares D with `1 + A B`, row-major, in binary32.
#[track_caller]
fn check(body: &str, format: Format, dims: [usize; 3], is_b_by_rows: bool) {
    let [m, n, k] = dims;
    let mut buffer = operands(format, dims, is_b_by_rows);
    play(body, (1, 32), &mut buffer).expect("it comes to its end");
    let found: Vec<f32> =
        buffer.words()[D / 4..].iter().map(|word| f32::from_bits(*word)).collect();
    let entry = |place: usize| -> f64 {
        let (row, column) = (place / n, place % n);
        1.0 + (0..k).map(|i| number(row, i) * number(i + 1, column)).sum::<f64>()
    };
    let expected: Vec<f32> = (0..m * n).map(|place| entry(place) as f32).collect();
    assert_eq!(found, expected, "{body}");
}

fn registers(name: &str, from: usize, count: usize) -> String {
    let names: Vec<String> = (from..from + count).map(|index| format!("{name}{index}")).collect();
    format!("{{{}}}", names.join(", "))
}

#[test]
fn fragments_are_multiplied() {
    use Format::{Bf16, F16, Tf32};
    let cases = [
        (F16, [16, 16, 16], 8, 8),
        (F16, [32, 8, 16], 8, 8),
        (Bf16, [16, 16, 16], 4, 4),
        (Bf16, [32, 8, 16], 8, 2),
        (Bf16, [8, 32, 16], 2, 8),
        (Tf32, [16, 16, 8], 4, 4),
    ];
    for (format, [m, n, k], of_a, of_b) in cases {
        for is_b_by_rows in [true, false] {
            let (shape, ty) = (format!("m{m}n{n}k{k}"), format!("{format:?}").to_lowercase());
            let (layout, stride) = if is_b_by_rows { ("row", n) } else { ("col", k) };
            let (a, b) = (registers("%r", 1, of_a), registers("%r", 20, of_b));
            let sums = registers("%f", 1, 8);
            let types =
                if format == F16 { "f32.f32".to_owned() } else { format!("f32.{ty}.{ty}.f32") };
            let one = |i| format!("mov.f32 %f{i}, 0f3F800000;\n");
            let ones = (1..9).map(one).collect::<Vec<_>>().concat();
            let body = format!(
                "{ones}wmma.load.a.sync.aligned.row.{shape}.global.{ty} {a}, [%rd1], {k};\n\
                 wmma.load.b.sync.aligned.{layout}.{shape}.{ty} {b}, [%rd1+{B}], {stride};\n\
                 wmma.mma.sync.aligned.row.{layout}.{shape}.{types} {sums}, {a}, {b}, {sums};\n\
                 wmma.store.d.sync.aligned.row.{shape}.global.f32 [%rd1+{D}], {sums}, {n};"
            );
            check(&body, format, [m, n, k], is_b_by_rows);
        }
    }
}

/// The documented layout of `mma`: `ldmatrix` loads A, and B from rows, transposed; D is stored by hand.
#[test]
fn documented_fragments_are_where_they_belong() {
    let copy = "mov.u32 %r1, %tid.x;\nmov.u64 %rd4, dynamic;\nmul.wide.u32 %rd2, %r1, 16;\n\
        add.s64 %rd3, %rd1, %rd2;\nadd.s64 %rd5, %rd4, %rd2;\n\
        cp.async.cg.shared.global [%rd5], [%rd3], 16;\n\
        cp.async.cg.shared.global [%rd5+512], [%rd3+2048], 16;\nbar.warp.sync -1;\n";
    // Rows of A have 32 bytes: lanes 0 to 15 address the left halves, 16 to 31 the right ones.
    let rows = "and.b32 %r2, %r1, 15;\nmul.wide.u32 %rd6, %r2, 32;\nshr.u32 %r3, %r1, 4;\n\
        mul.wide.u32 %rd7, %r3, 16;\nadd.s64 %rd6, %rd6, %rd7;\nadd.s64 %rd6, %rd4, %rd6;\n\
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%rd6];\n\
        mul.wide.u32 %rd7, %r2, 16;\nadd.s64 %rd7, %rd4, %rd7;\n\
        ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r14, %r15}, [%rd7+512];\n";
    let sums = "{%f1, %f2, %f3, %f4}";
    let ones =
        "mov.f32 %f1, 0f3F800000;\nmov.f32 %f2, %f1;\nmov.f32 %f3, %f1;\nmov.f32 %f4, %f1;\n";
    // Lane 4 g + t has columns 2 t and 2 t + 1 of rows g and g + 8.
    let store = "shr.u32 %r4, %r1, 2;\nmul.wide.u32 %rd6, %r4, 32;\nand.b32 %r5, %r1, 3;\n\
        mul.wide.u32 %rd7, %r5, 8;\nadd.s64 %rd6, %rd6, %rd7;\nadd.s64 %rd6, %rd1, %rd6;\n\
        st.global.v2.f32 [%rd6+4096], {%f1, %f2};\nst.global.v2.f32 [%rd6+4352], {%f3, %f4};";
    let body = format!(
        "{copy}{rows}{ones}mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {sums}, \
         {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {sums};\n{store}"
    );
    check(&body, Format::Bf16, [16, 8, 16], true);
}
