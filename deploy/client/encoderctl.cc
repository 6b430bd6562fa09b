#include <algorithm>
#include <array>

#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/client/command.h"

namespace encoderd::client {
namespace {

constexpr std::string_view kExitCodes =
    R"(Exit codes:
  0   done
  1   health: the service is known and does not serve
  64  the command line or the input is wrong, or the model cannot give what was asked
  69  the server cannot be reached, is loading, or is draining
  70  a failure of the server, or a malformed answer
  73  a file cannot be written
  75  overload, or the time is up: try again
  77  a key is missing or wrong, or its owner may not call
)";

std::span<const Command* const> Commands() {
  static const std::array commands = {&InfoCommand(), &EncodeCommand(), &AttentionCommand(),
                                      &LoadCommand(), &HealthCommand()};
  return commands;
}

std::string Overview() {
  std::string text =
      "encoderctl talks to encoderd, the transformer-encoder inference server.\n\n"
      "usage: encoderctl COMMAND [ARGUMENT]... [--FLAG=VALUE]...\n\nCommands:\n";
  for (const Command* command : Commands()) {
    absl::StrAppendFormat(&text, "  %-10s %s\n", std::string(command->name),
                          std::string(command->summary));
  }
  return absl::StrCat(text, "\n`encoderctl COMMAND --help` explains a command with examples.\n\n",
                      std::string(kExitCodes));
}

std::string Help(const Command& command) {
  return absl::StrFormat(
      "encoderctl %s: %s\n\nusage: encoderctl %s %s [--FLAG=VALUE]...\n\n%s\n%s\n%s",
      std::string(command.name), std::string(command.summary), std::string(command.name),
      std::string(command.arguments), std::string(command.help), FlagHelp(command.flags),
      std::string(kExitCodes));
}

bool Reads(const Command& command, std::string_view flag) {
  return std::ranges::any_of(command.flags, [&](const FlagGroup& group) {
    return std::ranges::find(group.flags, flag) != group.flags.end();
  });
}

// A flag that another command reads and this one does not would be ignored without a word.
void FindForeignFlags(const Command& command, std::vector<std::string>& faults) {
  for (const Command* other : Commands()) {
    for (const FlagGroup& group : other->flags) {
      for (const std::string_view name : group.flags) {
        const absl::CommandLineFlag* flag =
            absl::FindCommandLineFlag(absl::string_view(name.data(), name.size()));
        if (Reads(command, name) || flag->CurrentValue() == flag->DefaultValue()) continue;
        const std::string fault =
            absl::StrCat("--", std::string(name), ": not a flag of ", std::string(command.name));
        if (std::ranges::find(faults, fault) == faults.end()) faults.push_back(fault);
      }
    }
  }
}

ExitCode RefuseUsage(std::span<const std::string> faults, std::string_view see, Streams streams) {
  for (const std::string& fault : faults) streams.err << "encoderctl: " << fault << "\n";
  streams.err << "see `" << see << "`\n";
  return kExitUsage;
}

}  // namespace

ExitCode RunEncoderctl(std::span<const std::string> arguments, Streams streams) {
  std::vector<const char*> argv = {"encoderctl"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  ParsedFlags parsed = ParseFlags(static_cast<int>(argv.size()), argv.data());
  if (parsed.positional.empty()) {
    if (parsed.help) {
      streams.out << Overview();
      return kExitOk;
    }
    parsed.faults.emplace_back("expected a command, got none");
    return RefuseUsage(parsed.faults, "encoderctl --help", streams);
  }
  const std::string name = parsed.positional.front();
  const auto found =
      std::ranges::find(Commands(), name, [](auto* command) { return command->name; });
  if (found == Commands().end()) {
    parsed.faults.push_back(
        absl::StrCat("expected a command: info, encode, attention, load or health, got ", name));
    return RefuseUsage(parsed.faults, "encoderctl --help", streams);
  }
  const Command& command = **found;
  if (parsed.help) {
    streams.out << Help(command);
    return kExitOk;
  }
  const std::span<const std::string> rest = std::span(parsed.positional).subspan(1);
  FindForeignFlags(command, parsed.faults);
  if (!rest.empty() && !command.takes_arguments) {
    parsed.faults.push_back(absl::StrCat(name, ": expected no argument, got ", rest.front()));
  }
  if (!parsed.faults.empty()) {
    return RefuseUsage(parsed.faults, absl::StrCat("encoderctl ", name, " --help"), streams);
  }

  const absl::StatusOr<ExitCode> code = command.run(rest, streams);
  if (code.ok()) return *code;
  streams.err << "encoderctl " << name << ": " << absl::StatusCodeToString(code.status().code())
              << ": " << std::string(code.status().message()) << "\n";
  return ExitCodeFor(code.status());
}

}  // namespace encoderd::client
