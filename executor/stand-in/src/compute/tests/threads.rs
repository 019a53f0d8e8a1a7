//! Tests of divergence, barriers, shared memory and atomics.

use super::bench::{Buffer, START, decode, play, words};
use crate::compute::Fault;

#[test]
fn threads_that_part_meet_again() {
    // Odd threads branch; then the active threads are counted.
    let body = "and.b32 %r2, %r1, 1;\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 bra EVEN;\n\
        mov.u32 %r3, 100;\nbra.uni BOTH;\nEVEN:\nmov.u32 %r3, 200;\nBOTH:\n\
        activemask.b32 %r4;\npopc.b32 %r4, %r4;\nadd.s32 %r9, %r3, %r4;";
    assert_eq!(words(body, 4), [204, 104, 204, 104]);
}

#[test]
fn loops_end_for_each_thread_when_it_is_done() {
    // The sum of all numbers up to the thread's number.
    let body = "mov.u32 %r9, 0;\nmov.u32 %r2, 0;\nLOOP:\nadd.s32 %r9, %r9, %r2;\n\
        add.s32 %r2, %r2, 1;\nsetp.le.u32 %p1, %r2, %r1;\n@%p1 bra LOOP;";
    let expected: Vec<u32> = (0..40).map(|n| n * (n + 1) / 2).collect();
    assert_eq!(words(body, 40), expected);
}

/// Each thread reads what the thread at the other end of the block has written.
#[test]
fn shared_memory_is_seen_behind_a_barrier() {
    let body = |before: &str| {
        format!(
            "mov.u64 %rd4, dynamic;\nadd.s64 %rd5, %rd4, %rd2;\nst.shared.u32 [%rd5], %r1;\n\
             {before}\nmov.u32 %r2, 99;\nsub.s32 %r2, %r2, %r1;\nmul.wide.u32 %rd6, %r2, 4;\n\
             add.s64 %rd7, %rd4, %rd6;\ncvta.shared.u64 %rd8, %rd7;\nld.u32 %r9, [%rd8];"
        )
    };
    let expected: Vec<u32> = (0..100).rev().collect();
    assert_eq!(words(&body("bar.sync 0;"), 100), expected);
    let own = "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\n";
    let fault = play(&format!("{own}{}", body("")), (1, 100), &mut Buffer::of(&[]));
    let expected = "two warps use the same shared memory without a barrier between them, in block \
        [0, 0, 0] by `st.shared.u32 [%rd5], %r1`";
    assert_eq!(fault.expect_err("it fails").to_string(), expected);
}

#[test]
fn each_thread_has_memory_of_its_own() {
    let body = ".local .align 8 .b8 depot[16];\nmov.u64 %rd4, depot;\ncvta.local.u64 %rd5, %rd4;\n\
        st.u32 [%rd5+4], %r1;\nbar.warp.sync -1;\nld.local.u32 %r9, [%rd4+4];";
    assert_eq!(words(body, 4), [0, 1, 2, 3]);
}

#[test]
fn parameters_are_where_they_belong() {
    let body = "ld.param.u32 %r2, [k_param_1];\nmov.b64 %rd4, k_param_1;\n\
        ld.param.s16 %r3, [%rd4+4];\nadd.s32 %r9, %r2, %r3;";
    assert_eq!(words(body, 2), [5, 5]);
}

#[test]
fn names_of_a_scope_are_its_own() {
    let body =
        "{ .reg .b32 a;\nmov.u32 a, 3;\n{ .reg .b32 a;\nmov.u32 a, 4;\n}\nmov.u32 %r9, a;\n}";
    assert_eq!(words(body, 1), [3]);
}

