// heap.h — how the C library's heap treats the memory of calls, chosen for a server.
#pragma once

namespace encoderd {

// From this size on, an allocation is a mapping of its own that the kernel gets back when it is
// freed: answers, requests, scratch. glibc raises its threshold (128 KiB) to the largest such block
// freed so far, up to 32 MiB, and then keeps what a burst has taken: with 64 clients and answers of
// 0.1 to 4 MB a server of 55 MB kept 80 to 120 MB after two bursts, and keeps 60 to 65 MB with a
// threshold that stands. The price is a fault for every fresh page, 0.2 ms for each MB of an answer
// beside the 4 ms that gRPC takes to move it. 256 KiB: far above what protobuf and gRPC take in
// their everyday.
inline constexpr int kMappedBytes = 256 << 10;

// Call once, from main, before the first thread. Heaps of glibc's are one for each worker and two
// for gRPC's threads, instead of eight for every core of the host whatever the quota: each keeps
// its own peak.
void SetHeapPolicy(int workers);

}  // namespace encoderd
