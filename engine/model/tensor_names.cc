#include "engine/model/tensor_names.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/io/json.h"
#include "engine/model/edit_distance.h"

namespace encoderd {
namespace {

using Group = std::vector<const ExpectedTensor*>;

}  // namespace

bool EndsWithPart(const std::string& name, const std::string& ending) {
  return absl::EndsWith(name, ending) &&
         (name.size() == ending.size() || name[name.size() - ending.size() - 1] == '.');
}

TensorNameFinder::TensorNameFinder(const WeightFiles& files,
                                   const std::vector<SuffixAlias>& aliases,
                                   const std::vector<Tie>& ties)
    : files_(files), aliases_(aliases), ties_(ties) {}

std::vector<std::string> TensorNameFinder::Spellings(const std::string& name) const {
  std::vector<std::string> spellings = {name};
  for (const SuffixAlias& alias : aliases_) {
    if (!EndsWithPart(name, alias.from)) continue;
    spellings.push_back(name.substr(0, name.size() - alias.from.size()) + alias.to);
  }
  return spellings;
}

std::vector<const TensorEntry*> TensorNameFinder::Find(const std::string& prefix,
                                                       const std::string& name) const {
  std::vector<const TensorEntry*> found = FindUntied(prefix, name);
  for (const Tie& tie : ties_) {
    if (!found.empty()) break;
    if (tie.tensor == name) found = FindUntied(prefix, tie.same_as);
    if (tie.same_as == name) found = FindUntied(prefix, tie.tensor);
  }
  return found;
}

std::vector<const TensorEntry*> TensorNameFinder::FindUntied(const std::string& prefix,
                                                             const std::string& name) const {
  std::vector<const TensorEntry*> found;
  for (const std::string& spelling : Spellings(name)) {
    if (const TensorEntry* entry = files_.Find(prefix + spelling)) found.push_back(entry);
  }
  return found;
}

size_t TensorNameFinder::CountFound(const std::string& prefix, const Group& group) const {
  return static_cast<size_t>(std::count_if(
      group.begin(), group.end(),
      [&](const ExpectedTensor* tensor) { return !Find(prefix, tensor->name).empty(); }));
}

// Whatever stands in the file before the name of one of the group's tensors.
std::vector<std::string> TensorNameFinder::Candidates(const Group& group) const {
  // The first block's names are enough to find a prefix by, and few enough for a file with a
  // million tensors.
  std::vector<std::string> anchors;
  for (const ExpectedTensor* tensor : group) {
    if (tensor->layer > 0) break;
    for (std::string& spelling : Spellings(tensor->name)) anchors.push_back(std::move(spelling));
  }
  std::map<std::string, size_t> seen;
  for (const TensorEntry& entry : files_.tensors()) {
    for (const std::string& anchor : anchors) {
      if (EndsWithPart(entry.name, anchor)) {
        ++seen[entry.name.substr(0, entry.name.size() - anchor.size())];
      }
    }
  }
  // Those seen most, so that a file of a million wrappers takes no longer.
  std::vector<std::pair<std::string, size_t>> ranked(seen.begin(), seen.end());
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return std::make_tuple(b.second, a.first.size()) < std::make_tuple(a.second, b.first.size());
  });
  constexpr size_t kMaxCandidates = 16;
  if (ranked.size() > kMaxCandidates) ranked.resize(kMaxCandidates);
  std::vector<std::string> candidates;
  for (auto& [prefix, count] : ranked) candidates.push_back(std::move(prefix));
  return candidates;
}

absl::StatusOr<NamePrefixes> TensorNameFinder::FindPrefixes(
    const std::vector<ExpectedTensor>& expected) const {
  Group outside, blocks;
  for (const ExpectedTensor& tensor : expected) {
    if (tensor.part != ExpectedTensor::Part::kRequired) continue;
    (tensor.layer < 0 ? outside : blocks).push_back(&tensor);
  }
  std::vector<std::string> outside_candidates = Candidates(outside);
  std::vector<std::string> block_candidates = Candidates(blocks);
  if (outside.empty()) outside_candidates = block_candidates;

  // Rank every pair that nests: the most tensors found, then one common prefix, then none.
  using Rank = std::tuple<size_t, bool, bool>;
  std::map<Rank, std::vector<NamePrefixes>> ranked;
  ranked[Rank{}] = {NamePrefixes{}};
  for (const std::string& outer : outside_candidates) {
    const size_t found_outside = CountFound(outer, outside);
    for (const std::string& inner : block_candidates) {
      if (!absl::StartsWith(inner, outer)) continue;
      const Rank rank = {found_outside + CountFound(inner, blocks), inner == outer, inner.empty()};
      ranked[rank].push_back({outer, inner});
    }
  }
  const auto& [rank, best] = *ranked.rbegin();
  const bool complete = std::get<0>(rank) == outside.size() + blocks.size();
  if (!complete || best.size() == 1) return best.front();
  const auto quoted = [](std::string* out, const NamePrefixes& prefixes) {
    absl::StrAppend(out, "\"", Printable(prefixes.blocks), "\"");
  };
  return absl::InvalidArgumentError(
      absl::StrCat("the file holds this encoder ", best.size(), " times, under the prefixes ",
                   absl::StrJoin(best, " and ", quoted), "; expected it once"));
}

std::vector<std::string> TensorNameFinder::Nearest(const std::string& name,
                                                   const std::set<std::string>& taken) const {
  // Names of which more than a quarter differs are no help.
  const size_t limit = name.size() / 4;
  // A file of millions of long names that all look alike must not take minutes to refuse; 10^8
  // steps are a fraction of a second, and a thousand times what an encoder's names take.
  size_t steps_left = 100'000'000;
  std::set<std::pair<size_t, std::string>> nearest;
  for (const TensorEntry& entry : files_.tensors()) {
    const size_t longer = std::max(entry.name.size(), name.size());
    if (longer - std::min(entry.name.size(), name.size()) > limit) continue;
    if (taken.contains(entry.name) || WeightFiles::IsUnread(entry)) continue;
    const size_t steps = entry.name.size() * name.size();
    if (steps > steps_left) break;
    steps_left -= steps;
    const size_t distance = EditDistance(entry.name, name);
    if (distance <= limit) nearest.emplace(distance, entry.name);
    if (nearest.size() > 3) nearest.erase(std::prev(nearest.end()));
  }
  std::vector<std::string> names;
  for (const auto& [distance, near] : nearest) names.push_back(Printable(near));
  return names;
}

}  // namespace encoderd