#[test]
fn lanes_give_each_other_values() {
    let shuffle = |how: &str| words(&format!("shfl.sync.{how}, -1;"), 32);
    let each = |f: fn(u32) -> u32| (0..32).map(f).collect::<Vec<_>>();
    assert_eq!(shuffle("bfly.b32 %r9, %r1, 1, 31"), each(|lane| lane ^ 1));
    assert_eq!(
        shuffle("down.b32 %r9, %r1, 4, 31"),
        each(|lane| if lane < 28 { lane + 4 } else { lane })
    );
    assert_eq!(
        shuffle("up.b32 %r9, %r1, 4, 0"),
        each(|lane| if lane < 4 { lane } else { lane - 4 })
    );
    // In halves of sixteen.
    assert_eq!(shuffle("idx.b32 %r9, %r1, 3, 4127"), each(|lane| lane / 16 * 16 + 3));
    let vote = "setp.gt.u32 %p1, %r1, 29;\nvote.sync.ballot.b32 %r9, %p1, -1;";
    assert_eq!(words(vote, 32), each(|_| 0xc000_0000));
    assert_eq!(words("redux.sync.add.s32 %r9, %r1, -1;", 32), each(|_| 496));
}

#[test]
fn all_threads_add_up_to_one_sum() {
    let mut buffer = Buffer::of(&[0, 0]);
    let body = "mov.u32 %r1, %tid.x;\ncvt.rn.f32.u32 %f1, %r1;\n\
        atom.global.add.f32 %f2, [%rd1], %f1;\nred.global.max.u32 [%rd1+4], %r1;";
    play(body, (3, 64), &mut buffer).expect("it comes to its end");
    assert_eq!(buffer.words(), [6048_f32.to_bits(), 63]);
}

#[test]
fn copies_fill_up_what_is_not_given() {
    let mut buffer = Buffer::of(&[1, 2, 3, 4]);
    let body = "mov.u64 %rd4, dynamic;\ncp.async.cg.shared.global [%rd4], [%rd1], 16, 8;\n\
        cp.async.commit_group;\ncp.async.wait_group 0;\nld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%rd4];\n\
        st.global.v4.u32 [%rd1], {%r4, %r3, %r2, %r1};";
    play(body, (1, 1), &mut buffer).expect("it comes to its end");
    assert_eq!(buffer.words(), [0, 0, 2, 1]);
}

#[track_caller]
fn fails(body: &str, threads: u32, expected: &str) {
    let fault = play(body, (1, threads), &mut Buffer::of(&[0; 4])).expect_err("it fails");
    assert_eq!(fault.to_string(), expected);
}

#[test]
fn what_threads_must_not_do_is_told() {
    let own = "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n";
    fails(
        &format!("{own}st.global.u32 [%rd3], %r1;"),
        5,
        "thread 4 of block [0, 0, 0] writes 4 bytes of global memory at 0x1010, by `st.global.u32 \
         [%rd3], %r1`",
    );
    fails(
        "ld.global.v2.u32 {%r1, %r2}, [%rd1+4];",
        1,
        "thread 0 of block [0, 0, 0] reads 8 bytes of global memory at 0x1004, by \
         `ld.global.v2.u32 {%r1, %r2}, [%rd1+4]`",
    );
    fails(
        &format!("{own}setp.eq.u32 %p1, %r1, 0;\n@%p1 bra END;\nbar.sync 0, 64;\nEND:\nret;"),
        64,
        "threads of block [0, 0, 0] wait in vain at `bar.sync 0, 64`",
    );
    fails(
        &format!("{own}setp.eq.u32 %p1, %r1, 0;\n@%p1 bar.sync 0;\n@!%p1 bar.warp.sync -1;"),
        32,
        "threads of block [0, 0, 0] wait in vain at `@!%p1 bar.warp.sync -1`",
    );
    fails(
        "shfl.sync.idx.b32 %r9, %r1, 20, 31, 0xff;",
        8,
        "a lane takes a value of one that does not take part, in block [0, 0, 0] by \
         `shfl.sync.idx.b32 %r9, %r1, 20, 31, 0xff`",
    );
}

/// A valid address and one outside of the buffer: a kernel with one wrong sign gives another result, or none.
#[test]
fn a_planted_error_is_noticed() {
    let sound = "ld.global.u32 %r2, [%rd3];\nadd.s32 %r9, %r2, %r1;";
    assert_eq!(words(sound, 3), [0, 2, 4]);
    assert_ne!(words(&sound.replace("add", "sub"), 3), [0, 2, 4]);
    assert!(matches!(decode("ld.global.u32 %r2, [nowhere];"), Err(Fault::Unknown(_))));
    assert_eq!(START % 16, 0, "vectors are aligned in the buffer");
}
