/* As with the vendor's headers, the C interface of the runtime is all in cuda_runtime_api.h. */
#ifndef CUDA_RUNTIME_H_FOR_TESTS
#define CUDA_RUNTIME_H_FOR_TESTS
#include "cuda_runtime_api.h"
#endif
