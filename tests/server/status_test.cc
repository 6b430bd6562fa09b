// Goal: a refusal reaches the caller with its code, message and every detail that applies.
// Method: statuses made and their details parsed as any client would.
#include "server/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace encoderd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

template <typename Detail>
std::optional<Detail> DetailOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), status.error_code());
  EXPECT_EQ(details.message(), status.error_message());
  for (const auto& any : details.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

Violations ManyViolations(int64_t total) {
  Violations violations = {.total = total};
  for (int64_t i = 0; i < std::min<int64_t>(total, kMaxViolations); ++i) {
    violations.listed.push_back({.reason = "TOKEN_OUT_OF_RANGE",
                                 .field = "sequences[0].input_ids[" + std::to_string(i) + "]",
                                 .description = std::string(100, 'x')});
  }
  return violations;
}

TEST(StatusTest, CarriesEveryViolation) {
  Violations violations = ManyViolations(1);
  violations.listed.push_back({.reason = "SPAN_OUT_OF_RANGE", .field = "f", .description = "d"});
  violations.total = 2;
  const grpc::Status status = ToGrpcStatus(RefusalOf(violations), "id-7");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("sequences[0].input_ids[0]: xxx"),
                                            HasSubstr("; f: d"), HasSubstr("(2 violations)")));
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason(), "TOKEN_OUT_OF_RANGE");
  EXPECT_EQ(info->domain(), "encoderd");
  EXPECT_EQ(info->metadata().at("violations"), "2");
  EXPECT_EQ(DetailOf<google::rpc::RequestInfo>(status)->request_id(), "id-7");
  const auto bad_request = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad_request.has_value());
  ASSERT_EQ(bad_request->field_violations_size(), 2);
  EXPECT_EQ(bad_request->field_violations(1).reason(), "SPAN_OUT_OF_RANGE");
  EXPECT_EQ(bad_request->field_violations(1).field(), "f");
  EXPECT_EQ(bad_request->field_violations(1).description(), "d");
  EXPECT_FALSE(DetailOf<google::rpc::RetryInfo>(status).has_value());
}

TEST(StatusTest, ListsSixteenInTheDetailsAndKeepsTheMessageShort) {
  const grpc::Status status = ToGrpcStatus(RefusalOf(ManyViolations(500)), "");
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status)->field_violations_size(), 16);
  EXPECT_LE(status.error_message().size(), 1100);
  EXPECT_THAT(status.error_message(), HasSubstr("(500 violations)"));
}

TEST(StatusTest, ABadFieldWeighsMoreThanAnOutputThatTheModelLacks) {
  Violations violations = ManyViolations(1);
  violations.listed.insert(violations.listed.begin(),
                           {.code = absl::StatusCode::kFailedPrecondition,
                            .reason = "OUTPUT_UNAVAILABLE",
                            .field = "outputs.logits"});
  violations.total = 2;
  const Refusal both = RefusalOf(violations);
  EXPECT_EQ(both.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(both.reason, "TOKEN_OUT_OF_RANGE");
  violations.listed.pop_back();
  violations.total = 1;
  const Refusal alone = RefusalOf(violations);
  EXPECT_EQ(alone.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(alone.reason, "OUTPUT_UNAVAILABLE");
}

TEST(StatusTest, SaysWhenToTryAgain) {
  const grpc::Status status = ToGrpcStatus({.status = absl::ResourceExhaustedError("full"),
                                            .reason = "QUEUE_FULL",
                                            .retry_after = absl::Milliseconds(1250)},
                                           "");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "full");
  const auto retry = DetailOf<google::rpc::RetryInfo>(status);
  ASSERT_TRUE(retry.has_value());
  EXPECT_EQ(retry->retry_delay().seconds(), 1);
  EXPECT_EQ(retry->retry_delay().nanos(), 250'000'000);
  EXPECT_FALSE(DetailOf<google::rpc::BadRequest>(status).has_value());
}

}  // namespace
}  // namespace encoderd
