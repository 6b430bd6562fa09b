// failure.h — a failed call in words that say what to do next, and the exit code that goes with it.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace encoderd::client {

// The exit codes of encoderctl; those above 63 have the meaning of sysexits.h.
enum ExitCode {
  kExitOk = 0,
  kExitNotServing = 1,    // health: the service is known and does not serve
  kExitUsage = 64,        // the command line or the input is wrong, here or for this model
  kExitUnavailable = 69,  // the server cannot be reached, is loading or is draining
  kExitInternal = 70,     // a failure of the server or of this program, or a malformed answer
  kExitCannotWrite = 73,  // a file cannot be written
  kExitTryAgain = 75,     // overload, or the time is up
  kExitNotAllowed = 77,   // a key is missing or wrong, or is not one of those who may
};

// The call's status with the details that the server sent (google.rpc.ErrorInfo, BadRequest,
// RetryInfo), one a line, and a last line that says what to do. Details that cannot be parsed are
// left out. REQUIRES: !status.ok().
absl::Status FailureFromRpc(const grpc::Status& status, absl::string_view address);

// The reason of the call's google.rpc.ErrorInfo, made fit for a terminal; "" if it has none.
std::string ReasonFromRpc(const grpc::Status& status);

// kExitOk for an OK status.
ExitCode ExitCodeFor(const absl::Status& status);

}  // namespace encoderd::client
