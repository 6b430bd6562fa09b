#include "deploy/client/load/load.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/alarm.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/client/failure.h"
#include "deploy/client/load/requests.h"
#include "deploy/client/service_config.h"
#include "encoderd/v1/encoder.grpc.pb.h"
#include "engine/status_macros.h"
#include "google/protobuf/wire_format_lite.h"
#include "server/mutex.h"

namespace encoderd::client {
namespace {

constexpr const char* kEncodeMethod = "/encoderd.v1.EncoderService/Encode";
constexpr absl::Duration kProgressInterval = absl::Seconds(1);
// A caller without an answer comes back so much later: a server that refuses at once must not make
// a closed loop a busy one.
constexpr absl::Duration kPauseAfterFailure = absl::Milliseconds(10);
constexpr absl::Duration kTick = absl::Nanoseconds(1);  // a window holds what is due before its end
constexpr uint32_t kMaxTimingBytes = 1024;              // five numbers take 60

// Time since some fixed moment, unmoved by whoever sets the clock; that of gRPC's deadlines, too.
absl::Duration SteadyNow() {
  const gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);
  return absl::Seconds(now.tv_sec) + absl::Nanoseconds(now.tv_nsec);
}

gpr_timespec SteadyDeadline(absl::Duration time) {
  const timespec value = absl::ToTimespec(time);
  return {value.tv_sec, static_cast<int32_t>(value.tv_nsec), GPR_CLOCK_MONOTONIC};
}

void SleepUntil(absl::Duration time) {
  const timespec value = absl::ToTimespec(time);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &value, nullptr) == EINTR) {
  }
}

absl::Duration ThreadCpu() {
  timespec value;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &value);
  return absl::DurationFromTimespec(value);
}

// The Timing of a serialised EncodeResponse, all 0 if it has none; tensors are stepped over, never
// copied.
v1::Timing ReadTiming(grpc::ByteBuffer& response) {
  using google::protobuf::internal::WireFormatLite;
  grpc::ProtoBufferReader reader(&response);
  if (!reader.status().ok()) return {};
  google::protobuf::io::CodedInputStream stream(&reader);
  while (const uint32_t tag = stream.ReadTag()) {
    if (tag != WireFormatLite::MakeTag(v1::EncodeResponse::kTimingFieldNumber,
                                       WireFormatLite::WIRETYPE_LENGTH_DELIMITED)) {
      if (!WireFormatLite::SkipField(&stream, tag)) return {};
      continue;
    }
    uint32_t length = 0;
    std::string bytes;
    v1::Timing timing;
    if (!stream.ReadVarint32(&length) || length > kMaxTimingBytes ||
        !stream.ReadString(&bytes, static_cast<int>(length)) || !timing.ParseFromString(bytes)) {
      return {};
    }
    return timing;
  }
  return {};
}

// A call in flight, or the place for one.
struct Slot {
  std::optional<grpc::ClientContext> context;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call;
  grpc::ByteBuffer response;
  grpc::Status status;
  size_t record = 0;
  grpc::Alarm pause;  // between two calls of a closed loop
  bool pausing = false;
};

// What has happened since the last report.
struct Recent {
  int64_t due = 0;
  int64_t failed = 0;
  std::vector<absl::Duration> latencies;
};

// One run. The sending thread starts the calls of an open loop, and the first of a closed one; the
// receiving thread takes what ends and, in a closed loop, starts the next. The caller's thread
// waits and reports.
class Run {
 public:
  Run(const LoadOptions& options, std::vector<std::shared_ptr<grpc::Channel>> channels,
      std::vector<PreparedRequest> requests);

  absl::StatusOr<LoadResult> Go(const ProgressCallback& progress);

