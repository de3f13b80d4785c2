// What a collective does to the members' buffers, chunk by chunk through a window.
//
// Shards of a tensor along a dimension lie in memory in runs at equal distances. What one member
// sends to another is the bytes of such runs, one after another; both see the same bytes, in runs
// of their own.

#ifndef COLLECTIVES_NATIVE_TRANSFER_H_
#define COLLECTIVES_NATIVE_TRANSFER_H_

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "reduce.h"
#include "window.h"

namespace collectives {

// Where bytes lie: `count` runs of `bytes` bytes, `stride` bytes from one to the next.
struct Runs {
  char* base = nullptr;
  int64_t count = 0, stride = 0, bytes = 0;
  int64_t total() const { return count * bytes; }
};

template <int64_t kBytes>
void CopyShort(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, kBytes);
}

// Copies `count` runs; short ones by an instruction each.
inline void CopyRuns(char* to, int64_t to_stride, const char* from, int64_t from_stride,
                     int64_t bytes, int64_t count) {
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
        std::memcpy(to + i * to_stride, from + i * from_stride, bytes);
      }
  }
}

// Copies the bytes [begin, end) of runs to a buffer (kPack) or from it.
template <bool kPack>
void Transfer(const Runs& runs, int64_t begin, int64_t end, char* buffer) {
  end = std::min(end, runs.total());
  while (begin < end) {
    const int64_t inside = begin % runs.bytes;
    const int64_t whole = inside == 0 ? (end - begin) / runs.bytes : 0;
    const int64_t bytes = whole > 0 ? runs.bytes : std::min(runs.bytes - inside, end - begin);
    const int64_t count = std::max<int64_t>(whole, 1);
    char* place = runs.base + begin / runs.bytes * runs.stride + inside;
    if (kPack) {
      CopyRuns(buffer, bytes, place, runs.stride, bytes, count);
    } else {
      CopyRuns(place, runs.stride, buffer, bytes, bytes, count);
    }
    begin += bytes * count;
    buffer += bytes * count;
  }
}

// Copies runs to others of as many bytes in all; the length of one divides by that of the other.
inline void CopyBetween(const Runs& from, const Runs& to) {
  if (from.total() == 0) return;
  const bool longer = from.bytes >= to.bytes;
  const int64_t bytes = std::min(from.bytes, to.bytes), inside = std::max(from.bytes, to.bytes) / bytes;
  const int64_t from_stride = longer ? bytes : from.stride, to_stride = longer ? to.stride : bytes;
  for (int64_t i = 0; i < std::min(from.count, to.count); ++i) {
    CopyRuns(to.base + i * (longer ? inside : 1) * to.stride, to_stride,
             from.base + i * (longer ? 1 : inside) * from.stride, from_stride, bytes, inside);
  }
}

// One collective of this rank in a group.
class Collective {
 public:
  Collective(Window& window, Group& group) : window_(window), group_(group), n_(group.size()) {
    window_.Enter(group_);
  }
  ~Collective() { window_.Leave(group_); }

  // Every member gets what each member sends to all.
  void Gather(const Runs& sent, const std::vector<Runs>& received) {
    const int64_t step = window_.chunk_bytes();
    Rounds(
        sent.total(), step,
        [&](int64_t begin, char* own) { Transfer<true>(sent, begin, begin + step, own); },
        [&](int64_t begin, int64_t round) {
          for (int i = 0; i < n_; ++i) {
            Transfer<false>(received[i], begin, begin + step, window_.Buffer(group_, i, round));
          }
        });
  }

  // Every member gets what each member sends to it: at most `most` bytes, as all members know.
  void Exchange(const std::vector<Runs>& sent, const std::vector<Runs>& received, int64_t most) {
    const int64_t step = Share();
    Rounds(
        most, step, [&](int64_t begin, char* own) { GiveOthers(sent, begin, step, own); },
        [&](int64_t begin, int64_t round) {
          for (int i = 0; i < n_; ++i) {
            if (i == group_.place) continue;
            const char* from = window_.Buffer(group_, i, round) + group_.place * step;
            Transfer<false>(received[i], begin, begin + step, const_cast<char*>(from));
          }
        });
    CopyBetween(sent[group_.place], received[group_.place]);
  }

  // Every member gets the reduction of what the members send to it, of `bytes` bytes each.
  void ReduceScatter(const std::vector<Runs>& sent, char* out, int64_t bytes, int64_t itemsize,
                     Reduce reduce) {
    const int64_t step = Share();
    const Runs& own_part = sent[group_.place];
    Rounds(
        bytes, step,
        [&](int64_t begin, char* own) {
          GiveOthers(sent, begin, step, own);
          if (own_part.count > 1) Transfer<true>(own_part, begin, begin + step, own + group_.place * step);
        },
        [&](int64_t begin, int64_t round) {
          const int64_t count = (std::min(begin + step, bytes) - begin) / itemsize;
          std::vector<const char*> arrays = Arrays(round, group_.place * step);
          if (own_part.count == 1) arrays[group_.place] = own_part.base + begin;  // read where it is
          reduce(arrays.data(), n_, out + begin, count);
        });
  }

