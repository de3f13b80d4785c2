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

#include "copy.h"
#include "reduce.h"
#include "window.h"

namespace collectives {

// Where bytes lie: `count` runs of `bytes` bytes, `stride` bytes from one to the next.
struct Runs {
  char* base = nullptr;
  int64_t count = 0, stride = 0, bytes = 0;
  int64_t total() const { return count * bytes; }
};

// What is reduced: `out` may be `in`.
struct Array {
  const char* in = nullptr;
  char* out = nullptr;
  int64_t bytes = 0;
};

// Arrays one after another, as if they were one.
class Arrays {
 public:
  void Add(const Array& array) {
    arrays_.push_back(array);
    ends_.push_back(bytes() + array.bytes);
  }
  int64_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }

  // Of the bytes [begin, end) what each array has: `from` which of its bytes on, at which of all.
  template <typename What>
  void Each(int64_t begin, int64_t end, What what) const {
    end = std::min(end, bytes());
    size_t i = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
    for (; begin < end; ++i) {
      const int64_t size = std::min(end, ends_[i]) - begin;
      if (size > 0) what(arrays_[i], begin - (ends_[i] - arrays_[i].bytes), begin, size);
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

// Copies runs to others of as many bytes in all; the length of one divides by that of the other.
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

// Results of so many bytes in all leave little in a cache of 32 MiB. What the C library says of the
// cache is not asked: in a virtual machine that can be the whole host's, many times as much.
constexpr int64_t kStreamed = 1 << 24;

// One collective of this rank in a group.
class Collective {
 public:
  // `result_bytes` is what this member gets; the others get as much.
  Collective(Window& window, Group& group, int64_t result_bytes)
      : window_(window), group_(group), n_(group.size()), streams_(n_ * result_bytes >= kStreamed) {
    window_.Enter(group_);
  }
  ~Collective() {
    if (streams_) EndStream();
    group_.rounds += rounds_;
    window_.Leave(group_);
  }

  // Every member gets what each member sends to all.
  void Gather(const Runs& sent, const std::vector<Runs>& received) {
    const int64_t step = window_.chunk_bytes(), bytes = sent.total();
    Rounds(
        bytes, step,
        [&](int64_t begin, char* own) {
          const int64_t end = std::min(begin + step, bytes);
          const bool past = window_.bypass().Try(own, end - begin);
          alignas(kAlignment) char block[kBlock];
          for (; begin < end; begin += kBlock, own += kBlock) {  // read once from memory
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

  // Every member gets what each member sends to it: at most `most` bytes, as all members know.
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

  // Every member gets the reduction of what the members send to it, of `bytes` bytes each.
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
          if (own_part.count == 1) arrays[group_.place] = own_part.base + begin;  // read where it is
          ReduceTo(out + begin, nullptr, std::move(arrays), std::min(step, bytes - begin), itemsize,
                   streams_, reduce);
        });
  }

  // Every member gets the reduction of all, of arrays one after another. Of a little, each reduces
  // everything itself; of more, a share of every chunk, for which it reads its own part where it is.
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
  static constexpr int64_t kReducedByEach = 1 << 14;
  static constexpr int64_t kBlock = 1 << 13;  // of bytes that stay in the nearest cache
  // Chunks of which each member reduces a share. It writes the next such part while others read the
  // one before last, so that a ring holds five.
  static constexpr int64_t kShared = 4;
  static_assert(kBuffers % kShared == 0 && kBuffers / kShared >= 5);

  // Rounds of `step` bytes: a member writes the next one before it reads the present one, and more
  // while others are late. `meanwhile` is what can be done without them.
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

  // A member arrives once it has written some chunks and reduced its share of those before, and
  // reads the others' shares of those before that while they do the same.
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
              std::vector<const char*> given = Shared(kShared * round, at - begin);
              given[group_.place] = array.in + from;
              ReduceTo(array.out + from, Own(kShared * round) + (at - begin), std::move(given), size,
                       itemsize, Streams(array), reduce);
            });
        window_.Arrive(group_, round + 1);
      }
      if (round == 0) continue;
      const int64_t begin = (round - 1) * step;
      for (int k = 1; k < n_; ++k) {  // each begins with another member's
        const int i = (group_.place + k) % n_;
        const char* reduced = window_.Buffer(group_, i, kShared * (round - 1));
        arrays.Each(begin + Start(bytes, begin, i), begin + Start(bytes, begin, i + 1),
                    [&](const Array& array, int64_t from, int64_t at, int64_t size) {
                      Copy(array.out + from, reduced + (at - begin), size, Streams(array));
                    });
      }
    }
  }

  // What was just read is in a cache already.
  bool Streams(const Array& array) const { return streams_ && array.in != array.out; }

  // Where the share of a member starts in what begins at `begin`.
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

  // Writes what a round is of for the others: all but this member's share.
  void GiveShares(const Arrays& arrays, int64_t round) const {
    const int64_t begin = round * kShared * window_.chunk_bytes(), bytes = arrays.bytes();
    const int64_t first = Start(bytes, begin, group_.place);
    const int64_t last = Start(bytes, begin, group_.place + 1), end = Start(bytes, begin, n_);
    char* own = Own(kShared * round);
    const bool past = window_.bypass().Try(own, end);
    Give(arrays, begin, begin + first, own, past);
    Give(arrays, begin + last, begin + end, own + last, past);
  }

  // Reduces arrays into `out`, and into `shared` where that is not null.
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

  // Writes `step` bytes of what each other member gets, one after the other; to none more than `most`.
  void GiveOthers(const std::vector<Runs>& sent, int64_t begin, int64_t most, int64_t step,
                  char* own) const {
    char* read = own + (group_.place == 0 ? step : 0);  // by others, as this member's place is not
    const bool past = window_.bypass().Try(read, std::min(step, most - begin));
    for (int i = 0; i < n_; ++i) {
      if (i != group_.place) Transfer<true>(sent[i], begin, begin + step, own + i * step, past);
    }
  }

  // Of a chunk, what one of the members gets.
  int64_t Share() const { return window_.chunk_bytes() / n_ / kAlignment * kAlignment; }
  char* Own(int64_t chunk) const { return window_.Buffer(group_, group_.place, chunk); }
  // Where members have written, each in its buffer.
  std::vector<const char*> Shared(int64_t chunk, int64_t offset) const {
    std::vector<const char*> found;
    for (int i = 0; i < n_; ++i) found.push_back(window_.Buffer(group_, i, chunk) + offset);
    return found;
  }

  Window& window_;
  Group& group_;
  const int n_;
  bool streams_;
  int64_t rounds_ = 0;  // of this collective
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
