//! The forms of before CUDA 3.2 and 4.0, with 32-bit sizes and pointers. They exist so that lookups by symbol find
//! them; on devices of today they cannot work and return an error, whatever the arguments.

use crate::codes::INVALID_VALUE;

macro_rules! ancient {
    ($($name:ident)*) => {
        driver! { $(
            /// An entry point of before CUDA 4.0; always an error.
            Init fn $name: () |_w| { Err(INVALID_VALUE) }
        )* }
    };
}

ancient! {
    cuDeviceTotalMem cuCtxCreate cuCtxDestroy cuCtxPushCurrent cuCtxPopCurrent
    cuMemAlloc cuMemFree cuMemAllocPitch cuMemAllocHost cuMemGetInfo cuMemGetAddressRange
    cuArrayCreate cuArray3DCreate cuStreamDestroy cuEventDestroy
    cuMemcpyHtoD cuMemcpyDtoH cuMemcpyDtoD cuMemcpyHtoDAsync cuMemcpyDtoHAsync cuMemcpyDtoDAsync
    cuMemsetD8 cuMemsetD16 cuMemsetD32 cuMemsetD2D8
}
