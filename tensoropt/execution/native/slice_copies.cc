// Copies of a checkpoint's slices, with their checksums, in one pass over memory.
//
// The steps wait for the copies, and nothing reads them before the disk does: on x86-64 they are
// written past the caches, which keep what the steps use.

#include <cstdint>
#include <cstring>

#if defined(__SSE4_2__) && defined(__x86_64__)
#include <immintrin.h>
#else
#include "tensorflow/core/lib/hash/crc32c.h"
#endif

namespace {

#if defined(__SSE4_2__) && defined(__x86_64__)

// Copies bytes and returns their CRC32C.
uint32_t Copied(char* to, const char* from, int64_t bytes) {
  uint64_t crc = 0xffffffff;
  const auto byte = [&] {
    crc = _mm_crc32_u8(static_cast<uint32_t>(crc), static_cast<uint8_t>(*from));
    *to++ = *from++;
    --bytes;
  };
  while (bytes > 0 && reinterpret_cast<uintptr_t>(to) % sizeof(long long) != 0) byte();
  for (; bytes >= static_cast<int64_t>(sizeof(long long)); bytes -= sizeof(long long)) {
    long long word;
    std::memcpy(&word, from, sizeof word);
    crc = _mm_crc32_u64(crc, static_cast<uint64_t>(word));
    _mm_stream_si64(reinterpret_cast<long long*>(to), word);
    to += sizeof word;
    from += sizeof word;
  }
  while (bytes > 0) byte();
  return static_cast<uint32_t>(crc) ^ 0xffffffff;
}

void Finish() { _mm_sfence(); }  // orders writes past the caches before those that follow

#else

uint32_t Copied(char* to, const char* from, int64_t bytes) {
  std::memcpy(to, from, bytes);
  return tensorflow::crc32c::Value(to, bytes);
}

void Finish() {}

#endif

}  // namespace

// Copies `count` runs of bytes to other places, and notes their CRC32C.
extern "C" void tensoropt_copy_slices(int64_t count, const uint64_t* from, const uint64_t* to,
                                      const int64_t* bytes, uint32_t* checksums) {
  for (int64_t i = 0; i < count; ++i) {
    checksums[i] = Copied(reinterpret_cast<char*>(to[i]), reinterpret_cast<const char*>(from[i]),
                          bytes[i]);
  }
  Finish();
}
