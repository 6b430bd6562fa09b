// wire_writer.h — puts the bytes of a message together without a copy of the tensors in it.
//
// Role:  under answer_encoder.cc; knows the wire format of protobuf and slices of gRPC, and no
//        message.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"

namespace encoderd {

// Small pieces are gathered in a string, tensors' data is referred to and kept alive by a share of
// the answer. Once Take or TakeText has been called the writer is of no more use.
class WireWriter {
 public:
  // `answer`: owns what Data is given; null where that is nothing.
  explicit WireWriter(std::shared_ptr<const Answer> answer) : answer_(std::move(answer)) {}

  void Message(const google::protobuf::MessageLite& message) { message.AppendToString(&pending_); }
  void Text(const std::string& bytes) { pending_ += bytes; }
  // The start of a field that holds `bytes` bytes, which are to follow.
  void Field(int number, size_t bytes);
  void Data(std::span<const std::byte> bytes);

  // What a field of so many bytes takes with its head.
  static size_t FieldBytes(int number, size_t bytes);

  grpc::ByteBuffer Take();
  // Of a message without data by reference.
  std::string TakeText() { return std::move(pending_); }

 private:
  void Flush();

  const std::shared_ptr<const Answer> answer_;
  std::string pending_;
  std::vector<grpc::Slice> slices_;
};

}  // namespace encoderd
