// Goal:   what comes over the wire is what the engine computes, to the bit, under concurrent mixed
//         calls; and the bundled model does what it was trained for.
// Method: a whole server in this process with real models on two workers.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/client/chunks.h"
#include "encoderd/v1/encoder.grpc.pb.h"
#include "engine/ops/runtime.h"
#include "engine/accuracy.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/server.h"
#include "tests/engine/ask.h"
#include "tests/engine/golden.h"
#include "tests/engine/random_model.h"
#include "tests/integration/pending_call.h"
#include "tests/integration/test_server.h"

namespace encoderd {
namespace {

// A server of the model in `folder` with two workers.
class RealServer {
 public:
  explicit RealServer(const std::string& folder, int64_t max_response_bytes = 64 << 20,
                      Precision precision = Precision::kFp32) {
    auto metrics = Metrics::Start("", Version(), "test");
    CHECK(metrics.ok()) << metrics.status();
    metrics_ = *std::move(metrics);
    Options options = TestOptions();
    options.model_dir = folder;
    options.max_response_bytes = max_response_bytes;
    options.workers = 2;
    auto server = Server::Listen(options, *metrics_);
    CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    const absl::Status loaded = server_->Load([&] {
      return Engine::Load(
          {.model_dir = folder, .max_batch_tokens = 64, .workers = 2, .precision = precision});
    });
    CHECK(loaded.ok()) << loaded;
    encoder_ = v1::EncoderService::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials()));
  }

  v1::EncoderService::Stub& encoder() { return *encoder_; }

