// trace_context.h — W3C Trace Context: the span of a trace that the header `traceparent` names.
//
// Source: https://www.w3.org/TR/trace-context-1/ (level 1), sections 3.2 (the header) and 4.3
//         (versions that are newer than 00). `tracestate` says something to whoever is called in
//         turn; the server calls nobody, so it neither reads nor passes it on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace encoderd {

struct Traceparent {
  // Nothing for a text that is not exactly what the specification says: the trace is to begin anew
  // then. Of a version above 00, which may go on behind them, the fields that 00 has.
  static std::optional<Traceparent> Parse(std::string_view text);

  // As version 00, with the one flag that it defines.
  std::string ToString() const;

  std::string trace_id;  // 32 lower-case hex digits, not all 0
  std::string span_id;   // 16, not all 0; the specification's parent-id
  bool sampled = false;  // the caller may have recorded the trace
};

// 16 random lower-case hex digits, not all 0: the id of a span, or of a call.
std::string RandomId();

}  // namespace encoderd
