// model_type "bert" with position_embedding_type "alibi": JinaBERT v2 (Günther et al. 2023), BERT
// with a slope on distances (Press et al. 2022) in place of positions, and a gated FFN.
#include <string>
#include <string_view>

#include "engine/model/families.h"
#include "engine/model/families/bert.h"

namespace encoderd {
namespace {

// None: BERT's own FFN, without a gate.
constexpr NamedValue<Activation> kGateActivations[] = {
    {"original", Activation::kNone}, {"reglu", Activation::kRelu}, {"geglu", Activation::kGelu}};

// How long texts are that the tokenizer cuts: the caller's.
constexpr std::string_view kHarmlessKeys[] = {"model_max_length"};

void NameGatedFfn(EncoderSpec& spec) {
  const std::string ffn = "encoder.layer.{layer}.mlp.";
  spec.ffn_in = {.weight = ffn + "gated_layers.weight"};
  spec.ffn_out = WithBias(ffn + "wo");
  spec.norm2 = WithBias(ffn + "layernorm");
}

}  // namespace

EncoderSpec JinaBertSpec(ConfigReader& config) {
  EncoderSpec spec = ReadBertKeys(config, {.position_embedding_type = "alibi", .own_code = true});
  spec.positions = PositionKind::kNone;
  spec.position_bias = PositionBiasKind::kAlibi;
  NameBertEmbeddings(spec);
  spec.position_embedding = {};
  NameBertBlocks(spec);
  const Activation gate =
      config.Choice("feed_forward_type", kGateActivations, std::optional(Activation::kNone));
  if (gate != Activation::kNone) {
    spec.activation = gate;
    spec.gate = Gate::kFirst;
    NameGatedFfn(spec);
  }
  AddTanhPooler(WithBias("pooler.dense"), spec);
  config.Only("emb_pooler", "mean");  // what a request gets that asks for no other
  config.Ignore(kHarmlessKeys);
  ReadBertHead(config, spec);
  return spec;
}

}  // namespace encoderd
