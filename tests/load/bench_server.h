// bench_server.h — a real encoderd as a child process, with a random model of a real one's shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/engine/io/temp_folder.h"
#include "tests/engine/random_model.h"
#include "tests/integration/process.h"

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

class BenchServer {
 public:
  // Starts it with these flags beside the model's and free ports, and returns once it serves.
  // `cgroup`: the folder of a control group that it joins before it starts; "" = that of ours.
  explicit BenchServer(const BenchModel& model, const std::vector<std::string>& flags = {},
                       const std::string& cgroup = "");
  ~BenchServer();  // ends it in good order, if it still runs

  const std::string& address() const { return address_; }
  int port() const { return port_; }
  int metrics_port() const { return metrics_port_; }
  Process& process() { return process_; }
  int64_t ResidentBytes() const { return process_.ResidentBytes(); }
  absl::Duration CpuTime() const { return process_.CpuTime(); }

 private:
  Process process_;
  std::string address_;
  int port_ = 0;
  int metrics_port_ = 0;
};

// Two threads of another process that take all the CPU they can get.
class CpuHog {
 public:
  CpuHog();

 private:
  Process process_;
};

// What a CpuHog's process does; the program itself is run with kHogFlag for it. Ends by itself after
// two minutes, whatever becomes of its parent.
inline constexpr char kHogFlag[] = "--be_a_cpu_hog";
void BeACpuHog();

}  // namespace encoderd::load
