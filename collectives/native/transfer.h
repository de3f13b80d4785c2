// Collectives on the members' buffers, chunk by chunk through a window.
//
// The shard of a tensor along a dimension consists of runs of bytes at equal distances. A member sends
// the bytes of its runs one after another. The receiver has the same bytes in runs of other lengths.

#ifndef COLLECTIVES_NATIVE_TRANSFER_H_
#define COLLECTIVES_NATIVE_TRANSFER_H_

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "copy.h"
#include "reduce.h"
#include "window.h"

namespace collectives {

// `count` runs of `bytes` bytes in memory; each run begins `stride` bytes after the one before it.
struct Runs {
  char* base = nullptr;
  int64_t count = 0, stride = 0, bytes = 0;
  int64_t total() const { return count * bytes; }
};

// An array that is reduced from `in` to `out`, which may be the same memory.
struct Array {
  const char* in = nullptr;
  char* out = nullptr;
  int64_t bytes = 0;
};

// Several arrays that are treated as one array.
class Arrays {
 public:
  void Add(const Array& array) {
    arrays_.push_back(array);
    ends_.push_back(bytes() + array.bytes);
  }
  int64_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }

  // Calls `visit` for each array that has bytes of [begin, end), with the array, the offset of these
  // bytes in the array, their offset in all arrays, and their number.
  template <typename Visit>
  void Each(int64_t begin, int64_t end, Visit visit) const {
    end = std::min(end, bytes());
    size_t i = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
    for (; begin < end; ++i) {
      const int64_t size = std::min(end, ends_[i]) - begin;
      if (size > 0) visit(arrays_[i], begin - (ends_[i] - arrays_[i].bytes), begin, size);
      begin += size;
    }
  }

 private:
  std::vector<Array> arrays_;
  std::vector<int64_t> ends_;
};

// Copies the bytes [begin, end) of runs to a buffer (kPack) or from it.
template <bool kPack>
void Transfer(const Runs& runs, int64_t begin, int64_t end, char* buffer, bool streams = false) {
  end = std::min(end, runs.total());
  while (begin < end) {
    const int64_t inside = begin % runs.bytes;
    const int64_t whole = inside == 0 ? (end - begin) / runs.bytes : 0;
    const int64_t bytes = whole > 0 ? runs.bytes : std::min(runs.bytes - inside, end - begin);
    const int64_t count = std::max<int64_t>(whole, 1);
    char* place = runs.base + begin / runs.bytes * runs.stride + inside;
    if (kPack) {
      CopyRuns(buffer, bytes, place, runs.stride, bytes, count, streams);
    } else {
      CopyRuns(place, runs.stride, buffer, bytes, bytes, count, streams);
    }
    begin += bytes * count;
    buffer += bytes * count;
  }
}

// Copies runs to runs with the same number of bytes in all. The length of one run is a multiple of the
// length of the other.
inline void CopyBetween(const Runs& from, const Runs& to, bool streams) {
  if (from.total() == 0) return;
  const bool longer = from.bytes >= to.bytes;
  const int64_t bytes = std::min(from.bytes, to.bytes), inside = std::max(from.bytes, to.bytes) / bytes;
  const int64_t from_stride = longer ? bytes : from.stride, to_stride = longer ? to.stride : bytes;
  for (int64_t i = 0; i < std::min(from.count, to.count); ++i) {
    CopyRuns(to.base + i * (longer ? inside : 1) * to.stride, to_stride,
             from.base + i * (longer ? 1 : inside) * from.stride, from_stride, bytes, inside,
             streams);
  }
}

// Results of all members that have at least this number of bytes bypass the caches, since they would
// leave little space in a cache of 32 MiB. The C library's size of the cache is not used, because in a
// virtual machine that can be the cache of the whole host.
constexpr int64_t kStreamed = 1 << 24;

// One collective of this rank in a group.
class Collective {
 public:
  // `result_bytes` is the size of this member's result; the results of all members have one size.
  Collective(Window& window, Group& group, int64_t result_bytes)
      : window_(window), group_(group), n_(group.size()), streams_(n_ * result_bytes >= kStreamed) {
    window_.Enter(group_);
  }
  ~Collective() {
    if (streams_) EndStream();
    group_.rounds += rounds_;
    window_.Leave(group_);
  }

  // Each member gets the data of all members.
  void Gather(const Runs& sent, const std::vector<Runs>& received) {
    const int64_t step = window_.chunk_bytes(), bytes = sent.total();
    Rounds(
        bytes, step,
        [&](int64_t begin, char* own) {
          const int64_t end = std::min(begin + step, bytes);
          const bool past = window_.bypass().Try(own, end - begin);
          alignas(kAlignment) char block[kBlock];
          for (; begin < end; begin += kBlock, own += kBlock) {  // block by block, to read memory once
            const int64_t last = std::min(begin + kBlock, end);
            char* to = past ? block : own;
            Transfer<true>(sent, begin, last, to);
            Transfer<false>(received[group_.place], begin, last, to, streams_);
            if (past) Copy(own, block, last - begin, true);
          }
        },
        [] {},
        [&](int64_t begin, int64_t round) {
          for (int k = 1; k < n_; ++k) {
            const int i = (group_.place + k) % n_;
            char* from = window_.Buffer(group_, i, round);
            Transfer<false>(received[i], begin, begin + step, from, streams_);
          }
        });
  }

