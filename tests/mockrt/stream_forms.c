/* Both forms of the calls whose meaning of stream 0 depends on how the program was built; see streams.inc.h. */
#include "driver.h"

#define KIND 0
#define PTDS(name) name
#define PTSZ(name) name
#include "streams.inc.h"
#undef KIND
#undef PTDS
#undef PTSZ
#undef CALL

#define KIND 1
#define PTDS(name) name##_ptds
#define PTSZ(name) name##_ptsz
#include "streams.inc.h"
