//! Entry of C functions: locking, planned failures and waiting.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::codes::Code;
use super::state::State;

/// Result of a call.
pub(super) type Outcome = Result<(), Code>;

/// Polling period of a thread that waits.
pub(super) const NAP: Duration = Duration::from_millis(1);

/// Upper bound of the number of polls of a wait, five minutes in all. Before the first message, another rank may have
/// to compile its kernels.
const MOST_NAPS: u32 = 300_000;

static STATE: OnceLock<Mutex<State>> = OnceLock::new();

/// Locks the state.
pub(super) fn state() -> MutexGuard<'static, State> {
    let state = STATE.get_or_init(|| Mutex::new(State::from_environment()));
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call, unless the call is planned to fail or a sticky error has occurred.
pub(super) fn call(name: &'static str, mut act: impl FnMut(&mut State) -> Outcome) -> i32 {
    let mut state = state();
    let is_cublas = name.starts_with("cublas");
    let is_cuda = name.starts_with("cu") && !is_cublas;
    if let Some(code) = state.broken.filter(|_| is_cuda || is_cublas) {
        return if is_cublas { Code::CUBLAS_EXECUTION_FAILED.0 } else { code.0 };
    }
    let planned = state.config.failures.count(name);
    let mut outcome = planned.map_or_else(|| act(&mut state), Err);
    let mut num_naps = 0;
    while outcome == Err(Code::AGAIN) {
        num_naps += 1;
        if num_naps > MOST_NAPS {
            let queues = state.queues.describe();
            state.misuse(format!("{name} waits in vain: {queues}"));
            outcome = Err(Code::LAUNCH_TIMEOUT);
            break;
        }
        // The state is unlocked, so that other threads can run or abort the work that is waited for.
        drop(state);
        std::thread::sleep(NAP);
        state = self::state();
        outcome = act(&mut state);
    }
    let Err(code) = outcome else { return 0 };
    if is_cuda && code.is_sticky() {
        state.broken = Some(code);
    }
    code.0
}

/// Defines functions with C linkage. Each body gets the locked state, and returns whether the call failed.
macro_rules! exported {
    ($(fn $name:ident($state:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {$(
        // SAFETY: NVIDIA's libraries, which alone define this name too, are not loaded together with this one.
        #[unsafe(no_mangle)]
        #[allow(unsafe_code, reason = "programs call it as a function of C")]
        #[allow(non_snake_case, reason = "the names are NVIDIA's")]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
            #[allow(unused_variables, reason = "not every call needs the state")]
            $crate::driver::call::call(stringify!($name), |$state| {
                // SAFETY: the caller of a C function vouches for its pointers: they are null, or as NVIDIA's
                // documentation of the function of this name says.
                #[allow(unused_unsafe, reason = "not every call takes pointers")]
                unsafe { $body }
            })
        }
    )*};
}
pub(super) use exported;

/// Writes a result through a pointer.
///
/// # Safety
///
/// The pointer is null or valid for a write.
#[expect(unsafe_code, reason = "C gives results through pointers")]
pub(super) unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: it is not null, so it is valid for a write.
    unsafe { place.write(value) };
    Ok(())
}
