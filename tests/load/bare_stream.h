// bare_stream.h — how fast gRPC alone moves messages, and how fast the same reader gets an
// EncodeChunked answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/integration/process.h"

namespace encoderd::load {

// A server process that answers any call with messages of the sizes that its request lists in
// decimal digits, separated by commas, kMaxBareBytes in all at most, and does nothing else. Their
// bytes lie in memory one behind the other, as those of an answer do.
class BareStreamServer {
 public:
  BareStreamServer();
  const std::string& address() const { return address_; }

 private:
  Process process_;
  std::string address_;
};

// What its process does; the program itself is run with kBareStreamFlag for it. Ends by itself
// after five minutes.
inline constexpr char kBareStreamFlag[] = "--be_a_bare_stream_server";
void BeABareStreamServer();

// What came of one call.
struct ReadStream {
  std::vector<int64_t> messages;  // bytes of each
  // Bytes per second from the arrival of the first message of at least kPiece / 2 to the end of the
  // stream; that message itself is not counted. So what the server does before it has something to
  // send does not count either.
  double rate = 0;
};

// Calls of server-streaming methods, whose answers are read and dropped.
class StreamReader {
 public:
  explicit StreamReader(const std::string& address);
  ~StreamReader();

  // REQUIRES: at least two large messages come.
  ReadStream Read(const std::string& method, const std::string& request);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr int64_t kPiece = int64_t{1} << 20;
inline constexpr int64_t kMaxBareBytes = 64 * kPiece;

}  // namespace encoderd::load
