// Goal: a failed call is explained with all that the server said, and ends in the right exit code.
// Method: statuses with details as they come over the wire.
#include "deploy/client/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status_matchers.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace encoderd::client {
namespace {

using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename... Detail>
grpc::Status Refusal(grpc::StatusCode code, const Detail&... details) {
  google::rpc::Status status;
  (status.add_details()->PackFrom(details), ...);
  return {code, "refused", status.SerializeAsString()};
}

google::rpc::ErrorInfo Reason(const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  return info;
}

TEST(FailureFromRpcTest, ListsEveryViolation) {
  google::rpc::BadRequest bad;
  for (const char* field : {"sequences[0].input_ids[1]", "outputs.hidden_states[0]"}) {
    auto& violation = *bad.add_field_violations();
    violation.set_field(field);
    violation.set_description("expected this, got that");
  }
  const grpc::Status refusal =
      Refusal(grpc::StatusCode::INVALID_ARGUMENT, Reason("TOKEN_OUT_OF_RANGE"), bad);
  EXPECT_THAT(
      FailureFromRpc(refusal, "here:1"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "2 faults (TOKEN_OUT_OF_RANGE)\n"
               "  sequences[0].input_ids[1]: expected this, got that\n"
               "  outputs.hidden_states[0]: expected this, got that\n"
               "next: `encoderctl info` prints what is served, its outputs and its limits"));
}

TEST(FailureFromRpcTest, CountsTheViolationsThatAreNotListed) {
  google::rpc::ErrorInfo info = Reason("TOKEN_OUT_OF_RANGE");
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_field("sequences[0].input_ids[1]");
  const std::pair<const char*, const char*> counts[] = {
      {"100", "100 faults"}, {"1", "1 fault ("}, {"many", "1 fault ("}, {"-5", "1 fault ("}};
  for (const auto& [count, text] : counts) {
    (*info.mutable_metadata())["violations"] = count;
    EXPECT_THAT(
        FailureFromRpc(Refusal(grpc::StatusCode::INVALID_ARGUMENT, info, bad), "here:1").message(),
        HasSubstr(text));
  }
}

TEST(FailureFromRpcTest, SaysWhenToTryAgain) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(250'000'000);
  EXPECT_THAT(FailureFromRpc(Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, retry), "here:1"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("try again in 250ms")));
}

TEST(FailureFromRpcTest, SaysHowToReceiveALargeAnswer) {
  const grpc::Status refusal =
      Refusal(grpc::StatusCode::INVALID_ARGUMENT, Reason("ANSWER_TOO_LARGE"));
  EXPECT_THAT(FailureFromRpc(refusal, "here:1").message(), HasSubstr("--max_response_bytes"));
}

TEST(FailureFromRpcTest, NamesTheAddressThatDoesNotAnswer) {
  const grpc::Status refused(grpc::StatusCode::UNAVAILABLE, "connection refused");
  EXPECT_THAT(FailureFromRpc(refused, "here:1").message(),
              AllOf(HasSubstr("connection refused"), HasSubstr("here:1"), HasSubstr("--wait")));
}

TEST(FailureFromRpcTest, SurvivesDetailsThatCannotBeParsed) {
  const grpc::Status broken(grpc::StatusCode::INTERNAL, "broken", "\xff\xff");
  EXPECT_THAT(FailureFromRpc(broken, "here:1"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("broken")));
}

TEST(FailureFromRpcTest, LetsNoControlCharacterReachTheTerminal) {
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_description("\x1b[2J");
  const grpc::Status hostile = Refusal(grpc::StatusCode::INTERNAL, Reason("\x1b[31m"), bad);
  EXPECT_THAT(FailureFromRpc(hostile, "here:1").message(), Not(HasSubstr("\x1b")));
}

TEST(ExitCodeForTest, TellsTheUsersFaultsFromTheServers) {
  EXPECT_EQ(ExitCodeFor(absl::OkStatus()), kExitOk);
  EXPECT_EQ(ExitCodeFor(absl::InvalidArgumentError("")), kExitUsage);
  EXPECT_EQ(ExitCodeFor(absl::NotFoundError("")), kExitUsage);
  EXPECT_EQ(ExitCodeFor(absl::FailedPreconditionError("")), kExitUsage);
  EXPECT_EQ(ExitCodeFor(absl::UnavailableError("")), kExitUnavailable);
  EXPECT_EQ(ExitCodeFor(absl::ResourceExhaustedError("")), kExitTryAgain);
  EXPECT_EQ(ExitCodeFor(absl::DeadlineExceededError("")), kExitTryAgain);
  EXPECT_EQ(ExitCodeFor(absl::AbortedError("")), kExitCannotWrite);
  EXPECT_EQ(ExitCodeFor(absl::UnauthenticatedError("")), kExitNotAllowed);
  EXPECT_EQ(ExitCodeFor(absl::PermissionDeniedError("")), kExitNotAllowed);
  EXPECT_EQ(ExitCodeFor(absl::InternalError("")), kExitInternal);
  EXPECT_EQ(ExitCodeFor(absl::DataLossError("")), kExitInternal);
  EXPECT_EQ(ExitCodeFor(absl::UnimplementedError("")), kExitInternal);
}

}  // namespace
}  // namespace encoderd::client
