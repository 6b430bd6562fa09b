// What gRPC, and the server around the engine, cost.
#include <algorithm>

#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "encoderd/v1/encoder.pb.h"
#include "tests/load/bare_stream.h"
#include "tests/load/drive.h"
#include "tests/load/measurements.h"

namespace encoderd::load {
namespace {

// Median latency of calls of one sequence, one after the other: through gRPC ÷ in process, both
// measured in turns.
Found IdleLatency(const BenchModel& model, int64_t tokens, const Settings& settings) {
  const InProcess engine(model);
  const BenchServer server(model);
  constexpr int kTurns = 5;
  const double call = MedianSeconds(engine.CallTimes(tokens, Output::kPooled, 5));
  const int calls = std::max(3, static_cast<int>(settings.seconds / kTurns / 2 / call));
  std::vector<double> through, inside;
  for (int turn = 0; turn < kTurns; ++turn) {
    through.push_back(1e3 * MedianSeconds(LoneCalls(server, tokens, calls)));
    inside.push_back(1e3 * MedianSeconds(engine.CallTimes(tokens, Output::kPooled, calls)));
  }
  const double grpc = Median(through), engine_alone = Median(inside);
  return {grpc / engine_alone, Detail(grpc, engine_alone, "ms")};
}

std::vector<Found> IdleLatencies(const Settings& settings) {
  return {IdleLatency(BertBase(), 32, settings), IdleLatency(MiniLm(), 16, settings)};
}

std::vector<Found> SaturatedRates(const Settings& settings) {
  const InProcess engine(MiniLm());
  const BenchServer server(MiniLm());
  std::vector<Found> found;
  for (const Output output : {Output::kPooled, Output::kLastHiddenState}) {
    // In process before and after: the machine's speed wanders.
    const double before = engine.TokenRate(128, output, settings.seconds / 2);
    const double through = Saturate(server, "fixed:128", settings.seconds, output).tokens_rate;
    const double inside = (before + engine.TokenRate(128, output, settings.seconds / 2)) / 2;
    found.push_back({through / inside, Detail(through, inside, "tokens/s")});
  }
  return found;
}

std::vector<Found> ChunkedMaps(const Settings& settings) {
  constexpr int64_t kTokens = 128;
  const int64_t bytes = kBertBase.layers * kBertBase.heads * kTokens * kTokens * 4;
  const BenchServer server(BertBase());
  const BareStreamServer bare;
  v1::EncodeRequest request;
  v1::Sequence& sequence = *request.add_sequences();
  for (int32_t i = 0; i < kTokens; ++i) sequence.add_input_ids(i);
  request.mutable_outputs()->mutable_attentions();
  request.set_max_response_bytes(static_cast<uint64_t>(2 * bytes));

  StreamReader from_server(server.address()), from_bare(bare.address());
  const int turns = settings.quick ? 5 : 15;
  std::vector<double> ours, grpcs;
  for (int turn = 0; turn < turns; ++turn) {
    const ReadStream stream = from_server.Read("/encoderd.v1.EncoderService/EncodeChunked",
                                               request.SerializeAsString());
    ours.push_back(stream.rate);
    grpcs.push_back(from_bare.Read("/bare/Stream", absl::StrJoin(stream.messages, ",")).rate);
  }
  const double our_rate = Median(ours) / 1e6, grpc_rate = Median(grpcs) / 1e6;
  return {{our_rate / grpc_rate, Detail(our_rate, grpc_rate, "MB/s")}};
}

}  // namespace

std::vector<Measurement> TransportMeasurements() {
  return {
      {.key = "idle_latency",
       .figures = {{"idle p50 through gRPC ÷ in process, BERT-base, 32 tokens", 1.08, 1.03,
                    Better::kLower},
                   {"idle p50 through gRPC ÷ in process, MiniLM-L6, 16 tokens", 1.25, 1.10,
                    Better::kLower}},
       .round = IdleLatencies},
      {.key = "saturated",
       .figures = {{"saturated through gRPC ÷ in process, pooled vectors", 0.93, 0.97},
                   {"saturated through gRPC ÷ in process, last hidden states", 0.80, 0.90}},
       .round = SaturatedRates},
      {.key = "chunked",
       .figures = {{"attention maps by EncodeChunked ÷ a bare gRPC stream", 0.80, 0.95}},
       .round = ChunkedMaps},
  };
}

}  // namespace encoderd::load
