#include "server/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace encoderd {

absl::Status RaiseFileLimit(uint64_t needed) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed) return absl::OkStatus();

  const rlimit raised = {.rlim_cur = std::min<rlim_t>(needed, limit.rlim_max),
                         .rlim_max = limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (limit.rlim_cur >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("expected a limit of at least ", needed, " open files, got ", limit.rlim_cur));
}

}  // namespace encoderd
