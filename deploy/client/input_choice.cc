#include "deploy/client/input_choice.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "deploy/client/sequence_reader.h"

ABSL_FLAG(
    std::string, input, "",
    "file with one sequence per line, - for standard input; read when no sequence is given as "
    "argument");
ABSL_FLAG(int, one_hot, 0,
          "send each id as a vector of this many numbers, all 0 but for a 1 at the id, for models "
          "that take vectors; 0 = send ids");

namespace encoderd::client {

absl::StatusOr<std::vector<v1::Sequence>> SequencesFromFlags(std::span<const std::string> arguments,
                                                             std::istream& standard_input) {
  return ReadSequences(arguments, absl::GetFlag(FLAGS_input), standard_input);
}

absl::Status ApplyOneHotFlag(v1::Sequence& sequence) {
  const int width = absl::GetFlag(FLAGS_one_hot);
  if (width == 0) return absl::OkStatus();
  // 65536: far above any input_dim, and a bound for what a slip of the finger allocates.
  if (width < 0 || width > 65536) {
    return absl::InvalidArgumentError(absl::StrCat("--one_hot: expected 0..65536, got ", width));
  }
  return MakeOneHot(width, sequence);
}

}  // namespace encoderd::client
