// breaking_changes.h — what in a .proto would fail programs that were built against an older one.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace encoderd {

// One line for each: "encoderd.v1.Span.end: expected number 2, got 3". Everything of `before` must
// still be there under its name, its number and its type: names are those of generated code and of
// JSON, numbers and types those of the wire. A removed field breaks even where its number is
// reserved, since the server refuses fields that it does not know. Additions are no changes.
std::vector<std::string> BreakingChanges(const google::protobuf::FileDescriptor& before,
                                         const google::protobuf::FileDescriptor& now);

}  // namespace encoderd
