// Copies bytes through the caches or past them, and chooses between both for data that other cores
// read.

#ifndef COLLECTIVES_NATIVE_COPY_H_
#define COLLECTIVES_NATIVE_COPY_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace collectives {

// Writes one cache line to memory past all caches, for data that is not read soon. The line need not
// be fetched first.
inline void StreamLine(char* to, const char* from) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX__)
  for (int i = 0; i < 64; i += 32) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), half);
  }
#elif defined(__SSE2__)
  for (int i = 0; i < 64; i += 16) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), part);
  }
#else
  std::memcpy(to, from, 64);
#endif
}

// Must be called after StreamLine and before another thread is told of the data.
inline void EndStream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

inline void Copy(char* to, const char* from, int64_t bytes, bool streams) {
  constexpr int64_t kLine = 64, kLeast = 16 * kLine;  // for fewer bytes partial lines dominate
  if (streams && bytes >= kLeast) {
    const int64_t head = -reinterpret_cast<intptr_t>(to) & (kLine - 1);
    std::memcpy(to, from, head);
    to += head, from += head, bytes -= head;
    for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) StreamLine(to, from);
  }
  std::memcpy(to, from, bytes);
}

template <int64_t kBytes>
void CopyShort(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, kBytes);
}

// Copies `count` runs; a short run takes one instruction.
inline void CopyRuns(char* to, int64_t to_stride, const char* from, int64_t from_stride,
                     int64_t bytes, int64_t count, bool streams) {
  if (bytes == to_stride && bytes == from_stride) {
    bytes *= count;
    count = std::min<int64_t>(count, 1);
  }
  switch (bytes) {
    case 1: return CopyShort<1>(to, to_stride, from, from_stride, count);
    case 2: return CopyShort<2>(to, to_stride, from, from_stride, count);
    case 4: return CopyShort<4>(to, to_stride, from, from_stride, count);
    case 8: return CopyShort<8>(to, to_stride, from, from_stride, count);
    case 16: return CopyShort<16>(to, to_stride, from, from_stride, count);
    case 32: return CopyShort<32>(to, to_stride, from, from_stride, count);
    default:
      for (int64_t i = 0; i < count; ++i) {
        Copy(to + i * to_stride, from + i * from_stride, bytes, streams);
      }
  }
}

// Decides whether data that another core will read is written past the caches. Lines that the other
// core has read before are in its cache, and this core has to take them from there before it writes.
// That is fast if both cores share a cache. If they do not, writing to memory and reading from memory
// is faster. The system does not say whether cores share a cache, and the cores of a virtual machine
// may move, so the speed is measured again and again.
class Bypass {
 public:
  // Copies bypass the caches while the measured speed is less than `below` bytes a second.
  explicit Bypass(double below) : below_(below) {}

  bool is_on() const { return (slow_ & 7) != 0; }

  // Returns `is_on` for the next `bytes` bytes at `to`, which other cores may have read. Now and then
  // it writes zeros there to measure the speed.
  bool Try(char* to, int64_t bytes) {
    written_ += bytes;
    if (bytes < kTried || (written_ < kBetween && tries_ >= 3)) return is_on();
    to[0] = to[kTried - 1] = 0;  // the first write to a new page is not timed
    using std::chrono::steady_clock;
    const auto begin = steady_clock::now();
    std::memset(to, 0, kTried);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // until all is written
    const std::chrono::duration<double> took = steady_clock::now() - begin;
    slow_ = slow_ << 1 | (took.count() * below_ > kTried);
    written_ = 0;
    ++tries_;
    return is_on();
  }

 private:
  static constexpr int64_t kTried = 4096, kBetween = 1 << 20;
  double below_;
  unsigned slow_ = 0;  // one bit for each of the last measurements: whether it was slow
  int64_t written_ = 0, tries_ = 0;
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_COPY_H_
