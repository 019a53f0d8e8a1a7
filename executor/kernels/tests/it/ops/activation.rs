//! Elementwise functions.

use burn::tensor::FloatDType;
use burn_flex::FlexDevice;
use executor_kernels::ops::activation::{
    Function, clamp, clamp_grad, clamped_swiglu, clamped_swiglu_slopes, gated_forward,
    gated_input_grad, soft_cap, soft_cap_grad,
};
use proptest::prelude::*;

use super::{Plain, Traced, check, check_bf16, random};

const ALL: [Function; 8] = [
    Function::Gelu,
    Function::GeluTanh,
    Function::QuickGelu,
    Function::Relu,
    Function::SquaredRelu,
    Function::Silu,
    Function::Tanh,
    Function::Sigmoid,
];

/// The function as its papers write it.
fn definition(function: Function, x: Traced) -> Traced {
    let logistic = |x: Traced| (-x).exp().shift(1.0).recip();
    match function {
        Function::Gelu => x.clone() * x.scale(0.5f64.sqrt()).erf().shift(1.0).scale(0.5),
        Function::GeluTanh => {
            let cube = x.clone() * x.clone() * x.clone();
            let argument =
                (x.clone() + cube.scale(0.044_715)).scale((2.0 / std::f64::consts::PI).sqrt());
            x * argument.tanh().shift(1.0).scale(0.5)
        }
        Function::QuickGelu => x.clone() * logistic(x.scale(1.702)),
        Function::Relu => x.relu(),
        Function::SquaredRelu => x.clone().relu() * x.relu(),
        Function::Silu => x.clone() * logistic(x),
        Function::Tanh => x.tanh(),
        Function::Sigmoid => logistic(x),
    }
}

proptest! {
    #[test]
    fn functions_and_gradients_are_as_defined(rows in 1usize..5, width in 1usize..9, seed: u16) {
        let x = random(&[rows, width], seed.into());
        for function in ALL {
            let y = function.forward(x.clone());
            let kept = if function.keeps_output() { y.clone() } else { x.clone() };
            check([&x], |[x]| definition(function, x), &y, |grad| {
                [function.input_grad(kept, grad)]
            });
        }
    }

    #[test]
    fn gates_and_their_gradients_are_as_defined(rows in 1usize..5, width in 1usize..9, seed: u16) {
        let [gate, value] = [0, 1].map(|offset| random(&[rows, width], u64::from(seed) + offset));
        for function in ALL {
            let y = gated_forward(function, gate.clone(), value.clone());
            let product = |[gate, value]: [Traced; 2]| definition(function, gate) * value;
            check([&gate, &value], product, &y, |grad| {
                gated_input_grad(function, gate.clone(), value.clone(), grad).into()
            });
        }
    }

    /// Above a limit on one side or both; random numbers are on either side of it.
    #[test]
    fn what_is_cut_off_has_no_gradient(rows in 1usize..5, width in 1usize..9, seed: u16) {
        let limit = 0.5;
        let x = random(&[rows, width], seed.into());
        let at_most = |x: Traced| -((-x).at_least(-limit));
        let cut = move |x: Traced| at_most(x).at_least(-limit);
        check([&x], |[x]| cut(x), &clamp(x.clone(), limit), |grad| {
            [clamp_grad(x.clone(), grad, limit)]
        });
        let value = random(&[rows, width], u64::from(seed) + 1);
        let definition = |[gate, value]: [Traced; 2]| {
            definition(Function::QuickGelu, at_most(gate)) * cut(value).shift(1.0)
        };
        let y = clamped_swiglu(x.clone(), value.clone(), limit);
        check([&x, &value], definition, &y, |grad| {
            clamped_swiglu_slopes(x.clone(), value.clone(), limit).map(|slope| slope * grad.clone())
        });
    }

    #[test]
    fn caps_are_approached(rows in 1usize..5, width in 1usize..9, seed: u16) {
        let x = random(&[rows, width], seed.into());
        let y = soft_cap(x.clone(), 1.5);
        check([&x], |[x]| x.scale(1.0 / 1.5).tanh().scale(1.5), &y, |grad| {
            [soft_cap_grad(y.clone(), grad, 1.5)]
        });
    }
}

#[test]
fn far_from_zero_nothing_overflows() {
    let x = Plain::from_f64(vec![-200.0, 200.0], &[2], FloatDType::F32, &FlexDevice);
    let ones = Plain::ones(&[2], FloatDType::F32, &FlexDevice);
    for function in ALL {
        let y = function.forward(x.clone());
        let kept = if function.keeps_output() { y.clone() } else { x.clone() };
        assert!(y.is_finite(), "{function:?}");
        assert!(function.input_grad(kept, ones.clone()).is_finite(), "{function:?}");
    }
}

#[test]
fn in_bf16_functions_are_rounded_once() {
    let [gate, value] = [1, 2].map(|seed| random(&[16, 16], seed));
    for function in ALL {
        check_bf16([&gate, &value], 1.0 / 256.0, |[gate, value]| {
            let y = gated_forward(function, gate.clone(), value.clone());
            let (gate_grad, value_grad) = gated_input_grad(function, gate, value.clone(), value);
            vec![y, gate_grad, value_grad]
        });
    }
}
