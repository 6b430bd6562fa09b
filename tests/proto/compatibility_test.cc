// Goal:   no program that was built against the last release is failed by a change of the .proto.
// Method: the release's own descriptor (released/) against the one that is compiled in; and, for
//         every kind of breaking change, that the comparison finds it in a descriptor that has it.
//
// With a new release its descriptor takes the place of the old one:
//   protoc -I proto --descriptor_set_out=tests/proto/released/encoder.binpb encoderd/v1/encoder.proto
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "encoderd/v1/encoder.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/proto/breaking_changes.h"

namespace encoderd {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::DescriptorProto;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using testing::ElementsAreArray;
using testing::IsEmpty;

FileDescriptorProto LastRelease() {
  std::ifstream file(ENCODERD_SOURCE_DIR "/tests/proto/released/encoder.binpb", std::ios::binary);
  FileDescriptorSet set;
  EXPECT_TRUE(set.ParseFromIstream(&file));
  EXPECT_EQ(set.file_size(), 1);
  return set.file(0);
}

// A descriptor with what it refers to.
class Built {
 public:
  explicit Built(const FileDescriptorProto& file) : file_(pool_.BuildFile(file)) {}
  const FileDescriptor& operator*() const { return *file_; }

 private:
  DescriptorPool pool_;
  const FileDescriptor* file_;
};

DescriptorProto& MessageOf(FileDescriptorProto& file, const std::string& name) {
  for (DescriptorProto& message : *file.mutable_message_type()) {
    if (message.name() == name) return message;
  }
  ADD_FAILURE() << "no message " << name;
  return *file.add_message_type();
}

FieldDescriptorProto& FieldOf(FileDescriptorProto& file, const std::string& message,
                              const std::string& name) {
  for (FieldDescriptorProto& field : *MessageOf(file, message).mutable_field()) {
    if (field.name() == name) return field;
  }
  ADD_FAILURE() << "no field " << message << "." << name;
  return *MessageOf(file, message).add_field();
}

TEST(CompatibilityTest, ProgramsOfTheLastReleaseKeepWorking) {
  const Built released(LastRelease());
  EXPECT_THAT(BreakingChanges(*released, *v1::EncodeRequest::descriptor()->file()), IsEmpty());
}

TEST(CompatibilityTest, AdditionsBreakNothing) {
  FileDescriptorProto now = LastRelease();
  FieldDescriptorProto& field = *MessageOf(now, "Span").add_field();
  field.set_name("label");
  field.set_number(100);
  field.set_type(FieldDescriptorProto::TYPE_STRING);
  field.set_label(FieldDescriptorProto::LABEL_OPTIONAL);
  now.add_message_type()->set_name("Added");
  auto& value = *now.mutable_enum_type(0)->add_value();
  value.set_name("DATA_TYPE_ADDED");
  value.set_number(100);
  EXPECT_THAT(BreakingChanges(*Built(LastRelease()), *Built(now)), IsEmpty());
}

struct Break {
  std::string name;
  std::function<void(FileDescriptorProto&)> change;
  std::vector<std::string> found;
};

class BreakTest : public testing::TestWithParam<Break> {};

TEST_P(BreakTest, IsFound) {
  FileDescriptorProto now = LastRelease();
  GetParam().change(now);
  EXPECT_THAT(BreakingChanges(*Built(LastRelease()), *Built(now)),
              ElementsAreArray(GetParam().found));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BreakTest,
    testing::Values(
        Break{"NumberOfAField",
              [](FileDescriptorProto& file) { FieldOf(file, "Span", "end").set_number(9); },
              {"encoderd.v1.Span.end: expected number 2, got 9"}},
        Break{"TypeOfAField",
              [](FileDescriptorProto& file) {
                FieldOf(file, "Span", "end").set_type(FieldDescriptorProto::TYPE_UINT64);
              },
              {"encoderd.v1.Span.end: expected type uint32, got uint64"}},
        Break{"MessageOfAField",
              [](FileDescriptorProto& file) {
                FieldOf(file, "Sequence", "spans").set_type_name(".encoderd.v1.Mask");
              },
              {"encoderd.v1.Sequence.spans: expected type encoderd.v1.Span, got encoderd.v1.Mask"}},
        Break{"OneInsteadOfMany",
              [](FileDescriptorProto& file) {
                FieldOf(file, "Tensor", "shape").set_label(FieldDescriptorProto::LABEL_OPTIONAL);
              },
              {"encoderd.v1.Tensor.shape: expected repeated 1, got 0"}},
        Break{"Presence",
              [](FileDescriptorProto& file) {
                FieldDescriptorProto& field = FieldOf(file, "PoolingSpec", "layer");
                // The wrapper is the last one of the message, and stays as a wrapper of the other.
                field.clear_proto3_optional();
                field.clear_oneof_index();
                auto& oneofs = *MessageOf(file, "PoolingSpec").mutable_oneof_decl();
                oneofs.RemoveLast();
              },
              {"encoderd.v1.PoolingSpec.layer: expected presence 1, got 0"}},
        Break{"AFieldWithoutItsName",
              [](FileDescriptorProto& file) {
                FieldOf(file, "Span", "end").set_name("last");
                FieldOf(file, "Span", "last").set_json_name("last");
              },
              {"encoderd.v1.Span.end: is gone"}},
        Break{"JsonName",
              [](FileDescriptorProto& file) { FieldOf(file, "Span", "end").set_json_name("last"); },
              {"encoderd.v1.Span.end: expected JSON name end, got last"}},
        Break{"AMessage",
              [](FileDescriptorProto& file) {
                FieldOf(file, "Sequence", "spans").set_type_name(".encoderd.v1.Range");
                MessageOf(file, "Span").set_name("Range");
              },
              {"encoderd.v1.Sequence.spans: expected type encoderd.v1.Span, got encoderd.v1.Range",
               "encoderd.v1.Span: is gone"}},
        Break{"NumberOfAValue",
              [](FileDescriptorProto& file) {
                file.mutable_enum_type(0)->mutable_value(1)->set_number(9);
              },
              {"encoderd.v1.DATA_TYPE_FP32: expected number 1, got 9"}},
        Break{"AValue",
              [](FileDescriptorProto& file) {
                file.mutable_enum_type(0)->mutable_value()->DeleteSubrange(1, 1);
              },
              {"encoderd.v1.DATA_TYPE_FP32: is gone"}},
        Break{"AMethod",
              [](FileDescriptorProto& file) {
                file.mutable_service(0)->mutable_method()->DeleteSubrange(0, 1);
              },
              {"encoderd.v1.EncoderService.Encode: is gone"}},
        Break{"AnswerOfAMethod",
              [](FileDescriptorProto& file) {
                file.mutable_service(0)->mutable_method(0)->set_output_type(
                    ".encoderd.v1.EncodeChunk");
              },
              {"encoderd.v1.EncoderService.Encode: expected answer encoderd.v1.EncodeResponse, got "
               "encoderd.v1.EncodeChunk"}},
        Break{"AStream",
              [](FileDescriptorProto& file) {
                file.mutable_service(0)->mutable_method(0)->set_server_streaming(true);
              },
              {"encoderd.v1.EncoderService.Encode: expected stream of answers 0, got 1"}},
        Break{"AOneof",
              [](FileDescriptorProto& file) {
                FieldOf(file, "EncodeChunk", "timing").clear_oneof_index();
              },
              {"encoderd.v1.EncodeChunk.timing: expected oneof part, got none"}},
        Break{"AService",
              [](FileDescriptorProto& file) { file.mutable_service(0)->set_name("Encoders"); },
              {"encoderd.v1.EncoderService: is gone"}}),
    [](const testing::TestParamInfo<Break>& one) { return one.param.name; });

}  // namespace
}  // namespace encoderd
