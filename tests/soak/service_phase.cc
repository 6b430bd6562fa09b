// A service as it is used: all kinds of calls at once, for as long as there is time.
#include <atomic>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/soak/phases.h"

namespace encoderd::soak {
namespace {

// Calls of many threads, by how they ended on our side.
struct Tally {
  std::atomic<int64_t> sent = 0;
  std::atomic<int64_t> answered = 0;
  std::atomic<int64_t> refused_as_invalid = 0;
  std::atomic<int64_t> otherwise = 0;  // cancelled ones

  void Add(Call& call) {
    ++sent;
    if (call.ok()) {
      ++answered;
    } else if (call.status().error_code() == grpc::StatusCode::INVALID_ARGUMENT) {
      ++refused_as_invalid;
    } else {
      ++otherwise;
    }
  }
};

struct Use {
  std::string name;
  std::string lengths;
  double rate;
  int64_t sequences;
  v1::Priority priority;
  v1::OutputSpec outputs;
};

std::vector<Use> Uses() {
  v1::OutputSpec pooled, hidden, maps, many;
  pooled.add_pooled();
  hidden.set_last_hidden_state(true);
  hidden.add_hidden_states(2);
  maps.mutable_attentions()->add_layers(-1);
  maps.mutable_attentions()->add_heads(0);
  many = hidden;
  many.add_pooled()->set_kind(v1::POOLING_CLS);
  many.mutable_attentions()->add_layers(0);
  many.set_dtype(v1::DATA_TYPE_BF16);
  return {{"pooled", "squad", 4, 1, v1::PRIORITY_INTERACTIVE, pooled},
          {"short", "short", 10, 1, v1::PRIORITY_INTERACTIVE, pooled},
          {"hidden states", "uniform:1-200", 2, 1, v1::PRIORITY_INTERACTIVE, hidden},
          {"maps", "uniform:1-128", 2, 1, v1::PRIORITY_INTERACTIVE, maps},
          {"many outputs, bulk", "uniform:1-64", 1, 8, v1::PRIORITY_BULK, many}};
}

// Calls cancelled at any time between sending and answer.
void CancelCalls(const Soak& soak, v1::EncoderService::Stub& encoder, absl::Time end,
                 Tally& tally) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> microseconds(0, 40'000);
  while (absl::Now() < end) {
    Call call(soak, encoder, RequestOf({100, 8}));
    absl::SleepFor(absl::Microseconds(microseconds(random)));
    call.Cancel();
    tally.Add(call);
    absl::SleepFor(absl::Milliseconds(150));
  }
}

void SendInvalidCalls(const Soak& soak, v1::EncoderService::Stub& encoder, absl::Time end,
                      Tally& tally) {
  std::vector<v1::EncodeRequest> invalid(4, RequestOf({5}));
  invalid[0].clear_outputs();
  invalid[1].mutable_sequences(0)->set_input_ids(3, -1);
  invalid[2].add_sequences();
  invalid[3].mutable_outputs()->add_hidden_states(99);
  for (size_t i = 0; absl::Now() < end; ++i) {
    Call call(soak, encoder, invalid[i % invalid.size()]);
    tally.Add(call);
    absl::SleepFor(absl::Milliseconds(100));
  }
}

// The answer without what differs from call to call.
std::string Bits(const v1::EncodeResponse& response) {
  v1::EncodeResponse fixed = response;
  fixed.clear_timing();
  fixed.clear_request_id();
  return fixed.SerializeAsString();
}

// The bytes of all tensors, in the order of the fields.
std::string TensorBytes(const v1::EncodeResponse& response) {
  std::string bytes = response.last_hidden_state().data();
  for (const auto& state : response.hidden_states()) bytes += state.tensor().data();
  for (const auto& map : response.attentions()) bytes += map.tensor().data();
  for (const auto& pooled : response.pooled()) bytes += pooled.data();
  return bytes + response.logits().data();
}

// The same of an answer that comes in pieces; what went wrong, if something did.
std::string ChunkedTensorBytes(const Soak& soak, v1::EncoderService::Stub& encoder,
                               const v1::EncodeRequest& request) {
  const absl::Time start = absl::Now();
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(start + kPatience));
  const auto reader = encoder.EncodeChunked(&context, request);
  std::vector<std::string> tensors;
  for (v1::EncodeChunk chunk; reader->Read(&chunk);) {
    if (!chunk.has_piece()) continue;
    if (chunk.piece().tensor() >= tensors.size()) tensors.resize(chunk.piece().tensor() + 1);
    tensors[chunk.piece().tensor()] += chunk.piece().data();
  }
  const grpc::Status status = reader->Finish();
  soak.report.CallEnded(absl::Now() - start, kPatience);
  return status.ok() ? absl::StrJoin(tensors, "") : status.error_message();
}

// The same call each second gets the same bits, whole and in pieces.
void Probe(const Soak& soak, v1::EncoderService::Stub& encoder, absl::Time end, Tally& tally) {
  v1::EncodeRequest request = RequestOf({3, 77, 300});
  request.mutable_outputs()->set_last_hidden_state(true);
  request.mutable_outputs()->mutable_attentions()->add_layers(3);
  request.set_max_response_bytes(64 << 20);
  std::string first;
  int64_t probes = 0, equal = 0, equal_in_pieces = 0;
  for (absl::Time next = absl::Now(); next < end; next += absl::Seconds(1)) {
    absl::SleepFor(next - absl::Now());
    Call call(soak, encoder, request);
    tally.Add(call);
    const std::string bits = call.ok() ? Bits(call.response()) : call.status().error_message();
    if (probes++ == 0) first = bits;
    equal += bits == first ? 1 : 0;
    equal_in_pieces +=
        ChunkedTensorBytes(soak, encoder, request) == TensorBytes(call.response()) ? 1 : 0;
  }
  soak.report.Check(probes == equal && first.size() > 1'000'000, "a probe a second: equal bits",
                    absl::StrFormat("%d of %d", probes, probes),
                    absl::StrFormat("%d of %d, %d bytes each", equal, probes, first.size()));
  soak.report.Equal("the same in pieces: equal bits − probes",
                    static_cast<double>(equal_in_pieces - probes), 0);
}

// All at once until `end`. Returns what each use came to, by name.
std::map<std::string, client::LoadResult> RunAll(const Soak& soak, const BenchServer& server,
                                                 absl::Time end, Tally& tally) {
  grpc::ChannelArguments large;
  large.SetMaxReceiveMessageSize(-1);
  const auto encoder = v1::EncoderService::NewStub(server.Connect(large));
  std::vector<std::thread> threads;
  threads.emplace_back([&] { CancelCalls(soak, *encoder, end, tally); });
  threads.emplace_back([&] { SendInvalidCalls(soak, *encoder, end, tally); });
  threads.emplace_back([&] { Probe(soak, *encoder, end, tally); });
  const std::vector<Use> uses = Uses();
  std::map<std::string, client::LoadResult> results;
  Mutex mutex;
  for (const Use& use : uses) {
    threads.emplace_back([&] {
      client::LoadOptions options = OpenLoop(server, use.lengths, end - absl::Now(), use.rate);
      options.warm_up = absl::ZeroDuration();
      options.sequences = use.sequences;
      options.priority = use.priority;
      options.outputs = use.outputs;
      client::LoadResult result = Drive(soak, options);
      MutexLock lock(mutex);
      results.emplace(use.name, std::move(result));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// What the server counted against what its clients saw.
void CheckCounters(const Soak& soak, const BenchServer& server, int64_t sent, int64_t answered,
                   int64_t invalid) {
  const Scrape now = ScrapeOf(server);
  constexpr const char* kEncode = "method=\"Encode\"";
  const double ended = now.Sum("encoderd_calls_total", kEncode);
  const double ok = now["encoderd_calls_total{code=\"OK\",method=\"Encode\"}"];
  soak.report.Check(ended <= static_cast<double>(sent) && ok >= static_cast<double>(answered),
                    "calls counted, OK counted", absl::StrFormat("<= %d, >= %d", sent, answered),
                    absl::StrFormat("%.0f, %.0f", ended, ok));
  soak.report.Equal("count of encoderd_call_seconds of whole calls − calls counted",
                    now["encoderd_call_seconds_count{method=\"Encode\",phase=\"whole\"}"] - ended,
                    0);
  soak.report.Equal("INVALID_ARGUMENT counted − seen by clients",
                    now["encoderd_calls_total{code=\"INVALID_ARGUMENT\",method=\"Encode\"}"] -
                        static_cast<double>(invalid),
                    0);
  const double all = now.Sum("encoderd_calls_total");
  const double all_ok = now.Sum("encoderd_calls_total", "code=\"OK\"");
  soak.report.Equal("refusals by reason − calls that are not OK",
                    now.Sum("encoderd_refusals_total") - (all - all_ok), 0);
  soak.report.Equal("INTERNAL counted", now.Sum("encoderd_calls_total", "code=\"INTERNAL\""), 0);
}

}  // namespace

void Service(const Soak& soak) {
  BenchServer server(load::MiniLm(), {"--max_queue_time=1m"});
  const absl::Time end = std::max(soak.end - absl::Seconds(5), absl::Now() + soak.Span(30));
  Tally tally;
  const auto results = RunAll(soak, server, end, tally);
  int64_t sent = tally.sent, answered = tally.answered;
  for (const auto& [name, result] : results) {
    CheckAllAnswered(soak, name, result);
    soak.report.Note(absl::StrFormat("p50 %.1f ms, p99 %.1f ms", Milliseconds(result.latency.p50),
                                     Milliseconds(result.latency.p99)));
    sent += result.offered() + 1;  // and one to try the load out
    answered += result.answered;
  }
  for (const char* gauge :
       {"encoderd_calls_in_flight", "encoderd_queue_calls", "encoderd_queue_sequences",
        "encoderd_queue_tokens", "encoderd_inflight_bytes"}) {
    AwaitAtMost(server, gauge, 0);
    soak.report.Equal(std::string(gauge) + " afterwards", ScrapeOf(server)[gauge], 0);
  }
  CheckCounters(soak, server, sent, answered, tally.refused_as_invalid);
  soak.report.Note(absl::StrFormat("%d calls sent, %d answered, %d invalid, %d cancelled", sent,
                                   answered, tally.refused_as_invalid.load(),
                                   tally.otherwise.load()));
  CheckEnds(soak, server, absl::Seconds(5));
}

}  // namespace encoderd::soak