 private:
  void Send();
  void SendWhenDue();
  void Receive();
  void End(Slot& slot);
  void Keep(Slot& slot);
  // Sends a call in `slot` that was due at `due`, counted from the start of the window.
  void Start(Slot& slot, absl::Duration due);
  // A place for a call that is due, or nullptr where all are taken.
  Slot* TakeSlot(absl::Duration due);
  // Notes that a call is due. Returns the place of its record.
  size_t AddRecord(absl::Duration due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Report(const ProgressCallback& progress);
  // Whether nothing is due any more.
  bool Over(absl::Duration due) const {
    return due >= options_.duration || options_.stop.stop_requested();
  }
  absl::Duration Now() const { return SteadyNow() - window_start_; }
  absl::StatusOr<LoadResult> Result();

  const LoadOptions& options_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  const std::vector<PreparedRequest> requests_;
  grpc::CompletionQueue queue_;
  absl::Duration window_start_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<Slot>> slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<Slot*> free_ ABSL_GUARDED_BY(mutex_);
  std::vector<CallRecord> records_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> reasons_ ABSL_GUARDED_BY(mutex_);
  grpc::Status first_failure_ ABSL_GUARDED_BY(mutex_);
  absl::Duration cpu_ ABSL_GUARDED_BY(mutex_);
  bool all_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool too_many_ ABSL_GUARDED_BY(mutex_) = false;  // for a closed loop: kMaxCalls are past
  Recent recent_ ABSL_GUARDED_BY(mutex_);
  absl::Duration last_report_;
};

Run::Run(const LoadOptions& options, std::vector<std::shared_ptr<grpc::Channel>> channels,
         std::vector<PreparedRequest> requests)
    : options_(options), requests_(std::move(requests)) {
  for (auto& channel : channels) stubs_.push_back(std::make_unique<grpc::GenericStub>(channel));
}

absl::StatusOr<LoadResult> Run::Go(const ProgressCallback& progress) {
  window_start_ = SteadyNow() + options_.warm_up;
  last_report_ = -options_.warm_up;
  std::thread receiver([this] { Receive(); });
  std::thread sender([this] { Send(); });
  {
    MutexLock lock(mutex_);
    while (!all_sent_ || free_.size() < slots_.size()) {
      const absl::Duration wait = last_report_ + kProgressInterval - Now();
      if (wait > absl::ZeroDuration()) {
        changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(wait));
        continue;
      }
      mutex_.Unlock();
      Report(progress);
      mutex_.Lock();
    }
  }
  sender.join();
  queue_.Shutdown();
  receiver.join();
  return Result();
}

void Run::Send() {
  // The kernel may let a sleeper wait 50 us longer to save a wake-up.
  prctl(PR_SET_TIMERSLACK, 1);
  if (options_.arrival == Arrival::kSaturate) {
    for (int64_t i = 0; i < options_.outstanding; ++i) {
      const absl::Duration now = Now();
      Start(*TakeSlot(now), now);
    }
  } else {
    SendWhenDue();
  }
  MutexLock lock(mutex_);
  cpu_ += ThreadCpu();
  all_sent_ = true;
  changed_.NotifyAll();
}

void Run::SendWhenDue() {
  // Other random numbers than those of the requests: times and lengths are independent.
  ArrivalSchedule schedule(options_.arrival, options_.rate, ~options_.seed);
  const Spike spike = SpikeOf(options_.duration, options_.spike);
  for (;;) {
    const absl::Duration due = WithSpike(schedule.Next() - options_.warm_up, spike);
    if (Over(due)) break;
    SleepUntil(window_start_ + due);
    if (Over(due)) break;
    if (Slot* slot = TakeSlot(due)) Start(*slot, due);
  }
}

Slot* Run::TakeSlot(absl::Duration due) {
  MutexLock lock(mutex_);
  const size_t record = AddRecord(due);
  if (free_.empty() && std::ssize(slots_) >= options_.outstanding) {
    ++recent_.failed;
    return nullptr;
  }
  if (free_.empty()) {
    free_.push_back(slots_.emplace_back(std::make_unique<Slot>()).get());
  }
  Slot* slot = free_.back();
  free_.pop_back();
  slot->record = record;
  return slot;
}

