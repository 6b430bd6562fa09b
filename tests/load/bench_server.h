// bench_server.h — a real encoderd as a child process, with a random model of a real one's shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/engine/io/temp_folder.h"
#include "tests/engine/random_model.h"
#include "tests/integration/encoderd_process.h"

namespace encoderd::load {

// The folder of a random BERT, written when first asked for and kept until the program ends.
class BenchModel {
 public:
  explicit BenchModel(const BertShape& shape) { WriteRandomBert(shape, folder_); }
  std::string dir() const { return folder_.path(); }

 private:
  const TempFolder folder_;
};

const BenchModel& MiniLm();
const BenchModel& BertBase();

class BenchServer : public Encoderd {
 public:
  // Returns once it serves; the program ends where it does not.
  explicit BenchServer(const BenchModel& model, const std::vector<std::string>& flags = {},
                       const std::string& cgroup = "");
  ~BenchServer();  // ends it in good order, if it still runs

  int64_t ResidentBytes() const { return process().ResidentBytes(); }
  absl::Duration CpuTime() const { return process().CpuTime(); }
};

// Two threads of another process that take all the CPU they can get.
class CpuHog {
 public:
  CpuHog();

 private:
  Process process_;
};

// What a CpuHog's process does; the program itself is run with kHogFlag for it. Ends by itself
// after two minutes.
inline constexpr char kHogFlag[] = "--be_a_cpu_hog";
void BeACpuHog();

}  // namespace encoderd::load
