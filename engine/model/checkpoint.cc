#include "engine/model/checkpoint.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/io/json.h"
#include "engine/model/faults.h"
#include "engine/model/tensor_names.h"
#include "engine/status_macros.h"
#include "engine/tensor/data_type.h"
#include "engine/tensor/shape.h"

namespace encoderd {
namespace {

using Part = ExpectedTensor::Part;

// What is wrong with the file's tensor, or nothing.
std::optional<std::string> Mismatch(const TensorEntry& entry, const ExpectedTensor& expected) {
  const std::string name = absl::StrCat("tensor \"", Printable(entry.name), "\"");
  std::vector<int64_t> shape = entry.shape;
  if (expected.more_rows && !shape.empty()) shape[0] = std::min(shape[0], expected.shape[0]);
  if (shape != expected.shape) {
    return absl::StrCat(name, ": expected shape ", ShapeText(expected.shape),
                        expected.more_rows ? " or more rows" : "", ", got ",
                        Printable(ShapeText(entry.shape)));
  }
  if (!DataTypeFromSafetensors(entry.dtype).has_value()) {
    return absl::StrCat(name, ": expected dtype F32, F16, BF16 or F64, got ",
                        Printable(entry.dtype));
  }
  return std::nullopt;
}

// The part of the file's tensor that the spec has: all of it, or its first rows.
TensorEntry FirstRows(TensorEntry entry, const ExpectedTensor& expected) {
  const int64_t rows = entry.shape[0];
  if (rows == expected.shape[0]) return entry;
  const uint64_t row_bytes = entry.bytes() / static_cast<uint64_t>(rows);
  entry.elements = entry.elements / rows * expected.shape[0];
  entry.end = entry.begin + row_bytes * static_cast<uint64_t>(expected.shape[0]);
  entry.shape = expected.shape;
  return entry;
}

// Takes the optional parts of which the file has no tensor at all out of the spec and the list. A
// part of which it has some stays, and what is missing of it is an error.
void DropAbsentParts(const TensorNameFinder& finder, const NamePrefixes& prefixes,
                     std::vector<ExpectedTensor>& expected, EncoderSpec& spec) {
  for (const Part part : {Part::kPooler, Part::kFinalNorm}) {
    const bool present =
        std::any_of(expected.begin(), expected.end(), [&](const ExpectedTensor& tensor) {
          return tensor.part == part && !finder.Find(prefixes.Of(tensor), tensor.name).empty();
        });
    if (present) continue;
    const auto dropped = std::erase_if(
        expected, [part](const ExpectedTensor& tensor) { return tensor.part == part; });
    if (dropped == 0) continue;
    if (part == Part::kPooler) {
      spec.pooler.clear();
      spec.pooler_optional = false;
    } else {
      spec.final_norm = {};
      spec.final_norm_optional = false;
    }
  }
}

using Found = std::vector<const TensorEntry*>;

std::set<std::string> NamesOf(const std::vector<Found>& found) {
  std::set<std::string> names;
  for (const Found& entries : found) {
    for (const TensorEntry* entry : entries) names.insert(entry->name);
  }
  return names;
}

// A fault about a tensor that the file lacks, with the names that may have been meant: those that
// look alike and belong to no other tensor of the spec.
void AddMissing(const TensorNameFinder& finder, const std::vector<Found>& found,
                const std::string& name, Faults& faults) {
  std::string text = absl::StrCat("tensor \"", Printable(name), "\" is missing");
  // Looking for neighbours takes time, and only the faults that are listed can show them.
  if (faults.size() < Faults::kMaxListed) {
    const std::vector<std::string> nearest = finder.Nearest(name, NamesOf(found));
    if (!nearest.empty()) {
      absl::StrAppend(&text, "; the file has \"", absl::StrJoin(nearest, "\", \""), "\"");
    }
  }
  faults.Add(std::move(text));
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Resolve(WeightFiles files, EncoderSpec* spec, bool strict) {
  Checkpoint checkpoint(std::move(files));
  const std::string& path = checkpoint.files_.path();
  const TensorNameFinder finder(checkpoint.files_, spec->aliases, spec->ties);
  std::vector<ExpectedTensor> expected = ExpectedTensors(*spec);
  const absl::StatusOr<NamePrefixes> prefixes = finder.FindPrefixes(expected);
  if (!prefixes.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", prefixes.status().message()));
  }
  DropAbsentParts(finder, *prefixes, expected, *spec);
  std::vector<Found> found;
  for (const ExpectedTensor& tensor : expected) {
    found.push_back(finder.Find(prefixes->Of(tensor), tensor.name));
  }

  Faults faults;
  for (size_t i = 0; i < expected.size(); ++i) {
    const ExpectedTensor& tensor = expected[i];
    if (found[i].empty()) {
      AddMissing(finder, found, prefixes->Of(tensor) + tensor.name, faults);
    } else if (found[i].size() > 1) {
      faults.Add(absl::StrFormat("tensors \"%s\" and \"%s\" are two spellings of one; expected one",
                                 Printable(found[i][0]->name), Printable(found[i][1]->name)));
    } else if (std::optional<std::string> mismatch = Mismatch(*found[i][0], tensor)) {
      faults.Add(*std::move(mismatch));
    } else {
      checkpoint.tensors_.emplace(tensor.name, FirstRows(*found[i][0], tensor));
    }
  }
  if (spec->default_pooling == Pooling::kPooler && spec->pooler.empty()) {
    faults.Add("the folder's vectors come from the pooler, which the file does not have");
  }
  checkpoint.ListNames(NamesOf(found), spec->harmless);
  for (const std::string& name : checkpoint.unused_) {
    if (!strict) break;
    faults.Add(absl::StrCat("tensor \"", Printable(name),
                            "\" is not used by the model; expected none such under --strict"));
  }
  RETURN_IF_ERROR(faults.ToStatus(path));
  checkpoint.CountParameters();
  return checkpoint;
}

void Checkpoint::ListNames(const std::set<std::string>& wanted,
                           const std::vector<std::string>& harmless_endings) {
  for (const TensorEntry& entry : files_.tensors()) {
    const bool harmless = std::any_of(
        harmless_endings.begin(), harmless_endings.end(),
        [&entry](const std::string& ending) { return EndsWithPart(entry.name, ending); });
    (wanted.contains(entry.name) ? used_ : harmless ? harmless_ : unused_).push_back(entry.name);
  }
}

void Checkpoint::CountParameters() {
  std::map<std::string, int64_t> elements;  // by the files' names
  for (const auto& [name, entry] : tensors_) elements.emplace(entry.name, entry.elements);
  for (const auto& [name, count] : elements) parameters_ += count;
}

absl::StatusOr<TensorEntry> Checkpoint::Entry(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  return absl::NotFoundError(
      absl::StrFormat("%s: the model has no tensor \"%s\"", files_.path(), Printable(name)));
}

absl::StatusOr<Buffer> Checkpoint::Read(std::string_view name) const {
  ASSIGN_OR_RETURN(const TensorEntry entry, Entry(name));
  ASSIGN_OR_RETURN(Buffer buffer,
                   Buffer::Allocate(static_cast<size_t>(entry.elements) * sizeof(float), name));
  RETURN_IF_ERROR(files_.ReadFp32(entry, buffer.floats()));
  return buffer;
}

absl::Status Checkpoint::ReadInto(std::string_view name, std::span<float> dst) const {
  ASSIGN_OR_RETURN(const TensorEntry entry, Entry(name));
  return files_.ReadFp32(entry, dst);
}

}  // namespace encoderd
