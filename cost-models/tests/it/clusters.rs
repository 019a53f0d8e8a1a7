//! The presets.

use cost_models::clusters;
use cost_models::{Device, MatmulShape};
use ir::cluster::{Cluster, Precision};

#[test]
fn every_preset_is_valid_and_tells_its_sources() {
    for name in clusters::names() {
        let cluster = clusters::preset(name).unwrap();
        assert_eq!(cluster.name, name);
        for field in
            ["gpu.memory_bytes", "gpu.peak_flops_per_second", "levels.bandwidth_bytes_per_second"]
        {
            assert!(cluster.sources.contains_key(field), "{name} has no source for {field}");
        }
        let text = serde_json::to_string(&cluster).unwrap();
        assert_eq!(clusters::check_rates(&cluster), Ok(()));
        assert_eq!(Cluster::from_json(&text), Ok(cluster));
    }
    assert!(clusters::preset("none such").is_none());
}

#[test]
fn rates_that_were_not_fitted_are_refused() {
    let told = |change: fn(&mut Cluster)| {
        let mut cluster = clusters::preset("h100").unwrap();
        change(&mut cluster);
        clusters::check_rates(&cluster).unwrap_err().to_string()
    };
    assert_eq!(
        told(|cluster| cluster.gpu.kernel_rates = Some("h1000".to_owned())),
        "`gpu.kernel_rates` `h1000` is not among the rates that were fitted: a100, b200, h100, h200\n\
         hint: leave it out, and the nearest are scaled"
    );
    assert_eq!(
        told(|cluster| cluster.levels[1].collective_rates = Some("ib".to_owned())),
        "`levels[1].collective_rates` `ib` is not among the rates that were fitted: a100, b200, gb200, \
         h100, h200\nhint: leave it out, and latency and bandwidth are taken"
    );
}

#[test]
fn every_preset_has_costs_never_above_peak() {
    for name in clusters::names() {
        let gpu = clusters::preset(name).unwrap().gpu;
        let device = Device::new(&gpu);
        for (&precision, &peak) in &gpu.peak {
            let time = device.matmul(precision, MatmulShape::new(8192, 8192, 8192));
            let share = 2.0 * 8192f64.powi(3) / time.get() / peak.get();
            assert!(share > 0.2 && share < 1.0, "{name} {precision}: {share} of peak");
        }
        assert!(device.matmul(Precision::Fp32, MatmulShape::new(64, 64, 64)).get() > 0.0);
    }
}
