//! Collectives against their definitions, on ranks that are threads of this process.

use std::convert::Infallible;
use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor::communicator::{Communicator, local};

#[path = "../common/collectives.rs"]
mod definitions;

type Rank = Arc<dyn Communicator<Flex>>;

fn run<T: Send>(num_ranks: u32, program: impl Fn(Rank) -> T + Sync) -> Vec<T> {
    local::run(num_ranks, &[FlexDevice], |rank| Ok::<_, Infallible>(program(rank)))
        .expect("a rank fails by a panic alone")
}

#[test]
fn collectives_do_what_their_definitions_say_on_any_group() {
    for num_ranks in 1..=8 {
        run(num_ranks, |rank| definitions::check_all(&*rank));
    }
}
