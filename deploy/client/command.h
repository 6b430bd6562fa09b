// command.h — the subcommands of encoderctl.
#pragma once

#include <istream>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/client/failure.h"
#include "server/flag_parser.h"

namespace encoderd::client {

// What a command reads and writes besides its flags.
struct Streams {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
};

struct Command {
  std::string_view name;
  std::string_view arguments;    // "[SEQUENCE]...", for the usage line
  std::string_view summary;      // one line, without a full stop
  std::string_view help;         // paragraphs and examples
  std::vector<FlagGroup> flags;  // all that it reads
  bool takes_arguments = false;
  // Runs after the flags are set. An error is printed by the caller, who exits with ExitCodeFor().
  absl::StatusOr<ExitCode> (*run)(std::span<const std::string> arguments, Streams streams);
};

const Command& InfoCommand();       // info_command.cc
const Command& EncodeCommand();     // encode_command.cc
const Command& AttentionCommand();  // attention_command.cc
const Command& LoadCommand();       // load/load_command.cc
const Command& HealthCommand();     // health_command.cc

// The whole program: `arguments` without the program's name.
ExitCode RunEncoderctl(std::span<const std::string> arguments, Streams streams);

}  // namespace encoderd::client
