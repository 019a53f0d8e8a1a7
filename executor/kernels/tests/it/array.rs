//! Operations that `Array` adds to burn's.

use burn::tensor::FloatDType;
use burn_flex::Flex;
use executor_kernels::array::Array;

fn array(values: &[f64], shape: &[usize]) -> Array<Flex> {
    Array::from_f64(values.to_vec(), shape, FloatDType::F64, &burn_flex::FlexDevice)
}

#[test]
fn parts_join_to_the_whole() {
    let whole = array(&[0., 1., 2., 3., 4., 5., 6., 7.], &[2, 4]);
    let parts = whole.split(1, &[1, 3]);
    assert_eq!(parts[1].to_f64(), [1., 2., 3., 5., 6., 7.]);
    assert_eq!(Array::concat(parts, 1).to_f64(), whole.to_f64());
}

#[test]
fn infinities_and_what_is_no_number_are_found() {
    assert!(array(&[1e300, -1e300], &[2]).is_finite());
    assert!(!array(&[1.0, f64::INFINITY], &[2]).is_finite());
    assert!(!array(&[1.0, f64::NAN], &[2]).is_finite());
}
