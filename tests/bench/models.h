// models.h — the models that contenders are compared on, as folders that transformers can read too.
#pragma once

#include <cstdint>
#include <string>

#include "tests/engine/random_model.h"

namespace encoderd::bench {

struct Model {
  std::string name;  // "MiniLM-L6"
  std::string key;   // "minilm", of measurements
  BertShape shape;
  std::string dir;       // see WriteModel
  bool trained = false;  // real weights

  bool large() const { return shape.hidden > 512; }
};

// Where the benchmark keeps what it makes: models, their conversions, logs.
std::string BenchFolder();

// Makes the folder of a model with random weights, unless it is there: it is whole or absent.
void WriteModel(const Model& model);

// all-MiniLM-L6-v2 as tests/real/fetch_model.sh leaves it, or random weights of its shape.
Model MiniLm();
// Random weights of BERT-base's shape; with more positions than it has, where `positions` says so.
Model BertBase(int64_t positions = kBertBase.positions);

// Operations that one sequence of so many tokens needs: matrix products and attention; a
// multiply-add counts as two.
double Operations(const BertShape& shape, int64_t tokens);

}  // namespace encoderd::bench
