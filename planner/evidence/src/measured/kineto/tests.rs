use cost_models::{MatmulShape, SelfAttentionShape};
use ir::cluster::Precision;

use super::*;

/// Written by hand in the form of traces in issues of PyTorch and Kineto (pytorch/pytorch#131462 for NCCL): marks of
/// two steps, forward on the main thread, backward on autograd's thread, in older and newer forms.
const TRACE: &str = r#"{
  "schemaVersion": 1,
  "deviceProperties": [{ "id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85094825984 }],
  "distributedInfo": { "backend": "nccl", "rank": 3, "world_size": 8 },
  "traceName": "rank3.json",
  "traceEvents": [
  { "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 100, "tid": 100, "ts": 1468837789000.5, "dur": 900.0, "args": { "External id": 1 } },
  { "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 100, "ts": 1468837789001.0, "dur": 9,
    "args": { "External id": 2, "Record function id": 0, "Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Strides": [[4096, 1], [1, 4096]], "Input Dims": [[8192, 4096], [4096, 1024]], "Ev Idx": 1 } },
  { "ph": "X", "cat": "cpu_op", "name": "aten::_flash_attention_forward", "pid": 100, "tid": 100, "ts": 1468837789020.0, "dur": 9,
    "args": { "External id": "3", "Concrete Inputs": ["", "", "", "", "", "2048", "2048", "0.", "False", "False"], "Input type": ["c10::Half", "c10::Half", "c10::Half"], "Input Dims": [[4, 2048, 32, 128], [4, 2048, 8, 128], [4, 2048, 8, 128]] } },
  { "ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: MmBackward0", "pid": 100, "tid": 101, "ts": 1468837789040.0, "dur": 50, "args": { "External id": 4 } },
  { "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 101, "ts": 1468837789050.0, "dur": 9,
    "args": { "External id": 5, "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Dims": [[4096, 8192], [8192, 1024]] } },
  { "ph": "X", "cat": "cpu_op", "name": "aten::_foreach_add_", "pid": 100, "tid": 100, "ts": 1468837789100.0, "dur": 9,
    "args": { "External id": 6, "Input type": ["TensorList", "Scalar"], "Input Dims": [[[4096, 4096], [4096]], []] } },
  { "ph": "X", "cat": "user_annotation", "name": "Optimizer.step#AdamW.step", "pid": 100, "tid": 100, "ts": 1468837789095.0, "dur": 90.0 },
  { "ph": "X", "cat": "kernel", "name": "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "pid": 0, "tid": 7, "ts": 1468837789010.25, "dur": 300.5,
    "args": { "External id": 2, "device": 0, "context": 1, "stream": 7, "correlation": 2, "grid": [2, 1, 1] } },
  { "ph": "X", "cat": "kernel", "name": "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::half_t>>", "pid": 0, "tid": 7, "ts": 1468837789311.0, "dur": 100.0, "args": { "External id": 3, "stream": 7 } },
  { "ph": "X", "cat": "kernel", "name": "ampere_bf16_s16816gemm_bf16_128x128", "pid": 0, "tid": 7, "ts": 1468837789412.0, "dur": 300.0, "args": { "External id": 5, "stream": 7 } },
  { "ph": "X", "cat": "kernel", "name": "void cublasLt::splitKreduce_kernel<32, 16, int>", "pid": 0, "tid": 7, "ts": 1468837789712.0, "dur": 10.0, "args": { "External id": 5, "stream": 7 } },
  { "ph": "X", "cat": "kernel", "name": "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "pid": 0, "tid": 7, "ts": 1468837789730.0, "dur": 50.0, "args": { "External id": 6, "stream": 7 } },
  { "ph": "X", "cat": "kernel", "name": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "pid": 0, "tid": 17, "ts": 1468837789420.0, "dur": 200.0,
    "args": { "External id": 77, "stream": 17, "Collective name": "_reduce_scatter_base", "In msg nelems": 8388608, "Out msg nelems": 2097152, "Group size": 4, "dtype": "BFloat16", "Process Group Name": "2", "Process Group Description": "mesh_dp_shard", "Process Group Ranks": "[1, 3, 5, 7]" } },
  { "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", "pid": 0, "tid": 17, "ts": 1468837789650.0, "dur": 20.0, "args": { "External id": 78, "stream": 17 } },
  { "ph": "f", "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 1468837789010.25, "id": 2, "bp": "e" },
  { "ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": 1468837789000.0, "args": { "name": "python" } },
  { "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": 1468837789000.0 }
  ]
}"#;

#[test]
fn a_trace_is_read() {
    let profile = read(TRACE).unwrap();
    assert_eq!(profile.rank, Some(3));
    assert_eq!(profile.gpu.as_deref(), Some("NVIDIA A100-SXM4-80GB"));
    assert!(profile.has_shapes);
    assert_eq!(
        profile.steps,
        [[Nanos::new(0), Nanos::new(900_000)].map(|it| it + Nanos::new(500))]
    );
    let work: Vec<Option<ProfiledWork>> =
        profile.kernels.iter().map(|kernel| kernel.work).collect();
    let attention = SelfAttentionShape {
        batch: 4,
        sequence: 2048,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        causal: false,
    };
    let exchange = ProfiledCollective {
        collective: Collective::ReduceScatter,
        bytes: Bytes::new(16 << 20),
        num_ranks: 4,
        stride: Some(2),
        purpose: Some(Purpose::OverReplicas),
    };
    let backward = ProfiledWork::Product(MatmulShape::new(4096, 1024, 8192), Precision::Bf16);
    assert_eq!(
        work,
        [
            Some(ProfiledWork::Product(MatmulShape::new(8192, 1024, 4096), Precision::Bf16)),
            Some(ProfiledWork::AttentionForward(attention, Precision::Fp16)),
            Some(backward),
            Some(ProfiledWork::Collective(exchange)),
            None,
            Some(backward),
            None,
        ]
    );
    let phases: Vec<Phase> = profile.kernels.iter().map(|kernel| kernel.phase).collect();
    let [f, b] = [Phase::Forward, Phase::Backward];
    assert_eq!(phases, [f, f, b, f, f, b, Phase::Update]);
    // Both kernels of a product are one call.
    assert_eq!(profile.kernels[2].call, profile.kernels[5].call);
    assert_eq!(profile.kernels[0].duration().to_string(), "300.5 us");
}

#[test]
fn a_bare_list_of_events_is_read_too() {
    let (_, events) = TRACE.split_once("\"traceEvents\": ").unwrap();
    let events = events.trim_end().trim_end_matches('}');
    let profile = read(events).unwrap();
    assert_eq!((profile.kernels.len(), profile.rank), (7, None));
}

/// A trace that is truncated anywhere is reported as truncated, with its length.
#[test]
fn a_trace_that_is_cut_off_says_where() {
    for end in (1..TRACE.len()).step_by(101) {
        let error = read(&TRACE[..end]).unwrap_err();
        assert!(error.to_string().contains(&format!("ends at byte {end},")), "{end}: {error}");
    }
}

#[test]
fn classes_follow_from_names() {
    let check = |name: &str, class: Class| assert_eq!(Class::of_kernel(name), class, "{name}");
    check("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", Class::Product);
    check(
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1",
        Class::Product,
    );
    check(
        "cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>",
        Class::Product,
    );
    check("Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1", Class::Product);
    check(
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_bwd",
        Class::AttentionBackward,
    );
    check("void flash::FlashAttnBwdSm90<...>", Class::AttentionBackward);
    check("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", Class::Exchange);
    check("triton_poi_fused__to_copy_add_mul_silu_3", Class::Memory);
    check("void at::native::vectorized_elementwise_kernel<4, ...>", Class::Memory);
}
