// Goal: the pieces of a stream become the answer, and a stream that lies becomes an error, at no
// more memory than has come.
// Method: messages made by hand, and a good stream damaged in every way that its checks name.
#include "deploy/client/chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status_matchers.h"

namespace encoderd::client {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

using Stream = std::vector<v1::EncodeChunk>;

void SetShape(v1::Tensor& tensor, const std::vector<int64_t>& shape) {
  tensor.set_dtype(v1::DATA_TYPE_FP16);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
}

v1::EncodeChunk PieceOf(uint32_t tensor, uint64_t offset, const std::string& data) {
  v1::EncodeChunk chunk;
  chunk.mutable_piece()->set_tensor(tensor);
  chunk.mutable_piece()->set_offset(offset);
  chunk.mutable_piece()->set_data(data);
  return chunk;
}

// Tensors of each kind, in the order in which pieces count them: 12, 12, 4, 6, 2, 0 and 2 bytes.
Stream GoodStream() {
  Stream stream(1);
  v1::EncodeResponse& head = *stream[0].mutable_head();
  SetShape(*head.mutable_last_hidden_state(), {2, 3});
  SetShape(*head.add_hidden_states()->mutable_tensor(), {2, 3});
  SetShape(*head.add_attentions()->mutable_tensor(), {1, 1, 2});
  SetShape(*head.add_pooled(), {1, 3});
  SetShape(*head.mutable_logits(), {1, 1});
  SetShape(*head.add_contacts(), {0, 0});  // without a piece
  SetShape(*head.add_contacts(), {1, 1});
  head.set_numerics_id("bits");
  stream.push_back(PieceOf(2, 0, "map0"));
  stream.push_back(PieceOf(0, 0, "last_"));
  stream.push_back(PieceOf(1, 0, "hidden_state"));
  stream.push_back(PieceOf(0, 5, "hidden_"));
  stream.push_back(PieceOf(4, 0, "lo"));
  stream.push_back(PieceOf(3, 0, "pooled"));
  stream.push_back(PieceOf(6, 0, "co"));
  stream.emplace_back().mutable_timing()->set_batches(7);
  return stream;
}

absl::StatusOr<v1::EncodeResponse> Assemble(const Stream& stream, int64_t max_bytes = 1000) {
  ChunkAssembler assembler(max_bytes);
  for (const v1::EncodeChunk& chunk : stream) {
    if (absl::Status added = assembler.Add(chunk); !added.ok()) return added;
  }
  return assembler.Take();
}

TEST(ChunkAssemblerTest, PutsEveryTensorTogether) {
  const auto answer = Assemble(GoodStream());
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->last_hidden_state().data(), "last_hidden_");
  EXPECT_EQ(answer->hidden_states(0).tensor().data(), "hidden_state");
  EXPECT_EQ(answer->attentions(0).tensor().data(), "map0");
  EXPECT_EQ(answer->pooled(0).data(), "pooled");
  EXPECT_EQ(answer->logits().data(), "lo");
  EXPECT_EQ(answer->contacts(0).data(), "");
  EXPECT_EQ(answer->contacts(1).data(), "co");
  EXPECT_EQ(answer->numerics_id(), "bits");
  EXPECT_EQ(answer->timing().batches(), 7);
}

TEST(ChunkAssemblerTest, AcceptsNoMoreThanItWasTold) {
  EXPECT_THAT(Assemble(GoodStream(), 38), IsOk());
  EXPECT_THAT(Assemble(GoodStream(), 37),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than the 37 bytes")));
  Stream hostile = GoodStream();
  SetShape(*hostile[0].mutable_head()->mutable_logits(), {int64_t{1} << 62, int64_t{1} << 62});
  EXPECT_THAT(Assemble(hostile, int64_t{1} << 62), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(ChunkAssemblerTest, RefusesStreamsThatContradictThemselves) {
  using Damage = std::function<void(Stream&)>;
  const std::pair<Damage, const char*> damages[] = {
      {[](Stream& s) { s.erase(s.begin()); }, "does not begin with its head"},
      {[](Stream& s) { s.insert(s.begin() + 1, s[0]); }, "a second head"},
      {[](Stream& s) { s.clear(); }, "without its timing"},
      {[](Stream& s) { s.pop_back(); }, "without its timing"},
      {[](Stream& s) { s.push_back(s.back()); }, "goes on after its timing"},
      {[](Stream& s) { s[1].Clear(); }, "nothing in it"},
      {[](Stream& s) { s.erase(s.begin() + 1); }, "tensor 2: expected 4 bytes, got 0"},
      {[](Stream& s) { s.insert(s.begin() + 2, s[2]); }, "expected a piece at 5, got one at 0"},
      {[](Stream& s) { std::swap(s[2], s[4]); }, "expected a piece at 0, got one at 5"},
      {[](Stream& s) { s[1].mutable_piece()->mutable_data()->push_back('x'); },
       "tensor 2: expected a piece of 1 to 4 bytes, got 5"},
      {[](Stream& s) { s[1].mutable_piece()->clear_data(); }, "got 0"},
      {[](Stream& s) { s[1].mutable_piece()->set_tensor(7); }, "the head has 7"},
      {[](Stream& s) { s[1].mutable_piece()->set_tensor(5); }, "a piece of 1 to 0 bytes"},
      {[](Stream& s) { s[0].mutable_head()->mutable_logits()->set_data("lo"); },
       "tensor 4 has data in the head"},
      {[](Stream& s) { s[0].mutable_head()->mutable_logits()->set_shape(0, -1); },
       "tensor 4 has an axis of -1"},
      {[](Stream& s) {
         s[0].mutable_head()->mutable_pooled(0)->set_dtype(static_cast<v1::DataType>(9));
       },
       "tensor 3 has the type 9"},
  };
  for (const auto& [damage, text] : damages) {
    Stream stream = GoodStream();
    damage(stream);
    EXPECT_THAT(Assemble(stream), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(text)));
  }
}

}  // namespace
}  // namespace encoderd::client
