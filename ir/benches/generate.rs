//! How long it takes to make and check a schedule of each family, and one with all its messages.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use ir::schedule::{ScheduleKind, add_communication, generate};

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("generate");
    for kind in ScheduleKind::ALL {
        let v = kind.default_virtual_stages();
        group.bench_function(format!("{kind}/p16-m64"), |bencher| {
            bencher.iter(|| generate(black_box(kind), 16, 64, v));
        });
    }
    group.finish();
    let schedule = generate(ScheduleKind::Interleaved, 16, 64, 4).expect("numbers that fit");
    criterion.bench_function("add-communication/interleaved-1f1b/p16-m64-v4", |bencher| {
        bencher.iter(|| add_communication(black_box(&schedule)));
    });
}

criterion_group!(schedules, benches);
criterion_main!(schedules);
