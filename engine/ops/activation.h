// activation.h — the element-wise functions that encoders use.
#pragma once

namespace encoderd {

// kGelu is the exact form x · Φ(x) with erf (Hugging Face "gelu"); kGeluTanh its tanh approximation
// ("gelu_new", "gelu_pytorch_tanh"), both of Hendrycks and Gimpel 2016; kSilu is x · sigmoid(x).
enum class Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu, kTanh };

}  // namespace encoderd
