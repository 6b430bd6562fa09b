#include "server/flag_parser.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/internal/registry.h"
#include "absl/flags/reflection.h"
#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace encoderd {
namespace {

// Files that name files that name files: more than anyone needs, and an end for those that name
// themselves.
constexpr int kMaxFlagFileDepth = 8;

constexpr size_t kHelpWidth = 100;

absl::CommandLineFlag* Find(std::string_view name) {
  return absl::FindCommandLineFlag(absl::string_view(name.data(), name.size()));
}

// Steps that turn one name into the other: insert, delete or change a letter.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, changed}));
    }
  }
  return row.back();
}

// The flag whose name is nearest, if it is near enough to have been meant.
std::string Nearest(std::string_view name) {
  std::string nearest;
  size_t least = std::min<size_t>(4, name.size() / 2 + 1);
  // GetAllFlags would hand over a hash map of Abseil's, which does not survive AddressSanitizer.
  absl::flags_internal::ForEachFlag([&](absl::CommandLineFlag& flag) {
    const std::string candidate(flag.Name());
    const size_t distance = EditDistance(name, candidate);
    if (distance < least || (distance == least && !nearest.empty() && candidate < nearest)) {
      least = distance;
      nearest = candidate;
    }
  });
  return nearest;
}

std::string_view ExpectedBy(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "true or false";
  if (flag.IsOfType<absl::Duration>()) return "a duration such as 200ms or 5s";
  if (flag.IsOfType<double>() || flag.IsOfType<float>()) return "a number";
  if (flag.IsOfType<int32_t>() || flag.IsOfType<int64_t>()) return "a whole number";
  if (flag.IsOfType<uint32_t>() || flag.IsOfType<uint64_t>()) return "a whole number, 0 or more";
  return "another value";
}