  // Every member gets the reduction of all; `out` may be `in`. Of a little, each reduces everything
  // itself. Of more, it reduces a share of every chunk, for which it reads its own part where it is.
  void Allreduce(const char* in, char* out, int64_t bytes, int64_t itemsize, Reduce reduce) {
    const int64_t step = window_.chunk_bytes();
    if (bytes <= kReducedByEach) {
      Rounds(
          bytes, step, [&](int64_t, char* own) { std::memcpy(own, in, bytes); },
          [&](int64_t, int64_t round) {
            reduce(Arrays(round, 0).data(), n_, out, bytes / itemsize);
          });
      return;
    }
    for (int64_t round = 0, begin = 0; begin < bytes; ++round, begin += step) {
      if (round == 0) GiveShares(in, bytes, 0);
      const int64_t first = Start(bytes, begin, group_.place);
      const int64_t size = Start(bytes, begin, group_.place + 1) - first;
      char* own = Own(round) + first;
      window_.Arrive(group_);
      window_.Await(group_);
      std::vector<const char*> arrays = Arrays(round, first);
      arrays[group_.place] = in + begin + first;
      reduce(arrays.data(), n_, own, size / itemsize);
      window_.Arrive(group_);
      std::memcpy(out + begin + first, own, size);
      if (begin + step < bytes) GiveShares(in, bytes, round + 1);
      window_.Await(group_);
      for (int k = 1; k < n_; ++k) {  // each begins with another member's
        const int i = (group_.place + k) % n_;
        const int64_t from = Start(bytes, begin, i), to = Start(bytes, begin, i + 1);
        std::memcpy(out + begin + from, window_.Buffer(group_, i, round) + from, to - from);
      }
    }
  }

 private:
  static constexpr int64_t kReducedByEach = 1 << 14;

  // Rounds of `step` bytes: a member writes the next one while it waits for the others' present
  // one. It may, as its third buffer was read two rounds ago: all were past that at the last
  // barrier.
  template <typename Write, typename Read>
  void Rounds(int64_t bytes, int64_t step, Write write, Read read) {
    if (bytes > 0) write(0, Own(0));
    for (int64_t round = 0, begin = 0; begin < bytes; ++round, begin += step) {
      window_.Arrive(group_);
      if (begin + step < bytes) write(begin + step, Own(round + 1));
      window_.Await(group_);
      read(begin, round);
    }
  }

  // Where the share of a member starts in the chunk that begins at `begin`.
  int64_t Start(int64_t bytes, int64_t begin, int member) const {
    const int64_t size = std::min(window_.chunk_bytes(), bytes - begin);
    const int64_t share = (size / n_ + kAlignment) / kAlignment * kAlignment;
    return std::min(member * share, size);
  }

  // Writes the chunk of a round for the others: all but this member's share.
  void GiveShares(const char* in, int64_t bytes, int64_t round) const {
    const int64_t begin = round * window_.chunk_bytes();
    const int64_t first = Start(bytes, begin, group_.place);
    const int64_t last = Start(bytes, begin, group_.place + 1), end = Start(bytes, begin, n_);
    std::memcpy(Own(round), in + begin, first);
    std::memcpy(Own(round) + last, in + begin + last, end - last);
  }

  // Writes `step` bytes of what each other member gets, one after the other.
  void GiveOthers(const std::vector<Runs>& sent, int64_t begin, int64_t step, char* own) const {
    for (int i = 0; i < n_; ++i) {
      if (i != group_.place) Transfer<true>(sent[i], begin, begin + step, own + i * step);
    }
  }

  // Of a chunk, what one of the members gets.
  int64_t Share() const { return window_.chunk_bytes() / n_ / kAlignment * kAlignment; }
  char* Own(int64_t round) const { return window_.Buffer(group_, group_.place, round); }
  std::vector<const char*> Arrays(int64_t round, int64_t offset) const {
    std::vector<const char*> found;
    for (int i = 0; i < n_; ++i) found.push_back(window_.Buffer(group_, i, round) + offset);
    return found;
  }

  Window& window_;
  Group& group_;
  const int n_;
};

// The sum of blocks of rows that overlap, each in its runs from row `first` on; in their order.
// Rows of no block are zero.
struct Rows {
  Runs runs;
  int64_t first, last;
};

inline void AddUp(const std::vector<Rows>& blocks, const Runs& out, int64_t row_bytes,
                  int64_t itemsize, Reduce reduce) {
  const int64_t extent = out.bytes / row_bytes;
  std::set<int64_t> cuts = {0, extent};
  for (const Rows& block : blocks) cuts.insert({block.first, block.last});
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    const int64_t first = *cut, last = *std::next(cut);
    for (int64_t run = 0; run < out.count; ++run) {
      std::vector<const char*> arrays;
      for (const Rows& block : blocks) {
        if (block.first > first || block.last < last) continue;
        arrays.push_back(block.runs.base + run * block.runs.stride + (first - block.first) * row_bytes);
      }
      char* to = out.base + run * out.stride + first * row_bytes;
      const int64_t bytes = (last - first) * row_bytes;
      if (arrays.empty()) {
        std::memset(to, 0, bytes);
      } else {
        reduce(arrays.data(), static_cast<int>(arrays.size()), to, bytes / itemsize);
      }
    }
  }
}

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_TRANSFER_H_
