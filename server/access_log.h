// access_log.h — a line of JSON for each call that has ended, or for one in N (--access_log).
//
// Role:    in front of the metrics, so that both are told the same of every call, once.
//          line_writer.h brings the lines to their file; those that it drops are counted in
//          encoderd_access_log_dropped_total. README.md lists the fields.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/call_record.h"
#include "server/line_writer.h"
#include "server/metrics.h"

namespace encoderd {

class AccessLog final : public CallObserver {
 public:
  // `path`: a file, or "-" for stdout. `every`: one call in so many is written, 0 = none; those
  // with the code INTERNAL always. `metrics` must outlive this. Errors: kInvalidArgument when the
  // file cannot be opened.
  static absl::StatusOr<std::unique_ptr<AccessLog>> Open(const std::string& path, int64_t every,
                                                         Metrics& metrics);

  void CallStarted() override { metrics_.CallStarted(); }
  void CallEnded(const CallRecord& call) override;

  // Waits until the calls that have ended so far are written: at most a second for somebody to take
  // the lines. One at a time.
  void Flush() { writer_->Flush(); }

 private:
  AccessLog(std::unique_ptr<LineWriter> writer, int64_t every, Metrics& metrics)
      : writer_(std::move(writer)), every_(every), metrics_(metrics) {}

  bool IsSampled(const CallRecord& call);

  const std::unique_ptr<LineWriter> writer_;
  const int64_t every_;
  Metrics& metrics_;
  std::atomic<int64_t> calls_ = 0;
};

// The line, with its newline, of a call that arrived then.
std::string AccessLine(const CallRecord& call, absl::Time arrival);

}  // namespace encoderd