  // Each member gets the data that each member sends to it, at most `most` bytes. All members pass the
  // same `most`.
  void Exchange(const std::vector<Runs>& sent, const std::vector<Runs>& received, int64_t most) {
    const int64_t step = Share();
    Rounds(
        most, step, [&](int64_t begin, char* own) { GiveOthers(sent, begin, most, step, own); },
        [&] { CopyBetween(sent[group_.place], received[group_.place], streams_); },
        [&](int64_t begin, int64_t round) {
          for (int k = 1; k < n_; ++k) {
            const int i = (group_.place + k) % n_;
            char* from = window_.Buffer(group_, i, round) + group_.place * step;
            Transfer<false>(received[i], begin, begin + step, from, streams_);
          }
        });
  }

  // Each member gets the reduction of the data that the members send to it, `bytes` bytes each.
  void ReduceScatter(const std::vector<Runs>& sent, char* out, int64_t bytes, int64_t itemsize,
                     Reduce reduce) {
    const int64_t step = Share();
    const Runs& own_part = sent[group_.place];
    Rounds(
        bytes, step,
        [&](int64_t begin, char* own) {
          GiveOthers(sent, begin, bytes, step, own);
          if (own_part.count > 1) Transfer<true>(own_part, begin, begin + step, own + group_.place * step);
        },
        [] {},
        [&](int64_t begin, int64_t round) {
          std::vector<const char*> arrays = Shared(round, group_.place * step);
          if (own_part.count == 1) arrays[group_.place] = own_part.base + begin;  // without a copy
          ReduceTo(out + begin, nullptr, std::move(arrays), std::min(step, bytes - begin), itemsize,
                   streams_, reduce);
        });
  }

  // Each member gets the reduction of all members' arrays. If the arrays are small, each member
  // reduces all of them. Otherwise each member reduces a share of every chunk.
  void Allreduce(const Arrays& arrays, int64_t itemsize, Reduce reduce) {
    if (arrays.bytes() > kReducedByEach) return ReduceShares(arrays, itemsize, reduce);
    const int64_t step = window_.chunk_bytes();
    Rounds(
        arrays.bytes(), step,
        [&](int64_t begin, char* own) {
          const int64_t end = std::min(begin + step, arrays.bytes());
          Give(arrays, begin, end, own, window_.bypass().Try(own, end - begin));
        },
        [] {},
        [&](int64_t begin, int64_t round) {
          arrays.Each(begin, begin + step, [&](const Array& array, int64_t from, int64_t at, int64_t bytes) {
            ReduceTo(array.out + from, nullptr, Shared(round, at - begin), bytes, itemsize,
                     Streams(array), reduce);
          });
        });
  }

 private:
  static constexpr int64_t kReducedByEach = 1 << 14;  // most bytes that each member reduces whole
  static constexpr int64_t kBlock = 1 << 13;          // bytes that stay in the nearest cache
  // Number of chunks of which each member reduces a share at once. A member writes the next chunks
  // while other members read those of two rounds ago, so the ring holds five times this number.
  static constexpr int64_t kShared = 4;
  static_assert(kBuffers % kShared == 0 && kBuffers / kShared >= 5);

  // Runs rounds of `step` bytes. A member writes the next round before it reads the present one, and
  // writes more rounds while other members are late. `meanwhile` runs once, before the first waiting.
  template <typename Write, typename Meanwhile, typename Read>
  void Rounds(int64_t bytes, int64_t step, Write write, Meanwhile meanwhile, Read read) {
    rounds_ = (bytes + step - 1) / step;
    int64_t written = 0;
    for (int64_t round = 0; round < rounds_; ++round) {
      auto writes = [&] {
        return written < std::min(round + 2, rounds_) ||
               (written <= std::min(round + kAhead, rounds_ - 1) &&
                !window_.HaveArrived(group_, round));
      };
      for (; writes(); ++written) {
        write(written * step, Own(written));
        window_.Arrive(group_, written);
      }
      if (round == 0) meanwhile();
      window_.Await(group_, round);
      read(round * step, round);
    }
  }

