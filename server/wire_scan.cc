#include "server/wire_scan.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>
#include <map>

#include "absl/strings/str_cat.h"

namespace encoderd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// True when the field's type holds the number that the varint stands for. (A negative int32 is sent
// sign extended to 64 bits.)
bool Fits(const FieldDescriptor& field, uint64_t varint) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_INT32:
    case FieldDescriptor::TYPE_ENUM: {
      const auto value = static_cast<int64_t>(varint);
      return value >= std::numeric_limits<int32_t>::min() &&
             value <= std::numeric_limits<int32_t>::max();
    }
    case FieldDescriptor::TYPE_UINT32:
      return varint <= std::numeric_limits<uint32_t>::max();
    default:
      return true;
  }
}

class Scanner {
 public:
  Scanner(CodedInputStream& input, const ElementLimits& limits, Violations& violations)
      : input_(input), limits_(limits), violations_(violations) {}

  // Reads up to the current limit of the stream. False: the bytes are not such a message, or a
  // limit on elements is exceeded.
  bool Message(const Descriptor& message, const std::string& path) {
    // Where in its list the next element of a repeated field of this message is.
    std::map<int, int64_t> next_index;
    while (const uint32_t tag = input_.ReadTag()) {
      const FieldDescriptor* field =
          message.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (field == nullptr) {
        Add("UNKNOWN_FIELD", path, [&] {
          return absl::StrCat("the server does not know field ",
                              WireFormatLite::GetTagFieldNumber(tag), " of ",
                              absl::string_view(message.full_name()));
        });
        if (!WireFormatLite::SkipField(&input_, tag)) return false;
        continue;
      }
      const std::string name =
          path.empty() ? field->name() : absl::StrCat(path, ".", field->name());
      int64_t& index = next_index[field->number()];
      if (!Field(*field, WireFormatLite::GetTagWireType(tag), name, index)) return false;
    }
    return input_.ConsumedEntireMessage();
  }

  bool too_many() const { return too_many_; }

 private:
  bool Field(const FieldDescriptor& field, WireFormatLite::WireType wire_type,
             const std::string& name, int64_t& index) {
    const auto own_type =
        WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()));
    if (wire_type == own_type) return Value(field, name, index);
    // A list of numbers in one piece.
    if (!field.is_packable() || wire_type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED)
      return false;
    return LengthDelimited([&] {
      while (input_.BytesUntilLimit() > 0) {
        if (!Value(field, name, index)) return false;
      }
      return true;
    });
  }

  // One value, or one element of a repeated field.
  bool Value(const FieldDescriptor& field, const std::string& name, int64_t& index) {
    const int64_t element = field.is_repeated() ? index++ : -1;
    if (field.is_repeated() && !Count(field, name)) return false;
    switch (field.type()) {
      case FieldDescriptor::TYPE_MESSAGE:
        return LengthDelimited([&] { return Message(*field.message_type(), Path(name, element)); });
      case FieldDescriptor::TYPE_STRING:
      case FieldDescriptor::TYPE_BYTES: {
        uint32_t length;
        return input_.ReadVarint32(&length) && input_.Skip(static_cast<int>(length));
      }
      default: {
        uint64_t varint;
        if (!input_.ReadVarint64(&varint)) return false;
        if (!Fits(field, varint)) {
          Add("UNSUPPORTED_VALUE", name, element,
              [&] { return absl::StrCat(static_cast<int64_t>(varint), " does not fit 32 bits"); });
        }
        return true;
      }
    }
  }

  template <typename Body>
  bool LengthDelimited(Body body) {
    uint32_t length;
    if (!input_.ReadVarint32(&length) || length > std::numeric_limits<int32_t>::max()) return false;
    const CodedInputStream::Limit outer = input_.PushLimit(static_cast<int>(length));
    // A piece cannot be longer than what it is a part of.
    if (input_.BytesUntilLimit() < static_cast<int>(length)) return false;
    const bool complete = body() && input_.BytesUntilLimit() == 0;
    input_.PopLimit(outer);
    return complete;
  }

  bool Count(const FieldDescriptor& field, const std::string& name) {
    const auto [entry, is_new] = elements_.try_emplace(&field);
    Elements& elements = entry->second;
    if (is_new) elements.limit = limits_(field);
    if (++elements.count <= elements.limit.max_elements) return true;
    too_many_ = true;
    Add(elements.limit.reason, name, -1, [&] {
      return absl::StrCat("the call has more than ", elements.limit.max_elements, " ",
                          absl::string_view(field.name()), " in all, the most that it may have");
    });
    return false;
  }

  static std::string Path(const std::string& name, int64_t element) {
    return element < 0 ? name : absl::StrCat(name, "[", element, "]");
  }

  template <typename Description>
  void Add(const char* reason, const std::string& name, int64_t element, Description description) {
    ++violations_.total;
    if (violations_.listed.size() == kMaxViolations) return;
    violations_.listed.push_back(
        {.reason = reason, .field = Path(name, element), .description = description()});
  }
  template <typename Description>
  void Add(const char* reason, const std::string& name, Description description) {
    Add(reason, name, -1, description);
  }

  struct Elements {
    int64_t count = 0;
    ElementLimit limit;
  };

  CodedInputStream& input_;
  const ElementLimits& limits_;
  Violations& violations_;
  std::map<const FieldDescriptor*, Elements> elements_;
  bool too_many_ = false;
};

}  // namespace

absl::Status ScanMessage(const Descriptor& message,
                         google::protobuf::io::ZeroCopyInputStream& bytes,
                         const ElementLimits& limits, Violations& violations) {
  CodedInputStream input(&bytes);
  Scanner scanner(input, limits, violations);
  if (scanner.Message(message, "") || scanner.too_many()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the bytes are not a ", absl::string_view(message.full_name()),
      ": expected a protobuf message, got a fault near byte ", input.CurrentPosition()));
}

}  // namespace encoderd
