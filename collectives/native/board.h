// Short messages that the ranks of a machine exchange before a step, in memory that they share. A rank
// that waits for the last one sleeps, where MPI would hold the core.

#ifndef COLLECTIVES_NATIVE_BOARD_H_
#define COLLECTIVES_NATIVE_BOARD_H_

#include <cstdint>
#include <cstring>

#include "window.h"

namespace collectives {

// Bytes of the longest message.
inline constexpr int64_t kNote = 256;

// The messages of one round are in one half of the notes. A rank writes into that half again two
// rounds later. By then all ranks have come to the round between, so they have read the half.
class Board {
 public:
  static int64_t Bytes(int ranks) { return 2 * (sizeof(Word) + ranks * kNote); }

  // The memory is zeroed and has `Bytes(ranks)` bytes.
  Board(char* base, int rank, int ranks, double spin_seconds)
      : arrived_(reinterpret_cast<Word*>(base)),
        notes_(base + 2 * sizeof(Word)),
        rank_(rank),
        ranks_(ranks),
        spin_seconds_(spin_seconds) {}

  // Sets `all` to the messages of all ranks, one after another. All ranks call, with messages of one
  // size up to `kNote`.
  void Gather(const char* message, int64_t bytes, char* all) {
    const uint32_t half = round_ % 2;
    char* notes = notes_ + half * ranks_ * kNote;
    Word& arrived = arrived_[half];
    const uint32_t target = (round_ / 2 + 1) * ranks_;
    ++round_;
    std::memcpy(notes + rank_ * kNote, message, bytes);
    Advance(arrived, target);
    Wait(arrived, target, spin_seconds_);
    for (int rank = 0; rank < ranks_; ++rank) {
      std::memcpy(all + rank * bytes, notes + rank * kNote, bytes);
    }
  }

 private:
  Word* arrived_;
  char* notes_;
  int rank_, ranks_;
  double spin_seconds_;
  uint64_t round_ = 0;
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_BOARD_H_
