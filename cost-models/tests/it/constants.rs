//! `docs/constants.md` describes the constants that ship; `UPDATE_DOCS=1` writes it.

use std::fs;

use cost_models::constants::{CONSTANTS, Constant, OF_MEMORY, Owner};
use cost_models::frameworks;
use serde_json::Value;

const HEAD: &str = "# The constants of whole steps

These constants are fitted to measured steps and peaks of memory; kernels that were measured alone are in \
`cost-models/data/kernels.json`. `cost-models/frameworks/fitted.json` has their values.

Each has a log-normal prior in three levels. A machine's value is centred on the value of its framework or kind of \
GPU, with the spread given here; that value, on the mean of its kind; and that mean, on the centre of a prior, for \
which `cost-models/data/priors.json` gives a reason. `cost-models/fit/fit_steps.py` makes the fit, and each \
framework's file states the evidence for its values. A value that no step has moved is that of its prior.

`planner calibrate` refits them to steps of your own. Where a value is at an end of its range, the fit would have \
gone further: something else is too slow or too fast there.

";

fn data(name: &str) -> Value {
    let path = format!("{}/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&fs::read_to_string(path).expect("it ships")).expect("it is JSON")
}

/// To three digits, as the fit writes them.
fn number(value: &Value) -> Option<String> {
    let value = value.as_f64()?;
    let rounded: f64 = format!("{value:.2e}").parse().ok()?;
    Some(rounded.to_string())
}

/// The values of a constant that are not 0, each with whose it is.
fn values(constant: &Constant) -> Vec<(String, String)> {
    let fitted = data("frameworks/fitted");
    let gpus = fitted["gpus"].as_object().expect("GPUs by name");
    let mut found = Vec::new();
    match constant.owner {
        Owner::Gpu => {
            found.extend(gpus.iter().map(|(gpu, of)| (gpu.clone(), number(&of[constant.name]))));
        }
        Owner::Attention => {
            let place = usize::from(constant.name == "backward");
            for (gpu, of) in gpus {
                let libraries = of["attention"].as_object().expect("libraries by name");
                found.extend(
                    libraries.iter().map(|(library, rates)| {
                        (format!("{gpu} {library}"), number(&rates[place]))
                    }),
                );
            }
        }
        Owner::Framework => {
            for framework in frameworks::all() {
                let name = framework.name.clone();
                let value = serde_json::to_value(framework).expect("plain values");
                let pointer = format!("/{}", constant.name.replace('.', "/"));
                found.push((name, value.pointer(&pointer).and_then(number)));
            }
        }
        Owner::AllGpus => {
            found.push(("all".to_owned(), number(&fitted["all_gpus"][constant.name])));
        }
        Owner::Network => found.push(("all".to_owned(), number(&fitted["network"][constant.name]))),
    }
    found
        .into_iter()
        .filter_map(|(of, value)| Some((of, value?)))
        .filter(|it| it.1 != "0")
        .collect()
}

fn described(constant: &Constant, priors: &Value) -> String {
    let owner = match constant.owner {
        Owner::Gpu => "For each kind of GPU",
        Owner::Attention => "For each attention library on each kind of GPU",
        Owner::Framework => "For each framework",
        Owner::AllGpus => "For GPUs of all kinds",
        Owner::Network => "For the network",
    };
    let prior = &priors["constants"][constant.name];
    let prior = match (number(&prior["centre"]), prior["why"].as_str()) {
        (Some(centre), Some(why)) => format!("- Prior: {centre} ({why}).\n"),
        _ if constant.owner == Owner::Attention => {
            "- Prior: by library and GPU, published.\n".to_owned()
        }
        _ => String::new(),
    };
    let values: Vec<String> =
        values(constant).into_iter().map(|(of, value)| format!("{of} {value}")).collect();
    format!(
        "## `{}`\n\n{owner}: {}.\n\n- Range: {} to {}; machines differ by a factor of {:.2} (one standard \
         deviation).\n{prior}- Values: {}.\n\n",
        constant.name,
        constant.meaning,
        constant.range[0],
        constant.range[1],
        constant.spread.exp(),
        values.join(", ")
    )
}

#[test]
fn the_documented_constants_are_those_that_ship() {
    let priors = data("data/priors");
    let all = CONSTANTS.iter().chain(&OF_MEMORY);
    let sections: String = all.map(|constant| described(constant, &priors)).collect();
    let expected = format!("{HEAD}{}\n", sections.trim_end());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/constants.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, expected).expect("a file that can be written");
        return;
    }
    let found = fs::read_to_string(path).expect("it ships");
    assert!(found == expected, "constants have changed: run this test with UPDATE_DOCS=1");
}

#[test]
fn every_value_is_within_its_range() {
    for constant in CONSTANTS.iter().chain(&OF_MEMORY) {
        for (of, value) in values(constant) {
            let value: f64 = value.parse().expect("a number");
            let [low, high] = constant.range;
            assert!((low..=high).contains(&value), "{of} {}: {value}", constant.name);
        }
    }
}
