#include "server/heap.h"

#include <malloc.h>

namespace encoderd {

void SetHeapPolicy(int workers) {
  // Either threshold, once set, stands still.
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  mallopt(M_TRIM_THRESHOLD, kMappedBytes);
  mallopt(M_ARENA_MAX, workers + 2);
}

}  // namespace encoderd
