use super::{KernelAttributes, Param};

/// The output of NVRTC 12.9 for a sum of two arrays, in vectors of eight 16-bit numbers.
const BINOP: &str = "
.version 8.8
.visible .entry binop(
	.param .u64 binop_param_0,
	.param .u64 .ptr .align 1 binop_param_1,
	.param .u64 binop_param_2,
	.param .align 4 .b8 binop_param_3[40]
)
.maxntid 256, 1, 1
{
	.reg .b64 	%rd<11>;
	.shared .align 16 .b8 tile[64];
	.loc	1 7 3
	ld.param.u64 	%rd1, [binop_param_0];
	ld.param.u64 	%rd2, [binop_param_1];
	ld.param.u64 	%rd3, [binop_param_2];
	ld.param.u32 	%r17, [binop_param_3+8];
	setp.ge.u32 	%p1, %r1, %r17;
	@%p1 bra 	$L__BB0_2;
	cvta.to.global.u64 	%rd4, %rd1;
	mul.wide.u32 	%rd5, %r1, 16;
	add.s64 	%rd6, %rd4, %rd5;
	ld.global.nc.v4.u32 	{%r31, %r32, %r33, %r34}, [%rd6];
	cvta.to.global.u64 	%rd7, %rd2;
	add.s64 	%rd8, %rd7, %rd5;
	ld.global.nc.v4.u32 	{%r35, %r36, %r37, %r38}, [%rd8+16];
	// begin inline asm
	{ add.bf16x2 %r28,%r34,%r38; }
	// end inline asm
	cvta.to.global.u64 	%rd9, %rd3;
	add.s64 	%rd10, %rd9, %rd5;
	@%p1 st.global.v4.u32 	[%rd10], {%r19, %r22, %r25, %r28};
$L__BB0_2:
	ret;

}
";

fn address(reads: bool, writes: bool, width: u64) -> Param {
    Param { bytes: 8, align: 8, reads, writes, width }
}

/// Checks reads and writes through both parameters of a kernel with this body, as `r`, `w`, `rw` or `-`.
#[track_caller]
fn check(body: &str, expected: &str) {
    let module = format!(
        ".entry k(\n.param .u64 k_param_0,\n.param .u64 k_param_1\n)\n{{\n\
         ld.param.u64 %rd1, [k_param_0];\nld.param.u64 %rd2, [k_param_1];\n{body}\n}}\n"
    );
    let kernel = KernelAttributes::parse(&module, "k").expect("it is there");
    let letters = |param: &Param| match (param.reads, param.writes) {
        (true, true) => "rw",
        (true, false) => "r",
        (false, true) => "w",
        (false, false) => "-",
    };
    let found: Vec<&str> = kernel.params.iter().map(letters).collect();
    assert_eq!(found.join(" "), expected, "{body}");
}

#[test]
fn what_a_kernel_reads_and_writes_is_found() {
    let kernel = KernelAttributes::parse(BINOP, "binop").expect("it is there");
    assert_eq!(
        kernel.params,
        [
            address(true, false, 16),
            address(true, false, 16),
            address(false, true, 16),
            Param { bytes: 40, align: 4, ..Param::default() },
        ]
    );
    assert_eq!((kernel.max_threads, kernel.shared_bytes), (Some(256), 64));
    assert_eq!(KernelAttributes::parse(BINOP, "other"), None);
}

#[test]
fn addresses_are_followed_through_arithmetic() {
    check("ld.global.f32 %f1, [%rd1]; st.global.f32 [%rd2], %f1;", "r w");
    check("atom.global.add.f32 %f1, [%rd1], %f2;", "rw -");
    check("red.global.add.f32 [%rd2], %f2;", "- rw");
    check("selp.b64 %rd3, %rd1, %rd2, %p1; ld.global.u8 %r1, [%rd3];", "r r");
    check("mad.wide.s32 %rd3, %r1, 4, %rd2; st.global.b32 [%rd3+4], %r2;", "- w");
    check("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {%f1}, %r1;", "w -");
    check("wmma.load.a.sync.aligned.row.m16n16k16.global.bf16 {%r1}, [%rd2], %r3;", "- r");
    check("cp.async.cg.shared.global [%r1], [%rd2], 16;", "- r");
}

/// Eight numbers of 32 bits are two stores; four numbers, twice in an unrolled loop, are two as well.
#[test]
fn what_takes_two_instructions_is_seen_as_one() {
    let widths = |step: u32| {
        let module = format!(
            ".entry k(\n.param .u64 k_param_0\n)\n{{\nld.param.u64 %rd1, [k_param_0];\n\
             mul.wide.u32 %rd2, %r1, {step};\nadd.s64 %rd3, %rd1, %rd2;\n\
             st.global.v4.f32 [%rd3], {{%f1, %f2, %f3, %f4}};\n\
             st.global.v4.f32 [%rd3+16], {{%f1, %f2, %f3, %f4}};\n}}\n"
        );
        KernelAttributes::parse(&module, "k").expect("it is there").params[0].width
    };
    assert_eq!([widths(32), widths(16), widths(64)], [32, 16, 16]);
}

/// A brace that ends a line of inline assembly ends no kernel.
#[test]
fn scopes_within_a_kernel_do_not_end_it() {
    check("{ .reg .b32 a;\n}\n// }\nld.global.f32 %f1, [%rd1];", "r -");
}

/// A loop moves its pointer at its end, and reads through it at its beginning.
#[test]
fn addresses_are_followed_around_loops() {
    check("ld.global.f32 %f1, [%rd4]; add.s64 %rd4, %rd3, 4; mov.u64 %rd3, %rd1;", "r -");
}

#[test]
fn the_kernels_own_memory_is_not_counted() {
    check("ld.shared.f32 %f1, [%r1]; st.shared.f32 [%r2], %f1; ld.local.u8 %r1, [%rd3];", "- -");
    check("mov.u64 %rd5, tile; cvta.shared.u64 %rd6, %rd5; st.f32 [%rd6], %f1;", "- -");
}

#[test]
fn what_is_not_understood_is_read_and_written() {
    // An address from memory.
    check("ld.shared.u64 %rd3, [%r1]; st.global.f32 [%rd3], %f1;", "rw rw");
    // An address in memory.
    check("st.local.u64 [%rd9], %rd2;", "- rw");
    // An address as an argument of a call.
    check("call.uni (retval0), helper, (%rd1);", "rw -");
}
