/* A program without CUDA; linked dynamically and fully statically. */
#include <stdio.h>

int main(void) {
    printf("hello\n");
    return 7;
}
