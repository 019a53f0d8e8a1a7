//! The functions of NCCL that are called, loaded at run time.
//!
//! cudarc has bindings too, but they look for `libnccl.so` alone, which only the packages for
//! developers have, and panic where it is missing. Types and numbers are those of NCCL's `nccl.h`,
//! the same in all versions from 2.14 on, which was the first whose calls need not block.

#![expect(unsafe_code, reason = "NCCL is written in C, and its functions are found by name")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Arc, Mutex};

use burn::tensor::DType;
use cudarc::driver::DriverError;
use executor_kernels::failure::DeviceError;
use executor_kernels::lock::lock;
use libloading::Library as SharedObject;

use super::engine::LibraryFunction;
use crate::error::Result;
use crate::{CommunicationError, Reduction};

/// File names of the library. The first is the name that every installation has.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// `ncclInProgress`: the call is still running after it has returned.
const IN_PROGRESS: c_int = 7;

/// Bytes of a communicator's identifier.
const ID_BYTES: usize = 128;

type Comm = *mut c_void;
type Stream = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([c_char; ID_BYTES]);

/// `ncclConfig_t` as of NCCL 2.14; later versions use defaults for fields that they added.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

impl Config {
    /// The configuration of communicators whose calls return before they are done.
    const NON_BLOCKING: Self =
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: 21_400, blocking: 0 };
}

/// Declares functions that return NCCL's result code, and loads them all by name.
macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        #[expect(non_snake_case, reason = "the names are NCCL's")]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            /// The text of a result code.
            ncclGetErrorString: unsafe extern "C" fn(c_int) -> *const c_char,
        }

        impl Functions {
            fn load(object: &SharedObject) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the functions of these names in NCCL's header, and the library is kept
                // as long as the pointers.
                unsafe {
                    Ok(Self {
                        $($name: *object.get(stringify!($name))?,)*
                        ncclGetErrorString: *object.get("ncclGetErrorString")?,
                    })
                }
            }
        }
    };
}

functions! {
    ncclGetVersion(*mut c_int);
    ncclGetUniqueId(*mut UniqueId);
    ncclCommInitRankConfig(*mut Comm, c_int, UniqueId, c_int, *mut Config);
    ncclCommAbort(Comm);
    ncclCommGetAsyncError(Comm, *mut c_int);
    ncclGroupStart();
    ncclGroupEnd();
    ncclAllReduce(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream);
    ncclReduce(*const c_void, *mut c_void, usize, c_int, c_int, c_int, Comm, Stream);
    ncclReduceScatter(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream);
    ncclAllGather(*const c_void, *mut c_void, usize, c_int, Comm, Stream);
    ncclBroadcast(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream);
    ncclSend(*const c_void, usize, c_int, c_int, Comm, Stream);
    ncclRecv(*mut c_void, usize, c_int, c_int, Comm, Stream);
}

/// NCCL, loaded.
pub(super) struct Library {
    functions: Functions,
    /// Holds the code of the functions. It is never unloaded: NCCL's threads may still run it.
    _object: ManuallyDrop<SharedObject>,
}

/// A call with the device addresses of its input and output. Addresses that a function does not need are ignored.
pub(super) struct RawCall {
    pub(super) function: LibraryFunction,
    pub(super) source: u64,
    pub(super) destination: u64,
    /// NCCL's count: of the part for a reduce-scatter, of the member's array for an all-gather.
    pub(super) num_elements: usize,
    pub(super) element: DType,
}

impl Library {
    /// Loads NCCL.
    pub(super) fn load() -> Result<Arc<Self>, DeviceError> {
        let mut causes = Vec::new();
        for name in NAMES {
            // SAFETY: initialisers of NCCL may run at any time and on any thread.
            let object = match unsafe { SharedObject::new(name) } {
                Ok(object) => object,
                Err(error) => {
                    causes.push(error.to_string());
                    continue;
                }
            };
            let functions = Functions::load(&object)
                .map_err(DeviceError::of("this version of NCCL is too old"))?;
            return Ok(Arc::new(Self { functions, _object: ManuallyDrop::new(object) }));
        }
        Err(DeviceError(format!(
            "NCCL is not found: {}\nhint: install it ({} in a folder of `LD_LIBRARY_PATH`), or leave `--communicator` \
             out to run ranks as threads",
            causes.join("; "),
            NAMES.map(|name| format!("`{name}`")).join(" or ")
        )))
    }

