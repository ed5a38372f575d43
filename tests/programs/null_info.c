/* Memory info with NULL for either pointer, or both: prints the codes; no crash, and consistent figures. */
#include <cuda.h>

#include "check.h"

int main(void) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    size_t f = 0, t = 0, f2 = 0, t2 = 0, device_total = 0;
    OK(cuMemGetInfo(&f, &t));
    printf("(NULL, &t) gives %d, ", cuMemGetInfo(NULL, &t2));
    printf("(&f, NULL) gives %d, ", cuMemGetInfo(&f2, NULL));
    printf("(NULL, NULL) gives %d\n", cuMemGetInfo(NULL, NULL));
    if (t2) EXPECT(t2, t);
    if (f2) EXPECT(f2, f);
    OK(cuDeviceTotalMem(&device_total, 0));
    EXPECT(device_total, t);
    return 0;
}
