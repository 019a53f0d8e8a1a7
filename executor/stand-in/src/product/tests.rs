use std::cell::RefCell;

use super::{ComputeType, MatrixLayout, Operands, Product, ProductRefusal, StorageOrder};
use crate::number::{Format, Rounding};
use crate::recording::{Access, Range, Usage};

const F32: Format = Format::F32;

/// `D = A B` of 2 x 3 and 3 x 2 matrices, dense and column-major.
fn product(element: Format) -> Product {
    let square = MatrixLayout::new(element, 2, 2, 2);
    Product {
        compute_type: ComputeType::F32,
        transposes_a: false,
        transposes_b: false,
        layouts: [
            MatrixLayout::new(element, 2, 3, 2),
            MatrixLayout::new(element, 3, 2, 3),
            square,
            square,
        ],
    }
}

/// A at 0x100, B at 0x200, C at 0x300, D at 0x400.
const OPERANDS: Operands =
    Operands { addresses: [0x100, 0x200, 0x300, 0x400], alpha: 1.0, beta: 0.0 };

/// The elements of D in memory order, where A, B and C hold 1, 2, 3, ...
fn compute(product: &Product, operands: &Operands, num_results: usize) -> Vec<f64> {
    product.check().expect("there is such a product");
    product.check_operands(operands).expect("they lie well");
    let mut memory = vec![0_u8; 0x600];
    for (layout, start) in product.layouts.iter().zip([0x100, 0x200, 0x300]) {
        for index in 0..32 {
            let bits = layout.element.write(f64::from(index + 1), Rounding::NearestEven);
            let bytes = layout.element.bytes();
            let at = start + index as usize * bytes;
            memory[at..at + bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
        }
    }
    let memory = RefCell::new(memory);
    let read = |address: u64, bytes: usize| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&memory.borrow()[address as usize..][..bytes]);
        u64::from_le_bytes(word)
    };
    let mut write = |address: u64, bytes: usize, bits: u64| {
        memory.borrow_mut()[address as usize..][..bytes]
            .copy_from_slice(&bits.to_le_bytes()[..bytes]);
    };
    product.compute(operands, &read, &mut write);
    let element = product.layouts[3].element;
    let start = operands.addresses[3];
    let place = |index: usize| start + (index * element.bytes()) as u64;
    (0..num_results).map(|index| element.read(read(place(index), element.bytes()))).collect()
}

#[track_caller]
fn check(product: &Product, operands: &Operands, expected: &[f64]) {
    assert_eq!(compute(product, operands, expected.len()), expected);
}

/// A = [1 3 5; 2 4 6], B = [1 4; 2 5; 3 6].
#[test]
fn products_are_what_they_are_on_paper() {
    check(&product(F32), &OPERANDS, &[22.0, 28.0, 49.0, 64.0]);
    check(&product(Format::Bf16), &OPERANDS, &[22.0, 28.0, 49.0, 64.0]);
    let scaled = Operands { alpha: 2.0, beta: 10.0, ..OPERANDS };
    check(&product(F32), &scaled, &[54.0, 76.0, 128.0, 168.0]);
}

/// The bytes read row-major: A = [1 2 3; 4 5 6], B = [1 2; 3 4; 5 6].
#[test]
fn matrices_may_lie_by_rows_or_be_transposed() {
    let mut rows = product(F32);
    for (layout, leading) in rows.layouts.iter_mut().zip([3, 2, 2, 2]) {
        (layout.order, layout.leading) = (StorageOrder::Rows, leading);
    }
    check(&rows, &OPERANDS, &[22.0, 28.0, 49.0, 64.0]);
    let mut transposed = product(F32);
    transposed.layouts[0] = MatrixLayout::new(F32, 3, 2, 3);
    transposed.layouts[1] = MatrixLayout::new(F32, 2, 3, 2);
    (transposed.transposes_a, transposed.transposes_b) = (true, true);
    // A^T = [1 2 3; 4 5 6], B^T = [1 2; 3 4; 5 6].
    check(&transposed, &OPERANDS, &[22.0, 49.0, 28.0, 64.0]);
}

#[test]
fn batches_step_through_what_they_are_told() {
    let mut batch = product(F32);
    for (layout, stride) in batch.layouts.iter_mut().zip([6, 0, 4, 4]) {
        (layout.batch, layout.stride) = (2, stride);
    }
    // The second A is [7 9 11; 8 10 12], with the same B.
    check(&batch, &OPERANDS, &[22.0, 28.0, 49.0, 64.0, 58.0, 64.0, 139.0, 154.0]);
    let access = |start, len, usage| Access { range: Range::new(start, len), usage };
    assert_eq!(
        batch.accesses(&OPERANDS),
        [
            access(0x100, 48, Usage::Read),
            access(0x200, 24, Usage::Read),
            access(0x400, 32, Usage::Write)
        ]
    );
}

#[test]
fn in_place_the_result_is_read_too() {
    let in_place = Operands { addresses: [0x100, 0x200, 0x300, 0x300], beta: 1.0, ..OPERANDS };
    check(&product(F32), &in_place, &[23.0, 30.0, 52.0, 68.0]);
    assert_eq!(product(F32).accesses(&in_place)[2].usage, Usage::ReadWrite);
}

#[track_caller]
fn refuse(change: impl Fn(&mut Product), expected: &str) {
    let mut product = product(F32);
    change(&mut product);
    let refusal = product.check().expect_err("it is refused");
    assert_eq!(refusal.to_string(), expected);
}

#[test]
fn products_that_there_are_not_are_refused() {
    refuse(|p| p.layouts[0].leading = 1, "A has a leading dimension of 1, below 2");
    refuse(|p| p.layouts[1].rows = 2, "A has 3 numbers to sum over, B has 2");
    refuse(|p| p.layouts[3].rows = 1, "D is 1 x 2, the product 2 x 2");
    refuse(|p| p.layouts[0].batch = 2, "A has a batch of 2, D of 1");
    refuse(|p| p.layouts[2].columns = 0, "C is empty");
    refuse(
        |p| p.layouts.iter_mut().for_each(|layout| layout.batch = 2),
        "matrices of the batch of D overlap",
    );
    refuse(|p| p.layouts[2].element = Format::Bf16, "no F32 of [F32, F32, Bf16, F32]");
    let overlap = Operands { addresses: [0x100, 0x200, 0x300, 0x104], ..OPERANDS };
    let expected = ProductRefusal::Invalid("A overlaps with D".to_owned());
    assert_eq!(product(F32).check_operands(&overlap), Err(expected));
    let unaligned = Operands { addresses: [0x102, 0x200, 0x300, 0x400], ..OPERANDS };
    let expected = ProductRefusal::Invalid("A lies at 0x102, unaligned".to_owned());
    assert_eq!(product(F32).check_operands(&unaligned), Err(expected));
}