size_t Run::AddRecord(absl::Duration due) {
  const PreparedRequest& request = requests_[records_.size() % requests_.size()];
  records_.push_back({.due = due, .tokens = request.tokens, .request_bytes = request.num_bytes});
  ++recent_.due;
  return records_.size() - 1;
}

void Run::Start(Slot& slot, absl::Duration due) {
  slot.context.emplace();
  slot.context->set_deadline(SteadyDeadline(window_start_ + due + options_.deadline));
  options_.identity.AddTo(*slot.context);
  slot.response.Clear();
  slot.call = stubs_[slot.record % stubs_.size()]->PrepareUnaryCall(
      &*slot.context, kEncodeMethod, requests_[slot.record % requests_.size()].bytes, &queue_);
  {
    MutexLock lock(mutex_);
    records_[slot.record].sent = true;
    records_[slot.record].lag = Now() - due;
  }
  slot.call->StartCall();
  slot.call->Finish(&slot.response, &slot.status, &slot);
}

void Run::Receive() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) End(*static_cast<Slot*>(tag));
  MutexLock lock(mutex_);
  cpu_ += ThreadCpu();
}

// A call or a pause has ended: on with the next of a closed loop, or the place is free.
void Run::End(Slot& slot) {
  if (!slot.pausing) Keep(slot);
  const absl::Duration now = Now();
  const bool again = options_.arrival == Arrival::kSaturate && !Over(now);
  if (again && !slot.pausing && !slot.status.ok()) {
    slot.pausing = true;
    slot.pause.Set(&queue_, SteadyDeadline(SteadyNow() + kPauseAfterFailure), &slot);
    return;
  }
  slot.pausing = false;
  {
    MutexLock lock(mutex_);
    too_many_ = too_many_ || (again && std::ssize(records_) >= kMaxCalls);
    if (!again || too_many_) {
      free_.push_back(&slot);
      changed_.NotifyAll();
      return;
    }
    // Never free in between: Go ends the run once every place is.
    slot.record = AddRecord(now);
  }
  Start(slot, now);
}

void Run::Keep(Slot& slot) {
  const absl::Duration now = Now();
  const std::string reason = slot.status.ok() ? "" : ReasonFromRpc(slot.status);
  const v1::Timing timing = slot.status.ok() ? ReadTiming(slot.response) : v1::Timing();
  const size_t response_bytes = slot.status.ok() ? slot.response.Length() : 0;
  slot.response.Clear();

  MutexLock lock(mutex_);
  CallRecord& record = records_[slot.record];
  record.latency = now - record.due;
  record.code = slot.status.error_code();
  record.response_bytes = static_cast<uint32_t>(response_bytes);
  record.queue_us = static_cast<uint32_t>(timing.queue_us());
  record.compute_us = static_cast<uint32_t>(timing.compute_us());
  if (slot.status.ok()) {
    recent_.latencies.push_back(record.latency);
    return;
  }
  ++recent_.failed;
  if (record.due < absl::ZeroDuration() || record.due >= options_.duration) return;
  if (first_failure_.ok()) first_failure_ = slot.status;
  if (!reason.empty()) ++reasons_[reason];
}

void Run::Report(const ProgressCallback& progress) {
  Recent recent;
  LoadProgress report;
  {
    MutexLock lock(mutex_);
    recent = std::exchange(recent_, {});
    report.in_flight = std::ssize(slots_) - std::ssize(free_);
  }
  const absl::Duration now = Now();
  report.elapsed = now + options_.warm_up;
  report.total = options_.warm_up + options_.duration;
  report.warming_up = last_report_ < absl::ZeroDuration();
  report.interval = now - std::exchange(last_report_, now);
  report.due = recent.due;
  report.failed = recent.failed;
  report.latency = SummariseLatency(std::move(recent.latencies));
  if (progress) progress(report);
}

