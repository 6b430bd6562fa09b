// flag_parser.h — reads a command line into Abseil flags, reporting every fault at once.
//
// Role:    used in place of absl::ParseCommandLine (which exits at a fault with its own code) by
//          every program of this project; knows no flag by name but its own three.
//
// Forms:   --name=value, --name value, --bool, --nobool, --bool=false; one dash or two;
//          `--` ends the flags. --flagfile=FILE reads more flags, one a line, `#` starts a comment
//          line; --fromenv=a,b sets flags from the environment variables FLAGS_a, FLAGS_b.
//          Where a flag is given twice the later one holds.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace encoderd {

struct ParsedFlags {
  std::vector<std::string> positional;  // in order, without the program's name
  std::vector<std::string> faults;      // one line each; flags without a fault are set all the same
  bool help = false;                    // --help was given
};

// Parses argv[1…] into the flags of this program.
ParsedFlags ParseFlags(int argc, const char* const* argv);

// One block of --help.
struct FlagGroup {
  std::string_view title;
  std::vector<std::string_view> flags;
};

// The flags of the groups with default and help text, laid out for a terminal of 100 columns.
std::string FlagHelp(std::span<const FlagGroup> groups);

}  // namespace encoderd