  // In a round, a member writes new chunks, reduces its share of the chunks of the last round, and
  // reads the other members' shares of the chunks before those.
  void ReduceShares(const Arrays& arrays, int64_t itemsize, Reduce reduce) {
    const int64_t bytes = arrays.bytes(), step = kShared * window_.chunk_bytes();
    const int64_t rounds = (bytes + step - 1) / step;
    rounds_ = rounds + 1;
    GiveShares(arrays, 0);
    window_.Arrive(group_, 0);
    for (int64_t round = 0; round <= rounds; ++round) {
      if (round + 1 < rounds) GiveShares(arrays, round + 1);
      window_.Await(group_, round);
      if (round < rounds) {
        const int64_t begin = round * step;
        arrays.Each(
            begin + Start(bytes, begin, group_.place), begin + Start(bytes, begin, group_.place + 1),
            [&](const Array& array, int64_t from, int64_t at, int64_t size) {
              std::vector<const char*> inputs = Shared(kShared * round, at - begin);
              inputs[group_.place] = array.in + from;
              ReduceTo(array.out + from, Own(kShared * round) + (at - begin), std::move(inputs), size,
                       itemsize, Streams(array), reduce);
            });
        window_.Arrive(group_, round + 1);
      }
      if (round == 0) continue;
      const int64_t begin = (round - 1) * step;
      for (int k = 1; k < n_; ++k) {  // members read from different members at the same time
        const int i = (group_.place + k) % n_;
        const char* reduced = window_.Buffer(group_, i, kShared * (round - 1));
        arrays.Each(begin + Start(bytes, begin, i), begin + Start(bytes, begin, i + 1),
                    [&](const Array& array, int64_t from, int64_t at, int64_t size) {
                      Copy(array.out + from, reduced + (at - begin), size, Streams(array));
                    });
      }
    }
  }

  // Whether writing an array bypasses the caches. An array that was just read is in a cache already.
  bool Streams(const Array& array) const { return streams_ && array.in != array.out; }

  // The offset of a member's share in the chunks that begin at byte `begin`.
  int64_t Start(int64_t bytes, int64_t begin, int member) const {
    const int64_t size = std::min(kShared * window_.chunk_bytes(), bytes - begin);
    const int64_t share = (size / n_ + kAlignment) / kAlignment * kAlignment;
    return std::min(member * share, size);
  }

  // Writes the bytes [begin, end) of arrays to a buffer.
  static void Give(const Arrays& arrays, int64_t begin, int64_t end, char* buffer, bool past) {
    arrays.Each(begin, end, [&](const Array& array, int64_t from, int64_t at, int64_t bytes) {
      Copy(buffer + (at - begin), array.in + from, bytes, past);
    });
  }

  // Writes the bytes of a round that other members reduce: all but this member's share.
  void GiveShares(const Arrays& arrays, int64_t round) const {
    const int64_t begin = round * kShared * window_.chunk_bytes(), bytes = arrays.bytes();
    const int64_t first = Start(bytes, begin, group_.place);
    const int64_t last = Start(bytes, begin, group_.place + 1), end = Start(bytes, begin, n_);
    char* own = Own(kShared * round);
    const bool past = window_.bypass().Try(own, end);
    Give(arrays, begin, begin + first, own, past);
    Give(arrays, begin + last, begin + end, own + last, past);
  }

  // Reduces arrays into `out`, and into `shared` unless that is null.
  void ReduceTo(char* out, char* shared, std::vector<const char*> arrays, int64_t bytes,
                int64_t itemsize, bool streams, Reduce reduce) const {
    alignas(kAlignment) char block[kBlock];
    const bool past = shared != nullptr && window_.bypass().is_on();
    for (int64_t begin = 0; begin < bytes; begin += kBlock) {
      const int64_t size = std::min(kBlock, bytes - begin);
      char* to = out + begin;
      if (shared != nullptr) to = past ? block : shared + begin;
      else if (streams) to = block;
      reduce(arrays.data(), n_, to, size / itemsize);
      if (past) Copy(shared + begin, to, size, true);
      if (to != out + begin) Copy(out + begin, to, size, streams);
      for (const char*& array : arrays) array += size;
    }
  }

  // Writes the next `step` bytes for each other member, one member after another. No member gets more
  // than `most` bytes.
  void GiveOthers(const std::vector<Runs>& sent, int64_t begin, int64_t most, int64_t step,
                  char* own) const {
    char* read = own + (group_.place == 0 ? step : 0);  // the first bytes that other members read
    const bool past = window_.bypass().Try(read, std::min(step, most - begin));
    for (int i = 0; i < n_; ++i) {
      if (i != group_.place) Transfer<true>(sent[i], begin, begin + step, own + i * step, past);
    }
  }

  // The bytes of a chunk that are for one member; a chunk has a cache line for each rank.
  int64_t Share() const { return window_.chunk_bytes() / n_ / kAlignment * kAlignment; }
  char* Own(int64_t chunk) const { return window_.Buffer(group_, group_.place, chunk); }
  // The addresses of the members' data in a chunk.
  std::vector<const char*> Shared(int64_t chunk, int64_t offset) const {
    std::vector<const char*> addresses;
    for (int i = 0; i < n_; ++i) addresses.push_back(window_.Buffer(group_, i, chunk) + offset);
    return addresses;
  }

  Window& window_;
  Group& group_;
  const int n_;
  bool streams_;
  int64_t rounds_ = 0;  // number of rounds of this collective
};

// A block of the rows [first, last) of a result.
struct Rows {
  Runs runs;
  int64_t first, last;
};

// Sums blocks of rows, which may overlap, in their order. Rows that are in no block become zero.
inline void AddUp(const std::vector<Rows>& blocks, const Runs& out, int64_t row_bytes,
                  int64_t itemsize, Reduce reduce) {
  if (row_bytes == 0) return;
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
