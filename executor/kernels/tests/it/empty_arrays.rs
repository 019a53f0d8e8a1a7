//! Arrays without elements: nothing is computed, and shapes are what they would be.

use burn_flex::{Flex, FlexDevice};
use executor_kernels::array::{Array, Element, Indices};

type A = Array<Flex>;

fn zeros(shape: &[usize]) -> A {
    A::zeros(shape, Element::F32, &FlexDevice)
}

#[test]
fn operations_on_no_elements_leave_no_elements() {
    let none = || zeros(&[0, 3]);
    let one = || zeros(&[1, 3]);
    for array in [
        none() + none(),
        none() * one(),
        zeros(&[0, 1]) + one(),
        one() - none(),
        -none(),
        none().exp(),
        none().scale(2.0),
        none().maximum(one()),
        one().minimum(none()),
        none().where_positive(none()),
        none().cast(Element::F64),
        zeros(&[4, 3]).narrow(0, 2..2),
        zeros(&[4, 3]).select(0, &Indices::new(&[], &[0], &FlexDevice)),
        A::from_f64(Vec::new(), &[0, 3], Element::F32, &FlexDevice),
        none().matmul(zeros(&[3, 3])),
    ] {
        assert_eq!(array.shape(), [0, 3]);
        assert!(array.is_empty() && array.to_f64().is_empty());
    }
}

#[test]
fn what_no_elements_add_up_to_is_zero() {
    assert_eq!(zeros(&[0, 3]).sum().to_f64(), [0.0]);
    assert_eq!(zeros(&[0, 3]).sum_dim(0).to_f64(), [0.0; 3]);
    assert_eq!(zeros(&[2, 0]).mean_dim(1).shape(), [2, 1]);
    // A sum of no products.
    assert_eq!(zeros(&[2, 0]).matmul(zeros(&[0, 3])).to_f64(), [0.0; 6]);
}

#[test]
fn no_elements_change_nothing() {
    let ones = || A::ones(&[2, 3], Element::F32, &FlexDevice);
    let nowhere = Indices::new(&[], &[0], &FlexDevice);
    assert_eq!(A::concat(vec![zeros(&[0, 3]), ones(), zeros(&[0, 3])], 0).to_f64(), [1.0; 6]);
    assert_eq!(A::concat(vec![zeros(&[0, 3]), zeros(&[0, 3])], 0).shape(), [0, 3]);
    assert_eq!(A::concat(vec![zeros(&[2, 0]), zeros(&[1, 0])], 0).shape(), [3, 0]);
    assert_eq!(ones().select_add(0, &nowhere, zeros(&[0, 3])).to_f64(), [1.0; 6]);
    assert_eq!(ones().add_at(0, 1, zeros(&[0, 3])).to_f64(), [1.0; 6]);
}

#[test]
fn items_of_several_arrays_are_read_at_once() {
    let item = |value, element| A::from_f64(vec![value], &[1], element, &FlexDevice);
    let items = vec![item(1.5, Element::F32), item(-2.0, Element::BF16), item(0.25, Element::F32)];
    assert_eq!(A::items(items), [1.5, -2.0, 0.25]);
    assert!(A::items(Vec::new()).is_empty());
}
