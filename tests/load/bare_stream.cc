#include "tests/load/bare_stream.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/log/check.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace encoderd::load {
namespace {

constexpr std::chrono::minutes kServerLife(5);

class BareStream final : public grpc::ServerGenericBidiReactor {
 public:
  BareStream() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    grpc::Slice slice;
    if (!ok || !request_.DumpToSingleSlice(&slice).ok() ||
        !ParseSizes(std::string(slice.begin(), slice.end()))) {
      return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "expected sizes"));
    }
    WriteNext();
  }
  void OnWriteDone(bool ok) override { ok ? WriteNext() : Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }

 private:
  bool ParseSizes(const std::string& text) {
    size_t sum = 0;
    for (const absl::string_view size : absl::StrSplit(text, ',')) {
      if (!absl::SimpleAtoi(size, &sizes_.emplace_back())) return false;
      sum += sizes_.back();
    }
    return sum <= kMaxBareBytes;
  }

  void WriteNext() {
    static const grpc::Slice all(std::string(kMaxBareBytes, 'x'));
    if (next_ == sizes_.size()) return Finish(grpc::Status::OK);
    const size_t end = sent_ + sizes_[next_++];
    const grpc::Slice message = all.sub(sent_, end);
    sent_ = end;
    message_ = grpc::ByteBuffer(&message, 1);
    StartWrite(&message_);
  }

  grpc::ByteBuffer request_;
  grpc::ByteBuffer message_;
  std::vector<size_t> sizes_;
  size_t next_ = 0;
  size_t sent_ = 0;
};

class BareStreamService final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new BareStream;
  }
};

}  // namespace

BareStreamServer::BareStreamServer()
    : process_(std::filesystem::read_symlink("/proc/self/exe").string(), {kBareStreamFlag}) {
  address_ = absl::StrCat("127.0.0.1:", NumberIn(process_.AwaitLine("bare_port"), "bare_port"));
}

void BeABareStreamServer() {
  BareStreamService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  CHECK(server != nullptr);
  std::printf("bare_port=%d\n", port);
  std::fflush(stdout);
  std::this_thread::sleep_for(kServerLife);
}

class StreamReader::Impl {
 public:
  explicit Impl(const std::string& address)
      : stub_(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), Arguments())) {
  }

  ReadStream Read(const std::string& method, const std::string& request) {
    grpc::ClientContext context;
    const auto call = stub_.PrepareCall(&context, method, &queue_);
    call->StartCall(nullptr);
    Await();
    const grpc::Slice slice(request);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    Await();

    ReadStream stream;
    std::chrono::steady_clock::time_point first, last;
    int64_t bytes = -1;  // after the first large message
    while (true) {
      grpc::ByteBuffer message;
      call->Read(&message, nullptr);
      if (!Await()) break;
      last = std::chrono::steady_clock::now();
      const auto length = static_cast<int64_t>(message.Length());
      stream.messages.push_back(length);
      if (bytes >= 0) {
        bytes += length;
      } else if (length >= kPiece / 2) {
        first = last;
        bytes = 0;
      }
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    Await();
    CHECK(status.ok()) << status.error_message();
    CHECK_GT(bytes, 0) << method << ": expected at least two large messages";
    stream.rate = static_cast<double>(bytes) / std::chrono::duration<double>(last - first).count();
    return stream;
  }

  ~Impl() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

 private:
  static grpc::ChannelArguments Arguments() {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    return arguments;
  }

  // One operation is under way at a time.
  bool Await() {
    void* tag = nullptr;
    bool ok = false;
    CHECK(queue_.Next(&tag, &ok));
    return ok;
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
};

StreamReader::StreamReader(const std::string& address) : impl_(std::make_unique<Impl>(address)) {}
StreamReader::~StreamReader() = default;

ReadStream StreamReader::Read(const std::string& method, const std::string& request) {
  return impl_->Read(method, request);
}

}  // namespace encoderd::load
