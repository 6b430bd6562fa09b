#include "tests/proto/breaking_changes.h"

#include <string_view>

#include "absl/strings/str_cat.h"

namespace encoderd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

// The name of a message's or an enumeration's type; "" for numbers and text.
std::string TypeOf(const FieldDescriptor& field) {
  if (field.message_type() != nullptr) return field.message_type()->full_name();
  if (field.enum_type() != nullptr) return field.enum_type()->full_name();
  return field.type_name();
}

// proto3's own wrapper of an `optional` field is none that a program sees.
std::string OneofOf(const FieldDescriptor& field) {
  const auto* const oneof = field.real_containing_oneof();
  return oneof == nullptr ? "none" : oneof->name();
}

class Comparison {
 public:
  std::vector<std::string> Of(const FileDescriptor& before, const FileDescriptor& now) && {
    Same(before.name(), "package", before.package(), now.package());
    for (int i = 0; i < before.message_type_count(); ++i) {
      const Descriptor& message = *before.message_type(i);
      Messages(message, now.FindMessageTypeByName(message.name()));
    }
    for (int i = 0; i < before.enum_type_count(); ++i) {
      const EnumDescriptor& one = *before.enum_type(i);
      Enums(one, now.FindEnumTypeByName(one.name()));
    }
    for (int i = 0; i < before.service_count(); ++i) {
      const ServiceDescriptor& service = *before.service(i);
      Services(service, now.FindServiceByName(service.name()));
    }
    return std::move(found_);
  }

 private:
  void Messages(const Descriptor& before, const Descriptor* now) {
    if (IsGone(before.full_name(), now)) return;
    for (int i = 0; i < before.field_count(); ++i) {
      const FieldDescriptor& field = *before.field(i);
      Fields(field, now->FindFieldByName(field.name()));
    }
    for (int i = 0; i < before.nested_type_count(); ++i) {
      const Descriptor& nested = *before.nested_type(i);
      Messages(nested, now->FindNestedTypeByName(nested.name()));
    }
    for (int i = 0; i < before.enum_type_count(); ++i) {
      const EnumDescriptor& nested = *before.enum_type(i);
      Enums(nested, now->FindEnumTypeByName(nested.name()));
    }
  }

  void Fields(const FieldDescriptor& before, const FieldDescriptor* now) {
    if (IsGone(before.full_name(), now)) return;
    const auto same = [&](std::string_view what, const auto& expected, const auto& got) {
      Same(before.full_name(), what, expected, got);
    };
    same("number", before.number(), now->number());
    same("type", TypeOf(before), TypeOf(*now));
    same("repeated", before.is_repeated(), now->is_repeated());
    same("presence", before.has_presence(), now->has_presence());
    same("oneof", OneofOf(before), OneofOf(*now));
    same("JSON name", before.json_name(), now->json_name());
  }

  void Enums(const EnumDescriptor& before, const EnumDescriptor* now) {
    if (IsGone(before.full_name(), now)) return;
    for (int i = 0; i < before.value_count(); ++i) {
      const auto& value = *before.value(i);
      const auto* const same_name = now->FindValueByName(value.name());
      if (IsGone(value.full_name(), same_name)) continue;
      Same(value.full_name(), "number", value.number(), same_name->number());
    }
  }

  void Services(const ServiceDescriptor& before, const ServiceDescriptor* now) {
    if (IsGone(before.full_name(), now)) return;
    for (int i = 0; i < before.method_count(); ++i) {
      const MethodDescriptor& method = *before.method(i);
      const MethodDescriptor* const same_name = now->FindMethodByName(method.name());
      if (IsGone(method.full_name(), same_name)) continue;
      const auto same = [&](std::string_view what, const auto& expected, const auto& got) {
        Same(method.full_name(), what, expected, got);
      };
      same("request", method.input_type()->full_name(), same_name->input_type()->full_name());
      same("answer", method.output_type()->full_name(), same_name->output_type()->full_name());
      same("stream of requests", method.client_streaming(), same_name->client_streaming());
      same("stream of answers", method.server_streaming(), same_name->server_streaming());
    }
  }

  bool IsGone(const std::string& name, const void* now) {
    if (now == nullptr) found_.push_back(absl::StrCat(name, ": is gone"));
    return now == nullptr;
  }

  template <typename T>
  void Same(const std::string& name, std::string_view what, const T& before, const T& now) {
    if (before == now) return;
    found_.push_back(
        absl::StrCat(name, ": expected ", std::string(what), " ", before, ", got ", now));
  }

  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> BreakingChanges(const FileDescriptor& before, const FileDescriptor& now) {
  return Comparison().Of(before, now);
}

}  // namespace encoderd
