#include "engine/model/tensor_list.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace encoderd {
namespace {

using Part = ExpectedTensor::Part;

class TensorList {
 public:
  explicit TensorList(const EncoderSpec& spec) : spec_(spec) {
    AddInput();
    for (layer_ = 0; layer_ < spec.num_groups(); ++layer_) AddBlock();
    layer_ = -1;
    Add(spec.relative_bias.weight, {spec.bias_buckets, spec.num_heads});
    Add(spec.relative_embedding.weight, {spec.relative_rows(), spec.hidden_size});
    AddNorm(spec.relative_embedding_norm, spec.hidden_size);
    part_ = Part::kRotaryFrequencies;
    Add(spec.rotary_frequencies.weight, {spec.rotary_width / 2});
    part_ = spec.final_norm_optional ? Part::kFinalNorm : Part::kRequired;
    AddNorm(spec.final_norm, spec.hidden_size);
    part_ = Part::kRequired;
    AddSteps(spec.logits, spec.hidden_size);
    AddSteps(spec.classifier, spec.hidden_size);
    part_ = spec.pooler_optional ? Part::kPooler : Part::kRequired;
    AddSteps(spec.pooler, spec.hidden_size);
    part_ = Part::kContact;
    AddLinear(spec.contact, 1, spec.num_layers * spec.num_heads);
    part_ = Part::kProjection;
    AddSteps(spec.projection, spec.hidden_size);
  }

  std::vector<ExpectedTensor> Take() { return std::move(list_); }

 private:
  void AddInput() {
    const int64_t width = spec_.table_width();
    Add(spec_.word_embedding.weight, {spec_.vocab_size, spec_.input_size()});
    // Ids end at vocab_size, so a table that was padded to a round number loses nothing.
    if (!list_.empty()) list_.back().more_rows = true;
    AddSteps(spec_.input_steps, spec_.input_size());
    Add(spec_.position_embedding.weight, {spec_.position_rows(), width});
    Add(spec_.type_embedding.weight, {spec_.type_vocab_size, width});
    AddNorm(spec_.embedding_norm, width);
    AddSteps(spec_.embedding_steps, width);
  }

  void AddBlock() {
    const int64_t hidden = spec_.hidden_size;
    const int64_t input = spec_.hidden_width(layer_);
    switch (spec_.qkv) {
      case QkvLayout::kFused:
      case QkvLayout::kFusedByHead:
        AddLinear(spec_.fused_qkv, 3 * hidden, input);
        break;
      case QkvLayout::kSeparate:
        for (const TensorNames* names : {&spec_.query, &spec_.key, &spec_.value}) {
          AddLinear(*names, hidden, input);
        }
        break;
      case QkvLayout::kSharedByHeads:
        for (const TensorNames* names : {&spec_.query, &spec_.key, &spec_.value}) {
          AddLinear(*names, spec_.head_dim(), spec_.head_dim());
        }
        break;
    }
    AddLinear(spec_.position_key, hidden, hidden);
    AddLinear(spec_.position_query, hidden, hidden);
    AddLinear(spec_.attention_output, hidden, hidden);
    if (layer_ > 0 || spec_.first_norm1) AddNorm(spec_.norm1, hidden);
    AddLinear(spec_.ffn_in, spec_.ffn_in_size(), hidden);
    AddLinear(spec_.ffn_gate, spec_.ffn_size, hidden);
    AddLinear(spec_.ffn_out, hidden, spec_.ffn_size);
    AddNorm(spec_.norm2, hidden);
  }

  void AddSteps(const std::vector<Step>& steps, int64_t width) {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::kNorm) {
        AddNorm(step.names, width);
      } else {
        AddLinear(step.names, step.out, width);
      }
      width = step.out;
    }
  }

  void AddLinear(const TensorNames& names, int64_t out, int64_t in) {
    Add(names.weight, {out, in});
    Add(names.bias, {out});
  }

  void AddNorm(const TensorNames& names, int64_t width) {
    Add(names.weight, {width});
    Add(names.bias, {width});
  }

  bool IsTied(const std::string& name) const {
    return std::ranges::any_of(
        spec_.ties, [&name](const Tie& tie) { return tie.tensor == name || tie.same_as == name; });
  }

  void Add(const std::string& pattern, std::vector<int64_t> shape) {
    if (pattern.empty()) return;
    list_.push_back({.name = LayerName(pattern, layer_),
                     .shape = std::move(shape),
                     // The tensor may be the table, whose further rows no id reaches.
                     .more_rows = IsTied(pattern),
                     .part = part_,
                     .layer = layer_});
  }

  const EncoderSpec& spec_;
  int64_t layer_ = -1;
  Part part_ = Part::kRequired;
  std::vector<ExpectedTensor> list_;
};

}  // namespace

std::string LayerName(std::string_view pattern, int64_t layer) {
  return absl::StrReplaceAll(absl::string_view(pattern.data(), pattern.size()),
                             {{"{layer}", absl::StrCat(layer)}});
}

std::vector<ExpectedTensor> ExpectedTensors(const EncoderSpec& spec) {
  return TensorList(spec).Take();
}

std::vector<ExpectedTensor> CommonTensors(const EncoderSpec& one, const EncoderSpec& other) {
  std::map<std::string, ExpectedTensor> others;
  for (ExpectedTensor& tensor : ExpectedTensors(other)) {
    others.emplace(tensor.name, std::move(tensor));
  }
  std::vector<ExpectedTensor> common;
  for (ExpectedTensor& tensor : ExpectedTensors(one)) {
    const auto same = others.find(tensor.name);
    if (same == others.end() || same->second.part != tensor.part) continue;
    // A stand-in may be too small to be divided.
    const bool whole = std::ranges::all_of(tensor.shape, [](int64_t size) { return size > 0; });
    if (!whole || same->second.shape != tensor.shape) tensor.shape.clear();
    common.push_back(std::move(tensor));
  }
  return common;
}

}  // namespace encoderd
