// Goal: bytes that are no request, of no method or of any size, are refused and counted, and cost
// nothing.
// Method: a whole server around the fake engine, over a socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/test_server.h"

namespace encoderd {
namespace {

TEST(WireTest, MalformedMessagesAreRefusedAndCounted) {
  TestServer server;
  for (const char* method : {"Encode", "GetModel"}) {
    EXPECT_THAT(CallRaw(server.channel(), absl::StrCat("/encoderd.v1.EncoderService/", method),
                        "\x0a\x05x"),
                Refused(grpc::StatusCode::INVALID_ARGUMENT, "MALFORMED", "the bytes are not a"));
    EXPECT_EQ(server.Metric(absl::StrCat("encoderd_calls_total{code=\"INVALID_ARGUMENT\",method=\"",
                                         method, "\"}")),
              1);
  }
  EXPECT_EQ(server.Metric("encoderd_refusals_total{reason=\"MALFORMED\"}"), 2);
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
}

TEST(WireTest, AnIdThatDoesNotFitIsNotCutOff) {
  TestServer server;
  // input_ids [−2⁶³], whose lower half is the id 0, and a field that asks for the last state.
  const std::string bytes(
      "\x12\x0c\x0a\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x1a\x02\x10\x01", 18);
  EXPECT_THAT(CallRaw(server.channel(), "/encoderd.v1.EncoderService/Encode", bytes),
              Refused(grpc::StatusCode::INVALID_ARGUMENT, "UNSUPPORTED_VALUE",
                      "sequences[0].input_ids[0]: -9223372036854775808"));
}

TEST(WireTest, UnknownMethodsAreRefusedAndCounted) {
  TestServer server;
  EXPECT_THAT(CallRaw(server.channel(), "/encoderd.v1.EncoderService/Decode", ""),
              Refused(grpc::StatusCode::UNIMPLEMENTED, "UNKNOWN_METHOD", "EncodeChunked"));
  EXPECT_THAT(CallRaw(server.channel(), "/no.such.Service/Method", ""),
              Refused(grpc::StatusCode::UNIMPLEMENTED, "UNKNOWN_METHOD", ""));
  EXPECT_EQ(server.Metric("encoderd_calls_total{code=\"UNIMPLEMENTED\",method=\"other\"}"), 2);
}

TEST(WireTest, RequestsAboveTheLimitLeaveTheConnectionOfUse) {
  TestServer server;
  const std::string over(size_t{65} << 20, '\0');  // above our limit, below gRPC's
  EXPECT_THAT(CallRaw(server.channel(), "/encoderd.v1.EncoderService/Encode", over),
              Refused(grpc::StatusCode::INVALID_ARGUMENT, "REQUEST_TOO_LARGE",
                      "expected at most 67108864"));
  const std::string far_over(size_t{129} << 20, '\0');
  EXPECT_EQ(CallRaw(server.channel(), "/encoderd.v1.EncoderService/Encode", far_over).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
}

// The limit is on what a message has when nothing is packed, to the byte.
TEST(WireTest, RequestsOfAnySizeUpToTheLimitAreRead) {
  TestServer server;
  const auto of_size = [](size_t bytes) {
    v1::EncodeRequest request;  // a name and nothing else
    request.set_model(std::string(bytes - 10, 'm'));
    request.set_model(std::string(bytes - 10 + (bytes - request.ByteSizeLong()), 'm'));
    EXPECT_EQ(request.ByteSizeLong(), bytes);
    return request.SerializeAsString();
  };
  const std::string encode = "/encoderd.v1.EncoderService/Encode";
  for (const size_t bytes : {4194303, 4194304, 4194305, 64 << 20}) {
    EXPECT_THAT(CallRaw(server.channel(), encode, of_size(bytes)),
                Refused(grpc::StatusCode::NOT_FOUND, "MODEL_NOT_FOUND", "no such model"))
        << bytes;
  }
  EXPECT_THAT(CallRaw(server.channel(), encode, of_size((64 << 20) + 1)),
              Refused(grpc::StatusCode::INVALID_ARGUMENT, "REQUEST_TOO_LARGE", "67108865 bytes"));
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
}

// Bytes of memory that this process has, client and server.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(WireTest, HostileSizesCostNothing) {
  TestServer server;
  const auto vectors = [](std::vector<int64_t> shape, size_t bytes) {
    v1::EncodeRequest request = IdsRequest({{}});
    v1::Tensor& tensor = *request.mutable_sequences(0)->mutable_inputs_embeds();
    tensor.mutable_shape()->Assign(shape.begin(), shape.end());
    tensor.set_data(std::string(bytes, '\0'));
    return request;
  };
  std::vector<v1::EncodeRequest> requests = {
      vectors({-1, 5}, 0),
      vectors({int64_t{1} << 32, int64_t{1} << 32}, 0),
      vectors({int64_t{1} << 59, 8}, 0),
      vectors({1, 0}, 0),
      vectors({2, 8}, 63),
      vectors({2, 8}, 65),
      IdsRequest(std::vector<std::vector<int32_t>>(500000)),  // a megabyte of empty sequences
  };
  requests.push_back(IdsRequest({std::vector<int32_t>(4000, 1)}));
  requests.back().mutable_sequences(0)->mutable_mask()->set_pairs(std::string(60000, '\1'));
  requests.push_back(
      IdsRequest(std::vector<std::vector<int32_t>>(8, std::vector<int32_t>(512, 1))));
  requests.back().mutable_outputs()->mutable_attentions();

  for (const v1::EncodeRequest& request : requests) server.Encode(request);  // buffers of gRPC's
  const int64_t before = ResidentBytes();
  for (const v1::EncodeRequest& request : requests) {
    EXPECT_EQ(server.Encode(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_LT(ResidentBytes() - before, 10 << 20);
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
}

}  // namespace
}  // namespace encoderd