absl::StatusOr<LoadResult> Run::Result() {
  MutexLock lock(mutex_);
  if (too_many_) {
    return absl::OutOfRangeError(absl::StrCat("--duration: expected at most ", kMaxCalls,
                                              " calls in a run, got more after ",
                                              absl::FormatDuration(records_.back().due)));
  }
  const auto num_calls = static_cast<double>(std::max(records_.size(), size_t{1}));
  absl::Duration window = options_.duration;
  if (options_.stop.stop_requested()) {
    // Up to the last that was due, or next to nothing where that was in the warm-up.
    const absl::Duration last = records_.empty() ? absl::ZeroDuration() : records_.back().due;
    window = std::clamp(last, absl::ZeroDuration(), window - kTick) + kTick;
  }
  LoadResult result = SummariseLoad(std::move(records_), window, options_.deadline);
  result.reasons = std::move(reasons_);
  result.first_failure = first_failure_;
  result.cpu_per_call = cpu_ / num_calls;
  return result;
}

// Without limits of its own, and unless told otherwise without retries, which would hide refusals.
std::vector<std::shared_ptr<grpc::Channel>> Connect(const LoadOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_response_bytes));
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetServiceConfigJSON(options.watch_health ? DirectServiceConfigJson()
                                                      : ServiceConfigJson());
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, options.retry ? 1 : 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A replica that was away is found again as soon as a name that is resolved anew would find it.
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Equal channels would share one connection otherwise.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  options.identity.AddTo(arguments);
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int64_t i = 0; i < options.connections; ++i) {
    channels.push_back(
        grpc::CreateCustomChannel(options.target, options.identity.channel(), arguments));
    channels.back()->GetState(/*try_to_connect=*/true);
  }
  return channels;
}

