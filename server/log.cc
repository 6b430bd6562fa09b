#include "server/log.h"

#include <elf.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/debugging/symbolize.h"
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#include "absl/log/log.h"
#include "absl/log/log_entry.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/mutex.h"

namespace encoderd {
namespace {

// Set once by StartLog and read by signal handlers, hence plain data: the termination log, and the
// line that says which binary the addresses are of.
int termination_fd = -1;
char binary_line[128] = "";

// Only the first reason of an end is the reason.
std::atomic<bool> termination_written = false;

// Async-signal-safe, as write(2) is.
void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written <= 0) return;  // nobody is left to tell
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void WriteTermination(std::string_view text) {
  if (termination_fd >= 0 && !termination_written.exchange(true)) WriteAll(termination_fd, text);
}

// One line per frame, and what is needed to find its source later. Abseil's own stack follows frame
// pointers, which optimised code has none of, so this one follows the unwind tables.
void WriteStack() {
  void* frames[64];
  const int count = backtrace(frames, static_cast<int>(std::size(frames)));
  for (int i = 0; i < count; ++i) {
    char symbol[512] = "(unknown)";
    const char* address = static_cast<const char*>(frames[i]);
    absl::Symbolize(address - 1, symbol, sizeof(symbol));  // the call, not where it returns to
    char line[600];
    absl::SNPrintF(line, sizeof(line), "    @ %p  %s\n", frames[i], symbol);
    WriteAll(STDERR_FILENO, line);
  }
  WriteAll(STDERR_FILENO, binary_line);
}

// Abseil's handler writes the signal to stderr itself, and gives the same in pieces to this
// function, of which the first tells the signal; null at the end.
void OnCrash(const char* text) { text != nullptr ? WriteTermination(text) : WriteStack(); }

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

void AppendEscaped(std::string& out, char c) {
  switch (c) {
    case '\n':
      out += "\\n";
      break;
    case '\t':
      out += "\\t";
      break;
    case '\r':
      out += "\\r";
      break;
    default:
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
  }
}

// What the loader knows of this program.
struct Binary {
  std::string build_id = "unknown";
  uintptr_t loaded_at = 0;
};

// The build id among an ELF segment's notes, elf(5): name size, descriptor size, type, then name
// and descriptor, each padded to 4 bytes.
void FindBuildId(std::span<const char> notes, std::string& build_id) {
  const auto padded = [](size_t bytes) { return (bytes + 3) & ~size_t{3}; };
  while (notes.size() > sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof(header));
    const size_t begin = sizeof(header) + padded(header.n_namesz);
    const size_t end = begin + padded(header.n_descsz);
    if (end > notes.size()) return;
    const std::string_view name(notes.data() + sizeof(header), header.n_namesz);
    if (header.n_type == NT_GNU_BUILD_ID && name == std::string_view("GNU\0", 4)) {
      build_id.clear();
      for (char byte : notes.subspan(begin, header.n_descsz)) {
        absl::StrAppendFormat(&build_id, "%02x", static_cast<unsigned char>(byte));
      }
      return;
    }
    notes = notes.subspan(end);
  }
}

Binary ReadBinary() {
  // The first object that the loader names is the program.
  const auto read_first = [](dl_phdr_info* info, size_t, void* result) {
    Binary& binary = *static_cast<Binary*>(result);
    binary.loaded_at = info->dlpi_addr;
    for (const ElfW(Phdr) & segment : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
      if (segment.p_type != PT_NOTE) continue;
      const char* notes = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
      FindBuildId({notes, segment.p_memsz}, binary.build_id);
    }
    return 1;
  };
  Binary binary;
  dl_iterate_phdr(read_first, &binary);
  return binary;
}

class StderrSink : public absl::LogSink {
 public:
  explicit StderrSink(LogFormat format) : format_(format) {}

  void Send(const absl::LogEntry& entry) override {
    // A fatal entry comes twice, the second time with a stack; the handler of SIGABRT writes that.
    if (!entry.stacktrace().empty()) return;
    const std::string source = absl::StrCat(entry.source_basename(), ":", entry.source_line());
    const absl::string_view message = entry.text_message();
    const std::string line = FormatLogLine(format_, {.time = entry.timestamp(),
                                                     .severity = entry.log_severity(),
                                                     .source = source,
                                                     .message = {message.data(), message.size()}});
    MutexLock lock(mutex_);  // lines that are longer than a pipe takes at once stay whole
    WriteAll(STDERR_FILENO, line);
    if (entry.log_severity() == absl::LogSeverity::kFatal) WriteTermination(line);
  }

 private:
  const LogFormat format_;
  Mutex mutex_;
};

}  // namespace

std::string FormatLogLine(LogFormat format, const LogLine& line) {
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", line.time, absl::UTCTimeZone());
  const char* severity = absl::LogSeverityName(line.severity);
  if (format == LogFormat::kJson) {
    using Json = nlohmann::ordered_json;
    const Json object = {
        {"time", time}, {"severity", severity}, {"source", line.source}, {"message", line.message}};
    return object.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) +
           "\n";
  }
  std::string text = absl::StrCat(time, " ", severity, " ", std::string(line.source), " ");
  for (char c : line.message) {
    IsControl(c) ? AppendEscaped(text, c) : text.push_back(c);
  }
  text += '\n';
  return text;
}

std::string LogValue(std::string_view value) {
  bool plain = !value.empty();
  for (char c : value) plain = plain && !IsControl(c) && c != ' ' && c != '"' && c != '=';
  if (plain) return std::string(value);
  std::string quoted = "\"";
  for (char c : value) {
    if (IsControl(c)) {
      AppendEscaped(quoted, c);
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

void StartLog(const LogOptions& options) {
  static StderrSink* const sink =
      new StderrSink(options.format);  // lives as long as there is a log
  absl::InitializeLog();
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kInfinity);
  absl::AddLogSink(sink);

  if (!options.termination_log.empty()) {
    termination_fd =
        open(options.termination_log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (termination_fd < 0) {
      LOG(WARNING) << "Cannot write the termination log. file=" << LogValue(options.termination_log)
                   << " error=" << LogValue(strerror(errno));
    }
  }
  const Binary binary = ReadBinary();
  absl::SNPrintF(binary_line, sizeof(binary_line), "build_id=%s loaded_at=0x%x\n", binary.build_id,
                 binary.loaded_at);
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads the unwinder, which a crashed process could not
  absl::InitializeSymbolizer("/proc/self/exe");
  absl::InstallFailureSignalHandler({.writerfn = OnCrash});
}

void LogExit(std::string_view message) {
  LOG(ERROR) << std::string(message);
  WriteTermination(absl::StrCat(std::string(message), "\n"));
}

std::string BuildId() { return ReadBinary().build_id; }

}  // namespace encoderd