class Parser {
 public:
  ParsedFlags Parse(std::span<const char* const> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string_view argument = arguments[i];
      if (argument == "--") {
        parsed_.positional.insert(parsed_.positional.end(), arguments.begin() + i + 1,
                                  arguments.end());
        break;
      }
      if (!IsFlag(argument)) {
        parsed_.positional.emplace_back(argument);
        continue;
      }
      const bool has_next =
          i + 1 < arguments.size() && !std::string_view(arguments[i + 1]).starts_with("--");
      if (ParseFlag(argument, has_next ? std::optional(arguments[i + 1]) : std::nullopt, "")) ++i;
    }
    return std::move(parsed_);
  }

 private:
  // "-" is a file name by custom, "-5" a number.
  static bool IsFlag(std::string_view argument) {
    return argument.size() > 1 && argument[0] == '-' &&
           !std::isdigit(static_cast<unsigned char>(argument[1]));
  }

  // One flag, and the argument after it in case that is its value: true if it was. `where` says in
  // faults where the flag comes from, "" for the command line.
  bool ParseFlag(std::string_view argument, std::optional<std::string_view> next,
                 const std::string& where) {
    argument.remove_prefix(argument.starts_with("--") ? 2 : 1);
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    std::optional<std::string_view> value;
    if (equals != std::string_view::npos) value = argument.substr(equals + 1);

    if (name == "help" && !value) {
      parsed_.help = true;
      return false;
    }
    if (name == "flagfile" || name == "fromenv") {
      const bool takes_next = !value && next;
      if (takes_next) value = next;
      if (!value) return Fault(name, where, "expected a value, got none");
      for (std::string_view part : Parts(*value)) {
        name == "flagfile" ? ReadFile(std::string(part), where) : ReadEnvironment(part, where);
      }
      return takes_next;
    }

    if (absl::CommandLineFlag* flag = Find(name); flag != nullptr) {
      if (value) return Set(*flag, *value, where);
      if (flag->IsOfType<bool>()) return Set(*flag, "true", where);
      if (!next) return Fault(name, where, "expected a value, got none");
      Set(*flag, *next, where);
      return true;
    }
    if (name.starts_with("no") && !value) {
      absl::CommandLineFlag* flag = Find(name.substr(2));
      if (flag != nullptr && flag->IsOfType<bool>()) return Set(*flag, "false", where);
    }
    const std::string nearest = Nearest(name);
    return Fault(name, where,
                 nearest.empty() ? "no such flag"
                                 : absl::StrCat("no such flag; did you mean --", nearest, "?"));
  }

  static std::vector<std::string_view> Parts(std::string_view list) {
    std::vector<std::string_view> parts;
    for (size_t begin = 0, end = 0; end != std::string_view::npos; begin = end + 1) {
      end = list.find(',', begin);
      parts.push_back(list.substr(begin, end - begin));
    }
    return parts;
  }

  void ReadFile(const std::string& path, const std::string& where) {
    std::ifstream file(path);
    if (!file) return void(Fault("flagfile", where, absl::StrCat("cannot read ", path)));
    if (file_depth_ == kMaxFlagFileDepth) {
      return void(Fault("flagfile", where,
                        absl::StrCat("more than ", kMaxFlagFileDepth, " files deep at ", path)));
    }
    ++file_depth_;
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      const std::string here = absl::StrCat(" (", path, ":", ++number, ")");
      const size_t begin = line.find_first_not_of(" \t\r");
      if (begin == std::string::npos || line[begin] == '#') continue;
      const std::string_view flag =
          std::string_view(line).substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
      if (IsFlag(flag)) {
        ParseFlag(flag, std::nullopt, here);
      } else {
        parsed_.faults.push_back(
            absl::StrCat("expected --name=value, got ", std::string(flag), here));
      }
    }
    --file_depth_;
  }

  void ReadEnvironment(std::string_view name, const std::string& where) {
    const std::string variable = absl::StrCat("FLAGS_", std::string(name));
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) {
      return void(
          Fault("fromenv", where, absl::StrCat(variable, " is not set in the environment")));
    }
    ParseFlag(absl::StrCat("--", std::string(name), "=", value), std::nullopt,
              absl::StrCat(" (environment variable ", variable, ")"));
  }

  // False, as is Fault, so that callers can return it for "the next argument was not used".
  bool Set(absl::CommandLineFlag& flag, std::string_view value, const std::string& where) {
    std::string error;
    if (flag.ParseFrom(absl::string_view(value.data(), value.size()), &error)) return false;
    // What the flag's own type says follows the last "; ", if it says anything.
    const size_t reason = error.rfind("; ");
    return Fault(std::string(flag.Name()), where,
                 absl::StrCat("expected ",
                              reason == std::string::npos ? std::string(ExpectedBy(flag))
                                                          : error.substr(reason + 2),
                              ", got \"", std::string(value), "\""));
  }

  bool Fault(std::string_view name, const std::string& where, const std::string& what) {
    parsed_.faults.push_back(absl::StrCat("--", std::string(name), ": ", what, where));
    return false;
  }

  ParsedFlags parsed_;
  int file_depth_ = 0;
};

// The text in lines of at most kHelpWidth, each indented.
std::string Wrap(const std::string& text, const std::string& indent) {
  std::string wrapped, line;
  for (absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() > kHelpWidth) {
      absl::StrAppend(&wrapped, indent, line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  if (!line.empty()) absl::StrAppend(&wrapped, indent, line, "\n");
  return wrapped;
}

}  // namespace

ParsedFlags ParseFlags(int argc, const char* const* argv) {
  const auto all = std::span(argv, static_cast<size_t>(argc));
  return Parser().Parse(all.subspan(all.empty() ? 0 : 1));
}

std::string FlagHelp(std::span<const FlagGroup> groups) {
  std::string help;
  for (const FlagGroup& group : groups) {
    absl::StrAppend(&help, help.empty() ? "" : "\n", std::string(group.title), ":\n");
    for (std::string_view name : group.flags) {
      const absl::CommandLineFlag* flag = Find(name);
      CHECK(flag != nullptr) << "no flag " << std::string(name);
      const std::string value = flag->DefaultValue();
      absl::StrAppend(&help, "  --", std::string(name),
                      " (default: ", value.empty() ? "none" : value, ")\n",
                      Wrap(flag->Help(), "      "));
    }
  }
  return help;
}

}  // namespace encoderd
