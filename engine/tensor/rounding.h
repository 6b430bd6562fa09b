// rounding.h — sizes in steps. Values are not negative.
#pragma once

#include <concepts>
#include <type_traits>

namespace encoderd {

template <std::integral T>
constexpr T CeilDiv(T value, std::type_identity_t<T> by) {
  return (value + by - 1) / by;
}

template <std::integral T>
constexpr T RoundUp(T value, std::type_identity_t<T> step) {
  return CeilDiv(value, step) * step;
}

}  // namespace encoderd
