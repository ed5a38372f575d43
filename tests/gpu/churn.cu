// A program whose time goes into temporaries: vectors and sorts of ever new sizes. Built twice, with the static and
// with the shared runtime. Prints `sum N` (must not depend on the allocator) and `ms N`.
#include "check.cuh"

#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

static long long round_of(int i)
{
    const int count = 10'000 + (i * 7919) % 3'000'000;
    thrust::device_vector<int> numbers(count);
    thrust::sequence(numbers.rbegin(), numbers.rend(), i);
    thrust::sort(numbers.begin(), numbers.end());
    thrust::device_vector<int> copy(numbers);
    const int middle = numbers[count / 2];
    return thrust::reduce(copy.begin(), copy.end(), 0LL) ^ middle;
}

int main()
{
    MUST(cudaFree(nullptr));
    long long sum = round_of(0); // loads the kernels, outside the measurement
    auto start = Clock::now();
    for (int i = 1; i <= 400; i++) {
        sum += round_of(i);
    }
    MUST(cudaDeviceSynchronize());
    const double ms = seconds_since(start) * 1e3;
    std::printf("sum %lld\nms %.1f\n", sum, ms);
    return 0;
}
