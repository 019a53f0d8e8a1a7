//! Number of actions a second that are simulated, on one core.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ir::schedule::{ScheduleKind, add_communication, generate};
use ir::units::Nanos;
use simulator::{Durations, Order, PassTimes, StepWork, simulate, step_time};

fn benches(criterion: &mut Criterion) {
    let passes = PassTimes {
        forward: Nanos::new(18_522),
        input_grad: Nanos::new(18_086),
        weight_grad: Nanos::new(9_337),
    };
    for (kind, p, m) in [
        (ScheduleKind::OneFOneB, 16, 256),
        (ScheduleKind::Zbv, 16, 256),
        (ScheduleKind::OneFOneB, 64, 4096),
    ] {
        let plain = generate(kind, p, m, kind.default_virtual_stages()).expect("numbers that fit");
        let durations = Durations::equal(passes, plain.num_stages(), Nanos::new(601));
        let name = format!("{kind}/p{p}-m{m}");

        let order = Order::new(&plain);
        let work = StepWork::plain(&durations, p);
        let mut group = criterion.benchmark_group("step_time");
        group.throughput(Throughput::Elements(order.num_actions() as u64));
        group.bench_function(&name, |bencher| {
            bencher.iter(|| step_time(black_box(&order), black_box(&work)));
        });
        group.finish();

        let schedule = add_communication(&plain);
        let mut group = criterion.benchmark_group("simulate");
        group.sample_size(10);
        group.throughput(Throughput::Elements(schedule.actions().count() as u64));
        group.bench_function(&name, |bencher| {
            bencher.iter(|| simulate(black_box(&schedule), black_box(&work)));
        });
        group.finish();
    }
}

criterion_group!(simulation, benches);
criterion_main!(simulation);