absl::Status AwaitConnected(const LoadOptions& options,
                            const std::vector<std::shared_ptr<grpc::Channel>>& channels) {
  const gpr_timespec limit = SteadyDeadline(SteadyNow() + options.connect_limit);
  for (size_t i = 0; i < channels.size(); ++i) {
    if (channels[i]->WaitForConnected(limit)) continue;
    return absl::UnavailableError(
        absl::StrCat(options.target, ": expected ", channels.size(),
                     channels.size() == 1 ? " connection within " : " connections within ",
                     absl::FormatDuration(options.connect_limit), ", got ", i,
                     "\nnext: `encoderctl health --wait=30s` waits for a server that is loading"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::GetModelResponse> GetModel(const LoadOptions& options,
                                              const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(SteadyDeadline(SteadyNow() + options.connect_limit));
  options.identity.AddTo(context);
  v1::GetModelRequest request;
  request.set_model(options.model);
  v1::GetModelResponse model;
  const grpc::Status status =
      v1::EncoderService::NewStub(channel)->GetModel(&context, request, &model);
  if (!status.ok()) return FailureFromRpc(status, options.target);
  return model;
}

// Sends the largest request once, so that what the model cannot do is told before the run and not
// by a hundred thousand refusals. Other failures are left for the run to meet.
absl::Status TryLargest(const LoadOptions& options, const std::shared_ptr<grpc::Channel>& channel,
                        const std::vector<PreparedRequest>& requests) {
  const auto largest = std::ranges::max_element(requests, {}, &PreparedRequest::tokens);
  v1::EncodeRequest request;
  grpc::ByteBuffer bytes = largest->bytes;
  if (!grpc::SerializationTraits<v1::EncodeRequest>::Deserialize(&bytes, &request).ok()) {
    return absl::InternalError("a request of the load cannot be read back");
  }
  grpc::ClientContext context;
  context.set_deadline(SteadyDeadline(SteadyNow() + options.deadline));
  options.identity.AddTo(context);
  v1::EncodeResponse response;
  const grpc::Status status =
      v1::EncoderService::NewStub(channel)->Encode(&context, request, &response);
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNIMPLEMENTED:
      return FailureFromRpc(status, options.target);
    default:
      return absl::OkStatus();
  }
}

// Gathers what is out of range.
class Faults {
 public:
  template <typename T>
  void Expect(bool good, absl::string_view flag, absl::string_view expected, const T& got) {
    if (!good) {
      absl::StrAppend(&text_, text_.empty() ? "" : "\n", "--", flag, ": expected ", expected,
                      ", got ", got);
    }
  }
  void ExpectRange(absl::string_view flag, int64_t value, int64_t least, int64_t most) {
    Expect(value >= least && value <= most, flag, absl::StrCat(least, " to ", most), value);
  }
  // `least` itself is too little where `open` is set.
  void ExpectTime(absl::string_view flag, absl::Duration value, bool open, absl::Duration most) {
    const bool enough = open ? value > absl::ZeroDuration() : value >= absl::ZeroDuration();
    Expect(enough && value <= most, flag,
           absl::StrCat(open ? "more than 0, up to " : "0 to ", absl::FormatDuration(most)),
           absl::FormatDuration(value));
  }
  absl::Status status() const {
    return text_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(text_);
  }

 private:
  std::string text_;
};

}  // namespace

absl::Status CheckLoadOptions(const LoadOptions& options) {
  Faults faults;
  if (options.arrival == Arrival::kSaturate) {
    faults.Expect(options.rate == 0, "rate", "none, since a saturating load has no rate of its own",
                  options.rate);
  } else {
    double seconds = absl::ToDoubleSeconds(options.warm_up + options.duration);
    faults.Expect(options.rate > 0 && options.rate * options.spike <= kMaxRate, "rate",
                  absl::StrCat("more than 0, up to ", kMaxRate,
                               " calls per second, in a spike as well"),
                  options.rate);
    const double third = absl::ToDoubleSeconds(options.duration) / 3;
    seconds += (options.spike - 1) * third;
    faults.Expect(!(options.rate * seconds > static_cast<double>(kMaxCalls)), "rate",
                  absl::StrCat("at most ", kMaxCalls, " calls in the whole run"),
                  absl::StrCat(options.rate, " for ", seconds, " s"));
  }
  faults.Expect(options.spike > 0 && options.spike <= kMaxSpike, "spike",
                absl::StrCat("more than 0, up to ", kMaxSpike), options.spike);
  faults.ExpectRange("sequences", options.sequences, 1, std::numeric_limits<int32_t>::max());
  faults.ExpectRange("connections", options.connections, 1, kMaxConnections);
  faults.ExpectRange("outstanding", options.outstanding, 1, kMaxOutstanding);
  faults.ExpectRange("max_response_bytes", options.max_response_bytes, 1,
                     std::numeric_limits<int32_t>::max());
  faults.ExpectTime("deadline", options.deadline, /*open=*/true, kMaxDeadline);
  faults.ExpectTime("warm_up", options.warm_up, /*open=*/false, kMaxWarmUp);
  faults.ExpectTime("duration", options.duration, /*open=*/true, kMaxDuration);
  return faults.status();
}

absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options, const ProgressCallback& progress) {
  RETURN_IF_ERROR(CheckLoadOptions(options));
  std::vector<std::shared_ptr<grpc::Channel>> channels = Connect(options);
  RETURN_IF_ERROR(AwaitConnected(options, channels));
  ASSIGN_OR_RETURN(v1::GetModelResponse model, GetModel(options, channels.front()));
  ASSIGN_OR_RETURN(std::vector<PreparedRequest> requests, PrepareRequests(options, model));
  RETURN_IF_ERROR(TryLargest(options, channels.front(), requests));
  Run run(options, std::move(channels), std::move(requests));
  ASSIGN_OR_RETURN(LoadResult result, run.Go(progress));
  result.model = std::move(model);
  return result;
}

}  // namespace encoderd::client