    /// The identifier of a new communicator.
    pub(super) fn new_id(&self) -> Result<Vec<u8>> {
        let mut id = UniqueId([0; ID_BYTES]);
        // SAFETY: the pointer is to an identifier, which NCCL fills.
        self.check("ncclGetUniqueId", unsafe { (self.functions.ncclGetUniqueId)(&raw mut id) })?;
        Ok(id.0.iter().map(|byte| byte.cast_unsigned()).collect())
    }

    /// The library's version, as in `2.27.5`, of which the number is 22705.
    pub(super) fn version(&self) -> Result<String> {
        let mut version = 0;
        // SAFETY: the pointer is to a number.
        self.check("ncclGetVersion", unsafe { (self.functions.ncclGetVersion)(&raw mut version) })?;
        Ok(format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
    }

    /// Begins to join, at `position`, the communicator of `len` members with this identifier, on the device that is
    /// current on this thread: [`RawCommunicator::is_in_progress`] is false once all members have joined.
    pub(super) fn join(
        self: &Arc<Self>,
        id: &[u8],
        position: usize,
        len: usize,
    ) -> Result<RawCommunicator> {
        let mut unique = UniqueId([0; ID_BYTES]);
        assert_eq!(id.len(), ID_BYTES, "an identifier of NCCL has {ID_BYTES} bytes");
        unique.0.iter_mut().zip(id).for_each(|(to, byte)| *to = byte.cast_signed());
        let mut comm = ptr::null_mut();
        let mut config = Config::NON_BLOCKING;
        // SAFETY: the pointers are to a variable for a communicator, which is written when the call returns, and to a
        // configuration; identifier and position were made for this communicator, in which each member has a different
        // one.
        let result = unsafe {
            let init = self.functions.ncclCommInitRankConfig;
            init(&raw mut comm, count(len), unique, count(position), &raw mut config)
        };
        self.check("ncclCommInitRankConfig", result)?;
        Ok(RawCommunicator { library: Arc::clone(self), comm: Mutex::new(Pointer(comm)) })
    }

    fn check(&self, call: &'static str, result: c_int) -> Result<()> {
        if result == 0 || result == IN_PROGRESS {
            return Ok(());
        }
        // SAFETY: any number may be asked for; the text is static.
        let message = unsafe { (self.functions.ncclGetErrorString)(result) };
        let message = if message.is_null() {
            format!("error {result}")
        } else {
            // SAFETY: it is not null, and NCCL's texts end with a zero byte and live as long as the
            // library.
            unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
        };
        let message = format!("{message}; `NCCL_DEBUG=INFO` tells more");
        Err(CommunicationError::Library { call, message })
    }
}

/// A member of a communicator. It is released by [`Self::abort`] or when it is dropped, in both cases by
/// `ncclCommAbort`. That call waits for no other member, and all versions allow it once all started calls have ended.
pub(super) struct RawCommunicator {
    library: Arc<Library>,
    /// Null once the communicator was aborted. Callers hold the lock, so that it is not released during a call; no call
    /// blocks.
    comm: Mutex<Pointer>,
}

/// NCCL's handle of a communicator.
struct Pointer(Comm);

// SAFETY: NCCL lets threads use a communicator one after the other; the lock ensures that.
unsafe impl Send for Pointer {}

impl RawCommunicator {
    /// Starts calls on a stream, all in one group.
    ///
    /// # Safety
    ///
    /// The addresses are on the device of the communicator. At each address is memory for all elements that the call
    /// reads or writes there. Nothing else writes to this memory, or reads the outputs, until the stream has reached
    /// the end of the calls.
    pub(super) unsafe fn start(&self, calls: &[RawCall], stream: *mut c_void) -> Result<()> {
        let comm = lock(&self.comm);
        check_lives(&comm)?;
        let functions = &self.library.functions;
        // SAFETY: it takes no arguments.
        self.library.check("ncclGroupStart", unsafe { (functions.ncclGroupStart)() })?;
        let mut started = Ok(());
        for call in calls {
            // SAFETY: the caller vouches for it.
            started = started.and_then(|()| unsafe { self.start_one(comm.0, call, stream) });
        }
        // A group is ended even if a call failed: otherwise the next group on this thread would be nested in it.
        // SAFETY: it takes no arguments, and a group was started on this thread.
        let ended = self.library.check("ncclGroupEnd", unsafe { (functions.ncclGroupEnd)() });
        started.and(ended)
    }

