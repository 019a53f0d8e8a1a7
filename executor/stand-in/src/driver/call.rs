//! How the functions of C come to the state.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::codes::Code;
use super::state::State;

/// What a call comes to.
pub(super) type Outcome = Result<(), Code>;

/// How often a thread looks whether what it waits for has come.
pub(super) const NAP: Duration = Duration::from_millis(1);

/// How often it looks, at most: what has not come after five minutes does not come. Before the first
/// message, another rank may have to compile its kernels.
const MOST_NAPS: u32 = 300_000;

static STATE: OnceLock<Mutex<State>> = OnceLock::new();

/// The state, which others wait for meanwhile.
pub(super) fn state() -> MutexGuard<'static, State> {
    let state = STATE.get_or_init(|| Mutex::new(State::from_environment()));
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call, unless it is to fail or an earlier one has broken everything.
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
            let lines = state.queues.told();
            state.misuse(format!("{name} waits in vain: {lines}"));
            outcome = Err(Code::LAUNCH_TIMEOUT);
            break;
        }
        // Free for others, one of which may give up what is waited for.
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

/// Defines functions that C finds by their names. Each body is given the locked state, and says
/// whether the call failed.
macro_rules! exported {
    ($(fn $name:ident($state:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {$(
        // SAFETY: NVIDIA's libraries, which alone define this name too, are not loaded beside this one.
        #[unsafe(no_mangle)]
        #[allow(unsafe_code, reason = "programs call it as a function of C")]
        #[allow(non_snake_case, reason = "the names are NVIDIA's")]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
            #[allow(unused_variables, reason = "not every call needs the state")]
            $crate::driver::call::call(stringify!($name), |$state| {
                // SAFETY: who calls a function of C vouches for its pointers: they are null or are
                // of what NVIDIA's documentation of the function of this name says.
                #[allow(unused_unsafe, reason = "not every call takes pointers")]
                unsafe { $body }
            })
        }
    )*};
}
pub(super) use exported;

/// Writes a result where the caller wants it.
///
/// # Safety
///
/// The pointer is null or of a place for a value.
#[expect(unsafe_code, reason = "C gives results through pointers")]
pub(super) unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: it is not null, so it is of a place for a value.
    unsafe { place.write(value) };
    Ok(())
}
