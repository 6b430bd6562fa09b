// kept_products.h — which matrix products of an int8 model stay in bf16, for the accuracy of the
// whole.
//
// Role:   the last step of loading a model in int8, where the CPU has bf16.
// Method: on fixed sequences (accuracy.h), one product at a time runs in int8 and all others in
//         bf16. Its share of the error is then the mean over the tokens of 1 − cosine to bf16
//         alone, which is some hundred times nearer to fp32. Shares of several products nearly add
//         up.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/spec.h"
#include "engine/weights.h"

namespace encoderd {

// A product with a larger share stays in bf16. With MiniLM-L6 on real texts, the smallest cosine to
// fp32 is then 0.998 over the tokens and 0.998 over the pooled vectors, and 9 of 24 products stay;
// with none, it is 0.991 and 0.987.
inline constexpr double kMaxErrorShare = 8e-5;

// Exchanges those products of `int8` for those of `bf16`, the same model's, which is good for
// nothing afterwards. Returns their names, such as "3.ffn_out". Errors: those of running the model.
absl::StatusOr<std::vector<std::string>> KeepSensitiveProducts(const EncoderSpec& spec,
                                                               EncoderWeights& int8,
                                                               EncoderWeights& bf16);

}  // namespace encoderd