  v1::EncodeResponse Encode(const v1::EncodeRequest& request) {
    grpc::ClientContext context;
    v1::EncodeResponse response;
    const grpc::Status status = encoder_->Encode(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  // The same through EncodeChunked; nothing when not even one block's outputs fit.
  std::optional<v1::EncodeResponse> EncodeChunked(const v1::EncodeRequest& request) {
    grpc::ClientContext context;
    const auto reader = encoder_->EncodeChunked(&context, request);
    client::ChunkAssembler assembler(1 << 30);
    for (v1::EncodeChunk chunk; reader->Read(&chunk);) {
      const absl::Status added = assembler.Add(std::move(chunk));
      EXPECT_TRUE(added.ok()) << added;
    }
    const grpc::Status status = reader->Finish();
    if (ReasonOf(status) == "ANSWER_TOO_LARGE") return std::nullopt;
    EXPECT_TRUE(status.ok()) << status.error_message();
    auto answer = assembler.Take();
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? std::optional(*std::move(answer)) : std::nullopt;
  }

  v1::GetModelResponse Model() {
    grpc::ClientContext context;
    v1::GetModelResponse model;
    EXPECT_TRUE(encoder_->GetModel(&context, {}, &model).ok());
    return model;
  }

 private:
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::EncoderService::Stub> encoder_;
};

std::vector<float> FloatsOf(const v1::Tensor& tensor) {
  std::vector<float> values(tensor.data().size() / sizeof(float));
  std::memcpy(values.data(), tensor.data().data(), tensor.data().size());
  return values;
}

std::string BytesOf(const AnswerTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()};
}

// ---- The wire adds and loses nothing ----------------------------------------------------------

// The golden's sequence as a message, its mask included.
v1::Sequence ToProto(const Sequence& sequence) {
  v1::Sequence message;
  for (const int32_t id : sequence.input_ids) message.add_input_ids(id);
  if (const auto& embeds = sequence.inputs_embeds; embeds.has_value()) {
    v1::Tensor& tensor = *message.mutable_inputs_embeds();
    tensor.set_dtype(v1::DATA_TYPE_FP32);
    for (const int64_t axis : embeds->shape) tensor.add_shape(axis);
    tensor.set_data(embeds->data.data(), embeds->data.size());
  }
  for (const int32_t type : sequence.token_type_ids) message.add_token_type_ids(type);
  for (const int32_t position : sequence.position_ids) message.add_position_ids(position);
  const Mask& mask = sequence.mask;
  auto bytes = [](std::span<const uint8_t> part) { return std::string(part.begin(), part.end()); };
  if (!mask.keys.empty()) message.mutable_mask()->set_keys(bytes(mask.keys));
  if (!mask.pairs.empty()) message.mutable_mask()->set_pairs(bytes(mask.pairs));
  if (!mask.head_pairs.empty()) message.mutable_mask()->set_head_pairs(bytes(mask.head_pairs));
  if (mask.causal) message.mutable_mask()->set_causal(true);
  for (const int32_t id : mask.segment_ids) message.mutable_mask()->add_segment_ids(id);
  return message;
}

TEST(RealEngineTest, ConcurrentMixedCallsGetTheBitsOfTheEngineAlone) {
  const Golden golden = ReadGolden("bert");
  const auto engine = LoadEngine(golden.folder + "/model");
  RealServer server(golden.folder + "/model");

  // Each client sends all cases in an order of its own, every second call with maps.
  auto client = [&](size_t shift) {
    const auto worker = NewWorker(*engine);
    for (size_t i = 0; i < 3 * golden.cases.size(); ++i) {
      const GoldenCase& golden_case = *golden.cases[(i + shift) % golden.cases.size()];
      v1::EncodeRequest request;
      request.set_max_response_bytes(64 << 20);
      for (const Sequence& sequence : golden_case.request.sequences) {
        *request.add_sequences() = ToProto(sequence);
      }
      request.mutable_outputs()->set_last_hidden_state(true);
      request.mutable_outputs()->set_all_hidden_states(true);
      request.mutable_outputs()->add_pooled()->set_kind(v1::POOLING_POOLER);
      if (i % 2 == 0) request.mutable_outputs()->mutable_attentions();
      const v1::EncodeResponse got = server.Encode(request);

      Request alone = golden_case.request;
      alone.outputs.last_hidden_state = true;
      alone.outputs.all_hidden_states = true;
      alone.outputs.attentions = AttentionSpec();
      alone.outputs.pooled = {{.kind = Pooling::kPooler}};
      const Answer expected = Ask(*engine, *worker, alone);
      ASSERT_TRUE(got.last_hidden_state().data() == BytesOf(expected.last_hidden_state));
      ASSERT_TRUE(got.pooled(0).data() == BytesOf(expected.pooled[0]));
      ASSERT_EQ(got.hidden_states_size(), static_cast<int>(expected.hidden_states.size()));
      for (int layer = 0; layer < got.hidden_states_size(); ++layer) {
        ASSERT_TRUE(got.hidden_states(layer).tensor().data() ==
                    BytesOf(expected.hidden_states[static_cast<size_t>(layer)]));
      }
      ASSERT_EQ(got.attentions_size(),
                i % 2 == 0 ? static_cast<int>(expected.attentions.size()) : 0);
      for (int map = 0; map < got.attentions_size(); ++map) {
        ASSERT_TRUE(got.attentions(map).tensor().data() ==
                    BytesOf(expected.attentions[static_cast<size_t>(map)].tensor));
      }
    }
  };
  std::vector<std::thread> clients;
  for (size_t i = 0; i < 4; ++i) clients.emplace_back(client, i);
  for (std::thread& thread : clients) thread.join();
}

// ---- Short texts beside long ones -------------------------------------------------------------

// Bursts of calls of 1 to 3 tokens, with longer ones among them. The last hidden states of the short
// ones, in the order of the calls.
std::vector<std::vector<float>> EncodeBursts(RealServer& server) {
  constexpr int kBursts = 20, kCalls = 60;  // every sixth is a long one
  std::vector<std::vector<float>> rows;
  for (int burst = 0; burst < kBursts; ++burst) {
    std::vector<std::unique_ptr<PendingCall>> calls;
    for (int call = 0; call < kCalls; ++call) {
      const int tokens = call % 6 == 0 ? 50 + call : 1 + (burst + call) % 3;
      std::vector<int32_t> ids;
      for (int i = 0; i < tokens; ++i) ids.push_back((31 * burst + 7 * call + 13 * i) % 1000);
      calls.push_back(std::make_unique<PendingCall>(server.encoder(), IdsRequest({ids})));
    }
    for (int call = 0; call < kCalls; ++call) {
      const grpc::Status& status = calls[static_cast<size_t>(call)]->status();
      EXPECT_TRUE(status.ok()) << status.error_message();
      if (call % 6 != 0) {
        rows.push_back(FloatsOf(calls[static_cast<size_t>(call)]->response().last_hidden_state()));
      }
    }
  }
  return rows;
}

TEST(RealEngineTest, ShortTextsAmongLongOnesAreFiniteAndAlikeInFp32AndBf16) {
  const TempFolder folder;
  const BertShape shape = {
      .layers = 3, .hidden = 96, .heads = 4, .ffn = 384, .vocab = 1000, .positions = 128};
  WriteRandomBert(shape, folder);
  RealServer fp32(folder.path());
  const std::vector<std::vector<float>> exact = EncodeBursts(fp32);
  ASSERT_EQ(exact.size(), 1000);
  for (const std::vector<float>& rows : exact) {
    EXPECT_TRUE(std::ranges::all_of(rows, [](float x) { return std::isfinite(x); }));
  }
  if (!ops::RequirePrecision(Precision::kBf16).ok()) GTEST_SKIP() << "fp32 alone on this CPU";
  RealServer bf16(folder.path(), 64 << 20, Precision::kBf16);
  const std::vector<std::vector<float>> rounded = EncodeBursts(bf16);
  ASSERT_EQ(rounded.size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    ASSERT_EQ(rounded[i].size(), exact[i].size());
    EXPECT_LE(LargestError(exact[i], rounded[i], shape.hidden), 0.001);
  }
}

// ---- Streams ------------------------------------------------------------------------------------

// Everything that the model gives.
v1::OutputSpec EveryOutput(const v1::GetModelResponse& model) {
  v1::OutputSpec outputs;
  outputs.set_last_hidden_state(true);
  outputs.set_all_hidden_states(true);
  outputs.mutable_attentions();
  outputs.add_pooled()->set_kind(v1::POOLING_MEAN);
  outputs.add_pooled()->set_layer(1);
  for (const std::string& output : model.outputs()) {
    if (output == "logits") outputs.set_logits(true);
    if (output == "contacts") outputs.set_contacts(true);
    if (output == "pooler") outputs.add_pooled()->set_kind(v1::POOLING_POOLER);
  }
  return outputs;
}

class StreamTest : public ::testing::TestWithParam<const char*> {};

// Passes that are cut between blocks, and maps that are cut between heads and rows, as small as the
// server's limit makes them.
TEST_P(StreamTest, GivesTheBitsOfEncodeHoweverItIsCut) {
  const Golden golden = ReadGolden(GetParam());
  RealServer whole(golden.folder + "/model");
  v1::EncodeRequest request;
  *request.mutable_outputs() = EveryOutput(whole.Model());
  request.set_max_response_bytes(64 << 20);
  request.set_request_id("the same");
  for (const auto& golden_case : golden.cases) {
    for (const Sequence& sequence : golden_case->request.sequences) {
      if (request.sequences_size() < 8) *request.add_sequences() = ToProto(sequence);
    }
  }
  v1::EncodeResponse expected = whole.Encode(request);
  expected.clear_timing();
  int answered = 0;
  for (int64_t limit = 2000; limit < 1'000'000; limit = limit * 3 / 2) {
    RealServer server(golden.folder + "/model", limit);
    auto got = server.EncodeChunked(request);
    if (!got.has_value()) continue;
    ++answered;
    got->clear_timing();
    ASSERT_TRUE(got->SerializeAsString() == expected.SerializeAsString()) << limit;
  }
  EXPECT_GE(answered, 5);
}

INSTANTIATE_TEST_SUITE_P(Family, StreamTest,
                         ::testing::Values("bert", "bert_sequences", "fused_qkv_stack", "electra",
                                           "esm", "shared_projection", "token_encoder",
                                           "torch_pre_gelu_final_norm"));

// ---- The bundled model ------------------------------------------------------------------------

constexpr int kDigits = 16;

// A sequence of 16 digits as one-hot rows.
v1::Sequence OneHot(const std::array<int, kDigits>& digits) {
  std::vector<float> rows(kDigits * 10);
  for (size_t i = 0; i < kDigits; ++i) rows[i * 10 + static_cast<size_t>(digits[i])] = 1;
  v1::Sequence sequence;
  v1::Tensor& embeds = *sequence.mutable_inputs_embeds();
  embeds.set_dtype(v1::DATA_TYPE_FP32);
  embeds.add_shape(kDigits);
  embeds.add_shape(10);
  embeds.set_data(rows.data(), rows.size() * sizeof(float));
  return sequence;
}

TEST(BundledModelTest, ReversesAThousandUnseenSequencesAndLooksAtTheAntiDiagonal) {
  RealServer server(absl::StrCat(ENCODERD_SOURCE_DIR, "/deploy/models/reverse"));
  std::mt19937 rng(987654321);  // not the seed of the training
  int right = 0;
  double on_diagonal = 0;
  for (int call = 0; call < 100; ++call) {
    std::vector<std::array<int, kDigits>> sequences(10);
    v1::EncodeRequest request;
    for (auto& digits : sequences) {
      for (int& digit : digits) digit = static_cast<int>(rng() % 10);
      *request.add_sequences() = OneHot(digits);
    }
    request.mutable_outputs()->set_logits(true);
    request.mutable_outputs()->mutable_attentions();
    const v1::EncodeResponse response = server.Encode(request);
    const std::vector<float> logits = FloatsOf(response.logits());
    ASSERT_EQ(logits.size(), 10u * kDigits * 10u);
    for (size_t s = 0; s < 10; ++s) {
      const std::vector<float> map = FloatsOf(response.attentions(static_cast<int>(s)).tensor());
      for (size_t i = 0; i < kDigits; ++i) {
        const float* const row = logits.data() + (s * kDigits + i) * 10;
        const auto digit = static_cast<int>(std::max_element(row, row + 10) - row);
        right += digit == sequences[s][kDigits - 1 - i] ? 1 : 0;
        on_diagonal += map[i * kDigits + (kDigits - 1 - i)];
      }
    }
  }
  EXPECT_GE(right, 0.999 * 1000 * kDigits);
  EXPECT_GE(on_diagonal / (1000 * kDigits), 0.98) << "mean weight on the anti-diagonal";
}

}  // namespace
}  // namespace encoderd
