//! The presets.

use cost_models::clusters;
use cost_models::{Device, MatmulShape};
use ir::cluster::{Cluster, Precision};
use ir::units::BytesPerSecond;

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
    let message = |change: fn(&mut Cluster)| {
        let mut cluster = clusters::preset("h100").unwrap();
        change(&mut cluster);
        clusters::check_rates(&cluster).unwrap_err().to_string()
    };
    assert_eq!(
        message(|cluster| cluster.gpu.kernel_rates = Some("h1000".to_owned())),
        "`gpu.kernel_rates` `h1000` is not among the rates that were fitted: a100, b200, h100, h200\n\
         hint: leave it out, and the nearest are scaled"
    );
    assert_eq!(
        message(|cluster| cluster.levels[1].collective_rates = Some("ib".to_owned())),
        "`levels[1].collective_rates` `ib` is not among the rates that were fitted: a100, b200, gb200, \
         h100, h200\nhint: leave it out, and latency and bandwidth are taken"
    );
}

/// A copy of a preset with a slower link is not as fast as the preset.
#[test]
fn rates_of_links_hold_at_their_own_bandwidth() {
    for name in clusters::names() {
        let mut cluster = clusters::preset(name).unwrap();
        assert_eq!(clusters::with_known_rates(cluster.clone()).levels, cluster.levels, "{name}");
        cluster.levels[0].bandwidth = BytesPerSecond::new(9e9);
        assert_eq!(clusters::with_known_rates(cluster).levels[0].collective_rates, None, "{name}");
    }
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

#[test]
fn a_cluster_may_be_like_a_preset() {
    let whole = |text: &str| Cluster::from_json(&clusters::completed(text).unwrap()).unwrap();
    let h100 = clusters::preset("h100").unwrap();
    let mine = whole(r#"{"like": "h100", "name": "mine", "gpus_per_node": 4, "host": null}"#);
    let own = Cluster { name: "mine".to_owned(), gpus_per_node: 4, host: None, ..h100.clone() };
    assert_eq!(mine, own);
    let gpu = whole(r#"{"like": "h100", "gpu": {"peak_flops_per_second": {"fp8": null}}}"#).gpu;
    assert_eq!(gpu.peak.len() + 1, h100.gpu.peak.len());
    assert_eq!(gpu.memory, h100.gpu.memory);
    let p5 = clusters::preset("p5").unwrap();
    assert_eq!(p5.gpu, h100.gpu);
    let host = whole(
        r#"{"like": "rtx-3090", "host": {"memory_bytes": 256e9, "memory_bandwidth_bytes_per_second": 2e11}}"#,
    );
    assert_eq!(host.gpus_per_node, whole(r#"{"like": "rtx-4090"}"#).gpus_per_node);
    for bad in [r#"{"like": "h1000"}"#, r#"{"like": 3}"#] {
        let message = clusters::completed(bad).unwrap_err().to_string();
        assert!(message.contains("hint: ") && message.contains("h100"), "{message}");
    }
    assert_eq!(clusters::completed("{").unwrap(), "{");
}

/// GPUs of clouds' nodes are recognised as those of the makers' presets.
#[test]
fn gpus_are_of_the_presets_that_state_them() {
    for (name, preset) in [
        ("nvidiah10080gbhbm3", "h100"),
        ("nvidiah20", "h20"),
        ("nvidiah200", "h200"),
        ("nvidiaa10g", "a10g"),
        ("nvidiaa40", "a40"),
        ("nvidiaa10040gb", "a100-40gb"),
        ("nvidiartxa6000", "rtx-a6000"),
        ("nvidiageforcertx3090", "rtx-3090"),
        ("amdinstinctmi350x", "mi350x"),
        ("quadrop5000", "none"),
    ] {
        assert_eq!(clusters::of_gpu(name).unwrap_or("none"), preset, "{name}");
    }
}

#[test]
fn a_job_may_have_a_part_of_each_node() {
    let ranks = |name: &str, gpus: u32| {
        let cluster = clusters::preset(name).unwrap().with_gpus_per_node(gpus);
        assert_eq!(cluster.check(), Ok(()));
        cluster.levels.iter().map(|level| level.ranks.unwrap_or(0)).collect::<Vec<_>>()
    };
    assert_eq!(ranks("h100", 8), [8, 0]);
    assert_eq!(ranks("h100", 4), [4, 0]);
    assert_eq!(ranks("h100", 1), [0]);
    assert_eq!(ranks("gb200-nvl72", 2), [36, 0]);
    for name in clusters::names() {
        for gpus in 1..=clusters::preset(name).unwrap().gpus_per_node {
            ranks(name, gpus);
        }
    }
}
