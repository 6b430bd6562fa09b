// metrics.h — every number the process exports, with its name, in one place.
//
// Role:    counted by the service and the batcher, scraped by Prometheus. Every series is there
//          from the start (the model's once it is known), so that a rate over a first increment is
//          not lost. Labels come from the closed sets below, never from what a caller sent.
//          (Series called exposer_… are of the HTTP exposer itself.)
// Rules:   for each method, the sum of encoderd_calls_total over codes = the count of
//          encoderd_call_seconds{phase="whole"} = calls ended. A refusal has exactly one reason.
//          Values of queue, workers, connections and process are read when scraped, so they are
//          never stale.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/batching/batcher.h"
#include "server/call_record.h"
#include "server/listener.h"
#include "server/precision_trial.h"

namespace encoderd {

// Why calls are refused or fail, as ErrorInfo.reason has it: those of engine/validation.h, then
// those of the server itself. The label `reason` of encoderd_refusals_total.
inline constexpr std::string_view kReasons[] = {
    "EMPTY_CALL",
    "TOO_MANY_SEQUENCES",
    "EMPTY_SEQUENCE",
    "SEQUENCE_TOO_LONG",
    "TOO_MANY_TOKENS",
    "TOO_MANY_SPANS",
    "INPUT_KIND_MISMATCH",
    "TOKEN_OUT_OF_RANGE",
    "TYPE_OUT_OF_RANGE",
    "POSITION_OUT_OF_RANGE",
    "POSITIONS_UNSUPPORTED",
    "LENGTH_MISMATCH",
    "SHAPE_MISMATCH",
    "NON_FINITE_INPUT",
    "MASK_VALUE",
    "MASK_HIDES_ALL",
    "SPAN_OUT_OF_RANGE",
    "NO_OUTPUTS",
    "TOO_MANY_OUTPUTS",
    "LAYER_OUT_OF_RANGE",
    "HEAD_OUT_OF_RANGE",
    "ROW_OUT_OF_RANGE",
    "DIMENSIONS_OUT_OF_RANGE",
    "UNSUPPORTED_VALUE",  // a number that its field or enumeration does not have
    "OUTPUT_UNAVAILABLE",
    "ANSWER_TOO_LARGE",
    "MALFORMED",             // the bytes are not the message
    "UNKNOWN_FIELD",         // in it, which would be dropped
    "TOO_MANY_ELEMENTS",     // in one of its lists
    "REQUEST_TOO_LARGE",     // bytes
    "MODEL_NOT_FOUND",       // another model than the one served
    "UNKNOWN_METHOD",        //
    "TOKEN_MISSING",         // the call has no bearer token, or
    "TOKEN_WRONG",           // another one than this server's
    "CLIENT_NOT_ALLOWED",    // no name of the caller's certificate may call
    "LOADING",               // not ready yet
    "DRAINING",              // not any more
    "QUEUE_FULL",            // by calls, tokens or predicted time
    "DEADLINE_UNREACHABLE",  // behind this queue
    "CONNECTION_BUSY",       // as many calls in flight as one connection may have
    "MEMORY_BUDGET",         // as many bytes in flight as all calls may have
    "OUT_OF_MEMORY",         // no room for the answer
    "DEADLINE",              // passed
    "CANCELLED",             // by the caller
    "NON_FINITE_RESULT",     // the engine's numbers overflowed
    "ENGINE_FAILURE",        //
    "OTHER",                 // a name that is not in this list
};

struct ModelLabels {
  std::string name, family, precision, isa, numerics_id;
};

// Why a sequence of the sample was not compared with fp32.
enum class ShadowDrop { kNoRoom, kTooLarge, kFailed };

// Thread-safe.
class Metrics : public BatchObserver, public CallObserver {
 public:
  // Serves GET /metrics on `listen` ("127.0.0.1:9090", "[::]:0"; port 0: any free one; "": nowhere,
  // for tests that read Text()). Errors: kUnavailable when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Metrics>> Start(const std::string& listen,
                                                        const std::string& version,
                                                        const std::string& build_id);
  ~Metrics() override;

  int port() const;  // bound; 0 when it serves nowhere

  void CallStarted() override;
  void CallEnded(const CallRecord& call) override;

  // Lines of the access log.
  void AccessLogDropped(int64_t lines);

  void OnBatch(const BatchObservation& batch) override;

  // Of the shadow (shadow.h): a sequence is sampled, and then compared or dropped.
  void ShadowSampled();
  void ShadowCompared(double error);
  void ShadowDropped(ShadowDrop reason);

  // Changed key files were taken over, or could not be.
  void KeysReloaded(bool taken);
  // When the certificate that the server shows ends; no series before the first time.
  void SetCertificateNotAfter(absl::Time not_after);

  void SetReady(bool ready);
  void SetModel(const ModelLabels& model);

  // What was measured to choose the precision.
  void SetPrecisionTrials(std::span<const PrecisionTrial> trials);

  // Where queue and workers are read from at each scrape; null once the batcher goes. Must not call
  // back into Metrics.
  void SetBatcher(const Batcher* batcher);

  // Where connections are read from at each scrape; null once the listener goes. As above.
  void SetConnections(std::function<ConnectionCounts()> source);

  // Where the bytes of the calls in flight are read from at each scrape; null once the service
  // goes.
  void SetInflightBytes(std::function<int64_t()> source);

  // What a scrape gives, in Prometheus's text format.
  std::string Text() const;

 private:
  struct State;
  explicit Metrics(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace encoderd
