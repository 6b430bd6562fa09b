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
  if (WeightFiles::IsUnread(entry)) return std::nullopt;
  const std::string name = absl::StrCat("tensor \"", Printable(entry.name), "\"");
  std::vector<int64_t> shape = entry.shape;
  if (expected.more_rows && !shape.empty() && !expected.shape.empty()) {
    shape[0] = std::min(shape[0], expected.shape[0]);
  }
  if (shape != expected.shape && !expected.shape.empty()) {
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

// What the files have of the tensors that are expected.
struct Search {
  std::vector<ExpectedTensor> expected;
  std::vector<Found> found;  // of each
  std::set<Part> absent;     // optional parts that were expected and of which the file has nothing
  Faults faults;
};

// Optional parts of which the file has no tensor at all are not expected. A part of which it has
// some is, and what is missing of it is a fault.
void DropAbsentParts(Search& search) {
  for (const Part part :
       {Part::kPooler, Part::kFinalNorm, Part::kRotaryFrequencies, Part::kContact}) {
    bool expected = false, present = false;
    for (size_t i = 0; i < search.expected.size(); ++i) {
      if (search.expected[i].part != part) continue;
      expected = true;
      present = present || !search.found[i].empty();
    }
    if (expected && !present) search.absent.insert(part);
  }
  std::vector<ExpectedTensor> expected;
  std::vector<Found> found;
  for (size_t i = 0; i < search.expected.size(); ++i) {
    if (search.absent.contains(search.expected[i].part)) continue;
    expected.push_back(std::move(search.expected[i]));
    found.push_back(std::move(search.found[i]));
  }
  search.expected = std::move(expected);
  search.found = std::move(found);
}

// Looks for the tensors under the names that `spec` allows for. Errors: as FindPrefixes.
absl::StatusOr<Search> SearchFor(std::vector<ExpectedTensor> expected, const EncoderSpec& spec,
                                 const WeightFiles& files) {
  const TensorNameFinder finder(files, spec.aliases, spec.ties);
  const absl::StatusOr<NamePrefixes> prefixes = finder.FindPrefixes(expected);
  if (!prefixes.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.path(), ": ", prefixes.status().message()));
  }
  Search search = {.expected = std::move(expected)};
  for (const ExpectedTensor& tensor : search.expected) {
    search.found.push_back(finder.Find(prefixes->Of(tensor), tensor.name));
  }
  DropAbsentParts(search);
  for (size_t i = 0; i < search.expected.size(); ++i) {
    const ExpectedTensor& tensor = search.expected[i];
    const Found& found = search.found[i];
    if (found.empty()) {
      AddMissing(finder, search.found, prefixes->Of(tensor) + tensor.name, search.faults);
    } else if (found.size() > 1) {
      search.faults.Add(
          absl::StrFormat("tensors \"%s\" and \"%s\" are two spellings of one; expected one",
                          Printable(found[0]->name), Printable(found[1]->name)));
    } else if (std::optional<std::string> mismatch = Mismatch(*found[0], tensor)) {
      search.faults.Add(*std::move(mismatch));
    }
  }
  return search;
}

}  // namespace

absl::Status Checkpoint::Judge(const WeightFiles& files, const std::vector<EncoderSpec>& possible) {
  if (possible.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Search search, SearchFor(CommonTensors(possible.front(), possible.back()),
                                                  possible.front(), files));
  return search.faults.ToStatus(files.path());
}

absl::StatusOr<Checkpoint> Checkpoint::Resolve(WeightFiles files, EncoderSpec* spec, bool strict) {
  Checkpoint checkpoint(std::move(files));
  ASSIGN_OR_RETURN(Search search, SearchFor(ExpectedTensors(*spec), *spec, checkpoint.files_));
  if (search.absent.contains(Part::kPooler)) {
    spec->pooler.clear();
    spec->pooler_optional = false;
  }
  if (search.absent.contains(Part::kFinalNorm)) {
    spec->final_norm = {};
    spec->final_norm_optional = spec->final_norm_in_hidden_states = false;
  }
  if (search.absent.contains(Part::kRotaryFrequencies)) spec->rotary_frequencies = {};
  if (search.absent.contains(Part::kContact)) {
    spec->contact = {};
    spec->contact_end_id = -1;
  }
  if (spec->default_pooling == Pooling::kPooler && spec->pooler.empty()) {
    search.faults.Add("the folder's vectors come from the pooler, which the file does not have");
  }
  checkpoint.ListNames(NamesOf(search.found), spec->harmless);
  for (const std::string& name : checkpoint.unused_) {
    if (!strict) break;
    search.faults.Add(absl::StrCat("tensor \"", Printable(name),
                                   "\" is not used by the model; expected none such under "
                                   "--strict"));
  }
  RETURN_IF_ERROR(search.faults.ToStatus(checkpoint.files_.path()));
  for (size_t i = 0; i < search.expected.size(); ++i) {
    const ExpectedTensor& tensor = search.expected[i];
    checkpoint.tensors_.emplace(tensor.name, FirstRows(*search.found[i].front(), tensor));
  }
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
