#include "server/wire_writer.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

namespace encoderd {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

constexpr size_t kMaxHeadBytes = 10;  // two varints of 32 bits

// A slice of its own costs more than the copy of so few bytes.
constexpr size_t kCopiedBytes = 1024;

uint32_t Tag(int number) {
  return WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

}  // namespace

void WireWriter::Field(int number, size_t bytes) {
  uint8_t head[kMaxHeadBytes];
  uint8_t* end = CodedOutputStream::WriteTagToArray(Tag(number), head);
  end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(bytes), end);
  pending_.append(reinterpret_cast<const char*>(head), static_cast<size_t>(end - head));
}

size_t WireWriter::FieldBytes(int number, size_t bytes) {
  return CodedOutputStream::VarintSize32(Tag(number)) +
         CodedOutputStream::VarintSize32(static_cast<uint32_t>(bytes)) + bytes;
}

void WireWriter::Data(std::span<const std::byte> bytes) {
  if (bytes.size() <= kCopiedBytes) {
    pending_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return;
  }
  Flush();
  // gRPC reads slices only; its interface has no word for it.
  slices_.emplace_back(
      const_cast<std::byte*>(bytes.data()), bytes.size(),
      [](void* owner) { delete static_cast<std::shared_ptr<const Answer>*>(owner); },
      new std::shared_ptr<const Answer>(answer_));
}

grpc::ByteBuffer WireWriter::Take() {
  Flush();
  return grpc::ByteBuffer(slices_.data(), slices_.size());
}

void WireWriter::Flush() {
  if (pending_.empty()) return;
  slices_.emplace_back(pending_);
  pending_.clear();
}

}  // namespace encoderd
