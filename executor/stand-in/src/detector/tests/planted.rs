//! Recordings with one mistake each, and the same ones without it.

use super::super::HostOrder;
use super::script::{check, check_with};

#[test]
fn memory_that_is_freed_while_another_stream_reads_it() {
    check(
        "s0 alloc A
         s0 init writes A
         s0 record written
         s1 wait written
         s1 slow reads A
         s0 free A",
        "FreeWhileInUse: slow, free",
    );
    check(
        "s0 alloc A
         s0 init writes A
         s0 record written
         s1 wait written
         s1 slow reads A
         s1 record read
         s0 wait read
         s0 free A",
        "",
    );
}

/// A memory pool reuses a slice: the driver sees another write.
#[test]
fn memory_that_a_pool_gives_again_while_another_stream_reads_it() {
    let before = "s0 alloc A
         s0 init writes A
         s0 record written
         s1 wait written
         s1 slow reads A";
    check(&format!("{before}\ns0 next writes A"), "WriteOverUnfinishedRead: slow, next");
    // A slice that does not overlap.
    check(&before.replace("slow reads A", "slow reads A/1\ns0 next writes A/2"), "");
    check(&format!("{before}\nt0 sees s1\ns0 next writes A"), "");
}

#[test]
fn memory_that_is_read_too_early_of_what_was_written_after_its_allocation() {
    check(
        "s0 alloc A
         s0 record there
         s1 wait there
         s0 init writes A
         s1 use reads A",
        "ReadOfUnfinishedWrite: init, use",
    );
    check(
        "s0 alloc A
         s0 init writes A
         s0 record there
         s1 wait there
         s1 use reads A",
        "",
    );
}

#[test]
fn memory_that_is_used_before_it_may_be_there() {
    check("s0 alloc A\ns1 use writes A", "UseBeforeAllocation: allocation, use");
    check("s0 alloc A\ns0 record e\ns1 wait e\ns1 use writes A", "");
    check("t0 alloc A\ns1 use writes A", "");
}

#[test]
fn a_source_of_nccl_that_is_still_computed() {
    let start = "t0 alloc A\nt0 alloc B\ns0 compute writes A";
    let send = "s1 all_reduce reads A writes B";
    check(&format!("{start}\n{send}"), "ReadOfUnfinishedWrite: compute, all_reduce");
    check(&format!("{start}\ns0 record e\ns1 wait e\n{send}"), "");
    check(&format!("{start}\ns0 record e\nt0 sees e\n{send}"), "");
}

#[test]
fn a_result_of_nccl_that_is_read_too_early() {
    let start = "t0 alloc A\nt0 alloc B\ns1 all_reduce reads A writes B";
    let read = "s0 update reads B";
    check(&format!("{start}\n{read}"), "ReadOfUnfinishedWrite: all_reduce, update");
    check(&format!("{start}\ns1 record e\ns0 wait e\n{read}"), "");
}

#[test]
fn pinned_memory_that_is_filled_again_before_its_copy_ended() {
    let start = "t0 alloc P\nt0 alloc A\nt0 fill writes P\ns0 upload reads P writes A";
    check(&format!("{start}\nt0 refill writes P"), "WriteOverUnfinishedRead: upload, refill");
    check(&format!("{start}\ns0 record e\nt0 sees e\nt0 refill writes P"), "");
}

#[test]
fn pinned_memory_that_is_read_before_it_came() {
    let start = "t0 alloc P\nt0 alloc A\ns0 download reads A writes P";
    check(&format!("{start}\nt0 look reads P"), "ReadOfUnfinishedWrite: download, look");
    check(&format!("{start}\nt0 sees s0\nt0 look reads P"), "");
    check(&format!("{start}\nt0 sees device\nt0 look reads P"), "");
}

#[test]
fn a_receive_whose_destination_is_freed_before_it_ended() {
    let start = "s0 alloc A\ns0 record e\ns1 wait e\ns1 recv writes A";
    check(&format!("{start}\ns0 free A"), "FreeWhileInUse: recv, free");
    check(&format!("{start}\ns1 record f\ns0 wait f\ns0 free A"), "");
    check(&format!("{start}\nt0 sees s1\ns0 free A"), "");
}

#[test]
fn an_event_that_is_recorded_before_what_it_should_cover() {
    check(
        "t0 alloc A
         s0 record e
         s0 compute writes A
         s1 wait e
         s1 send reads A",
        "ReadOfUnfinishedWrite: compute, send",
    );
    check("t0 alloc A\ns0 compute writes A\ns0 record e\ns1 wait e\ns1 send reads A", "");
    // A wait before the event is recorded has no effect.
    check(
        "t0 alloc A\ns0 compute writes A\ns1 wait e\ns0 record e\ns1 send reads A",
        "ReadOfUnfinishedWrite: compute, send",
    );
}

#[test]
fn a_write_after_a_wait_for_another_event() {
    let start = "t0 alloc A
         s0 first reads A
         s0 record a
         s1 second reads A
         s1 record b";
    check(
        &format!("{start}\ns2 wait a\ns2 third writes A"),
        "WriteOverUnfinishedRead: second, third",
    );
    check(&format!("{start}\ns2 wait a\ns2 wait b\ns2 third writes A"), "");
}

#[test]
fn an_event_that_is_recorded_again() {
    let start = "t0 alloc A\ns0 compute writes A\ns0 record e\ns2 record e\ns1 wait e";
    check(&format!("{start}\ns1 send reads A"), "ReadOfUnfinishedWrite: compute, send");
    check(&format!("{start}\ns1 wait e").replace("s2 record", "s0 record"), "");
}

#[test]
fn memory_that_was_freed() {
    check("s0 alloc A\ns0 free A\ns0 late reads A", "UseAfterFree: free, late");
    check("s0 alloc A\ns0 late reads A\ns0 free A", "");
    check("s0 alloc A\ns0 free A\ns0 alloc A\ns0 late reads A", "");
    check("s0 stray reads A", "UseOutsideAllocations: nothing, stray");
}

#[test]
fn calls_of_a_group_that_use_the_same_memory() {
    check("t0 alloc A\ns0 send reads A + recv writes A", "UseWithinGroup: send, recv");
    check("t0 alloc A\ns0 send reads A/1 + recv writes A/2", "");
    // One call may read and write in place.
    check("t0 alloc A\ns0 all_reduce reads A writes A", "");
}

#[test]
fn the_default_stream_and_blocking_streams_wait_for_each_other() {
    check("t0 alloc A\ns8 compute writes A\ns9 copy reads A\ns8 next writes A", "");
    check(
        "t0 alloc A\ns0 compute writes A\ns9 copy reads A",
        "ReadOfUnfinishedWrite: compute, copy",
    );
}

/// Synchronisation between threads is not seen: only a use that needs none is an error for certain.
#[test]
fn what_another_thread_has_seen_is_told_apart() {
    let text = "t0 alloc A
         s0 compute writes A
         t1 sees s0
         s1 send reads A by t2";
    check(text, "");
    check_with(text, HostOrder::WithinThreads, "ReadOfUnfinishedWrite: compute, send");
    check_with(&text.replace("t2", "t1"), HostOrder::WithinThreads, "");
}

/// Equal mistakes are reported once.
#[test]
fn equal_findings_are_told_once() {
    let text = "t0 alloc A\n".to_owned() + &"s0 compute writes A\ns1 send reads A\n".repeat(3);
    check(&text, "ReadOfUnfinishedWrite: compute, send\nWriteOverUnfinishedRead: send, compute");
}
