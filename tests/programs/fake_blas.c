/* A library that is not the driver and yet exports names of its kind. */
int cuMemAlloc_v2(void) { return 4711; }
int cuMemFree_v2(void) { return 4712; }
int cuGetProcAddress_v2(void) { return 4713; }
int cudaMallocLike(void) { return 4714; }
int cublasCreate_v2(void) { return 4715; }
int cuBlasInternal(void) { return 4716; }
int curl_easy_init(void) { return 4717; }
int cuMemAllocFast(void) { return 4718; }
