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
        assert_eq!(Cluster::from_json(&text), Ok(cluster));
    }
    assert!(clusters::preset("none such").is_none());
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
