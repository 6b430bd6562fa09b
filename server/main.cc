// main.cc — encoderd: flags, signals, and the order in which things start and end.
//
// The life of a call, from here: server.cc wires everything together; encode_call.cc checks a call,
// queues and answers it; batching/batcher.h makes batches; engine/engine.h runs them;
// engine/encoder.cc is the forward pass.
#include <algorithm>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/ops/runtime.h"
#include "engine/status_macros.h"
#include "server/check.h"
#include "server/cpu_quota.h"
#include "server/file_limit.h"
#include "server/flag_parser.h"
#include "server/heap.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/profile_report.h"
#include "server/served_model.h"
#include "server/server.h"
#include "server/signals.h"

namespace encoderd {
namespace {

// Those of sysexits.h that fit; --help lists them.
enum ExitCode { kOk = 0, kBadFlags = 64, kBadModel = 65, kPortTaken = 69, kInternal = 70 };

ExitCode Fail(ExitCode code, const absl::Status& status) {
  LogExit(std::string(status.message()));
  return code;
}

// A folder that is not what it should be, or that cannot be read, is told from what the machine
// does not give and from faults of our own.
ExitCode LoadFailed(const absl::Status& status) {
  const bool model = status.code() != absl::StatusCode::kResourceExhausted &&
                     status.code() != absl::StatusCode::kInternal;
  return Fail(model ? kBadModel : kInternal, status);
}

// Key files and other flags are told from addresses, and both from faults of our own.
ExitCode ListenFailed(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return Fail(kBadFlags, status);
  return Fail(absl::IsUnavailable(status) ? kPortTaken : kInternal, status);
}

int WorkersOf(const Options& options) {
  if (options.workers > 0) return options.workers;
  const CpuQuota cpus = ReadCpuQuota();
  // More than this and the process shares a machine with others more often than not.
  constexpr int kLargeHost = 8;
  if (!cpus.quota.has_value() && cpus.Cpus() > kLargeHost) {
    LOG(WARNING) << "No CPU quota is set: the server takes every CPU it may run on. workers="
                 << cpus.Cpus();
  }
  return cpus.Cpus();
}

// Caps the instruction set and says whether what is left can do what the flags ask for: before
// anything is loaded, and before anything runs that the CPU may not have.
absl::Status CheckCpu(const Options& options) {
  RETURN_IF_ERROR(ops::SetMaxIsa(options.isa_max));
  RETURN_IF_ERROR(ops::RequireSupportedIsa());
  if (!options.precision.has_value()) return absl::OkStatus();
  const absl::Status precision = ops::RequirePrecision(*options.precision);
  if (precision.ok()) return precision;
  return absl::Status(precision.code(), absl::StrCat("--precision: ", precision.message()));
}

ExitCode Check(const Options& options) {
  const auto model = LoadModel(options);
  if (!model.ok()) return LoadFailed(model.status());
  std::cout << CheckReport(*model, options);
  return kOk;
}

// One worker alone, with room for the whole batch.
ExitCode PrintProfile(Options options, const BatchShape& shape) {
  options.workers = 1;
  options.max_batch_tokens = std::max(options.max_batch_tokens, shape.sequences * shape.tokens);
  const auto model = LoadModel(options);
  if (!model.ok()) return LoadFailed(model.status());
  const auto report = ProfileReport(*model->engine, shape);
  if (!report.ok()) {
    const bool flags = absl::IsInvalidArgument(report.status());
    return Fail(flags ? kBadFlags : kInternal, report.status());
  }
  std::cout << *report;
  return kOk;
}

void MakeRoomForConnections(const Options& options) {
  // An idle server has 11; probes take up to 64, scrapes and the model some more.
  constexpr int kOtherFiles = 192;
  const absl::Status raised =
      RaiseFileLimit(static_cast<uint64_t>(options.max_connections + kOtherFiles));
  if (!raised.ok()) {
    LOG(WARNING) << "--max_connections: " << raised.message()
                 << "; connections beyond that wait until others close.";
  }
}

ExitCode Serve(const Options& options, const Signals& signals) {
  MakeRoomForConnections(options);
  auto metrics = Metrics::Start(options.metrics_listen.ToString(), Version(), BuildId());
  if (!metrics.ok()) return Fail(kPortTaken, metrics.status());
  auto server = Server::Listen(options, **metrics);
  if (!server.ok()) return ListenFailed(server.status());
  LOG(INFO) << "Listening. version=" << Version() << " build_id=" << BuildId()
            << " port=" << (*server)->port() << " metrics_port=" << (*metrics)->port()
            << " health_port=" << (*server)->health_port() << " " << Describe(options);

  std::future<absl::Status> loading = std::async(std::launch::async, [&] {
    absl::Status status = (*server)->Load([&] { return LoadModel(options); });
    signals.Wake();
    return status;
  });
  if (signals.Wait()) {
    LOG(INFO) << "Ending by a signal while the model is being loaded.";
    // The load cannot be interrupted and nobody is being served.
    std::_Exit(kOk);
  }
  if (const absl::Status status = loading.get(); !status.ok()) return LoadFailed(status);
  LOG(INFO) << "Serving. port=" << (*server)->port();

  while (!signals.Wait()) {
  }
  LOG(INFO) << "Draining. delay=" << options.drain_delay << " timeout=" << options.drain_timeout;
  signals.EndAtNext();
  if (!(*server)->Drain()) {
    LOG(WARNING) << "Ending with calls unfinished: drain_timeout has passed.";
    // What still runs would hold up an end in good order.
    std::_Exit(kOk);
  }
  LOG(INFO) << "Ended: every accepted call was answered.";
  return kOk;
}

ExitCode Main(int argc, char** argv) {
  const Signals signals;  // before any thread
  const ParsedFlags parsed = ParseFlags(argc, argv);
  if (parsed.help) {
    std::cout << HelpText();
    return kOk;
  }
  if (VersionAsked()) {
    std::cout << "encoderd " << Version() << " build " << BuildId() << "\n";
    return kOk;
  }

  std::vector<std::string> faults = parsed.faults;
  for (const std::string& argument : parsed.positional) {
    faults.push_back(absl::StrCat("expected flags alone, got \"", argument, "\""));
  }
  Options options = ReadOptions(faults);
  StartLog({.format = options.log_format, .termination_log = options.termination_log});
  if (!faults.empty()) {
    return Fail(kBadFlags, absl::InvalidArgumentError(absl::StrJoin(faults, "; ")));
  }
  if (const absl::Status cpu = CheckCpu(options); !cpu.ok()) return Fail(kBadFlags, cpu);
  options.workers = WorkersOf(options);
  SetHeapPolicy(options.workers);
  if (options.profile.has_value()) return PrintProfile(options, *options.profile);
  return options.check ? Check(options) : Serve(options, signals);
}

}  // namespace
}  // namespace encoderd

int main(int argc, char** argv) { return encoderd::Main(argc, argv); }
