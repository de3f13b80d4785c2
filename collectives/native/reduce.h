// Reduces contiguous arrays element by element, in the order of the arrays.

#ifndef COLLECTIVES_NATIVE_REDUCE_H_
#define COLLECTIVES_NATIVE_REDUCE_H_

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace collectives {

// Reduces `count` elements of each of `n` arrays into `out`, which may be one of the arrays.
using Reduce = void (*)(const char* const* arrays, int n, char* out, int64_t count);

template <typename To, typename From>
To Bits(From from) {
  To to;
  static_assert(sizeof(to) == sizeof(from), "both types have the same size");
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// Half precision is reduced in single precision and rounded once. The conversions have no branches, so
// the compiler can vectorise them.
struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  explicit operator float() const { return Bits<float>(static_cast<uint32_t>(bits) << 16); }
  explicit BFloat16(float x) {
    const uint32_t b = Bits<uint32_t>(x);
    const uint32_t rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;  // to nearest, ties to even
    bits = static_cast<uint16_t>(x != x ? (b >> 16) | 0x40 : rounded);
  }
};

struct Float16 {
  uint16_t bits;
  Float16() = default;
  explicit operator float() const {
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
    // The multiplication changes the exponent's bias from 15 to 127; it is exact for subnormals, too.
    const float moved = Bits<float>(magnitude) * Bits<float>(uint32_t{(254 - 15) << 23});
    const uint32_t special = magnitude >= 0x7c00u << 13 ? 0xffu << 23 : 0;  // infinity and NaN
    return Bits<float>(Bits<uint32_t>(moved) | special | static_cast<uint32_t>(bits & 0x8000) << 16);
  }
  explicit Float16(float x) {
    const uint32_t b = Bits<uint32_t>(x), sign = (b >> 16) & 0x8000, magnitude = b & 0x7fffffff;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Adding 0.5 rounds a subnormal number to a multiple of the smallest one.
    const uint32_t small = Bits<uint32_t>(Bits<float>(magnitude) + 0.5f) - Bits<uint32_t>(0.5f);
    uint32_t half = magnitude < (113u << 23) ? small : normal;
    half = magnitude >= 0x477ff000 ? 0x7c00 : half;  // beyond the largest number: infinity
    half = magnitude > 0x7f800000 ? 0x7e00 : half;   // NaN
    bits = static_cast<uint16_t>(sign | half);
  }
};

template <typename T>
struct Wide {
  using type = T;
};
template <>
struct Wide<BFloat16> {
  using type = float;
};
template <>
struct Wide<Float16> {
  using type = float;
};

struct Sum {
  template <typename A>
  static A Apply(A a, A b) { return static_cast<A>(a + b); }
};
struct Prod {
  template <typename A>
  static A Apply(A a, A b) { return static_cast<A>(a * b); }
};
// NaN stays NaN, as in NumPy.
struct Max {
  template <typename A>
  static A Apply(A a, A b) { return a >= b || a != a ? a : b; }
};
struct Min {
  template <typename A>
  static A Apply(A a, A b) { return a <= b || a != a ? a : b; }
};

template <typename T, typename Op>
void ReduceArrays(const char* const* arrays, int n, char* out, int64_t count) {
  using A = typename Wide<T>::type;
  auto array = [&](int i) { return reinterpret_cast<const T*>(arrays[i]); };
  T* to = reinterpret_cast<T*>(out);
  if (n == 2) {
    const T *a = array(0), *b = array(1);
    for (int64_t i = 0; i < count; ++i) to[i] = T(Op::Apply(A(a[i]), A(b[i])));
    return;
  }
  constexpr int64_t kBlock = 1024;
  A total[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    for (int64_t i = 0; i < size; ++i) total[i] = A(array(0)[begin + i]);
    for (int other = 1; other < n; ++other) {
      const T* from = array(other) + begin;
      for (int64_t i = 0; i < size; ++i) total[i] = Op::Apply(total[i], A(from[i]));
    }
    for (int64_t i = 0; i < size; ++i) to[begin + i] = T(total[i]);
  }
}

// Returns the function for a reducer, nullptr if the type has no such reduction.
template <typename T>
Reduce FindReduce(const std::string& reducer) {
  if (reducer == "sum") return &ReduceArrays<T, Sum>;
  if (reducer == "prod") return &ReduceArrays<T, Prod>;
  if constexpr (!std::is_same_v<T, std::complex<float>> && !std::is_same_v<T, std::complex<double>>) {
    if (reducer == "max") return &ReduceArrays<T, Max>;
    if (reducer == "min") return &ReduceArrays<T, Min>;
  }
  return nullptr;
}

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_REDUCE_H_