    /// # Safety
    ///
    /// As [`Self::start`].
    unsafe fn start_one(&self, comm: Comm, call: &RawCall, stream: *mut c_void) -> Result<()> {
        let nccl = &self.library.functions;
        let (from, to) = (call.source as *const c_void, call.destination as *mut c_void);
        let (length, element) = (call.num_elements, element_number(call.element));
        // SAFETY: the communicator lives, and the caller vouches for the addresses and the number
        // of elements.
        let result = unsafe {
            match call.function {
                LibraryFunction::AllReduce(by) => {
                    (nccl.ncclAllReduce)(from, to, length, element, operator(by), comm, stream)
                }
                LibraryFunction::Reduce { root, reduction } => {
                    let (by, root) = (operator(reduction), count(root));
                    (nccl.ncclReduce)(from, to, length, element, by, root, comm, stream)
                }
                LibraryFunction::ReduceScatter(by) => {
                    (nccl.ncclReduceScatter)(from, to, length, element, operator(by), comm, stream)
                }
                LibraryFunction::AllGather => {
                    (nccl.ncclAllGather)(from, to, length, element, comm, stream)
                }
                LibraryFunction::Broadcast { root } => {
                    (nccl.ncclBroadcast)(from, to, length, element, count(root), comm, stream)
                }
                LibraryFunction::Send { to: peer } => {
                    (nccl.ncclSend)(from, length, element, count(peer), comm, stream)
                }
                LibraryFunction::Receive { from: peer } => {
                    (nccl.ncclRecv)(to, length, element, count(peer), comm, stream)
                }
            }
        };
        self.library.check(call.function.name(), result)
    }

    /// True while NCCL still works asynchronously, so that no call may be made and no wait may begin yet.
    ///
    /// # Errors
    ///
    /// A call that was started has failed.
    pub(super) fn is_in_progress(&self) -> Result<bool> {
        let comm = lock(&self.comm);
        check_lives(&comm)?;
        let mut result = 0;
        // SAFETY: the communicator lives, and the pointer is to a number.
        let asked =
            unsafe { (self.library.functions.ncclCommGetAsyncError)(comm.0, &raw mut result) };
        self.library.check("ncclCommGetAsyncError", asked)?;
        self.library.check("NCCL", result)?;
        Ok(result == IN_PROGRESS)
    }

    /// Aborts calls that wait for members that will not come, from any thread. No call is possible after it.
    pub(super) fn abort(&self) {
        let mut comm = lock(&self.comm);
        let comm = std::mem::replace(&mut comm.0, ptr::null_mut());
        if !comm.is_null() {
            // SAFETY: the communicator lived until now, and later callers find a null pointer. An error leaves nothing
            // to be done.
            unsafe { (self.library.functions.ncclCommAbort)(comm) };
        }
    }
}

/// Fails if a communicator was aborted.
fn check_lives(comm: &Pointer) -> Result<()> {
    if comm.0.is_null() {
        let message = "an earlier call was given up".to_owned();
        return Err(CommunicationError::Library { call: "NCCL", message });
    }
    Ok(())
}

impl Drop for RawCommunicator {
    fn drop(&mut self) {
        self.abort();
    }
}

/// The error of a driver function.
pub(super) fn of_driver(call: &'static str) -> impl Fn(DriverError) -> CommunicationError {
    move |error| CommunicationError::Library { call, message: error.to_string() }
}

/// A number of ranks, or a position, in NCCL's type.
fn count(ranks: usize) -> c_int {
    c_int::try_from(ranks).expect("a job has fewer than 2^31 ranks")
}

/// `ncclDataType_t`.
fn element_number(element: DType) -> c_int {
    match element {
        DType::U8 => 1,
        DType::F16 => 6,
        DType::F32 | DType::Flex32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        other => unreachable!("no element of an array is {other:?}"),
    }
}

/// `ncclRedOp_t`.
fn operator(reduction: Reduction) -> c_int {
    match reduction {
        Reduction::Sum => 0,
        Reduction::Product => 1,
        Reduction::Max => 2,
        Reduction::Min => 3,
    }
}
