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

namespace encoderd::load {
namespace {

constexpr std::chrono::minutes kServerLife(5);

class BareStream final : public grpc::ServerGenericBidiReactor {
 public:
  BareStream() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    grpc::Slice slice;
    if (!ok || !request_.DumpToSingleSlice(&slice).ok() ||
        !absl::SimpleAtoi(std::string(slice.begin(), slice.end()), &bytes_) ||
        bytes_ > kMaxBareBytes) {
      return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "expected a number of bytes"));
    }
    WriteNext();
  }
  void OnWriteDone(bool ok) override { ok ? WriteNext() : Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    static const grpc::Slice all(std::string(kMaxBareBytes, 'x'));
    if (sent_ >= bytes_) return Finish(grpc::Status::OK);
    const int64_t end = std::min(sent_ + kPiece, bytes_);
    const grpc::Slice piece = all.sub(static_cast<size_t>(sent_), static_cast<size_t>(end));
    sent_ = end;
    message_ = grpc::ByteBuffer(&piece, 1);
    StartWrite(&message_);
  }

  grpc::ByteBuffer request_;
  grpc::ByteBuffer message_;
  int64_t bytes_ = 0;
  int64_t sent_ = 0;
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

  double Rate(const std::string& method, const std::string& request) {
    grpc::ClientContext context;
    const auto call = stub_.PrepareCall(&context, method, &queue_);
    call->StartCall(nullptr);
    Await();
    const grpc::Slice slice(request);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    Await();

    std::chrono::steady_clock::time_point first, last;
    int64_t bytes = -1;  // after the first piece
    while (true) {
      grpc::ByteBuffer message;
      call->Read(&message, nullptr);
      if (!Await()) break;
      last = std::chrono::steady_clock::now();
      const auto length = static_cast<int64_t>(message.Length());
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
    CHECK_GT(bytes, 0) << method << ": expected at least two pieces";
    return static_cast<double>(bytes) / std::chrono::duration<double>(last - first).count();
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

double StreamReader::Rate(const std::string& method, const std::string& request) {
  return impl_->Rate(method, request);
}

}  // namespace encoderd::load
