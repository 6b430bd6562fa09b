// signals.h — SIGTERM and SIGINT as something to wait for.
//
// Role:    made by main before any thread: threads inherit the blocked signals, so that one thread
//          alone receives them, where any code may run.
#pragma once

namespace encoderd {

class Signals {
 public:
  // Blocks SIGTERM, SIGINT and the signal of Wake in this thread and those it starts.
  Signals();

  // Waits for SIGTERM or SIGINT (true), or for Wake (false).
  bool Wait() const;

  // Has Wait return. From any thread.
  void Wake() const;

  // From now on SIGTERM and SIGINT end the process at once, with exit code 128 + the signal.
  void EndAtNext() const;
};

}  // namespace encoderd
