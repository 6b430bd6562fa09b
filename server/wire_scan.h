// wire_scan.h — what a parse would make of a message, found before it is made.
//
// Role:    protects the parse of untrusted bytes (request_decoder.h). A parser allocates for what the bytes
//          claim: two bytes can become an empty sequence of 200. And it is lenient where this
//          server is not: an int32 field takes a 64-bit number and keeps its lower half (−2⁶³
//          becomes id 0), and an unknown field is dropped together with what it asked for.
// Source:  https://protobuf.dev/programming-guides/encoding; the message's own descriptor says what
//          is legal, so a new field of the .proto needs nothing here.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "engine/validation.h"

namespace encoderd {

// How many elements a repeated field may have in the whole message, over all its parents, and the
// reason of the violation when it has more.
struct ElementLimit {
  int64_t max_elements = 0;
  const char* reason = "";
};
using ElementLimits = std::function<ElementLimit(const google::protobuf::FieldDescriptor& field)>;

// Reads the message without keeping anything of it. Adds a violation for each number that its field
// cannot hold (UNSUPPORTED_VALUE) and each field that the message does not have (UNKNOWN_FIELD).
// The first field with more elements than its limit (TOO_MANY_ELEMENTS) ends the scan. Errors:
// kInvalidArgument when the bytes are not such a message. Cost:   linear in the bytes; memory:
// nothing that grows with them.
absl::Status ScanMessage(const google::protobuf::Descriptor& message,
                         google::protobuf::io::ZeroCopyInputStream& bytes,
                         const ElementLimits& limits, Violations& violations);

}  // namespace encoderd
