// raw_call.h — a call of any method with any bytes.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/mutex.h"

namespace encoderd {

// Waits for its end. `answer`: gets the bytes; `set`: prepares the call.
inline grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel,
                            const std::string& method, const std::string& bytes,
                            std::string* answer = nullptr,
                            const std::function<void(grpc::ClientContext&)>& set = nullptr) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  if (set != nullptr) set(context);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  Mutex mutex;
  CondVar ended;
  std::optional<grpc::Status> status;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [&](grpc::Status ended_with) {
                   MutexLock lock(mutex);
                   status = std::move(ended_with);
                   ended.NotifyAll();
                 });
  MutexLock lock(mutex);
  while (!status.has_value()) ended.Wait(mutex);
  if (answer != nullptr) {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(response.Dump(&slices).ok());
    for (const grpc::Slice& piece : slices) {
      answer->append(reinterpret_cast<const char*>(piece.begin()), piece.size());
    }
  }
  return *status;
}

}  // namespace encoderd
